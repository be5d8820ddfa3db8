//! The plan: the question, the predicates, the fields to decide and the reductions, from one file.
//!
//! The types here are what a valid plan *is*: whatever is read through [`Plan::load`] or
//! [`Plan::parse`] has been checked, so later stages never meet an unknown label. TOML shapes are
//! in
//! `plan/file.rs`, checks in `plan/check.rs`, wording in `plan/wording.rs`, identity in
//! `plan/hash.rs`.

mod check;
mod file;
mod hash;
mod locate;
mod wording;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::error::OperatorError;
use crate::predicate::Predicate;
use crate::record::Format;

/// The only plan version that is read.
pub const PLAN_VERSION: u32 = 1;

/// The question name under which a model names its supporting line.
pub const EVIDENCE_FIELD: &str = "evidence";

/// What the question of a field's reason code adds to the field's name.
pub const REASON_SUFFIX: &str = "_reason";

/// A checked plan.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The file it was read from, as given.
    pub path: String,
    /// The file's text.
    pub text: String,
    /// Format version.
    pub version: u32,
    /// The question that the answer answers.
    pub question: String,
    /// The task, as the plan's author words it.
    pub task: String,
    /// What is read.
    pub input: Input,
    /// The predicates, in order; the first that matches decides.
    pub prefilters: Vec<Prefilter>,
    /// What is decided per unit, in order.
    pub fields: Vec<Field>,
    /// What is folded, in order.
    pub reduces: Vec<Reduce>,
    /// Limits of a run.
    pub budget: Budget,
}

/// The input section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input {
    /// Input file, relative to the plan file.
    pub path: Option<PathBuf>,
    /// Its format; found from the content where absent.
    pub format: Option<Format>,
    /// The field that names a record; may be a path such as `"issue.number"`.
    pub id: String,
    /// The fields that the model reads, in order; at least one.
    pub text: Vec<TextField>,
    /// Where citations inside a unit come from.
    pub evidence: EvidenceMode,
    /// Most numbered lines of a unit.
    pub evidence_lines_max: u32,
}

/// One field that the model reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextField {
    /// Field path.
    pub field: String,
    /// Most characters (Unicode scalar values).
    pub max_chars: u32,
    /// What happens to a longer text.
    pub policy: ClipPolicy,
}

/// What happens to a text that is too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClipPolicy {
    /// The first two thirds and the last third of the allowance are kept.
    HeadTail,
    /// The first part is kept.
    Head,
    /// The unit is errored as too large.
    Error,
}

/// Where citations inside a unit come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EvidenceMode {
    /// Lines are numbered and the model names one.
    Model,
    /// The unit's first line.
    FirstLine,
    /// No quote; a citation names the unit alone.
    None,
}

/// One predicate with what happens to the units that it matches.
#[derive(Debug, Clone)]
pub struct Prefilter {
    /// Name, unique among prefilters.
    pub name: String,
    /// The test.
    pub when: Predicate,
    /// What happens to a unit that matches.
    pub action: Action,
    /// Why, for a person; the name where the plan gives none.
    pub reason: String,
    /// With [`Action::Decide`]: a label for every field; otherwise empty.
    pub set: BTreeMap<String, String>,
}

/// What happens to a unit that a prefilter matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// It is left out.
    Exclude,
    /// It is decided without a model.
    Decide,
    /// It goes to the model, whatever later prefilters say.
    Keep,
}

/// One thing decided per unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Name, unique among fields.
    pub name: String,
    /// The question put to the model.
    pub question: String,
    /// The labels, at least two.
    pub labels: Vec<Label>,
    /// Below this margin the unit abstains; parts per million.
    pub abstain_below_margin_ppm: u32,
    /// Below this label mass the unit abstains; parts per million.
    pub label_mass_min_ppm: u32,
    /// Codes of an extra question "why"; empty, or at least two.
    pub reasons: Vec<Label>,
    /// What precedes the label in the answer.
    pub scaffold: String,
}

impl Field {
    /// Index of a label.
    pub fn label_index(&self, name: &str) -> Option<usize> {
        self.labels.iter().position(|label| label.name == name)
    }

    /// Name of the question for this field's reason code, where the plan has one.
    pub fn reason_question(&self) -> Option<String> {
        (!self.reasons.is_empty()).then(|| format!("{}{REASON_SUFFIX}", self.name))
    }
}

/// One label and what it means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// The label as the model writes it.
    pub name: String,
    /// Its meaning, for the rubric.
    pub means: Option<String>,
}

/// One reduction over the decided units.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reduce {
    /// Name, unique among reductions.
    pub name: String,
    /// The operation.
    pub op: ReduceOp,
    /// The field it reads; always present for all operations but `count` and `set`.
    pub field: Option<String>,
    /// The label it reads; always present for `top_k`.
    pub label: Option<String>,
    /// How many; always present for `top_k` and `top_keys`.
    pub k: Option<u32>,
    /// Only units with all of these labels; field to label.
    pub filter: BTreeMap<String, String>,
    /// Bucket edges in parts per million, strictly ascending; not empty for `histogram`.
    pub edges_ppm: Vec<u32>,
    /// Wording of the claim, with `{value}` and `{count}`.
    pub claim: Option<String>,
    /// Most citations that are printed.
    pub cite_max: u32,
}

/// The operation of a reduction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReduceOp {
    /// How many units.
    Count,
    /// How many units per label of a field.
    CountBy,
    /// Which units, or with a field, which labels occur.
    Set,
    /// The units with the highest probability of a label.
    TopK,
    /// The labels of a field with the most units.
    TopKeys,
    /// How many units per bucket of the probability of a label, or of the chosen one.
    Histogram,
}

impl ReduceOp {
    /// The operation as a plan spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::CountBy => "count_by",
            Self::Set => "set",
            Self::TopK => "top_k",
            Self::TopKeys => "top_keys",
            Self::Histogram => "histogram",
        }
    }
}

/// Limits of a run; they are not part of the plan's hash, for they say how far, not what.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// Most units sent to the model.
    pub units_max: Option<u64>,
    /// Most seconds.
    pub seconds_max: Option<u64>,
    /// Most computed tokens.
    pub tokens_max: Option<u64>,
}

impl Plan {
    /// Reads and checks a plan file.
    ///
    /// # Errors
    /// [`OperatorError::Io`] where the file cannot be read, otherwise as [`Plan::parse`].
    pub fn load(path: &Path) -> Result<Self, OperatorError> {
        let shown = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|source| OperatorError::Io {
            path: shown.clone(),
            action: "read",
            source,
        })?;
        Self::parse(&text, &shown)
    }

    /// Checks a plan's text; `path` names it in errors and is the base of a relative input path.
    ///
    /// # Errors
    /// [`OperatorError::Plan`] with line and column, naming what is wrong and the nearest valid
    /// name.
    pub fn parse(text: &str, path: &str) -> Result<Self, OperatorError> {
        let file = file::parse(text, path)?;
        check::check(file, text, path)
    }

    /// The field of that name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// The input file, resolved against the plan file's directory.
    pub fn input_path(&self) -> Option<PathBuf> {
        let relative = self.input.path.as_ref()?;
        Some(match Path::new(&self.path).parent() {
            Some(directory) => directory.join(relative),
            None => relative.clone(),
        })
    }
}
