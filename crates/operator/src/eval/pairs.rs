//! Facts measured against labelled pairs of records: which pairs were found, and which records were
//! said to have a partner at all.
//!
//! Units that are groups name pairs; a record by itself names none, whatever is said of it. So that the
//! two can be compared, records are scored as well: one counts as found where it is in a pair that was
//! found, or was given the label itself. Integers only.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{invalid, percent, scalar, share};
use crate::error::OperatorError;
use crate::fact::{Fact, Status};
use crate::group::by_id;
use crate::id::UnitId;
use crate::predicate;
use crate::record::Record;

/// Pairs of records, each once, the smaller id first.
pub type Pairs = BTreeSet<(UnitId, UnitId)>;

/// How much of what there is was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Score {
    /// What truly is so.
    pub support: u64,
    /// What was said to be so.
    pub predicted: u64,
    /// What was said and is so.
    pub correct: u64,
    /// `correct / predicted` in ppm; none when nothing was said.
    pub precision_ppm: Option<u32>,
    /// `correct / support` in ppm; none when nothing is so.
    pub recall_ppm: Option<u32>,
    /// `2 correct / (predicted + support)` in ppm; none when both are zero.
    pub f1_ppm: Option<u32>,
}

impl Score {
    fn of<T: Ord>(truth: &BTreeSet<T>, said: &BTreeSet<T>) -> Self {
        let (support, predicted) = (truth.len() as u64, said.len() as u64);
        let correct = truth.intersection(said).count() as u64;
        Self {
            support,
            predicted,
            correct,
            precision_ppm: share(correct, predicted),
            recall_ppm: share(correct, support),
            f1_ppm: share(2 * correct, predicted + support),
        }
    }
}

/// The whole measurement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairReport {
    /// The field measured.
    pub field: String,
    /// The label that says that records belong together.
    pub label: String,
    /// Records of the run.
    pub records: u64,
    /// Labelled pairs of which a record is not in the run; they count nowhere.
    pub outside: u64,
    /// Labelled pairs that some unit of the run shows side by side: no more could have been found.
    pub side_by_side: u64,
    /// Pairs.
    pub pairs: Score,
    /// Records in a pair.
    pub paired_records: Score,
    /// Units per status.
    pub units: BTreeMap<String, u64>,
}

/// Collects pairs from records that name their partners, one or a list of them.
///
/// # Errors
/// `MissingId` where a record has no id, `FileInvalid` where no record names a partner, or one names
/// itself.
pub fn read_pairs(
    path: &str,
    records: &[Record],
    id_field: &str,
    pair_field: &str,
) -> Result<Pairs, OperatorError> {
    let mut pairs = Pairs::new();
    for record in records {
        let id = scalar(&record.fields, id_field).ok_or_else(|| OperatorError::MissingId {
            path: path.to_owned(),
            field: id_field.to_owned(),
            place: record.place.clone(),
            problem: String::from("is missing"),
        })?;
        let wrong = |problem: &str| invalid(path, format!("{}: {problem}", record.place));
        let partners = predicate::leaves(&record.fields, pair_field)
            .map_err(|error| wrong(&error.to_string()))?;
        for partner in partners {
            let partner = match partner {
                Value::String(text) => text.trim().to_owned(),
                Value::Number(number) => number.to_string(),
                _ => {
                    return Err(wrong(&format!(
                        "{pair_field} holds something that is no id"
                    )));
                }
            };
            if partner == id {
                return Err(wrong(&format!("{pair_field} names the record itself")));
            }
            pairs.insert(pair(&UnitId::new(&id), &UnitId::new(&partner)));
        }
    }
    if pairs.is_empty() {
        return Err(invalid(
            path,
            format!("no record names a partner in {pair_field}"),
        ));
    }
    Ok(pairs)
}

/// Measures what facts say of pairs.
pub fn evaluate_pairs(facts: &[Fact], labelled: &Pairs, field: &str, label: &str) -> PairReport {
    let mut records: BTreeSet<&UnitId> = BTreeSet::new();
    let (mut shown, mut said) = (Pairs::new(), Pairs::new());
    let mut said_records: BTreeSet<UnitId> = BTreeSet::new();
    let mut units: BTreeMap<String, u64> = BTreeMap::new();
    for fact in facts {
        *units.entry(fact.status.name().to_owned()).or_default() += 1;
        // A record that was shown with others was judged itself; a group is judged as a whole.
        let is_record = fact.members.is_empty() || !is_group(fact);
        let own = is_record.then_some(&fact.unit_id);
        records.extend(fact.members.iter().chain(own));
        let positive = fact.status == Status::Decided
            && fact
                .values
                .get(field)
                .is_some_and(|value| value.label == label);
        if is_record {
            if positive {
                said_records.insert(fact.unit_id.clone());
            }
            continue;
        }
        for (place, one) in fact.members.iter().enumerate() {
            for other in &fact.members[place + 1..] {
                shown.insert(pair(one, other));
                if positive {
                    said.insert(pair(one, other));
                    said_records.extend([one.clone(), other.clone()]);
                }
            }
        }
    }
    let truth: Pairs = labelled
        .iter()
        .filter(|(one, other)| records.contains(one) && records.contains(other))
        .cloned()
        .collect();
    let in_pairs: BTreeSet<UnitId> = truth
        .iter()
        .flat_map(|(one, other)| [one.clone(), other.clone()])
        .collect();
    PairReport {
        field: field.to_owned(),
        label: label.to_owned(),
        records: records.len() as u64,
        outside: (labelled.len() - truth.len()) as u64,
        side_by_side: truth.intersection(&shown).count() as u64,
        pairs: Score::of(&truth, &said),
        paired_records: Score::of(&in_pairs, &said_records),
        units,
    }
}

/// Whether a fact is of a group, whose id is made of its members' ids, and not of a record beside
/// others.
fn is_group(fact: &Fact) -> bool {
    crate::group::group_id(&fact.members) == fact.unit_id
}

fn pair(one: &UnitId, other: &UnitId) -> (UnitId, UnitId) {
    match by_id(one.as_str(), other.as_str()) {
        std::cmp::Ordering::Greater => (other.clone(), one.clone()),
        _ => (one.clone(), other.clone()),
    }
}

impl fmt::Display for PairReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units: Vec<String> = self
            .units
            .iter()
            .map(|(status, count)| format!("{count} {status}"))
            .collect();
        writeln!(
            f,
            "{} = {}: {} records; units: {}",
            self.field,
            self.label,
            self.records,
            units.join(", ")
        )?;
        writeln!(
            f,
            "{:16} {:>8} {:>9} {:>7} {:>9} {:>9} {:>9}",
            "", "labelled", "predicted", "correct", "precision", "recall", "F1"
        )?;
        for (name, score) in [
            ("pairs", self.pairs),
            ("records in pairs", self.paired_records),
        ] {
            writeln!(
                f,
                "{name:16} {:>8} {:>9} {:>7} {:>9} {:>9} {:>9}",
                score.support,
                score.predicted,
                score.correct,
                percent(score.precision_ppm),
                percent(score.recall_ppm),
                percent(score.f1_ppm),
            )?;
        }
        writeln!(
            f,
            "{} labelled pairs stand side by side in some unit; {} have a record outside the run",
            self.side_by_side, self.outside
        )
    }
}
