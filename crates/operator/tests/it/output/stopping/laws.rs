//! On any data: stopping changes no answer that was promised, and every unit ends once.

use std::collections::BTreeSet;

use operator::fact::Status;
use operator::plan::Plan;
use operator::run::RunOutcome;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::script::Setup;
use super::{
    COUNT, HEAD, SET, TOP, claim, findings, go, is_left_out, kept, plan, reader, records,
    stopped_after, threshold,
};

/// Records of all kinds; equal texts and scores among them.
fn any_records(most: usize) -> impl Strategy<Value = Vec<Value>> {
    let word = proptest::sample::select(vec!["good", "bad", "bad", "vague", "broken"]);
    let score = prop_oneof![
        8 => (-4_i64..5).prop_map(|score| json!(score)),
        1 => Just(json!(i64::MIN)),
        1 => Just(json!(i64::MAX)),
        1 => Just(Value::Null),
    ];
    let team = proptest::sample::select(vec!["a", "b"]);
    let kind = proptest::sample::select(vec!["", "", "", "", "old", "sure"]);
    let row = (word, score, team, kind, 0..30_u32);
    proptest::collection::vec(row, 1..most).prop_map(|rows| {
        let rows = rows.into_iter().enumerate();
        rows.map(|(id, (word, score, team, kind, text))| {
            json!({
                // Hashed ids among numbers, so that leaves lie in another order than records.
                "id": if id % 2 == 0 { json!(id) } else { json!(format!("u{id}")) },
                "text": format!("it is {word}, number {text}"),
                "score": score, "team": team, "old": kind == "old", "sure": kind == "sure",
            })
        })
        .collect()
    })
}

fn every_unit_ends_once(outcome: &RunOutcome, records: usize) {
    assert_eq!(outcome.facts.len(), records);
    let ids: BTreeSet<&str> = outcome
        .facts
        .iter()
        .map(|fact| fact.unit_id.as_str())
        .collect();
    assert_eq!(ids.len(), records);
    let counts = outcome.answer.coverage;
    let sum: u64 = Status::ALL.iter().map(|status| counts.of(*status)).sum();
    assert_eq!((sum, counts.units), (records as u64, records as u64));
    for fact in &outcome.facts {
        match fact.status {
            // A predicate says why it decided; a model's decision needs no reason.
            Status::Decided => assert!(!is_left_out(fact)),
            _ => assert!(fact.reason.is_some(), "{fact:?}"),
        }
        if is_left_out(fact) {
            assert!(matches!(fact.status, Status::Cancelled | Status::NotRun));
            assert!(fact.values.is_empty() && fact.backend.is_none());
        }
    }
    let left_out = outcome
        .facts
        .iter()
        .filter(|fact| is_left_out(fact))
        .count();
    assert_eq!(left_out > 0, stopped_after(outcome).is_some());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn the_best_are_the_same_with_and_without_stopping(
        records in any_records(40),
        k in 1..6_u32,
        smallest in any::<bool>(),
        by_team in any::<bool>(),
        by_position in any::<bool>(),
    ) {
        let mut reduce = TOP.replace("k = 3", &format!("k = {k}"));
        if smallest {
            reduce = reduce.replace("largest", "smallest");
        }
        if by_team {
            reduce = reduce.replace("good = \"yes\"", "good = \"yes\", team = \"a\"");
        }
        let mut text = format!("{HEAD}{reduce}");
        if by_position {
            text.push_str("[fold]\nkey = \"ordinal\"\n");
        }
        let whole = Plan::parse(&text, "plan.toml").unwrap();
        text.push_str("[control]\nstop = [{ reduce = \"best\", rule = \"top_k\" }]\n");
        let stopping = Plan::parse(&text, "plan.toml").unwrap();
        let all = go(&whole, &records, &mut reader(), Setup::default());
        let (home, some) = kept(&stopping, &records, None);
        let (right, found) = (claim(&all, "best"), claim(&some, "best"));
        prop_assert_eq!(&right.value, &found.value);
        prop_assert_eq!(&right.cites, &found.cites);
        if stopped_after(&some).is_none() {
            prop_assert_eq!(&right.text, &found.text);
        }
        every_unit_ends_once(&some, records.len());
        prop_assert_eq!(findings(&home), [""; 0]);
    }

    #[test]
    fn a_threshold_never_stops_early_and_never_late(
        records in any_records(40),
        at_least in 1..8_u32,
        limit in proptest::option::of(0..30_u32),
    ) {
        let plan = plan(&[COUNT], &[&threshold(at_least)]);
        let (home, outcome) = kept(&plan, &records, limit);
        let hit = |fact: &&operator::fact::Fact| {
            fact.status == Status::Decided && fact.values["good"].label == "yes"
        };
        let hits: Vec<u32> = outcome.facts.iter().filter(hit).map(|fact| fact.ordinal).collect();
        let before = outcome.facts.iter().filter(hit)
            .filter(|fact| fact.stage.starts_with("prefilter:")).count();
        match stopped_after(&outcome) {
            Some(0) => prop_assert!(before >= at_least as usize),
            Some(_) => prop_assert_eq!(hits.len(), at_least as usize),
            None => prop_assert!(hits.len() <= at_least.max(before as u32) as usize),
        }
        if stopped_after(&outcome).is_some() {
            prop_assert!(outcome.answer.complete);
        }
        every_unit_ends_once(&outcome, records.len());
        prop_assert_eq!(findings(&home), [""; 0]);
    }

    #[test]
    fn any_rules_over_any_data_leave_an_answer_that_verifies(
        records in any_records(60),
        at_least in 1..8_u32,
        k in 1..8_u32,
        looks in proptest::collection::btree_set(1..60_u32, 1..4),
        share in any::<bool>(),
        limit in proptest::option::of(0..60_u32),
    ) {
        let looks: Vec<String> = looks.iter().map(u32::to_string).collect();
        let confidence = format!(
            "{{ reduce = \"many\", rule = \"confidence\", half_width = 0.2, alpha = 0.2, \
             looks = [{}], seed = \"s\" }}",
            looks.join(", ")
        );
        let examples = format!("{{ reduce = \"some\", rule = \"examples\", k = {k} }}");
        let first = if share { confidence } else { threshold(at_least) };
        let plan = plan(&[COUNT, SET], &[&first, &examples]);
        let (home, outcome) = kept(&plan, &records, limit);
        every_unit_ends_once(&outcome, records.len());
        prop_assert_eq!(findings(&home), [""; 0]);
    }
}

#[test]
fn records_of_the_laws_stop_at_all() {
    // The laws would hold of runs that never stop, too.
    let outcome = go(
        &plan(&[COUNT], &[&threshold(2)]),
        &records(40),
        &mut reader(),
        Setup::default(),
    );
    assert!(stopped_after(&outcome).is_some());
}
