//! BM25 against a computation by hand, and its laws.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{compute, members, plan, values};

fn search(more: &str) -> String {
    format!("[[index]]\nname = \"x\"\nkind = \"search\"\nfields = [\"title\", \"body\"]\n{more}\n")
}

fn record(number: usize, title: &str, body: &str) -> Value {
    json!({"number": number, "title": title, "body": body})
}

fn corpus() -> Vec<Value> {
    vec![
        record(0, "Login fails", "The session EXPIRES, the session ends."),
        record(1, "Printing", "Nothing is printed."),
        record(2, "Session", "Über die Session-Länge"),
        record(3, "", "login"),
    ]
}

#[test]
fn scores_are_those_computed_by_hand() {
    let (_, indexes) = compute(&plan(&search("query = \"session login\"")), &corpus()).unwrap();
    // Lengths 8, 4, 5 and 1: the mean is 4.5. Each word is in 2 of 4: ln(1 + 2.5/2.5) = 0.693147.
    // Record 0: session twice, login once, norm 1.2 (0.25 + 0.75 * 8 / 4.5) = 1.9:
    //   0.693147 * 2.2 * (2 / 3.9 + 1 / 2.9) = 1.307848
    // Record 2: session twice, norm 1.2 (0.25 + 0.75 * 5 / 4.5) = 1.3: 0.693147 * 2.2 * 2 / 3.3 = 0.924196
    // Record 3: login once, norm 1.2 (0.25 + 0.75 / 4.5) = 0.5: 0.693147 * 2.2 / 1.5 = 1.016616
    assert_eq!(
        values(&indexes, 4),
        [Some(1_308), Some(0), Some(924), Some(1_017)]
    );
    assert_eq!(members(&indexes, 4), [0, 2, 3]);
    let table = indexes.table(0);
    let ranks: Vec<Option<u32>> = (0..4).map(|ordinal| table.rank(0, ordinal)).collect();
    assert_eq!(ranks, [Some(0), None, Some(2), Some(1)]);
    let report = &indexes.reports()[0];
    assert_eq!((report.records, report.valued, report.members), (4, 4, 3));
}

#[test]
fn top_keeps_the_best_and_ties_go_to_the_first() {
    let query = "query = \"login\"\ntop = 2";
    let equal: Vec<Value> = (0..4).map(|number| record(number, "login", "x")).collect();
    let (_, indexes) = compute(&plan(&search(query)), &equal).unwrap();
    assert_eq!(members(&indexes, 4), [0, 1]);
}

#[test]
fn words_are_those_of_unicode_and_case_does_not_matter() {
    for query in ["LÄNGE", "über", "länge"] {
        let query = format!("query = \"{query}\"");
        let (_, indexes) = compute(&plan(&search(&query)), &corpus()).unwrap();
        assert_eq!(members(&indexes, 4), [2], "{query}");
    }
}

#[test]
fn without_k1_words_count_once_and_without_b_length_does_not_matter() {
    let (_, indexes) = compute(&plan(&search("query = \"session\"\nk1 = 0")), &corpus()).unwrap();
    assert_eq!(
        values(&indexes, 4),
        [Some(693), Some(0), Some(693), Some(0)]
    );
    let (_, indexes) = compute(&plan(&search("query = \"session\"\nb = 0")), &corpus()).unwrap();
    let found = values(&indexes, 4);
    assert_eq!(found[0], found[2]);
}

#[test]
fn a_record_whose_field_is_an_object_has_no_score_and_is_counted() {
    let mut records = corpus();
    records[0]["body"] = json!({"deep": 1});
    let (_, indexes) = compute(&plan(&search("query = \"login\"")), &records).unwrap();
    assert_eq!(values(&indexes, 4)[0], None);
    assert_eq!(indexes.reports()[0].unreadable, 1);
}

proptest! {
    /// A record's score does not depend on where it stands.
    #[test]
    fn scores_move_with_their_records(
        texts in prop::collection::vec("(login|session|a|b| ){0,6}", 2..12),
        by in 1_usize..11,
    ) {
        let records: Vec<Value> = texts
            .iter()
            .enumerate()
            .map(|(number, text)| record(number, "t", text))
            .collect();
        let query = plan(&search("query = \"login session\""));
        let (_, straight) = compute(&query, &records).unwrap();
        let mut turned = records.clone();
        turned.rotate_left(by % records.len());
        let (_, other) = compute(&query, &turned).unwrap();
        let mut expected = values(&straight, records.len());
        expected.rotate_left(by % records.len());
        prop_assert_eq!(values(&other, records.len()), expected);
    }
}
