//! The classifier: it learns what can be told apart, gives the same twice, and judges no record that
//! it learned from.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use operator::index::classifier::{Classifier, classifier_of};
use operator::index::{Indexes, UnitRows};
use operator::plan::Plan;
use serde_json::{Value, json};

use super::super::script::units;
use super::plan_text;

const WORDS: [&[&str]; 3] = [
    &["crash", "panic", "segfault", "broken"],
    &["wish", "please", "add", "support"],
    &["how", "where", "question", "documentation"],
];
const CLASSES: [&str; 3] = ["bug", "feature", "question"];

/// Records of three kinds that words tell apart, with some words that all share.
fn records(count: usize) -> Vec<Value> {
    (0..count)
        .map(|number| {
            let words = WORDS[number % 3];
            let (first, second) = (words[number / 3 % 4], words[number / 7 % 4]);
            json!({
                "number": number,
                "title": format!("the {first} of item {}", number % 5),
                "body": format!("it is {second} and the server"),
            })
        })
        .collect()
}

/// Labels of the first records.
fn labels(count: usize) -> String {
    let mut text = String::from("number,kind\n");
    for number in 0..count {
        let _ = writeln!(text, "{number},{}", CLASSES[number % 3]);
    }
    text
}

fn index(source: &str) -> String {
    format!(
        "[[index]]\nname = \"x\"\nkind = \"classifier\"\nfields = [\"title\", \"body\"]\n\
         classes = [\"bug\", \"feature\", \"question\"]\n{source}\n"
    )
}

const LABELS: &str = "labels = \"labels.csv\"\nid = \"number\"\nfield = \"kind\"";

struct Home(tempfile::TempDir);

impl Home {
    fn new(labels: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("labels.csv"), labels).unwrap();
        Self(home)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn plan(&self, source: &str) -> Plan {
        let path = self.path().join("plan.toml");
        Plan::parse(&plan_text(&index(source), ""), path.to_str().unwrap()).unwrap()
    }

    fn compute(&self, source: &str, records: &[Value]) -> Result<Indexes, String> {
        let plan = self.plan(source);
        let partition = units(&plan, records);
        Indexes::compute(&plan, &UnitRows(&partition), &|| 0).map_err(|error| error.to_string())
    }

    fn train(&self, records: &[Value]) -> Classifier {
        let plan = self.plan(LABELS);
        let partition = units(&plan, records);
        classifier_of(&plan, "x", &UnitRows(&partition)).unwrap()
    }
}

#[test]
fn it_learns_what_words_tell_apart_and_says_how_sure_it_is() {
    let home = Home::new(&labels(60));
    let records = records(300);
    let indexes = home.compute(LABELS, &records).unwrap();
    let table = indexes.table(0);
    for ordinal in 60..300 {
        let class = ordinal as usize % 3;
        assert!(table.is_member(class, ordinal), "record {ordinal}");
        let shares: Vec<i64> = (0..3)
            .map(|class| table.value(class, ordinal).unwrap())
            .collect();
        assert_eq!(shares.iter().sum::<i64>(), 1_000_000);
        assert!(shares[class] > 800_000, "record {ordinal}: {shares:?}");
        let second = (0..3)
            .filter(|other| *other != class)
            .map(|other| shares[other])
            .max();
        assert_eq!(table.margin(ordinal), Some(shares[class] - second.unwrap()));
    }
}

#[test]
fn no_record_is_judged_by_its_own_label_and_what_has_no_record_is_named() {
    let home = Home::new(&format!("{}x9,bug\nx10,bug\n", labels(60)));
    let indexes = home.compute(LABELS, &records(90)).unwrap();
    let (table, report) = (indexes.table(0), &indexes.reports()[0]);
    for ordinal in 0..60 {
        assert_eq!(table.value(0, ordinal), None);
        assert!((0..3).all(|class| !table.is_member(class, ordinal)));
    }
    let learned = report.learned.as_ref().unwrap();
    assert_eq!(
        (learned.records, learned.not_judged, learned.unknown),
        (60, 60, 2)
    );
    assert_eq!(learned.unknown_ids, ["x10", "x9"]);
    assert_eq!(
        (report.records, report.valued, report.members),
        (90, 30, 30)
    );
}

#[test]
fn equal_labels_and_records_give_equal_bytes_in_any_order() {
    let home = Home::new(&labels(45));
    let records = records(60);
    let bytes = home.train(&records).to_json().unwrap();
    assert_eq!(home.train(&records).to_json().unwrap(), bytes);
    let mut turned = records.clone();
    turned.reverse();
    assert_eq!(home.train(&turned).to_json().unwrap(), bytes);
    let mut other = records;
    other[3]["body"] = json!("something else");
    assert_ne!(home.train(&other).to_json().unwrap(), bytes);
}

#[test]
fn a_stored_classifier_judges_as_the_one_that_was_written() {
    let home = Home::new(&labels(60));
    let records = records(120);
    let trained = home.compute(LABELS, &records).unwrap();
    let bytes = home.train(&records).to_json().unwrap();
    fs::write(home.path().join("kind.json"), &bytes).unwrap();
    let read = home.compute("model = \"kind.json\"", &records).unwrap();
    for ordinal in 0..120 {
        for class in 0..3 {
            let (a, b) = (trained.table(0), read.table(0));
            assert_eq!(a.value(class, ordinal), b.value(class, ordinal));
            assert_eq!(a.is_member(class, ordinal), b.is_member(class, ordinal));
        }
    }
    // What it learned from stays unjudged, also where the labels are not at hand.
    assert_eq!(read.reports()[0].learned.as_ref().unwrap().not_judged, 60);
    assert_ne!(trained.reports()[0].identity, read.reports()[0].identity);
}

#[test]
fn a_text_without_a_known_word_is_not_judged() {
    let home = Home::new(&labels(30));
    let mut records = records(40);
    records[35] = json!({"number": 35, "title": "", "body": "zyx wvu"});
    records[36] = json!({"number": 36, "title": "", "body": {"deep": "crash"}});
    let indexes = home.compute(LABELS, &records).unwrap();
    assert_eq!(indexes.table(0).value(0, 35), None);
    assert_eq!(indexes.table(0).value(0, 36), None);
    let report = &indexes.reports()[0];
    assert_eq!((report.valued, report.unreadable), (8, 1));
}

#[test]
fn the_identity_is_that_of_plan_labels_and_records() {
    let home = Home::new(&labels(30));
    let all = records(40);
    let identity = |home: &Home, records: &[Value]| {
        home.compute(LABELS, records).unwrap().reports()[0].identity
    };
    let first = identity(&home, &all);
    assert_eq!(identity(&home, &all), first);
    assert_ne!(identity(&home, &all[..39]), first);
    assert_ne!(identity(&Home::new(&labels(33)), &all), first);
}

#[test]
fn bad_labels_and_files_are_named_with_their_cure() {
    for (labels, word) in [
        (
            String::from("number,kind\n1,bug\n2,bgu\n"),
            "is labelled \"bgu\"",
        ),
        (
            String::from("number,kind\n1,bug\n2,feature\n"),
            "none of the input's records \"question\"",
        ),
        (String::from("number,kind\n1,bug\n1,bug\n"), "same id"),
        (String::from("number,other\n1,bug\n"), "kind"),
        (
            String::from("number,kind\n1,bug,3\n2,bug\n"),
            "has to be whole",
        ),
    ] {
        let error = Home::new(&labels).compute(LABELS, &records(9)).unwrap_err();
        assert!(
            error.contains("labels.csv") && error.contains(word),
            "{error}"
        );
    }
    let home = Home::new("");
    let error = home
        .compute("model = \"none.json\"", &records(9))
        .unwrap_err();
    assert!(error.contains("none.json: cannot read"), "{error}");
    fs::write(home.path().join("bad.json"), "{\"version\": 1}").unwrap();
    let error = home
        .compute("model = \"bad.json\"", &records(9))
        .unwrap_err();
    assert!(error.contains("is no classifier"), "{error}");
    let trained = Home::new(&labels(9)).train(&records(9)).to_json().unwrap();
    let text = String::from_utf8(trained).unwrap();
    for (from, to, word) in [
        ("\"bug\"", "\"fault\"", "has the classes fault"),
        ("\"bias_micro\":[", "\"bias_micro\":[1,", "differ"),
        ("\"version\":1", "\"version\":2", "of version 2"),
    ] {
        fs::write(home.path().join("bad.json"), text.replacen(from, to, 1)).unwrap();
        let error = home
            .compute("model = \"bad.json\"", &records(9))
            .unwrap_err();
        assert!(error.contains(word), "{error}");
    }
}
