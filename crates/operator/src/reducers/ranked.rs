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
        let place = self.place(rank, unit);
        if place < max {
            self.best.insert(place, (rank, unit.clone()));
            self.best.truncate(max);
        }
    }

    /// Adds a disjoint set that was kept under the same `max`.
    pub fn merge(&mut self, other: &Self, max: usize) {
        self.total += other.total;
        for entry in &other.best {
            let place = self.place(entry.0, &entry.1);
            if place >= max {
                break;
            }
            self.best.insert(place, entry.clone());
            self.best.truncate(max);
        }
    }

    /// Where a unit belongs among the best; keys mostly come in order, so at the end.
    fn place(&self, rank: i64, unit: &UnitRef) -> usize {
        let after = |(other, held): &(i64, UnitRef)| (*other, held.key) > (rank, unit.key);
        match self.best.last() {
            Some(last) if after(last) => self.best.partition_point(|held| !after(held)),
            _ => self.best.len(),
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
