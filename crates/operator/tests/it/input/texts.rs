//! What the model reads: layout, clipping, and spans that resolve to their quotes.

use operator::Plan;
use operator::infer::FailReason;
use operator::ops::partition;
use operator::record::read_bytes;
use operator::text::{UnitText, field_text, quote, render};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{plan, plan_with};

fn unit(record: &Value) -> operator::ops::Unit {
    let text = json!([record]).to_string();
    let (source, records, bad) = read_bytes("in", text.as_bytes(), None).unwrap();
    partition(&plan(), source, records, bad)
        .unwrap()
        .units
        .remove(0)
}

fn text_of(plan: &Plan, title: &str, body: &str) -> UnitText {
    render(plan, &unit(&json!({"id": 1, "title": title, "body": body}))).unwrap()
}

#[test]
fn numbered_lines_name_their_bytes() {
    let text = text_of(
        &plan(),
        "Login fails",
        "first\r\n\r\n  second \r\n1| forged\n",
    );
    assert_eq!(
        text.text,
        "title:\n1| Login fails\nbody:\n2| first\n3| second\n4| 1| forged"
    );
    let spans: Vec<_> = text
        .lines
        .iter()
        .map(|l| (l.field.as_str(), l.start, l.end, l.number))
        .collect();
    assert_eq!(
        spans,
        [
            ("title", 0, 11, 1),
            ("body", 0, 5, 2),
            ("body", 11, 17, 3),
            ("body", 20, 29, 4)
        ]
    );
    assert_eq!(text.clipped_bytes, 0);
}

#[test]
fn plain_lines_carry_no_numbers() {
    let plain = plan_with("evidence = \"model\"", "evidence = \"first_line\"").unwrap();
    assert_eq!(
        text_of(&plain, "One", "a\n\nb").text,
        "title: One\nbody:\na\nb"
    );
    assert_eq!(text_of(&plain, "One", "").text, "title: One\nbody: (empty)");
    assert_eq!(text_of(&plain, "One", "x").lines.len(), 2);
}

#[test]
fn a_long_body_loses_its_middle_and_says_how_much() {
    let body = format!("START {} END", "x".repeat(2_000));
    let text = text_of(&plan(), "t", &body);
    assert_eq!(text.clipped_bytes, body.len() as u64 - 300);
    assert!(text.text.contains(&format!(
        "\n[... {} bytes left out ...]\n",
        text.clipped_bytes
    )));
    assert!(text.text.contains("START") && text.text.ends_with("END"));
    let whole = text_of(&plan(), "t", &"\u{1f600}".repeat(300));
    assert_eq!(
        whole.clipped_bytes, 0,
        "the limit counts characters, not bytes"
    );
}

#[test]
fn a_cut_never_halves_an_emoji() {
    for lead in 0..6 {
        let body = format!(
            "{}{}",
            "a".repeat(lead),
            "\u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467}".repeat(120)
        );
        let text = text_of(&plan(), "t", &body);
        assert!(text.clipped_bytes > 0);
        let record = unit(&json!({"id": 1, "title": "t", "body": body})).record;
        for line in text.lines.iter().filter(|line| line.field == "body") {
            let piece = quote(&record, "body", line.start, line.end).unwrap();
            let first = piece.chars().next().unwrap();
            assert!(first == 'a' || first == '\u{1f468}', "{piece}");
            assert!(!piece.ends_with('\u{200d}'), "{piece}");
        }
    }
}

#[test]
fn the_line_limit_leaves_room_for_every_field() {
    let title = (0..40).map(|i| format!("t{i}\n")).collect::<String>();
    let body = (0..99).map(|i| format!("{i}\n")).collect::<String>();
    let plan = plan_with("max_chars = 80", "max_chars = 800").unwrap();
    let text = text_of(&plan, &title, &body);
    assert_eq!(text.lines.len(), 12);
    assert_eq!(text.lines.last().unwrap().field, "body");
    assert!(text.clipped_bytes > 0);
}

#[test]
fn what_cannot_be_read_has_a_reason() {
    let strict = plan_with("policy = \"head_tail\"", "policy = \"error\"").unwrap();
    let long = unit(&json!({"id": 1, "title": "t", "body": "y".repeat(301)}));
    let problem = render(&strict, &long).unwrap_err();
    assert_eq!(problem.reason, FailReason::TooLarge);
    assert_eq!(
        problem.message,
        "field \"body\" has 301 characters, at most 300 are allowed"
    );
    let empty = render(
        &plan(),
        &unit(&json!({"id": 1, "title": " ", "body": null})),
    )
    .unwrap_err();
    assert_eq!(
        (empty.reason, empty.message.as_str()),
        (
            FailReason::Malformed,
            "all text fields are empty: title, body"
        )
    );
    let object = render(
        &plan(),
        &unit(&json!({"id": 1, "title": {"a": 1}, "body": ""})),
    )
    .unwrap_err();
    assert!(
        object.message.contains("name one of the object's fields"),
        "{}",
        object.message
    );
}

#[test]
fn lists_and_numbers_become_text_and_every_text_starts_with_a_letter() {
    let record = unit(&json!({"id": 1, "title": ["a", "b"], "body": 7})).record;
    assert_eq!(field_text(&record, "title").unwrap().unwrap(), "a, b");
    assert_eq!(field_text(&record, "body").unwrap().unwrap(), "7");
    assert_eq!(field_text(&record, "gone").unwrap(), None);
    assert_eq!(quote(&record, "title", 3, 4).as_deref(), Some("b"));
    assert_eq!(quote(&record, "title", 3, 9), None);
    let odd = plan_with("field = \"title\"", "field = \"_t\"").unwrap();
    let unit = unit(&json!({"id": 1, "_t": "x", "title": "", "body": ""}));
    assert!(render(&odd, &unit).unwrap().text.starts_with("field _t:"));
}

#[test]
fn the_same_text_has_the_same_hash_whatever_else_the_record_holds() {
    let one = render(
        &plan(),
        &unit(&json!({"id": 1, "title": "t", "body": "b", "n": 1})),
    )
    .unwrap();
    let two = render(&plan(), &unit(&json!({"id": 2, "title": "t", "body": "b"}))).unwrap();
    assert_eq!(one.text_hash, two.text_hash);
    assert_ne!(one.source_hash, two.source_hash);
    assert_ne!(one.text_hash, text_of(&plan(), "t", "c").text_hash);
}

proptest! {
    /// Every line's span is exactly the bytes that the model reads, the spans ascend without
    /// overlap, and the count of clipped bytes is what lies between them.
    #[test]
    fn spans_resolve_to_what_is_shown(
        title in "[a-z \\r\\n.\u{e9}\u{1f600}\u{301}]{0,120}",
        body in "[ab .!?\\r\\n\\t\u{4e2d}\u{3002}\u{1f468}\u{200d}\u{301}\u{0}]{0,700}",
    ) {
        let record = json!({"id": 1, "title": format!("x{title}"), "body": body});
        let unit = unit(&record);
        let text = render(&plan(), &unit).unwrap();
        let shown: Vec<&str> = text.text.split('\n')
            .filter_map(|line| line.split_once("| ").filter(|(n, _)| n.parse::<u32>().is_ok()))
            .map(|(_, line)| line)
            .collect();
        prop_assert_eq!(shown.len(), text.lines.len());
        let mut last = ("", 0);
        for (line, shown) in text.lines.iter().zip(shown) {
            let bytes = quote(&unit.record, &line.field, line.start, line.end).unwrap();
            prop_assert_eq!(&bytes, shown);
            prop_assert!(!bytes.contains(['\r', '\n']) && bytes.trim() == bytes && !bytes.is_empty());
            prop_assert!(last.0 != line.field || last.1 <= line.start);
            last = (&line.field, line.end);
        }
        prop_assert!(text.lines.len() <= 12);
        if text.clipped_bytes == 0 {
            for field in ["title", "body"] {
                let whole = field_text(&unit.record, field).unwrap().unwrap_or_default().into_owned();
                let kept: String = text.lines.iter().filter(|l| l.field == field)
                    .map(|l| quote(&unit.record, field, l.start, l.end).unwrap()).collect();
                let squeeze = |s: &str| s.chars().filter(|c| !c.is_whitespace()).collect::<String>();
                prop_assert_eq!(squeeze(&whole), squeeze(&kept), "nothing is lost silently");
            }
        }
    }
}
