//! What a reduction takes from a fact: whether it counts, its key and its number.

use crate::column::ColumnValue;
use crate::fact::{Fact, FieldValue, Status};
use crate::infer::PPM;
use crate::plan::{Filter, KeySource, Measure, Operation, Reduce};

/// Whether a fact is decided and carries what the filter wants.
pub(super) fn selects(filter: &Filter, fact: &Fact) -> bool {
    let carries = |(field, wanted): (&String, &String)| {
        fact.values
            .get(field)
            .is_some_and(|value| value.label == *wanted)
    };
    let holds = |(column, wanted): (&String, &String)| {
        fact.columns.get(column).map(column_text).as_ref() == Some(wanted)
    };
    fact.status == Status::Decided
        && filter.labels.iter().all(carries)
        && filter.columns.iter().all(holds)
}

/// The key of a fact, where it has one.
pub(super) fn key(source: &KeySource, fact: &Fact) -> Option<String> {
    match source {
        KeySource::Label(field) => Some(fact.values.get(field)?.label.clone()),
        KeySource::Column(column) => fact.columns.get(&column.name).map(column_text),
        KeySource::Id => Some(fact.unit_id.to_string()),
    }
}

fn column_text(value: &ColumnValue) -> String {
    match value {
        ColumnValue::Integer(number) => number.to_string(),
        ColumnValue::Text(text) => text.clone(),
    }
}

/// The number of a fact, where it has one.
pub(super) fn number(measure: &Measure, fact: &Fact) -> Option<i64> {
    match measure {
        Measure::Probability { field, label } => {
            let value = fact.values.get(field)?;
            Some(probability(value, label.as_deref().unwrap_or(&value.label)))
        }
        Measure::Column(column) => match fact.columns.get(&column.name) {
            Some(ColumnValue::Integer(number)) => Some(*number),
            _ => None,
        },
    }
}

/// Parts per million of a label; what a predicate set is certain.
fn probability(value: &FieldValue, label: &str) -> i64 {
    let ppm = if value.label == label {
        value.probability_ppm.unwrap_or(PPM)
    } else {
        let mut others = value.alternatives.iter();
        others
            .find(|(other, _)| other == label)
            .map_or(0, |(_, ppm)| *ppm)
    };
    i64::from(ppm.min(PPM))
}

/// Whether a fact backs what a reduction says.
pub(super) fn backs(reduce: &Reduce, fact: &Fact) -> bool {
    let selected = selects(&reduce.filter, fact);
    let has_key = |source: &KeySource| key(source, fact).is_some();
    match &reduce.op {
        Operation::Count | Operation::Set { key: None, .. } => selected,
        Operation::CountBy { key, .. }
        | Operation::Set { key: Some(key), .. }
        | Operation::TopKeys { key, .. }
        | Operation::HeavyHitters { key, .. } => selected && has_key(key),
        Operation::TopK { by, .. } | Operation::Histogram { by, .. } => {
            selected && number(by, fact).is_some()
        }
        Operation::Min(column)
        | Operation::Max(column)
        | Operation::Sum(column)
        | Operation::Mean(column)
        | Operation::Quantiles { column, .. } => {
            selected && number(&Measure::Column(column.clone()), fact).is_some()
        }
        Operation::Distinct(column) => selected && fact.columns.contains_key(&column.name),
        Operation::Join { left, right, .. } => [left, right]
            .iter()
            .any(|side| selects(&side.filter, fact) && has_key(&side.key)),
        Operation::Clusters { field, .. } => {
            fact.status == Status::Abstained || (selected && fact.values.contains_key(field))
        }
        Operation::Components { field, .. } => {
            selected && fact.members.len() > 1 && fact.values.contains_key(field)
        }
        Operation::Summary { .. } => false,
    }
}
