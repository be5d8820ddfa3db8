//! Input files as records, read one at a time: a file of any length is never whole in memory, and
//! what was read is hashed as it is read.
//!
//! A record that cannot be decoded becomes a `BadRecord` and the rest goes on; a file that cannot
//! be cut into records is an error. This file knows formats; it must not know plans or ids.

mod bytes;
mod csv;
mod json;
mod jsonl;
mod scan;
mod sniff;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::canonical::Canonical;
use crate::error::OperatorError;
use crate::id::ContentHash;

pub use bytes::RECORD_BYTES_MAX;
pub(crate) use scan::{Scan, Span};

/// The format of an input file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// A JSON array of objects.
    Json,
    /// One JSON object per line.
    Jsonl,
    /// Delimited text with a header row.
    Csv,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Json => "a JSON array",
            Self::Jsonl => "JSON lines",
            Self::Csv => "CSV",
        })
    }
}

/// An input file as it was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceArtifact {
    /// The path as it was given.
    pub path: String,
    /// The format that was read.
    pub format: Format,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// Plain BLAKE3 of the file.
    pub hash: ContentHash,
}

/// One decoded record.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// Position among all records of the file, bad ones included, from 0.
    pub ordinal: u32,
    /// Where it is, for a person, from 1: `"line 17"`, `"element 16"`, `"row 16 (line 18)"`.
    pub place: String,
    /// The decoded fields; an empty CSV cell is null.
    pub fields: Map<String, Value>,
    /// What was repaired on the way in.
    pub warnings: Vec<String>,
}

impl Record {
    fn new(ordinal: u32, place: String, fields: Map<String, Value>, repairs: u64) -> Self {
        let warnings = match repairs {
            0 => Vec::new(),
            _ => vec![format!(
                "{repairs} lone surrogate escape(s) replaced by U+FFFD"
            )],
        };
        Self {
            ordinal,
            place,
            fields,
            warnings,
        }
    }

    /// Hash of the decoded fields: white space and key order do not matter, any value does.
    pub fn source_hash(&self) -> ContentHash {
        let mut canonical = Canonical::new("operator 2026 record v1");
        canonical.fields(&self.fields);
        ContentHash::of(&canonical)
    }
}

/// One record that cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRecord {
    /// Position among all records of the file, from 0.
    pub ordinal: u32,
    /// Where it is, for a person.
    pub place: String,
    /// What is wrong with it.
    pub problem: String,
    /// Hash of its raw text.
    pub hash: ContentHash,
}

/// Reads an input file; the format is found from the content where it is not given.
///
/// Byte-order mark, CRLF, and in CSV bare CR are tolerated. A lone surrogate escape in JSON becomes
/// U+FFFD with a warning. A ragged CSV row, a broken JSON line, an array element that is no object or
/// a record of more than [`RECORD_BYTES_MAX`] becomes a [`BadRecord`].
///
/// # Errors
/// [`OperatorError::Io`], or one of the `Source*` variants, [`OperatorError::DuplicateColumn`] and
/// [`OperatorError::NoUsableRecord`] where the file as a whole yields no records.
pub fn read_source(
    path: &Path,
    format: Option<Format>,
) -> Result<(SourceArtifact, Vec<Record>, Vec<BadRecord>), OperatorError> {
    collect(&Scan::open_file(path, format)?)
}

/// Reads an input that is already in memory; `path` only names it in errors.
///
/// # Errors
/// As [`read_source`], without the I/O.
pub fn read_bytes(
    path: &str,
    bytes: &[u8],
    format: Option<Format>,
) -> Result<(SourceArtifact, Vec<Record>, Vec<BadRecord>), OperatorError> {
    collect(&Scan::open(path, Box::new(bytes), format)?)
}

fn collect(
    scan: &Scan<'_>,
) -> Result<(SourceArtifact, Vec<Record>, Vec<BadRecord>), OperatorError> {
    let (mut records, mut bad) = (Vec::new(), Vec::new());
    let artifact = scan.visit(&mut |_, found| {
        match found {
            Ok(record) => records.push(record),
            Err(problem) => bad.push(problem),
        }
        Ok(())
    })?;
    if records.is_empty() {
        return Err(no_record(&artifact, bad.len() as u64, bad.first()));
    }
    Ok((artifact, records, bad))
}

/// Says of an input without a good record why it has none.
pub(crate) fn no_record(
    source: &SourceArtifact,
    bad: u64,
    first: Option<&BadRecord>,
) -> OperatorError {
    let path = source.path.clone();
    match first {
        Some(first) => OperatorError::NoUsableRecord {
            path,
            bad,
            place: first.place.clone(),
            problem: first.problem.clone(),
        },
        None => OperatorError::SourceEmpty {
            path,
            format: source.format.to_string(),
        },
    }
}

/// What a JSON value is, for a message.
pub(crate) const fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
