//! Changes nobody thought of: the verifier never panics, and what changed the data is found.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use operator::answer::CitedAnswer;
use operator::fold::NodeRecord;
use operator::selfcheck::Artifact;
use operator::verify::{Finding, Sources, Subject, verify, verify_artifact};
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};

use super::super::facts::facts;
use super::agreement::{made, under};
use super::{ARTIFACT, CORPUS};

static DOCUMENT: LazyLock<Value> = LazyLock::new(|| serde_json::to_value(&*ARTIFACT).unwrap());
static TEXT: LazyLock<Vec<u8>> = LazyLock::new(|| serde_json::to_vec(&*DOCUMENT).unwrap());

/// Every place below a value, as a JSON pointer, containers included.
fn places(value: &Value, at: String, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (key, below) in fields {
                let key = key.replace('~', "~0").replace('/', "~1");
                places(below, format!("{at}/{key}"), found);
            }
        }
        Value::Array(items) => {
            for (place, below) in items.iter().enumerate() {
                places(below, format!("{at}/{place}"), found);
            }
        }
        _ => {}
    }
    found.push(at);
}

/// Changes the value at a place in one of several ways.
fn change(document: &mut Value, at: &str, way: usize) {
    let (above, key) = at.rsplit_once('/').unwrap();
    match way {
        0 => {
            let value = document.pointer_mut(at).unwrap();
            *value = match value.take() {
                Value::Null => json!(0),
                Value::Bool(flag) => json!(!flag),
                Value::Number(number) => match number.as_u64() {
                    Some(number) => json!(number.wrapping_add(1)),
                    None => json!(0),
                },
                Value::String(text) => json!(text.chars().skip(1).collect::<String>()),
                Value::Array(_) => json!([]),
                Value::Object(_) => json!({}),
            };
        }
        1 => *document.pointer_mut(at).unwrap() = Value::Null,
        2 => *document.pointer_mut(at).unwrap() = json!(u64::from(u32::MAX)),
        3 => {
            let value = document.pointer_mut(at).unwrap();
            match value {
                Value::String(text) => {
                    let last = text.pop();
                    text.push(if last == Some('0') { '1' } else { '0' });
                }
                Value::Array(items) => items.reverse(),
                Value::Number(_) => *value = json!(u64::MAX),
                other => *other = json!("x"),
            }
        }
        _ => match document.pointer_mut(above).unwrap() {
            Value::Array(items) => {
                let place: usize = key.parse().unwrap();
                if way == 4 {
                    items.remove(place);
                } else {
                    let twice = items[place].clone();
                    items.insert(place, twice);
                }
            }
            Value::Object(fields) => {
                fields.remove(&key.replace("~1", "/").replace("~0", "~"));
            }
            other => panic!("{other}"),
        },
    }
}

/// A document that cannot be read is refused before it is verified; any other is found out.
fn is_found(document: Value, at: &str) -> Result<(), TestCaseError> {
    let Ok(artifact) = serde_json::from_value::<Artifact>(document) else {
        return Ok(());
    };
    let report = verify_artifact(&artifact, CORPUS).unwrap();
    prop_assert_eq!(report.holds(), artifact == *ARTIFACT, "{}", at);
    Ok(())
}

/// What is there and what is not, however deep, without the values.
fn shape(value: &Value) -> String {
    match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(key, below)| format!("{key}({})", shape(below)))
            .collect(),
        Value::Array(items) => items.iter().map(shape).collect(),
        Value::Null => String::from("-"),
        _ => String::from("+"),
    }
}

/// A change that chance finds once in a thousand runs is tried here in each: every place of one
/// fact of every kind, in every way.
#[test]
fn every_value_of_a_fact_of_each_kind_is_guarded() {
    let rows = DOCUMENT["facts"].as_array().unwrap();
    let mut kinds = BTreeMap::new();
    for (row, fact) in rows.iter().enumerate() {
        let kind = (
            fact["stage"].to_string(),
            fact["status"].to_string(),
            shape(fact),
        );
        kinds.entry(kind).or_insert(row);
    }
    for row in kinds.into_values() {
        let mut found = Vec::new();
        let root = format!("/facts/{row}");
        places(DOCUMENT.pointer(&root).unwrap(), root, &mut found);
        for at in &found {
            for way in 0..6 {
                let mut document = DOCUMENT.clone();
                change(&mut document, at, way);
                if let Err(error) = is_found(document, &format!("{at}, way {way}")) {
                    panic!("{error}");
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 160, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_changed_value_of_the_artifact_is_found(
        part in 0..7_usize, row in any::<Index>(), at in any::<Index>(), way in 0..6_usize,
    ) {
        // Parts are drawn evenly, for facts and nodes are nearly all of the document.
        let part = ["format", "plan", "source_hash", "answer", "witness", "facts", "nodes"][part];
        let mut root = format!("/{part}");
        if let Some(rows) = DOCUMENT[part].as_array() {
            root = format!("{root}/{}", row.index(rows.len()));
        }
        let mut found = Vec::new();
        places(DOCUMENT.pointer(&root).unwrap(), root, &mut found);
        let mut document = DOCUMENT.clone();
        let at = at.get::<String>(&found);
        change(&mut document, at, way);
        is_found(document, at)?;
    }

    #[test]
    fn any_changed_byte_of_the_artifact_is_found(at in any::<Index>(), byte in 32..127_u8) {
        let mut text = TEXT.clone();
        let at = at.index(text.len());
        text[at] = byte;
        if let Ok(document) = serde_json::from_slice(&text) {
            is_found(document, &format!("byte {at}"))?;
        }
    }

    #[test]
    fn any_changed_value_of_nodes_or_answer_is_found_under_every_operation(
        facts in facts(40).prop_filter("needs a fact", |facts| !facts.is_empty()),
        fan_in in 2..=16_u32, at in any::<Index>(), way in 0..6_usize,
    ) {
        let plan = under(fan_in);
        let (nodes, answer) = made(&plan, &facts);
        let found = |nodes: &[NodeRecord], answer: &CitedAnswer| -> Vec<Finding> {
            let subject = Subject { plan: &plan, facts: &facts, nodes, answer };
            verify(subject, &Sources::Absent(String::new())).findings
        };
        let before = found(&nodes, &answer);
        let mut document = json!({ "nodes": nodes, "answer": answer });
        let whole: Vec<NodeRecord> = serde_json::from_value(document["nodes"].clone()).unwrap();
        prop_assert_eq!(&whole, &nodes, "every state can be read back");
        let mut all = Vec::new();
        places(&document, String::new(), &mut all);
        // Without records nothing tells of their file, and nobody answered these facts.
        all.retain(|at| !at.is_empty() && !at.starts_with("/answer/source")
            && !at.starts_with("/answer/backend"));
        change(&mut document, at.get::<String>(&all), way);
        let parts = (
            serde_json::from_value::<Vec<NodeRecord>>(document["nodes"].clone()),
            serde_json::from_value::<CitedAnswer>(document["answer"].clone()),
        );
        if let (Ok(changed_nodes), Ok(changed_answer)) = parts {
            let same = changed_nodes == nodes && changed_answer == answer;
            prop_assert_eq!(found(&changed_nodes, &changed_answer) == before, same);
        }
    }
}
