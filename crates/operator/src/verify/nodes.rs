//! Every node, derived from the facts below it and compared with the one that was recorded.

use std::collections::HashMap;

use super::difference::difference;
use super::shape::{Input, Leaf, Shape, shape};
use super::states::{Counted, hitters, named, ranked, state};
use super::{Place, Report, Subject, hash, read};
use crate::coverage::{Counts, Coverage};
use crate::fact::{Cite, Evidence, Fact, Status};
use crate::fold::{CITES_MAX, Child, NODE_VERSION, Node, NodeRecord, UnitRef};
use crate::id::ContentHash;
use crate::infer::UnitUsage;
use crate::plan::{Operation, Plan, Reduce};
use crate::reducers::{AggregateState, HitterState};

/// The nodes that leaves must have, parents before children, in key order.
pub(super) fn derive(plan: &Plan, leaves: &[Leaf<'_>]) -> Vec<NodeRecord> {
    let fan_in = u32::try_from(plan.fold.fan_in).unwrap_or(u32::MAX);
    let keys: Vec<u128> = leaves.iter().map(|leaf| leaf.unit.key.get()).collect();
    let shapes = shape(&keys, fan_in);
    let spec = hash::spec(plan);
    let mut made: Vec<Option<NodeRecord>> = shapes.iter().map(|_| None).collect();
    // Children stand behind their parents, so that from the end they are there first.
    for (place, shape) in shapes.iter().enumerate().rev() {
        let mut record = describe(plan, leaves, shape, &made);
        record.node.spec = spec;
        record.node.hashes = hash::node(&record.node, fan_in, plan.fold.key);
        made[place] = Some(record);
    }
    made.into_iter().flatten().collect()
}

/// Everything of a node but its spec and its hashes.
fn describe(
    plan: &Plan,
    leaves: &[Leaf<'_>],
    shape: &Shape,
    made: &[Option<NodeRecord>],
) -> NodeRecord {
    let below = &leaves[shape.leaves.clone()];
    let node_at = |place: usize| made[place].as_ref().map(|record| &record.node);
    let children = shape.inputs.iter().filter_map(|input| match *input {
        Input::Leaf(place) => Some(Child::Leaf {
            unit: leaves[place].unit.clone(),
            hashes: leaves[place].hashes,
        }),
        Input::Node(place) => node_at(place).map(|node| Child::Node {
            range: node.range,
            hashes: node.hashes,
        }),
    });
    let folded = plan
        .reduces
        .iter()
        .filter(|reduce| !matches!(reduce.op, Operation::Summary { .. }));
    let states: Vec<AggregateState> = folded
        .clone()
        .enumerate()
        .filter_map(|(index, reduce)| {
            state(plan, reduce, below, || {
                replay(reduce, index, shape, leaves, &node_at)
            })
        })
        .collect();
    let unsettled = below
        .iter()
        .filter(|leaf| matches!(leaf.fact.status, Status::Abstained | Status::Errored))
        .map(|leaf| (0, &leaf.unit));
    let backing = |fact: &Fact| folded.clone().any(|reduce| read::backs(reduce, fact));
    let cited = cite_in_turn(folded.clone().zip(&states));
    let citations = cited
        .iter()
        .filter_map(|unit| below.iter().find(|leaf| leaf.unit == *unit))
        .map(|leaf| citation(leaf.fact))
        .collect();
    NodeRecord {
        path: shape.path.clone(),
        node: Node {
            version: NODE_VERSION,
            spec: ContentHash::from_bytes([0; 32]),
            range: shape.path[shape.path.len() - 1],
            children: children.collect(),
            coverage: Coverage {
                counts: tally(below.iter().map(|leaf| leaf.fact)),
                first: below.first().map(|leaf| leaf.unit.clone()),
                last: below.last().map(|leaf| leaf.unit.clone()),
            },
            states,
            unsettled: ranked(unsettled, CITES_MAX),
            cited_total: below.iter().filter(|leaf| backing(leaf.fact)).count() as u64,
            cost: below.iter().fold(UnitUsage::default(), |sum, leaf| {
                let cost = &leaf.fact.cost;
                UnitUsage {
                    prompt_tokens: sum.prompt_tokens.saturating_add(cost.prompt_tokens),
                    computed_tokens: sum.computed_tokens.saturating_add(cost.computed_tokens),
                    cached_tokens: sum.cached_tokens.saturating_add(cost.cached_tokens),
                    micros: sum.micros.saturating_add(cost.micros),
                }
            }),
            hashes: hash::NONE,
        },
        citations,
    }
}

/// The counters of one `heavy_hitters` reduction over a node's inputs.
fn replay<'m>(
    reduce: &Reduce,
    index: usize,
    shape: &Shape,
    leaves: &[Leaf<'_>],
    node_at: &dyn Fn(usize) -> Option<&'m Node>,
) -> HitterState {
    let Operation::HeavyHitters { key, k } = &reduce.op else {
        return HitterState::default();
    };
    let inputs = shape.inputs.iter().filter_map(|input| match *input {
        Input::Leaf(place) => {
            let fact = leaves[place].fact;
            let backs = read::backs(reduce, fact);
            read::key(key, fact).filter(|_| backs).map(Counted::Key)
        }
        Input::Node(place) => match node_at(place)?.states.get(index) {
            Some(AggregateState::HeavyHitters(held)) => Some(Counted::Node(held)),
            _ => None,
        },
    });
    hitters(inputs, *k as usize)
}

/// The first unit of each state in turn, then the second of each, up to the cap.
fn cite_in_turn<'r, 's>(
    states: impl Iterator<Item = (&'r Reduce, &'s AggregateState)>,
) -> Vec<UnitRef> {
    let mut lists: Vec<_> = states
        .map(|(reduce, state)| named(state, reduce.cite_max as usize).into_iter())
        .collect();
    let mut cited: Vec<UnitRef> = Vec::new();
    loop {
        let turn: Vec<&UnitRef> = lists.iter_mut().filter_map(Iterator::next).collect();
        if turn.is_empty() {
            return cited;
        }
        for unit in turn {
            if cited.len() < CITES_MAX && !cited.contains(unit) {
                cited.push(unit.clone());
            }
        }
    }
}

/// How a node cites a fact: as a claim does, without the quote.
fn citation(fact: &Fact) -> Cite {
    Cite {
        unit_id: fact.unit_id.clone(),
        source_hash: fact.source_hash,
        span: fact.evidence.first().map(|evidence| Evidence {
            quote: None,
            ..evidence.clone()
        }),
    }
}

/// Units per status.
pub(super) fn tally<'a>(facts: impl Iterator<Item = &'a Fact>) -> Counts {
    let mut counts = Counts::default();
    for fact in facts {
        counts.units += 1;
        *match fact.status {
            Status::Excluded => &mut counts.excluded,
            Status::Decided => &mut counts.decided,
            Status::Abstained => &mut counts.abstained,
            Status::Errored => &mut counts.errored,
            Status::Cancelled => &mut counts.cancelled,
            Status::NotRun => &mut counts.not_run,
        } += 1;
    }
    counts
}

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
        compare(subject, found, right, report);
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
