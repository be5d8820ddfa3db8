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

const FACTS: &[Tamper] = tampers! {
    "a fact is left out" => |artifact| unit(&artifact.facts.remove(999)),
    "a fact is there twice" => |artifact| {
        let twice = artifact.facts[5].clone();
        artifact.facts.push(twice);
        unit(&artifact.facts[5])
    },
    "two facts change places" => |artifact| {
        artifact.facts.swap(5, 6);
        unit(&artifact.facts[5])
    },
    "an ordinal" => |artifact| {
        artifact.facts[7].ordinal = 2_000;
        unit(&artifact.facts[7])
    },
    "a schema" => |artifact| {
        artifact.facts[7].schema = 1;
        unit(&artifact.facts[7])
    },
    "a status" => |artifact| {
        let at = decided(artifact);
        artifact.facts[at].status = Status::Abstained;
        unit(&artifact.facts[at])
    },
    "a quote, its hash left" => |artifact| {
        let at = decided(artifact);
        artifact.facts[at].evidence[0].quote = Some(String::from("never written"));
        unit(&artifact.facts[at])
    },
    "a source hash" => |artifact| {
        artifact.facts[3].source_hash = OTHER;
        unit(&artifact.facts[3])
    },
    "a label" => |artifact| {
        let at = decided(artifact);
        artifact.facts[at].values.get_mut("blocker").unwrap().label = "maybe".to_owned();
        unit(&artifact.facts[at])
    },
    "a reason" => |artifact| {
        let at = find(artifact, |fact| fact.status == Status::Excluded);
        artifact.facts[at].reason = Some(String::from("nobody cares"));
        unit(&artifact.facts[at])
    },
    "a cost" => |artifact| {
        let at = decided(artifact);
        artifact.facts[at].cost.computed_tokens += 1;
        unit(&artifact.facts[at])
    },
    "a fact called remembered" => |artifact| {
        let at = decided(artifact);
        artifact.facts[at].remembered = true;
        unit(&artifact.facts[at])
    },
};

const FACTS_RESEALED: &[Tamper] = tampers! {
    "a source hash" => |artifact| {
        artifact.facts[3].source_hash = OTHER;
        unit(&artifact.facts[3])
    },
    "a quote with its hash" => |artifact| {
        let at = decided(artifact);
        let evidence = &mut artifact.facts[at].evidence[0];
        let quote = "x".repeat(evidence.quote.as_ref().unwrap().len());
        evidence.quote_hash = ContentHash::of_bytes(quote.as_bytes());
        evidence.quote = Some(quote);
        unit(&artifact.facts[at])
    },
    "a quote hash where the quote is redacted" => |artifact| {
        let at = decided(artifact);
        let evidence = &mut artifact.facts[at].evidence[0];
        evidence.quote_hash = OTHER;
        evidence.quote = None;
        unit(&artifact.facts[at])
    },
    "a span moved past its field" => |artifact| {
        let at = decided(artifact);
        let evidence = &mut artifact.facts[at].evidence[0];
        (evidence.start, evidence.end) = (evidence.start + 70_000, evidence.end + 70_000);
        unit(&artifact.facts[at])
    },
    "a span whose end is before its start" => |artifact| {
        let at = decided(artifact);
        let evidence = &mut artifact.facts[at].evidence[0];
        (evidence.start, evidence.end) = (9, 1);
        unit(&artifact.facts[at])
    },
    "a unit that no record is" => |artifact| {
        artifact.facts[9].unit_id = UnitId::new("999999");
        unit(&artifact.facts[9])
    },
    "an abstention called decided" => |artifact| {
        let at = find(artifact, |fact| fact.status == Status::Abstained);
        artifact.facts[at].status = Status::Decided;
        artifact.facts[at].reason = None;
        unit(&artifact.facts[at])
    },
    "a decision excluded by a predicate that does not match" => |artifact| {
        let at = decided(artifact);
        let fact = &mut artifact.facts[at];
        *fact = Fact {
            status: Status::Excluded,
            stage: String::from("prefilter:closed"),
            reason: Some(String::from("the issue is closed")),
            values: Default::default(),
            evidence: Vec::new(),
            simulated: false,
            backend: None,
            ..fact.clone()
        };
        unit(&artifact.facts[at])
    },
    "a decision of a model called that of a predicate" => |artifact| {
        let at = decided(artifact);
        artifact.facts[at].stage = String::from("prefilter:closed");
        unit(&artifact.facts[at])
    },
    "a simulated answer called real" => |artifact| {
        let at = decided(artifact);
        artifact.facts[at].simulated = false;
        unit(&artifact.facts[at])
    },
    "another backend" => |artifact| {
        let at = decided(artifact);
        artifact.facts[at].backend = Some(String::from("somebody"));
        unit(&artifact.facts[at])
    },
    "a column that the plan does not have" => |artifact| {
        let value = ColumnValue::Integer(3);
        artifact.facts[3].columns.insert(String::from("votes"), value);
        unit(&artifact.facts[3])
    },
    "a probability" => |artifact| {
        let at = decided(artifact);
        let value = artifact.facts[at].values.get_mut("blocker").unwrap();
        value.probability_ppm = Some(1_000_000);
        unit(&artifact.facts[at])
    },
    "a record called unreadable" => |artifact| {
        let fact = &mut artifact.facts[11];
        *fact = Fact::bare(
            fact.unit_id.clone(), fact.ordinal, fact.source_hash, Status::Errored, "partition",
            Some(String::from("malformed: element 12: it is cut off")),
        );
        unit(&artifact.facts[11])
    },
};

const NODES: &[Tamper] = tampers! {
    "a node is left out" => |artifact| {
        let place = node(artifact, 30);
        artifact.nodes.remove(30);
        place
    },
    "a node is there twice" => |artifact| {
        let twice = artifact.nodes[30].clone();
        artifact.nodes.insert(31, twice);
        node(artifact, 30)
    },
    "a node too many" => |artifact| {
        let mut more = artifact.nodes[30].clone();
        more.node.range.start = LeafKey::of_ordinal(80_000);
        more.path.pop();
        more.path.push(more.node.range);
        artifact.nodes.push(more);
        node(artifact, artifact.nodes.len() - 1)
    },
    "nodes change places" => |artifact| {
        let place = node(artifact, 40);
        artifact.nodes.swap(30, 40);
        place
    },
    "the hash of an input" => |artifact| {
        if let Child::Leaf { hashes, .. } = &mut artifact.nodes[40].node.children[2] {
            hashes.fact_hash = OTHER;
        }
        node(artifact, 40)
    },
    "its own hash" => |artifact| {
        artifact.nodes[40].node.hashes.fact_hash = OTHER;
        node(artifact, 40)
    },
    "its own provenance hash" => |artifact| {
        artifact.nodes[40].node.hashes.provenance_hash = OTHER;
        node(artifact, 40)
    },
    "a path" => |artifact| {
        let place = node(artifact, 40);
        artifact.nodes[40].path.remove(0);
        place
    },
    "a state" => |artifact| {
        let row = citing(artifact);
        match &mut artifact.nodes[row].node.states[1] {
            AggregateState::Count(units) => units.total ^= 1,
            other => panic!("{other:?}"),
        }
        node(artifact, row)
    },
    "the span of a citation" => |artifact| {
        let row = citing(artifact);
        artifact.nodes[row].citations[0].span.as_mut().unwrap().end += 1;
        node(artifact, row)
    },
    "the source hash of a citation" => |artifact| {
        let row = citing(artifact);
        artifact.nodes[row].citations[0].source_hash = OTHER;
        node(artifact, row)
    },
    "a citation is left out" => |artifact| {
        let row = citing(artifact);
        artifact.nodes[row].citations.pop();
        node(artifact, row)
    },
    "a cost" => |artifact| {
        artifact.nodes[2].node.cost.prompt_tokens += 1;
        node(artifact, 2)
    },
};

const NODES_RESEALED: &[Tamper] = tampers! {
    "two inputs change places" => |artifact| {
        artifact.nodes[40].node.children.swap(1, 2);
        node(artifact, 40)
    },
    "an input is left out" => |artifact| {
        artifact.nodes[40].node.children.pop();
        node(artifact, 40)
    },
    "more inputs than the plan allows" => |artifact| {
        let row = artifact.nodes.iter().position(|record| record.node.children.len() == 8);
        let row = row.unwrap();
        let more = artifact.nodes[row].node.children[7].clone();
        artifact.nodes[row].node.children.push(more);
        node(artifact, row)
    },
    "an input of another unit" => |artifact| {
        if let Child::Leaf { unit, .. } = &mut artifact.nodes[40].node.children[2] {
            unit.id = UnitId::new("999999");
        }
        node(artifact, 40)
    },
    "where its range starts" => |artifact| {
        let place = node(artifact, 40);
        artifact.nodes[40].node.range.start = LeafKey::of_ordinal(80_000);
        place
    },
    "the height of its range" => |artifact| {
        let place = node(artifact, 40);
        artifact.nodes[40].node.range.height = 9;
        place
    },
    "how many units it counts" => |artifact| {
        artifact.nodes[40].node.coverage.counts.units -= 1;
        node(artifact, 40)
    },
    "how its units ended" => |artifact| {
        let counts = &mut artifact.nodes[0].node.coverage.counts;
        counts.abstained -= 1;
        counts.decided += 1;
        node(artifact, 0)
    },
    "its first unit" => |artifact| {
        let coverage = &mut artifact.nodes[40].node.coverage;
        coverage.first.clone_from(&coverage.last);
        node(artifact, 40)
    },
    "its last unit" => |artifact| {
        artifact.nodes[40].node.coverage.last = None;
        node(artifact, 40)
    },
    "an abstaining unit dropped from what is unsettled" => |artifact| {
        let row = holder(artifact, &artifact.witness.abstained[0].clone());
        artifact.nodes[row].node.unsettled.best.clear();
        node(artifact, row)
    },
    "an abstaining unit dropped from the outliers" => |artifact| {
        let row = holder(artifact, &artifact.witness.abstained[0].clone());
        match &mut artifact.nodes[row].node.states[0] {
            AggregateState::Clusters(held) => held.abstained.best.clear(),
            other => panic!("{other:?}"),
        }
        node(artifact, row)
    },
    "a dissenting unit dropped from the outliers" => |artifact| {
        let row = holder(artifact, &artifact.witness.dissent[0].clone());
        match &mut artifact.nodes[row].node.states[0] {
            AggregateState::Clusters(held) => held.dissent = Default::default(),
            other => panic!("{other:?}"),
        }
        node(artifact, row)
    },
    "a count in a state" => |artifact| {
        let row = citing(artifact);
        match &mut artifact.nodes[row].node.states[1] {
            AggregateState::Count(units) => units.total += 1,
            other => panic!("{other:?}"),
        }
        node(artifact, row)
    },
    "states change places" => |artifact| {
        artifact.nodes[0].node.states.swap(1, 2);
        node(artifact, 0)
    },
    "a state is left out" => |artifact| {
        artifact.nodes[0].node.states.pop();
        node(artifact, 0)
    },
    "a unit cited that is none" => |artifact| {
        let row = citing(artifact);
        artifact.nodes[row].citations[0].unit_id = UnitId::new("999999");
        node(artifact, row)
    },
    "a cited unit is left out" => |artifact| {
        let row = citing(artifact);
        artifact.nodes[row].citations.pop();
        node(artifact, row)
    },
    "cited units change places" => |artifact| {
        let row = citing(artifact);
        artifact.nodes[row].citations.swap(0, 1);
        node(artifact, row)
    },
    "how many could be cited" => |artifact| {
        artifact.nodes[0].node.cited_total += 1;
        node(artifact, 0)
    },
    "a version" => |artifact| {
        artifact.nodes[40].node.version = 2;
        node(artifact, 40)
    },
};

const ANSWER: &[Tamper] = tampers! {
    "result_hash" => |artifact| {
        artifact.answer.result_hash = OTHER;
        Place::Answer
    },
    "the hash of the tree" => |artifact| {
        artifact.answer.tree.as_mut().unwrap().hashes.fact_hash = OTHER;
        Place::Answer
    },
    "who answered" => |artifact| {
        artifact.answer.backend.digest = OTHER;
        Place::Answer
    },
    "a quote of a claim" => |artifact| {
        let span = claim_mut(artifact, "blockers").cites[0].span.as_mut();
        span.unwrap().quote = Some(String::from("never written"));
        claim("blockers")
    },
    "the format" => |artifact| {
        artifact.format = String::from("provenance fold v0");
        artifact_file()
    },
    "the plan" => |artifact| {
        artifact.plan = artifact.plan.replace("k = 3", "k = 2");
        artifact_file()
    },
    "the hash of the records" => |artifact| {
        artifact.source_hash = OTHER;
        artifact_file()
    },
};

const ANSWER_RESEALED: &[Tamper] = tampers! {
    "a value" => |artifact| {
        let claim_of = claim_mut(artifact, "blockers");
        claim_of.value = json!(claim_of.value.as_u64().unwrap() + 1);
        claim("blockers")
    },
    "a number in a text" => |artifact| {
        let claim_of = claim_mut(artifact, "blockers");
        claim_of.text = format!("9{}", claim_of.text);
        claim("blockers")
    },
    "a word in a text" => |artifact| {
        let claim_of = claim_mut(artifact, "blockers");
        claim_of.text = claim_of.text.replace(" are release", " are no release");
        claim("blockers")
    },
    "an exemplar" => |artifact| {
        let value = &mut claim_mut(artifact, "causes").value;
        value["clusters"][0]["exemplars"][0] = json!("999999");
        claim("causes")
    },
    "a dissenting unit dropped" => |artifact| {
        claim_mut(artifact, "causes").value["dissent"] = json!([]);
        claim("causes")
    },
    "a cite is left out" => |artifact| {
        claim_mut(artifact, "causes").cites.remove(3);
        claim("causes")
    },
    "a cite of another unit" => |artifact| {
        let other = claim_mut(artifact, "causes").cites[4].clone();
        claim_mut(artifact, "blockers").cites[0] = other;
        claim("blockers")
    },
    "a cite of a unit that is none" => |artifact| {
        claim_mut(artifact, "blockers").cites[0].unit_id = UnitId::new("999999");
        claim("blockers")
    },
    "the span of a cite" => |artifact| {
        let span = claim_mut(artifact, "blockers").cites[0].span.as_mut();
        span.unwrap().start += 1;
        claim("blockers")
    },
    "cites change places" => |artifact| {
        claim_mut(artifact, "causes").cites.swap(0, 1);
        claim("causes")
    },
    "how many could be cited" => |artifact| {
        claim_mut(artifact, "causes").cites_total -= 1;
        claim("causes")
    },
    "a refusal" => |artifact| {
        claim_mut(artifact, "surest").refused = Some(String::from("too many"));
        claim("surest")
    },
    "a claim is left out" => |artifact| {
        claim(&artifact.answer.claims.remove(2).name)
    },
    "a claim too many" => |artifact| {
        let mut more = artifact.answer.claims[1].clone();
        more.name = String::from("praise");
        artifact.answer.claims.push(more);
        claim("praise")
    },
    "a claim is there twice" => |artifact| {
        let twice = artifact.answer.claims[1].clone();
        artifact.answer.claims.push(twice);
        claim("blockers")
    },
    "claims change places" => |artifact| {
        artifact.answer.claims.swap(1, 3);
        claim("blockers")
    },
    "coverage" => |artifact| {
        artifact.answer.coverage.excluded -= 1;
        artifact.answer.coverage.decided += 1;
        Place::Answer
    },
    "coverage by reason" => |artifact| {
        artifact.answer.coverage_by_reason.swap(0, 1);
        Place::Answer
    },
    "complete" => |artifact| {
        artifact.answer.complete = false;
        Place::Answer
    },
    "simulated" => |artifact| {
        artifact.answer.simulated = false;
        Place::Answer
    },
    "simulated, and so the backend" => |artifact| {
        artifact.answer.simulated = false;
        artifact.answer.backend.simulated = false;
        let at = decided(artifact);
        unit(&artifact.facts[at])
    },
    "the question" => |artifact| {
        artifact.answer.question.push('?');
        Place::Answer
    },
    "the plan's hash" => |artifact| {
        artifact.answer.plan_hash = OTHER;
        Place::Answer
    },
    "the source's hash" => |artifact| {
        artifact.answer.source.hash = OTHER;
        Place::Answer
    },
    "how many records there are" => |artifact| {
        artifact.answer.source.records = 999;
        Place::Answer
    },
    "the levels of the tree" => |artifact| {
        artifact.answer.tree.as_mut().unwrap().levels = 3;
        Place::Answer
    },
    "the width of the tree" => |artifact| {
        artifact.answer.tree.as_mut().unwrap().fan_in = 13;
        Place::Answer
    },
    "no tree" => |artifact| {
        artifact.answer.tree = None;
        Place::Answer
    },
    "a version" => |artifact| {
        artifact.answer.version = 1;
        Place::Answer
    },
};

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
    assert_eq!(all_are_found(NODES, false), 13);
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
