//! The store in one file.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use redb::{
    Builder, ConcurrencyMode, Database, Durability, ReadableDatabase, ReadableTable,
    TableDefinition,
};

use super::entry::{self, Table};
use super::group::Group;
use super::{ContentStore, FactStore, Kind, StoredAnswers};
use crate::error::OperatorError;
use crate::id::FactKey;

/// Answers of earlier versions: no day, and a cost of prompt tokens alone.
pub(super) const ANSWERS_V1: TableDefinition<&[u8], &[u8]> = TableDefinition::new("answers v1");

/// Most bytes of the file's pages in memory: a store grows, what a run holds of it does not.
const CACHE_BYTES: usize = 64 << 20;

/// A table's type in the file.
type Definition = TableDefinition<'static, &'static [u8; 32], &'static [u8]>;

/// How a store is opened.
#[derive(Debug, Clone, Copy)]
pub struct StoreOptions {
    /// Days since the Unix epoch by the caller's clock; asked at each put, and at each get where
    /// there is a retention.
    pub today: fn() -> u32,
    /// Entries older than so many days are misses; none keeps everything.
    pub retention_days: Option<u32>,
}

/// A store in one file, open for writing.
///
/// Puts of threads that put at once share a transaction. While it is open no other process can open
/// the file for writing; reading it ([`super::stats`], [`super::verify`]) goes on.
#[derive(Debug)]
pub struct RedbStore {
    database: Database,
    path: PathBuf,
    options: StoreOptions,
    group: Group<Vec<Write>>,
}

/// One value on its way into the file.
#[derive(Debug)]
struct Write {
    table: Table,
    key: [u8; 32],
    /// None where it is to be removed.
    value: Option<Vec<u8>>,
    /// Whether a readable value under the key is kept.
    once: bool,
}

impl RedbStore {
    /// Opens the file or makes it; never waits for another process.
    ///
    /// # Errors
    /// `Store` when the file is not a store, is being written by another process or cannot be made.
    pub fn open(path: &Path, options: StoreOptions) -> Result<Self, OperatorError> {
        set_unfinished_aside(path).map_err(|source| OperatorError::Io {
            path: path.display().to_string(),
            action: "read",
            source,
        })?;
        let database = guarded(|| builder().create(path)).map_err(|error| refused(path, &error))?;
        let store = Self {
            database,
            path: path.to_owned(),
            options,
            group: Group::new(),
        };
        guarded(|| store.prepare()).map_err(|error| failed(path, explain(&error)))?;
        Ok(store)
    }

    /// Makes the tables, which reading needs, and removes those of earlier versions.
    fn prepare(&self) -> Result<(), redb::Error> {
        let transaction = self.database.begin_write()?;
        for table in Table::ALL {
            transaction.open_table(definition(table))?;
        }
        transaction.delete_table(ANSWERS_V1)?;
        transaction.commit()?;
        Ok(())
    }

    fn write(&self, writes: Vec<Write>) -> Result<(), OperatorError> {
        let commit =
            |batch: &[Vec<Write>]| guarded(|| self.commit(batch)).map_err(|error| explain(&error));
        self.group
            .submit(writes, commit)
            .map_err(|problem| failed(&self.path, problem))
    }

    fn commit(&self, batch: &[Vec<Write>]) -> Result<(), redb::Error> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        let mut changed = false;
        for table in Table::ALL {
            let mut writes = batch.iter().flatten().filter(|write| write.table == table);
            let Some(first) = writes.next() else { continue };
            let mut open = transaction.open_table(definition(table))?;
            for write in std::iter::once(first).chain(writes) {
                let stays = write.once
                    && open.get(&write.key)?.is_some_and(|value| {
                        self.payload(table, &write.key, value.value()).is_some()
                    });
                if stays {
                    continue;
                }
                changed |= match &write.value {
                    Some(value) => {
                        open.insert(&write.key, value.as_slice())?;
                        true
                    }
                    None => open.remove(&write.key)?.is_some(),
                };
            }
        }
        if changed {
            transaction.commit()?;
        } else {
            transaction.abort()?;
        }
        Ok(())
    }

    /// The payload under a key; a file that cannot be read there has none.
    fn read(&self, table: Table, key: &[u8; 32]) -> Option<Vec<u8>> {
        let read = || -> Result<Option<Vec<u8>>, redb::Error> {
            let transaction = self.database.begin_read()?;
            let open = transaction.open_table(definition(table))?;
            let value = open.get(key)?;
            let payload = |value: &[u8]| self.payload(table, key, value).map(<[u8]>::to_vec);
            Ok(value.and_then(|value| payload(value.value())))
        };
        guarded(read).ok()?
    }

    /// The payload of a value that is undamaged and young enough.
    fn payload<'a>(&self, table: Table, key: &[u8; 32], value: &'a [u8]) -> Option<&'a [u8]> {
        let entry = entry::open(table, key, value).ok()?;
        let expired = self
            .options
            .retention_days
            .is_some_and(|days| entry::is_expired(entry.day, (self.options.today)(), days));
        (!expired).then_some(entry.payload)
    }
}

impl FactStore for RedbStore {
    fn get(&self, key: &FactKey) -> Option<StoredAnswers> {
        let payload = self.read(Table::Answers, key.as_bytes())?;
        entry::decode_answers(&payload).ok()
    }

    fn put(&self, key: &FactKey, stored: &StoredAnswers) -> Result<(), OperatorError> {
        self.exchange(&[(*key, stored.clone())], &[])
    }

    fn exchange(
        &self,
        put: &[(FactKey, StoredAnswers)],
        forget: &[FactKey],
    ) -> Result<(), OperatorError> {
        let (table, today) = (Table::Answers, (self.options.today)());
        let write = |key: &FactKey, value| Write {
            table,
            key: *key.as_bytes(),
            value,
            once: false,
        };
        let mut writes = Vec::with_capacity(put.len() + forget.len());
        for (key, stored) in put {
            let json = entry::encode_answers(stored)
                .map_err(|error| failed(&self.path, error.to_string()))?;
            let value = entry::seal(table, key.as_bytes(), today, &json);
            writes.push(write(key, Some(value)));
        }
        writes.extend(forget.iter().map(|key| write(key, None)));
        self.write(writes)
    }
}

impl ContentStore for RedbStore {
    fn get_bytes(&self, kind: Kind, key: &[u8; 32]) -> Option<Vec<u8>> {
        self.read(kind.into(), key)
    }

    fn put_bytes(&self, kind: Kind, entries: &[([u8; 32], Vec<u8>)]) -> Result<(), OperatorError> {
        let (table, today) = (Table::from(kind), (self.options.today)());
        let writes = entries.iter().map(|(key, payload)| Write {
            table,
            key: *key,
            value: Some(entry::seal(table, key, today, payload)),
            once: !kind.is_replaced(),
        });
        self.write(writes.collect())
    }
}

/// How every process opens the file: one writes, any number read meanwhile.
pub(super) fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.set_concurrency_mode(ConcurrencyMode::SingleWriter);
    builder.set_cache_size(CACHE_BYTES);
    builder
}

pub(super) fn definition(table: Table) -> Definition {
    TableDefinition::new(table.name())
}

/// Runs what reads or writes the file; a panic of redb counts as damage.
///
/// redb does not check the pages that it reads, and may panic where they were altered from outside.
pub(super) fn guarded<T, E: Into<redb::Error>>(
    work: impl FnOnce() -> Result<T, E>,
) -> Result<T, redb::Error> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result.map_err(Into::into),
        Err(_) => Err(redb::Error::Corrupted(String::from("it cannot be read"))),
    }
}

/// Why a file cannot be opened, and what to do about it.
pub(super) fn refused(path: &Path, error: &redb::Error) -> OperatorError {
    let problem = match error {
        redb::Error::DatabaseAlreadyOpen | redb::Error::LockProtocolMismatch => String::from(
            "in use by another process; wait until it ends, use another file (--store OTHER), or, \
             for a run, none (--no-store)",
        ),
        redb::Error::Io(error) if error.kind() == ErrorKind::InvalidData => {
            format!("not a store ({error}); name another file (--store OTHER)")
        }
        error => explain(error),
    };
    failed(path, problem)
}

/// What went wrong with a file that is a store, and what to do about it.
pub(super) fn explain(error: &redb::Error) -> String {
    match error {
        redb::Error::Corrupted(problem) => format!(
            "damaged ({problem}); move the file away: everything in it can be computed again"
        ),
        error => format!("{error}; check free space and permissions"),
    }
}

pub(super) fn failed(path: &Path, problem: String) -> OperatorError {
    OperatorError::Store {
        path: path.display().to_string(),
        problem,
    }
}

/// Renames a file whose making was cut off by a crash: the database writes its first bytes last, so
/// where they are still zero nothing was ever put in it. It is kept as `NAME.unfinished`, for it may
/// be something else that begins so; one that somebody is making is left alone.
fn set_unfinished_aside(path: &Path) -> std::io::Result<()> {
    // What cannot be opened is told by the database, with its cause; what is absent is made by it.
    let Ok(mut file) = File::open(path) else {
        return Ok(());
    };
    if file.try_lock().is_err() {
        return Ok(());
    }
    let mut first = [0; 8];
    let mut read = 0;
    while read < first.len() {
        match file.read(&mut first[read..])? {
            0 => break,
            more => read += more,
        }
    }
    if read > 0 && first == [0; 8] {
        let mut aside = path.as_os_str().to_owned();
        aside.push(".unfinished");
        std::fs::rename(path, aside)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use redb::TableHandle;

    use super::*;
    use crate::infer::{Answer, UnitUsage};

    const TODAY: StoreOptions = StoreOptions {
        today: || 20_000,
        retention_days: None,
    };
    const KEY: [u8; 32] = [1; 32];

    fn stored() -> StoredAnswers {
        StoredAnswers {
            answers: vec![Answer::from_ppm(vec![700_000, 300_000], 990_000).unwrap()],
            cost: UnitUsage {
                prompt_tokens: 12,
                computed_tokens: 4,
                cached_tokens: 8,
                micros: 1_500,
            },
        }
    }

    fn home() -> (tempfile::TempDir, std::path::PathBuf) {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("facts.redb");
        (home, path)
    }

    #[test]
    fn a_file_keeps_what_was_put_and_survives_reopening() {
        let (_home, path) = home();
        let (key, other) = (FactKey::from_bytes(KEY), FactKey::from_bytes([2; 32]));
        let store = RedbStore::open(&path, TODAY).unwrap();
        assert_eq!(store.get(&key), None);
        store.put(&key, &stored()).unwrap();
        assert_eq!(store.get(&key), Some(stored()));
        let entries = [(KEY, b"one".to_vec()), ([2; 32], Vec::new())];
        store.put_bytes(Kind::Fact, &entries).unwrap();
        drop(store);
        let store = RedbStore::open(&path, TODAY).unwrap();
        assert_eq!(store.get(&key), Some(stored()));
        assert_eq!(store.get(&other), None);
        assert_eq!(store.get_bytes(Kind::Fact, &KEY), Some(b"one".to_vec()));
        assert_eq!(store.get_bytes(Kind::Fact, &[2; 32]), Some(Vec::new()));
        assert!(store.has(Kind::Fact, &KEY));
        assert!(!store.has(Kind::Node, &KEY), "kinds do not mix");
    }

    #[test]
    fn a_damaged_or_moved_value_is_a_miss_in_every_table_and_can_be_put_again() {
        let (_home, path) = home();
        let store = RedbStore::open(&path, TODAY).unwrap();
        let key = FactKey::from_bytes(KEY);
        let write = |table, value: &[u8]| {
            let (key, value, once) = (KEY, value.to_vec(), false);
            let write = Write {
                table,
                key,
                value: Some(value),
                once,
            };
            store.write(vec![write]).unwrap();
        };
        let json = entry::encode_answers(&stored()).unwrap();
        let good = entry::seal(Table::Answers, &KEY, 20_000, &json);
        write(Table::Answers, &good);
        assert_eq!(store.get(&key), Some(stored()));
        for bad in [
            &good[..40],
            &[],
            &entry::seal(Table::Answers, &[2; 32], 20_000, &json),
            &entry::seal(Table::Facts, &KEY, 20_000, &json),
        ] {
            write(Table::Answers, bad);
            assert_eq!(store.get(&key), None);
        }
        store.put(&key, &stored()).unwrap();
        assert_eq!(store.get(&key), Some(stored()));
        for (kind, other) in [(Kind::Fact, Table::Nodes), (Kind::Node, Table::Facts)] {
            let good = entry::seal(kind.into(), &KEY, 20_000, b"payload");
            write(kind.into(), &good);
            assert_eq!(store.get_bytes(kind, &KEY), Some(b"payload".to_vec()));
            for bad in [
                &good[..good.len() - 1],
                &entry::seal(other, &KEY, 20_000, b"payload"),
            ] {
                write(kind.into(), bad);
                assert!(!store.has(kind, &KEY));
            }
            let again = [(KEY, b"again".to_vec())];
            store.put_bytes(kind, &again).unwrap();
            assert_eq!(store.get_bytes(kind, &KEY), Some(b"again".to_vec()));
        }
    }

    #[test]
    fn content_is_written_once() {
        let (_home, path) = home();
        let store = RedbStore::open(&path, TODAY).unwrap();
        let memory = crate::store::MemoryStore::new();
        for store in [&store as &dyn crate::store::Store, &memory] {
            let put = |entries: &[(&[u8; 32], &str)]| {
                let entries: Vec<_> = entries
                    .iter()
                    .map(|(key, text)| (**key, text.as_bytes().to_vec()))
                    .collect();
                store.put_bytes(Kind::Node, &entries).unwrap();
            };
            put(&[(&KEY, "first"), (&KEY, "same call")]);
            put(&[(&KEY, "later")]);
            put(&[(&KEY, "later"), (&[2; 32], "new")]);
            put(&[]);
            let text = |key| store.get_bytes(Kind::Node, key);
            assert_eq!(text(&KEY), Some(b"first".to_vec()));
            assert_eq!(text(&[2; 32]), Some(b"new".to_vec()));
            assert_eq!(text(&[3; 32]), None);
        }
    }

    #[test]
    fn entries_past_the_retention_are_misses_and_are_replaced() {
        let (_home, path) = home();
        let key = FactKey::from_bytes(KEY);
        let open = |today, retention_days| {
            let options = StoreOptions {
                today,
                retention_days,
            };
            RedbStore::open(&path, options).unwrap()
        };
        let store = open(|| 100, None);
        store.put(&key, &stored()).unwrap();
        let old = [(KEY, b"old".to_vec())];
        store.put_bytes(Kind::Fact, &old).unwrap();
        drop(store);
        let store = open(|| 107, Some(7));
        assert_eq!(store.get(&key), Some(stored()));
        assert!(store.has(Kind::Fact, &KEY));
        drop(store);
        let store = open(|| 108, Some(7));
        assert_eq!(store.get(&key), None);
        assert!(!store.has(Kind::Fact, &KEY));
        store.put(&key, &stored()).unwrap();
        let new = [(KEY, b"new".to_vec())];
        store.put_bytes(Kind::Fact, &new).unwrap();
        assert_eq!(store.get(&key), Some(stored()));
        assert_eq!(store.get_bytes(Kind::Fact, &KEY), Some(b"new".to_vec()));
        drop(store);
        assert!(open(|| u32::MAX, None).has(Kind::Fact, &KEY));
    }

    #[test]
    fn the_table_of_earlier_versions_is_removed() {
        let (_home, path) = home();
        let database = Database::create(&path).unwrap();
        let transaction = database.begin_write().unwrap();
        transaction
            .open_table(ANSWERS_V1)
            .unwrap()
            .insert(KEY.as_slice(), b"old".as_slice())
            .unwrap();
        transaction.commit().unwrap();
        drop(database);
        let store = RedbStore::open(&path, TODAY).unwrap();
        assert_eq!(store.get(&FactKey::from_bytes(KEY)), None);
        let transaction = store.database.begin_read().unwrap();
        let mut names: Vec<String> = transaction
            .list_tables()
            .unwrap()
            .map(|table| table.name().to_owned())
            .collect();
        names.sort_unstable();
        let mut wanted = Table::ALL.map(Table::name);
        wanted.sort_unstable();
        assert_eq!(names, wanted);
    }

    #[test]
    fn a_file_in_use_or_of_another_kind_is_refused_with_path_and_cure() {
        let (home, path) = home();
        let store = RedbStore::open(&path, TODAY).unwrap();
        let message = RedbStore::open(&path, TODAY).unwrap_err().to_string();
        for part in ["facts.redb", "in use", "--store", "--no-store"] {
            assert!(message.contains(part), "{message}");
        }
        drop(store);
        RedbStore::open(&path, TODAY).unwrap();
        let notes = home.path().join("notes.txt");
        std::fs::write(&notes, "not a store").unwrap();
        let message = RedbStore::open(&notes, TODAY).unwrap_err().to_string();
        for part in ["notes.txt", "not a store", "--store"] {
            assert!(message.contains(part), "{message}");
        }
        assert_eq!(std::fs::read_to_string(&notes).unwrap(), "not a store");
    }
}
