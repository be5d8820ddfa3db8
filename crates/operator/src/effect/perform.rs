//! The driver: takes each effect to a receipt, or to a reason why there is none.
//!
//! One effect: intended on disk, resource leased, tracker read, version compared, dispatched on disk,
//! sent, read back. Whatever happens between two of these, the journal says which. Cancelling ends the
//! work before the next write; what was written is still read back. Must not know which tracker it
//! is, how the effects were decided, or a clock.

use std::time::Duration;

use super::effector::{Dispatch, Effector, Order, Unreadable};
use super::journal::Journal;
use super::lease::{Lease, Leases};
use super::line::{Entry, ReadBack};
use super::receipt::{Finding, Receipt, judge};
use super::recover::{Due, State};
use super::report::{EffectStatus, Outcome};
use super::request::EffectRequest;
use crate::error::OperatorError;
use crate::id::{ContentHash, EffectKey};
use crate::infer::CancelFlag;

/// Pause after a first failure, which doubles; a tracker that names a time is obeyed instead.
const PAUSE_MS: u64 = 100;
/// How often a wait looks at the cancel flag.
const LOOK_MS: u64 = 50;

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
    let mut drive = Drive {
        performer,
        unreachable: None,
    };
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
    let mut drive = Drive {
        performer,
        unreachable: None,
    };
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

struct Drive<'a, 'b> {
    performer: &'a mut Performer<'b>,
    /// Why the tracker was given up: further effects would only wait as long again.
    unreachable: Option<String>,
}

/// How an effect ends, before it is told under its name.
enum End {
    Done(Receipt),
    Other(EffectStatus, String),
}

impl End {
    fn told(self, request: &EffectRequest) -> Outcome {
        match self {
            Self::Done(receipt) => Outcome::done(request, receipt),
            Self::Other(status, reason) => Outcome::without(request, status, reason),
        }
    }
}

impl Drive<'_, '_> {
    fn one(
        &mut self,
        request: &EffectRequest,
        answer: ContentHash,
    ) -> Result<Outcome, OperatorError> {
        let key = request.key();
        Ok(self.end(request, &key, answer)?.told(request))
    }

    fn end(
        &mut self,
        request: &EffectRequest,
        key: &EffectKey,
        answer: ContentHash,
    ) -> Result<End, OperatorError> {
        if let Some(standing) = self.performer.journal.standing(key) {
            match &standing.state {
                _ if standing.request != *request => {
                    let reason = "its key names another effect in the journal".to_owned();
                    return Ok(End::Other(EffectStatus::Conflict, reason));
                }
                State::Done(receipt) => return Ok(End::Done(receipt.clone())),
                State::Conflict(reason) => {
                    return Ok(End::Other(EffectStatus::Conflict, reason.clone()));
                }
                _ => {}
            }
        }
        if let Some(reason) = self.unreachable.clone() {
            return Ok(self.left(key, reason));
        }
        if self.performer.cancel.is_cancelled() && !self.open(key) {
            return Ok(self.left(key, "cancelled before it was sent".to_owned()));
        }
        self.append(Entry::Intended {
            key: *key,
            request: request.clone(),
            answer,
        })?;
        let mut lease = match self.lease(&request.resource)? {
            Ok(lease) => lease,
            Err(reason) => return Ok(self.left(key, reason)),
        };
        let end = self.settle(request, key, &mut lease);
        // A lease that cannot be given back expires by itself.
        let released = self.performer.leases.release(lease);
        let end = end?;
        released?;
        Ok(end)
    }

    /// Reads and, where the journal and the issue allow it, writes until it is known how it ended.
    fn settle(
        &mut self,
        request: &EffectRequest,
        key: &EffectKey,
        lease: &mut Lease,
    ) -> Result<End, OperatorError> {
        let mut reason = String::new();
        let mut after_ms = None;
        let attempts = self.performer.limits.attempts_max.max(1);
        // One read more than writes: the last write is read back too.
        for attempt in 0..=attempts {
            if attempt > 0 && !reason.is_empty() {
                self.wait(after_ms.take().unwrap_or(PAUSE_MS << (attempt - 1).min(10)));
            }
            let version = match self.look(request, key)? {
                Ok(Seen::Ended(end)) => return Ok(end),
                Ok(Seen::Absent(version)) => version,
                Err(unreadable) => {
                    after_ms = unreadable.after_ms;
                    reason = format!("the tracker cannot be read: {}", unreadable.reason);
                    if attempt == attempts {
                        self.unreachable = Some(reason.clone());
                    }
                    continue;
                }
            };
            if attempt == attempts {
                break;
            }
            if let Some(stop) = self.obstacle(key, lease)? {
                return Ok(self.left(key, stop));
            }
            match self.write(request, key, &version, lease)? {
                Wrote::Ended(end) => return Ok(end),
                Wrote::Look => reason.clear(),
                Wrote::Wait(ms, why) => (after_ms, reason) = (ms, why),
            }
        }
        if reason.is_empty() {
            reason =
                "the tracker says that it did it, and reading back does not show it".to_owned();
        }
        Ok(self.left(key, reason))
    }

    /// Reads the tracker and takes down what was seen.
    fn look(
        &mut self,
        request: &EffectRequest,
        key: &EffectKey,
    ) -> Result<Result<Seen, Unreadable>, OperatorError> {
        let observation = match self.performer.effector.read_back(request, key) {
            Ok(observation) => observation,
            Err(unreadable) => return Ok(Err(unreadable)),
        };
        let (found, seen) = match judge(request, &observation) {
            Finding::Done(receipt) => {
                let end = End::Done(receipt.clone());
                (ReadBack::Done { receipt }, Seen::Ended(end))
            }
            Finding::Conflict(reason) => conflict(reason),
            Finding::Missing if self.open(key) => {
                conflict("the issue is not there any more".to_owned())
            }
            Finding::Missing => {
                let reason = format!("there is no {:?} in the tracker", request.resource);
                return Ok(Ok(Seen::Ended(End::Other(EffectStatus::Refused, reason))));
            }
            Finding::Absent(version) => match self.performer.journal.expected(request) {
                Some(expected) if expected != version => conflict(format!(
                    "{} is at version {version}, the decision is about {expected}: it was changed \
                     since",
                    request.resource
                )),
                _ => {
                    let found = ReadBack::Absent {
                        version: version.clone(),
                    };
                    (found, Seen::Absent(version))
                }
            },
        };
        // Before the first attempt, absence is what is expected and no news.
        if self.open(key) || !matches!(found, ReadBack::Absent { .. }) {
            self.append(Entry::ReadBack { key: *key, found })?;
        }
        Ok(Ok(seen))
    }

    /// What forbids the next write, if anything does.
    fn obstacle(
        &mut self,
        key: &EffectKey,
        lease: &mut Lease,
    ) -> Result<Option<String>, OperatorError> {
        let repeatable = self.performer.effector.repeatable();
        let standing = self.performer.journal.standing(key);
        if standing.is_none_or(|standing| standing.due(repeatable) != Due::Dispatch) {
            return Ok(Some(
                "it may have been done, and the tracker cannot tell; see there before it is repeated"
                    .to_owned(),
            ));
        }
        if self.performer.cancel.is_cancelled() {
            return Ok(Some("cancelled before it was sent".to_owned()));
        }
        let now_ms = (self.performer.clock)();
        match self.performer.leases.renew(lease, now_ms)? {
            true => Ok(None),
            false => Ok(Some("the lease was lost to another process".to_owned())),
        }
    }

    fn write(
        &mut self,
        request: &EffectRequest,
        key: &EffectKey,
        version: &str,
        lease: &Lease,
    ) -> Result<Wrote, OperatorError> {
        let made = self.performer.journal.standing(key);
        let attempt = made.map_or(0, |standing| standing.attempts) + 1;
        self.append(Entry::Dispatched {
            key: *key,
            attempt,
            fence: lease.fence,
            version: version.to_owned(),
        })?;
        let answered = self.performer.effector.dispatch(Order {
            request,
            key,
            version,
            fence: lease.fence,
        });
        let key = *key;
        let failed = |reason: &String| Entry::Failed {
            key,
            reason: reason.clone(),
        };
        Ok(match answered {
            Dispatch::Accepted => {
                self.append(Entry::Confirmed { key })?;
                Wrote::Look
            }
            Dispatch::Refused(reason) => {
                self.append(failed(&reason))?;
                Wrote::Ended(self.refused(&key, reason))
            }
            Dispatch::KeyTaken(reason) => {
                self.append(failed(&reason))?;
                let found = ReadBack::Conflict {
                    reason: reason.clone(),
                };
                self.append(Entry::ReadBack { key, found })?;
                Wrote::Ended(End::Other(EffectStatus::Conflict, reason))
            }
            // The next look tells whether it moved by an earlier attempt or by somebody else.
            Dispatch::Moved(reason) => {
                self.append(failed(&reason))?;
                Wrote::Wait(None, reason)
            }
            Dispatch::Later { after_ms, reason } => {
                self.append(failed(&reason))?;
                Wrote::Wait(after_ms, reason)
            }
            Dispatch::Unknown { after_ms, reason } => {
                let unknown = Entry::Unknown {
                    key,
                    reason: reason.clone(),
                };
                self.append(unknown)?;
                Wrote::Wait(after_ms, reason)
            }
        })
    }

    /// Takes the resource, waiting for its owner as long as one wait may last.
    fn lease(&self, resource: &str) -> Result<Result<Lease, String>, OperatorError> {
        let give_up_ms = (self.performer.clock)().saturating_add(self.performer.limits.wait_ms_max);
        loop {
            let now_ms = (self.performer.clock)();
            let busy = match self.performer.leases.acquire(resource, now_ms)? {
                Ok(lease) => return Ok(Ok(lease)),
                Err(busy) => busy,
            };
            if now_ms >= give_up_ms || self.performer.cancel.is_cancelled() {
                return Ok(Err(format!("{} works on {resource}", busy.owner)));
            }
            (self.performer.pause)(Duration::from_millis(LOOK_MS));
        }
    }

    fn wait(&self, ms: u64) {
        let mut left = ms.min(self.performer.limits.wait_ms_max);
        while left > 0 && !self.performer.cancel.is_cancelled() {
            let piece = left.min(LOOK_MS);
            (self.performer.pause)(Duration::from_millis(piece));
            left -= piece;
        }
    }

    /// Whether the effect may have been sent.
    fn open(&self, key: &EffectKey) -> bool {
        let standing = self.performer.journal.standing(key);
        standing.is_some_and(|standing| standing.open > 0)
    }

    /// The end of an effect that was left before it was settled; a write that nobody answered may
    /// still arrive.
    fn left(&self, key: &EffectKey, reason: String) -> End {
        match self.open(key) {
            true => End::Other(EffectStatus::Unknown, reason),
            false => End::Other(EffectStatus::NotRun, reason),
        }
    }

    fn refused(&self, key: &EffectKey, reason: String) -> End {
        match self.open(key) {
            true => End::Other(EffectStatus::Unknown, reason),
            false => End::Other(EffectStatus::Refused, reason),
        }
    }

    fn append(&mut self, entry: Entry) -> Result<(), OperatorError> {
        self.performer.journal.append(entry)
    }
}

/// What a read led to.
enum Seen {
    Ended(End),
    Absent(String),
}

/// What a write led to.
enum Wrote {
    Ended(End),
    Look,
    Wait(Option<u64>, String),
}

fn conflict(reason: String) -> (ReadBack, Seen) {
    let found = ReadBack::Conflict {
        reason: reason.clone(),
    };
    (
        found,
        Seen::Ended(End::Other(EffectStatus::Conflict, reason)),
    )
}
