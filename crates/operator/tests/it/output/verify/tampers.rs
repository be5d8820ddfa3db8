//! Changes that verification must find, each by the name of what was changed.
//!
//! Of a change that is resealed every hash fits again; it has to be found by content.

use operator::answer::Claim;
use operator::column::ColumnValue;
use operator::fact::{Fact, Status};
use operator::fold::{Child, LeafKey};
use operator::id::{ContentHash, UnitId};
use operator::reducers::AggregateState;
use operator::selfcheck::Artifact;
use operator::verify::{Kind, Place, verify_artifact};
use serde_json::{Value, json};

use super::resealing::reseal;
use super::{ARTIFACT, CORPUS, shown};

/// A change, and where it must be found.
struct Tamper {
    name: &'static str,
    change: fn(&mut Artifact) -> Place,
}

macro_rules! tampers {
    ($($name:literal => $change:expr),* $(,)?) => {
        &[$(Tamper { name: $name, change: $change }),*]
    };
}

mod answer;
mod facts;
mod nodes;

use answer::{ANSWER, ANSWER_RESEALED};
use facts::{FACTS, FACTS_RESEALED};
use nodes::{NODES, NODES_RESEALED};

fn node(artifact: &Artifact, row: usize) -> Place {
    let record = &artifact.nodes[row];
    Place::Node {
        range: record.node.range,
        path: record.path.clone(),
    }
}

fn unit(fact: &Fact) -> Place {
    Place::Unit(fact.unit_id.clone())
}

fn claim(name: &str) -> Place {
    Place::Claim(name.to_owned())
}

fn claim_mut<'a>(artifact: &'a mut Artifact, name: &str) -> &'a mut Claim {
    let mut claims = artifact.answer.claims.iter_mut();
    claims.find(|claim| claim.name == name).unwrap()
}

fn artifact_file() -> Place {
    Place::File(String::from("artifact"))
}

/// The first fact that a test is true of.
fn find(artifact: &Artifact, test: impl Fn(&Fact) -> bool) -> usize {
    artifact.facts.iter().position(test).unwrap()
}

/// A fact that the model decided and that has a quote.
fn decided(artifact: &Artifact) -> usize {
    find(artifact, |fact| {
        fact.status == Status::Decided && !fact.evidence.is_empty()
    })
}

/// The row of the node whose input a unit's leaf is.
fn holder(artifact: &Artifact, wanted: &UnitId) -> usize {
    let rows = artifact.nodes.iter();
    let mut holds = rows.map(|record| {
        let mut children = record.node.children.iter();
        children.any(|child| matches!(child, Child::Leaf { unit, .. } if unit.id == *wanted))
    });
    holds.position(|holds| holds).unwrap()
}

/// The row of a node on the lowest level that cites something.
fn citing(artifact: &Artifact) -> usize {
    let rows = artifact.nodes.iter();
    let mut cites = rows.map(|record| record.path.len() == 4 && record.citations.len() > 1);
    cites.position(|cites| cites).unwrap()
}

const OTHER: ContentHash = ContentHash::from_bytes([7; 32]);

/// Tries every change of a table; returns how many there are.
fn all_are_found(tampers: &[Tamper], resealed: bool) -> usize {
    for Tamper { name, change } in tampers {
        let mut artifact = ARTIFACT.clone();
        let place = change(&mut artifact);
        if resealed {
            reseal(&mut artifact);
        }
        let report = verify_artifact(&artifact, CORPUS).unwrap();
        let mut findings = report.findings.iter();
        let found = findings.find(|finding| finding.place == place);
        let Some(found) = found else {
            panic!("{name}: nothing at {place}: {:?}", shown(&report));
        };
        assert!(found.to_string().starts_with(&place.to_string()), "{found}");
        assert!(!resealed || found.kind == Kind::Content, "{name}: {found}");
    }
    tampers.len()
}

#[test]
fn changed_facts_are_found_by_their_unit() {
    assert_eq!(all_are_found(FACTS, false), 12);
}

#[test]
fn changed_and_resealed_facts_are_found_by_their_unit() {
    assert_eq!(all_are_found(FACTS_RESEALED, true), 14);
}

#[test]
fn changed_nodes_are_found_by_their_range() {
    assert_eq!(all_are_found(NODES, false), 14);
}

#[test]
fn changed_and_resealed_nodes_are_found_by_their_range() {
    assert_eq!(all_are_found(NODES_RESEALED, true), 21);
}

#[test]
fn changed_answers_are_found_by_their_claim() {
    assert_eq!(all_are_found(ANSWER, false), 7);
}

#[test]
fn changed_and_resealed_answers_are_found_by_their_claim() {
    assert_eq!(all_are_found(ANSWER_RESEALED, true), 29);
}

#[test]
fn the_first_finding_of_a_changed_node_is_what_changed_and_where_it_is() {
    for tamper in NODES_RESEALED {
        let mut artifact = ARTIFACT.clone();
        let place = (tamper.change)(&mut artifact);
        reseal(&mut artifact);
        let report = verify_artifact(&artifact, CORPUS).unwrap();
        assert_eq!(
            report.findings[0].place,
            place,
            "{}: {:?}",
            tamper.name,
            shown(&report)
        );
    }
    let mut artifact = ARTIFACT.clone();
    artifact.nodes[40].node.coverage.counts.units -= 1;
    let report = verify_artifact(&artifact, CORPUS).unwrap();
    let path: Vec<String> = artifact.nodes[40]
        .path
        .iter()
        .map(|range| format!("{}/{}", range.start, range.height))
        .collect();
    let right = format!(
        "node {} (path {}): counts 7 units, its leaves are 8",
        path[3],
        path.join(" > ")
    );
    assert_eq!(shown(&report), [right]);
}

/// Every value in a JSON document, by pointer.
fn pointers(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (key, below) in fields {
                pointers(below, &format!("{at}/{key}"), found);
            }
        }
        Value::Array(items) => {
            for (place, below) in items.iter().enumerate() {
                pointers(below, &format!("{at}/{place}"), found);
            }
        }
        _ => found.push(at.to_owned()),
    }
}

#[test]
fn every_field_of_the_witness_is_derived_again() {
    let witness = serde_json::to_value(&ARTIFACT.witness).unwrap();
    let mut found = Vec::new();
    pointers(&witness, "", &mut found);
    assert!(found.len() > 100);
    for pointer in found {
        let mut changed = witness.clone();
        let value = changed.pointer_mut(&pointer).unwrap();
        *value = match &*value {
            Value::Number(number) => json!(number.as_u64().unwrap() + 1),
            Value::String(text) if text.len() == 64 => json!(OTHER.to_string()),
            Value::String(text) => json!(format!("{text}0")),
            other => panic!("{pointer}: {other}"),
        };
        let mut artifact = ARTIFACT.clone();
        artifact.witness = serde_json::from_value(changed).unwrap();
        let report = verify_artifact(&artifact, CORPUS).unwrap();
        let places: Vec<&Place> = report
            .findings
            .iter()
            .map(|finding| &finding.place)
            .collect();
        assert!(
            places.contains(&&Place::Witness),
            "{pointer}: {:?}",
            shown(&report)
        );
        assert!(
            places.iter().all(|place| **place == Place::Witness),
            "{:?}",
            shown(&report)
        );
    }
}

#[test]
fn what_the_check_says_that_it_read_back_must_be_what_it_drew() {
    let mut artifact = ARTIFACT.clone();
    artifact.witness.audit.audited.pop();
    artifact.witness.dissent.clear();
    artifact.witness.variants.pop();
    let report = verify_artifact(&artifact, CORPUS).unwrap();
    assert_eq!(report.findings.len(), 3, "{:?}", shown(&report));
}
