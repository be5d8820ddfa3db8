//! Single flight: of all that want the same answer at the same time, one computes it.
//!
//! Nothing is remembered here: a flight ends when its lease does. A lead therefore looks into the
//! store once more before it computes, for the previous lead may just have put the answer there.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};

use super::StoredAnswers;
use crate::id::FactKey;

/// Hands out one lease per key at a time; clones share the leases.
///
/// A caller that leads some keys and follows others finishes what it leads before it waits: two
/// that wait for each other's leases wait for ever.
#[derive(Debug, Clone, Default)]
pub struct Flights {
    lanes: Arc<Mutex<HashMap<FactKey, Lane>>>,
}

/// The keys in flight; an entry goes when it has landed or nobody wants it.
#[derive(Debug)]
struct Lane {
    shared: Arc<Shared>,
    led: bool,
    followers: usize,
}

/// What lead and followers of one flight share; the condition goes with the mutex of all lanes.
#[derive(Debug, Default)]
struct Shared {
    answers: OnceLock<StoredAnswers>,
    changed: Condvar,
}

/// The part of a caller in a flight.
#[derive(Debug)]
pub enum Flight {
    /// Nobody else computes this key: the caller does.
    Lead(Lease),
    /// Somebody else computes it.
    Follow(Follower),
}

/// How a wait ended.
#[derive(Debug)]
pub enum Landed {
    /// The lead's answers.
    Answered(StoredAnswers),
    /// The lead gave up, and the caller is the lead now.
    Lead(Lease),
}

/// The right, and the duty, to compute one key; dropping it lets a follower take over.
#[derive(Debug)]
pub struct Lease {
    flights: Flights,
    key: FactKey,
    shared: Arc<Shared>,
}

/// A place in the queue for somebody else's answer.
#[derive(Debug)]
pub struct Follower {
    flights: Flights,
    key: FactKey,
    shared: Arc<Shared>,
}

impl Flights {
    /// No key in flight yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Joins the flight of a key without blocking: its first caller leads, the others follow.
    pub fn join(&self, key: FactKey) -> Flight {
        let mut lanes = self.lock();
        let (shared, leads) = match lanes.entry(key) {
            Entry::Vacant(vacant) => {
                let shared = Arc::new(Shared::default());
                vacant.insert(Lane {
                    shared: shared.clone(),
                    led: true,
                    followers: 0,
                });
                (shared, true)
            }
            Entry::Occupied(occupied) => {
                let lane = occupied.into_mut();
                // A lead that gave up while its followers are busy elsewhere is replaced at once.
                let leads = !std::mem::replace(&mut lane.led, true);
                lane.followers += usize::from(!leads);
                (lane.shared.clone(), leads)
            }
        };
        let flights = self.clone();
        if leads {
            Flight::Lead(Lease {
                flights,
                key,
                shared,
            })
        } else {
            Flight::Follow(Follower {
                flights,
                key,
                shared,
            })
        }
    }

    /// Returns the number of keys in flight.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// True when no key is in flight.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<FactKey, Lane>> {
        // Every change below is complete before anything can panic.
        self.lanes.lock().unwrap_or_else(|held| held.into_inner())
    }
}

impl Flight {
    /// Blocks until the answers are there or the caller is the lead; a lead does not block.
    pub fn wait(self) -> Landed {
        match self {
            Self::Lead(lease) => Landed::Lead(lease),
            Self::Follow(follower) => follower.wait(),
        }
    }
}

impl Lease {
    /// The key to compute.
    pub fn key(&self) -> FactKey {
        self.key
    }

    /// Ends the flight: every follower gets the answers. Without answers it is as if dropped.
    ///
    /// Put the answers into the store first, or a caller that comes in between computes them again.
    pub fn finish(self, answers: Option<StoredAnswers>) {
        if let Some(answers) = answers {
            let mut lanes = self.flights.lock();
            // Only the lease sets it, and `finish` consumes the lease.
            let _ = self.shared.answers.set(answers);
            lanes.remove(&self.key);
            self.shared.changed.notify_all();
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.shared.answers.get().is_some() {
            return;
        }
        let mut lanes = self.flights.lock();
        if let Some(lane) = lanes.get_mut(&self.key) {
            lane.led = false;
            if lane.followers == 0 {
                lanes.remove(&self.key);
            } else {
                self.shared.changed.notify_one();
            }
        }
    }
}

impl Follower {
    /// Blocks until the lead has finished or given up.
    pub fn wait(self) -> Landed {
        let mut lanes = self.flights.lock();
        loop {
            if let Some(answers) = self.shared.answers.get() {
                return Landed::Answered(answers.clone());
            }
            match lanes.get_mut(&self.key) {
                // A lane that has not landed stays while it has a follower.
                Some(lane) if lane.led => {}
                Some(lane) => {
                    lane.led = true;
                    return Landed::Lead(Lease {
                        flights: self.flights.clone(),
                        key: self.key,
                        shared: self.shared.clone(),
                    });
                }
                None => unreachable!("a lane with a follower was removed before it landed"),
            }
            lanes = self
                .shared
                .changed
                .wait(lanes)
                .unwrap_or_else(|held| held.into_inner());
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let mut lanes = self.flights.lock();
        let Some(lane) = lanes.get_mut(&self.key) else {
            return;
        };
        // After a landing the key may be in flight anew, which is none of this follower's business.
        if Arc::ptr_eq(&lane.shared, &self.shared) {
            lane.followers -= 1;
            if lane.followers == 0 && !lane.led {
                lanes.remove(&self.key);
            }
        }
    }
}
