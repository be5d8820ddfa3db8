//! partition: records to units, disjoint and complete.
//!
//! Law: ordinals of good and bad units together tile `0..n`, every id is unique, nothing vanishes.
//! Ids are taken from the data and never rediscovered by a model.

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::OperatorError;
use crate::id::{ContentHash, UnitId};
use crate::plan::{Plan, Relation, TextField};
use crate::predicate;
use crate::record::{BadRecord, Record, SourceArtifact, kind_of};

/// Longest id in bytes.
pub const ID_BYTES_MAX: usize = 256;

/// The piece of a record that gets its own answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Unit {
    /// Its id, unique in the input.
    pub id: UnitId,
    /// What piece it is.
    pub kind: UnitKind,
    /// Position in the input, from 0.
    pub ordinal: u32,
    /// Hash of the record's decoded fields, or of all that the unit was made of.
    pub source_hash: ContentHash,
    /// The record; of a unit that is none, what it shows as one.
    pub record: Arc<Record>,
    /// The records that it was made of, or that stand beside it; empty where it is a record alone.
    pub neighbourhood: Vec<UnitId>,
    /// What of `record` the model reads, where it is not what the plan names.
    pub texts: Option<Vec<TextField>>,
    /// Why no answer is sought, where none is.
    pub skip: Option<String>,
}

impl Unit {
    pub(super) fn id_of(plan: &Plan, path: &str, record: &Record) -> Result<UnitId, OperatorError> {
        unit_id(plan, path, record)
    }

    /// Makes a record a unit.
    pub(super) fn of(plan: &Plan, path: &str, record: Record) -> Result<Self, OperatorError> {
        Ok(Self {
            id: unit_id(plan, path, &record)?,
            kind: UnitKind::Record,
            ordinal: record.ordinal,
            source_hash: record.source_hash(),
            record: Arc::new(record),
            neighbourhood: Vec::new(),
            texts: None,
            skip: None,
        })
    }

    /// The fields that the model reads, in order.
    pub fn shown<'u>(&'u self, plan: &'u Plan) -> &'u [TextField] {
        self.texts.as_deref().unwrap_or(&plan.input.text)
    }

    /// Which of these relations it does not show.
    pub fn lacks(&self, plan: &Plan, relations: &[Relation]) -> Vec<Relation> {
        let provided = match self.kind {
            UnitKind::Record | UnitKind::Field => &[],
            UnitKind::Group if self.neighbourhood.len() < 2 => &[],
            UnitKind::Group => plan.unit.provided(),
            UnitKind::Widened => plan.unit.provided_widened(),
        };
        let lacking = relations.iter().copied();
        lacking
            .filter(|relation| !provided.contains(relation))
            .collect()
    }
}

/// What piece of the input a unit is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnitKind {
    /// The whole record.
    Record,
    /// One field of a record.
    Field,
    /// Some records that belong together.
    Group,
    /// A record with its neighbours beside it.
    Widened,
}

/// A record that cannot be read, placed so that it is counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadUnit {
    /// Position in the input, from 0.
    pub ordinal: u32,
    /// A synthesised id, `#` and the ordinal.
    pub id: UnitId,
    /// Where it is, for a person.
    pub place: String,
    /// What is wrong with it.
    pub reason: String,
    /// Hash of its raw text.
    pub source_hash: ContentHash,
}

impl BadUnit {
    pub(super) fn of(bad: BadRecord) -> Self {
        Self {
            ordinal: bad.ordinal,
            id: UnitId::synthesised(bad.ordinal),
            place: bad.place,
            reason: bad.problem,
            source_hash: bad.hash,
        }
    }
}

/// All units of an input.
#[derive(Debug, Clone, PartialEq)]
pub struct Partition {
    /// Units of readable records, in input order.
    pub units: Vec<Unit>,
    /// Unreadable records, in input order.
    pub bad: Vec<BadUnit>,
    /// The file they come from.
    pub source: SourceArtifact,
}

impl Partition {
    /// How many units there are, unreadable ones included.
    pub fn len(&self) -> u32 {
        u32::try_from(self.units.len() + self.bad.len()).unwrap_or(u32::MAX)
    }

    /// Whether there is no unit at all.
    pub fn is_empty(&self) -> bool {
        self.units.is_empty() && self.bad.is_empty()
    }
}

/// Places every record once.
///
/// # Errors
/// [`OperatorError::DuplicateId`] and [`OperatorError::MissingId`] where ids cannot name records,
/// [`OperatorError::MissingTextField`] where no record has a field that the plan reads,
/// [`OperatorError::OrdinalGap`] where the records are not the whole of an input.
pub fn partition(
    plan: &Plan,
    source: SourceArtifact,
    records: Vec<Record>,
    bad: Vec<BadRecord>,
) -> Result<Partition, OperatorError> {
    check_ordinals(&source.path, &records, &bad)?;
    let mut fields = TextFields::new(plan);
    records.iter().for_each(|record| fields.see(record));
    fields.check(&source.path)?;
    let mut units = Vec::with_capacity(records.len());
    for record in records {
        units.push(Unit::of(plan, &source.path, record)?);
    }
    let bad: Vec<BadUnit> = bad.into_iter().map(BadUnit::of).collect();
    let partition = Partition { units, bad, source };
    check_unique(plan, &partition)?;
    Ok(partition)
}

fn check_ordinals(path: &str, records: &[Record], bad: &[BadRecord]) -> Result<(), OperatorError> {
    let mut ordinals: Vec<u32> = records.iter().map(|record| record.ordinal).collect();
    ordinals.extend(bad.iter().map(|bad| bad.ordinal));
    ordinals.sort_unstable();
    for (expected, found) in (0_u32..).zip(ordinals) {
        if expected != found {
            return Err(OperatorError::OrdinalGap {
                path: path.to_owned(),
                expected,
                found,
            });
        }
    }
    Ok(())
}

/// Which of the fields that the plan reads or compares some record has.
pub(super) struct TextFields<'p> {
    missing: Vec<&'p str>,
    /// Fields of the first record.
    known: Option<String>,
}

impl<'p> TextFields<'p> {
    pub(super) fn new(plan: &'p Plan) -> Self {
        let fields = plan.input.text.iter().map(|text| text.field.as_str());
        let group = plan.unit.group.iter().flat_map(|group| group.fields());
        Self {
            missing: fields.chain(group).collect(),
            known: None,
        }
    }

    pub(super) fn see(&mut self, record: &Record) {
        let names = || record.fields.keys().map(String::as_str);
        self.known
            .get_or_insert_with(|| names().collect::<Vec<_>>().join(", "));
        self.missing.retain(|field| {
            let key = field.split('.').next().unwrap_or(field);
            !record.fields.contains_key(key) && !record.fields.contains_key(*field)
        });
    }

    /// Refuses an input of which no record has a field that the plan reads.
    pub(super) fn check(self, path: &str) -> Result<(), OperatorError> {
        let missing = self.missing.first();
        match (missing, self.known) {
            (Some(field), Some(known)) => Err(OperatorError::MissingTextField {
                path: path.to_owned(),
                field: (*field).to_owned(),
                known,
            }),
            _ => Ok(()),
        }
    }
}

fn unit_id(plan: &Plan, path: &str, record: &Record) -> Result<UnitId, OperatorError> {
    let field = &plan.input.id;
    let missing = |problem: String| OperatorError::MissingId {
        path: path.to_owned(),
        field: field.clone(),
        place: record.place.clone(),
        problem,
    };
    let leaves = predicate::leaves(&record.fields, field)
        .map_err(|error| missing(format!("cannot be reached ({error})")))?;
    let text = match leaves.as_slice() {
        [] => return Err(missing("is missing".to_owned())),
        [Value::String(text)] => text.trim().to_owned(),
        [Value::Number(number)] if number.is_u64() || number.is_i64() => number.to_string(),
        [other] => return Err(missing(format!("is {} ({other})", kind_of(other)))),
        _ => return Err(missing("is a list".to_owned())),
    };
    if text.is_empty() {
        return Err(missing("is empty".to_owned()));
    }
    if text.len() > ID_BYTES_MAX || text.chars().any(char::is_control) {
        let problem = format!("is no id: over {ID_BYTES_MAX} bytes, or has control characters");
        return Err(missing(problem));
    }
    Ok(UnitId::new(&text))
}

fn check_unique(plan: &Plan, partition: &Partition) -> Result<(), OperatorError> {
    let units = partition
        .units
        .iter()
        .map(|unit| (&unit.id, unit.record.place.as_str()));
    let bad = partition
        .bad
        .iter()
        .map(|bad| (&bad.id, bad.place.as_str()));
    let mut places: HashMap<&UnitId, &str> = HashMap::with_capacity(partition.units.len());
    for (id, second) in units.chain(bad) {
        if let Some(first) = places.insert(id, second) {
            return Err(OperatorError::DuplicateId {
                path: partition.source.path.clone(),
                field: plan.input.id.clone(),
                id: id.to_string(),
                first: first.to_owned(),
                second: second.to_owned(),
            });
        }
    }
    Ok(())
}
