//! Which format an input has, from its first characters; for an object, from whether one line holds
//! it all.

use std::io::{self, Read as _};

use serde::de::IgnoredAny;

use super::bytes::{Bytes, Piece, RECORD_BYTES_MAX, Reading, read_span};
use super::json::parse_object;
use super::scan::unreadable;
use super::{Format, csv};
use crate::error::OperatorError;

/// Bytes of a first line that are looked at for a delimiter.
const HEADER_BYTES: u64 = 64 << 10;

/// Finds the format of what begins at `start`.
pub(super) fn sniff(path: &str, bytes: &dyn Bytes, start: u64) -> Result<Format, OperatorError> {
    let failed = |error| unreadable(path, error);
    let Some((at, first)) = first_character(bytes, start).map_err(failed)? else {
        return Err(OperatorError::SourceEmpty {
            path: path.to_owned(),
            format: "any format".to_owned(),
        });
    };
    match first {
        b'[' => return Ok(Format::Json),
        b'{' => {
            let lines = holds_lines(bytes, at).map_err(failed)?;
            return Ok(if lines { Format::Jsonl } else { Format::Json });
        }
        _ => {}
    }
    let head = read_span(bytes, at, HEADER_BYTES).map_err(failed)?;
    let header = head
        .split(|byte| matches!(byte, b'\n' | b'\r'))
        .next()
        .unwrap_or(&head);
    if first != b'<' && csv::delimiter(header).is_some() {
        return Ok(Format::Csv);
    }
    let starts_with = String::from_utf8_lossy(header).chars().take(24).collect();
    Err(OperatorError::SourceUnrecognised {
        path: path.to_owned(),
        starts_with,
    })
}

/// Place and value of the first byte that is no white space.
pub(super) fn first_character(bytes: &dyn Bytes, start: u64) -> io::Result<Option<(u64, u8)>> {
    for (at, byte) in (start..).zip(Reading::new(bytes, start).buffered().bytes()) {
        let byte = byte?;
        if !byte.is_ascii_whitespace() {
            return Ok(Some((at, byte)));
        }
    }
    Ok(None)
}

/// Whether what begins with an object is one object per line.
fn holds_lines(bytes: &dyn Bytes, start: u64) -> io::Result<bool> {
    let mut reader = Reading::new(bytes, start).buffered();
    let mut line = Piece::new(RECORD_BYTES_MAX);
    line.push_line(&mut reader)?;
    if parse_object(&line.kept).is_ok() {
        return Ok(true);
    }
    let rest = start + line.length;
    let whole = serde_json::from_reader::<_, IgnoredAny>(Reading::new(bytes, start).buffered());
    if whole.is_ok() {
        return Ok(line.length <= RECORD_BYTES_MAX && first_character(bytes, rest)?.is_none());
    }
    loop {
        line.clear();
        if !line.push_line(&mut reader)? {
            return Ok(false);
        }
        if parse_object(&line.kept).is_ok() {
            return Ok(true);
        }
    }
}
