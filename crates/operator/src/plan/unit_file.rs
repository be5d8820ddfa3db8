//! The TOML shapes of `[unit]` and `[group]`; what they mean is checked elsewhere.

use serde::Deserialize;
use toml::Spanned;

use super::file::Share;
use super::{Granularity, Shape};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UnitFile {
    pub(super) kind: Option<Granularity>,
    pub(super) fields: Option<Spanned<Vec<Spanned<String>>>>,
    pub(super) widen: Option<Spanned<bool>>,
}

/// Neighbours with the keys of all ways to find them; which of them a way has is checked later.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GroupFile {
    pub(super) by: Spanned<String>,
    pub(super) shape: Option<Spanned<Shape>>,
    pub(super) fields: Option<Spanned<Vec<Spanned<String>>>>,
    pub(super) field: Option<Spanned<String>>,
    pub(super) pattern: Option<Spanned<String>>,
    pub(super) at_least: Option<Spanned<Share>>,
    pub(super) within: Option<Spanned<String>>,
    pub(super) order_by: Option<Spanned<String>>,
    pub(super) most: Option<Spanned<u32>>,
    pub(super) members_max: Option<Spanned<u32>>,
}
