//! Ranked units per key: the state of every reducer that counts by something.
//!
//! More keys than declared empty the state and mark it as overflowed: whether that happens depends
//! on the set of keys alone, never on the order in which they came. Must not know what a key is.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Ranked;
use crate::canonical::Canonical;
use crate::fold::UnitRef;

/// Units by key, in key order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Groups {
    /// Units under all keys.
    pub total: u64,
    /// Whether there were more keys than declared; then no group is held.
    pub overflowed: bool,
    /// Units by key.
    pub groups: BTreeMap<String, Ranked>,
}

impl Groups {
    /// Holds nothing; the neutral element of `merge`.
    pub fn empty() -> Self {
        Self::default()
    }

    /// Counts one unit under a key; names at most `units_max` per key, holds at most `keys_max` keys.
    pub fn absorb(
        &mut self,
        key: &str,
        rank: i64,
        unit: &UnitRef,
        units_max: usize,
        keys_max: usize,
    ) {
        self.total += 1;
        if self.overflowed {
            return;
        }
        // Most keys are known: only a new one is copied.
        if let Some(ranked) = self.groups.get_mut(key) {
            ranked.absorb(rank, unit, units_max);
            return;
        }
        let mut ranked = Ranked::empty();
        ranked.absorb(rank, unit, units_max);
        self.groups.insert(key.to_owned(), ranked);
        self.check(keys_max);
    }

    /// Adds the groups of a disjoint set of units, kept under the same bounds.
    pub fn merge(&mut self, other: &Self, units_max: usize, keys_max: usize) {
        self.total += other.total;
        if self.overflowed || other.overflowed {
            self.overflow();
            return;
        }
        for (key, ranked) in &other.groups {
            match self.groups.get_mut(key) {
                Some(held) => held.merge(ranked, units_max),
                None => {
                    self.groups.insert(key.clone(), ranked.clone());
                }
            }
        }
        self.check(keys_max);
    }

    /// Returns a key's units.
    pub fn get(&self, key: &str) -> Option<&Ranked> {
        self.groups.get(key)
    }

    /// Returns the number of units under a key.
    pub fn count(&self, key: &str) -> u64 {
        self.get(key).map_or(0, |ranked| ranked.total)
    }

    /// Returns the keys with their counts, most frequent first, ties by key.
    pub fn by_count(&self) -> Vec<(&str, u64)> {
        let mut keys: Vec<(&str, u64)> = self
            .groups
            .iter()
            .map(|(key, ranked)| (key.as_str(), ranked.total))
            .collect();
        keys.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(b.0)));
        keys
    }

    /// Names at most `max` units, of each key in turn, so that every key is backed before any is
    /// backed twice.
    pub fn in_turn<'a>(
        &'a self,
        keys: impl IntoIterator<Item = &'a str>,
        max: usize,
    ) -> Vec<&'a UnitRef> {
        let groups: Vec<&Ranked> = keys.into_iter().filter_map(|key| self.get(key)).collect();
        let most = groups.iter().map(|group| group.best.len()).max();
        let places = 0..most.unwrap_or(0);
        let turns = places.flat_map(|place| groups.iter().map(move |group| group.best.get(place)));
        turns.flatten().map(|(_, unit)| unit).take(max).collect()
    }

    /// Writes the state into a hash.
    pub fn encode(&self, canonical: &mut Canonical) {
        canonical
            .u64(self.total)
            .bool(self.overflowed)
            .list(self.groups.len());
        for (key, ranked) in &self.groups {
            canonical.text(key);
            ranked.encode(canonical);
        }
    }

    fn check(&mut self, keys_max: usize) {
        if self.groups.len() > keys_max {
            self.overflow();
        }
    }

    fn overflow(&mut self) {
        self.overflowed = true;
        self.groups.clear();
    }
}
