//! The store without a file.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use super::entry::{self, Table};
use super::{ContentStore, FactStore, Kind, StoredAnswers};
use crate::error::OperatorError;
use crate::id::FactKey;

/// Encoded values by table and key.
type Values = BTreeMap<(Table, [u8; 32]), Vec<u8>>;

/// A store that lives as long as the process; keeps the same bytes as the file does.
///
/// It forgets nothing by age: every entry carries day 0.
#[derive(Debug, Default)]
pub struct MemoryStore {
    values: Mutex<Values>,
}

impl MemoryStore {
    /// Remembers nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of keys held, of all kinds.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// True when nothing is held.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, Values> {
        // A panic elsewhere cannot leave a map half written: each write is one insert.
        self.values.lock().unwrap_or_else(|held| held.into_inner())
    }

    fn payload(&self, table: Table, key: &[u8; 32]) -> Option<Vec<u8>> {
        let values = self.lock();
        let entry = entry::open(table, key, values.get(&(table, *key))?).ok()?;
        Some(entry.payload.to_vec())
    }
}

impl FactStore for MemoryStore {
    fn get(&self, key: &FactKey) -> Option<StoredAnswers> {
        entry::decode_answers(&self.payload(Table::Answers, key.as_bytes())?).ok()
    }

    fn put(&self, key: &FactKey, stored: &StoredAnswers) -> Result<(), OperatorError> {
        self.exchange(&[(*key, stored.clone())], &[])
    }

    fn exchange(
        &self,
        put: &[(FactKey, StoredAnswers)],
        forget: &[FactKey],
    ) -> Result<(), OperatorError> {
        let mut sealed = Vec::with_capacity(put.len());
        for (key, stored) in put {
            let json = entry::encode_answers(stored).map_err(|error| OperatorError::Store {
                path: String::from("in memory"),
                problem: error.to_string(),
            })?;
            let value = entry::seal(Table::Answers, key.as_bytes(), 0, &json);
            sealed.push(((Table::Answers, *key.as_bytes()), value));
        }
        let mut values = self.lock();
        values.extend(sealed);
        for key in forget {
            values.remove(&(Table::Answers, *key.as_bytes()));
        }
        Ok(())
    }
}

impl ContentStore for MemoryStore {
    fn get_bytes(&self, kind: Kind, key: &[u8; 32]) -> Option<Vec<u8>> {
        self.payload(kind.into(), key)
    }

    fn put_bytes(&self, kind: Kind, entries: &[([u8; 32], Vec<u8>)]) -> Result<(), OperatorError> {
        let table = Table::from(kind);
        let mut values = self.lock();
        for (key, payload) in entries {
            let value = || entry::seal(table, key, 0, payload);
            if kind.is_replaced() {
                values.insert((table, *key), value());
            } else {
                values.entry((table, *key)).or_insert_with(value);
            }
        }
        Ok(())
    }
}
