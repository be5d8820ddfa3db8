//! Counts the selected facts. Exact, order and shape invariant.

use serde_json::Value;

use super::{Folded, Ranked, Selection, cite};
use crate::canonical::Canonical;
use crate::error::OperatorError;
use crate::fact::Fact;
use crate::fold::{Leaves, Reducer, UnitRef};

/// Counts selected facts and cites the first of them in key order.
#[derive(Debug, Clone)]
pub struct Count {
    /// Which facts count.
    pub selection: Selection,
    /// Units named at every node, and cited.
    pub cite_max: u32,
}

impl Count {
    /// Units that the claim cites at most.
    pub const fn cite_max(&self) -> u32 {
        self.cite_max
    }

    /// Writes the parameters into a hash.
    pub fn encode(&self, canonical: &mut Canonical) {
        self.selection.encode(canonical);
        canonical.u32(self.cite_max);
    }
}

impl Reducer for Count {
    type State = Ranked;
    type Output = Folded;

    fn empty(&self) -> Ranked {
        Ranked::empty()
    }

    fn absorb(&self, state: &mut Ranked, unit: &UnitRef, fact: &Fact) -> bool {
        let selected = self.selection.admits(fact);
        if selected {
            state.absorb(0, unit, self.cite_max as usize);
        }
        selected
    }

    fn merge(&self, into: &mut Ranked, from: &Ranked) {
        into.merge(from, self.cite_max as usize);
    }

    fn finish(&self, state: &Ranked, leaves: &Leaves<'_>) -> Result<Folded, OperatorError> {
        Ok(Folded {
            value: Value::from(state.total),
            count: state.total,
            cites: cite(state.units(), leaves, self.cite_max)?,
            cites_total: state.total,
        })
    }
}
