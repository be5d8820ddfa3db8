//! The audit: a sample of what was not found is read again, by someone else.
//!
//! ```toml
//! [audit]
//! field = "blocker"
//! positive = "yes"          # what may not be missed
//! target_recall = 0.90
//! alpha = 0.05              # the bound may be wrong with at most this probability
//! units_max = 120           # records that the auditor reads
//! seed = "2026-12"
//! near_margin = 0.2         # a negative below this margin is a near one, read three times as often
//! unknown = "count"         # records without an answer count as misses; "inspect" reads them all first
//! auditor = { labels = "labels.csv", id = "number", label = "blocker" }
//! # or      { rubric = "Read the issue slowly. ..." }      another instruction, the same model
//! # or      { model = "larger" }                           another model; its own rubric may be given
//! ```
//!
//! A prefilter may say which of the records that it settles lie near its boundary:
//! `near = { field = "title", op = "contains", value = "login" }`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use toml::Spanned;

use super::file::{LabelText, Share};
use super::{Plan, Prefilter, Turn, wording};
use crate::canonical::Canonical;
use crate::id::ContentHash;
use crate::index::Indexes;
use crate::predicate::Standing;
use crate::record::Record;

/// What precedes a prefilter's name where facts name it as their stage.
const PREFILTER: &str = "prefilter:";

/// Name under which facts are told that the audit put back.
pub const AUDIT_STAGE: &str = "audit";

/// What is declared about an audit before the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditSpec {
    /// The field that is audited.
    pub field: String,
    /// The label that may not be missed.
    pub positive: String,
    /// The recall to be certified, in parts per million.
    pub target_recall_ppm: u32,
    /// How probably the bound may be wrong, in parts per million.
    pub alpha_ppm: u32,
    /// Most units that the auditor reads.
    pub units_max: u64,
    /// What the sample follows from.
    pub seed: String,
    /// A negative below this margin is a near one, in parts per million.
    pub near_margin_ppm: u32,
    /// What is made of units without an answer.
    pub unknown: Unknown,
    /// Who reads.
    pub auditor: Auditor,
}

/// What is made of units that abstained, errored, were cancelled or were not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unknown {
    /// Each counts as missed.
    Count,
    /// They are read before all others.
    Inspect,
}

impl Unknown {
    /// The rule as a plan spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Inspect => "inspect",
        }
    }
}

/// Who reads what was not found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Auditor {
    /// Somebody already has: their labels are in a file.
    Labels {
        /// The file, relative to the plan file.
        path: PathBuf,
        /// Its id field.
        id: String,
        /// Its label field.
        label: String,
        /// Labels that are spelled otherwise there.
        map: BTreeMap<String, String>,
    },
    /// The model, under this instruction instead of the plan's.
    Rubric {
        /// The instruction.
        rubric: String,
    },
    /// The larger model, under this instruction or the plan's.
    Model {
        /// The instruction.
        rubric: Option<String>,
    },
}

impl Auditor {
    /// The kind of auditor as a plan spells it.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Labels { .. } => "labels",
            Self::Rubric { .. } => "rubric",
            Self::Model { .. } => "model",
        }
    }
}

impl Plan {
    /// What an auditor that is a model is asked: the plan's fields, under its own instruction where it
    /// has one.
    pub fn audit_turn(&self, spec: &AuditSpec) -> Turn {
        let task = match &spec.auditor {
            Auditor::Rubric { rubric } => rubric,
            Auditor::Model { rubric } => rubric.as_ref().unwrap_or(&self.task),
            Auditor::Labels { .. } => &self.task,
        };
        let (fields, evidence) = (self.fields.clone(), self.input.evidence);
        let questions = wording::questions(&fields, evidence);
        Turn {
            rubric: wording::rubric(&self.unit, task, &fields, evidence, &questions),
            questions,
            fields,
            evidence,
        }
    }

    /// Whether the prefilter that settled a record calls it near its boundary; a value that cannot be
    /// compared does not make it near.
    pub fn is_near(&self, stage: &str, record: &Record, indexes: &Indexes) -> bool {
        let filters = self.prefilters.iter();
        let settled = |filter: &&Prefilter| stage.strip_prefix(PREFILTER) == Some(&filter.name);
        let near = filters.filter(settled).find_map(|f| f.near.as_ref());
        let standing = Standing {
            indexes,
            ordinal: record.ordinal,
        };
        near.is_some_and(|near| near.matches(&record.fields, standing).unwrap_or(false))
    }
}

impl AuditSpec {
    /// Hash of everything that was declared.
    pub fn hash(&self) -> ContentHash {
        let mut canonical = Canonical::new("operator 2026 audit v1");
        self.encode(&mut canonical);
        ContentHash::of(&canonical)
    }

    /// Writes what was declared before the run into a hash; a file's content is not known here.
    pub(super) fn encode(&self, canonical: &mut Canonical) {
        canonical
            .text("audit")
            .text(&self.field)
            .text(&self.positive)
            .u32(self.target_recall_ppm)
            .u32(self.alpha_ppm)
            .u64(self.units_max)
            .text(&self.seed)
            .u32(self.near_margin_ppm)
            .text(self.unknown.as_str())
            .text(self.auditor.as_str());
        match &self.auditor {
            Auditor::Labels { id, label, map, .. } => {
                canonical.text(id).text(label).map(map.len());
                for (from, to) in map {
                    canonical.text(from).text(to);
                }
            }
            Auditor::Rubric { rubric } => {
                canonical.text(rubric);
            }
            Auditor::Model { rubric } => {
                canonical.optional_text(rubric.as_deref());
            }
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AuditFile {
    pub(super) field: Spanned<String>,
    pub(super) positive: Spanned<LabelText>,
    pub(super) target_recall: Spanned<Share>,
    pub(super) alpha: Option<Spanned<Share>>,
    pub(super) units_max: Spanned<u32>,
    pub(super) seed: Spanned<String>,
    pub(super) near_margin: Option<Spanned<Share>>,
    pub(super) unknown: Option<Unknown>,
    pub(super) auditor: Spanned<AuditorFile>,
}

/// An auditor with the keys of all kinds; which kind it is follows from those that are given.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AuditorFile {
    pub(super) labels: Option<PathBuf>,
    pub(super) id: Option<String>,
    pub(super) label: Option<String>,
    #[serde(default)]
    pub(super) map: BTreeMap<String, Spanned<LabelText>>,
    pub(super) rubric: Option<Spanned<String>>,
    pub(super) model: Option<Spanned<String>>,
}
