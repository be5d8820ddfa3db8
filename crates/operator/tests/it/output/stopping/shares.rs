//! Shares from random samples: the order is drawn, looks are set before, and the interval holds.

use operator::fact::Status;
use serde_json::{Value, json};

use super::super::script::Setup;
use super::{COUNT, claim, findings, go, kept, plan, reader, record, records, stopped_after};

fn rule(half_width: &str, looks: &str, seed: &str) -> String {
    format!(
        "{{ reduce = \"many\", rule = \"confidence\", half_width = {half_width}, alpha = 0.1, \
         looks = {looks}, seed = \"{seed}\" }}"
    )
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap()
}

#[test]
fn a_share_is_an_interval_at_the_first_look_that_is_narrow_enough() {
    let plan = plan(&[COUNT], &[&rule("0.08", "[50, 100, 200, 300]", "s")]);
    let records = records(900);
    let mut reader = reader();
    let outcome = go(&plan, &records, &mut reader, Setup::default());
    let asked = stopped_after(&outcome).unwrap();
    assert!([100, 200, 300].contains(&asked), "{asked}");
    assert_eq!(
        reader.shown.len() as u64,
        asked,
        "nothing beyond the look is asked"
    );
    let decided = with_decided(&outcome.facts);
    assert_ne!(
        decided,
        (0..asked as u32).collect::<Vec<_>>(),
        "the order is drawn"
    );
    let many = claim(&outcome, "many");
    let (low, high) = (number(&many.value, "low"), number(&many.value, "high"));
    assert!((low..=high).contains(&300), "{low} to {high}");
    let width = number(&many.value, "high_ppm") - number(&many.value, "low_ppm");
    assert!(width <= 160_000, "{width}");
    assert!(
        many.text.contains("of 900 units have good = yes"),
        "{}",
        many.text
    );
    assert!(many.text.contains("90 % confidence"), "{}", many.text);
    assert!(outcome.answer.complete);
    let (home, again) = kept(&plan, &records, None);
    assert_eq!(findings(&home), [""; 0]);
    assert_eq!(again.answer, outcome.answer);
}

fn with_decided(facts: &[operator::fact::Fact]) -> Vec<u32> {
    let decided = facts.iter().filter(|fact| fact.status == Status::Decided);
    decided.map(|fact| fact.ordinal).collect()
}

#[test]
fn a_share_that_stays_too_wide_is_counted_to_the_end_and_is_then_exact() {
    let plan = plan(&[COUNT], &[&rule("0.01", "[10, 20]", "s")]);
    let (home, outcome) = kept(&plan, &records(60), None);
    assert_eq!(findings(&home), [""; 0]);
    assert_eq!(stopped_after(&outcome), None);
    let value = &claim(&outcome, "many").value;
    assert_eq!((number(value, "low"), number(value, "high")), (20, 20));
    assert_eq!(number(value, "sample"), 60);
}

#[test]
fn units_without_a_decision_widen_the_interval_both_ways() {
    let plan = plan(&[COUNT], &[&rule("0.01", "[10, 20]", "s")]);
    let words = ["good", "bad", "vague", "broken"];
    let records: Vec<Value> = (0..40)
        .map(|id| record(id, words[id as usize % 4]))
        .collect();
    let (home, outcome) = kept(&plan, &records, None);
    assert_eq!(findings(&home), [""; 0]);
    let value = &claim(&outcome, "many").value;
    assert_eq!((number(value, "low"), number(value, "high")), (10, 30));
    assert_eq!(number(value, "unknown"), 20);
}

#[test]
fn a_run_that_ends_before_the_first_look_claims_nothing() {
    let plan = plan(&[COUNT], &[&rule("0.1", "[30]", "s")]);
    let (home, outcome) = kept(&plan, &records(60), Some(29));
    assert_eq!(findings(&home), [""; 0]);
    let many = claim(&outcome, "many");
    assert_eq!(many.value, json!(null));
    assert!(many.refused.as_ref().unwrap().contains("first look"));
    assert!(!outcome.answer.complete);
    // From the first look on, the latest interval stands, and is not complete.
    let (home, outcome) = kept(&plan, &records(60), Some(45));
    assert_eq!(findings(&home), [""; 0]);
    assert_eq!(number(&claim(&outcome, "many").value, "sample"), 30);
    assert!(!outcome.answer.complete);
}

#[test]
fn over_many_seeds_the_share_lies_outside_no_more_often_than_declared() {
    let records = records(300);
    let seeds = 200;
    let misses = (0..seeds).filter(|seed| {
        let plan = plan(
            &[COUNT],
            &[&rule("0.09", "[20, 40, 80, 160]", &seed.to_string())],
        );
        let outcome = go(&plan, &records, &mut reader(), Setup::default());
        let value = claim(&outcome, "many").value.clone();
        !(number(&value, "low")..=number(&value, "high")).contains(&100)
    });
    let misses = misses.count();
    assert!(misses * 10 <= seeds, "{misses} of {seeds} with alpha = 0.1");
}
