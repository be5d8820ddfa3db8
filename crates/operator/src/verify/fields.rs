//! Ids, texts and columns, read off a record's decoded fields.
//!
//! Dates are read by the one reader of dates that there is.

use serde_json::{Map, Value};

use crate::column::{Column, ColumnType, ColumnValue, TEXT_BYTES_MAX};
use crate::plan::Plan;
use crate::predicate::date;

/// The values at a path, lists flattened and nulls left out.
fn at<'a>(value: &'a Value, path: Option<&str>) -> Vec<&'a Value> {
    match (value, path) {
        (Value::Null, _) => Vec::new(),
        (Value::Array(items), _) => items.iter().flat_map(|item| at(item, path)).collect(),
        (Value::Object(fields), Some(path)) => in_fields(fields, path),
        (value, None) => vec![value],
        (_, Some(_)) => Vec::new(),
    }
}

/// A key that itself contains dots goes before its parts.
fn in_fields<'a>(fields: &'a Map<String, Value>, path: &str) -> Vec<&'a Value> {
    if let Some(value) = fields.get(path) {
        return at(value, None);
    }
    match path.split_once('.') {
        Some((key, below)) => fields
            .get(key)
            .map_or_else(Vec::new, |value| at(value, Some(below))),
        None => Vec::new(),
    }
}

/// The id of a record; none where it has none.
pub(super) fn id_of(plan: &Plan, fields: &Map<String, Value>) -> Option<String> {
    match in_fields(fields, &plan.input.id).as_slice() {
        [Value::String(text)] => Some(text.trim().to_owned()),
        [Value::Number(number)] => Some(number.to_string()),
        _ => None,
    }
}

/// The text of a field, which spans index.
pub(super) fn text_of(fields: &Map<String, Value>, path: &str) -> String {
    let parts: Vec<String> = in_fields(fields, path)
        .into_iter()
        .map(|value| match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        })
        .collect();
    parts.join(", ")
}

/// What a column holds in a record.
pub(super) fn column_of(fields: &Map<String, Value>, column: &Column) -> Option<ColumnValue> {
    let mut held = fields;
    let mut path = column.field.as_str();
    let value = loop {
        if let Some(value) = held.get(path) {
            break value;
        }
        let (key, below) = path.split_once('.')?;
        held = held.get(key)?.as_object()?;
        path = below;
    };
    match (column.kind, value) {
        (ColumnType::Integer, Value::Number(number)) => number.as_i64().map(ColumnValue::Integer),
        (ColumnType::Integer, Value::String(text)) => {
            text.trim().parse().ok().map(ColumnValue::Integer)
        }
        (ColumnType::Text, Value::String(text)) if text.len() <= TEXT_BYTES_MAX => {
            Some(ColumnValue::Text(text.clone()))
        }
        (ColumnType::Time, Value::String(text)) => {
            let nanoseconds = date::parse(text)?.as_nanosecond();
            let seconds = i64::try_from(nanoseconds.div_euclid(1_000_000_000)).ok()?;
            Some(ColumnValue::Integer(seconds))
        }
        _ => None,
    }
}
