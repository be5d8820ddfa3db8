//! Connected members, found again by walking from one to the next.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::conclusions::{Stated, overflow, owned};
use super::shape::Leaf;
use super::states::{listed, ranked};
use crate::fold::UnitRef;
use crate::reducers::{Against, ComponentState};

/// Units against that are kept.
const AGAINST_MAX: usize = 65_536;

/// The state of `components` over leaves with their labels.
pub(super) fn state<'a>(
    leaves: impl Iterator<Item = (&'a Leaf<'a>, Option<String>)>,
    joins: &str,
    keys_max: u32,
    cites: usize,
) -> ComponentState {
    let (joining, others): (Vec<_>, Vec<_>) =
        leaves.partition(|(_, label)| label.as_deref() == Some(joins));
    let mut beside: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (leaf, _) in &joining {
        for member in &leaf.fact.members {
            let others = leaf.fact.members.iter().map(ToString::to_string);
            beside.entry(member.to_string()).or_default().extend(others);
        }
    }
    let mut held = ComponentState {
        joining: ranked(joining.iter().map(|(leaf, _)| (0, &leaf.unit)), cites),
        ..ComponentState::default()
    };
    if beside.len() > keys_max as usize || others.len() > AGAINST_MAX {
        held.overflowed = true;
        return held;
    }
    // In the order of members, so that each walk starts at the smallest of its component.
    for start in beside.keys() {
        let mut open = vec![start];
        while let Some(member) = open.pop() {
            if held.root_of.contains_key(member) {
                continue;
            }
            held.root_of.insert(member.clone(), start.clone());
            open.extend(beside.get(member).into_iter().flatten());
        }
    }
    for (leaf, _) in &joining {
        let member = leaf.fact.members.first().map(ToString::to_string);
        if let Some(root) = member.and_then(|member| held.root_of.get(&member)) {
            *held.pairs.entry(root.clone()).or_default() += 1;
        }
    }
    for (leaf, _) in &others {
        let against = Against {
            unit: leaf.unit.clone(),
            members: leaf.fact.members.iter().map(ToString::to_string).collect(),
        };
        held.against.insert(leaf.unit.id.to_string(), against);
    }
    held
}

/// What is claimed of a state.
pub(super) fn conclude(
    field: &str,
    keys_max: u32,
    held: &ComponentState,
) -> Result<Stated, String> {
    if held.overflowed {
        let what = format!("members connected by {field}");
        return Err(overflow(
            &what,
            keys_max,
            "narrow its where, or raise keys_max",
        ));
    }
    let roots: BTreeSet<&String> = held.root_of.values().collect();
    let mut components: Vec<(Vec<&String>, u64)> = Vec::new();
    for root in roots {
        let of = held.root_of.iter().filter(|(_, other)| *other == root);
        let mut members: Vec<&String> = of.map(|(member, _)| member).collect();
        members.sort_by_key(|member| rank(member));
        components.push((members, held.pairs.get(root).copied().unwrap_or(0)));
    }
    components.sort_by_key(|(members, _)| {
        let first = members.first().map(|member| rank(member));
        (std::cmp::Reverse(members.len()), first)
    });
    let mut dissent: Vec<&UnitRef> = Vec::new();
    for against in held.against.values() {
        let roots: BTreeSet<Option<&String>> = against
            .members
            .iter()
            .map(|member| held.root_of.get(member))
            .collect();
        if roots.len() == 1 && !roots.contains(&None) {
            dissent.push(&against.unit);
        }
    }
    dissent.sort_by_key(|unit| rank(unit.id.as_str()));
    let rows: Vec<Value> = components
        .iter()
        .map(|(members, pairs)| {
            json!({ "count": members.len(), "pairs": pairs, "members": members })
        })
        .collect();
    let ids: Vec<&str> = dissent.iter().map(|unit| unit.id.as_str()).collect();
    Ok(Stated {
        count: rows.len() as u64,
        value: json!({ "components": rows, "dissent": ids }),
        total: held.joining.total + dissent.len() as u64,
        units: owned([dissent, listed(&held.joining)].concat()),
    })
}

/// Whole numbers by size, then texts by their bytes.
fn rank(id: &str) -> (bool, u64, &str) {
    match id.parse::<u64>() {
        Ok(number) => (false, number, id),
        Err(_) => (true, 0, id),
    }
}
