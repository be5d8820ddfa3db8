//! The sum or mean of an integer column. Exact: 128 bits hold any sum of 64-bit numbers.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Folded, Ranked, Selection, cite};
use crate::canonical::Canonical;
use crate::error::OperatorError;
use crate::fact::Fact;
use crate::fold::{Leaves, Reducer, UnitRef};
use crate::plan::Measure;

/// Thousandths: a mean is given in them, since it need not be whole.
const MILLI: i128 = 1_000;

/// Adds up a number over selected facts; a fact without it is left out.
#[derive(Debug, Clone)]
pub struct Sum {
    /// Which facts count.
    pub selection: Selection,
    /// The number added.
    pub measure: Measure,
    /// Whether the mean is wanted.
    pub mean: bool,
    /// Units named at every node, and cited.
    pub cite_max: u32,
}

/// A sum, and the units that it is over.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SumState {
    /// The sum in the column's units, as text: JSON readers lose digits past 2^53.
    #[serde(with = "decimal")]
    pub sum: i128,
    /// Units added, the first of them named.
    pub units: Ranked,
}

mod decimal {
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(sum: &i128, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(sum)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i128, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl SumState {
    /// Writes the state into a hash.
    pub fn encode(&self, canonical: &mut Canonical) {
        canonical.i128(self.sum);
        self.units.encode(canonical);
    }

    pub(super) fn named(&self, max: usize) -> Vec<&UnitRef> {
        self.units.units().take(max).collect()
    }
}

impl Sum {
    /// Units that the claim cites at most.
    pub const fn cite_max(&self) -> u32 {
        self.cite_max
    }

    /// Writes the parameters into a hash.
    pub fn encode(&self, canonical: &mut Canonical) {
        self.selection.encode(canonical);
        self.measure.encode(canonical);
        canonical.bool(self.mean).u32(self.cite_max);
    }
}

impl Reducer for Sum {
    type State = SumState;
    type Output = Folded;

    fn empty(&self) -> SumState {
        SumState::default()
    }

    fn absorb(&self, state: &mut SumState, unit: &UnitRef, fact: &Fact) -> bool {
        if !self.selection.admits(fact) {
            return false;
        }
        let measure = self.measure.read(fact);
        if let Some(number) = measure {
            state.sum += i128::from(number);
            state.units.absorb(0, unit, self.cite_max as usize);
        }
        measure.is_some()
    }

    fn merge(&self, into: &mut SumState, from: &SumState) {
        into.sum += from.sum;
        into.units.merge(&from.units, self.cite_max as usize);
    }

    fn finish(&self, state: &SumState, leaves: &Leaves<'_>) -> Result<Folded, OperatorError> {
        let units = state.units.total;
        let value = match (self.mean, units) {
            (false, _) => number(state.sum),
            (true, 0) => Value::Null,
            (true, units) => json!({
                "mean_milli": number((state.sum * MILLI).div_euclid(i128::from(units))),
                "sum": number(state.sum),
                "units": units,
            }),
        };
        Ok(Folded {
            value,
            count: units,
            cites: cite(state.units.units(), leaves, self.cite_max)?,
            cites_total: units,
        })
    }
}

/// A JSON number where it fits 64 bits, else its digits as text.
fn number(value: i128) -> Value {
    i64::try_from(value).map_or_else(|_| Value::from(value.to_string()), Value::from)
}
