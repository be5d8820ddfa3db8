//! Which records a record names: ids in a field, and ids that a pattern finds in texts.
//!
//! Only ids that some record has count; a number that happens to stand in a text links nothing. Must
//! not know what a link means.

use regex::Regex;
use serde_json::Value;

use crate::predicate;
use crate::record::Record;
use crate::text::field_text;

/// Ids that a record names, as they are written, each once, in order.
pub(super) fn named(
    record: &Record,
    field: Option<&str>,
    pattern: Option<(&Regex, &[String])>,
) -> Vec<String> {
    let mut ids = Vec::new();
    let mut add = |id: &str| {
        let id = id.trim();
        if !id.is_empty() && !ids.iter().any(|known| known == id) {
            ids.push(id.to_owned());
        }
    };
    // A field of another shape names nobody; what its shape means for the plan is told elsewhere.
    let leaves = field.map(|field| predicate::leaves(&record.fields, field).unwrap_or_default());
    for leaf in leaves.into_iter().flatten() {
        match leaf {
            Value::String(text) => text.split([',', ';', ' ', '\t', '\n']).for_each(&mut add),
            Value::Number(number) => add(&number.to_string()),
            _ => {}
        }
    }
    if let Some((pattern, fields)) = pattern {
        for field in fields {
            let text = field_text(record, field).ok().flatten().unwrap_or_default();
            for found in pattern.captures_iter(&text) {
                if let Some(id) = found.get(1) {
                    add(id.as_str());
                }
            }
        }
    }
    ids
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn record(fields: Value) -> Record {
        let bytes = serde_json::to_vec(&json!([fields])).unwrap();
        let (_, mut records, _) = crate::record::read_bytes("x", &bytes, None).unwrap();
        records.remove(0)
    }

    #[test]
    fn ids_are_found_in_texts_by_pattern_and_in_fields_as_lists_numbers_and_text() {
        let record = record(json!({
            "body": "Same as #12 and HADOOP-345, see #12, not #x; p#7q",
            "duplicateOf": [9, "11, 13"],
        }));
        let hash = Regex::new(r"#(\d+)\b").unwrap();
        let project = Regex::new(r"HADOOP-(\d+)").unwrap();
        let body = [String::from("body")];
        assert_eq!(named(&record, None, Some((&hash, &body))), ["12"]);
        assert_eq!(named(&record, None, Some((&project, &body))), ["345"]);
        assert_eq!(named(&record, Some("duplicateOf"), None), ["9", "11", "13"]);
        let both = named(&record, Some("duplicateOf"), Some((&hash, &body)));
        assert_eq!(both, ["9", "11", "13", "12"]);
    }

    #[test]
    fn a_record_without_the_field_names_nobody() {
        let record = record(json!({ "body": { "deep": 1 } }));
        let any = Regex::new(r"(\d+)").unwrap();
        let fields = [String::from("body"), String::from("gone")];
        assert_eq!(named(&record, Some("gone"), Some((&any, &fields))), [""; 0]);
    }
}
