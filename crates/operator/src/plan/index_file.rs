//! The TOML shape of indexes; what it means is checked elsewhere.

use std::path::PathBuf;

use serde::Deserialize;
use toml::Spanned;

/// An index with the keys of all kinds; which of them a kind has is checked later.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct IndexFile {
    pub(super) name: String,
    pub(super) kind: Spanned<String>,
    pub(super) statement: Option<Spanned<String>>,
    pub(super) steps_max: Option<Spanned<u64>>,
    pub(super) fields: Option<Spanned<Vec<String>>>,
    pub(super) query: Option<Spanned<String>>,
    pub(super) k1: Option<Spanned<f64>>,
    pub(super) b: Option<Spanned<f64>>,
    pub(super) top: Option<Spanned<u32>>,
    pub(super) classes: Option<Spanned<Vec<String>>>,
    pub(super) labels: Option<Spanned<PathBuf>>,
    pub(super) id: Option<Spanned<String>>,
    pub(super) field: Option<Spanned<String>>,
    pub(super) model: Option<Spanned<PathBuf>>,
}
