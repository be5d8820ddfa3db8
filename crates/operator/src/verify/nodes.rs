//! The recorded tree, compared node by node and field by field with the one that facts must have.

use std::collections::HashMap;

use super::difference::difference;
use super::{Place, Report, Subject};
use crate::fold::{CITES_MAX, Child, Node, NodeRecord};
use crate::plan::Operation;

fn place_of(record: &NodeRecord) -> Place {
    Place::Node {
        range: record.node.range,
        path: record.path.clone(),
    }
}

/// Compares the recorded tree with the derived one.
pub(super) fn check(subject: Subject<'_>, right: &[NodeRecord], report: &mut Report) {
    for (right, found) in pair(subject.nodes, right, report) {
        report.checked.nodes += 1;
        report.checked.states += right.node.states.len() as u64;
        if found != right {
            compare(subject, found, right, report);
        }
    }
}

/// Pairs nodes by their range, and what is left by its row; reports what has no partner.
fn pair<'a>(
    found: &'a [NodeRecord],
    right: &'a [NodeRecord],
    report: &mut Report,
) -> Vec<(&'a NodeRecord, &'a NodeRecord)> {
    let mut rows: HashMap<(u128, u32), Vec<usize>> = HashMap::new();
    for (row, record) in found.iter().enumerate() {
        let range = record.node.range;
        rows.entry((range.start.get(), range.height))
            .or_default()
            .push(row);
    }
    let mut taken = vec![false; found.len()];
    let mut partners = vec![None; right.len()];
    for (partner, record) in partners.iter_mut().zip(right) {
        let range = record.node.range;
        let Some(rows) = rows.get(&(range.start.get(), range.height)) else {
            continue;
        };
        if rows.len() > 1 {
            let problem = format!("is recorded {} times, once is right", rows.len());
            report.content(place_of(record), problem);
        }
        for row in rows {
            taken[*row] = true;
        }
        *partner = rows.first().copied();
    }
    for (row, partner) in partners.iter_mut().enumerate() {
        if partner.is_none() && taken.get(row) == Some(&false) {
            taken[row] = true;
            *partner = Some(row);
        }
    }
    let mut last = None;
    let mut pairs = Vec::with_capacity(right.len());
    for (partner, right) in partners.iter().zip(right) {
        let Some(row) = partner else {
            report.content(place_of(right), "is not recorded");
            continue;
        };
        if last.is_some_and(|last| last > row) {
            report.content(place_of(right), "is recorded before a node that it follows");
        }
        last = Some(row);
        pairs.push((right, &found[*row]));
    }
    for (record, _) in found.iter().zip(taken).filter(|(_, taken)| !taken) {
        report.content(
            place_of(record),
            "is recorded, and the facts have no such node",
        );
    }
    pairs
}

/// Compares one node field by field; the place is the node that is right.
fn compare(subject: Subject<'_>, found: &NodeRecord, right: &NodeRecord, report: &mut Report) {
    let place = place_of(right);
    let (node, wanted) = (&found.node, &right.node);
    let mut say = |what: &str, differs: Option<String>| {
        if let Some(differs) = differs {
            report.content(place.clone(), format!("{what} {differs}"));
        }
    };
    say("its version", difference(&node.version, &wanted.version));
    say("its range", difference(&node.range, &wanted.range));
    say("its path", difference(&found.path, &right.path));
    let fan_in = subject.plan.fold.fan_in;
    if node.children.len() > fan_in {
        let problem = format!("are {}, the plan allows {fan_in}", node.children.len());
        say("its inputs", Some(problem));
    }
    let (inputs, wanted_inputs) = (names(&node.children), names(&wanted.children));
    say("inputs:", difference(&inputs, &wanted_inputs));
    count(node, wanted, &mut say);
    if node.states.len() != wanted.states.len() {
        let problem = format!(
            "are {}, {} is right",
            node.states.len(),
            wanted.states.len()
        );
        say("its states", Some(problem));
    }
    let folded = subject
        .plan
        .reduces
        .iter()
        .filter(|reduce| !matches!(reduce.op, Operation::Summary { .. }));
    for (reduce, (state, wanted)) in folded.zip(node.states.iter().zip(&wanted.states)) {
        if state != wanted {
            let what = format!("its state of {} ({}):", reduce.name, reduce.op.as_str());
            say(&what, difference(state, wanted));
        }
    }
    say("unsettled:", difference(&node.unsettled, &wanted.unsettled));
    if found.citations.len() > CITES_MAX {
        say("citations:", Some(format!("are more than {CITES_MAX}")));
    }
    say(
        "cited_total",
        difference(&node.cited_total, &wanted.cited_total),
    );
    say("citations:", difference(&found.citations, &right.citations));
    say("its cost:", difference(&node.cost, &wanted.cost));
    if node.spec != wanted.spec {
        let problem = format!("its spec is {}, the plan's is {}", node.spec, wanted.spec);
        report.hash(place.clone(), problem);
    }
    for ((name, child), wanted) in inputs.iter().zip(&node.children).zip(&wanted.children) {
        let differs = difference(child.hashes(), wanted.hashes());
        if let Some(differs) = differs.filter(|_| wanted_inputs.contains(name)) {
            report.hash(place.clone(), format!("input {name}: {differs}"));
        }
    }
    if let Some(differs) = difference(&node.hashes, &wanted.hashes) {
        report.hash(place, format!("hashes: {differs}"));
    }
}

fn count(node: &Node, wanted: &Node, say: &mut impl FnMut(&str, Option<String>)) {
    let (counts, right) = (&node.coverage.counts, &wanted.coverage.counts);
    if counts.units != right.units {
        let problem = format!("{} units, its leaves are {}", counts.units, right.units);
        say("counts", Some(problem));
    } else {
        say("counts:", difference(counts, right));
    }
    say(
        "its first unit",
        difference(&node.coverage.first, &wanted.coverage.first),
    );
    say(
        "its last unit",
        difference(&node.coverage.last, &wanted.coverage.last),
    );
}

/// The inputs of a node by name, in order.
fn names(children: &[Child]) -> Vec<String> {
    children
        .iter()
        .map(|child| match child {
            Child::Leaf { unit, .. } => format!("unit {} at {}", unit.id, unit.key),
            Child::Node { range, .. } => format!("node {}/{}", range.start, range.height),
        })
        .collect()
}
