//! One effect on its way: intended on disk, resource leased, tracker read, version compared, dispatched
//! on disk, sent, read back.
//!
//! Whatever happens between two of these, the journal says which. Cancelling ends the work before the
//! next write; what was written is still read back. Must not know which tracker it is.

use std::time::Duration;

use super::effector::{Dispatch, Order, Unreadable};
use super::lease::Lease;
use super::line::{Entry, ReadBack};
use super::perform::Performer;
use super::receipt::{Finding, Receipt, judge};
use super::recover::{Due, State};
use super::report::{EffectStatus, Outcome};
use super::request::EffectRequest;
use crate::error::OperatorError;
use crate::id::{ContentHash, EffectKey};

/// Pause after a first failure, which doubles; a tracker that names a time is obeyed instead.
const PAUSE_MS: u64 = 100;
/// How often a wait looks at the cancel flag.
const LOOK_MS: u64 = 50;

/// The driver at work.
pub(super) struct Drive<'a, 'b> {
    performer: &'a mut Performer<'b>,
    /// Why the tracker was given up: further effects would only wait as long again.
    unreachable: Option<String>,
}

/// How an effect ends, before it is told under its name.
pub(super) enum End {
    Done(Box<Receipt>),
    Other(EffectStatus, String),
}

impl End {
    pub(super) fn told(self, request: &EffectRequest) -> Outcome {
        match self {
            Self::Done(receipt) => Outcome::done(request, *receipt),
            Self::Other(status, reason) => Outcome::without(request, status, reason),
        }
    }
}

impl<'a, 'b> Drive<'a, 'b> {
    pub(super) fn new(performer: &'a mut Performer<'b>) -> Self {
        Self {
            performer,
            unreachable: None,
        }
    }

    /// Takes one effect to its end.
    pub(super) fn one(
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
            request: Box::new(request.clone()),
            answer,
        })?;
        let mut lease = match self.lease(request, key)? {
            Ok(lease) => lease,
            Err(end) => return Ok(end),
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
    pub(super) fn look(
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

    /// Takes the resource, waiting for its owner as long as one wait may last. Where the owner has
    /// done this very effect already, as a run that crashed since may have, nothing is waited for.
    fn lease(
        &mut self,
        request: &EffectRequest,
        key: &EffectKey,
    ) -> Result<Result<Lease, End>, OperatorError> {
        let resource = &request.resource;
        let give_up_ms = (self.performer.clock)().saturating_add(self.performer.limits.wait_ms_max);
        let mut looked = false;
        loop {
            let now_ms = (self.performer.clock)();
            let busy = match self.performer.leases.acquire(resource, now_ms)? {
                Ok(lease) => return Ok(Ok(lease)),
                Err(busy) => busy,
            };
            let done = match std::mem::replace(&mut looked, true) {
                true => None,
                false => self.done_already(request, key),
            };
            if let Some(receipt) = done {
                let end = End::Done(receipt.clone());
                let found = ReadBack::Done { receipt };
                self.append(Entry::ReadBack { key: *key, found })?;
                return Ok(Err(end));
            }
            if now_ms >= give_up_ms || self.performer.cancel.is_cancelled() {
                let reason = format!("{} works on {resource}", busy.owner);
                return Ok(Err(self.left(key, reason)));
            }
            (self.performer.pause)(Duration::from_millis(LOOK_MS));
        }
    }

    fn done_already(&self, request: &EffectRequest, key: &EffectKey) -> Option<Box<Receipt>> {
        let observation = self.performer.effector.read_back(request, key).ok()?;
        match judge(request, &observation) {
            Finding::Done(receipt) => Some(receipt),
            _ => None,
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
    pub(super) fn left(&self, key: &EffectKey, reason: String) -> End {
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
pub(super) enum Seen {
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
