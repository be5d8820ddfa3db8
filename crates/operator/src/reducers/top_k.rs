//! The k units with the largest or smallest measure.
//!
//! Merging keeps k candidates at every node under a total order (measure, then key) over numbers
//! that are fixed before the fold; hence top_k(A u B) = merge(top_k(A), top_k(B)): a unit of the
//! whole's k best is among its part's k best, so that what was pruned can never be called for.

use serde_json::{Value, json};

use super::{Folded, Ranked, Selection, cite};
use crate::canonical::Canonical;
use crate::error::OperatorError;
use crate::fact::Fact;
use crate::fold::{Leaves, Reducer, UnitRef};
use crate::plan::Measure;

/// Ranks selected units by a measure, ties in key order.
#[derive(Debug, Clone)]
pub struct TopK {
    /// Which facts are candidates.
    pub selection: Selection,
    /// The number ranked by.
    pub measure: Measure,
    /// Whether the largest numbers come first.
    pub largest: bool,
    /// Units named.
    pub k: u32,
    /// Units cited.
    pub cite_max: u32,
}

impl TopK {
    /// Units that the claim cites at most.
    pub const fn cite_max(&self) -> u32 {
        self.cite_max
    }

    /// Writes the parameters into a hash.
    pub fn encode(&self, canonical: &mut Canonical) {
        self.selection.encode(canonical);
        self.measure.encode(canonical);
        canonical.bool(self.largest).u32(self.k).u32(self.cite_max);
    }

    /// Ranks and measures map onto each other; the complement, unlike the negative, never overflows.
    const fn turn(&self, number: i64) -> i64 {
        if self.largest { !number } else { number }
    }
}

impl Reducer for TopK {
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
            state.absorb(self.turn(number), unit, self.k as usize);
        }
        measure.is_some()
    }

    fn merge(&self, into: &mut Ranked, from: &Ranked) {
        into.merge(from, self.k as usize);
    }

    fn finish(&self, state: &Ranked, leaves: &Leaves<'_>) -> Result<Folded, OperatorError> {
        let name = match self.measure {
            Measure::Probability { .. } => "probability_ppm",
            Measure::Column(_) => "value",
        };
        let entry = |(rank, unit): &(i64, UnitRef)| json!({ "unit_id": unit.id.as_str(), name: self.turn(*rank) });
        let value: Vec<Value> = state.best.iter().map(entry).collect();
        Ok(Folded {
            count: value.len() as u64,
            cites_total: value.len() as u64,
            value: Value::Array(value),
            cites: cite(state.units(), leaves, self.cite_max)?,
        })
    }
}
