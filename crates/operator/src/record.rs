//! Input files as records: one file is read once, hashed once and decoded once, here.
//!
//! A record that cannot be decoded becomes a `BadRecord` and the rest goes on; a file that cannot
//! be cut into records is an error. This file knows formats; it must not know plans or ids.

mod csv;
mod json;
mod jsonl;

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::canonical::Canonical;
use crate::error::OperatorError;
use crate::id::ContentHash;

/// Most bytes of an input file: spans are 32-bit byte offsets.
pub const SOURCE_BYTES_MAX: u64 = u32::MAX as u64;

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

/// What one format's reader yields: good and bad records whose ordinals together tile `0..n`.
pub(crate) struct Decoded {
    pub(crate) records: Vec<Record>,
    pub(crate) bad: Vec<BadRecord>,
}

impl Decoded {
    pub(crate) const fn new() -> Self {
        Self {
            records: Vec::new(),
            bad: Vec::new(),
        }
    }

    /// The ordinal of the record that comes next.
    pub(crate) fn next_ordinal(&self) -> u32 {
        u32::try_from(self.records.len() + self.bad.len()).unwrap_or(u32::MAX)
    }

    pub(crate) fn push_good(
        &mut self,
        place: String,
        fields: Map<String, Value>,
        warnings: Vec<String>,
    ) {
        let ordinal = self.next_ordinal();
        self.records.push(Record {
            ordinal,
            place,
            fields,
            warnings,
        });
    }

    pub(crate) fn push_bad(&mut self, place: String, problem: String, raw: &[u8]) {
        let ordinal = self.next_ordinal();
        self.bad.push(BadRecord {
            ordinal,
            place,
            problem,
            hash: raw_hash(raw),
        });
    }
}

/// Reads an input file; the format is found from the content where it is not given.
///
/// Byte-order mark, CRLF, and in CSV bare CR are tolerated. A lone surrogate escape in JSON becomes
/// U+FFFD with a warning. A ragged CSV row, a broken JSON line or an array element that is no
/// object becomes a [`BadRecord`].
///
/// # Errors
/// [`OperatorError::Io`], or one of the `Source*` variants, [`OperatorError::DuplicateColumn`] and
/// [`OperatorError::NoUsableRecord`] where the file as a whole yields no records.
pub fn read_source(
    path: &Path,
    format: Option<Format>,
) -> Result<(SourceArtifact, Vec<Record>, Vec<BadRecord>), OperatorError> {
    let shown = path.display().to_string();
    let bytes = std::fs::read(path).map_err(|source| OperatorError::Io {
        path: shown.clone(),
        action: "read",
        source,
    })?;
    read_bytes(&shown, &bytes, format)
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
    let size = bytes.len() as u64;
    if size > SOURCE_BYTES_MAX {
        return Err(OperatorError::SourceTooLarge {
            path: path.to_owned(),
            bytes: size,
            bytes_max: SOURCE_BYTES_MAX,
        });
    }
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return Err(invalid(path, bytes, 0, "is UTF-16; save it as UTF-8"));
    }
    let content = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let format = match format {
        Some(format) => format,
        None => sniff(path, content)?,
    };
    let decoded = match format {
        Format::Json => json::decode(path, content)?,
        Format::Jsonl => jsonl::decode(content),
        Format::Csv => csv::decode(path, content)?,
    };
    if decoded.records.is_empty() {
        return Err(match decoded.bad.first() {
            Some(first) => OperatorError::NoUsableRecord {
                path: path.to_owned(),
                bad: decoded.bad.len() as u64,
                place: first.place.clone(),
                problem: first.problem.clone(),
            },
            None => OperatorError::SourceEmpty {
                path: path.to_owned(),
                format: format.to_string(),
            },
        });
    }
    let hash = ContentHash::of_bytes(bytes);
    let artifact = SourceArtifact {
        path: path.to_owned(),
        format,
        bytes: size,
        hash,
    };
    Ok((artifact, decoded.records, decoded.bad))
}

/// Finds the format from the first characters, and for an object from whether one line holds it
/// all.
fn sniff(path: &str, content: &[u8]) -> Result<Format, OperatorError> {
    let start = content.iter().position(|byte| !byte.is_ascii_whitespace());
    let Some(start) = start else {
        return Err(OperatorError::SourceEmpty {
            path: path.to_owned(),
            format: "any format".to_owned(),
        });
    };
    let rest = &content[start..];
    match rest[0] {
        b'[' => return Ok(Format::Json),
        b'{' => {
            let whole = serde_json::from_slice::<serde::de::IgnoredAny>(rest).is_ok();
            let one_line = !rest.trim_ascii_end().contains(&b'\n');
            let any_line = || {
                rest.split(|byte| *byte == b'\n')
                    .any(|line| json::parse_object(line).is_ok())
            };
            let lines = if whole { one_line } else { any_line() };
            return Ok(if lines { Format::Jsonl } else { Format::Json });
        }
        _ => {}
    }
    let header = rest
        .split(|byte| matches!(byte, b'\n' | b'\r'))
        .next()
        .unwrap_or(rest);
    if rest[0] != b'<' && csv::delimiter(header).is_some() {
        return Ok(Format::Csv);
    }
    let starts_with = String::from_utf8_lossy(header).chars().take(24).collect();
    Err(OperatorError::SourceUnrecognised {
        path: path.to_owned(),
        starts_with,
    })
}

/// Line and column, both from 1, of a byte offset; CR, LF and CRLF each end a line.
pub(crate) fn line_and_column(content: &[u8], offset: usize) -> (u64, u64) {
    let before = &content[..offset.min(content.len())];
    let (mut line, mut line_start) = (1, 0);
    for (index, byte) in before.iter().enumerate() {
        let ends = match byte {
            b'\n' => true,
            b'\r' => content.get(index + 1) != Some(&b'\n'),
            _ => false,
        };
        if ends {
            line += 1;
            line_start = index + 1;
        }
    }
    (line, (before.len() - line_start) as u64 + 1)
}

pub(crate) fn invalid(path: &str, content: &[u8], offset: usize, problem: &str) -> OperatorError {
    let (line, column) = line_and_column(content, offset);
    OperatorError::SourceInvalid {
        path: path.to_owned(),
        line,
        column,
        problem: problem.to_owned(),
    }
}

fn raw_hash(raw: &[u8]) -> ContentHash {
    let mut canonical = Canonical::new("operator 2026 unreadable record v1");
    canonical.bytes(raw);
    ContentHash::of(&canonical)
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
