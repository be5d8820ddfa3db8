//! Differences: each kind of change is told with its cause, and no node is told wrongly.

use std::collections::BTreeSet;

use operator::diff::{Aspect, Cause, Difference, NodeDifference, NodeRef, TreeDifference, diff};
use operator::explain::counts;
use operator::fold::NodeRecord;
use operator::recorded::{RecordedRun, node_name};
use operator::replay::Replay;
use serde_json::{Value, json};

use super::recorded::{Recorded, record};
use super::script::{Act, PLAN, Script, Setup, issues};

pub fn run(issues: &[Value]) -> Recorded {
    record(PLAN, issues, &mut Script::new(), Setup::default())
}

pub fn names(difference: &Difference) -> Vec<&str> {
    let units = difference.units.iter();
    units.map(|unit| unit.unit_id.as_str()).collect()
}

/// The compared trees: changed, added, removed, and how many are the same.
pub fn tree(difference: &Difference) -> (&[NodeDifference], &[NodeRef], &[NodeRef], u64) {
    match &difference.tree {
        TreeDifference::Compared {
            changed,
            added,
            removed,
            same,
            ..
        } => (changed, added, removed, *same),
        TreeDifference::Incomparable { why } => panic!("{why}"),
    }
}

/// Checks the listed nodes against both trees without walking them: a node is listed exactly when
/// the other tree has no node of the same range and hash.
pub fn check_tree(before: &RecordedRun, after: &RecordedRun, difference: &Difference) {
    let (changed, added, removed, same) = tree(difference);
    let hashed = |run: &RecordedRun| -> BTreeSet<(String, String)> {
        let name = |record: &NodeRecord| {
            let hash = record.node.hashes.provenance_hash;
            (node_name(&record.node.range), hash.to_string())
        };
        run.nodes.iter().map(name).collect()
    };
    let (old, new) = (hashed(before), hashed(after));
    let only = |these: &BTreeSet<(String, String)>, others: &BTreeSet<(String, String)>| {
        let only = these.difference(others).map(|(name, _)| name.clone());
        only.collect::<BTreeSet<String>>()
    };
    let listed = |more: &[NodeRef]| -> BTreeSet<String> {
        let changed = changed.iter().map(|node| node.node.clone());
        changed
            .chain(more.iter().map(|node| node.node.clone()))
            .collect()
    };
    assert_eq!(listed(removed), only(&old, &new));
    assert_eq!(listed(added), only(&new, &old));
    assert_eq!(same, old.intersection(&new).count() as u64);
    for node in changed {
        assert_eq!(
            node.decision,
            node.hashes.before.fact_hash != node.hashes.after.fact_hash
        );
        assert_ne!(
            node.hashes.before.provenance_hash,
            node.hashes.after.provenance_hash
        );
    }
}

/// Where both runs have the same units: the nodes over the changed ones, found from the units.
pub fn check_over_units(before: &RecordedRun, after: &RecordedRun, difference: &Difference) {
    check_tree(before, after, difference);
    let (changed, added, removed, _) = tree(difference);
    assert!(added.is_empty() && removed.is_empty());
    let over = |decision: bool| -> BTreeSet<String> {
        let units = difference.units.iter();
        let facts = units
            .filter(|unit| unit.decision || !decision)
            .filter_map(|unit| before.fact(&unit.unit_id));
        let paths = facts.flat_map(|fact| before.path(&before.spec().place(fact)));
        paths.map(|record| node_name(&record.node.range)).collect()
    };
    let listed: BTreeSet<String> = changed.iter().map(|node| node.node.clone()).collect();
    assert_eq!(listed, over(false));
    let decided = changed.iter().filter(|node| node.decision);
    let decided: BTreeSet<String> = decided.map(|node| node.node.clone()).collect();
    assert_eq!(decided, over(true));
}

#[test]
fn one_changed_decision_changes_the_nodes_over_it_and_its_claims() {
    let before = run(&issues(120));
    let mut doubtful = Script::with([(57, Act::Doubt)]);
    let after = record(PLAN, &issues(120), &mut doubtful, Setup::default());
    let difference = diff(&before.run, &after.run);
    assert!(!difference.same_result);
    assert_eq!(names(&difference), ["57"]);
    let unit = &difference.units[0];
    assert!(unit.decision);
    assert_eq!(
        unit.aspects,
        [Aspect::Status, Aspect::Reason, Aspect::Probabilities]
    );
    assert_eq!(unit.causes, [Cause::Course]);
    check_over_units(&before.run, &after.run, &difference);
    let (changed, ..) = tree(&difference);
    assert_eq!(changed.len(), 3, "the tree has three levels");
    let claim = |name: &str| difference.claims.iter().find(|claim| claim.claim == name);
    let by_cause = claim("by_cause").expect("one unit fewer is counted");
    assert!(by_cause.value_changed && !by_cause.reduction_changed);
    for claim in &difference.claims {
        assert_eq!(claim.behind.len(), 1, "{}", claim.claim);
        assert_eq!(claim.behind[0].as_str(), "57", "{}", claim.claim);
    }
    for node in changed {
        assert!(node.states.contains(&String::from("by_cause")), "{node:?}");
        let carries = before.run.fact(&unit.unit_id).unwrap().values["blocker"].label == "yes";
        assert_eq!(node.states.contains(&String::from("blockers")), carries);
    }
}

#[test]
fn one_changed_byte_under_the_same_decision_changes_provenance_alone() {
    let before = run(&issues(120));
    let mut edited = issues(120);
    edited[1]["state"] = json!("opened");
    let after = run(&edited);
    let difference = diff(&before.run, &after.run);
    assert_eq!(names(&difference), ["1"]);
    let unit = &difference.units[0];
    assert!(!unit.decision);
    assert_eq!(unit.aspects, [Aspect::Source]);
    assert_eq!(unit.causes, [Cause::Source]);
    assert!(!difference.source.same() && difference.plan.same());
    check_over_units(&before.run, &after.run, &difference);
    let (changed, ..) = tree(&difference);
    assert!(!changed.is_empty());
    for node in changed {
        assert!(!node.decision && node.states.is_empty(), "{node:?}");
    }
    // The unit is cited first, so that the answer names other bytes and says the same.
    assert!(!difference.same_result);
    for claim in &difference.claims {
        assert!(!claim.value_changed, "{}", claim.claim);
        assert_eq!(claim.cites_changed.len(), 1, "{}", claim.claim);
        assert_eq!(claim.behind, claim.cites_changed, "{}", claim.claim);
    }
}

#[test]
fn changed_evidence_alone_is_told_as_such() {
    let replayed = |line: &str| {
        let answers = json!({ "blocker": "yes", "cause": "token", "evidence": line });
        let row = |number| json!({ "unit_id": number, "answers": answers }).to_string();
        let text = format!("{}\n{}\n", row("2"), row("3"));
        let mut replay = Replay::parse(&text, "answers").unwrap();
        record(PLAN, &issues(4), &mut replay, Setup::default())
    };
    let (before, after) = (replayed("1"), replayed("2"));
    let difference = diff(&before.run, &after.run);
    assert_eq!(names(&difference), ["2", "3"]);
    for unit in &difference.units {
        assert!(!unit.decision);
        assert_eq!(unit.aspects, [Aspect::Evidence]);
        assert_eq!(unit.causes, [Cause::Backend], "another recording");
    }
    check_over_units(&before.run, &after.run, &difference);
    let blockers = &difference.claims[0];
    assert!(!blockers.value_changed);
    assert_eq!(blockers.cites_changed, blockers.behind);
    assert_eq!(blockers.behind_total, 2);
}

#[test]
fn inserted_appended_and_removed_units_touch_what_is_over_them() {
    let all = issues(130);
    for (name, old, new) in [
        ("first", &all[1..120], &all[..120]),
        ("last", &all[..119], &all[..120]),
        ("past a power of the fan-in", &all[..64], &all[..65]),
        ("many", &all[..40], &all[..130]),
    ] {
        let (before, after) = (run(old), run(new));
        for (a, b, added) in [(&before, &after, true), (&after, &before, false)] {
            let difference = diff(&a.run, &b.run);
            assert_eq!(
                difference.units.len(),
                new.len() - old.len(),
                "{name}: {:?}",
                names(&difference)
            );
            for unit in &difference.units {
                assert_eq!(unit.before.is_none(), added, "{name}");
                assert_eq!(unit.after.is_none(), !added, "{name}");
                assert!(unit.decision && unit.aspects.is_empty());
                assert_eq!(unit.causes, [Cause::Source]);
            }
            assert_eq!(difference.units_same, old.len() as u64, "{name}");
            check_tree(&a.run, &b.run, &difference);
            let (changed, more, fewer, same) = tree(&difference);
            assert!(!changed.is_empty() || !more.is_empty() || !fewer.is_empty());
            if name != "many" {
                assert!(same as usize > a.run.nodes.len() / 2, "{name}: {same}");
            }
        }
    }
    // A removal from the middle moves every later record in the file, and no leaf.
    let mut holed = issues(120);
    holed.remove(50);
    let (before, after) = (run(&issues(120)), run(&holed));
    let difference = diff(&before.run, &after.run);
    assert_eq!(names(&difference), ["50"]);
    check_tree(&before.run, &after.run, &difference);
    // A closed record is in the coverage alone: no claim says anything else.
    assert!(difference.claims.is_empty() && !difference.same_result);
}

#[test]
fn only_units_that_a_claim_counts_are_behind_it() {
    let all = issues(120);
    let before = run(&all[..110]);
    let mut edited = all[..115].to_vec();
    edited[30]["title"] = json!("closed, and edited");
    let after = run(&edited);
    let difference = diff(&before.run, &after.run);
    assert_eq!(difference.units.len(), 6, "30 changed; 110 to 114 added");
    let by_cause = difference
        .claims
        .iter()
        .find(|claim| claim.claim == "by_cause");
    let behind: Vec<&str> = by_cause
        .unwrap()
        .behind
        .iter()
        .map(|unit| unit.as_str())
        .collect();
    assert_eq!(
        behind,
        ["111", "112", "113", "114"],
        "30 and 110 are closed"
    );
    for claim in &difference.claims {
        let counted = |run: &RecordedRun, unit| {
            let reduce = run
                .plan
                .reduces
                .iter()
                .find(|reduce| reduce.name == claim.claim);
            run.fact(unit)
                .is_some_and(|fact| counts(&run.plan, run.spec(), reduce.unwrap(), fact))
        };
        assert!(claim.behind_total > 0, "{}", claim.claim);
        for unit in &claim.behind {
            assert!(
                counted(&before.run, unit) || counted(&after.run, unit),
                "{unit}"
            );
        }
    }
}

#[test]
fn a_difference_survives_json() {
    let before = run(&issues(60));
    let after = run(&issues(70));
    let difference = diff(&before.run, &after.run);
    let text = serde_json::to_string(&difference).unwrap();
    let back: Difference = serde_json::from_str(&text).unwrap();
    assert_eq!(back, difference);
}
