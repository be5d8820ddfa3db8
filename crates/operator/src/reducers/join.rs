//! Joins two selections of the same facts by key: which keys have partners, and which have none.
//!
//! The state is both sides' units per key, which distributes over any partition of the facts; the
//! pairs are formed at the root. That a key has *no* partner can be said only when every unit was
//! seen: outer and anti joins refuse to answer under incomplete coverage.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Folded, Groups, Selection, cite};
use crate::canonical::Canonical;
use crate::error::OperatorError;
use crate::fact::Fact;
use crate::fold::{Leaves, Reducer, UnitRef};
use crate::plan::{JoinKind, KeySource};

/// Most keys of one side; with more the reducer refuses to answer.
pub const KEYS_MAX: u32 = 65_536;

/// One side of a join.
#[derive(Debug, Clone)]
pub struct Side {
    /// Which facts are on this side.
    pub selection: Selection,
    /// By what they are joined.
    pub key: KeySource,
}

/// Joins two sides.
#[derive(Debug, Clone)]
pub struct Join {
    /// The left side.
    pub left: Side,
    /// The right side.
    pub right: Side,
    /// Which keys are wanted.
    pub kind: JoinKind,
    /// Units named per key and side at every node, and cited in all.
    pub cite_max: u32,
}

/// Units per key, for both sides.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinState {
    /// The left side's units.
    pub left: Groups,
    /// The right side's units.
    pub right: Groups,
}

impl JoinState {
    /// Writes the state into a hash.
    pub fn encode(&self, canonical: &mut Canonical) {
        self.left.encode(canonical);
        self.right.encode(canonical);
    }

    pub(super) fn named(&self, max: usize) -> Vec<&UnitRef> {
        let sides = [&self.left, &self.right];
        let units = sides
            .into_iter()
            .flat_map(|side| side.in_turn(side.groups.keys().map(String::as_str), max));
        units.take(max).collect()
    }
}

impl Join {
    /// Units that the claim cites at most.
    pub const fn cite_max(&self) -> u32 {
        self.cite_max
    }

    /// Writes the parameters into a hash.
    pub fn encode(&self, canonical: &mut Canonical) {
        for side in [&self.left, &self.right] {
            side.selection.encode(canonical);
            side.key.encode(canonical);
        }
        canonical.text(self.kind.as_str()).u32(self.cite_max);
    }
}

impl Reducer for Join {
    type State = JoinState;
    type Output = Folded;

    fn empty(&self) -> JoinState {
        JoinState::default()
    }

    fn absorb(&self, state: &mut JoinState, unit: &UnitRef, fact: &Fact) -> bool {
        let (cites, keys) = (self.cite_max as usize, KEYS_MAX as usize);
        let mut selected = false;
        for (side, groups) in [
            (&self.left, &mut state.left),
            (&self.right, &mut state.right),
        ] {
            if side.selection.admits(fact)
                && let Some(key) = side.key.read(fact)
            {
                groups.absorb(&key, 0, unit, cites, keys);
                selected = true;
            }
        }
        selected
    }

    fn merge(&self, into: &mut JoinState, from: &JoinState) {
        let (cites, keys) = (self.cite_max as usize, KEYS_MAX as usize);
        into.left.merge(&from.left, cites, keys);
        into.right.merge(&from.right, cites, keys);
    }

    fn finish(&self, state: &JoinState, leaves: &Leaves<'_>) -> Result<Folded, OperatorError> {
        for (side, groups) in [(&self.left, &state.left), (&self.right, &state.right)] {
            if groups.overflowed {
                return Err(OperatorError::FoldOverflow {
                    what: format!("keys of {} in a join", side.key.name()),
                    max: u64::from(KEYS_MAX),
                    cure: "narrow the side's where",
                });
            }
        }
        if self.kind != JoinKind::Inner {
            leaves.require_complete("a join that names keys without a partner")?;
        }
        let mut keys: Vec<&str> = [&state.left, &state.right]
            .into_iter()
            .flat_map(|side| side.groups.keys().map(String::as_str))
            .collect();
        keys.sort_unstable();
        keys.dedup();
        keys.retain(|key| {
            let (left, right) = (state.left.count(key), state.right.count(key));
            match self.kind {
                JoinKind::Inner => left > 0 && right > 0,
                JoinKind::Outer => true,
                JoinKind::Anti => left > 0 && right == 0,
            }
        });
        let rows: Vec<Value> = keys
            .iter()
            .map(|key| {
                let (left, right) = (state.left.count(key), state.right.count(key));
                // Facts that share a key pair each with each.
                json!({ "label": key, "left": left, "right": right, "pairs": left * right })
            })
            .collect();
        let max = self.cite_max as usize;
        let mut units = state.left.in_turn(keys.iter().copied(), max);
        units.extend(state.right.in_turn(keys.iter().copied(), max));
        let total = keys
            .iter()
            .map(|key| state.left.count(key) + state.right.count(key))
            .sum();
        Ok(Folded {
            count: rows.len() as u64,
            value: Value::Array(rows),
            cites: cite(units, leaves, self.cite_max)?,
            cites_total: total,
        })
    }
}
