//! The audit: what a second reader finds in a sample of what a run did not find.
//!
//! Units that were not found are put into strata by what left them out, for causes differ. Each
//! stratum is sampled without regard to what is in it, and the misses among it are bounded exactly;
//! the bounds are added up, each at its share of the allowed error. What is found goes back into the
//! answer and stays in the statistic. Must not know who reads, nor files.

mod allot;
mod bounds;
mod report;
mod strata;

pub use allot::{Allotment, allot};
pub use bounds::{misses_upper, rate_upper_ppm, sample};
pub use report::{
    AuditReport, AuditedUnit, Finding, Outcome, Reader, Statistic, StratumReport, conclude,
    statistic,
};
pub use strata::{Place, Stratum, place};
