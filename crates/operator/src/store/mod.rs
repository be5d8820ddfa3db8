//! The store: what was computed once and need not be computed again.
//!
//! Four tables, each from a hash of 32 bytes to bytes:
//!
//! | table        | key             | value                                                   |
//! |--------------|-----------------|---------------------------------------------------------|
//! | `answers v2` | [`FactKey`]     | what a backend answered to exactly this question about exactly these bytes, as JSON |
//! | `facts v1`   | provenance hash | bytes of a fact, opaque to the store                     |
//! | `nodes v1`   | node key        | bytes of a node of the fold, opaque to the store         |
//! | `texts v1`   | text key        | a summary's text that passed, opaque to the store        |
//!
//! The raw answers are kept beside the facts: whether they decide or abstain is the plan's rule and
//! is applied anew, so a changed threshold asks nothing again. Failures, cancellations, units that
//! were not run and simulated answers never enter. A value that does not match its checksum (torn,
//! flipped, moved to another key or table) is a miss, and so is one past the retention.
//!
//! A put is on the disk before it returns: neither a killed process nor a power cut loses it. One
//! process writes a file; any number read it meanwhile. The table `answers v1` of earlier versions
//! is ignored, and removed when the file is next opened for writing. Must not know plans, files of
//! a run, or clocks.

mod entry;
mod flight;
mod group;
mod key;
mod maintenance;
mod memory;
mod redb;
mod withheld;

use serde::{Deserialize, Serialize};

use crate::error::OperatorError;
use crate::id::FactKey;
use crate::infer::{Answer, UnitUsage};

pub use flight::{Flight, Flights, Follower, Landed, Lease};
pub use key::fact_key;
pub use maintenance::{
    Damage, GcOptions, GcReport, Removed, StoreStats, TableStats, VerifyReport, gc, stats, verify,
};
pub use memory::MemoryStore;
pub use redb::{RedbStore, StoreOptions};
pub use withheld::Withheld;

/// What is remembered under a [`FactKey`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredAnswers {
    /// One answer per question, in question order.
    pub answers: Vec<Answer>,
    /// What the answer cost when it was computed; what a run without the store would spend again.
    pub cost: UnitUsage,
}

/// Remembers answers by what was asked.
pub trait FactStore {
    /// Returns what was answered, or none; values that are unreadable or too old count as none.
    fn get(&self, key: &FactKey) -> Option<StoredAnswers>;

    /// Remembers answers in place of those under the same key; they are durable on return.
    ///
    /// # Errors
    /// `Store` when they cannot be written.
    fn put(&self, key: &FactKey, stored: &StoredAnswers) -> Result<(), OperatorError>;

    /// Remembers answers and forgets others in one step, durable on return; a key that is not there is
    /// none the less forgotten.
    ///
    /// # Errors
    /// `Store` when nothing of it can be written.
    fn exchange(
        &self,
        put: &[(FactKey, StoredAnswers)],
        forget: &[FactKey],
    ) -> Result<(), OperatorError>;
}

/// Which kind of content a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A fact, under its provenance hash.
    Fact,
    /// A node of the fold, under its node key.
    Node,
    /// A written text, under what it was written from and by.
    Text,
    /// What a tool read, under what it was asked.
    Observation,
}

impl Kind {
    /// Whether a later value replaces an earlier one: a text may be refused by its reader, and what
    /// was observed grows old; everything else follows from its key.
    pub const fn is_replaced(self) -> bool {
        matches!(self, Self::Text | Self::Observation)
    }
}

/// Keeps content-addressed values: written once, never changed, but for the kinds that are
/// [replaced](Kind::is_replaced).
pub trait ContentStore {
    /// Whether a readable value is there; reads and checks it.
    fn has(&self, kind: Kind, key: &[u8; 32]) -> bool {
        self.get_bytes(kind, key).is_some()
    }

    /// Returns the bytes under a key, or none; values that are damaged or too old count as none.
    fn get_bytes(&self, kind: Kind, key: &[u8; 32]) -> Option<Vec<u8>>;

    /// Keeps all entries or none of them, durable on return.
    ///
    /// A key that already has a readable value keeps it, and its day, unless its kind is replaced.
    ///
    /// # Errors
    /// `Store` when they cannot be written.
    fn put_bytes(&self, kind: Kind, entries: &[([u8; 32], Vec<u8>)]) -> Result<(), OperatorError>;
}

/// The whole store: answers and content.
pub trait Store: FactStore + ContentStore + Sync {}

impl<T: FactStore + ContentStore + Sync + ?Sized> Store for T {}
