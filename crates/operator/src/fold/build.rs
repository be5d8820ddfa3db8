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
    hash_inputs, hash_node,
};
use crate::coverage::{Coverage, Covered};
use crate::error::OperatorError;
use crate::fact::{Fact, Status};
use crate::id::ContentHash;
use crate::infer::UnitUsage;
use crate::reducers::{AggregateState, Ranked};

/// Leaves in a range from which its parts are folded side by side.
const PARALLEL_LEAVES: usize = 4_096;

/// Leaves in a range up to which all are read ahead; the facts of so many lie in a core's cache.
const TOUCHED_LEAVES: usize = 512;

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
    /// The states of the node of this fact hash; none when they are not known.
    fn states(&self, fact_hash: &ContentHash) -> Option<StoredStates>;

    /// Whether the leaf of this provenance hash is known.
    fn has_leaf(&self, provenance_hash: &ContentHash) -> bool;
}

/// Knows nothing.
impl NodeCache for () {
    fn states(&self, _: &ContentHash) -> Option<StoredStates> {
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
    let (part, mut work) = builder.part(leaves.entries(), false)?;
    let root = match part {
        Part::Node(node) => *node,
        Part::Leaf(leaf) => {
            let range = KeyRange::covering(leaf.unit.key, leaf.unit.key, leaves.spec().fan_in);
            let inputs = [Part::Leaf(leaf)].into_iter().collect();
            let (node, more) = assemble(leaves.spec(), cache, sink, range, inputs)?;
            work += more;
            *node
        }
    };
    Ok((Some(root), work))
}

/// What a part of a range folds to: an input of the node above.
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

/// The inputs of a node while it is being made: what it will say of them, and what that is made of.
#[derive(Default)]
pub(super) struct Inputs<'a> {
    children: Vec<Child>,
    sources: Vec<Source<'a>>,
}

enum Source<'a> {
    Fact(FactRef<'a>),
    Node(Box<Node>),
}

enum Input<'i> {
    Leaf(&'i UnitRef, &'i Fact),
    Node(&'i Node),
}

impl<'a> Inputs<'a> {
    fn with_capacity(inputs: usize) -> Self {
        Self {
            children: Vec::with_capacity(inputs),
            sources: Vec::with_capacity(inputs),
        }
    }

    pub(super) fn push(&mut self, part: Part<'a>) {
        let (child, source) = match part {
            Part::Leaf(LeafPart { unit, fact, hashes }) => {
                (Child::Leaf { unit, hashes }, Source::Fact(fact))
            }
            Part::Node(node) => {
                let (range, hashes) = (node.range, node.hashes);
                (Child::Node { range, hashes }, Source::Node(node))
            }
        };
        self.children.push(child);
        self.sources.push(source);
    }

    fn iter(&self) -> impl Iterator<Item = Input<'_>> {
        let pairs = self.children.iter().zip(&self.sources);
        pairs.map(|(child, source)| match (child, source) {
            (Child::Leaf { unit, .. }, Source::Fact(fact)) => Input::Leaf(unit, fact),
            (_, Source::Node(node)) => Input::Node(node),
            (Child::Node { .. }, Source::Fact(_)) => unreachable!("push pairs a leaf with a fact"),
        })
    }
}

impl<'a> FromIterator<Part<'a>> for Inputs<'a> {
    fn from_iter<I: IntoIterator<Item = Part<'a>>>(parts: I) -> Self {
        let mut inputs = Self::default();
        parts.into_iter().for_each(|part| inputs.push(part));
        inputs
    }
}

struct Builder<'a, 'b> {
    leaves: &'b Leaves<'a>,
    spec: &'b FoldSpec,
    cache: &'b dyn NodeCache,
    sink: &'b (dyn Fn(&Node, bool) + Sync),
}

impl<'a> Builder<'a, '_> {
    /// Folds a run of entries, one at least, that no other part shares a node with.
    fn part(
        &self,
        entries: &[Entry],
        mut touched: bool,
    ) -> Result<(Part<'a>, FoldWork), OperatorError> {
        let mut work = FoldWork::default();
        if !touched && entries.len() <= TOUCHED_LEAVES {
            self.leaves.touch(entries)?;
            touched = true;
        }
        if let [entry] = entries {
            let leaf = self.leaf(entry, &mut work)?;
            return Ok((Part::Leaf(leaf), work));
        }
        let (first, last) = (entries[0].key, entries[entries.len() - 1].key);
        let range = KeyRange::covering(first, last, self.spec.fan_in);
        let mut inputs = Inputs::with_capacity(entries.len().min(self.spec.fan_in as usize));
        if entries.len() <= self.spec.fan_in as usize {
            for entry in entries {
                inputs.push(Part::Leaf(self.leaf(entry, &mut work)?));
            }
        } else {
            let parts = self.cut(entries, &range);
            if entries.len() >= PARALLEL_LEAVES {
                let folded = parts
                    .into_par_iter()
                    .map(|part| self.part(part, touched))
                    .collect::<Result<Vec<_>, _>>()?;
                for (part, more) in folded {
                    work += more;
                    inputs.push(part);
                }
            } else {
                for part in parts {
                    let (part, more) = self.part(part, touched)?;
                    work += more;
                    inputs.push(part);
                }
            }
        }
        let (node, more) = assemble(self.spec, self.cache, self.sink, range, inputs)?;
        work += more;
        Ok((Part::Node(node), work))
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
    inputs: Inputs<'_>,
) -> Result<(Box<Node>, FoldWork), OperatorError> {
    let coverage = Coverage::join(inputs.iter().map(|input| match input {
        Input::Leaf(unit, fact) => Covered::Unit(unit, fact.status),
        Input::Node(node) => Covered::Part(&node.coverage),
    }))?;
    let fact_hash = hash_inputs(spec, range, &inputs.children);
    let known = cache.states(&fact_hash);
    let reused = known.is_some();
    let mut cost = UnitUsage::default();
    for input in inputs.iter() {
        cost += match input {
            Input::Leaf(_, fact) => fact.cost,
            Input::Node(node) => node.cost,
        };
    }
    let stored = known.unwrap_or_else(|| combine(spec, &inputs));
    let mut node = Box::new(Node {
        version: NODE_VERSION,
        spec: spec.hash(),
        range,
        children: inputs.children,
        coverage,
        states: stored.states,
        unsettled: stored.unsettled,
        cited_total: stored.cited_total,
        cost,
        hashes: Hashes {
            fact_hash,
            // Set below: it is computed from all the rest.
            provenance_hash: fact_hash,
        },
    });
    node.hashes.provenance_hash = hash_node(&node);
    sink(&node, reused);
    let work = FoldWork {
        nodes_computed: u64::from(!reused),
        nodes_reused: u64::from(reused),
        ..FoldWork::default()
    };
    Ok((node, work))
}

fn combine(spec: &FoldSpec, inputs: &Inputs<'_>) -> StoredStates {
    let mut states: Vec<AggregateState> = spec.reducers.iter().map(Reducer::empty).collect();
    let mut unsettled = Ranked::empty();
    let mut cited_total = 0;
    for input in inputs.iter() {
        let states = spec.reducers.iter().zip(&mut states);
        match input {
            Input::Leaf(unit, fact) => {
                let mut selected = false;
                for (reducer, state) in states {
                    selected |= reducer.absorb(state, unit, fact);
                }
                cited_total += u64::from(selected);
                if matches!(fact.status, Status::Abstained | Status::Errored) {
                    unsettled.absorb(0, unit, CITES_MAX);
                }
            }
            Input::Node(node) => {
                for ((reducer, state), from) in states.zip(&node.states) {
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
