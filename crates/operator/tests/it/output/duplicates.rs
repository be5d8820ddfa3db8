//! Units of equal text: asked once, answered all, counted apart, and each with a fact of its own.

use operator::event::Event;
use operator::fact::{Fact, Status};
use operator::infer::FailReason;
use operator::ops::Partition;
use operator::run::RunOutcome;
use operator::store::{MemoryStore, Store};
use serde_json::json;

use super::script::{Act, Script, Setup, plan, run_with, units};

/// Records by number and title; equal titles make equal texts, whatever else differs.
fn records(titles: &[(u32, &str)]) -> Partition {
    let record = |(number, title): &(u32, &str)| {
        json!({
            "number": number, "state": "open", "tag": format!("tag {number}"),
            "title": title, "body": "Token expires.\nThen it ends.",
        })
    };
    let records: Vec<_> = titles.iter().map(record).collect();
    units(&plan(), &records)
}

const TITLES: [(u32, &str); 6] = [
    (5, "login"),
    (2, "logout"),
    (7, "login"),
    (1, "other"),
    (3, "login"),
    (4, "logout"),
];

fn run(script: &mut Script, store: Option<&dyn Store>) -> RunOutcome {
    let setup = Setup {
        memo: store,
        ..Setup::default()
    };
    let (outcome, events) = run_with(&plan(), &records(&TITLES), script, setup).unwrap();
    let told = events.iter().find_map(|line| match line.event {
        Event::MapStarted { duplicates, .. } => Some(duplicates),
        _ => None,
    });
    let remembered = outcome.usage.remembered_units > 0;
    let waiting = if remembered {
        0
    } else {
        outcome.usage.duplicate_units
    };
    assert_eq!(told, Some(waiting));
    outcome
}

fn find<'o>(outcome: &'o RunOutcome, id: &str) -> &'o Fact {
    let mut facts = outcome.facts.iter();
    facts.find(|fact| fact.unit_id.as_str() == id).unwrap()
}

fn same_as(outcome: &RunOutcome) -> Vec<(&str, Option<&str>)> {
    let facts = outcome.facts.iter();
    facts
        .map(|fact| {
            let same = fact.same_as.as_ref().map(|unit| unit.as_str());
            (fact.unit_id.as_str(), same)
        })
        .collect()
}

const SHARED: [(&str, Option<&str>); 6] = [
    ("5", None),
    ("2", None),
    ("7", Some("5")),
    ("1", None),
    ("3", Some("5")),
    ("4", Some("2")),
];

#[test]
fn equal_texts_are_asked_once_and_each_unit_has_its_own_fact() {
    let mut script = Script::new();
    let outcome = run(&mut script, None);
    assert_eq!(script.asked_last(), ["5", "2", "1"]);
    assert_eq!(same_as(&outcome), SHARED);
    assert_eq!(outcome.usage.duplicate_units, 3);
    assert_eq!(outcome.usage.job.prompt_tokens, 3 * 50);
    assert_eq!(outcome.usage.tokens_as_if_uncached, 6 * 50);
    assert_eq!(outcome.answer.coverage.decided, 6);
    let (first, again) = (find(&outcome, "5"), find(&outcome, "7"));
    assert_eq!(first.values, again.values);
    assert_eq!(
        (first.cost.prompt_tokens, again.cost.prompt_tokens),
        (50, 0)
    );
    assert_ne!(first.source_hash, again.source_hash);
    let quote = |fact: &Fact| fact.evidence[0].quote.clone();
    assert_eq!(quote(first), quote(again));
}

#[test]
fn the_answer_is_that_of_a_run_that_asks_every_unit() {
    let together = run(&mut Script::new(), None);
    for (number, title) in TITLES {
        let alone = records(&[(number, title)]);
        let (alone, _) = run_with(&plan(), &alone, &mut Script::new(), Setup::default()).unwrap();
        let fact = find(&together, &number.to_string());
        assert_eq!(alone.facts[0].fact_hash(), fact.fact_hash());
        assert_eq!(alone.facts[0].provenance_hash(), fact.provenance_hash());
    }
}

#[test]
fn a_remembered_text_serves_all_of_its_units() {
    let store = MemoryStore::new();
    let first = run(&mut Script::new(), Some(&store));
    let mut script = Script::new();
    let again = run(&mut script, Some(&store));
    assert!(script.asked.is_empty());
    assert_eq!(same_as(&again), SHARED);
    assert_eq!(
        (again.usage.remembered_units, again.usage.duplicate_units),
        (6, 3)
    );
    assert_eq!(again.answer.result_hash, first.answer.result_hash);
    assert_eq!(again.answer.tree, first.answer.tree);
    let costs = |outcome: &RunOutcome| -> u64 {
        outcome
            .facts
            .iter()
            .map(|fact| fact.cost.prompt_tokens)
            .sum()
    };
    assert_eq!((costs(&first), costs(&again)), (150, 150));
}

#[test]
fn what_befalls_the_unit_that_is_asked_befalls_its_equals() {
    for (act, status) in [
        (Act::Fail(FailReason::Truncated), Status::Errored),
        (Act::Misshapen, Status::Errored),
        (Act::Doubt, Status::Abstained),
        (Act::Cancel, Status::Cancelled),
        (Act::Skip, Status::NotRun),
    ] {
        let outcome = run(&mut Script::with([(5, act)]), None);
        for id in ["5", "7", "3"] {
            assert_eq!(find(&outcome, id).status, status, "{id}");
        }
        assert_eq!(outcome.answer.coverage.decided, 3);
    }
    let mut lost = Script {
        break_after: Some(1),
        ..Script::new()
    };
    let outcome = run(&mut lost, None);
    let decided = ["5", "7", "3"].map(|id| find(&outcome, id).status);
    assert_eq!(decided, [Status::Decided; 3]);
    let left = ["2", "4", "1"].map(|id| find(&outcome, id).status);
    assert_eq!(left, [Status::NotRun; 3]);
}

#[test]
fn a_recording_is_asked_for_every_unit() {
    let mut script = Script::new();
    script.identity.simulated = true;
    let outcome = run(&mut script, None);
    assert_eq!(script.asked_last().len(), 6);
    assert_eq!(outcome.usage.duplicate_units, 0);
}
