//! Reruns over changed input: what is asked and what is folded again, predicted without the fold.
//!
//! The prediction knows only what a rerun may rest on: which records are new or read otherwise, and
//! which ranges of keys hold one of them. It is compared with the events of the run, and the
//! answer with that of a run that remembers nothing.

use std::collections::{BTreeMap, BTreeSet};

use operator::event::{Event, EventLine};
use operator::fold::FoldWork;
use operator::plan::Plan;
use operator::run::RunOutcome;
use operator::store::{MemoryStore, RedbStore, Store, StoreOptions};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::script::{Act, PLAN, Script, Setup, plan, run_with, units};

/// Records by number; the text tells how often a record was edited.
type Input = BTreeMap<u32, u32>;

/// Of ten neighbours one is closed and one decided by its tag; the other eight are asked.
fn is_asked(number: u32) -> bool {
    number % 10 > 1
}

fn records(input: &Input) -> Vec<Value> {
    let record = |(number, edits): (&u32, &u32)| {
        json!({
            "number": number,
            "state": if number % 10 == 0 { "closed" } else { "open" },
            "tag": if number % 10 == 1 { "blocker" } else { "none" },
            "title": format!("login of user {number} fails, report {edits}"),
            "body": "Token expires.",
        })
    };
    input.iter().map(record).collect()
}

/// What a run may do anew.
#[derive(Debug, PartialEq, Eq)]
struct Anew {
    asked: Vec<String>,
    remembered: u64,
    work: FoldWork,
}

/// The ranges of a tree of fan-in 8 with the numbers that each holds: every aligned block of
/// 8, 64, ... numbers whose members do not all lie in one smaller block, but for blocks inside one
/// with 8 members or fewer, which is a node over its leaves.
fn ranges(numbers: &BTreeSet<u32>) -> BTreeMap<(u32, u32), BTreeSet<u32>> {
    let mut ranges = BTreeMap::new();
    let mut open: Vec<(u32, BTreeSet<u32>)> = vec![(10, numbers.clone())];
    while let Some((height, members)) = open.pop() {
        if members.len() < 2 {
            continue;
        }
        let block = |number: &u32| u64::from(*number) / 8_u64.pow(height - 1);
        let parts: BTreeSet<u64> = members.iter().map(block).collect();
        if parts.len() == 1 {
            open.push((height - 1, members));
            continue;
        }
        let first = members.iter().next().copied().unwrap_or(0);
        let width = 8_u64.pow(height);
        let start = (u64::from(first) / width * width) as u32;
        if members.len() > 8 {
            for part in parts {
                let inside = members.iter().filter(|number| block(number) == part);
                open.push((height - 1, inside.copied().collect()));
            }
        }
        ranges.insert((start, height), members);
    }
    ranges
}

/// Predicts a rerun: `edited` records are read otherwise, `redecided` ones end otherwise.
fn predict(before: &Input, after: &Input, redecided: &BTreeSet<u32>, rubric_is_new: bool) -> Anew {
    let old: BTreeSet<u32> = before.keys().copied().collect();
    let new: BTreeSet<u32> = after.keys().copied().collect();
    let edited = |number: &u32| before.get(number) != after.get(number);
    let asked: Vec<u32> = new
        .iter()
        .copied()
        .filter(|number| is_asked(*number) && (rubric_is_new || edited(number)))
        .collect();
    // What predicates settle ends the same whatever else the record says; its source is new.
    let decided = |number: &u32| {
        redecided.contains(number)
            || (edited(number) && (is_asked(*number) || !old.contains(number)))
    };
    let held = ranges(&old);
    let mut work = FoldWork::default();
    for number in &new {
        match edited(number) || redecided.contains(number) {
            true => work.leaves_computed += 1,
            false => work.leaves_reused += 1,
        }
    }
    for (range, members) in ranges(&new) {
        let same = held.get(&range) == Some(&members) && !members.iter().any(decided);
        match same {
            true => work.nodes_reused += 1,
            false => work.nodes_computed += 1,
        }
    }
    let kept = new.iter().filter(|number| is_asked(**number)).count();
    Anew {
        remembered: (kept - asked.len()) as u64,
        asked: asked.iter().map(u32::to_string).collect(),
        work,
    }
}

/// What the events say.
fn told(events: &[EventLine], asked: Vec<String>) -> Anew {
    let mut anew = Anew {
        asked,
        remembered: 0,
        work: FoldWork::default(),
    };
    for line in events {
        match &line.event {
            Event::MapStarted {
                remembered, asked, ..
            } => {
                assert_eq!(*asked, anew.asked.len() as u64);
                anew.remembered = *remembered;
            }
            Event::Folded { work, .. } => anew.work = *work,
            _ => {}
        }
    }
    let looked_up = |line: &&EventLine| {
        matches!(
            line.event,
            Event::Unit {
                remembered: true,
                ..
            }
        )
    };
    let looked_up = events.iter().filter(looked_up).count() as u64;
    assert_eq!(looked_up, anew.remembered);
    anew
}

fn answer(
    plan: &Plan,
    input: &Input,
    script: &mut Script,
    store: Option<&dyn Store>,
) -> (RunOutcome, Anew) {
    let setup = Setup {
        memo: store,
        ..Setup::default()
    };
    let partition = units(plan, &records(input));
    let (outcome, events) = run_with(plan, &partition, script, setup).unwrap();
    (outcome, told(&events, script.asked_last()))
}

/// Reruns after a change and compares with the prediction and with a run without a memory.
fn rerun(
    store: &dyn Store,
    (old_plan, before): (&Plan, &Input),
    (new_plan, after): (&Plan, &Input),
    redecided: &BTreeSet<u32>,
) -> Anew {
    let script = || Script::with(redecided.iter().map(|number| (*number, Act::Doubt)));
    answer(old_plan, before, &mut Script::new(), Some(store));
    let (found, anew) = answer(new_plan, after, &mut script(), Some(store));
    let rubric_is_new = old_plan.hash() != new_plan.hash();
    assert_eq!(anew, predict(before, after, redecided, rubric_is_new));
    let (fresh, all) = answer(new_plan, after, &mut script(), None);
    assert_eq!(found.answer.result_hash, fresh.answer.result_hash);
    assert_eq!(found.answer.tree, fresh.answer.tree);
    assert_eq!(
        all.work.leaves_reused + all.work.nodes_reused + all.remembered,
        0
    );
    anew
}

fn work(leaves_computed: u64, nodes_computed: u64, leaves: u64, nodes: u64) -> FoldWork {
    FoldWork {
        leaves_computed,
        leaves_reused: leaves - leaves_computed,
        nodes_computed,
        nodes_reused: nodes - nodes_computed,
    }
}

/// A thousand records, 800 of which are asked.
fn thousand() -> Input {
    (8..1_008).map(|number| (number, 0)).collect()
}

/// Reruns over a thousand records after a change; `wanted` are model rows and fold work, counted
/// by hand.
fn check(change: impl Fn(&mut Input), wanted: (usize, FoldWork)) {
    let mut after = thousand();
    change(&mut after);
    let (store, none) = (MemoryStore::new(), BTreeSet::new());
    let anew = rerun(&store, (&plan(), &thousand()), (&plan(), &after), &none);
    assert_eq!((anew.asked.len(), anew.work), wanted);
}

#[test]
fn a_store_that_was_closed_between_serves_a_rerun_alike() {
    let home = tempfile::tempdir().unwrap();
    let open = || {
        let options = StoreOptions {
            today: || 20_000,
            retention_days: None,
        };
        RedbStore::open(&home.path().join("store.redb"), options).unwrap()
    };
    let mut after = thousand();
    after.insert(42, 1);
    answer(&plan(), &thousand(), &mut Script::new(), Some(&open()));
    let (_, anew) = answer(&plan(), &after, &mut Script::new(), Some(&open()));
    assert_eq!(anew, predict(&thousand(), &after, &BTreeSet::new(), false));
    assert_eq!((anew.asked.len(), anew.work), (1, work(1, 4, 1_000, 144)));
}

#[test]
fn nothing_changed_asks_and_folds_nothing() {
    check(|_| (), (0, work(0, 0, 1_000, 144)));
}

/// Ten records that are asked, 96 apart: each under a node of its own on the lowest two levels
/// (10 and 10), then both blocks of 512, then the root.
#[test]
fn one_percent_changed_asks_ten_and_folds_what_is_above_them() {
    let change = |input: &mut Input| {
        let asked: Vec<u32> = (8..1_008).filter(|number| number % 100 == 42).collect();
        assert_eq!(asked.len(), 10);
        for number in asked {
            input.insert(number, 1);
        }
    };
    check(change, (10, work(10, 10 + 10 + 2 + 1, 1_000, 144)));
}

/// A hundred records, one in every tenth number: 100 of the 125 blocks of 8 hold one, and every
/// block of 64 does.
#[test]
fn ten_percent_changed_asks_a_hundred_and_folds_what_is_above_them() {
    let change = |input: &mut Input| {
        for number in (8..1_008).filter(|number| number % 10 == 5) {
            input.insert(number, 1);
        }
    };
    check(change, (100, work(100, 100 + 16 + 2 + 1, 1_000, 144)));
}

/// The 200 records that predicates settle have new sources and the same facts.
#[test]
fn all_changed_asks_and_folds_all() {
    let change = |input: &mut Input| input.values_mut().for_each(|edits| *edits = 1);
    check(change, (800, work(1_000, 144, 1_000, 144)));
}

/// 1008 to 1015 fill a block of 8, 1016 and 1017 begin one; both lie in the last block of 64,
/// which lies in the second of 512. Numbers 1010 and 1011 are settled by predicates.
#[test]
fn ten_appended_ask_eight_and_fold_two_new_nodes_and_three_above() {
    let change = |input: &mut Input| input.extend((1_008..1_018).map(|number| (number, 0)));
    check(change, (8, work(10, 2 + 3, 1_010, 146)));
}

/// Number 7 is alone in its block of 8, so that it is an input of the block of 64.
#[test]
fn one_inserted_first_asks_one_and_folds_three() {
    let change = |input: &mut Input| {
        input.insert(7, 0);
    };
    check(change, (1, work(1, 3, 1_001, 144)));
}

#[test]
fn one_deleted_asks_nothing_and_folds_four() {
    for number in [8, 505, 1_007] {
        let change = |input: &mut Input| {
            input.remove(&number);
        };
        check(change, (0, work(0, 4, 999, 144)));
    }
}

/// A closed issue that was edited stays excluded: its leaf is new, and every state stands.
#[test]
fn an_edit_that_decides_nothing_folds_nothing() {
    let change = |input: &mut Input| {
        input.insert(500, 1);
    };
    check(change, (0, work(1, 0, 1_000, 144)));
}

/// All 800 are asked again. Three of them end otherwise than before: two under one block of 8 and
/// one far away, so that two nodes on each of the lowest three levels and the root are folded.
#[test]
fn a_changed_rubric_asks_all_and_folds_only_above_changed_decisions() {
    let text = PLAN.replace("Judge one issue.", "Judge one issue with care.");
    let careful = Plan::parse(&text, "careful.toml").unwrap();
    let input = thousand();
    for (redecided, nodes) in [
        (BTreeSet::new(), 0),
        (BTreeSet::from([112, 113, 905]), 2 + 2 + 2 + 1),
    ] {
        let store = MemoryStore::new();
        let anew = rerun(&store, (&plan(), &input), (&careful, &input), &redecided);
        assert_eq!(anew.asked.len(), 800);
        assert_eq!(anew.work, work(redecided.len() as u64, nodes, 1_000, 144));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_change_asks_and_folds_what_was_predicted(
        before in prop::collection::btree_map(0..700_u32, 0..2_u32, 1..120),
        removed in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        edited in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        added in prop::collection::btree_map(0..5_000_u32, Just(0_u32), 0..6),
    ) {
        let numbers: Vec<u32> = before.keys().copied().collect();
        let mut after = before.clone();
        for index in edited {
            *after.entry(*index.get(&numbers)).or_default() += 1;
        }
        for index in removed {
            after.remove(index.get(&numbers));
        }
        for (number, edits) in added {
            after.entry(number).or_insert(edits);
        }
        prop_assume!(after.len() > 1);
        rerun(&MemoryStore::new(), (&plan(), &before), (&plan(), &after), &BTreeSet::new());
    }
}
