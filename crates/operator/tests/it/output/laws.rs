//! The laws of the fold over random facts: every reducer, every order, every shape of tree.

use std::collections::BTreeMap;

use operator::OperatorError;
use operator::coverage::Coverage;
use operator::fact::{Evidence, FACT_SCHEMA, Fact, FieldValue, Status};
use operator::fold::{FAN_IN, Node, Reducer, fold};
use operator::id::{ContentHash, UnitId};
use operator::infer::UnitUsage;
use operator::ops::reduce::{aggregate, reduce};
use operator::reducers::Aggregate;
use proptest::prelude::*;

use super::script::plan;

const CAUSES: [&str; 3] = ["token", "session", "other"];

fn fact(ordinal: u32, status: usize, yes_ppm: u32, cause: usize, certain: bool) -> Fact {
    let text = format!("line of {ordinal}");
    let (label, other) = if yes_ppm >= 500_000 {
        ("yes", "no")
    } else {
        ("no", "yes")
    };
    let best = yes_ppm.max(1_000_000 - yes_ppm);
    let blocker = FieldValue {
        probability_ppm: Some(best),
        margin_ppm: Some(2 * best - 1_000_000),
        label_mass_ppm: Some(1_000_000),
        alternatives: vec![(other.to_owned(), 1_000_000 - best)],
        ..FieldValue::set(label)
    };
    let blocker = if certain {
        FieldValue::set(label)
    } else {
        blocker
    };
    let cause = FieldValue::set(CAUSES[cause]);
    Fact {
        schema: FACT_SCHEMA,
        unit_id: UnitId::new(&ordinal.to_string()),
        ordinal,
        source_hash: ContentHash::of_bytes(text.as_bytes()),
        status: Status::ALL[status],
        stage: String::from("map"),
        reason: None,
        values: BTreeMap::from([
            (String::from("blocker"), blocker),
            (String::from("cause"), cause),
        ]),
        evidence: vec![Evidence {
            field: String::from("title"),
            start: 0,
            end: text.len() as u32,
            quote: text,
            line: Some(1),
        }],
        clipped_bytes: 0,
        usage: UnitUsage::default(),
        remembered: false,
        simulated: false,
        backend: None,
    }
}

/// Random facts with distinct units; few distinct probabilities, so that ties are common.
fn facts() -> impl Strategy<Value = Vec<Fact>> {
    let one = (0..8_usize, 0..=10_u32, 0..3_usize, any::<bool>());
    prop::collection::vec(one, 0..70).prop_map(|rows| {
        (0..)
            .zip(rows)
            .map(|(ordinal, (status, tenths, cause, certain))| {
                // Decided twice as often as the rest, since only decided facts reach a reducer.
                let status = if status > 5 { 1 } else { status };
                fact(ordinal, status, tenths * 100_000, cause, certain)
            })
            .collect()
    })
}

fn reducers() -> Vec<Aggregate> {
    let plan = plan();
    plan.reduces
        .iter()
        .map(|reduce| aggregate(&plan, reduce))
        .collect()
}

fn combine(
    reducer: &impl Reducer<State = Vec<operator::reducers::Groups>>,
    facts: &[Fact],
) -> Vec<operator::reducers::Groups> {
    facts.iter().fold(reducer.empty(), |state, fact| {
        reducer.merge(state, reducer.lift(fact))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn merge_is_associative_and_commutative_with_a_neutral_element(
        facts in facts(), a in 0..70_usize, b in 0..70_usize,
    ) {
        let reducer = reducers();
        let (a, b) = (a.min(facts.len()), b.min(facts.len()));
        let (low, high) = (a.min(b), a.max(b));
        let x = combine(&reducer, &facts[..low]);
        let y = combine(&reducer, &facts[low..high]);
        let z = combine(&reducer, &facts[high..]);
        let left = reducer.merge(reducer.merge(x.clone(), y.clone()), z.clone());
        let right = reducer.merge(x.clone(), reducer.merge(y.clone(), z));
        prop_assert_eq!(&left, &right);
        prop_assert_eq!(&left, &combine(&reducer, &facts));
        prop_assert_eq!(reducer.merge(x.clone(), y.clone()), reducer.merge(y, x.clone()));
        prop_assert_eq!(&reducer.merge(x.clone(), reducer.empty()), &x);
        prop_assert_eq!(&reducer.merge(reducer.empty(), x.clone()), &x);
    }

    #[test]
    fn neither_order_nor_shape_of_the_tree_shows(
        (facts, shuffled) in facts().prop_flat_map(|facts| {
            (Just(facts.clone()), Just(facts).prop_shuffle())
        }),
        fan_in in 2..=16_usize,
    ) {
        let (claims, coverage) = reduce(&plan(), &facts, FAN_IN).unwrap();
        let (again, covered) = reduce(&plan(), &shuffled, fan_in).unwrap();
        prop_assert_eq!(claims, again);
        prop_assert_eq!(&coverage, &covered);
        let counts = coverage.counts();
        let sum: u64 = Status::ALL.iter().map(|status| counts.of(*status)).sum();
        prop_assert_eq!(sum, facts.len() as u64);
        prop_assert_eq!(counts.units, facts.len() as u64);
    }

    #[test]
    fn a_tree_over_shuffled_leaves_has_the_same_root(
        (facts, shuffled) in facts().prop_flat_map(|facts| {
            (Just(facts.clone()), Just(facts).prop_shuffle())
        }),
        fan_in in 2..=16_usize,
    ) {
        // Bypasses the key order of `fold`, so that the leaves truly meet in another order.
        let reducer = reducers();
        let mut level: Vec<_> = shuffled.iter().map(|fact| Node::leaf(&reducer, fact)).collect();
        while level.len() > 1 {
            level = level
                .chunks(fan_in)
                .map(|children| Node::parent(&reducer, children.to_vec()).unwrap())
                .collect();
        }
        let root = fold(&reducer, &facts, FAN_IN).unwrap();
        if let Some(node) = level.pop() {
            prop_assert_eq!(node, root);
        }
    }

    #[test]
    fn a_unit_delivered_again_is_refused_by_name(
        facts in facts().prop_filter("needs a fact", |facts| !facts.is_empty()),
        pick in any::<prop::sample::Index>(),
        fan_in in 2..=16_usize,
    ) {
        let twice = pick.get(&facts).clone();
        let unit = twice.unit_id.to_string();
        let mut facts = facts;
        facts.push(twice);
        match fold(&reducers(), &facts, fan_in) {
            Err(OperatorError::CoverageOverlap { unit_id }) => prop_assert_eq!(unit_id, unit),
            other => prop_assert!(false, "{:?}", other.map(|node| node.coverage)),
        }
    }
}

#[test]
fn coverage_must_equal_the_partition() {
    let ids: Vec<UnitId> = (0..3_u32).map(|id| UnitId::new(&id.to_string())).collect();
    let covered = |range: std::ops::Range<u32>| {
        range.fold(Coverage::empty(), |coverage, ordinal| {
            coverage
                .merge(Coverage::lift(&fact(ordinal, 1, 0, 0, true)))
                .unwrap()
        })
    };
    covered(0..3).check(&ids).unwrap();
    for (coverage, wanted) in [(covered(0..2), "2"), (covered(0..4), "3")] {
        match coverage.check(&ids) {
            Err(OperatorError::CoverageMismatch {
                unit_id,
                expected: 3,
                ..
            }) => {
                assert_eq!(unit_id, wanted);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn top_k_breaks_ties_by_unit_and_ranks_certainty_first() {
    let facts = [
        fact(3, 1, 900_000, 0, false),
        fact(1, 1, 900_000, 0, false),
        fact(2, 1, 1_000_000, 0, true),
    ];
    let (claims, _) = reduce(&plan(), &facts, 2).unwrap();
    let surest = claims.iter().find(|claim| claim.name == "surest").unwrap();
    let units: Vec<_> = surest
        .value
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["unit_id"].clone())
        .collect();
    assert_eq!(units, ["2", "1", "3"]);
}

#[test]
fn hashes_of_a_fact_leave_out_cost_and_keep_meaning() {
    let base = fact(1, 1, 900_000, 0, false);
    let mut cheap = base.clone();
    cheap.usage.micros = 99;
    cheap.remembered = true;
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
    assert_eq!(
        base.fact_hash().to_string(),
        "fdd3a309c415dd67d891cdce2671cde44d64dafcf54863430d3c80489eb624c9"
    );
}
