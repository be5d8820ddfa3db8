//! Where every effect stands, from the journal's lines alone: a pure function, and one step of it.
//!
//! Must not know files or trackers.

use std::collections::{BTreeMap, BTreeSet};

use super::line::{Entry, ReadBack};
use super::receipt::Receipt;
use super::request::EffectRequest;
use crate::id::{ContentHash, EffectKey};

/// All effects of a journal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Where each stands.
    pub standings: BTreeMap<EffectKey, Standing>,
    /// The answer that was begun last, its plan, and all effects that were allowed for it.
    pub begun: Option<(ContentHash, ContentHash, BTreeSet<String>)>,
    /// Tracker, issue and version to the version that an effect of this journal made of it.
    made: BTreeMap<(String, String, String), String>,
}

/// Where one effect stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// What is to be done.
    pub request: EffectRequest,
    /// The answer that it follows from.
    pub answer: ContentHash,
    /// The last that is known.
    pub state: State,
    /// Attempts made so far.
    pub attempts: u32,
    /// Attempts of which nobody said that they did nothing.
    pub open: u32,
    /// The version under which the last attempt was sent.
    version: Option<String>,
}

/// The last that is known of an effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It was going to be done, and was not sent.
    Intended,
    /// It was about to be sent; it may have been.
    Dispatched,
    /// The tracker said that it did it, and was not read since.
    Confirmed,
    /// The tracker said that it did nothing.
    Failed(String),
    /// Nobody knows.
    Unknown(String),
    /// The tracker was read after an attempt and does not show it.
    Absent,
    /// It cannot be done any more.
    Conflict(String),
    /// It is done.
    Done(Box<Receipt>),
}

/// What has to happen next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// Nothing: it is settled.
    Nothing,
    /// It may be sent.
    Dispatch,
    /// The tracker has to be read before anything else.
    ReadBack,
}

impl Standing {
    /// What has to happen next, on a tracker that does or does not let a write be repeated.
    pub fn due(&self, repeatable: bool) -> Due {
        match &self.state {
            State::Done(_) | State::Conflict(_) => Due::Nothing,
            State::Intended => Due::Dispatch,
            State::Failed(_) if self.open == 0 => Due::Dispatch,
            State::Absent if repeatable => Due::Dispatch,
            State::Failed(_)
            | State::Absent
            | State::Dispatched
            | State::Confirmed
            | State::Unknown(_) => Due::ReadBack,
        }
    }
}

/// Goes through all entries.
///
/// # Errors
/// The position of the first entry that cannot follow those before it, and why.
pub fn recover<'e>(
    entries: impl IntoIterator<Item = &'e Entry>,
) -> Result<Recovered, (u64, String)> {
    let mut recovered = Recovered::default();
    for (seq, entry) in (0_u64..).zip(entries) {
        recovered
            .step(entry)
            .map_err(|problem| (seq + 1, problem))?;
    }
    Ok(recovered)
}

impl Recovered {
    /// Takes one more entry.
    ///
    /// # Errors
    /// Why it cannot follow; nothing is changed then.
    pub fn step(&mut self, entry: &Entry) -> Result<(), String> {
        match entry {
            Entry::Begun {
                answer,
                plan,
                allowed,
            } => {
                let mut names = match self.begun.take() {
                    Some((before, _, names)) if before == *answer => names,
                    _ => BTreeSet::new(),
                };
                names.extend(allowed.iter().cloned());
                self.begun = Some((*answer, *plan, names));
                Ok(())
            }
            Entry::Intended {
                key,
                request,
                answer,
            } => self.intend(*key, request, *answer),
            Entry::Dispatched { key, version, .. } => {
                let standing = self.unsettled(key)?;
                standing.state = State::Dispatched;
                standing.attempts += 1;
                standing.open += 1;
                standing.version = Some(version.clone());
                Ok(())
            }
            Entry::Confirmed { key } => self.sent(key).map(|standing| {
                standing.state = State::Confirmed;
            }),
            Entry::Failed { key, reason } => self.sent(key).map(|standing| {
                standing.state = State::Failed(reason.clone());
                standing.open -= 1;
            }),
            Entry::Unknown { key, reason } => self.sent(key).map(|standing| {
                standing.state = State::Unknown(reason.clone());
            }),
            Entry::ReadBack { key, found } => self.read_back(key, found),
        }
    }

    /// The version that an issue is expected at: the one that was judged, or what effects of this
    /// journal, and nobody else, made of it.
    pub fn expected(&self, request: &EffectRequest) -> Option<String> {
        let mut version = request.expects.clone()?;
        let mut seen = BTreeSet::new();
        let at = |version: &str| {
            let (tracker, resource) = (request.tracker.clone(), request.resource.clone());
            self.made.get(&(tracker, resource, version.to_owned()))
        };
        while let Some(next) = at(&version) {
            if !seen.insert(version) {
                return Some(next.clone());
            }
            version = next.clone();
        }
        Some(version)
    }

    fn intend(
        &mut self,
        key: EffectKey,
        request: &EffectRequest,
        answer: ContentHash,
    ) -> Result<(), String> {
        if key != request.key() {
            return Err(format!("key {key} is not that of the effect beside it"));
        }
        match self.standings.get_mut(&key) {
            Some(standing) if standing.request != *request => {
                Err(format!("key {key} names two different effects"))
            }
            Some(standing) => {
                standing.answer = answer;
                Ok(())
            }
            None => {
                self.standings.insert(
                    key,
                    Standing {
                        request: request.clone(),
                        answer,
                        state: State::Intended,
                        attempts: 0,
                        open: 0,
                        version: None,
                    },
                );
                Ok(())
            }
        }
    }

    fn read_back(&mut self, key: &EffectKey, found: &ReadBack) -> Result<(), String> {
        let standing = self.unsettled(key)?;
        match found {
            ReadBack::Done { receipt } => {
                if !receipt.proves(&standing.request) {
                    return Err(format!("the receipt does not prove effect {key}"));
                }
                standing.state = State::Done(receipt.clone());
                let (request, sent) = (standing.request.clone(), standing.version.clone());
                // Where another journal sent it, it was held to the version that was judged.
                if let Some(version) = sent.or_else(|| self.expected(&request)) {
                    let made = receipt.applied_version.clone();
                    self.made
                        .insert((request.tracker, request.resource, version), made);
                }
            }
            // Before the first attempt there is nothing that could be absent.
            ReadBack::Absent { .. } if standing.open == 0 => {}
            ReadBack::Absent { .. } => standing.state = State::Absent,
            ReadBack::Conflict { reason } => standing.state = State::Conflict(reason.clone()),
        }
        Ok(())
    }

    fn unsettled(&mut self, key: &EffectKey) -> Result<&mut Standing, String> {
        match self.standings.get_mut(key) {
            None => Err(format!("effect {key} was never intended")),
            Some(standing) if standing.due(true) == Due::Nothing => {
                Err(format!("effect {key} is settled"))
            }
            Some(standing) => Ok(standing),
        }
    }

    fn sent(&mut self, key: &EffectKey) -> Result<&mut Standing, String> {
        let standing = self.unsettled(key)?;
        match standing.state {
            State::Dispatched => Ok(standing),
            _ => Err(format!("effect {key} was not sent")),
        }
    }
}
