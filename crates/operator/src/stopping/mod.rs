//! Stopping: in which order units are asked, and when no further one can matter to what is claimed.
//!
//! ```text
//! order.rs    whose turn it is: by position, by bound, or drawn from a seed
//! rules.rs    what each rule has seen, and whether it is met
//! report.rs   what a run that could stop did: told again from its facts alone
//! claim.rs    what a claim says that promises less than all
//! ```
//!
//! A rule is judged over units in the order of their turns, never in that of their answers: which units
//! a run leaves out follows from the plan, the records and the answers of those before. No float is in
//! what is told; the bounds of an interval are whole units. Must not know how units are asked.

mod claim;
mod order;
mod report;
mod rules;

pub(crate) use claim::{Restated, restate};
pub(crate) use order::Turn;
pub use report::{Interval, RuleReport, StopReport};
pub(crate) use report::{conclude, reason};
pub(crate) use rules::Rules;
