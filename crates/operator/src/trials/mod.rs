//! What the safeguards of a run promise, tried many times with known truth.
//!
//! Canary trials go through whole runs: a judge whose rubric is sound, or defective so that it says the
//! opposite, and whose every answer is independently wrong at a stated rate. Audit trials go through
//! drawing and bounds over populations of known misses. Everything follows from the trial's number: no
//! clock, no randomness from outside. Must not know files.

mod audits;
mod canaries;
mod numbers;

pub use audits::{AuditTrials, audit_trials};
pub use canaries::{CanaryTrials, Judge, Rubric, canary_trials};
