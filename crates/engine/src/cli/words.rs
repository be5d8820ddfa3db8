//! Words and layout that the pages of `explain` and `diff` share: lines of at most 100 columns.

use std::fmt::Write as _;

use operator::coverage::Counts;
use operator::fact::{Evidence, Status};
use operator::id::ContentHash;
use operator::infer::UnitUsage;
use serde_json::Value;

/// Columns of a page.
pub const COLUMNS: usize = 100;
/// Columns of the names at the left.
const NAME: usize = 13;
/// Digits of a hash that are shown; the whole one is in the JSON.
const DIGITS: usize = 12;

/// Appends a name and a text beside it; the text is cut into lines between words.
pub fn entry(out: &mut String, name: &str, text: &str) {
    indented(out, &format!("{name:<NAME$}"), NAME, text);
}

/// Appends an entry inside a section.
pub fn item(out: &mut String, name: &str, text: &str) {
    let name = format!("  {name:<width$} ", width = NAME - 3);
    // A longer name has a line of its own.
    if name.chars().count() > NAME {
        let _ = writeln!(out, "{}", name.trim_end());
        indented(out, &" ".repeat(NAME), NAME, text);
    } else {
        indented(out, &name, NAME, text);
    }
}

/// Appends a text after a beginning; further lines are indented. Control characters, which a record
/// can bring along, are replaced.
pub fn indented(out: &mut String, first: &str, indent: usize, text: &str) {
    let text = text.replace(char::is_control, " ");
    let mut line = first.to_owned();
    let mut used = first.chars().count();
    let mut empty = true;
    let words = text
        .split(' ')
        .flat_map(|word| pieces(word, COLUMNS - indent));
    for word in words {
        let length = word.chars().count();
        if !empty && used + 1 + length > COLUMNS {
            let _ = writeln!(out, "{}", line.trim_end());
            line = " ".repeat(indent);
            used = indent;
            empty = true;
        }
        if !empty {
            line.push(' ');
            used += 1;
        }
        line.push_str(&word);
        used += length;
        empty = false;
    }
    let _ = writeln!(out, "{}", line.trim_end());
}

/// Cuts a word that fits no line.
fn pieces(word: &str, most: usize) -> Vec<String> {
    let chars: Vec<char> = word.chars().collect();
    match chars.len() {
        0 => vec![String::new()],
        _ => chars
            .chunks(most)
            .map(|piece| piece.iter().collect())
            .collect(),
    }
}

/// A claim's value on one line, without JSON's quotes around names.
pub fn value(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(self::value).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(entries) => {
            let entries = entries.iter();
            let entries: Vec<String> = entries
                .map(|(name, value)| format!("{name}: {}", self::value(value)))
                .collect();
            format!("{{{}}}", entries.join(", "))
        }
        Value::Null => String::from("none"),
        other => other.to_string(),
    }
}

/// The first digits of a hash.
pub fn short(hash: &ContentHash) -> String {
    hash.to_string().chars().take(DIGITS).collect()
}

/// A share in parts per million as a decimal number, cut after four digits: never more than it is.
pub fn share(ppm: u32) -> String {
    let digits = format!("{:04}", ppm % 1_000_000 / 100);
    let kept = digits.trim_end_matches('0');
    format!("{}.{kept:0<2}", ppm / 1_000_000)
}

/// A time in milliseconds, from microseconds.
pub fn millis(micros: u64) -> String {
    format!("{}.{:03} ms", micros / 1_000, micros % 1_000)
}

/// What an answer cost.
pub fn cost(usage: &UnitUsage) -> String {
    format!(
        "{} prompt tokens ({} computed, {} reused), {}",
        usage.prompt_tokens,
        usage.computed_tokens,
        usage.cached_tokens,
        millis(usage.micros)
    )
}

/// How many units, and how many of them in which status.
pub fn coverage(counts: &Counts) -> String {
    let parts: Vec<String> = Status::ALL
        .into_iter()
        .filter(|status| counts.of(*status) > 0)
        .map(|status| format!("{} {}", counts.of(status), ended(status)))
        .collect();
    let units = number(counts.units, "unit");
    if parts.is_empty() {
        units
    } else {
        format!("{units}: {}", parts.join(", "))
    }
}

/// A status in words.
pub fn ended(status: Status) -> &'static str {
    match status {
        Status::NotRun => "not run",
        other => other.name(),
    }
}

/// A count with its noun.
pub fn number(count: u64, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        many => format!("{many} {noun}s"),
    }
}

/// Where bytes stand, and what they are; a redacted run shows their hash.
pub fn span(evidence: &Evidence, chars: usize) -> String {
    let line = evidence
        .line
        .map_or_else(String::new, |line| format!(", line {line}"));
    let place = format!(
        "{}, bytes {}..{}{line}",
        evidence.field, evidence.start, evidence.end
    );
    match &evidence.quote {
        Some(quote) => format!("{place}: \"{}\"", clip(quote, chars)),
        None => format!(
            "{place}: hidden (redacted), hash {}",
            short(&evidence.quote_hash)
        ),
    }
}

/// One line of at most so many characters, control characters replaced.
pub fn clip(text: &str, chars: usize) -> String {
    let mut out: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(chars)
        .collect();
    if text.chars().nth(chars).is_some() {
        out.push_str("...");
    }
    out
}

/// The first names of a list, and how many more there are.
pub fn list<T: std::fmt::Display>(names: &[T], shown: usize, total: u64) -> String {
    let text: Vec<String> = names.iter().take(shown).map(T::to_string).collect();
    let more = total.saturating_sub(text.len() as u64);
    match more {
        0 => text.join(", "),
        more => format!("{} and {more} more", text.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_cut_and_never_rounded_up() {
        for (ppm, text) in [
            (0, "0.00"),
            (70_000, "0.07"),
            (930_000, "0.93"),
            (999_999, "0.9999"),
            (500_010, "0.50"),
            (123_456, "0.1234"),
            (1_000_000, "1.00"),
        ] {
            assert_eq!(share(ppm), text);
        }
    }

    #[test]
    fn long_texts_are_cut_between_words_and_indented() {
        let mut page = String::new();
        entry(&mut page, "why", &"word ".repeat(40));
        let lines: Vec<&str> = page.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines.iter().all(|line| line.chars().count() <= COLUMNS));
        assert!(lines[1].starts_with("             word"));
        let mut page = String::new();
        entry(&mut page, "why", "red\u{1b}[31m\nnext");
        assert_eq!(page, "why          red [31m next\n");
        let mut page = String::new();
        entry(&mut page, "key", &"x".repeat(200));
        assert!(page.lines().all(|line| line.chars().count() <= COLUMNS));
        let mut page = String::new();
        item(&mut page, "a name that is too long", "text");
        assert_eq!(page, "  a name that is too long\n             text\n");
    }
}
