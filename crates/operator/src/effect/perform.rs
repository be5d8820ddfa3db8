//! The driver: takes each effect to a receipt, or to a reason why there is none.
//!
//! How one effect goes is in `drive`. Must not know which tracker it is, how the effects were decided,
//! or a clock.

use std::time::Duration;

use super::drive::{Drive, End, Seen};
use super::effector::Effector;
use super::journal::Journal;
use super::lease::Leases;
use super::recover::State;
use super::report::{EffectStatus, Outcome};
use super::request::EffectRequest;
use crate::error::OperatorError;
use crate::id::ContentHash;
use crate::infer::CancelFlag;

/// How long one effect is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most reads and most writes of one effect in this process.
    pub attempts_max: u32,
    /// Longest single wait, for a tracker or for a lease.
    pub wait_ms_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            attempts_max: 5,
            wait_ms_max: 60_000,
        }
    }
}

/// What the driver works with.
pub struct Performer<'a> {
    /// The journal of the run.
    pub journal: &'a mut Journal,
    /// Leases on the tracker's issues.
    pub leases: &'a Leases,
    /// The tracker.
    pub effector: &'a dyn Effector,
    /// Ends the work before the next write.
    pub cancel: &'a CancelFlag,
    /// Milliseconds of a clock that all owners of leases share.
    pub clock: &'a dyn Fn() -> u64,
    /// Waits.
    pub pause: &'a dyn Fn(Duration),
    /// How long one effect is tried.
    pub limits: Limits,
}

/// Does effects in order, each at most once, and says for each how it ended.
///
/// `answer` is the result hash of the answer that they follow from, which the caller has verified to
/// be complete. An effect that the journal has as done is not looked at again; one that may have been
/// sent is read back first, and sent again only under its key, to a tracker where that is safe.
///
/// # Errors
/// `Io` and `FileInvalid` where the journal or a lease cannot be written: nothing is done unrecorded.
pub fn perform(
    requests: &[EffectRequest],
    answer: ContentHash,
    performer: &mut Performer<'_>,
) -> Result<Vec<Outcome>, OperatorError> {
    let mut drive = Drive::new(performer);
    requests
        .iter()
        .map(|request| drive.one(request, answer))
        .collect()
}

/// Reads back what an earlier answer began and this one does not ask for; nothing is sent.
///
/// # Errors
/// As [`perform`].
pub fn look_back(
    requests: &[EffectRequest],
    performer: &mut Performer<'_>,
) -> Result<Vec<Outcome>, OperatorError> {
    let mut drive = Drive::new(performer);
    let mut outcomes = Vec::new();
    for request in requests {
        let key = request.key();
        let end = match drive.look(request, &key)? {
            Ok(Seen::Ended(end)) => end,
            Ok(Seen::Absent(_)) => drive.left(&key, "the answer no longer asks for it".to_owned()),
            Err(unreadable) => drive.left(&key, unreadable.reason),
        };
        outcomes.push(end.told(request));
    }
    Ok(outcomes)
}

/// Says how effects stand that are not allowed this time, from the journal alone; none of them where
/// none was ever begun.
pub fn tell(requests: &[EffectRequest], journal: &Journal) -> Vec<Outcome> {
    let begun = |request: &EffectRequest| journal.standing(&request.key()).is_some();
    if !requests.iter().any(begun) {
        return Vec::new();
    }
    let told = |request: &EffectRequest| {
        let reason = "not allowed this time".to_owned();
        match journal.standing(&request.key()) {
            Some(standing) => match &standing.state {
                State::Done(receipt) => End::Done(receipt.clone()),
                State::Conflict(reason) => End::Other(EffectStatus::Conflict, reason.clone()),
                _ if standing.open > 0 => End::Other(EffectStatus::Unknown, reason),
                _ => End::Other(EffectStatus::NotRun, reason),
            },
            None => End::Other(EffectStatus::NotRun, reason),
        }
        .told(request)
    };
    requests.iter().map(told).collect()
}
