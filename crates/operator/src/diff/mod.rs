//! Differences: what changed between two recorded runs, and what changed it.
//!
//! ```text
//! plan, source, backend ---> units (why each changed) ---> nodes above them ---> claims
//! ```
//!
//! Two units are equal exactly when their provenance hashes are; cost, time, position in the source
//! and whether an answer was remembered are no difference. Must not know how differences are shown.

mod claims;
mod nodes;
mod units;

pub use claims::{ClaimDifference, ClaimSide};
pub use nodes::{NodeDifference, NodeRef, TreeDifference};
pub use units::{Aspect, Cause, UnitDifference, UnitSide};

use serde::{Deserialize, Serialize};

use crate::coverage::Counts;
use crate::id::ContentHash;
use crate::recorded::RecordedRun;

/// A value of both runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Both<T> {
    /// Of the first run.
    pub before: T,
    /// Of the second run.
    pub after: T,
}

impl<T: PartialEq> Both<T> {
    /// Joins the values of both runs.
    pub const fn new(before: T, after: T) -> Self {
        Self { before, after }
    }

    /// Whether both runs have the same value.
    pub fn same(&self) -> bool {
        self.before == self.after
    }
}

/// What changed between two runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// Whether both answers have the same hash.
    pub same_result: bool,
    /// Hashes of the answers.
    pub result: Both<ContentHash>,
    /// Hashes of the plans' meanings.
    pub plan: Both<ContentHash>,
    /// What was asked.
    pub question: Both<String>,
    /// Hashes of the files that were read.
    pub source: Both<ContentHash>,
    /// Paths of those files, as given.
    pub source_path: Both<String>,
    /// Everything of the backends that can change an answer, hashed.
    pub backend: Both<ContentHash>,
    /// Names of the backends.
    pub backend_name: Both<String>,
    /// Whether answers were replayed or scripted.
    pub simulated: Both<bool>,
    /// Units per status.
    pub coverage: Both<Counts>,
    /// Units with the same provenance in both runs.
    pub units_same: u64,
    /// Units that differ, in key order.
    pub units: Vec<UnitDifference>,
    /// What became of the tree.
    pub tree: TreeDifference,
    /// Claims that are the same in both runs.
    pub claims_same: u64,
    /// Claims that differ, in plan order.
    pub claims: Vec<ClaimDifference>,
}

/// Compares two runs, the first as before and the second as after.
pub fn diff(before: &RecordedRun, after: &RecordedRun) -> Difference {
    let (a, b) = (&before.answer, &after.answer);
    let (units, units_same) = units::compare(before, after);
    let (claims, claims_same) = claims::compare(before, after, &units);
    Difference {
        same_result: a.result_hash == b.result_hash,
        result: Both::new(a.result_hash, b.result_hash),
        plan: Both::new(a.plan_hash, b.plan_hash),
        question: Both::new(a.question.clone(), b.question.clone()),
        source: Both::new(a.source.hash, b.source.hash),
        source_path: Both::new(a.source.path.clone(), b.source.path.clone()),
        backend: Both::new(a.backend.digest, b.backend.digest),
        backend_name: Both::new(a.backend.name.clone(), b.backend.name.clone()),
        simulated: Both::new(a.simulated, b.simulated),
        coverage: Both::new(a.coverage, b.coverage),
        units_same,
        units,
        tree: nodes::compare(before, after),
        claims_same,
        claims,
    }
}
