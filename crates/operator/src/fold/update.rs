//! Changes one leaf of a tree: only the nodes above it are made again.
//!
//! The result is the tree that `fold` would build from the changed facts, to the hash, since shape
//! follows from keys alone. Must not know where facts come from.

use std::collections::BTreeMap;
use std::sync::Mutex;

use super::build::{LeafPart, Part, assemble};
use super::{Child, FactRef, FoldSpec, FoldWork, Hashes, KeyRange, Leaves, Node, UnitRef, fold};
use crate::error::OperatorError;
use crate::fact::Fact;
use crate::id::ContentHash;

/// Reads the fact of a unit that a change leaves as it was.
pub type Siblings<'a> = dyn Fn(&UnitRef) -> Result<Fact, OperatorError> + 'a;

/// A folded tree that can be changed leaf by leaf.
///
/// Memory: every node of the current tree; facts stay with the caller, and nodes that a change
/// replaced are dropped.
#[derive(Debug, Clone)]
pub struct Tree {
    spec: FoldSpec,
    // Boxed and in a tree map: no change has to wait until a table of all nodes has grown.
    nodes: BTreeMap<ContentHash, Box<Node>>,
    root: Option<ContentHash>,
}

impl Tree {
    /// Folds facts and keeps every node.
    ///
    /// # Errors
    /// What reading a fact may cause.
    pub fn fold(leaves: &Leaves<'_>) -> Result<Self, OperatorError> {
        let nodes = Mutex::new(BTreeMap::new());
        let (root, _) = fold(leaves, &(), &|node: &Node, _| {
            let mut nodes = nodes.lock().unwrap_or_else(|held| held.into_inner());
            nodes.insert(node.hashes.provenance_hash, Box::new(node.clone()));
        })?;
        Ok(Self {
            spec: leaves.spec().clone(),
            nodes: nodes.into_inner().unwrap_or_else(|held| held.into_inner()),
            root: root.map(|root| root.hashes.provenance_hash),
        })
    }

    /// The root; none when there is no leaf.
    pub fn root(&self) -> Option<&Node> {
        self.nodes.get(self.root.as_ref()?).map(Box::as_ref)
    }

    /// Every node of the tree, in no order.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = &Node> {
        self.nodes.values().map(Box::as_ref)
    }

    /// Replaces a unit's fact, or adds the unit; returns what was made and kept.
    ///
    /// # Errors
    /// What reading a sibling's fact may cause.
    pub fn put(&mut self, fact: &Fact, siblings: &Siblings<'_>) -> Result<FoldWork, OperatorError> {
        let leaf = LeafPart {
            unit: self.spec.place(fact),
            fact: FactRef::Made(Box::new(fact.clone())),
            hashes: Hashes::of(fact),
        };
        let mut change = Change {
            tree: self,
            siblings,
            made: 0,
        };
        let top = match change.tree.root.take() {
            None => Part::Leaf(leaf),
            Some(root) => {
                let root = change.take(root);
                match root.children.as_slice() {
                    [Child::Leaf { unit, .. }] => {
                        let other = change.leaf(unit)?;
                        change.grow(other, leaf)?
                    }
                    _ => change.put(root, leaf)?,
                }
            }
        };
        let made = change.close(Some(top))?;
        Ok(self.work(1, made))
    }

    /// Removes a unit; returns what was made and kept. A unit that is no leaf changes nothing.
    ///
    /// # Errors
    /// What reading a sibling's fact may cause.
    pub fn remove(
        &mut self,
        unit: &UnitRef,
        siblings: &Siblings<'_>,
    ) -> Result<FoldWork, OperatorError> {
        let mut change = Change {
            tree: self,
            siblings,
            made: 0,
        };
        let Some(root) = change.tree.root.take() else {
            return Ok(FoldWork::default());
        };
        let root = change.take(root);
        let top = change.remove(root, unit)?;
        let made = change.close(top)?;
        Ok(self.work(0, made))
    }

    fn work(&self, leaves_computed: u64, nodes_computed: u64) -> FoldWork {
        let leaves = self.root().map_or(0, |root| root.coverage.counts.units);
        FoldWork {
            leaves_computed,
            leaves_reused: leaves - leaves_computed,
            nodes_computed,
            nodes_reused: self.nodes.len() as u64 - nodes_computed,
        }
    }
}

/// One change under way; nodes on its path are taken out of the tree and made again.
struct Change<'t, 's> {
    tree: &'t mut Tree,
    siblings: &'s Siblings<'s>,
    made: u64,
}

impl Change<'_, '_> {
    fn put(&mut self, node: Node, leaf: LeafPart<'static>) -> Result<Part<'static>, OperatorError> {
        let fan_in = self.tree.spec.fan_in;
        let units = node.coverage.counts.units;
        if !node.range.holds(leaf.unit.key, fan_in) {
            if units < u64::from(fan_in) {
                let mut facts = self.gather(node)?;
                facts.push(leaf.fact.clone());
                return self.build(&facts);
            }
            let (low, high) = if leaf.unit.key < node.range.start {
                (leaf.unit.key, node.range.start)
            } else {
                (node.range.start, leaf.unit.key)
            };
            let range = KeyRange::covering(low, high, fan_in);
            let leaf_first = leaf.unit.key == low;
            let mut inputs = vec![self.keep(node), Part::Leaf(leaf)];
            if leaf_first {
                inputs.reverse();
            }
            return self.make(range, inputs);
        }
        if units <= u64::from(fan_in) {
            let mut facts = self.gather(node)?;
            facts.retain(|fact| fact.unit_id != leaf.unit.id);
            facts.push(leaf.fact.clone());
            return self.build(&facts);
        }
        let part = node.range.part(leaf.unit.key, fan_in);
        let mut leaf = Some(leaf);
        let mut inputs = Vec::with_capacity(node.children.len() + 1);
        for child in &node.children {
            let key = match child {
                Child::Leaf { unit, .. } => unit.key,
                Child::Node { range, .. } => range.start,
            };
            let place = node.range.part(key, fan_in);
            if place > part
                && let Some(leaf) = leaf.take()
            {
                inputs.push(Part::Leaf(leaf));
            }
            inputs.push(match (child, leaf.take_if(|_| place == part)) {
                (Child::Node { hashes, .. }, Some(leaf)) => {
                    let below = self.take(hashes.provenance_hash);
                    self.put(below, leaf)?
                }
                (Child::Node { hashes, .. }, None) => self.copy(hashes.provenance_hash),
                (Child::Leaf { unit, .. }, Some(leaf)) => {
                    let other = self.leaf(unit)?;
                    self.grow(other, leaf)?
                }
                (Child::Leaf { unit, .. }, None) => Part::Leaf(self.leaf(unit)?),
            });
        }
        inputs.extend(leaf.map(Part::Leaf));
        self.make(node.range, inputs)
    }

    fn remove(
        &mut self,
        node: Node,
        unit: &UnitRef,
    ) -> Result<Option<Part<'static>>, OperatorError> {
        let fan_in = self.tree.spec.fan_in;
        if !node.range.holds(unit.key, fan_in) {
            return Ok(Some(self.keep(node)));
        }
        if node.coverage.counts.units <= u64::from(fan_in) + 1 {
            let mut facts = self.gather(node)?;
            facts.retain(|fact| fact.unit_id != unit.id);
            return match facts.as_slice() {
                [] => Ok(None),
                facts => self.build(facts).map(Some),
            };
        }
        let part = node.range.part(unit.key, fan_in);
        let mut inputs = Vec::with_capacity(node.children.len());
        for child in &node.children {
            match child {
                Child::Leaf { unit: other, .. } if other == unit => {}
                Child::Leaf { unit: other, .. } => {
                    inputs.push(Part::Leaf(self.leaf(other)?));
                }
                Child::Node { range, hashes } if node.range.part(range.start, fan_in) == part => {
                    let below = self.take(hashes.provenance_hash);
                    inputs.extend(self.remove(below, unit)?);
                }
                Child::Node { hashes, .. } => inputs.push(self.copy(hashes.provenance_hash)),
            }
        }
        match inputs.pop() {
            Some(only) if inputs.is_empty() => Ok(Some(only)),
            Some(last) => {
                inputs.push(last);
                self.make(node.range, inputs).map(Some)
            }
            None => Ok(None),
        }
    }

    /// Joins two leaves of one part: the later fact where both speak for one unit.
    fn grow(
        &mut self,
        old: LeafPart<'static>,
        new: LeafPart<'static>,
    ) -> Result<Part<'static>, OperatorError> {
        if old.unit == new.unit {
            return Ok(Part::Leaf(new));
        }
        self.build(&[old.fact.clone(), new.fact.clone()])
    }

    /// Folds a few facts into a part of their own.
    fn build(&mut self, facts: &[Fact]) -> Result<Part<'static>, OperatorError> {
        if let [fact] = facts {
            return Ok(Part::Leaf(LeafPart {
                unit: self.tree.spec.place(fact),
                fact: FactRef::Made(Box::new(fact.clone())),
                hashes: Hashes::of(fact),
            }));
        }
        let spec = self.tree.spec.clone();
        let facts = facts.to_vec();
        let made = Mutex::new(Vec::new());
        let (root, _) = fold(&Leaves::arrange(&spec, &facts)?, &(), &|node: &Node, _| {
            let mut made = made.lock().unwrap_or_else(|held| held.into_inner());
            made.push(node.clone());
        })?;
        for node in made.into_inner().unwrap_or_else(|held| held.into_inner()) {
            self.insert(node);
        }
        match root {
            Some(root) => Ok(Part::Node(Box::new(root))),
            None => unreachable!("two facts at least have a root"),
        }
    }

    fn make(
        &mut self,
        range: KeyRange,
        inputs: Vec<Part<'_>>,
    ) -> Result<Part<'static>, OperatorError> {
        let inputs = inputs.into_iter().collect();
        let (node, _) = assemble(&self.tree.spec, &(), &|_, _| {}, range, inputs)?;
        self.insert((*node).clone());
        Ok(Part::Node(node))
    }

    fn insert(&mut self, node: Node) {
        self.made += 1;
        self.tree
            .nodes
            .insert(node.hashes.provenance_hash, Box::new(node));
    }

    fn keep(&mut self, node: Node) -> Part<'static> {
        self.tree
            .nodes
            .insert(node.hashes.provenance_hash, Box::new(node.clone()));
        Part::Node(Box::new(node))
    }

    fn take(&mut self, hash: ContentHash) -> Node {
        match self.tree.nodes.remove(&hash) {
            Some(node) => *node,
            None => panic!("node {hash} is named by its parent and not in the tree"),
        }
    }

    fn copy(&self, hash: ContentHash) -> Part<'static> {
        Part::Node(self.tree.nodes[&hash].clone())
    }

    fn leaf(&self, unit: &UnitRef) -> Result<LeafPart<'static>, OperatorError> {
        let fact = (self.siblings)(unit)?;
        Ok(LeafPart {
            unit: unit.clone(),
            hashes: Hashes::of(&fact),
            fact: FactRef::Made(Box::new(fact)),
        })
    }

    /// The facts below a node, whose own nodes are dropped.
    fn gather(&mut self, node: Node) -> Result<Vec<Fact>, OperatorError> {
        let mut facts = Vec::new();
        for child in &node.children {
            match child {
                Child::Leaf { unit, .. } => facts.push((self.siblings)(unit)?),
                Child::Node { hashes, .. } => {
                    let below = self.take(hashes.provenance_hash);
                    facts.extend(self.gather(below)?);
                }
            }
        }
        Ok(facts)
    }

    /// Puts the new top in place; returns how many nodes were made.
    fn close(mut self, top: Option<Part<'static>>) -> Result<u64, OperatorError> {
        let top = match top {
            Some(Part::Leaf(leaf)) => {
                let (key, fan_in) = (leaf.unit.key, self.tree.spec.fan_in);
                let range = KeyRange::covering(key, key, fan_in);
                Some(self.make(range, vec![Part::Leaf(leaf)])?)
            }
            top => top,
        };
        self.tree.root = match top {
            Some(Part::Node(node)) => Some(node.hashes.provenance_hash),
            _ => None,
        };
        Ok(self.made)
    }
}
