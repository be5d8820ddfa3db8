//! The smallest or largest number of a column. Exact, also idempotent.

use serde::{Deserialize, Serialize};
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

/// The units nearest to the extreme, and how many carry the extreme itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtremeState {
    /// Units that have a number; the best of them are named, those of the extreme first.
    pub units: Ranked,
    /// Units whose number is the extreme, named or not.
    pub sharing: u64,
}

impl ExtremeState {
    fn best(&self) -> Option<i64> {
        self.units.best.first().map(|(rank, _)| *rank)
    }

    /// Counts units that carry a number, before they are named.
    fn share(&mut self, rank: i64, units: u64) {
        match self.best() {
            Some(best) if best < rank => {}
            Some(best) if best == rank => self.sharing += units,
            _ => self.sharing = units,
        }
    }

    /// Writes the state into a hash.
    pub fn encode(&self, canonical: &mut Canonical) {
        self.units.encode(canonical);
        canonical.u64(self.sharing);
    }

    pub(super) fn named(&self, max: usize) -> Vec<&UnitRef> {
        self.units.units().take(max).collect()
    }
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
    type State = ExtremeState;
    type Output = Folded;

    fn empty(&self) -> ExtremeState {
        ExtremeState::default()
    }

    fn absorb(&self, state: &mut ExtremeState, unit: &UnitRef, fact: &Fact) -> bool {
        if !self.selection.admits(fact) {
            return false;
        }
        let measure = self.measure.read(fact);
        if let Some(number) = measure {
            let rank = self.turn(number);
            state.share(rank, 1);
            state.units.absorb(rank, unit, self.units_max());
        }
        measure.is_some()
    }

    fn merge(&self, into: &mut ExtremeState, from: &ExtremeState) {
        if let Some(rank) = from.best() {
            into.share(rank, from.sharing);
        }
        into.units.merge(&from.units, self.units_max());
    }

    fn finish(&self, state: &ExtremeState, leaves: &Leaves<'_>) -> Result<Folded, OperatorError> {
        let best = state.best();
        let sharing = state
            .units
            .best
            .iter()
            .filter(|(rank, _)| Some(*rank) == best);
        let cites = cite(sharing.map(|(_, unit)| unit), leaves, self.cite_max)?;
        Ok(Folded {
            value: best.map_or(Value::Null, |rank| json!(self.turn(rank))),
            count: state.units.total,
            cites,
            cites_total: state.sharing,
        })
    }
}
