//! The tree that a set of facts must have, from their keys alone.
//!
//! A node speaks for the smallest range of `fan_in ^ height` keys, aligned to that width, in which
//! its leaves lie. Up to `fan_in` leaves are its inputs; more are cut into the range's `fan_in`
//! equal parts, of which each is again a node, a single leaf, or nothing.

use std::ops::Range;

use super::hash;
use crate::canonical::Canonical;
use crate::fact::Fact;
use crate::fold::{Hashes, KeyRange, LeafKey, UnitRef};
use crate::plan::{FoldKey, Plan};

/// A fact at its place.
pub(super) struct Leaf<'a> {
    pub(super) unit: UnitRef,
    pub(super) fact: &'a Fact,
    pub(super) hashes: Hashes,
}

/// A node to be: where it is, and its inputs.
pub(super) struct Shape {
    /// Ranges from the root down to the node itself.
    pub(super) path: Vec<KeyRange>,
    /// Its leaves, as places among all leaves.
    pub(super) leaves: Range<usize>,
    /// Its inputs in key order.
    pub(super) inputs: Vec<Input>,
}

/// An input of a node, as a place among all leaves or among all nodes.
#[derive(Clone, Copy)]
pub(super) enum Input {
    Leaf(usize),
    Node(usize),
}

/// The facts in key order; of facts that share a key the first stands for all.
pub(super) fn arrange<'a>(plan: &Plan, facts: &'a [Fact]) -> Vec<Leaf<'a>> {
    let mut leaves: Vec<Leaf<'a>> = facts
        .iter()
        .map(|fact| Leaf {
            unit: UnitRef {
                key: LeafKey::from_number(key(plan.fold.key, fact)),
                id: fact.unit_id.clone(),
            },
            hashes: hash::fact(fact),
            fact,
        })
        .collect();
    leaves.sort_by_key(|leaf| leaf.unit.key);
    leaves.dedup_by_key(|leaf| leaf.unit.key);
    leaves
}

/// The key of a leaf: a position or a whole number as it is, any other id by a hash past them.
pub(super) fn key(kind: FoldKey, fact: &Fact) -> u128 {
    let id = fact.unit_id.as_str();
    if kind == FoldKey::Ordinal {
        return u128::from(fact.ordinal);
    }
    if let Ok(number) = id.parse::<u64>()
        && number.to_string() == id
    {
        return u128::from(number);
    }
    let mut text = Canonical::new("operator 2026 leaf key v1");
    text.text(id);
    let digest = text.digest();
    let low = digest[..16].iter().rev();
    let hash = low.fold(0_u128, |number, byte| number << 8 | u128::from(*byte));
    hash | 1 << 127
}

/// Every node over keys in ascending order, parents before children, in key order.
pub(super) fn shape(keys: &[u128], fan_in: u32) -> Vec<Shape> {
    let mut shapes = Vec::new();
    if !keys.is_empty() {
        grow(
            keys,
            u128::from(fan_in.max(2)),
            0..keys.len(),
            &[],
            &mut shapes,
        );
    }
    shapes
}

/// Adds the node over some of the keys, and all below it; returns its place.
fn grow(
    keys: &[u128],
    base: u128,
    leaves: Range<usize>,
    above: &[KeyRange],
    shapes: &mut Vec<Shape>,
) -> usize {
    let (first, last) = (keys[leaves.start], keys[leaves.end - 1]);
    let (range, part_width) = cover(first, last, base);
    let mut path = above.to_vec();
    path.push(range);
    let place = shapes.len();
    shapes.push(Shape {
        path: path.clone(),
        leaves: leaves.clone(),
        inputs: Vec::new(),
    });
    let inputs = if leaves.len() as u128 <= base {
        leaves.map(Input::Leaf).collect()
    } else {
        let mut inputs = Vec::new();
        let mut start = leaves.start;
        for end in leaves.start + 1..=leaves.end {
            let whole = end == leaves.end || keys[end] / part_width != keys[start] / part_width;
            if !whole {
                continue;
            }
            inputs.push(match end - start {
                1 => Input::Leaf(start),
                _ => Input::Node(grow(keys, base, start..end, &path, shapes)),
            });
            start = end;
        }
        inputs
    };
    shapes[place].inputs = inputs;
    place
}

/// The smallest aligned range that holds both keys, and the width of its parts.
fn cover(first: u128, last: u128, base: u128) -> (KeyRange, u128) {
    let (mut height, mut part) = (1, 1_u128);
    loop {
        let width = part.checked_mul(base);
        let start = match width {
            // One range of that width is wider than all keys together.
            None => Some(0),
            Some(width) => (first / width == last / width).then(|| first / width * width),
        };
        if let Some(start) = start {
            let start = LeafKey::from_number(start);
            return (KeyRange { start, height }, part);
        }
        height += 1;
        part = part.saturating_mul(base);
    }
}
