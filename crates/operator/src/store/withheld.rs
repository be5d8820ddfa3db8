//! A store whose answers are not trusted before the run's canaries are.
//!
//! What a run puts lies under keys of its own, which no other lookup knows, until the breaker has
//! stayed closed to the end; then it moves to where every run finds it. A killed run leaves its answers
//! there, and the next one with canaries takes them up: nothing is asked twice, and nothing is trusted
//! early. An open breaker removes whatever the run put or looked up. Must not know canaries.

use std::sync::{Mutex, MutexGuard};

use super::{ContentStore, FactStore, Kind, Store, StoredAnswers};
use crate::canonical::Canonical;
use crate::error::OperatorError;
use crate::id::FactKey;

/// Answers that are moved at once: a move waits for the disk.
const MOVED: usize = 1_024;

/// A store in front of another.
pub struct Withheld<'a> {
    inner: &'a dyn Store,
    used: Mutex<Used>,
}

#[derive(Default)]
struct Used {
    /// Keys of answers that were trusted before.
    trusted: Vec<FactKey>,
    /// Keys of answers that are not yet.
    pending: Vec<FactKey>,
    /// Whether an untrusted answer was looked up since it was last asked.
    unproven: bool,
}

impl<'a> Withheld<'a> {
    /// Stands in front of a store.
    pub fn new(inner: &'a dyn Store) -> Self {
        Self {
            inner,
            used: Mutex::default(),
        }
    }

    /// Whether an answer that no canary has vouched for was looked up since this was last called.
    pub fn take_unproven(&self) -> bool {
        std::mem::take(&mut self.used().unproven)
    }

    /// Moves the run's answers to where every later run finds them.
    ///
    /// # Errors
    /// `Store` when they cannot be written.
    pub fn release(&self) -> Result<(), OperatorError> {
        let pending = std::mem::take(&mut self.used().pending);
        for keys in pending.chunks(MOVED) {
            let aside: Vec<FactKey> = keys.iter().map(aside).collect();
            let found = keys.iter().zip(&aside);
            let found: Vec<(FactKey, StoredAnswers)> = found
                .filter_map(|(key, aside)| Some((*key, self.inner.get(aside)?)))
                .collect();
            self.inner.exchange(&found, &aside)?;
        }
        Ok(())
    }

    /// Removes what the run put and what it looked up: all of it was answered under what has failed.
    ///
    /// # Errors
    /// `Store` when it cannot be removed.
    pub fn discard(&self) -> Result<(), OperatorError> {
        let used = std::mem::take(&mut *self.used());
        let mut keys = used.trusted;
        keys.extend(used.pending.iter().map(aside));
        for keys in keys.chunks(MOVED) {
            self.inner.exchange(&[], keys)?;
        }
        Ok(())
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        // A panic elsewhere cannot leave the lists half changed: each change is one push.
        self.used.lock().unwrap_or_else(|held| held.into_inner())
    }
}

/// Where an answer lies that is not trusted yet.
fn aside(key: &FactKey) -> FactKey {
    let mut canonical = Canonical::new("operator 2026 withheld answer v1");
    canonical.bytes(key.as_bytes());
    FactKey::of(&canonical)
}

impl FactStore for Withheld<'_> {
    fn get(&self, key: &FactKey) -> Option<StoredAnswers> {
        if let Some(stored) = self.inner.get(key) {
            self.used().trusted.push(*key);
            return Some(stored);
        }
        let stored = self.inner.get(&aside(key))?;
        let mut used = self.used();
        used.pending.push(*key);
        used.unproven = true;
        Some(stored)
    }

    fn put(&self, key: &FactKey, stored: &StoredAnswers) -> Result<(), OperatorError> {
        self.inner.put(&aside(key), stored)?;
        self.used().pending.push(*key);
        Ok(())
    }

    fn exchange(
        &self,
        put: &[(FactKey, StoredAnswers)],
        forget: &[FactKey],
    ) -> Result<(), OperatorError> {
        put.iter()
            .try_for_each(|(key, stored)| self.put(key, stored))?;
        let mut keys = forget.to_vec();
        keys.extend(forget.iter().map(aside));
        self.inner.exchange(&[], &keys)
    }
}

impl ContentStore for Withheld<'_> {
    fn has(&self, kind: Kind, key: &[u8; 32]) -> bool {
        self.inner.has(kind, key)
    }

    fn get_bytes(&self, kind: Kind, key: &[u8; 32]) -> Option<Vec<u8>> {
        self.inner.get_bytes(kind, key)
    }

    fn put_bytes(&self, kind: Kind, entries: &[([u8; 32], Vec<u8>)]) -> Result<(), OperatorError> {
        self.inner.put_bytes(kind, entries)
    }
}
