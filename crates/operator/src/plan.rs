//! The plan: the question, the predicates, the fields to decide and the reductions, from one file.
//!
//! The types here are what a valid plan *is*: whatever is read through [`Plan::load`] or
//! [`Plan::parse`] has been checked, so later stages never meet an unknown label. TOML shapes are
//! in `plan/file.rs`, checks in `plan/check/`, wording in `plan/wording.rs`, identity in
//! `plan/hash.rs`, and reductions with their TOML in `plan/operation.rs`.
//!
//! Columns and the fold are written like this; all of `[fold]` may be left out:
//!
//! ```toml
//! [[column]]
//! name = "comments"
//! field = "comments.count" # path in the record; the name where left out
//! type = "integer"         # or "text", or "time" (a date, stored as Unix seconds)
//!
//! [fold]
//! fan_in = 8               # 2 to 64; no result depends on it
//! key = "id"               # or "ordinal", for files that only grow at the end
//! outliers_max = 64        # 1 to 4096
//! ```

mod audit;
mod budget;
mod canary;
mod check;
mod control;
pub mod effect;
mod effect_file;
mod file;
mod hash;
mod index;
mod index_file;
mod locate;
mod operation;
mod stage;
mod stage_file;
mod tool;
mod tool_file;
mod unit;
mod unit_file;
mod wording;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::column::Column;
use crate::error::OperatorError;
use crate::predicate::Predicate;
use crate::record::Format;

pub use audit::{AUDIT_STAGE, AuditSpec, Auditor, Unknown};
pub use budget::{Budget, Price};
pub use canary::{Abstention, CanarySpec, InlineCanary};
pub use control::{Control, Rule, StopRule};
pub use index::{ClassifierIndex, ClassifierSource, Index, IndexKind, SearchIndex, SqlIndex};
pub use operation::{
    ColumnRef, Contract, Filter, JoinKind, JoinSide, KeySource, Measure, Operation, Order, Reduce,
};

pub use stage::{
    Condition, MAP_STAGE, MapStage, PassSpec, Select, SelectOption, Split, Stage, StageOp, Then,
    ToolStage, Turn, Unclear, WIDENED_STAGE,
};

pub use tool::{FileTool, HttpTool, McpTool, ProcessTool, SqlTool, ToolKind, ToolSpec};
pub use unit::{Granularity, GroupPlan, Nearness, Relation, Shape, UnitPlan, required};

/// The only plan version that is read.
pub const PLAN_VERSION: u32 = 1;

/// The question name under which a model names its supporting line.
pub const EVIDENCE_FIELD: &str = "evidence";

/// How the key of a join names the unit's id.
pub const ID_KEY: &str = "id";

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
    /// What of it is a unit.
    pub unit: UnitPlan,
    /// What is computed over all records before the predicates, in order.
    pub indexes: Vec<Index>,
    /// The predicates, in order; the first that matches decides.
    pub prefilters: Vec<Prefilter>,
    /// What is decided per unit, in order.
    pub fields: Vec<Field>,
    /// What is projected from each record without a model, in order.
    pub columns: Vec<Column>,
    /// How facts are folded.
    pub fold: FoldSettings,
    /// What is computed from the facts, in order.
    pub reduces: Vec<Reduce>,
    /// What happens to the units that the predicates leave, in order; at least one map stage.
    pub stages: Vec<Stage>,
    /// Further passes, in order, each with a smaller budget than the one before.
    pub passes: Vec<PassSpec>,
    /// Reads of the world outside the records that stages may make.
    pub tools: Vec<ToolSpec>,
    /// Records with known answers that are planted among the others.
    pub canary: Option<CanarySpec>,
    /// How what was not found is sampled and read again.
    pub audit: Option<AuditSpec>,
    /// What the verified answer may change outside, in order.
    pub effects: Vec<effect::EffectSpec>,
    /// When a run may stop early, and how often a unit is asked.
    pub control: Control,
    /// Limits of a run.
    pub budget: Budget,
    /// Whether the file names its stages.
    staged: bool,
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

impl ClipPolicy {
    /// The policy as a plan spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::HeadTail => "head_tail",
            Self::Head => "head",
            Self::Error => "error",
        }
    }
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
    /// Which of the units that it settles lie near its boundary, for the audit.
    pub near: Option<Predicate>,
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
    /// Relations that the answer depends on; a unit that lacks one is widened or abstains.
    pub requires: Vec<Relation>,
    /// File of a trained head that answers the field, relative to the plan file. Its bytes are part of the
    /// backend's identity, so that its path is no part of the plan's.
    pub head: Option<PathBuf>,
    /// Labelled records that a head is trained on when the plan runs. What it comes to is part of the
    /// backend's identity, so that the file is no part of the plan's.
    pub examples: Option<LabelledExamples>,
}

/// Labelled records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelledExamples {
    /// The file, relative to the plan file.
    pub path: PathBuf,
    /// Its id field; the plan's where none is named.
    pub id: Option<String>,
    /// Its label field.
    pub label: String,
    /// Labels that are spelled otherwise there.
    pub map: BTreeMap<String, String>,
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

/// How facts are folded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoldSettings {
    /// Children of a node, 2 to 64; not part of the plan's hash, for no result depends on it.
    pub fan_in: usize,
    /// What places a unit's leaf.
    pub key: FoldKey,
    /// Most outliers kept by a node, at most 4,096.
    pub outliers_max: u32,
}

impl Default for FoldSettings {
    fn default() -> Self {
        Self {
            fan_in: 8,
            key: FoldKey::Id,
            outliers_max: 64,
        }
    }
}

/// What places a unit's leaf in the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FoldKey {
    /// Its id: a record that moves in the file keeps its leaf.
    Id,
    /// Its position: suits files that only grow at the end, such as logs.
    Ordinal,
}

impl FoldKey {
    /// The key as a plan spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Id => "id",
            Self::Ordinal => "ordinal",
        }
    }
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

    /// The column of that name.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }

    /// The tool of that name.
    pub fn tool(&self, name: &str) -> Option<&ToolSpec> {
        self.tools.iter().find(|tool| tool.name == name)
    }

    /// The input file, resolved against the plan file's directory.
    pub fn input_path(&self) -> Option<PathBuf> {
        Some(self.beside(self.input.path.as_ref()?))
    }

    /// The files of the trained heads that the fields name, resolved against the plan file's directory.
    pub fn heads(&self) -> impl Iterator<Item = PathBuf> + '_ {
        let named = self.fields.iter().filter_map(|field| field.head.as_ref());
        named.map(|path| self.beside(path))
    }

    /// A path of the plan, resolved against the plan file's directory.
    pub fn beside(&self, relative: &Path) -> PathBuf {
        match Path::new(&self.path).parent() {
            Some(directory) => directory.join(relative),
            None => relative.to_owned(),
        }
    }

    /// Checks what a canary's record says that it must get: labels by field or selector.
    ///
    /// # Errors
    /// What is wrong, for a person.
    pub fn check_expected(
        &self,
        given: &serde_json::Value,
    ) -> Result<BTreeMap<String, String>, String> {
        check::check_expected(given, &self.fields, &self.stages)
    }
}
