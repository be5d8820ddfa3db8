//! The TOML shapes of stages and passes; what they mean is checked elsewhere.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use super::ClipPolicy;
use super::file::{LabelFile, LabelText, Share};

/// A stage with the keys of all operators; which of them an operator has is checked later.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StageFile {
    pub(super) name: String,
    pub(super) op: Spanned<String>,
    pub(super) pass: Option<Spanned<String>>,
    pub(super) when: Option<Spanned<ConditionFile>>,
    pub(super) rubric: Option<Spanned<String>>,
    pub(super) question: Option<Spanned<String>>,
    pub(super) why: Option<Spanned<String>>,
    pub(super) options: Option<Spanned<Vec<Spanned<OptionFile>>>>,
    pub(super) unclear: Option<Spanned<UnclearFile>>,
    pub(super) fields: Option<Spanned<Vec<Spanned<String>>>>,
    pub(super) model: Option<Spanned<String>>,
    pub(super) widen: Option<Spanned<bool>>,
    pub(super) tool: Option<Spanned<String>>,
    pub(super) split: Option<Spanned<SplitFile>>,
    pub(super) max_chars: Option<Spanned<u32>>,
    pub(super) policy: Option<Spanned<ClipPolicy>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SplitFile {
    pub(super) over_chars: Spanned<u32>,
    pub(super) part_chars: Option<Spanned<u32>>,
    pub(super) parts_max: Option<Spanned<u32>>,
    pub(super) depth_max: Option<Spanned<u32>>,
    pub(super) rubric: Spanned<String>,
    pub(super) question: Spanned<String>,
    pub(super) labels: Vec<Spanned<LabelFile>>,
    pub(super) keep: Spanned<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OptionFile {
    pub(super) name: LabelText,
    pub(super) means: Option<String>,
    pub(super) then: Option<Spanned<String>>,
    pub(super) run: Option<Spanned<Vec<Spanned<String>>>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UnclearFile {
    pub(super) margin_below: Spanned<Share>,
    pub(super) option: Spanned<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ConditionFile {
    #[serde(default)]
    pub(super) label: BTreeMap<String, Spanned<LabelText>>,
    #[serde(default)]
    pub(super) margin_below: BTreeMap<String, Spanned<Share>>,
    pub(super) abstained: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PassFile {
    pub(super) name: Spanned<String>,
    pub(super) units_max: Spanned<u64>,
    pub(super) tokens_max: Option<u64>,
}
