//! Delimited text with a header row; comma, semicolon or tab.
//!
//! LF, CRLF and bare CR all end a row. A row with another number of cells than the header is one
//! bad record, never shifted columns. A quote that is never closed would swallow the rest of the
//! file, so it is an error with its place.

use std::collections::HashMap;
use std::io::{self, BufRead, Read};

use csv::{ByteRecord, ReaderBuilder};
use serde_json::{Map, Value};

use super::bytes::{Bytes, READ_BYTES, Reading, hash_span, read_span};
use super::scan::{Found, Scan, Span, invalid, unreadable};
use crate::error::OperatorError;

/// The delimiter that occurs most often in a header line, if any does.
pub(super) fn delimiter(header: &[u8]) -> Option<u8> {
    let count = |wanted: u8| header.iter().filter(|byte| **byte == wanted).count();
    [b',', b';', b'\t']
        .into_iter()
        .filter(|byte| count(*byte) > 0)
        // Reversed, because the last of equals is taken and the comma is to win.
        .rev()
        .max_by_key(|byte| count(*byte))
}

/// How the rows of one input are read.
pub(super) struct Layout {
    separator: u8,
    headers: Vec<String>,
}

impl Layout {
    /// Reads the header row; refuses a quote that is never closed.
    pub(super) fn read(path: &str, bytes: &dyn Bytes, start: u64) -> Result<Self, OperatorError> {
        let failed = |error| unreadable(path, error);
        let separator = first_line(bytes, start)
            .map_err(failed)?
            .and_then(|line| delimiter(&line))
            .unwrap_or(b',');
        if let Some(offset) = open_quote(bytes, start, separator).map_err(failed)? {
            let problem =
                "the quoted cell that opens here is never closed; close it or double the quote";
            return Err(invalid(path, bytes, start, offset, problem));
        }
        let mut layout = Self {
            separator,
            headers: Vec::new(),
        };
        let (mut reader, mut row) = (layout.reader(Reading::new(bytes, start)), ByteRecord::new());
        match reader.read_byte_record(&mut row) {
            Ok(false) => {}
            Ok(true) => {
                let found = header_names(&row);
                layout.headers = found.map_err(|problem| match problem {
                    HeaderProblem::Text(problem) => invalid(path, bytes, start, 0, &problem),
                    HeaderProblem::Twice(name, first, second) => OperatorError::DuplicateColumn {
                        path: path.to_owned(),
                        name,
                        first,
                        second,
                    },
                })?;
            }
            Err(error) => return Err(failed(error.into())),
        }
        Ok(layout)
    }

    /// The fields of a row that was read before; none where it is no row of this header.
    pub(super) fn fields(&self, row: &[u8]) -> Option<Map<String, Value>> {
        let mut cells = ByteRecord::new();
        let read = self.reader(row).read_byte_record(&mut cells);
        read.ok()
            .filter(|read| *read)
            .and_then(|_| decode_row(&self.headers, &cells).ok())
    }

    fn reader<R: Read>(&self, from: R) -> csv::Reader<R> {
        ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .delimiter(self.separator)
            .buffer_capacity(READ_BYTES)
            .from_reader(from)
    }
}

pub(super) fn scan(
    scan: &Scan<'_>,
    layout: &Layout,
    reading: Reading<'_>,
    found: &mut Found<'_, '_>,
) -> Result<(), OperatorError> {
    let mut reader = layout.reader(reading);
    let mut row = ByteRecord::new();
    let mut lines = LineCounter {
        reader: scan.reading().buffered(),
        offset: 0,
        line: 1,
    };
    for rows in 0_u64.. {
        let start = reader.position().byte();
        match reader.read_byte_record(&mut row) {
            Ok(false) => break,
            Ok(true) if rows == 0 => continue,
            Ok(true) => {}
            Err(error) => return Err(scan.unreadable(error.into())),
        }
        let length = reader.position().byte() - start;
        let line = lines
            .advance(start)
            .map_err(|error| scan.unreadable(error))?;
        let place = format!("row {rows} (line {line})");
        let at = scan.start + start;
        if length > scan.record_bytes_max {
            let hash = hash_span(&*scan.bytes, at, length);
            found.overlong(place, hash.map_err(|error| scan.unreadable(error))?)?;
            continue;
        }
        match decode_row(&layout.headers, &row) {
            Ok(fields) => {
                let span = Span::of(at, usize::try_from(length).unwrap_or(usize::MAX));
                found.good(span, place, fields, 0)?;
            }
            Err(problem) => {
                let raw = read_span(&*scan.bytes, at, length);
                let raw = raw.map_err(|error| scan.unreadable(error))?;
                found.bad(place, problem, &raw)?;
            }
        }
    }
    Ok(())
}

/// The first line with something in it, as far as a delimiter is looked for.
fn first_line(bytes: &dyn Bytes, start: u64) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    for byte in Reading::new(bytes, start).buffered().bytes() {
        match byte? {
            b'\n' | b'\r' if line.is_empty() => {}
            b'\n' | b'\r' => break,
            byte => line.push(byte),
        }
    }
    Ok((!line.is_empty()).then_some(line))
}

/// Why a header row is refused.
enum HeaderProblem {
    Text(String),
    Twice(String, u32, u32),
}

fn header_names(row: &ByteRecord) -> Result<Vec<String>, HeaderProblem> {
    let mut names = Vec::new();
    let mut seen: HashMap<String, u32> = HashMap::new();
    for (column, cell) in (1_u32..).zip(row) {
        let Ok(name) = std::str::from_utf8(cell) else {
            let problem = format!("header {column} is not UTF-8; convert the file to UTF-8");
            return Err(HeaderProblem::Text(problem));
        };
        let name = name.trim().to_owned();
        if name.is_empty() {
            let problem = format!("header {column} is empty; name every column");
            return Err(HeaderProblem::Text(problem));
        }
        if let Some(first) = seen.insert(name.clone(), column) {
            return Err(HeaderProblem::Twice(name, first, column));
        }
        names.push(name);
    }
    Ok(names)
}

fn decode_row(headers: &[String], row: &ByteRecord) -> Result<Map<String, Value>, String> {
    if row.len() != headers.len() {
        return Err(format!(
            "has {} cells, the header has {}",
            row.len(),
            headers.len()
        ));
    }
    let mut fields = Map::new();
    for (name, cell) in headers.iter().zip(row) {
        let text = std::str::from_utf8(cell)
            .map_err(|_| format!("cell {name:?} is not UTF-8; convert the file to UTF-8"))?;
        // CSV cannot say "missing" in another way than by an empty cell.
        let value = if text.is_empty() {
            Value::Null
        } else {
            Value::from(text)
        };
        fields.insert(name.clone(), value);
    }
    Ok(fields)
}

/// Line numbers of ascending offsets; the reader's own count knows only LF.
struct LineCounter<R> {
    reader: R,
    offset: u64,
    line: u64,
}

impl<R: BufRead> LineCounter<R> {
    /// The line on which the next cell at or after `offset` starts.
    fn advance(&mut self, offset: u64) -> io::Result<u64> {
        let mut after_return = false;
        while let Some(&byte) = self.reader.fill_buf()?.first() {
            // CR and LF of one line end count once.
            if after_return && byte != b'\n' {
                self.line += 1;
            }
            after_return = false;
            if self.offset >= offset && !matches!(byte, b'\n' | b'\r') {
                break;
            }
            match byte {
                b'\n' => self.line += 1,
                b'\r' => after_return = true,
                _ => {}
            }
            self.reader.consume(1);
            self.offset += 1;
        }
        Ok(self.line)
    }
}

/// Offset of a quote that opens a cell and is never closed.
fn open_quote(bytes: &dyn Bytes, start: u64, separator: u8) -> io::Result<Option<u64>> {
    let (mut opened, mut cell_start, mut doubled) = (None, true, false);
    let mut reader = Reading::new(bytes, start).buffered();
    let mut at = 0_u64;
    loop {
        let buffer = reader.fill_buf()?;
        if buffer.is_empty() {
            // A quote at the very end closes.
            return Ok(opened.filter(|_| !doubled));
        }
        for (offset, &byte) in (at..).zip(buffer) {
            if std::mem::take(&mut doubled) {
                if byte == b'"' {
                    continue;
                }
                opened = None;
                cell_start = false;
            }
            match (opened, byte) {
                (Some(_), b'"') => {
                    doubled = true;
                    continue;
                }
                (None, b'"') if cell_start => opened = Some(offset),
                _ => {}
            }
            cell_start = byte == separator || matches!(byte, b'\n' | b'\r');
        }
        let length = buffer.len();
        at += length as u64;
        reader.consume(length);
    }
}
