//! Builds the tree over facts in key order.
//!
//! The shape follows from the keys: a range with at most `fan_in` leaves is one node over them;
//! a larger one is cut into its `fan_in` equal parts, of which empty ones are left out and one with
//! a single leaf is that leaf. A range whose leaves all lie in one part is narrowed first, so no
//! node has a single input. States of equal inputs are looked up where a cache has them.
//! Memory: the leaves' entries, and one path of nodes; finished nodes go to the sink.

use std::ops::AddAssign;

use rayon::prelude::*;

use super::rows::{Entry, FactRef};
use super::{
    CITES_MAX, Child, FoldSpec, Hashes, KeyRange, Leaves, NODE_VERSION, Node, Reducer, UnitRef,
    hash_node,
};
use crate::coverage::Coverage;
use crate::error::OperatorError;
use crate::fact::Status;
use crate::id::ContentHash;
use crate::infer::UnitUsage;
use crate::reducers::{AggregateState, Ranked};

/// Leaves in a range from which its parts are folded side by side.
const PARALLEL_LEAVES: usize = 4_096;

/// What equal inputs gave before.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct StoredStates {
    /// One state per reducer.
    pub states: Vec<AggregateState>,
    /// Units that abstained or errored.
    pub unsettled: Ranked,
    /// Units that back some state.
    pub cited_total: u64,
}

/// Where states of equal inputs may be found.
pub trait NodeCache: Sync {
    /// The states that these inputs gave, by `input_key`; none when they are not known.
    fn states(&self, spec: &FoldSpec, range: KeyRange, children: &[Child]) -> Option<StoredStates>;

    /// Whether the leaf of this provenance hash is known.
    fn has_leaf(&self, provenance_hash: &ContentHash) -> bool;
}

/// Knows nothing.
impl NodeCache for () {
    fn states(&self, _: &FoldSpec, _: KeyRange, _: &[Child]) -> Option<StoredStates> {
        None
    }

    fn has_leaf(&self, _: &ContentHash) -> bool {
        false
    }
}

/// What a fold computed and what it found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct FoldWork {
    /// Leaves that were not known.
    pub leaves_computed: u64,
    /// Leaves that were.
    pub leaves_reused: u64,
    /// Nodes whose states were computed.
    pub nodes_computed: u64,
    /// Nodes whose states were looked up.
    pub nodes_reused: u64,
}

impl AddAssign for FoldWork {
    fn add_assign(&mut self, other: Self) {
        self.leaves_computed += other.leaves_computed;
        self.leaves_reused += other.leaves_reused;
        self.nodes_computed += other.nodes_computed;
        self.nodes_reused += other.nodes_reused;
    }
}

/// Folds facts and returns the root; every other node, and the root too, is shown to the sink first,
/// children before parents, with whether its states were looked up.
///
/// No facts give no root. One fact gives a root with one input.
///
/// # Errors
/// What reading a fact may cause.
pub fn fold(
    leaves: &Leaves<'_>,
    cache: &dyn NodeCache,
    sink: &(dyn Fn(&Node, bool) + Sync),
) -> Result<(Option<Node>, FoldWork), OperatorError> {
    let builder = Builder {
        leaves,
        spec: leaves.spec(),
        cache,
        sink,
    };
    if leaves.is_empty() {
        return Ok((None, FoldWork::default()));
    }
    let (part, mut work) = builder.part(leaves.entries())?;
    let root = match part {
        Part::Node(node) => *node,
        Part::Leaf(leaf) => {
            let range = KeyRange::covering(leaf.unit.key, leaf.unit.key, leaves.spec().fan_in);
            let (node, more) = assemble(leaves.spec(), cache, sink, range, vec![Part::Leaf(leaf)])?;
            work += more;
            node
        }
    };
    Ok((Some(root), work))
}

/// An input of a node while it is being made.
pub(super) enum Part<'a> {
    Leaf(LeafPart<'a>),
    Node(Box<Node>),
}

/// A leaf while its parent is being made.
pub(super) struct LeafPart<'a> {
    pub(super) unit: UnitRef,
    pub(super) fact: FactRef<'a>,
    pub(super) hashes: Hashes,
}

struct Builder<'a, 'b> {
    leaves: &'b Leaves<'a>,
    spec: &'b FoldSpec,
    cache: &'b dyn NodeCache,
    sink: &'b (dyn Fn(&Node, bool) + Sync),
}

impl<'a> Builder<'a, '_> {
    /// Folds a run of entries, one at least, that no other part shares a node with.
    fn part(&self, entries: &[Entry]) -> Result<(Part<'a>, FoldWork), OperatorError> {
        let mut work = FoldWork::default();
        if let [entry] = entries {
            let leaf = self.leaf(entry, &mut work)?;
            return Ok((Part::Leaf(leaf), work));
        }
        let (first, last) = (entries[0].key, entries[entries.len() - 1].key);
        let range = KeyRange::covering(first, last, self.spec.fan_in);
        let mut inputs = Vec::with_capacity(self.spec.fan_in as usize);
        if entries.len() <= self.spec.fan_in as usize {
            for entry in entries {
                inputs.push(Part::Leaf(self.leaf(entry, &mut work)?));
            }
        } else {
            let parts = self.cut(entries, &range);
            if entries.len() >= PARALLEL_LEAVES {
                let folded = parts
                    .into_par_iter()
                    .map(|part| self.part(part))
                    .collect::<Result<Vec<_>, _>>()?;
                for (part, more) in folded {
                    work += more;
                    inputs.push(part);
                }
            } else {
                for part in parts {
                    let (part, more) = self.part(part)?;
                    work += more;
                    inputs.push(part);
                }
            }
        }
        let (node, more) = assemble(self.spec, self.cache, self.sink, range, inputs)?;
        work += more;
        Ok((Part::Node(Box::new(node)), work))
    }

    fn leaf(&self, entry: &Entry, work: &mut FoldWork) -> Result<LeafPart<'a>, OperatorError> {
        let fact = self.leaves.read(entry)?;
        let hashes = self.leaves.hashes(entry, &fact);
        if self.cache.has_leaf(&hashes.provenance_hash) {
            work.leaves_reused += 1;
        } else {
            work.leaves_computed += 1;
        }
        Ok(LeafPart {
            unit: self.leaves.unit(entry, &fact),
            fact,
            hashes,
        })
    }

    /// Cuts entries where they cross into the next part of the range.
    fn cut<'e>(&self, entries: &'e [Entry], range: &KeyRange) -> Vec<&'e [Entry]> {
        let fan_in = self.spec.fan_in;
        let mut parts = Vec::with_capacity(fan_in as usize);
        let mut rest = entries;
        while let Some(entry) = rest.first() {
            let part = range.part(entry.key, fan_in);
            let end = rest.partition_point(|entry| range.part(entry.key, fan_in) <= part);
            let (head, tail) = rest.split_at(end);
            parts.push(head);
            rest = tail;
        }
        parts
    }
}

/// Makes the node over some inputs in key order.
pub(super) fn assemble(
    spec: &FoldSpec,
    cache: &dyn NodeCache,
    sink: &(dyn Fn(&Node, bool) + Sync),
    range: KeyRange,
    inputs: Vec<Part<'_>>,
) -> Result<(Node, FoldWork), OperatorError> {
    let coverage = cover(&inputs)?;
    let children: Vec<Child> = inputs.iter().map(child).collect();
    let known = cache.states(spec, range, &children);
    let reused = known.is_some();
    let stored = known.unwrap_or_else(|| combine(spec, &inputs));
    let mut cost = UnitUsage::default();
    for input in &inputs {
        cost += match input {
            Part::Leaf(leaf) => leaf.fact.cost,
            Part::Node(node) => node.cost,
        };
    }
    let mut node = Node {
        version: NODE_VERSION,
        spec: spec.hash(),
        range,
        children,
        coverage,
        cited: name_units(spec, &stored),
        states: stored.states,
        unsettled: stored.unsettled,
        cited_total: stored.cited_total,
        cost,
        hashes: Hashes::NONE,
    };
    node.hashes = hash_node(spec, &node);
    sink(&node, reused);
    let work = FoldWork {
        nodes_computed: u64::from(!reused),
        nodes_reused: u64::from(reused),
        ..FoldWork::default()
    };
    Ok((node, work))
}

fn child(input: &Part<'_>) -> Child {
    match input {
        Part::Leaf(leaf) => Child::Leaf {
            unit: leaf.unit.clone(),
            hashes: leaf.hashes,
        },
        Part::Node(node) => Child::Node {
            range: node.range,
            hashes: node.hashes,
        },
    }
}

/// The units of all inputs, which must follow each other.
fn cover(inputs: &[Part<'_>]) -> Result<Coverage, OperatorError> {
    let mut coverage = Coverage::empty();
    for input in inputs {
        match input {
            Part::Leaf(leaf) => coverage.append_unit(&leaf.unit, leaf.fact.status)?,
            Part::Node(node) => coverage.append(&node.coverage)?,
        }
    }
    Ok(coverage)
}

fn combine(spec: &FoldSpec, inputs: &[Part<'_>]) -> StoredStates {
    let mut states: Vec<AggregateState> = spec.reducers.iter().map(Reducer::empty).collect();
    let mut unsettled = Ranked::empty();
    let mut cited_total = 0;
    for input in inputs {
        match input {
            Part::Leaf(leaf) => {
                let mut selected = false;
                for (reducer, state) in spec.reducers.iter().zip(&mut states) {
                    selected |= reducer.absorb(state, &leaf.unit, &leaf.fact);
                }
                cited_total += u64::from(selected);
                if matches!(leaf.fact.status, Status::Abstained | Status::Errored) {
                    unsettled.absorb(0, &leaf.unit, CITES_MAX);
                }
            }
            Part::Node(node) => {
                for ((reducer, state), from) in
                    spec.reducers.iter().zip(&mut states).zip(&node.states)
                {
                    reducer.merge(state, from);
                }
                cited_total += node.cited_total;
                unsettled.merge(&node.unsettled, CITES_MAX);
            }
        }
    }
    StoredStates {
        states,
        unsettled,
        cited_total,
    }
}

/// The units that the claims of this node would cite: the first of each state in turn, then the
/// second, and so on.
fn name_units(spec: &FoldSpec, stored: &StoredStates) -> Vec<UnitRef> {
    let named: Vec<Vec<&UnitRef>> = spec
        .reducers
        .iter()
        .zip(&stored.states)
        .map(|(reducer, state)| state.named(reducer.cite_max() as usize))
        .collect();
    let most = named.iter().map(Vec::len).max().unwrap_or(0);
    let mut cited: Vec<UnitRef> = Vec::with_capacity(most);
    for place in 0..most {
        for unit in named.iter().filter_map(|units| units.get(place)) {
            if cited.len() < CITES_MAX && cited.iter().all(|known| known.key != unit.key) {
                cited.push((*unit).clone());
            }
        }
    }
    cited
}
