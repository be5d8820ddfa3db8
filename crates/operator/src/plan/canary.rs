//! Canaries: records whose answers are known, planted among the real ones.
//!
//! ```toml
//! [canary]
//! path = "canaries.jsonl"   # records like the input's, each with what it must get under "expect"
//! seed = "2026-12"          # places and order follow from it and from the input
//! every = 20                # one among so many units, at a random place
//! p0 = 0.05                 # the miss rate that is tolerated
//! p1 = 0.30                 # the miss rate that must be noticed
//! alpha = 0.01              # most probable false alarm over a whole run
//! abstention = "miss"       # what an abstention counts as: "miss", "hit" or "ignore"
//!
//! [[canary.record]]         # instead of a file, or beside it
//! record = { number = "c1", title = "Login fails", body = "Since the release candidate ..." }
//! expect = { blocker = "yes" }
//! ```

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use serde_json::{Map, Value};
use toml::Spanned;

use super::file::{LabelText, Share};
use crate::breaker::EProcessSpec;
use crate::canonical::Canonical;

/// Where canaries come from and what is made of their answers.
#[derive(Debug, Clone, PartialEq)]
pub struct CanarySpec {
    /// File with canaries, relative to the plan file.
    pub path: Option<PathBuf>,
    /// Canaries that stand in the plan itself.
    pub records: Vec<InlineCanary>,
    /// What places and order follow from, besides the input.
    pub seed: String,
    /// Units among which one canary is planted.
    pub every: u32,
    /// What an abstention counts as.
    pub abstention: Abstention,
    /// When the breaker opens.
    pub process: EProcessSpec,
}

/// A canary that stands in the plan.
#[derive(Debug, Clone, PartialEq)]
pub struct InlineCanary {
    /// The record's fields.
    pub fields: Map<String, Value>,
    /// The label that each of these fields, or selectors, must choose.
    pub expect: BTreeMap<String, String>,
}

/// What an abstention on a canary counts as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Abstention {
    /// A wrong answer.
    Miss,
    /// A right answer.
    Hit,
    /// Nothing.
    Ignore,
}

impl Abstention {
    /// The rule as a plan spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Miss => "miss",
            Self::Hit => "hit",
            Self::Ignore => "ignore",
        }
    }
}

impl CanarySpec {
    /// Writes what was declared before the run into a hash; a file's content is not known here.
    pub(super) fn encode(&self, canonical: &mut Canonical) {
        canonical
            .text("canary")
            .bool(self.path.is_some())
            .text(&self.seed)
            .u32(self.every)
            .text(self.abstention.as_str())
            .u32(self.process.p0_ppm)
            .u32(self.process.p1_ppm)
            .u32(self.process.alpha_ppm)
            .list(self.records.len());
        for record in &self.records {
            canonical.fields(&record.fields).map(record.expect.len());
            for (field, label) in &record.expect {
                canonical.text(field).text(label);
            }
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CanaryFile {
    pub(super) path: Option<PathBuf>,
    #[serde(default)]
    pub(super) record: Vec<Spanned<CanaryRecordFile>>,
    pub(super) seed: Option<Spanned<String>>,
    pub(super) every: Option<Spanned<u32>>,
    pub(super) p0: Option<Spanned<Share>>,
    pub(super) p1: Option<Spanned<Share>>,
    pub(super) alpha: Option<Spanned<Share>>,
    pub(super) abstention: Option<Abstention>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CanaryRecordFile {
    pub(super) record: Map<String, Value>,
    pub(super) expect: BTreeMap<String, Spanned<LabelText>>,
}
