//! Counts the selected facts by key. Exact, order and shape invariant.

use serde_json::{Map, Value};

use super::{Folded, Groups, Selection, cite};
use crate::canonical::Canonical;
use crate::error::OperatorError;
use crate::fact::Fact;
use crate::fold::{Leaves, Reducer, UnitRef};
use crate::plan::KeySource;

/// Counts selected facts per key; declared keys that no fact carries show as zero.
#[derive(Debug, Clone)]
pub struct CountBy {
    /// Which facts count.
    pub selection: Selection,
    /// What they are counted by.
    pub key: KeySource,
    /// Keys that show even when absent: a field's labels; none for a column.
    pub declared: Vec<String>,
    /// Most keys; with more the reducer refuses to answer.
    pub keys_max: u32,
    /// Units named per key at every node, and cited in all.
    pub cite_max: u32,
}

impl CountBy {
    /// Units that the claim cites at most.
    pub const fn cite_max(&self) -> u32 {
        self.cite_max
    }

    /// Writes the parameters into a hash.
    pub fn encode(&self, canonical: &mut Canonical) {
        self.selection.encode(canonical);
        self.key.encode(canonical);
        canonical.list(self.declared.len());
        for key in &self.declared {
            canonical.text(key);
        }
        canonical.u32(self.keys_max).u32(self.cite_max);
    }

    /// Refuses a state that held more keys than declared.
    pub(super) fn check(&self, state: &Groups) -> Result<(), OperatorError> {
        if state.overflowed {
            return Err(OperatorError::FoldOverflow {
                what: format!("keys of {}", self.key.name()),
                max: u64::from(self.keys_max),
                cure: "count by something with fewer values, use heavy_hitters, or raise keys_max",
            });
        }
        Ok(())
    }
}

impl Reducer for CountBy {
    type State = Groups;
    type Output = Folded;

    fn empty(&self) -> Groups {
        Groups::empty()
    }

    fn absorb(&self, state: &mut Groups, unit: &UnitRef, fact: &Fact) -> bool {
        if !self.selection.admits(fact) {
            return false;
        }
        let Some(key) = self.key.read(fact) else {
            return false;
        };
        let (cites, keys) = (self.cite_max as usize, self.keys_max as usize);
        state.absorb(&key, 0, unit, cites, keys);
        true
    }

    fn merge(&self, into: &mut Groups, from: &Groups) {
        into.merge(from, self.cite_max as usize, self.keys_max as usize);
    }

    fn finish(&self, state: &Groups, leaves: &Leaves<'_>) -> Result<Folded, OperatorError> {
        self.check(state)?;
        let keys = state.by_count();
        let mut value: Map<String, Value> = keys
            .iter()
            .map(|(key, count)| (String::from(*key), Value::from(*count)))
            .collect();
        for key in &self.declared {
            value
                .entry(key.clone())
                .or_insert_with(|| Value::from(0_u64));
        }
        let units = state.in_turn(keys.iter().map(|(key, _)| *key), self.cite_max as usize);
        Ok(Folded {
            value: Value::Object(value),
            count: state.total,
            cites: cite(units, leaves, self.cite_max)?,
            cites_total: state.total,
        })
    }
}
