//! One JSON object per line; a broken line is one bad record, the rest goes on.

use super::Decoded;
use super::json::{parse_object, surrogate_warning};

pub(super) fn decode(content: &[u8]) -> Decoded {
    let mut decoded = Decoded::new();
    for (index, line) in (1_u64..).zip(content.split(|byte| *byte == b'\n')) {
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        let place = format!("line {index}");
        if std::str::from_utf8(line).is_err() {
            decoded.push_bad(place, "is not UTF-8".to_owned(), line);
            continue;
        }
        match parse_object(line) {
            Ok((fields, repairs)) => {
                let warnings = if repairs > 0 {
                    vec![surrogate_warning(repairs)]
                } else {
                    Vec::new()
                };
                decoded.push_good(place, fields, warnings);
            }
            Err(problem) => decoded.push_bad(place, problem, line),
        }
    }
    decoded
}
