//! One JSON object per line; a broken line is one bad record, the rest goes on.

use super::bytes::{Piece, Reading};
use super::json::parse_object;
use super::scan::{Found, Scan, Span};
use crate::error::OperatorError;

pub(super) fn scan(
    scan: &Scan<'_>,
    reading: Reading<'_>,
    found: &mut Found<'_, '_>,
) -> Result<(), OperatorError> {
    let mut reader = reading.buffered();
    let (mut line, mut at) = (Piece::new(scan.record_bytes_max), scan.start);
    for number in 1_u64.. {
        line.clear();
        if !line
            .push_line(&mut reader)
            .map_err(|error| scan.unreadable(error))?
        {
            break;
        }
        let start = at;
        at += line.length;
        let place = format!("line {number}");
        if let Some(hash) = line.overlong() {
            found.overlong(place, hash)?;
            continue;
        }
        let before = line.kept.len() - line.kept.trim_ascii_start().len();
        let text = line.kept.trim_ascii();
        if text.is_empty() {
            continue;
        }
        let span = Span::of(start + before as u64, text.len());
        if std::str::from_utf8(text).is_err() {
            found.bad(place, "is not UTF-8".to_owned(), text)?;
            continue;
        }
        match parse_object(text) {
            Ok((fields, repairs)) => found.good(span, place, fields, repairs)?,
            Err(problem) => found.bad(place, problem, text)?,
        }
    }
    Ok(())
}
