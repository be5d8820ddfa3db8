//! The laws of the fold over random facts: every reducer, every order, every shape of tree.

use operator::OperatorError;
use operator::coverage::{Coverage, Covered};
use operator::fact::{Fact, Status};
use operator::fold::{Leaves, NodeRecord, Reducer, StoredStates, record_nodes};
use operator::id::ContentHash;
use operator::ops::reduce::spec;
use operator::reducers::{Aggregate, AggregateState};
use proptest::prelude::*;
use serde_json::Value;

use super::facts::{Draw, every_operation, fact, facts, folded, reduced, shuffled, spec_of};

fn combine(reducer: &Aggregate, facts: &[Fact]) -> AggregateState {
    let spec = spec(&every_operation());
    let mut state = reducer.empty();
    for fact in facts {
        reducer.absorb(&mut state, &spec.place(fact), fact);
    }
    state
}

fn merge(reducer: &Aggregate, left: &AggregateState, right: &AggregateState) -> AggregateState {
    let mut merged = left.clone();
    reducer.merge(&mut merged, right);
    merged
}

/// A value as it comes out of the JSON that it went into.
fn read_back<T: serde::Serialize + serde::de::DeserializeOwned>(
    value: &T,
) -> Result<T, TestCaseError> {
    let json = serde_json::to_vec(value).unwrap();
    serde_json::from_slice(&json).map_err(|error| TestCaseError::fail(error.to_string()))
}

/// Counters past their number depend on the tree's shape; their answer does not.
fn shows_shape(reducer: &Aggregate) -> bool {
    matches!(reducer, Aggregate::HeavyHitters(_))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn merge_is_associative_and_commutative_with_a_neutral_element(
        facts in facts(70), a in 0..70_usize, b in 0..70_usize,
    ) {
        let (a, b) = (a.min(facts.len()), b.min(facts.len()));
        let (low, high) = (a.min(b), a.max(b));
        for reducer in spec(&every_operation()).reducers {
            let x = combine(&reducer, &facts[..low]);
            let y = combine(&reducer, &facts[low..high]);
            let z = combine(&reducer, &facts[high..]);
            let op = reducer.op();
            prop_assert_eq!(&merge(&reducer, &x, &reducer.empty()), &x, "{}", op);
            prop_assert_eq!(&merge(&reducer, &reducer.empty(), &x), &x, "{}", op);
            prop_assert_eq!(merge(&reducer, &x, &y), merge(&reducer, &y, &x), "{}", op);
            if shows_shape(&reducer) {
                continue;
            }
            let left = merge(&reducer, &merge(&reducer, &x, &y), &z);
            let right = merge(&reducer, &x, &merge(&reducer, &y, &z));
            prop_assert_eq!(&left, &right, "{}", op);
            prop_assert_eq!(&left, &combine(&reducer, &facts), "{}", op);
        }
    }

    #[test]
    fn absorbing_is_merging_a_lifted_fact_and_what_is_not_selected_changes_nothing(
        facts in facts(30),
    ) {
        let spec = spec(&every_operation());
        for reducer in &spec.reducers {
            let mut state = reducer.empty();
            for fact in &facts {
                let before = state.clone();
                let selected = reducer.absorb(&mut state, &spec.place(fact), fact);
                let lifted = combine(reducer, std::slice::from_ref(fact));
                prop_assert_eq!(&merge(reducer, &before, &lifted), &state, "{}", reducer.op());
                prop_assert_eq!(selected, lifted != reducer.empty(), "{}", reducer.op());
            }
        }
    }

    #[test]
    fn neither_order_nor_shape_of_the_tree_shows((facts, shuffled) in shuffled(90), fan_in in 2..=16_u32) {
        let plan = every_operation();
        let one = reduced(&plan, &facts, 8);
        let other = reduced(&plan, &shuffled, fan_in);
        prop_assert_eq!(one.claims, other.claims);
        prop_assert_eq!(one.counts, other.counts);
        let sum: u64 = Status::ALL.iter().map(|status| one.counts.of(*status)).sum();
        prop_assert_eq!(sum, facts.len() as u64);
        prop_assert_eq!(one.counts.units, facts.len() as u64);
        for ((a, b), reducer) in one.root.iter().flat_map(|root| &root.states)
            .zip(other.root.iter().flat_map(|root| &root.states))
            .zip(spec(&plan).reducers)
        {
            if !shows_shape(&reducer) {
                prop_assert_eq!(a, b);
            }
        }
    }

    #[test]
    fn every_frequent_key_survives_any_tree_with_its_exact_count(
        (facts, shuffled) in shuffled(90), fan_in in 2..=16_u32,
    ) {
        let plan = every_operation();
        let mut counts = std::collections::BTreeMap::new();
        let mut total = 0;
        for fact in facts.iter().filter(|fact| fact.status == Status::Decided) {
            if let Some(author) = fact.columns.get("author") {
                total += 1;
                *counts.entry(serde_json::to_value(author).unwrap().as_str().unwrap().to_owned())
                    .or_insert(0_u64) += 1;
            }
        }
        counts.retain(|_, count| *count * 3 > total);
        let claims = reduced(&plan, &shuffled, fan_in).claims;
        let claim = claims.iter().find(|claim| claim.name == "frequent").unwrap();
        let found: std::collections::BTreeMap<String, u64> = claim.value.as_array().unwrap()
            .iter()
            .map(|row| (row["label"].as_str().unwrap().to_owned(), row["count"].as_u64().unwrap()))
            .collect();
        prop_assert_eq!(found, counts);
    }

    #[test]
    fn every_state_and_every_node_is_read_back_as_it_was_written(
        facts in facts(60), fan_in in 2..=16_u32,
    ) {
        let spec = spec_of(&every_operation(), fan_in);
        let (root, nodes) = folded(&spec, &facts);
        for node in &nodes {
            let stored = StoredStates {
                states: node.states.clone(),
                unsettled: node.unsettled.clone(),
                cited_total: node.cited_total,
            };
            let read: StoredStates = read_back(&stored)?;
            for ((read, stored), reducer) in read.states.iter().zip(&stored.states).zip(&spec.reducers) {
                prop_assert_eq!(read, stored, "{}", reducer.op());
            }
            prop_assert_eq!(read, stored);
        }
        if let Some(root) = root {
            let leaves = Leaves::arrange(&spec, &facts).unwrap();
            for record in record_nodes(&root, nodes, &leaves).unwrap() {
                prop_assert_eq!(read_back::<NodeRecord>(&record)?, record);
            }
        }
    }

    #[test]
    fn a_unit_delivered_again_is_refused_by_name(
        facts in facts(70).prop_filter("needs a fact", |facts| !facts.is_empty()),
        pick in any::<prop::sample::Index>(),
        fan_in in 2..=16_u32,
    ) {
        let twice = pick.get(&facts).clone();
        let unit = twice.unit_id.to_string();
        let mut facts = facts;
        facts.push(twice);
        let spec = spec_of(&every_operation(), fan_in);
        match Leaves::arrange(&spec, &facts) {
            Err(OperatorError::CoverageOverlap { unit_id }) => prop_assert_eq!(unit_id, unit),
            other => prop_assert!(false, "{:?}", other.map(|leaves| leaves.len())),
        }
    }

    #[test]
    fn every_node_counts_exactly_its_leaves_and_no_node_is_wider_than_declared(
        facts in facts(200), fan_in in 2..=16_u32,
    ) {
        let spec = spec_of(&every_operation(), fan_in);
        let (root, nodes) = folded(&spec, &facts);
        prop_assert_eq!(root.map_or(0, |root| root.coverage.counts.units), facts.len() as u64);
        for node in &nodes {
            prop_assert!(node.children.len() <= fan_in as usize);
            prop_assert!(node.children.len() >= 2 || facts.len() == 1);
            let below: Vec<&Fact> = facts
                .iter()
                .filter(|fact| node.range.holds(spec.place(fact).key, fan_in))
                .collect();
            prop_assert_eq!(below.len() as u64, node.coverage.counts.units);
            for status in Status::ALL {
                let count = below.iter().filter(|fact| fact.status == status).count();
                prop_assert_eq!(count as u64, node.coverage.counts.of(status));
            }
            let tokens: u64 = below.iter().map(|fact| fact.cost.prompt_tokens).sum();
            prop_assert_eq!(tokens, node.cost.prompt_tokens);
        }
    }
}

#[test]
fn coverage_joins_only_what_comes_after_it() {
    let spec = spec(&every_operation());
    let draw = Draw {
        status: 1,
        tenths: 10,
        cause: 0,
        certain: true,
        comments: None,
        author: 0,
    };
    let unit = |id: &str| spec.place(&fact(id, 0, &draw));
    let (three, four, five) = (unit("3"), unit("4"), unit("5"));
    let join = |parts: &[Covered<'_>]| Coverage::join(parts.iter().copied());
    let covered = join(&[
        Covered::Unit(&three, Status::Decided),
        Covered::Unit(&five, Status::Errored),
    ])
    .unwrap();
    assert_eq!((covered.counts.units, covered.counts.errored), (2, 1));
    assert_eq!(
        (&covered.first, &covered.last),
        (&Some(three.clone()), &Some(five.clone()))
    );
    for again in [&five, &four, &three] {
        let single = join(&[Covered::Unit(again, Status::Decided)]).unwrap();
        for part in [
            Covered::Unit(again, Status::Decided),
            Covered::Part(&single),
        ] {
            match join(&[Covered::Part(&covered), part]) {
                Err(OperatorError::CoverageOverlap { unit_id }) => {
                    assert_eq!(unit_id, again.id.as_str());
                }
                other => panic!("{other:?}"),
            }
        }
    }
    let empty = Coverage::empty();
    for parts in [[&covered, &empty], [&empty, &covered]] {
        assert_eq!(join(&parts.map(Covered::Part)).unwrap(), covered);
    }
}

fn decided(id: &str, tenths: u32, certain: bool, comments: i64, author: usize) -> Fact {
    let draw = Draw {
        status: 1,
        tenths,
        cause: 0,
        certain,
        comments: Some(comments),
        author,
    };
    fact(id, id.parse().unwrap(), &draw)
}

fn value(facts: &[Fact], name: &str) -> Value {
    let claims = reduced(&every_operation(), facts, 2).claims;
    let claim = claims.into_iter().find(|claim| claim.name == name);
    claim.unwrap().value
}

#[test]
fn top_k_breaks_ties_by_key_and_ranks_certainty_first() {
    let facts = [
        decided("30", 9, false, 1, 0),
        decided("4", 9, false, 1, 0),
        decided("200", 10, true, 1, 0),
    ];
    let units: Vec<Value> = value(&facts, "surest")
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["unit_id"].clone())
        .collect();
    assert_eq!(units, ["200", "4", "30"], "numbers, not text, decide ties");
}

#[test]
fn sums_and_means_of_the_largest_numbers_are_exact() {
    let facts = [
        decided("1", 9, false, i64::MAX, 0),
        decided("2", 9, false, i64::MAX, 0),
        decided("3", 9, false, -7, 0),
    ];
    // 2 (2^63 - 1) - 7
    assert_eq!(value(&facts, "all-comments"), "18446744073709551607");
    let facts = [decided("1", 9, false, -1, 0), decided("2", 9, false, 0, 0)];
    assert_eq!(value(&facts, "all-comments"), -1);
    assert_eq!(value(&facts, "mean-comments")["mean_milli"], -500);
    assert_eq!(value(&[], "mean-comments"), Value::Null);
    assert_eq!(value(&[], "first"), Value::Null);
}

#[test]
fn more_keys_than_declared_refuse_that_claim_and_no_other() {
    let facts: Vec<Fact> = (0..6)
        .map(|author| decided(&author.to_string(), 9, false, 1, author))
        .collect();
    let claims = reduced(&every_operation(), &facts, 3).claims;
    for claim in claims {
        let refused = claim.name == "by-author";
        assert_eq!(claim.refused.is_some(), refused, "{}", claim.text);
        assert_eq!(claim.value.is_null(), refused, "{}", claim.text);
        if refused {
            assert!(
                claim.text.contains("more than 5 keys of author"),
                "{}",
                claim.text
            );
        }
    }
}

#[test]
fn what_is_absent_is_told_only_of_the_whole() {
    let mut facts = vec![
        decided("1", 10, true, 1, 0),
        decided("2", 10, true, 1, 1),
        decided("3", 0, true, 1, 1),
    ];
    assert_eq!(value(&facts, "only").as_array().unwrap().len(), 1);
    let draw = Draw {
        status: Status::ALL
            .iter()
            .position(|s| *s == Status::NotRun)
            .unwrap(),
        tenths: 0,
        cause: 0,
        certain: false,
        comments: None,
        author: 0,
    };
    facts.push(fact("4", 4, &draw));
    let claims = reduced(&every_operation(), &facts, 8).claims;
    let refused = |name: &str| {
        let claim = claims.iter().find(|claim| claim.name == name).unwrap();
        claim.refused.clone()
    };
    assert!(refused("only").unwrap().contains("1 of 4"));
    assert_eq!(refused("both"), None);
}

#[test]
fn outliers_are_named_or_nothing_is_answered() {
    let text = super::facts::EVERY_OPERATION.replace("outliers_max = 100", "outliers_max = 2");
    let plan = operator::Plan::parse(&text, "few.toml").unwrap();
    let abstained = Status::ALL
        .iter()
        .position(|status| *status == Status::Abstained)
        .unwrap();
    let draw = |status, cause| Draw {
        status,
        tenths: 9,
        cause,
        certain: false,
        comments: None,
        author: 0,
    };
    let mut facts: Vec<Fact> = (0..300_u32)
        .map(|id| fact(&id.to_string(), id, &draw(1, 0)))
        .collect();
    facts[137] = fact("137", 137, &draw(1, 2));
    facts[211] = fact("211", 211, &draw(abstained, 0));
    for fan_in in [2, 8, 13] {
        let claims = reduced(&plan, &facts, fan_in).claims;
        let claim = claims
            .iter()
            .find(|claim| claim.name == "clusters")
            .unwrap();
        assert_eq!(claim.value["dissent"], serde_json::json!(["137"]));
        assert_eq!(claim.value["abstained"], serde_json::json!(["211"]));
        let cited: Vec<&str> = claim
            .cites
            .iter()
            .map(|cite| cite.unit_id.as_str())
            .collect();
        assert_eq!(cited[..2], ["137", "211"], "outliers are cited first");
    }
    facts[5] = fact("5", 5, &draw(1, 2));
    facts[6] = fact("6", 6, &draw(1, 2));
    let claims = reduced(&plan, &facts, 8).claims;
    let claim = claims
        .iter()
        .find(|claim| claim.name == "clusters")
        .unwrap();
    let refused = claim.refused.as_ref().unwrap();
    assert!(
        refused.contains("more than 2 dissenting units of cause"),
        "{refused}"
    );
}

#[test]
fn past_their_bounds_quantiles_and_distinct_counts_stay_order_invariant_and_near() {
    use operator::column::ColumnValue;
    let many = 130_000_u32;
    let facts: Vec<Fact> = (0..many)
        .map(|id| {
            let mut fact = decided(&id.to_string(), 9, true, 0, 0);
            let comments = i64::from(id.wrapping_mul(2_654_435_761) >> 4);
            fact.columns
                .insert("comments".into(), ColumnValue::Integer(comments));
            let author = format!("author {}", id % 50_000);
            fact.columns
                .insert("author".into(), ColumnValue::Text(author));
            fact
        })
        .collect();
    let mut plan = every_operation();
    plan.reduces
        .retain(|reduce| ["quantiles", "different"].contains(&reduce.name.as_str()));
    for name in ["quantiles", "different"] {
        let place = plan
            .reduces
            .iter()
            .position(|reduce| reduce.name == name)
            .unwrap();
        let reducer = spec(&plan).reducers[place].clone();
        let forward = combine(&reducer, &facts);
        let (front, back) = facts.split_at(90_000);
        let parts = merge(
            &reducer,
            &combine(&reducer, back),
            &combine(&reducer, front),
        );
        assert_eq!(forward, parts, "{name}");
    }
    let mut numbers: Vec<i64> = (0..many)
        .map(|id| i64::from(id.wrapping_mul(2_654_435_761) >> 4))
        .collect();
    numbers.sort_unstable();
    let claims = reduced(&plan, &facts, 8).claims;
    let value = |name: &str| {
        let claim = claims.iter().find(|claim| claim.name == name);
        claim.unwrap().value.clone()
    };
    let quantiles = value("quantiles");
    assert_eq!(quantiles["error_max_ppm"], 7_812);
    for row in quantiles["quantiles"].as_array().unwrap() {
        let percent = row["percent"].as_u64().unwrap();
        let rank = (u64::from(many) * percent).div_ceil(100).max(1) as usize - 1;
        let (exact, found) = (numbers[rank], row["value"].as_i64().unwrap());
        assert!(
            found <= exact && exact - found <= exact / 128 + 1,
            "{row} {exact}"
        );
    }
    let different = value("different");
    let estimate = different["estimate"].as_i64().unwrap();
    // Three standard errors of 1.6 %; the hash is fixed, so that this cannot flake.
    assert!((estimate - 50_000).abs() < 2_440, "{estimate}");
}

#[test]
fn hashes_of_a_fact_leave_out_cost_and_position_and_keep_meaning() {
    let base = decided("1", 9, false, 3, 0);
    let mut cheap = base.clone();
    cheap.usage.micros = 99;
    cheap.cost.micros = 99;
    cheap.remembered = true;
    cheap.ordinal = 77;
    cheap.evidence[0].quote = None;
    assert_eq!(base.fact_hash(), cheap.fact_hash());
    assert_eq!(base.provenance_hash(), cheap.provenance_hash());
    let mut moved = base.clone();
    moved.source_hash = ContentHash::of_bytes(b"other bytes");
    assert_eq!(
        base.fact_hash(),
        moved.fact_hash(),
        "the decision is the same"
    );
    assert_ne!(base.provenance_hash(), moved.provenance_hash());
    let mut other = base.clone();
    other.status = Status::Abstained;
    assert_ne!(base.fact_hash(), other.fact_hash());
    let mut column = base.clone();
    column.columns.clear();
    assert_ne!(base.fact_hash(), column.fact_hash());
}
