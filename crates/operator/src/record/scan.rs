//! An input that is gone through record by record, as often as it is needed.
//!
//! What was read is hashed as it is read, so that the hash names the bytes that the records came from.
//! Must not know what records are for.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::Mutex;

use serde_json::{Map, Value};

use super::bytes::{Bytes, RECORD_BYTES_MAX, Reading, read_span};
use super::{BadRecord, Format, Record, SourceArtifact, csv, json, jsonl, sniff};
use crate::canonical::Canonical;
use crate::error::OperatorError;
use crate::id::ContentHash;

/// The byte-order mark of UTF-8.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// Where a record lies in its input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: u64,
    pub(crate) bytes: u32,
}

impl Span {
    pub(super) fn of(start: u64, bytes: usize) -> Self {
        // Records are far shorter.
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        Self { start, bytes }
    }
}

/// Takes records in their order, good and bad.
pub(crate) type Visitor<'v> =
    dyn FnMut(Span, Result<Record, BadRecord>) -> Result<(), OperatorError> + 'v;

/// Records on their way from a format's reader: their ordinals together tile `0..n`.
pub(super) struct Found<'a, 'v> {
    next: u32,
    visitor: &'a mut Visitor<'v>,
}

impl Found<'_, '_> {
    pub(super) fn good(
        &mut self,
        span: Span,
        place: String,
        fields: Map<String, Value>,
        repairs: u64,
    ) -> Result<(), OperatorError> {
        let ordinal = self.number();
        (self.visitor)(span, Ok(Record::new(ordinal, place, fields, repairs)))
    }

    pub(super) fn bad(
        &mut self,
        place: String,
        problem: String,
        raw: &[u8],
    ) -> Result<(), OperatorError> {
        let mut canonical = Canonical::new("operator 2026 unreadable record v1");
        canonical.bytes(raw);
        self.unreadable(place, problem, ContentHash::of(&canonical))
    }

    /// A record that is too long to be kept, by the plain hash of its raw text.
    pub(super) fn overlong(&mut self, place: String, hash: [u8; 32]) -> Result<(), OperatorError> {
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
    pub(super) path: String,
    pub(super) bytes: Box<dyn Bytes + 'a>,
    /// Past a byte-order mark.
    pub(super) start: u64,
    format: Format,
    csv: Option<csv::Layout>,
    pub(super) record_bytes_max: u64,
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
        let failed = |error| unreadable(&shown, error);
        let mut file = File::open(path).map_err(failed)?;
        if file.metadata().map_err(failed)?.is_file() {
            return Scan::open(&shown, Box::new(Mutex::new(file)), format);
        }
        // A pipe can be read once, so that what came through it is kept.
        let mut content = Vec::new();
        file.read_to_end(&mut content).map_err(failed)?;
        Scan::open(&shown, Box::new(content), format)
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

    pub(super) fn reading(&self) -> Reading<'_> {
        Reading::new(&*self.bytes, self.start)
    }

    pub(super) fn unreadable(&self, error: io::Error) -> OperatorError {
        unreadable(&self.path, error)
    }

    pub(super) fn invalid(&self, offset: u64, problem: &str) -> OperatorError {
        invalid(&self.path, &*self.bytes, self.start, offset, problem)
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

pub(super) fn invalid(
    path: &str,
    bytes: &dyn Bytes,
    start: u64,
    offset: u64,
    problem: &str,
) -> OperatorError {
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

pub(super) fn unreadable(path: &str, source: io::Error) -> OperatorError {
    OperatorError::Io {
        path: path.to_owned(),
        action: "read",
        source,
    }
}
