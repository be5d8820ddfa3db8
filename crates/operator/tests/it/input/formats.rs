//! JSON, JSON lines and CSV, clean and dirty, and their partition.

use operator::id::ContentHash;
use operator::record::{Format, read_bytes, read_source};
use proptest::prelude::*;

use super::{read, read_error, split};

fn format_of(text: &str) -> Format {
    read_bytes("in", text.as_bytes(), None).unwrap().0.format
}

#[test]
fn the_format_is_found_from_the_content() {
    assert_eq!(format_of("\u{feff} [{\"a\":1}]"), Format::Json);
    assert_eq!(format_of("{\"a\":1}\n{\"a\":2}\n"), Format::Jsonl);
    assert_eq!(format_of("{\"a\":1}"), Format::Jsonl);
    assert_eq!(format_of("{broken\n{\"a\":2}\n"), Format::Jsonl);
    assert_eq!(format_of("a,b\n1,2\n"), Format::Csv);
    assert_eq!(format_of("a;b\n1;2,3\n"), Format::Csv);
    assert_eq!(format_of("a\tb\r1\t2\r"), Format::Csv);
}

#[test]
fn the_same_records_in_every_format_have_the_same_hash() {
    let (json, _) = read("[{\"b\":\"x\", \"a\":\"1\"}]");
    let (lines, _) = read(
        "{\"a\":\"1\",\n \"b\":1}\n"
            .replace('\n', "")
            .replace("1}", "\"x\"}")
            .as_str(),
    );
    let (csv, _) = read("a,b\r\n1,x\r\n");
    assert_eq!(json[0].source_hash(), lines[0].source_hash());
    assert_eq!(json[0].source_hash(), csv[0].source_hash());
    let (edited, _) = read("[{\"b\":\"x\", \"a\":1}]");
    assert_ne!(
        json[0].source_hash(),
        edited[0].source_hash(),
        "a number is not its text"
    );
}

#[test]
fn a_file_is_read_and_hashed_as_it_lies_on_disk() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("issues.json");
    let bytes = b"\xef\xbb\xbf[{\"id\":1}]";
    std::fs::write(&path, bytes).unwrap();
    let (artifact, records, _) = read_source(&path, None).unwrap();
    assert_eq!((artifact.bytes, records.len()), (bytes.len() as u64, 1));
    assert_eq!(artifact.hash, ContentHash::of_bytes(bytes));
    let gone = read_source(&directory.path().join("gone"), None)
        .unwrap_err()
        .to_string();
    assert!(gone.ends_with("gone: cannot read"), "{gone}");
}

#[test]
fn a_broken_json_file_is_placed_and_comes_with_a_cure() {
    let cut = read_error(b"[{\"a\":1},\n{\"a\":", None);
    assert!(cut.starts_with("in:2:5: the JSON ends too early"), "{cut}");
    assert!(cut.contains("fetch it again"), "{cut}");
    let bad = read_error(b"[{\"a\":1}\n,{\"a\" 2}]", None);
    assert!(bad.starts_with("in:2:7: is not valid JSON"), "{bad}");
    let object = read_error(b"{\n\"total\": 1, \"items\": [\n1]\n}", None);
    assert!(
        object.contains("one JSON object, not an array") && object.contains("items"),
        "{object}"
    );
    assert!(read_error(b"hello there", None).contains("starts with \"hello there\""));
    assert!(read_error(b"<html><p>a, b</p>", None).contains("neither a JSON array"));
    assert!(read_error(b" \n", None).contains("holds no record"));
    assert!(read_error(b"[]", None).contains("holds no record"));
    assert!(read_error(b"a,b\n", None).contains("holds no record"));
    assert!(read_error(b"[1,2]", None).contains(
        "none of the 2 records can be read; the first, \
                                                 element 1: is a number, not an object"
    ));
    assert!(read_error(b"\xff\xfe[\0", None).contains("UTF-16"));
    assert!(read_error(b"[{\"a\":\n\"\xe9\"}]", None).starts_with("in:2:2: is not UTF-8"));
    assert!(read_error(b"nope", Some(Format::Jsonl)).contains("line 1: is not valid JSON"));
}

#[test]
fn bad_elements_and_lines_are_counted_and_the_rest_goes_on() {
    let (records, bad) = read("[{\"a\":1},7,{\"a\":2}]");
    assert_eq!(
        records.iter().map(|r| r.ordinal).collect::<Vec<_>>(),
        [0, 2]
    );
    assert_eq!((bad[0].ordinal, bad[0].place.as_str()), (1, "element 2"));
    let (records, bad) = read("{\"a\":1}\r\n\r\n{\"a\":\n[1]\n{\"a\":2}\n{\"a\":3");
    assert_eq!(
        records.iter().map(|r| r.place.as_str()).collect::<Vec<_>>(),
        ["line 1", "line 5"]
    );
    let problems: Vec<_> = bad
        .iter()
        .map(|b| (b.ordinal, b.place.as_str(), b.problem.as_str()))
        .collect();
    assert_eq!(
        problems,
        [
            (1, "line 3", "is cut off at column 5"),
            (2, "line 4", "is a list, not an object"),
            (4, "line 6", "is cut off at column 6"),
        ]
    );
    let (_, records, bad) = read_bytes("in", b"{\"a\":\"\xff\"}\n{\"a\":1}\n", None).unwrap();
    assert_eq!(
        (records.len(), bad[0].problem.as_str()),
        (1, "is not UTF-8")
    );
}

#[test]
fn lone_surrogates_become_replacement_characters_with_a_warning() {
    let text = r#"[{"a":"x,[\ud83d"},{"a":"\ud83d\ude00 \\ud83d"},{"a":"\ude00\ud83d\ud83d\ude00\u0000"}]"#;
    let (records, bad) = read(text);
    assert!(bad.is_empty());
    assert_eq!(records[0].fields["a"], "x,[\u{fffd}");
    assert_eq!(
        records[0].warnings,
        ["1 lone surrogate escape(s) replaced by U+FFFD"]
    );
    assert_eq!(records[1].fields["a"], "\u{1f600} \\ud83d");
    assert!(records[1].warnings.is_empty());
    assert_eq!(records[2].fields["a"], "\u{fffd}\u{fffd}\u{1f600}\0");
    assert_eq!(
        records[2].warnings,
        ["2 lone surrogate escape(s) replaced by U+FFFD"]
    );
    let (lines, _) = read("{\"a\":\"\\uD83D\"}\n{\"a\":\"b\"}\n");
    assert_eq!((lines[0].warnings.len(), lines[1].warnings.len()), (1, 0));
}

#[test]
fn csv_line_ends_quotes_and_empty_cells() {
    for end in ["\n", "\r\n", "\r"] {
        let text = format!("\u{feff}id,body{end}1,\"two{end}lines, \"\"q\"\"\"{end}{end}2,{end}");
        let (records, bad) = read(&text);
        assert!(bad.is_empty(), "{end:?}");
        assert_eq!(records[0].fields["body"], format!("two{end}lines, \"q\""));
        assert!(records[1].fields["body"].is_null());
        assert_eq!(records[0].place, "row 1 (line 2)", "{end:?}");
        assert_eq!(records[1].place, "row 2 (line 5)", "{end:?}");
    }
}

#[test]
fn dirty_csv() {
    let (records, bad) = read("id,a,b\n1,x\n2,x,y\n3,x,y,z\n");
    assert_eq!(records[0].fields["id"], "2");
    assert_eq!(records[0].ordinal, 1);
    let problems: Vec<_> = bad
        .iter()
        .map(|b| (b.place.as_str(), b.problem.as_str()))
        .collect();
    assert_eq!(
        problems,
        [
            ("row 1 (line 2)", "has 2 cells, the header has 3"),
            ("row 3 (line 4)", "has 4 cells, the header has 3"),
        ]
    );
    let twice = read_error(b"id,created,x,created\n1,2,3,4\n", None);
    assert!(
        twice.contains("columns 2 and 4 are both named \"created\""),
        "{twice}"
    );
    let open = read_error(b"id,a\n1,x\n2,\"never\n3,y\n", None);
    assert!(
        open.starts_with("in:3:3: the quoted cell that opens here is never closed"),
        "{open}"
    );
    assert!(read_error(b"id,,b\n1,2,3\n", None).contains("header 2 is empty"));
    let (_, records, bad) = read_bytes("in", b"id,a\n1,\xe9\n2,y\n", None).unwrap();
    assert_eq!(
        (records.len(), bad[0].problem.contains("\"a\" is not UTF-8")),
        (1, true)
    );
}

#[test]
fn ids_name_records() {
    let good = split("[{\"id\":4821,\"title\":\"a\",\"body\":\"\"},{\"id\":\" x-1 \"}]").unwrap();
    assert_eq!(good.units[0].id.as_str(), "4821");
    assert_eq!(good.units[1].id.as_str(), "x-1");
    let error = |text: &str| split(text).unwrap_err().to_string();
    let fields = "\"title\":\"\",\"body\":\"\"";
    let twice = error(&format!(
        "[{{\"id\":42,{fields}}},{{\"id\":7}},{{\"id\":\"42\"}}]"
    ));
    assert!(
        twice.contains("element 1 and element 3 have the same id \"42\" in field \"id\""),
        "{twice}"
    );
    for (id, problem) in [
        ("\"x\":1", "is missing"),
        ("\"id\":null", "is missing"),
        ("\"id\":\" \"", "is empty"),
        ("\"id\":1.5", "is a number (1.5)"),
        ("\"id\":true", "is a truth value"),
        ("\"id\":[1,2]", "is a list"),
        ("\"id\":\"a\\nb\"", "is no id"),
    ] {
        let text = error(&format!("[{{\"id\":1,{fields}}},{{{id}}}]"));
        assert!(
            text.contains("element 2: id field \"id\"") && text.contains(problem),
            "{text}"
        );
    }
    let missing = error("[{\"id\":1,\"title\":\"\",\"text\":\"\"}]");
    assert!(
        missing.contains("text field \"body\"") && missing.contains("id, title, text"),
        "{missing}"
    );
}

#[test]
fn bad_units_get_a_synthesised_id_that_cannot_shadow_a_real_one() {
    let part = split("[3,{\"id\":1,\"title\":\"\",\"body\":\"\"}]").unwrap();
    assert_eq!(
        (part.bad[0].id.as_str(), part.bad[0].ordinal, part.len()),
        ("#0", 0, 2)
    );
    let error = split("[3,{\"id\":\"#0\",\"title\":\"\",\"body\":\"\"}]")
        .unwrap_err()
        .to_string();
    assert!(error.contains("same id \"#0\""), "{error}");
}

#[test]
fn records_that_are_not_a_whole_input_are_refused() {
    let text = "[{\"id\":1,\"title\":\"\",\"body\":\"\"},{\"id\":2}]";
    let (source, mut records, bad) = read_bytes("in", text.as_bytes(), None).unwrap();
    records.remove(0);
    let error = operator::ops::partition(&super::plan(), source, records, bad).unwrap_err();
    assert!(error.to_string().contains("expected 0, found 1"), "{error}");
}

proptest! {
    /// Partition law: every line is placed exactly once, good or bad, in order.
    #[test]
    fn partition_is_disjoint_and_complete(kinds in prop::collection::vec(0..3_u8, 1..40)) {
        let mut text = "{\"id\":\"first\",\"title\":\"t\",\"body\":\"b\"}\n".to_owned();
        let mut expected = 1;
        for (index, kind) in kinds.iter().enumerate() {
            match kind {
                0 => text.push_str(&format!("{{\"id\":{index}}}\n")),
                1 => text.push_str("{\"id\":\n"),
                _ => { text.push('\n'); continue; }
            }
            expected += 1;
        }
        let part = split(&text).unwrap();
        let mut ordinals: Vec<u32> = part.units.iter().map(|unit| unit.ordinal).collect();
        ordinals.extend(part.bad.iter().map(|bad| bad.ordinal));
        ordinals.sort_unstable();
        prop_assert_eq!(ordinals, (0..expected).collect::<Vec<u32>>());
        prop_assert!(part.units.windows(2).all(|pair| pair[0].ordinal < pair[1].ordinal));
    }

    /// No input of any bytes makes the readers panic.
    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), start in "[\\[{a,\"]{0,4}") {
        let content = [start.as_bytes(), &bytes].concat();
        for format in [None, Some(Format::Json), Some(Format::Jsonl), Some(Format::Csv)] {
            let _ = read_bytes("in", &content, format);
        }
    }
}
