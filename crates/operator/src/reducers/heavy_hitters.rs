//! Every key that more than one in k + 1 selected facts carries, with exact counts.
//!
//! While there are at most k different keys all are counted. Past that, Misra and Gries's summary
//! (1982; mergeable: Agarwal et al., PODS 2012) keeps k counters, and whatever the tree's shape no
//! key over the threshold is ever lost; which keys under it survive does depend on the shape.
//! The answer does not: the survivors are counted again over the leaves, and those under the
//! threshold are dropped. So the result is exact and order invariant where node states are not.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Folded, Groups, Selection, cite};
use crate::canonical::Canonical;
use crate::error::OperatorError;
use crate::fact::Fact;
use crate::fold::{Leaves, Reducer, UnitRef};
use crate::plan::KeySource;

/// Finds the frequent keys of selected facts.
#[derive(Debug, Clone)]
pub struct HeavyHitters {
    /// Which facts count.
    pub selection: Selection,
    /// What is counted by.
    pub key: KeySource,
    /// Counters; a key is frequent when more than 1 in k + 1 facts carry it.
    pub k: u32,
    /// Units cited.
    pub cite_max: u32,
}

/// Counters that no frequent key escapes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HitterState {
    /// Facts counted.
    pub total: u64,
    /// What was taken off every counter's true count, at most; zero while all keys are counted.
    pub error_max: u64,
    /// Key and counter.
    pub counters: BTreeMap<String, u64>,
}

impl HitterState {
    /// Writes the state into a hash.
    pub fn encode(&self, canonical: &mut Canonical) {
        canonical
            .u64(self.total)
            .u64(self.error_max)
            .list(self.counters.len());
        for (key, count) in &self.counters {
            canonical.text(key).u64(*count);
        }
    }

    /// Counters name no units: those are found again over the leaves.
    pub(super) fn named(&self, _: usize) -> Vec<&UnitRef> {
        Vec::new()
    }

    fn add(&mut self, key: &str, count: u64) {
        match self.counters.get_mut(key) {
            Some(counter) => *counter += count,
            None => {
                self.counters.insert(key.to_owned(), count);
            }
        }
    }

    /// Takes the count of the first counter past k, in order of size, off every counter.
    fn cut(&mut self, k: usize) {
        if self.counters.len() <= k {
            return;
        }
        let mut sizes: Vec<u64> = self.counters.values().copied().collect();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        let taken = sizes[k];
        self.error_max += taken;
        self.counters.retain(|_, count| {
            *count = count.saturating_sub(taken);
            *count > 0
        });
    }
}

impl HeavyHitters {
    /// Units that the claim cites at most.
    pub const fn cite_max(&self) -> u32 {
        self.cite_max
    }

    /// Writes the parameters into a hash.
    pub fn encode(&self, canonical: &mut Canonical) {
        self.selection.encode(canonical);
        self.key.encode(canonical);
        canonical.u32(self.k).u32(self.cite_max);
    }
}

impl Reducer for HeavyHitters {
    type State = HitterState;
    type Output = Folded;

    fn empty(&self) -> HitterState {
        HitterState::default()
    }

    fn absorb(&self, state: &mut HitterState, _: &UnitRef, fact: &Fact) -> bool {
        if !self.selection.admits(fact) {
            return false;
        }
        let Some(key) = self.key.read(fact) else {
            return false;
        };
        state.total += 1;
        state.add(&key, 1);
        state.cut(self.k as usize);
        true
    }

    fn merge(&self, into: &mut HitterState, from: &HitterState) {
        into.total += from.total;
        into.error_max += from.error_max;
        for (key, count) in &from.counters {
            into.add(key, *count);
        }
        into.cut(self.k as usize);
    }

    fn finish(&self, state: &HitterState, leaves: &Leaves<'_>) -> Result<Folded, OperatorError> {
        let mut exact = Groups::empty();
        let cites = self.cite_max as usize;
        leaves.visit(&mut |unit, fact| {
            if self.selection.admits(fact)
                && let Some(key) = self.key.read(fact)
                && state.counters.contains_key(&*key)
            {
                exact.absorb(&key, 0, unit, cites, usize::MAX);
            }
            Ok(())
        })?;
        let frequent: Vec<(&str, u64)> = exact
            .by_count()
            .into_iter()
            .filter(|(_, count)| count * (u64::from(self.k) + 1) > state.total)
            .collect();
        let value: Vec<Value> = frequent
            .iter()
            .map(|(key, count)| json!({ "label": key, "count": count }))
            .collect();
        let units = exact.in_turn(frequent.iter().map(|(key, _)| *key), self.cite_max as usize);
        Ok(Folded {
            count: value.len() as u64,
            value: Value::Array(value),
            cites: cite(units, leaves, self.cite_max)?,
            cites_total: frequent.iter().map(|(_, count)| count).sum(),
        })
    }
}
