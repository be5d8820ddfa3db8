//! The tree: its shape, what one change touches, and that a changed tree is the one folded anew.

use operator::fact::Fact;
use operator::fold::{Child, FoldWork, LeafKey, Leaves, Node, Tree, UnitRef, fold};
use operator::id::{ContentHash, UnitId};
use operator::plan::FoldKey;
use proptest::prelude::*;

use super::facts::{Draw, Memory, draw, every_operation, fact, facts, folded, spec_of};

fn plain(id: u32) -> Fact {
    let draw = Draw {
        status: 1,
        tenths: id % 11,
        cause: (id % 4) as usize,
        certain: false,
        comments: Some(i64::from(id)),
        author: (id % 9) as usize,
    };
    fact(&id.to_string(), id, &draw)
}

fn dense(ids: impl IntoIterator<Item = u32>) -> Vec<Fact> {
    ids.into_iter().map(plain).collect()
}

/// Levels of nodes above the deepest leaf.
fn levels(nodes: &[Node]) -> u32 {
    let mut heights: Vec<u32> = nodes.iter().map(|node| node.range.height).collect();
    heights.sort_unstable();
    heights.dedup();
    heights.len() as u32
}

#[test]
fn a_thousand_dense_keys_give_144_nodes_on_4_levels() {
    let spec = spec_of(&every_operation(), 8);
    for first in [0, 4_096] {
        let (root, nodes) = folded(&spec, &dense(first..first + 1_000));
        assert_eq!((nodes.len(), levels(&nodes)), (144, 4));
        assert_eq!(root.unwrap().coverage.counts.units, 1_000);
        let widths = nodes.iter().map(|node| node.children.len());
        assert!(widths.clone().all(|width| width <= 8));
    }
}

#[test]
fn the_ends_have_their_own_shapes() {
    let spec = spec_of(&every_operation(), 8);
    assert_eq!(folded(&spec, &[]), (None, Vec::new()));
    let (root, nodes) = folded(&spec, &dense([7]));
    assert_eq!(root.unwrap().children.len(), 1);
    assert_eq!(nodes.len(), 1);
    let (root, nodes) = folded(&spec, &dense(0..8));
    assert_eq!((root.unwrap().children.len(), nodes.len()), (8, 1));
    // Nine leaves do not fit one node: the ninth stands beside a node of eight.
    let (root, nodes) = folded(&spec, &dense(0..9));
    let root = root.unwrap();
    assert_eq!(nodes.len(), 2);
    assert!(matches!(
        root.children[..],
        [Child::Node { .. }, Child::Leaf { .. }]
    ));
}

fn again(memory: &Memory, before: &[Fact], after: &[Fact]) -> FoldWork {
    let spec = spec_of(&every_operation(), 8);
    let after = after.to_vec();
    let _ = before;
    fold(&Leaves::arrange(&spec, &after).unwrap(), memory, &|_, _| {})
        .unwrap()
        .1
}

fn learnt(facts: &[Fact]) -> Memory {
    let mut memory = Memory::default();
    memory.learn(&spec_of(&every_operation(), 8), facts);
    memory
}

const fn work(
    leaves_computed: u64,
    leaves_reused: u64,
    nodes_computed: u64,
    nodes_reused: u64,
) -> FoldWork {
    FoldWork {
        leaves_computed,
        leaves_reused,
        nodes_computed,
        nodes_reused,
    }
}

#[test]
fn one_changed_leaf_makes_five_and_keeps_1139() {
    let facts = dense(0..1_000);
    let memory = learnt(&facts);
    assert_eq!(again(&memory, &facts, &facts), work(0, 1_000, 0, 144));
    let mut changed = facts.clone();
    changed[500].status = operator::fact::Status::Abstained;
    let found = again(&memory, &facts, &changed);
    assert_eq!(found, work(1, 999, 4, 140));
    assert_eq!(found.leaves_computed + found.nodes_computed, 5);
    assert_eq!(found.leaves_reused + found.nodes_reused, 1_139);
}

#[test]
fn a_changed_source_with_the_same_decision_computes_no_state() {
    let facts = dense(0..1_000);
    let memory = learnt(&facts);
    let mut changed = facts.clone();
    changed[500].source_hash = ContentHash::of_bytes(b"edited");
    assert_eq!(again(&memory, &facts, &changed), work(1, 999, 0, 144));
    let spec = spec_of(&every_operation(), 8);
    let (before, after) = (folded(&spec, &facts).1, folded(&spec, &changed).1);
    let count = |differs: &dyn Fn(&Node, &Node) -> bool| {
        before
            .iter()
            .zip(&after)
            .filter(|(a, b)| differs(a, b))
            .count()
    };
    assert_eq!(count(&|a, b| a.hashes.fact_hash != b.hashes.fact_hash), 0);
    assert_eq!(
        count(&|a, b| a.hashes.provenance_hash != b.hashes.provenance_hash),
        4
    );
}

#[test]
fn insertion_and_deletion_touch_one_path_wherever_they_fall() {
    // Every second number is free, so that there is room at the front, in the middle and at the end.
    let facts = dense((0..1_000).map(|place| 8 + place * 2));
    let memory = learnt(&facts);
    let all = folded(&spec_of(&every_operation(), 8), &facts).1;
    for (name, place) in [("first", 0), ("middle", 500), ("last", 1_000)] {
        let mut grown = facts.clone();
        grown.insert(place, plain(8 + place as u32 * 2 - 1));
        let found = again(&memory, &facts, &grown);
        assert_eq!(found.leaves_computed, 1, "{name}");
        assert!(
            found.nodes_computed <= u64::from(levels(&all)) + 2,
            "{name}: {found:?}"
        );
        let mut shrunk = facts.clone();
        shrunk.remove(place.min(999));
        let found = again(&memory, &facts, &shrunk);
        assert_eq!(
            (found.leaves_computed, found.leaves_reused),
            (0, 999),
            "{name}"
        );
        assert!(
            found.nodes_computed <= u64::from(levels(&all)) + 1,
            "{name}: {found:?}"
        );
    }
}

#[test]
fn equal_facts_give_equal_trees_whatever_happened_before() {
    let spec = spec_of(&every_operation(), 8);
    let facts = dense((0..200).map(|place| place * 3));
    let (root, _) = folded(&spec, &facts);
    let golden = root.unwrap().hashes;
    assert_eq!(
        golden.fact_hash.to_string(),
        "2ef713f27936565a3e1b74ee335ece2e195566f147a7b405e5287659a34c0fda"
    );
    assert_eq!(
        golden.provenance_hash.to_string(),
        "81cfc6ab9ea240405d8f44c99142055f5cbbcfa1f81a07297a339c3698ea60b4"
    );
}

#[test]
fn a_position_places_leaves_where_the_plan_says_so() {
    let text = super::facts::EVERY_OPERATION.replace("[fold]", "[fold]\nkey = \"ordinal\"");
    let plan = operator::Plan::parse(&text, "ordinal.toml").unwrap();
    assert_eq!(plan.fold.key, FoldKey::Ordinal);
    let mut facts = dense(0..1_000);
    for fact in &mut facts {
        fact.unit_id = UnitId::new(&format!("log line {}", fact.unit_id));
    }
    let (_, nodes) = folded(&spec_of(&plan, 8), &facts);
    assert_eq!(nodes.len(), 144);
    let (_, nodes) = folded(&spec_of(&every_operation(), 8), &facts);
    assert!(nodes.len() > 144, "hashed ids are spread");
}

#[test]
fn facts_at_other_positions_are_not_taken_for_those_remembered() {
    let text = super::facts::EVERY_OPERATION.replace("[fold]", "[fold]\nkey = \"ordinal\"");
    let plan = operator::Plan::parse(&text, "ordinal.toml").unwrap();
    let spec = spec_of(&plan, 8);
    let mut facts = dense(0..5);
    let mut memory = Memory::default();
    memory.learn(&spec, &facts);
    // The same facts in the same range: a record that was read between them is gone.
    for (fact, ordinal) in facts.iter_mut().zip([0, 1, 3, 4, 6]) {
        fact.ordinal = ordinal;
    }
    let leaves = Leaves::arrange(&spec, &facts).unwrap();
    let (anew, _) = fold(&leaves, &(), &|_, _| {}).unwrap();
    let (remembered, work) = fold(&leaves, &memory, &|_, _| {}).unwrap();
    assert_eq!(remembered, anew);
    assert_eq!((work.leaves_reused, work.nodes_computed), (5, 1));
}

#[derive(Debug, Clone)]
enum Step {
    Put(u32, Draw),
    Remove(u32),
}

fn step() -> impl Strategy<Value = Step> {
    // Few numbers, clustered and far apart, so that ranges split, join and widen.
    let id = prop_oneof![0..24_u32, 60..70_u32, 500..520_u32, Just(4_000_000_000)];
    prop_oneof![
        2 => (id.clone(), draw()).prop_map(|(id, draw)| Step::Put(id, draw)),
        1 => id.prop_map(Step::Remove),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_changed_tree_is_the_tree_folded_anew(
        start in facts(60), steps in prop::collection::vec(step(), 1..40), fan_in in 2..=9_u32,
    ) {
        let spec = spec_of(&every_operation(), fan_in);
        let mut facts: std::collections::BTreeMap<LeafKey, Fact> = start
            .iter()
            .map(|fact| (spec.place(fact).key, fact.clone()))
            .collect();
        let mut tree = Tree::fold(&Leaves::arrange(&spec, &start).unwrap()).unwrap();
        for step in steps {
            let held = facts.clone();
            let siblings = move |unit: &UnitRef| Ok(held[&unit.key].clone());
            match step {
                Step::Put(id, draw) => {
                    let fact = fact(&id.to_string(), id, &draw);
                    facts.insert(spec.place(&fact).key, fact.clone());
                    tree.put(&fact, &siblings).unwrap();
                }
                Step::Remove(id) => {
                    let unit = spec.place(&plain(id));
                    facts.remove(&unit.key);
                    tree.remove(&unit, &siblings).unwrap();
                }
            }
            let all: Vec<Fact> = facts.values().cloned().collect();
            let (root, nodes) = folded(&spec, &all);
            prop_assert_eq!(tree.root(), root.as_ref());
            prop_assert_eq!(tree.nodes().len(), nodes.len());
        }
    }
}
