//! Pairs that were decided one by one, folded into components; and found pairs held against labelled ones.

use std::collections::BTreeSet;

use operator::Plan;
use operator::eval::{Pairs, evaluate_pairs, read_pairs};
use operator::fact::{Fact, FieldValue, Status};
use operator::id::{ContentHash, UnitId};
use operator::record::read_bytes;
use serde_json::{Value, json};

use super::super::facts::reduced;
use super::{PAIRS, plan_text};

const JOINED: &str =
    "[[reduce]]\nname = \"joined\"\nop = \"components\"\nfield = \"same\"\nlabel = \"yes\"\n";

fn decided(ordinal: u32, members: &[&str], label: &str) -> Fact {
    let (id, hash) = (UnitId::new(&members.join("+")), ContentHash::of_bytes(b"x"));
    let mut fact = Fact::bare(id, ordinal, hash, Status::Decided, "map", None);
    fact.members = members.iter().map(|member| UnitId::new(member)).collect();
    fact.values
        .insert("same".to_owned(), FieldValue::set(label));
    fact
}

fn facts(pairs: &[(&str, &str, &str)]) -> Vec<Fact> {
    (0..)
        .zip(pairs)
        .map(|(ordinal, (one, other, label))| decided(ordinal, &[one, other], label))
        .collect()
}

fn joined(facts: &[Fact], more: &str) -> operator::answer::Claim {
    let text = plan_text(PAIRS, "") + JOINED + more;
    let plan = Plan::parse(&text, "plan.toml").unwrap();
    let claims = reduced(&plan, facts, 3).claims;
    claims
        .into_iter()
        .find(|claim| claim.name == "joined")
        .unwrap()
}

#[test]
fn pairs_that_were_decided_together_are_one_component_and_who_had_it_otherwise_is_named() {
    let mut facts = facts(&[
        ("10", "9", "yes"),
        ("9", "100", "yes"),
        ("10", "100", "no"),
        ("a", "b", "yes"),
        ("b", "9", "no"),
        ("c", "d", "no"),
    ]);
    let mut unsure = decided(6, &["b", "c"], "yes");
    unsure.status = Status::Abstained;
    facts.push(unsure);
    let claim = joined(&facts, "");
    assert_eq!(
        claim.value,
        json!({
            "components": [
                { "count": 3, "pairs": 2, "members": ["9", "10", "100"] },
                { "count": 2, "pairs": 1, "members": ["a", "b"] },
            ],
            "dissent": ["10+100"],
        })
    );
    assert!(claim.text.starts_with(
        "2 components of records joined by same = yes: 9 + 10 + 100, a + b; dissent: 10+100"
    ));
    assert_eq!(
        claim.cites[0].unit_id.as_str(),
        "10+100",
        "dissent is cited first"
    );
    assert_eq!((claim.cites.len(), claim.cites_total), (4, 4));
    let mut reversed: Vec<Fact> = facts.into_iter().rev().collect();
    for (ordinal, fact) in (0..).zip(&mut reversed) {
        fact.ordinal = ordinal;
    }
    assert_eq!(joined(&reversed, "").value, claim.value);
}

#[test]
fn more_members_than_declared_refuse_the_claim_instead_of_cutting_it() {
    let facts = facts(&[("1", "2", "yes"), ("3", "4", "yes"), ("5", "6", "no")]);
    assert_eq!(joined(&facts, "keys_max = 4").refused, None);
    let refused = joined(&facts, "keys_max = 3").refused.unwrap();
    assert!(refused.contains("raise keys_max"), "{refused}");
}

fn pairs(lines: &str) -> Result<Pairs, String> {
    let (_, records, _) = read_bytes("pairs.jsonl", lines.as_bytes(), None).unwrap();
    read_pairs("pairs.jsonl", &records, "number", "duplicateOf").map_err(|error| error.to_string())
}

#[test]
fn labelled_pairs_are_read_once_in_either_direction_and_faults_are_named() {
    let read =
        pairs("{\"number\":2,\"duplicateOf\":[10,\"3\"]}\n{\"number\":10,\"duplicateOf\":2}\n")
            .unwrap();
    let wanted = [("2", "10"), ("2", "3")].map(|(a, b)| (UnitId::new(a), UnitId::new(b)));
    assert_eq!(read, BTreeSet::from(wanted));
    for (lines, problem) in [
        (
            "{\"number\":1,\"duplicateOf\":[1]}",
            "names the record itself",
        ),
        ("{\"number\":1,\"duplicateOf\":[true]}", "that is no id"),
        ("{\"number\":1}", "no record names a partner"),
        ("{\"duplicateOf\":1}", "is missing"),
    ] {
        let told = pairs(lines).unwrap_err();
        assert!(
            told.contains(problem) && told.starts_with("pairs.jsonl"),
            "{told}"
        );
    }
}

#[test]
fn pairs_that_were_found_are_scored_and_records_alone_find_none() {
    let facts = facts(&[("1", "2", "yes"), ("2", "3", "no"), ("4", "5", "yes")]);
    let labelled = pairs("{\"number\":1,\"duplicateOf\":2}\n{\"number\":2,\"duplicateOf\":3}\n{\"number\":9,\"duplicateOf\":1}").unwrap();
    let report = evaluate_pairs(&facts, &labelled, "same", "yes");
    assert_eq!(
        (report.records, report.outside, report.side_by_side),
        (5, 1, 2)
    );
    let pairs = report.pairs;
    assert_eq!((pairs.support, pairs.predicted, pairs.correct), (2, 2, 1));
    assert_eq!(pairs.f1_ppm, Some(500_000));
    let records = report.paired_records;
    assert_eq!(
        (records.support, records.predicted, records.correct),
        (3, 4, 2)
    );
    let alone: Vec<Fact> = ["1", "2", "3", "4", "9"]
        .iter()
        .enumerate()
        .map(|(ordinal, id)| {
            let mut fact = decided(ordinal as u32, &[id], if *id == "3" { "no" } else { "yes" });
            fact.members.clear();
            fact
        })
        .collect();
    let report = evaluate_pairs(&alone, &labelled, "same", "yes");
    assert_eq!((report.outside, report.side_by_side), (0, 0));
    assert_eq!((report.pairs.predicted, report.pairs.f1_ppm), (0, Some(0)));
    let records = report.paired_records;
    assert_eq!(
        (records.support, records.predicted, records.correct),
        (4, 4, 3)
    );
    let shown: Value = serde_json::to_value(&report).unwrap();
    assert_eq!(shown["units"], json!({ "decided": 5 }));
    assert!(report.to_string().contains("records in pairs"), "{report}");
}
