//! The TOML shape of tools; what it means is checked elsewhere.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use toml::Spanned;

use crate::tool::{ArgumentKind, Over};

/// A tool with the keys of all kinds; which of them a kind has is checked later.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ToolFile {
    pub(super) name: String,
    pub(super) kind: Spanned<String>,
    #[serde(default)]
    pub(super) arguments: BTreeMap<String, Spanned<ArgumentFile>>,
    pub(super) root: Option<Spanned<PathBuf>>,
    pub(super) file: Option<Spanned<String>>,
    pub(super) missing: Option<Spanned<String>>,
    pub(super) database: Option<Spanned<PathBuf>>,
    pub(super) query: Option<Spanned<String>>,
    pub(super) rows_max: Option<Spanned<u32>>,
    pub(super) url: Option<Spanned<String>>,
    pub(super) hosts: Option<Spanned<Vec<String>>>,
    pub(super) private_hosts: Option<Spanned<Vec<String>>>,
    pub(super) headers: Option<Spanned<BTreeMap<String, String>>>,
    pub(super) headers_env: Option<Spanned<BTreeMap<String, String>>>,
    pub(super) program: Option<Spanned<String>>,
    pub(super) args: Option<Spanned<Vec<Spanned<String>>>>,
    pub(super) env: Option<Spanned<Vec<String>>>,
    pub(super) directory: Option<Spanned<PathBuf>>,
    pub(super) command: Option<Spanned<Vec<String>>>,
    pub(super) call: Option<Spanned<String>>,
    pub(super) read_only: Option<Spanned<bool>>,
    pub(super) constants: Option<Spanned<serde_json::Map<String, serde_json::Value>>>,
    pub(super) concurrency: Option<Spanned<u32>>,
    pub(super) per_second: Option<Spanned<f64>>,
    pub(super) burst: Option<Spanned<u32>>,
    pub(super) calls_max: Option<Spanned<u64>>,
    pub(super) attempts_max: Option<Spanned<u32>>,
    pub(super) timeout_ms: Option<Spanned<u64>>,
    pub(super) backoff_ms: Option<Spanned<u64>>,
    pub(super) wait_max_ms: Option<Spanned<u64>>,
    pub(super) bytes_max: Option<Spanned<u64>>,
    pub(super) over: Option<Over>,
    pub(super) max_age: Option<u64>,
    pub(super) price_micros: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ArgumentFile {
    pub(super) field: String,
    #[serde(rename = "type")]
    pub(super) kind: Option<ArgumentKind>,
}
