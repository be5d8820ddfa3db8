//! Typed values projected from a record without a model, carried by each fact.
//!
//! A column gives reductions something exact to count, order and add up: a number of comments, a
//! component, a date. A value that is not of the column's type is missing, never guessed. Must not
//! know plans, units or facts.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::predicate::date;
use crate::record::Record;

/// Most bytes of a text column's value; a longer text is missing, for it is no key.
pub const TEXT_BYTES_MAX: usize = 256;

/// One column: where its value stands in the record and how it is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Name, unique among columns and fields.
    pub name: String,
    /// Path in the record, such as `"comments.count"`; spelled as predicates spell it.
    pub field: String,
    /// How the value is read.
    pub kind: ColumnType,
}

/// How a column's value is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ColumnType {
    /// A whole number that fits 64 bits, also where text spells it.
    Integer,
    /// Text as it stands, at most [`TEXT_BYTES_MAX`] bytes.
    Text,
    /// A date or date-time, as Unix seconds in UTC; a fraction of a second is rounded down.
    Time,
}

impl ColumnType {
    /// The type as a plan spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Integer => "integer",
            Self::Text => "text",
            Self::Time => "time",
        }
    }
}

/// A column's value in one record.
///
/// Units: [`ColumnType::Time`] is an integer of Unix seconds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ColumnValue {
    /// Of an integer or time column.
    Integer(i64),
    /// Of a text column.
    Text(String),
}

/// Reads a column from a record.
///
/// None where the value is missing, null, of another type, out of range or below a list: reducers
/// count such a unit as missing. As in predicates, digits in text count as the number that they
/// spell, because CSV has only text; `3.0` is no integer.
pub fn project(column: &Column, record: &Record) -> Option<ColumnValue> {
    project_fields(column, &record.fields)
}

/// As [`project`], from a record's fields.
pub(crate) fn project_fields(column: &Column, fields: &Map<String, Value>) -> Option<ColumnValue> {
    let value = at(fields, &column.field)?;
    match column.kind {
        ColumnType::Integer => match value {
            Value::Number(number) => number.as_i64(),
            Value::String(text) => text.trim().parse().ok(),
            _ => None,
        }
        .map(ColumnValue::Integer),
        ColumnType::Text => value
            .as_str()
            .filter(|text| text.len() <= TEXT_BYTES_MAX)
            .map(|text| ColumnValue::Text(text.to_owned())),
        ColumnType::Time => {
            let instant = date::parse(value.as_str()?)?;
            let seconds = instant.as_nanosecond().div_euclid(1_000_000_000);
            i64::try_from(seconds).ok().map(ColumnValue::Integer)
        }
    }
}

/// The one value at a path; a key that itself contains dots is found before its parts are.
pub(crate) fn at<'a>(fields: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    if let Some(value) = fields.get(path) {
        return Some(value);
    }
    let (key, below) = path.split_once('.')?;
    at(fields.get(key)?.as_object()?, below)
}
