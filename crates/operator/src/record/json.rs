//! A JSON array of objects, read element by element, and the repair of lone surrogate escapes shared
//! with JSON lines.
//!
//! What is wrong between elements is told in the words and at the places that the parser uses for
//! what is wrong within them.

use std::borrow::Cow;
use std::io::{self, BufRead, Read as _};

use serde_json::{Map, Value};

use super::bytes::{Piece, READ_BYTES, RECORD_BYTES_MAX, Reading};
use super::kind_of;
use super::scan::{Found, Scan, Span};
use super::sniff::first_character;
use crate::error::OperatorError;

/// Refuses what is not UTF-8 from end to end, and what is no array.
pub(super) fn check(scan: &Scan<'_>) -> Result<(), OperatorError> {
    let failed = |error| scan.unreadable(error);
    if let Some(offset) = invalid_utf8(scan).map_err(failed)? {
        let problem = "is not UTF-8 from here on; convert the file to UTF-8";
        return Err(scan.invalid(offset, problem));
    }
    match first_character(&*scan.bytes, scan.start).map_err(failed)? {
        Some((_, b'[')) => Ok(()),
        _ => Err(no_array(scan)),
    }
}

pub(super) fn scan(
    scan: &Scan<'_>,
    reading: Reading<'_>,
    found: &mut Found<'_, '_>,
) -> Result<(), OperatorError> {
    let mut elements = Elements {
        reader: reading.buffered(),
        at: 0,
        line: 1,
        line_start: 0,
        first: true,
    };
    let mut element = Piece::new(scan.record_bytes_max);
    for index in 1_u64.. {
        let begun = match elements.next(&mut element) {
            Ok(Some(begun)) => begun,
            Ok(None) => break,
            Err(Fault::Io(error)) => return Err(scan.unreadable(error)),
            Err(Fault::Syntax(problem)) => return Err(elements.broken(scan, problem)),
        };
        let place = format!("element {index}");
        if let Some(hash) = element.overlong() {
            found.overlong(place, hash)?;
            continue;
        }
        let text = &element.kept;
        match parse(text) {
            Ok((Value::Object(fields), repairs)) => {
                let span = Span::of(scan.start + begun.at, text.len());
                found.good(span, place, fields, repairs)?;
            }
            Ok((other, _)) => {
                let problem = format!("is {}, not an object", kind_of(&other));
                found.bad(place, problem, other.to_string().as_bytes())?;
            }
            Err(error) => {
                // A word or number that is cut short within the array is broken by what follows it.
                let next = elements.following();
                element.push(next.map_err(|error| scan.unreadable(error))?.as_slice());
                let error = parse(&element.kept).err().unwrap_or(error);
                return Err(begun.broken(scan, &error));
            }
        }
    }
    Ok(())
}

/// Parses one JSON object with lone surrogates repaired; the count of repairs comes with it.
pub(super) fn parse_object(text: &[u8]) -> Result<(Map<String, Value>, u64), String> {
    match parse(text) {
        Ok((Value::Object(fields), repairs)) => Ok((fields, repairs)),
        Ok((other, _)) => Err(format!("is {}, not an object", kind_of(&other))),
        Err(error) if error.is_eof() => Err(format!("is cut off at column {}", error.column())),
        Err(error) => Err(format!("is not valid JSON: {error}")),
    }
}

fn parse(text: &[u8]) -> Result<(Value, u64), serde_json::Error> {
    let (repaired, repairs) = repair_surrogates(text);
    Ok((serde_json::from_slice(&repaired)?, repairs))
}

/// Says what the input is instead of an array; read whole, for it is refused.
fn no_array(scan: &Scan<'_>) -> OperatorError {
    let mut content = Vec::new();
    let read = scan
        .reading()
        .take(RECORD_BYTES_MAX)
        .read_to_end(&mut content);
    if let Err(error) = read {
        return scan.unreadable(error);
    }
    let problem = match parse(&content) {
        Err(error) => {
            let start = Begun::default();
            return start.broken(scan, &error);
        }
        Ok((Value::Object(fields), _)) => {
            let lists: Vec<&str> = fields
                .iter()
                .filter(|(_, value)| value.is_array())
                .map(|(key, _)| key.as_str())
                .collect();
            format!(
                "is one JSON object, not an array of records; write the list inside it to a file \
                 of its own (lists in it: {})",
                if lists.is_empty() {
                    "none".to_owned()
                } else {
                    lists.join(", ")
                }
            )
        }
        Ok((other, _)) => format!("is {}, not an array of objects", kind_of(&other)),
    };
    scan.invalid(0, &problem)
}

/// Where an element begins.
#[derive(Debug, Clone, Copy)]
struct Begun {
    at: u64,
    line: u64,
    line_start: u64,
}

impl Default for Begun {
    fn default() -> Self {
        Self {
            at: 0,
            line: 1,
            line_start: 0,
        }
    }
}

impl Begun {
    /// The parser's error within an element, as one of the whole input.
    fn broken(&self, scan: &Scan<'_>, error: &serde_json::Error) -> OperatorError {
        let (line, column) = (error.line() as u64, error.column() as u64);
        let placed = error.to_string();
        let bare = placed
            .strip_suffix(&format!(" at line {line} column {column}"))
            .unwrap_or(&placed);
        let column = match line {
            1 => column + self.at - self.line_start,
            _ => column,
        };
        broken_at(scan, bare, error.is_eof(), self.line + line - 1, column)
    }
}

fn broken_at(scan: &Scan<'_>, bare: &str, eof: bool, line: u64, column: u64) -> OperatorError {
    let error = format!("{bare} at line {line} column {column}");
    let problem = if eof {
        format!("the JSON ends too early ({error}); the file was cut off, fetch it again")
    } else {
        format!("is not valid JSON ({error}); for one object per line use format = \"jsonl\"")
    };
    OperatorError::SourceInvalid {
        path: scan.path.clone(),
        line,
        column,
        problem,
    }
}

enum Fault {
    Io(io::Error),
    Syntax(&'static str),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// The elements of an array as they stand in the text; offsets are from its start.
struct Elements<R> {
    reader: R,
    at: u64,
    line: u64,
    line_start: u64,
    first: bool,
}

impl<R: BufRead> Elements<R> {
    /// Puts the next element's text into `element`; none after the last, when nothing follows it.
    fn next(&mut self, element: &mut Piece) -> Result<Option<Begun>, Fault> {
        element.clear();
        if self.first {
            if self.peek()? != Some(b'[') {
                return Err(Fault::Syntax("expected value"));
            }
            self.take();
        }
        let next = match (self.peek()?, self.first) {
            (None, _) => return Err(Fault::Syntax("EOF while parsing a list")),
            (Some(b']'), _) => None,
            (Some(first), true) => Some(first),
            (Some(b','), false) => {
                self.take();
                match self.peek()? {
                    Some(b']') => return Err(Fault::Syntax("trailing comma")),
                    Some(first) => Some(first),
                    None => return Err(Fault::Syntax("EOF while parsing a value")),
                }
            }
            (Some(_), false) => return Err(Fault::Syntax("expected `,` or `]`")),
        };
        self.first = false;
        let Some(first) = next else {
            self.take();
            return match self.peek()? {
                None => Ok(None),
                Some(_) => Err(Fault::Syntax("trailing characters")),
            };
        };
        let begun = Begun {
            at: self.at,
            line: self.line,
            line_start: self.line_start,
        };
        self.copy(first, element)?;
        Ok(Some(begun))
    }

    /// Copies a value; one that goes wrong ends there, and is refused by the parser.
    fn copy(&mut self, first: u8, element: &mut Piece) -> io::Result<()> {
        let mut open = Vec::new();
        let (mut in_text, mut escaped) = (false, false);
        let bare = !matches!(first, b'{' | b'[' | b'"');
        loop {
            let buffer = self.reader.fill_buf()?;
            if buffer.is_empty() {
                return Ok(());
            }
            let (mut length, mut done) = (buffer.len(), false);
            for (index, &byte) in buffer.iter().enumerate() {
                let mut ends = false;
                if in_text {
                    match byte {
                        _ if escaped => escaped = false,
                        b'\\' => escaped = true,
                        b'"' => {
                            in_text = false;
                            ends = open.is_empty();
                        }
                        0..0x20 => ends = true,
                        _ => {}
                    }
                } else if bare {
                    if matches!(byte, b',' | b']' | b'}') || byte.is_ascii_whitespace() {
                        // What ends a bare value is no part of it, unless it is all there is.
                        let none = element.length == 0 && index == 0;
                        (length, done) = (index + usize::from(none), true);
                        break;
                    }
                } else {
                    match byte {
                        b'"' => in_text = true,
                        b'{' => open.push(b'}'),
                        b'[' => open.push(b']'),
                        b'}' | b']' => ends = open.pop() != Some(byte) || open.is_empty(),
                        b'\n' => {
                            self.line += 1;
                            self.line_start = self.at + index as u64 + 1;
                        }
                        _ => {}
                    }
                }
                if ends {
                    (length, done) = (index + 1, true);
                    break;
                }
            }
            element.push(&buffer[..length]);
            self.reader.consume(length);
            self.at += length as u64;
            if done {
                return Ok(());
            }
        }
    }

    /// The next byte that is no white space.
    fn peek(&mut self) -> io::Result<Option<u8>> {
        loop {
            let buffer = self.reader.fill_buf()?;
            let Some(&byte) = buffer.first() else {
                return Ok(None);
            };
            if !matches!(byte, b' ' | b'\t' | b'\r' | b'\n') {
                return Ok(Some(byte));
            }
            self.take();
            if byte == b'\n' {
                self.line += 1;
                self.line_start = self.at;
            }
        }
    }

    /// The next byte, whatever it is.
    fn following(&mut self) -> io::Result<Option<u8>> {
        Ok(self.reader.fill_buf()?.first().copied())
    }

    /// Goes past the byte that was peeked at.
    fn take(&mut self) {
        self.reader.consume(1);
        self.at += 1;
    }

    /// What is wrong at the next byte.
    fn broken(&mut self, scan: &Scan<'_>, problem: &str) -> OperatorError {
        let eof = problem.starts_with("EOF");
        let column = self.at - self.line_start + u64::from(!eof);
        broken_at(scan, problem, eof, self.line, column)
    }
}

/// Offset of the first byte that is not UTF-8.
fn invalid_utf8(scan: &Scan<'_>) -> io::Result<Option<u64>> {
    let mut reader = scan.reading();
    let (mut buffer, mut held, mut at) = (vec![0; READ_BYTES], 0, 0_u64);
    loop {
        let read = reader.read(&mut buffer[held..])?;
        let filled = held + read;
        match std::str::from_utf8(&buffer[..filled]) {
            Ok(_) => (at, held) = (at + filled as u64, 0),
            Err(error) => {
                let valid = error.valid_up_to();
                if error.error_len().is_some() || read == 0 {
                    return Ok(Some(at + valid as u64));
                }
                // A character that the buffer's end cut.
                buffer.copy_within(valid..filled, 0);
                (at, held) = (at + valid as u64, filled - valid);
            }
        }
        if read == 0 {
            return Ok(None);
        }
    }
}

/// Replaces each `\uD800`-`\uDFFF` escape without its partner by `\uFFFD`, and counts them.
///
/// The replacement has the same length, so lines and columns of later errors stay true.
fn repair_surrogates(content: &[u8]) -> (Cow<'_, [u8]>, u64) {
    let mut repaired: Option<Vec<u8>> = None;
    let (mut repairs, mut in_text, mut at) = (0, false, 0);
    while let Some(&byte) = content.get(at) {
        match (in_text, byte) {
            (_, b'"') => in_text = !in_text,
            (true, b'\\') => {
                match escape(content, at) {
                    Some(0xd800..=0xdbff)
                        if matches!(escape(content, at + 6), Some(0xdc00..=0xdfff)) =>
                    {
                        at += 12;
                        continue;
                    }
                    Some(0xd800..=0xdfff) => {
                        let copy = repaired.get_or_insert_with(|| content.to_vec());
                        copy[at + 2..at + 6].copy_from_slice(b"FFFD");
                        repairs += 1;
                    }
                    _ => {}
                }
                // Two bytes suffice: the hex digits of an escape are ordinary text.
                at += 1;
            }
            _ => {}
        }
        at += 1;
    }
    (repaired.map_or(Cow::Borrowed(content), Cow::Owned), repairs)
}

/// The code unit of a `\uXXXX` escape at an offset.
fn escape(content: &[u8], at: usize) -> Option<u32> {
    let digits = content.get(at..at + 6)?.strip_prefix(b"\\u")?;
    digits.iter().try_fold(0, |unit, digit| {
        Some(unit * 16 + char::from(*digit).to_digit(16)?)
    })
}
