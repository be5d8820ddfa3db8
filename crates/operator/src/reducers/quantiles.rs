//! Quantiles of an integer column: exact up to `EXACT_MAX` facts, then by fixed logarithmic buckets.
//!
//! The exact state is the multiset of numbers; past the bound each number is replaced by its
//! bucket. Whether that happens depends on how many facts there are, never on their order, and
//! bucketing a union is the union of the bucketed parts; hence the state is order and shape
//! invariant on both sides of the bound, which sketches with random or order-dependent compaction
//! are not. Buckets are cut in whole numbers: `2^SUB_BITS` equal parts of each power of two, so that
//! a number differs from its bucket's lower end by at most one part in `2^SUB_BITS`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Folded, Ranked, Selection, cite};
use crate::canonical::Canonical;
use crate::error::OperatorError;
use crate::fact::Fact;
use crate::fold::{Leaves, Reducer, UnitRef};
use crate::plan::Measure;

/// Facts up to which quantiles are exact.
pub const EXACT_MAX: u64 = 100_000;

/// Buckets per power of two, as a power of two: the largest relative error is 1/128.
pub const SUB_BITS: u32 = 7;

/// Finds the numbers below which given shares of the selected facts lie.
#[derive(Debug, Clone)]
pub struct Quantiles {
    /// Which facts count.
    pub selection: Selection,
    /// The number ranked.
    pub measure: Measure,
    /// Shares in percent, ascending, 0 to 100.
    pub at: Vec<u8>,
    /// Units named at every node, and cited.
    pub cite_max: u32,
}

/// How many facts have which number, or which bucket's lower end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuantileState {
    /// Facts counted, the first of them named.
    pub units: Ranked,
    /// Whether numbers were replaced by the lower ends of their buckets.
    pub bucketed: bool,
    /// Number and how often it occurs.
    #[serde(with = "super::number_keys")]
    pub counts: BTreeMap<i64, u64>,
}

impl QuantileState {
    /// Writes the state into a hash.
    pub fn encode(&self, canonical: &mut Canonical) {
        self.units.encode(canonical);
        canonical.bool(self.bucketed).list(self.counts.len());
        for (number, count) in &self.counts {
            canonical.i64(*number).u64(*count);
        }
    }

    pub(super) fn named(&self, max: usize) -> Vec<&UnitRef> {
        self.units.units().take(max).collect()
    }

    fn narrow(&mut self) {
        if self.bucketed || self.units.total <= EXACT_MAX {
            return;
        }
        self.bucketed = true;
        for (number, count) in std::mem::take(&mut self.counts) {
            *self.counts.entry(bucket(number)).or_default() += count;
        }
    }

    /// The smallest number with at least this share of the facts at or below it.
    fn at(&self, percent: u8) -> Option<i64> {
        let wanted = (self.units.total * u64::from(percent)).div_ceil(100).max(1);
        let mut seen = 0;
        self.counts.iter().find_map(|(number, count)| {
            seen += count;
            (seen >= wanted).then_some(*number)
        })
    }
}

impl Quantiles {
    /// Units that the claim cites at most.
    pub const fn cite_max(&self) -> u32 {
        self.cite_max
    }

    /// Writes the parameters into a hash.
    pub fn encode(&self, canonical: &mut Canonical) {
        self.selection.encode(canonical);
        self.measure.encode(canonical);
        canonical.list(self.at.len());
        for share in &self.at {
            canonical.u32(u32::from(*share));
        }
        canonical.u32(self.cite_max);
    }
}

/// The lower end of a number's bucket, nearest to zero; small numbers have buckets of their own.
pub fn bucket(number: i64) -> i64 {
    let size = number.unsigned_abs();
    let bits = u64::BITS - size.leading_zeros();
    let dropped = bits.saturating_sub(SUB_BITS + 1);
    let low = (size >> dropped) << dropped;
    // `i64::MIN` is its own lower end, and the only number whose size exceeds `i64::MAX`.
    match i64::try_from(low) {
        Ok(low) if number < 0 => -low,
        Ok(low) => low,
        Err(_) => i64::MIN,
    }
}

impl Reducer for Quantiles {
    type State = QuantileState;
    type Output = Folded;

    fn empty(&self) -> QuantileState {
        QuantileState::default()
    }

    fn absorb(&self, state: &mut QuantileState, unit: &UnitRef, fact: &Fact) -> bool {
        if !self.selection.admits(fact) {
            return false;
        }
        let measure = self.measure.read(fact);
        if let Some(number) = measure {
            state.units.absorb(0, unit, self.cite_max as usize);
            state.narrow();
            let number = if state.bucketed {
                bucket(number)
            } else {
                number
            };
            *state.counts.entry(number).or_default() += 1;
        }
        measure.is_some()
    }

    fn merge(&self, into: &mut QuantileState, from: &QuantileState) {
        into.units.merge(&from.units, self.cite_max as usize);
        into.narrow();
        if from.bucketed && !into.bucketed {
            unreachable!("a part has no more facts than the whole");
        }
        for (number, count) in &from.counts {
            let number = if into.bucketed {
                bucket(*number)
            } else {
                *number
            };
            *into.counts.entry(number).or_default() += count;
        }
    }

    fn finish(&self, state: &QuantileState, leaves: &Leaves<'_>) -> Result<Folded, OperatorError> {
        let rows: Vec<Value> = self
            .at
            .iter()
            .map(|percent| json!({ "percent": percent, "value": state.at(*percent) }))
            .collect();
        let units = state.units.total;
        Ok(Folded {
            value: json!({
                "quantiles": rows,
                // Parts per million by which a value may lie below the true one.
                "error_max_ppm": if state.bucketed { 1_000_000 >> SUB_BITS } else { 0 },
            }),
            count: units,
            cites: cite(state.units.units(), leaves, self.cite_max)?,
            cites_total: units,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::bucket;

    #[test]
    fn a_bucket_lies_at_most_one_part_in_128_below_and_is_its_own_bucket() {
        for size in (0..64_u32).map(|bits| 1_u64 << bits) {
            for near in [size - 1, size, size + 1, size + size / 3] {
                for number in [near as i64, (near as i64).wrapping_neg()] {
                    let low = bucket(number);
                    assert_eq!(bucket(low), low, "{number}");
                    assert!(low.unsigned_abs() <= number.unsigned_abs(), "{number}");
                    let error = number.abs_diff(low);
                    assert!(error <= number.unsigned_abs() >> 7, "{number} -> {low}");
                }
            }
        }
        assert_eq!(bucket(255), 255);
        assert_eq!(bucket(257), 256);
    }
}
