//! Coverage: which units a node of the fold has seen, and in which status each ended.
//!
//! Counts are exact because the unit sets are disjoint, not because addition is associative.
//! Leaves lie in strict key order, so a node's set is the leaves between its first and last unit,
//! and two sets are disjoint exactly when one ends before the other begins: joining refuses
//! anything else, a unit delivered twice included. Must not know what was decided about a unit.

use serde::{Deserialize, Serialize};

use crate::canonical::Canonical;
use crate::error::OperatorError;
use crate::fact::Status;
use crate::fold::UnitRef;

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

    /// Adds the counts of a disjoint set of units.
    pub fn merge(&mut self, other: &Self) {
        self.units += other.units;
        for status in Status::ALL {
            *self.slot(status) += other.of(status);
        }
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

/// The units of a node: all leaves from `first` to `last`, with a count per status.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coverage {
    /// Units per status.
    #[serde(flatten)]
    pub counts: Counts,
    /// The unit with the smallest key; none when nothing is covered.
    pub first: Option<UnitRef>,
    /// The unit with the largest key.
    pub last: Option<UnitRef>,
}

/// One of the parts that a coverage is joined from.
#[derive(Debug, Clone, Copy)]
pub enum Covered<'a> {
    /// A single unit and how it ended.
    Unit(&'a UnitRef, Status),
    /// A part that was joined before.
    Part(&'a Coverage),
}

impl Coverage {
    /// Covers nothing; the neutral element of `join`.
    pub fn empty() -> Self {
        Self::default()
    }

    /// Joins what follows each other in key order.
    ///
    /// # Errors
    /// `CoverageOverlap` when a part does not begin after the one before it ends: a unit that is
    /// delivered again is refused, not absorbed.
    pub fn join<'a>(parts: impl IntoIterator<Item = Covered<'a>>) -> Result<Self, OperatorError> {
        let mut counts = Counts::default();
        let (mut first, mut last): (Option<&UnitRef>, Option<&UnitRef>) = (None, None);
        for part in parts {
            let (from, to) = match part {
                Covered::Unit(unit, status) => {
                    counts.add(status);
                    (Some(unit), Some(unit))
                }
                Covered::Part(part) => {
                    counts.merge(&part.counts);
                    (part.first.as_ref(), part.last.as_ref())
                }
            };
            if let (Some(last), Some(from)) = (last, from)
                && last.key >= from.key
            {
                return Err(OperatorError::CoverageOverlap {
                    unit_id: from.id.to_string(),
                });
            }
            first = first.or(from);
            last = to.or(last);
        }
        Ok(Self {
            counts,
            first: first.cloned(),
            last: last.cloned(),
        })
    }

    /// Writes the counts into a hash; the ends are those of the outermost leaves.
    pub fn encode(&self, canonical: &mut Canonical) {
        canonical.u64(self.counts.units);
        for status in Status::ALL {
            canonical.u64(self.counts.of(status));
        }
    }
}
