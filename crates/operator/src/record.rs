//! Input files as records, read one at a time: a file of any length is never whole in memory, and
//! what was read is hashed as it is read.
//!
//! A record that cannot be decoded becomes a `BadRecord` and the rest goes on; a file that cannot
//! be cut into records is an error. This file knows formats; it must not know plans or ids.

mod bytes;
mod csv;
mod json;
mod jsonl;
mod sniff;
#[cfg(test)]
mod tests;

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::Mutex;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::canonical::Canonical;
use crate::error::OperatorError;
use crate::id::ContentHash;

pub use bytes::RECORD_BYTES_MAX;
use bytes::{Bytes, Reading, read_span};

/// The byte-order mark of UTF-8.
const MARK: &[u8] = b"\xef\xbb\xbf";

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

/// Where a record lies in its input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: u64,
    pub(crate) bytes: u32,
}

impl Span {
    fn of(start: u64, bytes: usize) -> Self {
        // Records are far shorter.
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        Self { start, bytes }
    }
}

/// Takes records in their order, good and bad.
pub(crate) type Visitor<'v> =
    dyn FnMut(Span, Result<Record, BadRecord>) -> Result<(), OperatorError> + 'v;

/// Records on their way from a format's reader: their ordinals together tile `0..n`.
struct Found<'a, 'v> {
    next: u32,
    visitor: &'a mut Visitor<'v>,
}

impl Found<'_, '_> {
    fn good(
        &mut self,
        span: Span,
        place: String,
        fields: Map<String, Value>,
        repairs: u64,
    ) -> Result<(), OperatorError> {
        let ordinal = self.number();
        (self.visitor)(span, Ok(Record::new(ordinal, place, fields, repairs)))
    }

    fn bad(&mut self, place: String, problem: String, raw: &[u8]) -> Result<(), OperatorError> {
        let mut canonical = Canonical::new("operator 2026 unreadable record v1");
        canonical.bytes(raw);
        self.unreadable(place, problem, ContentHash::of(&canonical))
    }

    /// A record that is too long to be kept, by the plain hash of its raw text.
    fn overlong(&mut self, place: String, hash: [u8; 32]) -> Result<(), OperatorError> {
        let problem = String::from("is too long to be read as one record; split it");
        self.unreadable(place, problem, ContentHash::from_bytes(hash))
    }

    fn unreadable(
        &mut self,
        place: String,
        problem: String,
        hash: ContentHash,
    ) -> Result<(), OperatorError> {
        let ordinal = self.number();
        let bad = BadRecord {
            ordinal,
            place,
            problem,
            hash,
        };
        (self.visitor)(Span { start: 0, bytes: 0 }, Err(bad))
    }

    fn number(&mut self) -> u32 {
        let ordinal = self.next;
        self.next = ordinal.saturating_add(1);
        ordinal
    }
}

/// An input of which format and layout are known; its records are read one at a time.
pub(crate) struct Scan<'a> {
    path: String,
    bytes: Box<dyn Bytes + 'a>,
    /// Past a byte-order mark.
    start: u64,
    format: Format,
    csv: Option<csv::Layout>,
    record_bytes_max: u64,
}

impl<'a> Scan<'a> {
    /// Finds format and layout; `path` only names the input in errors.
    ///
    /// # Errors
    /// As [`read_source`].
    pub(crate) fn open(
        path: &str,
        bytes: Box<dyn Bytes + 'a>,
        format: Option<Format>,
    ) -> Result<Self, OperatorError> {
        let head = read_span(&*bytes, 0, 3).map_err(|error| unreadable(path, error))?;
        if head.starts_with(&[0xff, 0xfe]) || head.starts_with(&[0xfe, 0xff]) {
            return Err(OperatorError::SourceInvalid {
                path: path.to_owned(),
                line: 1,
                column: 1,
                problem: String::from("is UTF-16; save it as UTF-8"),
            });
        }
        let start = if head == MARK { MARK.len() as u64 } else { 0 };
        let format = match format {
            Some(format) => format,
            None => sniff::sniff(path, &*bytes, start)?,
        };
        let csv = match format {
            Format::Csv => Some(csv::Layout::read(path, &*bytes, start)?),
            Format::Json | Format::Jsonl => None,
        };
        let scan = Self {
            path: path.to_owned(),
            bytes,
            start,
            format,
            csv,
            record_bytes_max: RECORD_BYTES_MAX,
        };
        if format == Format::Json {
            json::check(&scan)?;
        }
        Ok(scan)
    }

    /// As [`Scan::open`], from a file.
    ///
    /// # Errors
    /// As [`read_source`].
    pub(crate) fn open_file(
        path: &Path,
        format: Option<Format>,
    ) -> Result<Scan<'static>, OperatorError> {
        let shown = path.display().to_string();
        let file = File::open(path).map_err(|error| unreadable(&shown, error))?;
        Scan::open(&shown, Box::new(Mutex::new(file)), format)
    }

    /// Hands out every record, and tells what was read.
    ///
    /// # Errors
    /// As [`read_source`]; what the visitor returns.
    pub(crate) fn visit(&self, visitor: &mut Visitor<'_>) -> Result<SourceArtifact, OperatorError> {
        let mut hasher = blake3::Hasher::new();
        if self.start > 0 {
            hasher.update(MARK);
        }
        let mut found = Found { next: 0, visitor };
        let reading = self.reading().hashing(&mut hasher);
        match (self.format, &self.csv) {
            (Format::Csv, Some(layout)) => csv::scan(self, layout, reading, &mut found)?,
            (Format::Json, _) => json::scan(self, reading, &mut found)?,
            _ => jsonl::scan(self, reading, &mut found)?,
        }
        Ok(SourceArtifact {
            path: self.path.clone(),
            format: self.format,
            bytes: hasher.count(),
            hash: ContentHash::from_bytes(*hasher.finalize().as_bytes()),
        })
    }

    /// Reads a record again; none where there is none any more. Its place for a person is its number.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn read(&self, ordinal: u32, span: Span) -> Result<Option<Record>, OperatorError> {
        let text = read_span(&*self.bytes, span.start, u64::from(span.bytes))
            .map_err(|error| self.unreadable(error))?;
        let read = match &self.csv {
            Some(layout) => layout.fields(&text).map(|fields| (fields, 0)),
            None => json::parse_object(&text).ok(),
        };
        let place = format!("record {}", u64::from(ordinal) + 1);
        Ok(read.map(|(fields, repairs)| Record::new(ordinal, place, fields, repairs)))
    }

    /// The name of the input.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    fn reading(&self) -> Reading<'_> {
        Reading::new(&*self.bytes, self.start)
    }

    fn unreadable(&self, error: io::Error) -> OperatorError {
        unreadable(&self.path, error)
    }

    fn invalid(&self, offset: u64, problem: &str) -> OperatorError {
        invalid(&self.path, &*self.bytes, self.start, offset, problem)
    }
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

/// Line and column, both from 1, of an offset from `start`; CR, LF and CRLF each end a line.
fn line_and_column(bytes: &dyn Bytes, start: u64, offset: u64) -> io::Result<(u64, u64)> {
    let (mut line, mut line_start, mut after_return) = (1, 0, false);
    for (at, byte) in (0..=offset).zip(Reading::new(bytes, start).buffered().bytes()) {
        let byte = byte?;
        if after_return && byte != b'\n' {
            (line, line_start) = (line + 1, at);
        }
        after_return = false;
        if at == offset {
            break;
        }
        match byte {
            b'\n' => (line, line_start) = (line + 1, at + 1),
            b'\r' => after_return = true,
            _ => {}
        }
    }
    Ok((line, offset - line_start + 1))
}

fn invalid(path: &str, bytes: &dyn Bytes, start: u64, offset: u64, problem: &str) -> OperatorError {
    match line_and_column(bytes, start, offset) {
        Ok((line, column)) => OperatorError::SourceInvalid {
            path: path.to_owned(),
            line,
            column,
            problem: problem.to_owned(),
        },
        Err(error) => unreadable(path, error),
    }
}

fn unreadable(path: &str, source: io::Error) -> OperatorError {
    OperatorError::Io {
        path: path.to_owned(),
        action: "read",
        source,
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
