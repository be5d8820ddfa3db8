//! Dates as issue trackers write them, read into one instant.
//!
//! A date without an offset is UTC; a date without a time is its midnight.

use jiff::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::fmt::strtime;
use jiff::tz::TimeZone;

/// The forms that are read, for messages.
pub(crate) const FORMS: &str = "an RFC 3339 date-time, \"2026-03-01\", \
     \"2011/09/26 23:42:56 +0100\" or \"30/Sep/21 17:20\"";

/// Reads a date in any of the known forms.
pub(crate) fn parse(text: &str) -> Option<Timestamp> {
    let text = text.trim();
    if let Ok(instant) = text.parse::<Timestamp>() {
        return Some(instant);
    }
    if let Ok(tracker) = strtime::parse("%Y/%m/%d %H:%M:%S %z", text) {
        return tracker.to_timestamp().ok();
    }
    let civil = match text.parse::<Date>() {
        Ok(date) if text.len() == 10 => date.to_datetime(jiff::civil::Time::midnight()),
        _ => text.parse::<DateTime>().ok().or_else(|| {
            strtime::parse("%d/%b/%y %H:%M", text)
                .ok()
                .and_then(|parsed| parsed.to_datetime().ok())
        })?,
    };
    civil
        .to_zoned(TimeZone::UTC)
        .ok()
        .map(|zoned| zoned.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_the_same_instant() {
        let expected = "2011-09-26T22:42:56Z".parse::<Timestamp>().unwrap();
        for text in [
            "2011-09-26T22:42:56Z",
            "2011-09-27T00:42:56+02:00",
            "2011/09/26 23:42:56 +0100",
            "2011-09-26T22:42:56",
            " 2011-09-26 22:42:56 ",
        ] {
            assert_eq!(parse(text), Some(expected), "{text}");
        }
        assert_eq!(
            parse("30/Sep/21 17:20"),
            "2021-09-30T17:20:00Z".parse().ok()
        );
        assert_eq!(parse("2026-03-01"), "2026-03-01T00:00:00Z".parse().ok());
    }

    #[test]
    fn other_text_is_no_date() {
        for text in [
            "",
            "yesterday",
            "2026-13-01",
            "2026-02-30",
            "12",
            "30/Foo/21 17:20",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
