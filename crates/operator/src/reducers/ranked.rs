//! Named units under a cap, beside the exact total that is never capped.
//!
//! Keeping the best of a total order (rank, then place) commutes with merging: an element of the
//! best of a union is among the best of its part, so what a node dropped can never be called for
//! above. Must not know what a rank stands for.

use serde::{Deserialize, Serialize};

use crate::canonical::Canonical;
use crate::fold::UnitRef;

/// The best-ranked units of some set and how many the set has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ranked {
    /// Units counted, whether named or not.
    pub total: u64,
    /// Rank and unit; smaller ranks first, ties in key order.
    pub best: Vec<(i64, UnitRef)>,
}

impl Ranked {
    /// Counts nothing; the neutral element of `merge`.
    pub const fn empty() -> Self {
        Self {
            total: 0,
            best: Vec::new(),
        }
    }

    /// Counts one unit and names it if it is among the `max` best.
    pub fn absorb(&mut self, rank: i64, unit: &UnitRef, max: usize) {
        self.total += 1;
        // Keys mostly come in order: most belong at the end.
        let place = match self.best.last() {
            Some((other, held)) if (*other, held.key) > (rank, unit.key) => self
                .best
                .partition_point(|(other, held)| (*other, held.key) <= (rank, unit.key)),
            _ => self.best.len(),
        };
        if place < max {
            self.best.insert(place, (rank, unit.clone()));
            self.best.truncate(max);
        }
    }

    /// Adds a disjoint set that was kept under the same `max`.
    pub fn merge(&mut self, other: &Self, max: usize) {
        self.total += other.total;
        // Keys mostly come in order, so that appending is the whole work.
        for entry in &other.best {
            let place = self
                .best
                .partition_point(|(rank, unit)| (*rank, unit.key) <= (entry.0, entry.1.key));
            if place >= max {
                break;
            }
            self.best.insert(place, entry.clone());
            self.best.truncate(max);
        }
    }

    /// The named units, best first.
    pub fn units(&self) -> impl ExactSizeIterator<Item = &UnitRef> {
        self.best.iter().map(|(_, unit)| unit)
    }

    /// Writes the state into a hash.
    pub fn encode(&self, canonical: &mut Canonical) {
        canonical.u64(self.total).list(self.best.len());
        for (rank, unit) in &self.best {
            canonical.i64(*rank).text(unit.id.as_str());
        }
    }
}
