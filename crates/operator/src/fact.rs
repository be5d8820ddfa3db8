//! The fact: what is known about one unit after a run, with the bytes that back it.
//!
//! Every unit gets exactly one fact, in exactly one status; a negative, an abstention, an error, a
//! cancellation and a unit never asked stay apart. Two hashes are exposed: what was decided, and
//! from which bytes. Cost, time and whether a fact was remembered are in neither.
//! Must not know how an answer came about, nor how facts are combined.

mod packed;
mod step;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::canonical::Canonical;
use crate::column::ColumnValue;
use crate::id::{ContentHash, UnitId};
use crate::infer::{PPM, UnitUsage};

pub use packed::Facts;
pub use step::Step;

/// Version of the row format of `facts.jsonl`.
pub const FACT_SCHEMA: u32 = 3;

/// How a unit ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// A predicate or the model decided it.
    Decided,
    /// It was answered, too uncertainly to count.
    Abstained,
    /// It could not be read, fitted or answered.
    Errored,
    /// Its question was withdrawn before the answer came.
    Cancelled,
    /// It was never asked.
    NotRun,
    /// A declared filter left it out.
    Excluded,
}

impl Status {
    /// All six, in the order in which reports show them.
    pub const ALL: [Status; 6] = [
        Status::Excluded,
        Status::Decided,
        Status::Abstained,
        Status::Errored,
        Status::Cancelled,
        Status::NotRun,
    ];

    /// Returns the stored name.
    pub fn name(self) -> &'static str {
        match self {
            Status::Decided => "decided",
            Status::Abstained => "abstained",
            Status::Errored => "errored",
            Status::Cancelled => "cancelled",
            Status::NotRun => "not_run",
            Status::Excluded => "excluded",
        }
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// The value of one field of a fact.
///
/// Units: parts per million. A value set by a predicate has no probability.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FieldValue {
    /// The chosen label.
    pub label: String,
    /// Probability of the chosen label among the allowed ones.
    pub probability_ppm: Option<u32>,
    /// Distance to the second best label.
    pub margin_ppm: Option<u32>,
    /// Share of the model's whole probability that fell on allowed labels.
    pub label_mass_ppm: Option<u32>,
    /// The other labels with their probabilities, best first, ties by name.
    pub alternatives: Vec<(String, u32)>,
    /// Reason chosen from the plan's closed list.
    pub reason_code: Option<String>,
}

impl FieldValue {
    /// Makes the value that a predicate sets: certain, without a probability.
    pub fn set(label: impl Into<String>) -> Self {
        Self {
            label: label.into(),
            probability_ppm: None,
            margin_ppm: None,
            label_mass_ppm: None,
            alternatives: Vec::new(),
            reason_code: None,
        }
    }

    /// Returns the probability of a label; a value set by a predicate is certain.
    pub fn probability_of(&self, label: &str) -> u32 {
        match self.probability_ppm {
            _ if label != self.label => self
                .alternatives
                .iter()
                .find(|(name, _)| name == label)
                .map_or(0, |(_, ppm)| *ppm),
            Some(ppm) => ppm,
            None => PPM,
        }
    }
}

/// A span of a record that backs a fact.
///
/// Units: `start..end` are bytes of the field's decoded UTF-8. The hash names those bytes; the quote
/// shows them, and is absent where a run is redacted: with the source at hand they can be read back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Evidence {
    /// Field of the record.
    pub field: String,
    /// First byte.
    pub start: u32,
    /// Byte after the last.
    pub end: u32,
    /// Plain BLAKE3 of the bytes between.
    pub quote_hash: ContentHash,
    /// The bytes between; absent when redacted.
    pub quote: Option<String>,
    /// Number of the line as the model saw it; absent when no model pointed at it.
    pub line: Option<u32>,
}

impl Evidence {
    /// Makes the evidence of a quote.
    pub fn new(field: &str, start: u32, end: u32, quote: String, line: Option<u32>) -> Self {
        Self {
            field: field.to_owned(),
            start,
            end,
            quote_hash: ContentHash::of_bytes(quote.as_bytes()),
            quote: Some(quote),
            line,
        }
    }

    /// Writes what the evidence points at into a hash; the same with and without the quote.
    pub fn encode(&self, canonical: &mut Canonical) {
        canonical
            .text(&self.field)
            .u32(self.start)
            .u32(self.end)
            .bytes(self.quote_hash.as_bytes());
    }
}

/// A reference from a claim to the bytes that back it.
///
/// The span is absent when the plan asks for no evidence; the record is then cited as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cite {
    /// The unit cited.
    pub unit_id: UnitId,
    /// Hash of the record that the unit was made of.
    pub source_hash: ContentHash,
    /// Where in the record, and what stands there.
    #[serde(flatten)]
    pub span: Option<Evidence>,
    /// Spans in the other records of a unit that was made of several: each side is cited.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<Evidence>,
}

/// What is known about one unit; one row of `facts.jsonl`, every column always present.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fact {
    /// Row format, `FACT_SCHEMA`.
    pub schema: u32,
    /// The unit.
    pub unit_id: UnitId,
    /// Position of its record in the source.
    pub ordinal: u32,
    /// Hash of its record, or of all records that it was made of.
    pub source_hash: ContentHash,
    /// The records that it was made of, or that stood beside it; empty where it is a record alone.
    pub members: Vec<UnitId>,
    /// How it ended.
    pub status: Status,
    /// Where it ended: `partition`, `prefilter:NAME`, `map`, or the name of one of the plan's stages.
    pub stage: String,
    /// Why it was excluded, errored, abstained, cancelled or not run.
    pub reason: Option<String>,
    /// Decided values by field; kept for an abstention too, which no reducer counts.
    pub values: BTreeMap<String, FieldValue>,
    /// Values projected from the record without a judgement; a missing one is left out.
    pub columns: BTreeMap<String, ColumnValue>,
    /// The stages that it went through, in order; empty where the plan names none.
    pub path: Vec<Step>,
    /// Spans that back the values.
    pub evidence: Vec<Evidence>,
    /// Bytes of the record's text that the model was not shown.
    pub clipped_bytes: u64,
    /// What computing it cost in this run.
    pub usage: UnitUsage,
    /// What computing its answer cost when it was computed; equals `usage` unless remembered.
    /// Nothing where the answer is that of an equal unit, which has the cost.
    pub cost: UnitUsage,
    /// True when the answer was looked up instead of computed.
    pub remembered: bool,
    /// An earlier unit of the run whose text is equal and whose answer this is; absent where the
    /// unit was asked itself.
    pub same_as: Option<UnitId>,
    /// True when the answer was replayed or scripted instead of coming from a model.
    pub simulated: bool,
    /// Name of the backend that answered; absent when none was asked.
    pub backend: Option<String>,
}

impl Fact {
    /// Makes a fact without values.
    pub fn bare(
        unit_id: UnitId,
        ordinal: u32,
        source_hash: ContentHash,
        status: Status,
        stage: &str,
        reason: Option<String>,
    ) -> Self {
        Self {
            schema: FACT_SCHEMA,
            unit_id,
            ordinal,
            source_hash,
            members: Vec::new(),
            status,
            stage: stage.to_owned(),
            reason,
            values: BTreeMap::new(),
            columns: BTreeMap::new(),
            path: Vec::new(),
            evidence: Vec::new(),
            clipped_bytes: 0,
            usage: UnitUsage::default(),
            cost: UnitUsage::default(),
            remembered: false,
            same_as: None,
            simulated: false,
            backend: None,
        }
    }

    /// Hashes what was decided: unit, members, status, stage, reason, values, columns and path.
    pub fn fact_hash(&self) -> ContentHash {
        let mut canonical = Canonical::new("operator 2026 fact v3");
        self.encode_decision(&mut canonical);
        ContentHash::of(&canonical)
    }

    /// Hashes what was decided together with the bytes that it was decided from.
    ///
    /// The position in the source is left out: a record inserted elsewhere changes no fact.
    pub fn provenance_hash(&self) -> ContentHash {
        self.provenance_hash_under(self.fact_hash())
    }

    /// As [`Fact::provenance_hash`], for a caller that has the fact hash already.
    pub fn provenance_hash_under(&self, fact_hash: ContentHash) -> ContentHash {
        let mut canonical = Canonical::new("operator 2026 provenance v2");
        canonical
            .bytes(fact_hash.as_bytes())
            .bytes(self.source_hash.as_bytes())
            .u64(self.clipped_bytes)
            .list(self.evidence.len());
        for evidence in &self.evidence {
            evidence.encode(&mut canonical);
        }
        canonical
            .bool(self.simulated)
            .optional_text(self.backend.as_deref());
        ContentHash::of(&canonical)
    }

    /// Makes the reference by which a claim cites this fact.
    pub fn cite(&self) -> Cite {
        Cite {
            unit_id: self.unit_id.clone(),
            source_hash: self.source_hash,
            span: self.evidence.first().cloned(),
            also: self.evidence.iter().skip(1).cloned().collect(),
        }
    }

    fn encode_decision(&self, canonical: &mut Canonical) {
        canonical.u64(u64::from(self.schema));
        canonical.text(self.unit_id.as_str());
        canonical.list(self.members.len());
        for member in &self.members {
            canonical.text(member.as_str());
        }
        canonical.text(self.status.name());
        canonical.text(&self.stage);
        canonical.optional_text(self.reason.as_deref());
        encode_values(canonical, &self.values);
        canonical.list(self.columns.len());
        for (name, value) in &self.columns {
            canonical.text(name);
            match value {
                ColumnValue::Integer(integer) => canonical.i64(*integer),
                ColumnValue::Text(text) => canonical.text(text),
            };
        }
        canonical.list(self.path.len());
        for step in &self.path {
            step.encode(canonical);
        }
    }
}

fn encode_values(canonical: &mut Canonical, values: &BTreeMap<String, FieldValue>) {
    canonical.list(values.len());
    for (field, value) in values {
        canonical.text(field);
        canonical.text(&value.label);
        for ppm in [
            value.probability_ppm,
            value.margin_ppm,
            value.label_mass_ppm,
        ] {
            match ppm {
                Some(ppm) => canonical.some().u32(ppm),
                None => canonical.none(),
            };
        }
        canonical.list(value.alternatives.len());
        for (label, ppm) in &value.alternatives {
            canonical.text(label);
            canonical.u64(u64::from(*ppm));
        }
        canonical.optional_text(value.reason_code.as_deref());
    }
}
