//! Effects: what a verified answer changes outside, each exactly once, each read back.
//!
//! ```text
//! intend    plan + decided facts + records -> requests; nothing is done here
//! request   what is to be done, and the key under which a tracker does it once
//! lease     one owner per resource, with an expiry and a fencing number
//! line      one line of the journal                       journal   the file of lines, each synced
//! recover   lines -> where every effect stands, and what is due
//! effector  the tracker, as the driver sees it            receipt   what reading back showed
//! drive     one effect: intend, lease, read, write, read back
//! perform   all of them, and those that an earlier answer left
//! report    receipts -> effects.json                      check     the report against its journal
//! ```
//!
//! A line is on disk before what it announces is done. After a crash the journal decides: what was
//! never dispatched may be, what may have been dispatched is read back first, and what a tracker
//! cannot say for good is never sent again. An effect counts as done only by a receipt, which is made
//! here from what was read, never from what the tracker answered to the write.
//!
//! Must not know HTTP, files of trackers, the command line or a clock; they are handed in.

mod check;
mod drive;
mod effector;
mod intend;
mod journal;
mod lease;
mod line;
mod perform;
mod receipt;
mod recover;
mod report;
mod request;

pub use check::{EffectsCheck, verify_effects};
pub use effector::{Dispatch, Effector, Order, Unreadable};
pub use intend::{Batch, intend};
pub use journal::{JOURNAL, Journal, read_journal, sync_directory};
pub use lease::{Busy, Lease, Leases};
pub use line::{Entry, JOURNAL_VERSION, Line, ReadBack, parse_lines};
pub use perform::{Limits, Performer, look_back, perform, tell};
pub use receipt::{Finding, Found, Observation, Receipt, judge};
pub use recover::{Due, Recovered, Standing, State, recover};
pub use report::{
    EFFECTS_VERSION, EffectCounts, EffectSection, EffectStatus, EffectsReport, Outcome, REPORT,
    read_report, write_report,
};
pub use request::EffectRequest;
