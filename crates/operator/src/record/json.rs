//! A JSON array of objects, and the repair of lone surrogate escapes shared with JSON lines.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{Decoded, invalid, kind_of};
use crate::error::OperatorError;

/// The warning that a repaired record carries.
pub(super) fn surrogate_warning(count: u64) -> String {
    format!("{count} lone surrogate escape(s) replaced by U+FFFD")
}

pub(super) fn decode(path: &str, content: &[u8]) -> Result<Decoded, OperatorError> {
    if let Err(error) = std::str::from_utf8(content) {
        let problem = "is not UTF-8 from here on; convert the file to UTF-8";
        return Err(invalid(path, content, error.valid_up_to(), problem));
    }
    let (repaired, repairs) = repair_surrogates(content);
    let value: Value = serde_json::from_slice(&repaired).map_err(|error| {
        let problem = if error.is_eof() {
            format!("the JSON ends too early ({error}); the file was cut off, fetch it again")
        } else {
            format!("is not valid JSON ({error}); for one object per line use format = \"jsonl\"")
        };
        OperatorError::SourceInvalid {
            path: path.to_owned(),
            line: error.line() as u64,
            column: error.column() as u64,
            problem,
        }
    })?;
    let items = match value {
        Value::Array(items) => items,
        Value::Object(fields) => {
            let lists: Vec<&str> = fields
                .iter()
                .filter(|(_, value)| value.is_array())
                .map(|(key, _)| key.as_str())
                .collect();
            let problem = format!(
                "is one JSON object, not an array of records; write the list inside it to a file \
                 of its own (lists in it: {})",
                if lists.is_empty() {
                    "none".to_owned()
                } else {
                    lists.join(", ")
                }
            );
            return Err(invalid(path, content, 0, &problem));
        }
        other => {
            let problem = format!("is {}, not an array of objects", kind_of(&other));
            return Err(invalid(path, content, 0, &problem));
        }
    };
    let mut decoded = Decoded::new();
    for (index, item) in (0_u64..).zip(items) {
        let place = format!("element {}", index + 1);
        match item {
            Value::Object(fields) => {
                let count = repairs.get(&index).copied().unwrap_or(0);
                let warnings = if count > 0 {
                    vec![surrogate_warning(count)]
                } else {
                    Vec::new()
                };
                decoded.push_good(place, fields, warnings);
            }
            other => {
                let problem = format!("is {}, not an object", kind_of(&other));
                decoded.push_bad(place, problem, other.to_string().as_bytes());
            }
        }
    }
    Ok(decoded)
}

/// Parses one JSON object with lone surrogates repaired; the count of repairs comes with it.
pub(super) fn parse_object(text: &[u8]) -> Result<(Map<String, Value>, u64), String> {
    let (repaired, repairs) = repair_surrogates(text);
    match serde_json::from_slice(&repaired) {
        Ok(Value::Object(fields)) => Ok((fields, repairs.values().sum())),
        Ok(other) => Err(format!("is {}, not an object", kind_of(&other))),
        Err(error) if error.is_eof() => Err(format!("is cut off at column {}", error.column())),
        Err(error) => Err(format!("is not valid JSON: {error}")),
    }
}

/// Replaces each `\uD800`-`\uDFFF` escape without its partner by `\uFFFD`.
///
/// The replacement has the same length, so lines and columns of later errors stay true. The counts
/// are keyed by the element of the outermost array that they are in.
fn repair_surrogates(content: &[u8]) -> (Cow<'_, [u8]>, BTreeMap<u64, u64>) {
    let mut repaired: Option<Vec<u8>> = None;
    let mut repairs = BTreeMap::new();
    let (mut depth, mut element, mut in_text, mut at) = (0_u64, 0_u64, false, 0);
    while let Some(&byte) = content.get(at) {
        if !in_text {
            match byte {
                b'"' => in_text = true,
                b'[' | b'{' => depth += 1,
                b']' | b'}' => depth = depth.saturating_sub(1),
                b',' if depth == 1 => element += 1,
                _ => {}
            }
            at += 1;
            continue;
        }
        match byte {
            b'"' => in_text = false,
            b'\\' => {
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
                        *repairs.entry(element).or_insert(0) += 1;
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
