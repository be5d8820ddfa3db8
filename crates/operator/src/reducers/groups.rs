//! The state that all reducers share: capped, ranked citations per key, with the exact total.
//!
//! Keeping the `max` best of each key commutes with merging, since an element of the best of a
//! union is among the best of its part. The total beside the cap is never capped.
//! Must not know what a key or a rank stands for.

use std::collections::BTreeMap;

use crate::fact::Cite;
use crate::id::UnitId;

/// A total order over the facts of a key: a number, smaller is better, then the unit.
pub type Rank = (u32, UnitId);

/// The best-ranked citations of one key and how many there were in all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranked {
    /// Facts counted, whether their citation is kept or not.
    pub total: u64,
    /// Citations kept, at most `max`.
    pub best: BTreeMap<Rank, Cite>,
    max: u32,
}

impl Ranked {
    fn one(rank: Rank, cite: Cite, max: u32) -> Self {
        let mut ranked = Self {
            total: 1,
            best: BTreeMap::from([(rank, cite)]),
            max,
        };
        ranked.cut();
        ranked
    }

    fn merge(&mut self, other: Self) {
        debug_assert_eq!(
            self.max, other.max,
            "states of two different reducers were merged"
        );
        self.total += other.total;
        self.best.extend(other.best);
        self.cut();
    }

    fn cut(&mut self) {
        while self.best.len() > self.max as usize {
            self.best.pop_last();
        }
    }
}

/// Ranked citations by key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Groups(BTreeMap<String, Ranked>);

impl Groups {
    /// Holds nothing; the neutral element of `merge`.
    pub fn empty() -> Self {
        Self::default()
    }

    /// Holds one fact under one key; `max` caps the citations kept, not the total.
    pub fn one(key: impl Into<String>, rank: Rank, cite: Cite, max: u32) -> Self {
        Self(BTreeMap::from([(key.into(), Ranked::one(rank, cite, max))]))
    }

    /// Joins the groups of two disjoint sets of facts.
    pub fn merge(mut self, other: Self) -> Self {
        for (key, ranked) in other.0 {
            match self.0.entry(key) {
                std::collections::btree_map::Entry::Occupied(mut held) => {
                    held.get_mut().merge(ranked);
                }
                std::collections::btree_map::Entry::Vacant(room) => {
                    room.insert(ranked);
                }
            }
        }
        self
    }

    /// Returns the number of facts under a key.
    pub fn count(&self, key: &str) -> u64 {
        self.0.get(key).map_or(0, |ranked| ranked.total)
    }

    /// Returns the number of facts under all keys.
    pub fn total(&self) -> u64 {
        self.0.values().map(|ranked| ranked.total).sum()
    }

    /// Returns a key's group.
    pub fn get(&self, key: &str) -> Option<&Ranked> {
        self.0.get(key)
    }

    /// Returns the keys with their counts, most frequent first, ties by key.
    pub fn by_count(&self) -> Vec<(&str, u64)> {
        let mut keys: Vec<(&str, u64)> = self
            .0
            .iter()
            .map(|(key, ranked)| (key.as_str(), ranked.total))
            .collect();
        keys.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(b.0)));
        keys
    }

    /// Picks at most `max` citations in turn from each key, so that every key is backed first.
    pub fn cites<'a>(&self, keys: impl IntoIterator<Item = &'a str>, max: u32) -> Vec<Cite> {
        let mut queues: Vec<_> = keys
            .into_iter()
            .filter_map(|key| self.0.get(key))
            .map(|ranked| ranked.best.values())
            .collect();
        let mut cites = Vec::new();
        loop {
            let before = cites.len();
            for queue in &mut queues {
                if cites.len() >= max as usize {
                    return cites;
                }
                cites.extend(queue.next().cloned());
            }
            if cites.len() == before {
                return cites;
            }
        }
    }
}
