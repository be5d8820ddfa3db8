//! The k most frequent keys. Exact: all keys are counted, the cut comes last.

use serde_json::{Value, json};

use super::{CountBy, Folded, Groups, cite};
use crate::canonical::Canonical;
use crate::error::OperatorError;
use crate::fact::Fact;
use crate::fold::{Leaves, Reducer, UnitRef};

/// Names the most frequent keys; ties by key.
#[derive(Debug, Clone)]
pub struct TopKeys {
    /// How keys are counted.
    pub counts: CountBy,
    /// Keys named.
    pub k: u32,
}

impl TopKeys {
    /// Units that the claim cites at most.
    pub const fn cite_max(&self) -> u32 {
        self.counts.cite_max
    }

    /// Writes the parameters into a hash.
    pub fn encode(&self, canonical: &mut Canonical) {
        self.counts.encode(canonical);
        canonical.u32(self.k);
    }
}

impl Reducer for TopKeys {
    type State = Groups;
    type Output = Folded;

    fn empty(&self) -> Groups {
        Groups::empty()
    }

    fn absorb(&self, state: &mut Groups, unit: &UnitRef, fact: &Fact) -> bool {
        self.counts.absorb(state, unit, fact)
    }

    fn merge(&self, into: &mut Groups, from: &Groups) {
        self.counts.merge(into, from);
    }

    fn finish(&self, state: &Groups, leaves: &Leaves<'_>) -> Result<Folded, OperatorError> {
        self.counts.check(state)?;
        let mut keys = state.by_count();
        keys.truncate(self.k as usize);
        let total = keys.iter().map(|(_, count)| *count).sum();
        let value: Vec<Value> = keys
            .iter()
            .map(|(label, count)| json!({ "label": label, "count": count }))
            .collect();
        let units = state.in_turn(
            keys.iter().map(|(key, _)| *key),
            self.counts.cite_max as usize,
        );
        Ok(Folded {
            count: value.len() as u64,
            value: Value::Array(value),
            cites: cite(units, leaves, self.counts.cite_max)?,
            cites_total: total,
        })
    }
}
