//! The memory: what a backend answered to exactly this question about exactly these bytes.
//!
//! The raw answers are kept, not the fact: whether they decide or abstain is the plan's rule and is
//! applied anew, so a changed threshold asks nothing again. Failures, cancellations, units that
//! were not run and simulated answers never enter. A value that does not match its checksum is a
//! miss. Must not know plans or files of a run.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;

use redb::{Database, Durability, ReadableDatabase, TableDefinition};
use serde::{Deserialize, Serialize};

use crate::canonical::Canonical;
use crate::error::OperatorError;
use crate::id::FactKey;
use crate::infer::{Answer, BackendIdentity, Labels, Question, Rubric};
use crate::text::UnitText;

const ANSWERS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("answers v1");

/// Values written between two that reach the disk: a crash asks at most so many units again.
const PUTS_PER_SYNC: u32 = 64;

/// What is remembered under a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredAnswers {
    /// One answer per question, in question order.
    pub answers: Vec<Answer>,
    /// Prompt tokens that the unit has, cached ones included; what a run without memory would add.
    pub prompt_tokens: u64,
}

/// Remembers answers by what was asked.
pub trait FactStore {
    /// Returns what was answered, or none; unreadable values count as none.
    fn get(&self, key: &FactKey) -> Option<StoredAnswers>;

    /// Remembers answers.
    ///
    /// # Errors
    /// `Store` when they cannot be written.
    fn put(&self, key: &FactKey, stored: &StoredAnswers) -> Result<(), OperatorError>;

    /// Makes everything put so far survive a crash.
    ///
    /// # Errors
    /// `Store` when it cannot be written.
    fn flush(&self) -> Result<(), OperatorError>;
}

/// Names what is asked of one unit: everything that can change the answer, and nothing else.
///
/// Covered: backend (model file, tokenizer, template, numerics), rubric, questions with scaffolds
/// and labels, and the bytes shown. Left out: paths, limits, thresholds, order, neighbours.
pub fn fact_key(
    backend: &BackendIdentity,
    rubric: &Rubric,
    questions: &[Question],
    unit: &UnitText,
) -> FactKey {
    let mut canonical = Canonical::new("operator 2026 fact key v1");
    canonical
        .bytes(&backend.digest)
        .bytes(rubric.hash.as_bytes())
        .list(questions.len());
    for question in questions {
        canonical
            .text(&question.field)
            .text(&question.scaffold)
            .bool(question.line_count);
        match &question.labels {
            Labels::Fixed(labels) => {
                canonical.some().list(labels.len());
                for label in labels {
                    canonical.text(label);
                }
            }
            // The text hash covers the lines themselves; their number may depend on the plan.
            Labels::Lines => {
                canonical.none().u64(unit.lines.len() as u64);
            }
        }
    }
    canonical.bytes(unit.text_hash.as_bytes());
    FactKey::of(&canonical)
}

/// A memory in one file.
///
/// Layout: key = the 32 bytes of the fact key; value = 32 bytes checksum, then JSON. The checksum
/// covers key and JSON, so a value that was torn or moved to another key is a miss.
#[derive(Debug)]
pub struct RedbStore {
    database: Database,
    path: String,
    unsynced: Mutex<u32>,
}

impl RedbStore {
    /// Opens the file or makes it.
    ///
    /// # Errors
    /// `Store` when the file is not a store, is in use by another process or cannot be made.
    pub fn open(path: &Path) -> Result<Self, OperatorError> {
        let shown = path.display().to_string();
        let failed = |problem: String| OperatorError::Store {
            path: shown.clone(),
            problem,
        };
        let database = Database::create(path).map_err(|error| {
            failed(format!(
                "{error}; close other runs that use it, or move the file away"
            ))
        })?;
        let store = Self {
            database,
            path: shown.clone(),
            unsynced: Mutex::new(0),
        };
        // Reading needs the table to exist.
        store.write(None, Durability::Immediate)?;
        Ok(store)
    }

    fn write(
        &self,
        entry: Option<(&FactKey, &[u8])>,
        durability: Durability,
    ) -> Result<(), OperatorError> {
        let write = || -> Result<(), redb::Error> {
            let mut transaction = self.database.begin_write()?;
            transaction.set_durability(durability)?;
            {
                let mut table = transaction.open_table(ANSWERS)?;
                if let Some((key, value)) = entry {
                    table.insert(key.as_bytes().as_slice(), value)?;
                }
            }
            transaction.commit()?;
            Ok(())
        };
        write().map_err(|error| OperatorError::Store {
            path: self.path.clone(),
            problem: format!("{error}; check free space and permissions"),
        })
    }

    fn read(&self, key: &FactKey) -> Result<Option<Vec<u8>>, redb::Error> {
        let transaction = self.database.begin_read()?;
        let table = transaction.open_table(ANSWERS)?;
        Ok(table
            .get(key.as_bytes().as_slice())?
            .map(|value| value.value().to_vec()))
    }
}

impl FactStore for RedbStore {
    fn get(&self, key: &FactKey) -> Option<StoredAnswers> {
        decode(key, &self.read(key).ok()??)
    }

    fn put(&self, key: &FactKey, stored: &StoredAnswers) -> Result<(), OperatorError> {
        let mut unsynced = self
            .unsynced
            .lock()
            .unwrap_or_else(|held| held.into_inner());
        *unsynced += 1;
        let durability = if *unsynced >= PUTS_PER_SYNC {
            *unsynced = 0;
            Durability::Immediate
        } else {
            Durability::None
        };
        self.write(Some((key, &encode(key, stored, &self.path)?)), durability)
    }

    fn flush(&self) -> Result<(), OperatorError> {
        let mut unsynced = self
            .unsynced
            .lock()
            .unwrap_or_else(|held| held.into_inner());
        if *unsynced > 0 {
            self.write(None, Durability::Immediate)?;
            *unsynced = 0;
        }
        Ok(())
    }
}

/// A memory that lives as long as the process; keeps the same bytes as the file does.
#[derive(Debug, Default)]
pub struct MemoryStore {
    values: Mutex<BTreeMap<FactKey, Vec<u8>>>,
}

impl MemoryStore {
    /// Remembers nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of keys held.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// True when nothing is held.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<FactKey, Vec<u8>>> {
        // A panic elsewhere cannot leave a map half written: each write is one insert.
        self.values.lock().unwrap_or_else(|held| held.into_inner())
    }
}

impl FactStore for MemoryStore {
    fn get(&self, key: &FactKey) -> Option<StoredAnswers> {
        decode(key, self.lock().get(key)?)
    }

    fn put(&self, key: &FactKey, stored: &StoredAnswers) -> Result<(), OperatorError> {
        let value = encode(key, stored, "memory")?;
        self.lock().insert(*key, value);
        Ok(())
    }

    fn flush(&self) -> Result<(), OperatorError> {
        Ok(())
    }
}

fn encode(key: &FactKey, stored: &StoredAnswers, path: &str) -> Result<Vec<u8>, OperatorError> {
    let json = serde_json::to_vec(stored).map_err(|error| OperatorError::Store {
        path: path.to_owned(),
        problem: error.to_string(),
    })?;
    let mut value = checksum(key, &json).to_vec();
    value.extend(json);
    Ok(value)
}

fn decode(key: &FactKey, value: &[u8]) -> Option<StoredAnswers> {
    let (sum, json) = value.split_at_checked(32)?;
    if sum != checksum(key, json) {
        return None;
    }
    serde_json::from_slice(json).ok()
}

fn checksum(key: &FactKey, json: &[u8]) -> [u8; 32] {
    let mut canonical = Canonical::new("operator 2026 stored answers v1");
    canonical.bytes(key.as_bytes()).bytes(json);
    canonical.digest()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn stored() -> StoredAnswers {
        let answer = Answer::from_ppm(vec![700_000, 300_000], 990_000).unwrap();
        StoredAnswers {
            answers: vec![answer],
            prompt_tokens: 12,
        }
    }

    fn key(byte: u8) -> FactKey {
        FactKey::from_bytes([byte; 32])
    }

    #[test]
    fn a_file_keeps_what_was_put_and_survives_reopening() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("facts.redb");
        let store = RedbStore::open(&path).unwrap();
        assert_eq!(store.get(&key(1)), None);
        store.put(&key(1), &stored()).unwrap();
        assert_eq!(store.get(&key(1)), Some(stored()));
        store.flush().unwrap();
        drop(store);
        let store = RedbStore::open(&path).unwrap();
        assert_eq!(store.get(&key(1)), Some(stored()));
        assert_eq!(store.get(&key(2)), None);
    }

    #[test]
    fn a_torn_flipped_or_moved_value_is_a_miss() {
        let value = encode(&key(1), &stored(), "memory").unwrap();
        assert_eq!(decode(&key(1), &value), Some(stored()));
        assert_eq!(decode(&key(2), &value), None);
        for cut in 0..value.len() {
            assert_eq!(decode(&key(1), &value[..cut]), None, "cut at {cut}");
            let mut flipped = value.clone();
            flipped[cut] ^= 1;
            assert_eq!(decode(&key(1), &flipped), None, "flipped at {cut}");
        }
        let directory = tempfile::tempdir().unwrap();
        let store = RedbStore::open(&directory.path().join("facts.redb")).unwrap();
        store
            .write(Some((&key(1), &value[..40])), Durability::Immediate)
            .unwrap();
        assert_eq!(store.get(&key(1)), None);
    }

    #[test]
    fn a_file_that_is_no_store_is_refused_with_its_path() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notes.txt");
        std::fs::write(&path, "not a store").unwrap();
        let message = RedbStore::open(&path).unwrap_err().to_string();
        assert!(message.contains("notes.txt"), "{message}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "not a store");
    }
}
