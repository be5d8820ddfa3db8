//! Facts measured against labels: accuracy, precision, recall, F1 and who was confused with whom.
//!
//! Units without a decision are counted apart, never as a wrong label of some class alone; the
//! accuracy over all labelled units counts each of them as not right. Integers only: shares are
//! parts per million, rounded to nearest. Must not know how facts came about.

mod choices;
mod claims;
mod pairs;
mod quality;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::OperatorError;
use crate::fact::{Fact, Status};
use crate::id::UnitId;
use crate::record::Record;

pub use choices::{ChoiceReport, evaluate_choices};
pub use claims::{ClaimReport, KeyRow, KeysReport, UnitsReport, evaluate_claim};
pub use pairs::{PairReport, Pairs, Score, evaluate_pairs, read_pairs};
pub use quality::{CoveragePoint, Judgement, Misses, Quality, ReliabilityBin, evaluate_quality};

/// The true labels by unit.
pub type Labels = BTreeMap<UnitId, String>;

/// Quality of one label.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassScore {
    /// The label.
    pub label: String,
    /// Units that truly have it, however they ended.
    pub support: u64,
    /// Units decided as it.
    pub predicted: u64,
    /// Units decided as it that truly have it.
    pub correct: u64,
    /// `correct / predicted` in ppm; none when nothing was predicted.
    pub precision_ppm: Option<u32>,
    /// `correct / support` in ppm; none when nothing truly has it.
    pub recall_ppm: Option<u32>,
    /// `2 correct / (predicted + support)` in ppm; none when both are zero.
    pub f1_ppm: Option<u32>,
}

/// One cell of the confusion table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confusion {
    /// The true label.
    pub label: String,
    /// Units per decided label.
    pub decided: BTreeMap<String, u64>,
    /// Units per status other than decided.
    pub undecided: BTreeMap<String, u64>,
}

/// The whole measurement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The field measured.
    pub field: String,
    /// Units with a label and a fact.
    pub labelled: u64,
    /// Of these, decided.
    pub decided: u64,
    /// Of these, decided right.
    pub correct: u64,
    /// `correct / decided` in ppm; none when nothing was decided.
    pub accuracy_decided_ppm: Option<u32>,
    /// `correct / labelled` in ppm; none when nothing is labelled.
    pub accuracy_labelled_ppm: Option<u32>,
    /// Mean of the F1 of labels with support in ppm; none without any.
    pub macro_f1_ppm: Option<u32>,
    /// Quality per label, by name.
    pub classes: Vec<ClassScore>,
    /// Confusion per true label, by name.
    pub confusion: Vec<Confusion>,
    /// Units with a fact but no label.
    pub unlabelled: Vec<UnitId>,
    /// Units with a label but no fact.
    pub without_fact: Vec<UnitId>,
}

/// Collects labels from records: texts, numbers and truth values, renamed by `map`.
///
/// A record whose label is null or missing is left out; it counts as unlabelled. `map` turns a
/// stored label into the plan's, such as `true` into `yes`; others stay as they are.
///
/// # Errors
/// `MissingId` when a record has no id, `DuplicateId` when two have the same, `FileInvalid` when no
/// record has the label field, or a label is a list or an object.
pub fn read_labels(
    path: &str,
    records: &[Record],
    id_field: &str,
    label_field: &str,
    map: &BTreeMap<String, String>,
) -> Result<Labels, OperatorError> {
    let mut labels = Labels::new();
    let mut places: BTreeMap<UnitId, &str> = BTreeMap::new();
    for record in records {
        let id = scalar(&record.fields, id_field).ok_or_else(|| OperatorError::MissingId {
            path: path.to_owned(),
            field: id_field.to_owned(),
            place: record.place.clone(),
            problem: String::from("is missing"),
        })?;
        let unit = UnitId::new(&id);
        if let Some(first) = places.insert(unit.clone(), &record.place) {
            return Err(OperatorError::DuplicateId {
                path: path.to_owned(),
                field: id_field.to_owned(),
                id,
                first: first.to_owned(),
                second: record.place.clone(),
            });
        }
        match record.fields.get(label_field) {
            None | Some(Value::Null) => {}
            Some(_) => {
                let label = scalar(&record.fields, label_field).ok_or_else(|| {
                    invalid(
                        path,
                        format!("{}: {label_field} is no single label", record.place),
                    )
                })?;
                labels.insert(unit, map.get(&label).cloned().unwrap_or(label));
            }
        }
    }
    if labels.is_empty() {
        let known: BTreeSet<&str> = records
            .iter()
            .flat_map(|record| record.fields.keys().map(String::as_str))
            .collect();
        let known = known.into_iter().collect::<Vec<_>>().join(", ");
        return Err(invalid(
            path,
            format!("no record has a label in {label_field}; fields: {known}"),
        ));
    }
    Ok(labels)
}

/// Reads the ids of records.
///
/// # Errors
/// `MissingId` when a record has none.
pub fn read_ids(
    path: &str,
    records: &[Record],
    id_field: &str,
) -> Result<BTreeSet<UnitId>, OperatorError> {
    let id = |record: &Record| {
        let id = scalar(&record.fields, id_field).ok_or_else(|| OperatorError::MissingId {
            path: path.to_owned(),
            field: id_field.to_owned(),
            place: record.place.clone(),
            problem: String::from("is missing"),
        })?;
        Ok(UnitId::new(&id))
    };
    records.iter().map(id).collect()
}

/// Measures one field of the facts against the labels.
pub fn evaluate(facts: &[Fact], labels: &Labels, field: &str) -> Report {
    let known: BTreeSet<&UnitId> = facts.iter().map(|fact| &fact.unit_id).collect();
    let mut rows: BTreeMap<&str, Confusion> = BTreeMap::new();
    let mut unlabelled = Vec::new();
    for fact in facts {
        let Some(label) = labels.get(&fact.unit_id) else {
            unlabelled.push(fact.unit_id.clone());
            continue;
        };
        let row = rows.entry(label).or_insert_with(|| Confusion::of(label));
        let decided = fact
            .values
            .get(field)
            .filter(|_| fact.status == Status::Decided);
        match decided {
            Some(value) => *row.decided.entry(value.label.clone()).or_default() += 1,
            None => {
                *row.undecided
                    .entry(fact.status.name().to_owned())
                    .or_default() += 1
            }
        }
    }
    let without_fact = labels.keys().filter(|unit| !known.contains(unit));
    Report {
        unlabelled,
        without_fact: without_fact.cloned().collect(),
        ..Report::of(field, rows)
    }
}

/// Measures judgements, each of them a decision.
pub fn evaluate_judgements(judgements: &[Judgement<'_>], field: &str) -> Report {
    let mut rows: BTreeMap<&str, Confusion> = BTreeMap::new();
    for judgement in judgements {
        let row = rows
            .entry(judgement.truth)
            .or_insert_with(|| Confusion::of(judgement.truth));
        *row.decided.entry(judgement.label.to_owned()).or_default() += 1;
    }
    Report::of(field, rows)
}

impl Confusion {
    fn of(label: &str) -> Self {
        Self {
            label: label.to_owned(),
            decided: BTreeMap::new(),
            undecided: BTreeMap::new(),
        }
    }
}

impl Report {
    fn of(field: &str, rows: BTreeMap<&str, Confusion>) -> Self {
        let confusion: Vec<Confusion> = rows.into_values().collect();
        let names: BTreeSet<&str> = confusion
            .iter()
            .flat_map(|row| row.decided.keys().chain(std::iter::once(&row.label)))
            .map(String::as_str)
            .collect();
        let classes: Vec<ClassScore> = names
            .into_iter()
            .map(|label| score_class(label, &confusion))
            .collect();
        let labelled = classes.iter().map(|class| class.support).sum();
        let decided = classes.iter().map(|class| class.predicted).sum();
        let correct = classes.iter().map(|class| class.correct).sum();
        let f1s: Vec<u64> = classes
            .iter()
            .filter(|class| class.support > 0)
            .map(|class| u64::from(class.f1_ppm.unwrap_or(0)))
            .collect();
        Report {
            field: field.to_owned(),
            labelled,
            decided,
            correct,
            accuracy_decided_ppm: share(correct, decided),
            accuracy_labelled_ppm: share(correct, labelled),
            macro_f1_ppm: mean(&f1s),
            classes,
            confusion,
            unlabelled: Vec::new(),
            without_fact: Vec::new(),
        }
    }
}

fn score_class(label: &str, confusion: &[Confusion]) -> ClassScore {
    let predicted = confusion
        .iter()
        .filter_map(|row| row.decided.get(label))
        .sum();
    let row = confusion.iter().find(|row| row.label == label);
    let support = row.map_or(0, |row| {
        row.decided.values().sum::<u64>() + row.undecided.values().sum::<u64>()
    });
    let correct = row
        .and_then(|row| row.decided.get(label))
        .copied()
        .unwrap_or(0);
    ClassScore {
        label: label.to_owned(),
        support,
        predicted,
        correct,
        precision_ppm: share(correct, predicted),
        recall_ppm: share(correct, support),
        f1_ppm: share(2 * correct, predicted + support),
    }
}

fn share(part: u64, whole: u64) -> Option<u32> {
    let ppm = (part * 1_000_000 + whole / 2).checked_div(whole)?;
    u32::try_from(ppm).ok()
}

fn mean(values: &[u64]) -> Option<u32> {
    let count = values.len() as u64;
    u32::try_from((values.iter().sum::<u64>() + count / 2).checked_div(count)?).ok()
}

fn scalar(fields: &Map<String, Value>, field: &str) -> Option<String> {
    match fields.get(field)? {
        Value::String(text) => Some(text.clone()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn invalid(path: &str, problem: String) -> OperatorError {
    OperatorError::FileInvalid {
        path: path.to_owned(),
        line: 0,
        problem,
    }
}

/// Writes ppm as a percentage with two decimals, or a dash.
fn percent(ppm: Option<u32>) -> String {
    ppm.map_or_else(
        || String::from("-"),
        |ppm| {
            let hundredths = (ppm + 50) / 100;
            format!("{}.{:02}%", hundredths / 100, hundredths % 100)
        },
    )
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.figures())?;
        writeln!(
            f,
            "{} units have a fact and no label, {} a label and no fact",
            self.unlabelled.len(),
            self.without_fact.len()
        )
    }
}

impl Report {
    /// Accuracy, figures per label and the confusion, as lines of text.
    pub fn figures(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = self.write_figures(&mut text);
        text
    }

    fn write_figures(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        writeln!(
            f,
            "{}: {} labelled, {} decided, {} right; accuracy {} of decided, {} of all; macro F1 {}",
            self.field,
            self.labelled,
            self.decided,
            self.correct,
            percent(self.accuracy_decided_ppm),
            percent(self.accuracy_labelled_ppm),
            percent(self.macro_f1_ppm),
        )?;
        let width = self
            .classes
            .iter()
            .map(|class| class.label.chars().count())
            .max();
        let width = width.unwrap_or(0).max("label".len());
        writeln!(
            f,
            "{:width$} {:>8} {:>9} {:>9} {:>9} {:>9}",
            "label", "support", "predicted", "precision", "recall", "F1"
        )?;
        for class in &self.classes {
            writeln!(
                f,
                "{:width$} {:>8} {:>9} {:>9} {:>9} {:>9}",
                class.label,
                class.support,
                class.predicted,
                percent(class.precision_ppm),
                percent(class.recall_ppm),
                percent(class.f1_ppm),
            )?;
        }
        writeln!(f, "true label -> how its units ended")?;
        for row in &self.confusion {
            let decided = row
                .decided
                .iter()
                .map(|(label, count)| format!("{label} {count}"));
            let undecided = row
                .undecided
                .iter()
                .map(|(status, count)| format!("({status}) {count}"));
            let cells = decided.chain(undecided).collect::<Vec<_>>().join(", ");
            writeln!(f, "{:width$} -> {cells}", row.label)?;
        }
        Ok(())
    }
}
