//! Columns: what is read from a record, and what counts as missing.

use operator::column::{Column, ColumnType, ColumnValue, project};

use super::read;

/// Projects `field` from the first record of an input.
fn value(input: &str, field: &str, kind: ColumnType) -> Option<ColumnValue> {
    let column = Column {
        name: "c".to_owned(),
        field: field.to_owned(),
        kind,
    };
    project(&column, &read(input).0[0])
}

#[test]
fn integers_are_exact_or_missing() {
    for (json, expected) in [
        ("17", Some(17)),
        ("-9223372036854775808", Some(i64::MIN)),
        ("9223372036854775807", Some(i64::MAX)),
        ("9223372036854775808", None),
        ("3.0", None),
        ("1e3", None),
        ("\"17\"", Some(17)),
        ("\" 17 \"", Some(17)),
        ("\"17.0\"", None),
        ("\"\"", None),
        ("\"many\"", None),
        ("true", None),
        ("null", None),
        ("[17]", None),
        ("{}", None),
    ] {
        let found = value(&format!("[{{\"n\": {json}}}]"), "n", ColumnType::Integer);
        assert_eq!(found, expected.map(ColumnValue::Integer), "{json}");
    }
    let csv = "id,n,empty\n1,17,\n";
    assert_eq!(
        value(csv, "n", ColumnType::Integer),
        Some(ColumnValue::Integer(17))
    );
    assert_eq!(value(csv, "empty", ColumnType::Integer), None);
    assert_eq!(value(csv, "absent", ColumnType::Integer), None);
}

#[test]
fn text_is_kept_as_it_stands_or_missing() {
    let text = |text: &str| Some(ColumnValue::Text(text.to_owned()));
    let longest = "\u{e9}".repeat(128);
    for (json, expected) in [
        ("\" a b \"".to_owned(), text(" a b ")),
        ("\"\"".to_owned(), text("")),
        ("\"17\"".to_owned(), text("17")),
        (format!("\"{longest}\""), text(&longest)),
        (format!("\"{longest}.\""), None),
        ("17".to_owned(), None),
        ("false".to_owned(), None),
        ("null".to_owned(), None),
        ("[\"a\"]".to_owned(), None),
    ] {
        let found = value(&format!("[{{\"t\": {json}}}]"), "t", ColumnType::Text);
        assert_eq!(found, expected, "{json}");
    }
    assert_eq!(value("id,t\n1,17\n", "t", ColumnType::Text), text("17"));
}

#[test]
fn times_are_seconds_in_utc() {
    for (json, expected) in [
        ("\"1970-01-01T00:00:01Z\"", Some(1)),
        ("\"1970-01-01T01:00:01+01:00\"", Some(1)),
        ("\"1970-01-01T00:00:01.9Z\"", Some(1)),
        ("\"1969-12-31T23:59:59.5Z\"", Some(-1)),
        ("\"1970-01-02\"", Some(86_400)),
        ("\"soon\"", None),
        ("1", None),
        ("null", None),
    ] {
        let found = value(&format!("[{{\"t\": {json}}}]"), "t", ColumnType::Time);
        assert_eq!(found, expected.map(ColumnValue::Integer), "{json}");
    }
}

#[test]
fn a_path_leads_through_objects_and_never_through_lists() {
    let input = r#"[{"a": {"b": {"c": 1}}, "a.d": 2, "list": [{"c": 3}], "a.b": {"c": 4}}]"#;
    let at = |path| value(input, path, ColumnType::Integer);
    assert_eq!(at("a.b.c"), Some(ColumnValue::Integer(1)));
    assert_eq!(at("a.d"), Some(ColumnValue::Integer(2)));
    for path in ["list.c", "a.b", "a.b.c.d", "a.x.c", "a.", ".a"] {
        assert_eq!(at(path), None, "{path}");
    }
}

#[test]
fn values_are_written_plainly_and_order_numbers_before_texts() {
    for (value, json) in [
        (ColumnValue::Integer(-7), "-7"),
        (ColumnValue::Text("7".to_owned()), "\"7\""),
    ] {
        assert_eq!(serde_json::to_string(&value).unwrap(), json);
        assert_eq!(serde_json::from_str::<ColumnValue>(json).unwrap(), value);
    }
    assert!(ColumnValue::Integer(9) < ColumnValue::Integer(10));
    assert!(ColumnValue::Integer(i64::MAX) < ColumnValue::Text(String::new()));
}
