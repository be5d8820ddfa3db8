//! The TOML shape of effects; what it means is checked elsewhere.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use super::effect::Action;
use super::file::{LabelText, Share};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EffectFile {
    pub(super) name: String,
    pub(super) kind: Spanned<String>,
    #[serde(rename = "where")]
    pub(super) place: Spanned<String>,
    pub(super) hosts: Option<Spanned<Vec<Spanned<String>>>>,
    pub(super) token_env: Option<Spanned<String>>,
    pub(super) action: Action,
    pub(super) when: Spanned<EffectConditionFile>,
    pub(super) resource: Option<Spanned<String>>,
    pub(super) text: Option<Spanned<String>>,
    pub(super) set: Option<Spanned<String>>,
    pub(super) version: Option<Spanned<String>>,
    pub(super) effects_max: Spanned<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EffectConditionFile {
    #[serde(default)]
    pub(super) label: BTreeMap<String, Spanned<LabelText>>,
    #[serde(default)]
    pub(super) probability_min: BTreeMap<String, Spanned<Share>>,
    #[serde(default)]
    pub(super) margin_min: BTreeMap<String, Spanned<Share>>,
}
