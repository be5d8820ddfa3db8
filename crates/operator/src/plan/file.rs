//! The plan file's TOML shapes; what they mean is checked elsewhere.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::audit::AuditFile;
use super::canary::CanaryFile;
use super::control::ControlFile;
use super::effect_file::EffectFile;
use super::index_file::IndexFile;
use super::locate::plan_error;
use super::stage_file::{PassFile, StageFile};
use super::tool_file::ToolFile;
use super::unit_file::{GroupFile, UnitFile};
use super::{Action, Budget, ClipPolicy, Contract, EvidenceMode, FoldKey, JoinKind, Label, Order};
use crate::column::ColumnType;
use crate::error::OperatorError;
use crate::nearest::nearest;
use crate::predicate::PredicateSpec;
use crate::record::Format;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PlanFile {
    pub(super) version: Spanned<u32>,
    pub(super) question: Spanned<String>,
    pub(super) rubric: Spanned<String>,
    pub(super) input: Spanned<InputFile>,
    pub(super) unit: Option<Spanned<UnitFile>>,
    pub(super) group: Option<Spanned<GroupFile>>,
    #[serde(default)]
    pub(super) index: Vec<Spanned<IndexFile>>,
    #[serde(default)]
    pub(super) prefilter: Vec<Spanned<PrefilterFile>>,
    #[serde(default)]
    pub(super) field: Vec<Spanned<FieldFile>>,
    #[serde(default)]
    pub(super) column: Vec<Spanned<ColumnFile>>,
    #[serde(default)]
    pub(super) fold: FoldFile,
    #[serde(default)]
    pub(super) reduce: Vec<Spanned<ReduceFile>>,
    #[serde(default)]
    pub(super) stage: Vec<Spanned<StageFile>>,
    #[serde(default)]
    pub(super) pass: Vec<Spanned<PassFile>>,
    pub(super) canary: Option<Spanned<CanaryFile>>,
    pub(super) audit: Option<Spanned<AuditFile>>,
    #[serde(default)]
    pub(super) effect: Vec<Spanned<EffectFile>>,
    #[serde(default)]
    pub(super) tool: Vec<Spanned<ToolFile>>,
    pub(super) control: Option<Spanned<ControlFile>>,
    #[serde(default)]
    pub(super) budget: Budget,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct InputFile {
    pub(super) path: Option<PathBuf>,
    pub(super) format: Option<Format>,
    pub(super) id: String,
    pub(super) text: Vec<Spanned<TextFieldFile>>,
    pub(super) evidence: Option<EvidenceMode>,
    pub(super) evidence_lines_max: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TextFieldFile {
    pub(super) field: String,
    pub(super) max_chars: Option<u32>,
    pub(super) policy: Option<ClipPolicy>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PrefilterFile {
    pub(super) name: String,
    pub(super) when: Spanned<PredicateSpec>,
    pub(super) action: Action,
    pub(super) reason: Option<String>,
    pub(super) near: Option<Spanned<PredicateSpec>>,
    #[serde(default)]
    pub(super) set: BTreeMap<String, Spanned<LabelText>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FieldFile {
    pub(super) name: String,
    pub(super) question: String,
    pub(super) labels: Vec<Spanned<LabelFile>>,
    pub(super) abstain_below_margin: Option<Spanned<Share>>,
    pub(super) label_mass_min: Option<Spanned<Share>>,
    #[serde(default)]
    pub(super) reasons: Vec<Spanned<LabelFile>>,
    pub(super) scaffold: Option<String>,
    pub(super) head: Option<PathBuf>,
    pub(super) examples: Option<Spanned<ExamplesFile>>,
    #[serde(default)]
    pub(super) requires: Vec<Spanned<String>>,
}

/// Labelled records that a head is trained on.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExamplesFile {
    pub(super) path: PathBuf,
    pub(super) id: Option<String>,
    pub(super) label: Option<String>,
    #[serde(default)]
    pub(super) map: BTreeMap<String, Spanned<LabelText>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ColumnFile {
    pub(super) name: String,
    pub(super) field: Option<String>,
    #[serde(rename = "type")]
    pub(super) kind: ColumnType,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FoldFile {
    pub(super) fan_in: Option<Spanned<u32>>,
    pub(super) key: Option<FoldKey>,
    pub(super) outliers_max: Option<Spanned<u32>>,
}

/// A reduction with the keys of all operations; which of them an operation has is checked later.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReduceFile {
    pub(super) name: String,
    pub(super) op: Spanned<String>,
    pub(super) field: Option<Spanned<String>>,
    pub(super) label: Option<Spanned<LabelText>>,
    pub(super) k: Option<Spanned<u32>>,
    #[serde(rename = "where")]
    pub(super) filter: Option<Spanned<FilterFile>>,
    pub(super) edges: Option<Spanned<Vec<i64>>>,
    pub(super) order: Option<Spanned<Order>>,
    pub(super) at: Option<Spanned<Vec<i64>>>,
    pub(super) keys_max: Option<Spanned<u32>>,
    pub(super) left: Option<Spanned<JoinSideFile>>,
    pub(super) right: Option<Spanned<JoinSideFile>>,
    pub(super) kind: Option<Spanned<JoinKind>>,
    pub(super) exemplars: Option<Spanned<u32>>,
    pub(super) unclustered: Option<Spanned<LabelText>>,
    pub(super) dissent: Option<Spanned<Vec<Spanned<LabelText>>>>,
    pub(super) taxonomy: Option<Spanned<String>>,
    pub(super) of: Option<Spanned<Vec<Spanned<String>>>>,
    pub(super) instruction: Option<Spanned<String>>,
    pub(super) tokens_max: Option<Spanned<u32>>,
    pub(super) contract: Option<Spanned<Contract>>,
    pub(super) claim: Option<Spanned<String>>,
    pub(super) cite_max: Option<Spanned<u32>>,
}

/// Field or text column to the label or text that it must have.
pub(super) type FilterFile = BTreeMap<String, Spanned<LabelText>>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct JoinSideFile {
    #[serde(default, rename = "where")]
    pub(super) filter: FilterFile,
    pub(super) key: Spanned<String>,
}

/// A label in a plan: text, or true, false or an integer written without quotes.
#[derive(Debug, Clone, Serialize)]
pub(super) struct LabelText(pub(super) String);

impl<'de> Deserialize<'de> for LabelText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer
            .deserialize_any(LabelVisitor)
            .map(|label| Self(label.0.name))
    }
}

/// A label's declaration: its text, or `{ name, means }`.
#[derive(Debug)]
pub(super) struct LabelFile(pub(super) Label);

impl<'de> Deserialize<'de> for LabelFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LabelVisitor)
    }
}

struct LabelVisitor;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedLabel {
    name: LabelText,
    means: Option<String>,
}

impl LabelVisitor {
    fn plain<E>(name: String) -> Result<LabelFile, E> {
        Ok(LabelFile(Label { name, means: None }))
    }
}

impl<'de> Visitor<'de> for LabelVisitor {
    type Value = LabelFile;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a label, or { name, means }")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<LabelFile, E> {
        Self::plain(text.to_owned())
    }

    fn visit_bool<E: de::Error>(self, flag: bool) -> Result<LabelFile, E> {
        Self::plain(flag.to_string())
    }

    fn visit_i64<E: de::Error>(self, integer: i64) -> Result<LabelFile, E> {
        Self::plain(integer.to_string())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<LabelFile, A::Error> {
        let named = NamedLabel::deserialize(de::value::MapAccessDeserializer::new(map))?;
        Ok(LabelFile(Label {
            name: named.name.0,
            means: named.means,
        }))
    }
}

/// A share between 0 and 1, kept in parts per million.
#[derive(Debug, Clone, Copy)]
pub(super) struct Share(pub(super) u32);

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let share = f64::deserialize(deserializer)?;
        if !(0.0..=1.0).contains(&share) {
            return Err(de::Error::custom(format!("{share} is not between 0 and 1")));
        }
        Ok(Self((share * 1e6).round() as u32))
    }
}

/// Parses the TOML; an unknown key is answered with the nearest known one.
pub(super) fn parse(text: &str, path: &str) -> Result<PlanFile, OperatorError> {
    toml::from_str(text).map_err(|error: toml::de::Error| {
        let span = error.span().unwrap_or(0..0);
        plan_error(text, path, &span, explain(error.message()))
    })
}

/// Adds the nearest name to serde's list of expected ones.
fn explain(message: &str) -> String {
    let message = message.trim().replace('\n', " ");
    let names: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let unknown = message.starts_with("unknown field") || message.starts_with("unknown variant");
    match names.split_first() {
        Some((name, known)) if unknown => match nearest(name, known) {
            Some(near) => format!("{message}; did you mean `{near}`?"),
            None => message,
        },
        _ => message,
    }
}
