//! Which units a claim rests on: found by walking the recorded tree from its root to its leaves.

use std::collections::{BTreeSet, HashMap};

use super::{Subject, read};
use crate::fact::Fact;
use crate::fold::{Child, KeyRange, NodeRecord};
use crate::id::UnitId;

/// The units below the root that back a claim, in key order; with their facts alone the fold gives
/// the claim's value again. Empty where the plan has no such claim.
pub fn backing(subject: Subject<'_>, claim: &str) -> Vec<UnitId> {
    let mut reduces = subject.plan.reduces.iter();
    let Some(reduce) = reduces.find(|reduce| reduce.name == claim) else {
        return Vec::new();
    };
    let key = |range: &KeyRange| (range.start, range.height);
    let nodes: HashMap<_, &NodeRecord> = subject
        .nodes
        .iter()
        .map(|record| (key(&record.node.range), record))
        .collect();
    let facts: HashMap<&UnitId, &Fact> = subject
        .facts
        .iter()
        .map(|fact| (&fact.unit_id, fact))
        .collect();
    let mut units = Vec::new();
    let mut seen = BTreeSet::new();
    let mut open: Vec<KeyRange> = subject
        .nodes
        .first()
        .map(|root| root.node.range)
        .into_iter()
        .collect();
    while let Some(range) = open.pop() {
        // A tree that was tampered with may name itself.
        let Some(record) = nodes.get(&key(&range)).filter(|_| seen.insert(key(&range))) else {
            continue;
        };
        for child in &record.node.children {
            match child {
                Child::Node { range, .. } => open.push(*range),
                Child::Leaf { unit, .. } => {
                    let fact = facts.get(&unit.id);
                    if fact.is_some_and(|fact| read::backs(reduce, fact)) {
                        units.push(unit.clone());
                    }
                }
            }
        }
    }
    units.sort();
    units.into_iter().map(|unit| unit.id).collect()
}
