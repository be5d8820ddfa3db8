//! The SQL sandbox: what a statement gives, and what it may not do.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::script::issues;
use super::{compute, members, plan, values};

fn sql(statement: &str) -> String {
    format!("[[index]]\nname = \"x\"\nkind = \"sql\"\nstatement = '''{statement}'''\n")
}

fn ask(statement: &str, records: &[Value]) -> (Vec<Option<i64>>, Vec<u32>) {
    let (_, indexes) = compute(&plan(&sql(statement)), records).unwrap();
    (
        values(&indexes, records.len()),
        members(&indexes, records.len()),
    )
}

fn refused(statement: &str) -> String {
    let error = compute(&plan(&sql(statement)), &issues(5)).unwrap_err();
    let text = error.to_string();
    // Told at the statement's own line.
    assert!(text.starts_with("plan.toml:14:13:"), "{text}");
    assert!(text.contains("index \"x\""), "{text}");
    text
}

#[test]
fn rows_are_members_and_their_second_column_is_the_value() {
    let records = issues(20);
    let (_, found) = ask("SELECT _id FROM records WHERE state = 'closed'", &records);
    assert_eq!(found, [0, 10]);
    let (found, _) = ask(
        "SELECT _id, number * 2 FROM records WHERE number >= 18",
        &records,
    );
    assert_eq!(found[17..], [None, Some(36), Some(38)]);
    // A table of `records` without a column that is read.
    let (found, _) = ask(
        "SELECT _id, (SELECT COUNT(*) FROM records) FROM records",
        &records,
    );
    assert_eq!(found, vec![Some(20); 20]);
}

#[test]
fn aggregates_windows_and_json_see_all_records() {
    let records = [
        json!({"number": 1, "title": "a", "body": "", "tag": "x", "who": {"name": "ann"}, "labels": ["p", "q"]}),
        json!({"number": 2, "title": "b", "body": "", "tag": "x", "who": {"name": "bob"}, "labels": []}),
        json!({"number": 3, "title": "c", "body": "", "tag": "y", "who": {"name": "ann"}, "labels": ["q"]}),
    ];
    let (found, _) = ask(
        "SELECT _id, COUNT(*) OVER (PARTITION BY tag) FROM records",
        &records,
    );
    assert_eq!(found, [Some(2), Some(2), Some(1)]);
    let (_, found) = ask(
        "SELECT MIN(_id) AS _id, COUNT(*) FROM records GROUP BY json_extract(_json, '$.who.name') \
         HAVING COUNT(*) > 1",
        &records,
    );
    assert_eq!(found, [0]);
    let (_, found) = ask(
        "SELECT DISTINCT _id FROM records, json_each(_json, '$.labels') AS label WHERE label.value = 'q'",
        &records,
    );
    assert_eq!(found, [0, 2]);
    let (found, _) = ask(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10) \
         SELECT _id, (SELECT SUM(i) FROM n) FROM records",
        &records,
    );
    assert_eq!(found, vec![Some(55); 3]);
}

#[test]
fn columns_have_the_types_of_their_fields_and_of_the_plan() {
    let records = [
        json!({"number": 1, "title": "a", "body": "b", "ok": true, "big": u64::MAX, "part": 2.5, "quo\"te": 1}),
        json!({"number": 2, "title": "a", "body": "b", "ok": null, "big": 7, "part": 1, "Title": "other"}),
    ];
    for (what, first, second) in [
        ("ok = 1", Some(1), None),
        ("big = '18446744073709551615'", Some(1), Some(0)),
        ("typeof(part) = 'real'", Some(1), Some(0)),
        ("\"quo\"\"te\" = 1", Some(1), None),
        // Names differ by more than case: the first one of a name has it.
        ("title = 'a'", Some(1), Some(1)),
        ("json_extract(_json, '$.Title') = 'other'", None, Some(1)),
        ("_ordinal = 1", Some(0), Some(1)),
    ] {
        let (found, _) = ask(&format!("SELECT _id, {what} FROM records"), &records);
        assert_eq!(found, [first, second], "{what}");
    }
    let column = "[[column]]\nname = \"opened\"\ntype = \"time\"\nfield = \"at.created\"\n";
    let text = format!("{}{column}", sql("SELECT _id, opened FROM records"));
    let record = json!({"number": 1, "title": "a", "body": "b", "at": {"created": "1970-01-02"}});
    let (_, indexes) = compute(&plan(&text), &[record]).unwrap();
    assert_eq!(values(&indexes, 1), [Some(86_400)]);
}

#[test]
fn writes_attach_pragma_schema_clock_and_randomness_are_refused() {
    for (statement, word) in [
        ("DELETE FROM records", "writes the table \"records\""),
        (
            "UPDATE records SET title = 'x' RETURNING _id",
            "writes the table",
        ),
        (
            "INSERT INTO records (_id) VALUES ('9') RETURNING _id",
            "writes the table",
        ),
        ("DROP TABLE records", "writes the table"),
        ("CREATE TABLE t (a)", "writes the table"),
        ("ATTACH DATABASE '/tmp/x.db' AS other", "attaches"),
        ("PRAGMA query_only = 0", "PRAGMA query_only"),
        (
            "SELECT name AS _id FROM pragma_table_info('records')",
            "pragma_table_info",
        ),
        ("VACUUM INTO '/tmp/x.db'", "_id"),
        ("SELECT name AS _id FROM sqlite_master", "sqlite_master"),
        (
            "SELECT '1' AS _id, COUNT(*) FROM sqlite_schema",
            "sqlite_schema",
        ),
        (
            "SELECT '1' AS _id, COUNT(*) FROM pragma_compile_options",
            "pragma_compile_options",
        ),
        ("SELECT _id, random() FROM records", "random()"),
        (
            "SELECT _id, length(randomblob(9)) FROM records",
            "randomblob()",
        ),
        (
            "SELECT _id, strftime('%s', 'now') FROM records",
            "strftime()",
        ),
        (
            "SELECT _id, CURRENT_TIMESTAMP FROM records",
            "current_timestamp()",
        ),
        (
            "SELECT _id, load_extension('x') FROM records",
            "load_extension()",
        ),
        ("BEGIN", "transaction"),
        (
            "SELECT _id FROM records; SELECT 1",
            "more than one statement",
        ),
        ("EXPLAIN SELECT _id FROM records", "must be _id"),
        ("SELECT _id FROM records WHERE title = ?", "parameters"),
    ] {
        let text = refused(statement);
        assert!(text.contains(word), "{statement}: {text}");
    }
    assert!(!std::path::Path::new("/tmp/x.db").exists());
}

#[test]
fn what_would_not_end_or_would_not_fit_is_stopped() {
    for bomb in [
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT _id, (SELECT COUNT(*) FROM n) FROM records",
        "SELECT _id, (SELECT COUNT(*) FROM records a, records b, records c, records d, records e, records f, \
         records g, records h, records i, records j, records k, records l, records m) FROM records",
    ] {
        let limited = format!("{}steps_max = 100000\n", sql(bomb));
        let error = compute(&plan(&limited), &issues(20))
            .unwrap_err()
            .to_string();
        assert!(error.contains("stopped after 100000 steps"), "{error}");
    }
    let text = refused(
        "SELECT _id, length(replace(printf('%100000d', 1), ' ', printf('%1000d', 1))) FROM records",
    );
    assert!(text.contains("SQLite: string or blob too big"), "{text}");
}

#[test]
fn a_result_that_names_no_record_twice_or_no_integer_is_refused() {
    for (statement, word) in [
        ("SELECT title FROM records", "gives the columns (title)"),
        ("SELECT _id, 1, 2 FROM records", "its first must be _id"),
        ("SELECT 'nobody' AS _id", "no record has"),
        ("SELECT a._id FROM records a, records b", "twice"),
        ("SELECT _id, title FROM records", "make it an integer"),
        ("SELECT _id, 0.5 FROM records", "make it an integer"),
        ("SELECT NULL AS _id", "of type Null"),
        (
            "SELECT _id FROM records WHERE tittle = 1",
            "SQLite: no such column: tittle",
        ),
        ("SELECT _id FRM records", "syntax error"),
    ] {
        let text = refused(statement);
        assert!(text.contains(word), "{statement}: {text}");
    }
}

proptest! {
    /// A window's count is that of a plain loop, for any tags.
    #[test]
    fn counts_by_group_are_those_of_a_plain_loop(tags in prop::collection::vec("[a-c]{0,2}", 1..30)) {
        let records: Vec<Value> = tags
            .iter()
            .enumerate()
            .map(|(number, tag)| json!({"number": number, "title": "t", "body": "b", "tag": tag}))
            .collect();
        let (found, _) = ask("SELECT _id, COUNT(*) OVER (PARTITION BY tag) FROM records", &records);
        let counted: Vec<Option<i64>> = tags
            .iter()
            .map(|tag| Some(tags.iter().filter(|other| *other == tag).count() as i64))
            .collect();
        prop_assert_eq!(found, counted);
    }
}
