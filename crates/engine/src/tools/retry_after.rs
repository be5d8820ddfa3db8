//! The `Retry-After` header: seconds, or a date.

use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;

/// Milliseconds that a header asks to wait, from a moment on; a date that is past asks for none.
pub(super) fn parse(header: &str, now: Timestamp) -> Option<u64> {
    let header = header.trim();
    if let Ok(seconds) = header.parse::<u64>() {
        return Some(seconds.saturating_mul(1_000));
    }
    let date = DateTimeParser::new().parse_timestamp(header).ok()?;
    let wait = date.as_millisecond().saturating_sub(now.as_millisecond());
    Some(u64::try_from(wait).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_dates_are_read_and_anything_else_is_not() {
        let now: Timestamp = "1994-11-06T08:49:00Z".parse().unwrap();
        assert_eq!(parse("120", now), Some(120_000));
        assert_eq!(parse(" 0 ", now), Some(0));
        assert_eq!(parse("Sun, 06 Nov 1994 08:49:37 GMT", now), Some(37_000));
        assert_eq!(parse("Sun, 06 Nov 1994 08:48:37 GMT", now), Some(0));
        for text in ["", "soon", "-5", "1.5"] {
            assert_eq!(parse(text, now), None, "{text}");
        }
    }
}
