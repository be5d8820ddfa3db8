//! The smallest or largest number of a column. Exact, also idempotent.

use serde_json::{Value, json};

use super::{Folded, Ranked, Selection, cite};
use crate::canonical::Canonical;
use crate::error::OperatorError;
use crate::fact::Fact;
use crate::fold::{Leaves, Reducer, UnitRef};
use crate::plan::Measure;

/// Finds the extreme number of selected facts and the units that carry it.
///
/// Keeping the `cite_max` best of a total order keeps the extreme itself, and the first units that
/// share it in key order.
#[derive(Debug, Clone)]
pub struct Extreme {
    /// Which facts count.
    pub selection: Selection,
    /// The number compared.
    pub measure: Measure,
    /// Whether the largest is wanted.
    pub largest: bool,
    /// Units named at every node, and cited; at least one is named.
    pub cite_max: u32,
}

impl Extreme {
    /// Units that the claim cites at most.
    pub const fn cite_max(&self) -> u32 {
        self.cite_max
    }

    /// Writes the parameters into a hash.
    pub fn encode(&self, canonical: &mut Canonical) {
        self.selection.encode(canonical);
        self.measure.encode(canonical);
        canonical.bool(self.largest).u32(self.cite_max);
    }

    /// Ranks and numbers map onto each other; the complement, unlike the negative, never overflows.
    const fn turn(&self, number: i64) -> i64 {
        if self.largest { !number } else { number }
    }

    fn units_max(&self) -> usize {
        self.cite_max.max(1) as usize
    }
}

impl Reducer for Extreme {
    type State = Ranked;
    type Output = Folded;

    fn empty(&self) -> Ranked {
        Ranked::empty()
    }

    fn absorb(&self, state: &mut Ranked, unit: &UnitRef, fact: &Fact) -> bool {
        if !self.selection.admits(fact) {
            return false;
        }
        let measure = self.measure.read(fact);
        if let Some(number) = measure {
            state.absorb(self.turn(number), unit, self.units_max());
        }
        measure.is_some()
    }

    fn merge(&self, into: &mut Ranked, from: &Ranked) {
        into.merge(from, self.units_max());
    }

    fn finish(&self, state: &Ranked, leaves: &Leaves<'_>) -> Result<Folded, OperatorError> {
        let best = state.best.first().map(|(rank, _)| *rank);
        let sharing = state.best.iter().filter(|(rank, _)| Some(*rank) == best);
        let cites = cite(sharing.map(|(_, unit)| unit), leaves, self.cite_max)?;
        Ok(Folded {
            value: best.map_or(Value::Null, |rank| json!(self.turn(rank))),
            count: state.total,
            cites_total: cites.len() as u64,
            cites,
        })
    }
}
