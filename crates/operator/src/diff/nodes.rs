//! Compares two trees from their roots down; equal provenance hashes end the walk there.
//!
//! Nodes are matched by the range that they speak for. Below a range that only one tree has, the
//! walk goes on with its inputs, so that what did not change is found wherever it now hangs. Every
//! node that is not listed has equal hashes in both trees. Must not know units' facts or claims.

use std::cmp::Ordering;
use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::fold::{Child, Hashes, KeyRange, LeafKey, NodeRecord};
use crate::plan::FoldKey;
use crate::recorded::{RecordedRun, node_name};

use super::Both;

/// What became of a tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "trees", rename_all = "snake_case")]
pub enum TreeDifference {
    /// Their nodes do not speak for the same ranges.
    Incomparable {
        /// Why.
        why: String,
    },
    /// They were compared node by node.
    Compared {
        /// Whether the reductions differ; then so does every node.
        reductions_changed: bool,
        /// Nodes of the trees.
        nodes: Both<u64>,
        /// Nodes with equal provenance hashes, most of them never looked at.
        same: u64,
        /// Nodes looked at in either tree.
        visited: u64,
        /// Nodes of the same range that differ, parents before children.
        changed: Vec<NodeDifference>,
        /// Nodes that only the second tree has.
        added: Vec<NodeRef>,
        /// Nodes that only the first tree has.
        removed: Vec<NodeRef>,
    },
}

/// A node that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeDifference {
    /// Its name.
    pub node: String,
    /// Its hashes.
    pub hashes: Both<Hashes>,
    /// Whether what was decided below differs, and not only the bytes that it rests on.
    pub decision: bool,
    /// Reductions whose state differs, in plan order.
    pub states: Vec<String>,
    /// Units below it.
    pub units: Both<u64>,
}

/// A node that only one tree has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRef {
    /// Its name.
    pub node: String,
    /// Its hashes.
    #[serde(flatten)]
    pub hashes: Hashes,
    /// Units below it.
    pub units: u64,
}

/// Compares the trees of two runs.
pub(super) fn compare(before: &RecordedRun, after: &RecordedRun) -> TreeDifference {
    let (a, b) = (before.spec(), after.spec());
    if a.fan_in != b.fan_in {
        return TreeDifference::Incomparable {
            why: format!(
                "the fan-in is {} before and {} after, so that nodes speak for other ranges",
                a.fan_in, b.fan_in
            ),
        };
    }
    if a.key != b.key {
        let name = FoldKey::as_str;
        return TreeDifference::Incomparable {
            why: format!(
                "leaves are placed by {} before and by {} after, so that nodes speak for other \
                 ranges",
                name(a.key),
                name(b.key)
            ),
        };
    }
    let mut walk = Walk {
        before,
        after,
        sizes: sizes(before),
        same: 0,
        visited: 0,
        changed: Vec::new(),
        added: Vec::new(),
        removed: Vec::new(),
    };
    walk.run();
    TreeDifference::Compared {
        reductions_changed: a.hash() != b.hash(),
        nodes: Both::new(before.nodes.len() as u64, after.nodes.len() as u64),
        same: walk.same,
        visited: walk.visited,
        changed: walk.changed,
        added: walk.added,
        removed: walk.removed,
    }
}

/// How many nodes there are at and below each.
fn sizes(run: &RecordedRun) -> HashMap<(LeafKey, u32), u64> {
    let mut sizes = HashMap::with_capacity(run.nodes.len());
    // Children come after their parents.
    for record in run.nodes.iter().rev() {
        let below = record.node.children.iter().map(|child| match child {
            Child::Node { range, .. } => sizes
                .get(&(range.start, range.height))
                .copied()
                .unwrap_or(0),
            Child::Leaf { .. } => 0,
        });
        let size = 1 + below.sum::<u64>();
        let range = &record.node.range;
        sizes.insert((range.start, range.height), size);
    }
    sizes
}

struct Walk<'a> {
    before: &'a RecordedRun,
    after: &'a RecordedRun,
    sizes: HashMap<(LeafKey, u32), u64>,
    same: u64,
    visited: u64,
    changed: Vec<NodeDifference>,
    added: Vec<NodeRef>,
    removed: Vec<NodeRef>,
}

impl<'a> Walk<'a> {
    /// Holds the nodes yet to be seen of both trees, the first in key order on top: they are
    /// disjoint, and whatever is above them has been seen.
    fn run(&mut self) {
        let mut old: Vec<&'a NodeRecord> = self.before.root().into_iter().collect();
        let mut new: Vec<&'a NodeRecord> = self.after.root().into_iter().collect();
        loop {
            let (left, right) = match (old.last(), new.last()) {
                (None, None) => return,
                (Some(left), None) => (Some(*left), None),
                (None, Some(right)) => (None, Some(*right)),
                (Some(left), Some(right)) => match self.order(left, right) {
                    Ordering::Less => (Some(*left), None),
                    Ordering::Greater => (None, Some(*right)),
                    Ordering::Equal => (Some(*left), Some(*right)),
                },
            };
            self.visited += u64::from(left.is_some()) + u64::from(right.is_some());
            if left.is_some() {
                old.pop();
            }
            if right.is_some() {
                new.pop();
            }
            match (left, right) {
                (Some(left), Some(right)) => {
                    let hash = |record: &NodeRecord| record.node.hashes.provenance_hash;
                    if hash(left) == hash(right) {
                        let range = &left.node.range;
                        self.same += self.sizes[&(range.start, range.height)];
                        continue;
                    }
                    self.changed.push(self.change(left, right));
                }
                (Some(left), None) => self.removed.push(refer(left)),
                (None, Some(right)) => self.added.push(refer(right)),
                (None, None) => return,
            }
            if let Some(left) = left {
                old.extend(inputs(self.before, left));
            }
            if let Some(right) = right {
                new.extend(inputs(self.after, right));
            }
        }
    }

    /// Which of two nodes is to be seen first: the wider of nested ones, else the earlier one.
    fn order(&self, left: &NodeRecord, right: &NodeRecord) -> Ordering {
        let fan_in = self.before.spec().fan_in;
        let (a, b) = (left.node.range, right.node.range);
        if a == b {
            return Ordering::Equal;
        }
        let holds = |outer: &KeyRange, inner: &KeyRange| {
            outer.height > inner.height && outer.holds(inner.start, fan_in)
        };
        if holds(&a, &b) {
            Ordering::Less
        } else if holds(&b, &a) {
            Ordering::Greater
        } else {
            a.start.cmp(&b.start)
        }
    }

    fn change(&self, left: &NodeRecord, right: &NodeRecord) -> NodeDifference {
        let (a, b) = (&left.node, &right.node);
        let states = self.after.reductions().zip(&b.states);
        let mut states: Vec<String> = states
            .filter(|(reduce, state)| {
                let mut known = self.before.reductions().zip(&a.states);
                let known = known.find(|(other, _)| other.name == reduce.name);
                known.map(|(_, state)| state) != Some(*state)
            })
            .map(|(reduce, _)| reduce.name.clone())
            .collect();
        let dropped = self.before.reductions().filter(|reduce| {
            let mut known = self.after.reductions();
            known.all(|other| other.name != reduce.name)
        });
        states.extend(dropped.map(|reduce| reduce.name.clone()));
        NodeDifference {
            node: node_name(&a.range),
            hashes: Both::new(a.hashes, b.hashes),
            decision: a.hashes.fact_hash != b.hashes.fact_hash,
            states,
            units: Both::new(a.coverage.counts.units, b.coverage.counts.units),
        }
    }
}

/// The nodes below a node, the last in key order first.
fn inputs<'a>(
    run: &'a RecordedRun,
    record: &'a NodeRecord,
) -> impl Iterator<Item = &'a NodeRecord> {
    let children = record.node.children.iter().rev();
    children.filter_map(|child| match child {
        Child::Node { range, .. } => run.node(range),
        Child::Leaf { .. } => None,
    })
}

fn refer(record: &NodeRecord) -> NodeRef {
    NodeRef {
        node: node_name(&record.node.range),
        hashes: record.node.hashes,
        units: record.node.coverage.counts.units,
    }
}
