//! Every node that facts must have, each described from the facts below it.

use super::shape::{Input, Leaf, Shape, shape};
use super::states::{Counted, hitters, named, ranked, state};
use super::{hash, read, spec};
use crate::coverage::{Counts, Coverage};
use crate::fact::{Cite, Evidence, Fact, Status};
use crate::fold::{CITES_MAX, Child, NODE_VERSION, Node, NodeRecord, UnitRef};
use crate::id::ContentHash;
use crate::infer::UnitUsage;
use crate::plan::{Operation, Plan, Reduce};
use crate::reducers::{AggregateState, HitterState};

/// The nodes that leaves must have, parents before children, in key order.
pub(super) fn nodes(plan: &Plan, leaves: &[Leaf<'_>]) -> Vec<NodeRecord> {
    let fan_in = u32::try_from(plan.fold.fan_in).unwrap_or(u32::MAX);
    let keys: Vec<u128> = leaves.iter().map(|leaf| leaf.unit.key.get()).collect();
    let shapes = shape(&keys, fan_in);
    let spec = spec::hash(plan);
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
        .filter_map(|unit| {
            below
                .binary_search_by_key(&unit.key, |leaf| leaf.unit.key)
                .ok()
        })
        .map(|place| &below[place])
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
    let mut spans = fact.evidence.iter().map(|evidence| Evidence {
        quote: None,
        ..evidence.clone()
    });
    Cite {
        unit_id: fact.unit_id.clone(),
        source_hash: fact.source_hash,
        span: spans.next(),
        also: spans.collect(),
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
