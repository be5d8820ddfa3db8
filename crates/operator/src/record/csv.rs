//! Delimited text with a header row; comma, semicolon or tab.
//!
//! LF, CRLF and bare CR all end a row. A row with another number of cells than the header is one
//! bad record, never shifted columns. A quote that is never closed would swallow the rest of the
//! file, so it is an error with its place.

use std::collections::HashMap;

use csv::{ByteRecord, ReaderBuilder};
use serde_json::{Map, Value};

use super::{Decoded, invalid};
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

pub(super) fn decode(path: &str, content: &[u8]) -> Result<Decoded, OperatorError> {
    let first = content
        .split(|byte| matches!(byte, b'\n' | b'\r'))
        .find(|line| !line.is_empty());
    let separator = first.and_then(delimiter).unwrap_or(b',');
    if let Some(offset) = open_quote(content, separator) {
        let problem =
            "the quoted cell that opens here is never closed; close it or double the quote";
        return Err(invalid(path, content, offset, problem));
    }
    let mut reader = ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .delimiter(separator)
        .from_reader(content);
    let mut row = ByteRecord::new();
    let mut lines = LineCounter {
        content,
        offset: 0,
        line: 1,
    };
    let mut headers: Option<Vec<String>> = None;
    let mut decoded = Decoded::new();
    let mut rows = 0_u64;
    loop {
        let start = usize::try_from(reader.position().byte()).unwrap_or(content.len());
        match reader.read_byte_record(&mut row) {
            Ok(false) => break,
            Ok(true) => {}
            Err(error) => return Err(invalid(path, content, start, &error.to_string())),
        }
        let end = usize::try_from(reader.position().byte()).unwrap_or(content.len());
        let Some(headers) = &headers else {
            headers = Some(header_names(path, content, &row)?);
            continue;
        };
        rows += 1;
        let place = format!("row {rows} (line {})", lines.advance(start));
        match decode_row(headers, &row) {
            Ok(fields) => decoded.push_good(place, fields, Vec::new()),
            Err(problem) => decoded.push_bad(place, problem, &content[start..end]),
        }
    }
    Ok(decoded)
}

fn header_names(
    path: &str,
    content: &[u8],
    row: &ByteRecord,
) -> Result<Vec<String>, OperatorError> {
    let mut names = Vec::new();
    let mut seen: HashMap<String, u32> = HashMap::new();
    for (column, cell) in (1_u32..).zip(row) {
        let Ok(name) = std::str::from_utf8(cell) else {
            let problem = format!("header {column} is not UTF-8; convert the file to UTF-8");
            return Err(invalid(path, content, 0, &problem));
        };
        let name = name.trim().to_owned();
        if name.is_empty() {
            let problem = format!("header {column} is empty; name every column");
            return Err(invalid(path, content, 0, &problem));
        }
        if let Some(first) = seen.insert(name.clone(), column) {
            return Err(OperatorError::DuplicateColumn {
                path: path.to_owned(),
                name,
                first,
                second: column,
            });
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
struct LineCounter<'a> {
    content: &'a [u8],
    offset: usize,
    line: u64,
}

impl LineCounter<'_> {
    /// The line on which the next cell at or after `offset` starts.
    fn advance(&mut self, offset: usize) -> u64 {
        while let Some(&byte) = self.content.get(self.offset) {
            if self.offset >= offset && !matches!(byte, b'\n' | b'\r') {
                break;
            }
            let crlf = byte == b'\r' && self.content.get(self.offset + 1) == Some(&b'\n');
            if matches!(byte, b'\n' | b'\r') && !crlf {
                self.line += 1;
            }
            self.offset += 1;
        }
        self.line
    }
}

/// Offset of a quote that opens a cell and is never closed.
fn open_quote(content: &[u8], separator: u8) -> Option<usize> {
    let (mut opened, mut cell_start, mut at) = (None, true, 0);
    while let Some(&byte) = content.get(at) {
        match (opened, byte) {
            (Some(_), b'"') if content.get(at + 1) == Some(&b'"') => at += 1,
            (Some(_), b'"') => opened = None,
            (None, b'"') if cell_start => opened = Some(at),
            _ => {}
        }
        cell_start = byte == separator || matches!(byte, b'\n' | b'\r');
        at += 1;
    }
    opened
}
