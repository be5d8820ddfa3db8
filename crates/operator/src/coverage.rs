//! Coverage: which units a node of the fold has seen, and in which status each ended.
//!
//! Counts are exact because the unit sets are disjoint, not because addition is associative;
//! therefore merging checks the sets and refuses a unit that is delivered twice.
//! Must not know what a unit says or what was decided about it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::error::OperatorError;
use crate::fact::{Fact, Status};
use crate::id::UnitId;

/// Counts units per status; the six counts always add up to `units`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Units in all.
    pub units: u64,
    /// Units left out by a filter.
    pub excluded: u64,
    /// Units with a decision.
    pub decided: u64,
    /// Units that were asked and whose answer was too uncertain.
    pub abstained: u64,
    /// Units that could not be read or answered.
    pub errored: u64,
    /// Units whose question was withdrawn.
    pub cancelled: u64,
    /// Units never asked.
    pub not_run: u64,
}

impl Counts {
    /// Counts one more unit that ended in `status`.
    pub fn add(&mut self, status: Status) {
        self.units += 1;
        *self.slot(status) += 1;
    }

    /// Returns the count of one status.
    pub fn of(&self, status: Status) -> u64 {
        match status {
            Status::Decided => self.decided,
            Status::Abstained => self.abstained,
            Status::Errored => self.errored,
            Status::Cancelled => self.cancelled,
            Status::NotRun => self.not_run,
            Status::Excluded => self.excluded,
        }
    }

    /// True when no unit errored, was cancelled or was left unasked.
    ///
    /// Only then may a claim say "all" or "none": an abstention is an answer of its own.
    pub fn complete(&self) -> bool {
        self.errored == 0 && self.cancelled == 0 && self.not_run == 0
    }

    fn slot(&mut self, status: Status) -> &mut u64 {
        match status {
            Status::Decided => &mut self.decided,
            Status::Abstained => &mut self.abstained,
            Status::Errored => &mut self.errored,
            Status::Cancelled => &mut self.cancelled,
            Status::NotRun => &mut self.not_run,
            Status::Excluded => &mut self.excluded,
        }
    }
}

/// A set of units with one status each.
///
/// Cost: one map entry per unit; merging two nodes costs the smaller side times a look-up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Coverage {
    units: BTreeMap<UnitId, Status>,
    counts: Counts,
}

impl Coverage {
    /// Covers nothing; the neutral element of `merge`.
    pub fn empty() -> Self {
        Self::default()
    }

    /// Covers the one unit of a fact.
    pub fn lift(fact: &Fact) -> Self {
        let mut counts = Counts::default();
        counts.add(fact.status);
        Self {
            units: BTreeMap::from([(fact.unit_id.clone(), fact.status)]),
            counts,
        }
    }

    /// Joins two disjoint coverages.
    ///
    /// # Errors
    /// `CoverageOverlap` when a unit is on both sides: a re-delivered fact is refused, not absorbed.
    pub fn merge(self, other: Self) -> Result<Self, OperatorError> {
        let self_is_large = self.units.len() >= other.units.len();
        let (mut large, small) = if self_is_large {
            (self, other)
        } else {
            (other, self)
        };
        for (unit, status) in small.units {
            if large.units.contains_key(&unit) {
                return Err(OperatorError::CoverageOverlap {
                    unit_id: unit.to_string(),
                });
            }
            large.units.insert(unit, status);
            large.counts.add(status);
        }
        Ok(large)
    }

    /// Checks that exactly the units of the partition are covered.
    ///
    /// # Errors
    /// `CoverageMismatch` naming the first unit, in key order, that only one side has.
    pub fn check<'a>(
        &self,
        expected: impl IntoIterator<Item = &'a UnitId>,
    ) -> Result<(), OperatorError> {
        let expected: BTreeSet<&UnitId> = expected.into_iter().collect();
        let covered: BTreeSet<&UnitId> = self.units.keys().collect();
        match expected.symmetric_difference(&covered).next() {
            None => Ok(()),
            Some(unit) => Err(OperatorError::CoverageMismatch {
                expected: expected.len() as u64,
                found: self.counts.units,
                unit_id: unit.to_string(),
            }),
        }
    }

    /// Returns the count per status.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns the status of a unit, or none when it is not covered.
    pub fn status(&self, unit: &UnitId) -> Option<Status> {
        self.units.get(unit).copied()
    }
}
