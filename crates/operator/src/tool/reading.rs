//! What stages read of an observation: its text, or the named fields of its JSON, in pieces.
//!
//! The same bytes give the same text. Must not know units, stages or models.

use std::ops::Range;

use serde_json::{Map, Value};

use super::ToolError;
use crate::text::text_at;

/// Cuts a text that begins at an offset into pieces, where it can of at most so many characters.
type Cut = fn(&str, usize, usize) -> Vec<Range<usize>>;

/// The text of an observation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reading {
    /// All of it.
    pub text: String,
    /// Its pieces, in order, as byte ranges of the text: the items of a JSON list, else paragraphs.
    /// What lies between them is white space.
    pub pieces: Vec<Range<usize>>,
}

impl Reading {
    /// Reads an observation's bytes; `fields` are paths in each of its JSON objects, and where there
    /// are none the bytes are taken as they are.
    ///
    /// The values of an object's fields are joined by `": "`, and objects stand on lines of their own.
    /// Objects without any of the fields are left out. No bytes at all are no text, whatever was named.
    ///
    /// # Errors
    /// `Malformed` where the bytes are no text, or no JSON of objects where fields are named.
    pub fn of(body: &[u8], fields: &[String]) -> Result<Self, ToolError> {
        let text = std::str::from_utf8(body)
            .map_err(|_| ToolError::Malformed("the reply is not UTF-8 text".to_owned()))?;
        if body.is_empty() {
            return Ok(Self::default());
        }
        if fields.is_empty() {
            let pieces = paragraphs(text, 0);
            let text = text.to_owned();
            return Ok(Self { text, pieces });
        }
        let mut reading = Self::default();
        for object in objects(text)? {
            reading.push(&object, fields)?;
        }
        Ok(reading)
    }

    fn push(&mut self, object: &Map<String, Value>, fields: &[String]) -> Result<(), ToolError> {
        let mut values = Vec::new();
        for field in fields {
            let value = text_at(object, field);
            let value = value.map_err(|error| ToolError::Malformed(error.to_string()))?;
            values.extend(value.filter(|value| !value.trim().is_empty()));
        }
        if values.is_empty() {
            return Ok(());
        }
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        let start = self.text.len();
        for (place, value) in values.iter().enumerate() {
            if place > 0 {
                self.text.push_str(": ");
            }
            self.text.push_str(value.trim());
        }
        self.pieces.push(start..self.text.len());
        Ok(())
    }

    /// Cuts the pieces until none is longer than `chars_max`: into paragraphs, those into lines, and
    /// those at white space or, without any, at the limit.
    ///
    /// # Errors
    /// `Refused`, naming the limit, where there are more than `parts_max`
    /// parts or more than `depth_max` cuts would be needed.
    pub fn split(
        &self,
        chars_max: usize,
        parts_max: usize,
        depth_max: u32,
    ) -> Result<Vec<Range<usize>>, ToolError> {
        let mut parts = self.pieces.clone();
        let cuts: [Cut; 3] = [
            |text, start, _| paragraphs(text, start),
            |text, start, _| lines(text, start),
            words,
        ];
        let is_long = |part: &Range<usize>| self.text[part.clone()].chars().count() > chars_max;
        let mut depth = 1;
        for cut in cuts {
            if !parts.iter().any(is_long) {
                break;
            }
            let cut_up: Vec<Range<usize>> = parts
                .iter()
                .flat_map(|part| match is_long(part) {
                    true => cut(&self.text[part.clone()], part.start, chars_max),
                    false => vec![part.clone()],
                })
                .collect();
            // Text of one paragraph is not cut by looking for more of them.
            depth += u32::from(cut_up != parts);
            parts = cut_up;
            if depth > depth_max {
                return Err(ToolError::Refused(format!(
                    "a part of the reply has more than {chars_max} characters after {depth_max} cuts; \
                     raise part_chars or depth_max"
                )));
            }
        }
        if parts.len() > parts_max {
            return Err(ToolError::Refused(format!(
                "the reply falls into {} parts, parts_max is {parts_max}",
                parts.len()
            )));
        }
        Ok(parts)
    }
}

/// The objects of a JSON value: itself, or all in its list, or one a line.
fn objects(text: &str) -> Result<Vec<Map<String, Value>>, ToolError> {
    let object = |value: Value| match value {
        Value::Object(object) => Ok(object),
        _ => Err(ToolError::Malformed(
            "the reply's JSON holds something else than objects, and the stage names fields"
                .to_owned(),
        )),
    };
    let malformed = |error: serde_json::Error| {
        ToolError::Malformed(format!(
            "the stage names fields, and the reply is no JSON: {error}"
        ))
    };
    match serde_json::from_str::<Value>(text) {
        Ok(Value::Array(items)) => items.into_iter().map(object).collect(),
        Ok(value) => Ok(vec![object(value)?]),
        Err(error) => {
            let lines: Vec<&str> = text
                .lines()
                .filter(|line| !line.trim().is_empty())
                .collect();
            if lines.len() < 2 {
                return match lines.is_empty() {
                    true => Ok(Vec::new()),
                    false => Err(malformed(error)),
                };
            }
            let parse = |line: &str| serde_json::from_str(line).map_err(malformed);
            lines.into_iter().map(|line| object(parse(line)?)).collect()
        }
    }
}

/// Paragraphs: what blank lines divide.
fn paragraphs(text: &str, offset: usize) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    let mut goes_on = false;
    for line in lines_with_blanks(text, offset) {
        let Some(line) = line else {
            goes_on = false;
            continue;
        };
        match found.last_mut() {
            Some(last) if goes_on => last.end = line.end,
            _ => found.push(line),
        }
        goes_on = true;
    }
    found
}

fn lines(text: &str, offset: usize) -> Vec<Range<usize>> {
    lines_with_blanks(text, offset).flatten().collect()
}

/// The trimmed range of every line; none of a blank one.
fn lines_with_blanks(text: &str, offset: usize) -> impl Iterator<Item = Option<Range<usize>>> {
    let mut start = offset;
    text.split_inclusive('\n').map(move |line| {
        let from = start + line.len() - line.trim_start().len();
        let length = line.trim().len();
        start += line.len();
        (length > 0).then_some(from..from + length)
    })
}

/// Pieces of at most so many characters, cut at white space where there is some.
fn words(text: &str, offset: usize, chars_max: usize) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut rest = text;
    let mut at = offset;
    while !rest.is_empty() {
        let limit = rest
            .char_indices()
            .nth(chars_max)
            .map_or(rest.len(), |(byte, _)| byte);
        let whole = rest[limit..].chars().next().is_none_or(char::is_whitespace);
        let cut = match rest[..limit].rfind(char::is_whitespace) {
            Some(space) if !whole && space > 0 => space,
            _ => limit,
        };
        let piece = rest[..cut].trim_end();
        if !piece.is_empty() {
            found.push(at..at + piece.len());
        }
        let next = rest[cut..].trim_start();
        at += rest.len() - next.len();
        rest = next;
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(body: &str, fields: &[&str]) -> Result<Reading, ToolError> {
        let fields: Vec<String> = fields.iter().map(|&field| field.to_owned()).collect();
        Reading::of(body.as_bytes(), &fields)
    }

    fn pieces(reading: &Reading) -> Vec<&str> {
        let pieces = reading.pieces.iter();
        pieces.map(|piece| &reading.text[piece.clone()]).collect()
    }

    #[test]
    fn named_fields_are_read_from_a_list_an_object_and_lines_of_json() {
        let list =
            r#"[{"user":{"login":"ann"},"body":" first "},{"body":""},{"body":"second\nline"}]"#;
        let reading = read(list, &["user.login", "body"]).unwrap();
        assert_eq!(reading.text, "ann: first\nsecond\nline");
        assert_eq!(pieces(&reading), ["ann: first", "second\nline"]);
        assert_eq!(read(r#"{"body":"one"}"#, &["body"]).unwrap().text, "one");
        let lines = "{\"body\":\"one\"}\n\n{\"body\":\"two\"}\n";
        assert_eq!(pieces(&read(lines, &["body"]).unwrap()), ["one", "two"]);
        assert_eq!(read("", &["body"]).unwrap(), Reading::default());
        assert_eq!(read("[]", &["body"]).unwrap(), Reading::default());
    }

    #[test]
    fn what_is_not_of_the_named_shape_is_malformed() {
        for (body, part) in [
            ("no JSON", "no JSON"),
            ("[1]", "something else than objects"),
            (r#"[{"body":{"a":1}}]"#, "text"),
            ("{\"body\":\"one\"}\n{", "no JSON"),
        ] {
            let error = read(body, &["body"]).unwrap_err();
            assert_eq!(error.as_str(), "malformed", "{body}");
            assert!(error.to_string().contains(part), "{body}: {error}");
        }
        let error = Reading::of(&[0xff], &[]).unwrap_err();
        assert!(error.to_string().contains("UTF-8"), "{error}");
    }

    #[test]
    fn plain_text_falls_into_paragraphs_lines_and_words_as_far_as_it_must() {
        let reading = read("one two\nthree\n\n\n four five six \n", &[]).unwrap();
        assert_eq!(pieces(&reading), ["one two\nthree", "four five six"]);
        let cut = |chars, depth| {
            let parts = reading.split(chars, 10, depth);
            let text = |parts: Vec<Range<usize>>| -> Vec<String> {
                let parts = parts.into_iter();
                parts.map(|part| reading.text[part].to_owned()).collect()
            };
            parts.map(text)
        };
        assert_eq!(cut(13, 1).unwrap(), ["one two\nthree", "four five six"]);
        let words = ["one two", "three", "four five", "six"];
        assert_eq!(cut(9, 3).unwrap(), words);
        let deep = cut(9, 2).unwrap_err().to_string();
        assert!(deep.contains("depth_max"), "{deep}");
        let many = reading.split(9, 3, 3).unwrap_err().to_string();
        assert!(many.contains("4 parts, parts_max is 3"), "{many}");
    }

    proptest! {
        #[test]
        fn parts_are_in_order_short_and_leave_out_nothing_but_white_space(
            text in "[a-c \n\u{e4}\u{1f600}]{0,200}",
            chars in 1_usize..20,
        ) {
            let reading = read(&text, &[]).unwrap();
            let parts = reading.split(chars, usize::MAX, 4).unwrap();
            let mut end = 0;
            for part in &parts {
                prop_assert!(reading.text[end..part.start].trim().is_empty());
                let count = reading.text[part.clone()].chars().count();
                prop_assert!(0 < count && count <= chars);
                end = part.end;
            }
            prop_assert!(reading.text[end..].trim().is_empty());
        }
    }
}
