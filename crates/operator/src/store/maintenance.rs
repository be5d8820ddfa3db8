//! What a person does with a store's file: look at it, check it, remove from it.
//!
//! Looking and checking open the file for reading, also while another process writes it. A file
//! that a killed process left is recovered first, which needs the right to write.

use std::io::ErrorKind;
use std::path::Path;

use redb::{
    CompactionError, Database, DatabaseError, ReadOnlyDatabase, ReadableDatabase, ReadableTable,
    TableError,
};
use serde::Serialize;

use super::entry::{self, Table};
use super::redb::{builder, definition, refused};
use crate::error::OperatorError;
use crate::id::hex;

/// What one table holds, taken at its word: nothing is hashed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TableStats {
    /// The table's name.
    pub table: &'static str,
    /// Number of entries.
    pub entries: u64,
    /// Bytes of their payloads, without keys, checksums and days.
    pub payload_bytes: u64,
    /// Day of the oldest entry, in days since the Unix epoch.
    pub oldest_day: Option<u32>,
    /// Day of the newest entry.
    pub newest_day: Option<u32>,
}

/// What a store holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StoreStats {
    /// Size of the file.
    pub file_bytes: u64,
    /// Every table, in a fixed order.
    pub tables: Vec<TableStats>,
}

/// One entry that is not what was written; reading it is a miss.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Damage {
    /// The table.
    pub table: &'static str,
    /// The entry's key, in hex.
    pub key: String,
    /// What is wrong with it.
    pub problem: String,
}

/// The outcome of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VerifyReport {
    /// Number of entries read and hashed.
    pub entries: u64,
    /// The damaged ones among them, in table and key order.
    pub damaged: Vec<Damage>,
}

/// What to remove.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GcOptions {
    /// Remove undamaged entries older than so many days.
    pub older_than_days: Option<u32>,
    /// Days since the Unix epoch by the caller's clock.
    pub today: u32,
    /// Remove damaged entries.
    pub damaged: bool,
    /// Count only; change nothing.
    pub dry_run: bool,
}

/// What was removed from one table, or would be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Removed {
    /// The table.
    pub table: &'static str,
    /// Entries that were too old.
    pub expired: u64,
    /// Entries that were damaged.
    pub damaged: u64,
    /// Bytes of their values.
    pub bytes: u64,
}

/// The outcome of a removal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GcReport {
    /// Whether nothing was changed.
    pub dry_run: bool,
    /// Every table, in a fixed order.
    pub removed: Vec<Removed>,
    /// Size of the file before.
    pub file_bytes_before: u64,
    /// Size of the file now.
    pub file_bytes_after: u64,
}

impl GcReport {
    /// Bytes by which the file has shrunk.
    pub fn bytes_freed(&self) -> u64 {
        self.file_bytes_before.saturating_sub(self.file_bytes_after)
    }
}

/// Counts what a store holds.
///
/// # Errors
/// `Store` when the file is missing, is no store, cannot be read, or is held by a process that
/// does not share it.
pub fn stats(path: &Path) -> Result<StoreStats, OperatorError> {
    let file_bytes = file_bytes(path)?;
    let mut tables = Table::ALL.map(|table| TableStats {
        table: table.name(),
        entries: 0,
        payload_bytes: 0,
        oldest_day: None,
        newest_day: None,
    });
    for_each(path, |table, _, value| {
        let stats = &mut tables[table as usize];
        stats.entries += 1;
        if let Some(entry) = entry::peek(value) {
            let day = entry.day;
            stats.payload_bytes += entry.payload.len() as u64;
            stats.oldest_day = Some(stats.oldest_day.map_or(day, |oldest| oldest.min(day)));
            stats.newest_day = Some(stats.newest_day.map_or(day, |newest| newest.max(day)));
        }
    })?;
    Ok(StoreStats {
        file_bytes,
        tables: tables.to_vec(),
    })
}

/// Reads and hashes every entry.
///
/// # Errors
/// As [`stats`]; also when the file is damaged where it does not lie in one entry.
pub fn verify(path: &Path) -> Result<VerifyReport, OperatorError> {
    let mut report = VerifyReport {
        entries: 0,
        damaged: Vec::new(),
    };
    for_each(path, |table, key, value| {
        report.entries += 1;
        if let Err(flaw) = entry::check(table, key, value) {
            report.damaged.push(Damage {
                table: table.name(),
                key: hex(key),
                problem: flaw.to_string(),
            });
        }
    })?;
    Ok(report)
}

/// Removes entries and gives their space back to the file system.
///
/// # Errors
/// As [`stats`]; also when another process has the file open for writing, or is in the middle of
/// reading it when the space is to be given back: the entries are removed then.
pub fn gc(path: &Path, options: GcOptions) -> Result<GcReport, OperatorError> {
    let file_bytes_before = file_bytes(path)?;
    let mut removed = Table::ALL.map(|table| Removed {
        table: table.name(),
        expired: 0,
        damaged: 0,
        bytes: 0,
    });
    let mut goes = |table, key: &[u8; 32], value: &[u8]| {
        let removed = &mut removed[table as usize];
        let (goes, counter) = match (entry::check(table, key, value), options.older_than_days) {
            (Err(_), _) => (options.damaged, &mut removed.damaged),
            (Ok(entry), Some(days)) => (
                entry::is_expired(entry.day, options.today, days),
                &mut removed.expired,
            ),
            (Ok(_), None) => return false,
        };
        if goes {
            *counter += 1;
            removed.bytes += value.len() as u64;
        }
        goes
    };
    if options.dry_run {
        for_each(path, |table, key, value| {
            goes(table, key, value);
        })?;
    } else {
        let mut database = builder()
            .open(path)
            .map_err(|error| refused(path, &error))?;
        remove(&database, &mut goes).map_err(|error| unreadable(path, &error))?;
        database.compact().map_err(|error| match error {
            CompactionError::TransactionInProgress => failed(
                path,
                "the entries are removed, but another process reads the file, so its space is not \
                 given back; run this again when that process has ended",
            ),
            error => unreadable(path, &error.into()),
        })?;
    }
    Ok(GcReport {
        dry_run: options.dry_run,
        removed: removed.to_vec(),
        file_bytes_before,
        file_bytes_after: file_bytes(path)?,
    })
}

/// Removes, in one transaction, the entries for which `goes` holds.
fn remove(
    database: &Database,
    goes: &mut impl FnMut(Table, &[u8; 32], &[u8]) -> bool,
) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    for table in Table::ALL {
        let mut open = transaction.open_table(definition(table))?;
        open.retain(|key, value| !goes(table, key, value))?;
    }
    transaction.commit()?;
    Ok(())
}

/// Visits every entry, in table and key order, as one process saw them at one time.
fn for_each(
    path: &Path,
    mut visit: impl FnMut(Table, &[u8; 32], &[u8]),
) -> Result<(), OperatorError> {
    let database = open_shared(path)?;
    let mut walk = || -> Result<(), redb::Error> {
        let transaction = database.begin_read()?;
        for table in Table::ALL {
            let open = match transaction.open_table(definition(table)) {
                Err(TableError::TableDoesNotExist(_)) => continue,
                open => open?,
            };
            for entry in open.iter()? {
                let (key, value) = entry?;
                visit(table, key.value(), value.value());
            }
        }
        Ok(())
    };
    walk().map_err(|error| unreadable(path, &error))
}

/// Opens the file for reading, beside a process that writes it.
fn open_shared(path: &Path) -> Result<ReadOnlyDatabase, OperatorError> {
    file_bytes(path)?;
    match builder().open_read_only(path) {
        // Only a writer can recover what a killed process left; opening and closing does it.
        Err(DatabaseError::RepairAborted) => builder()
            .open(path)
            .and_then(Database::close)
            .and_then(|()| builder().open_read_only(path)),
        opened => opened,
    }
    .map_err(|error| refused(path, &error))
}

fn file_bytes(path: &Path) -> Result<u64, OperatorError> {
    match std::fs::metadata(path) {
        Ok(metadata) => Ok(metadata.len()),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(failed(
            path,
            "there is no such file; a run makes it, --store FILE names another",
        )),
        Err(source) => Err(OperatorError::Io {
            path: path.display().to_string(),
            action: "read",
            source,
        }),
    }
}

fn unreadable(path: &Path, error: &redb::Error) -> OperatorError {
    failed(
        path,
        &format!("{error}; if this stays, move the file away: a run makes a new one"),
    )
}

fn failed(path: &Path, problem: &str) -> OperatorError {
    OperatorError::Store {
        path: path.display().to_string(),
        problem: problem.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::id::FactKey;
    use crate::infer::{Answer, UnitUsage};
    use crate::store::{ContentStore, FactStore, Kind, RedbStore, StoreOptions, StoredAnswers};

    const GC: GcOptions = GcOptions {
        older_than_days: None,
        today: 120,
        damaged: true,
        dry_run: false,
    };

    fn open(path: &Path, today: fn() -> u32) -> RedbStore {
        let options = StoreOptions {
            today,
            retention_days: None,
        };
        RedbStore::open(path, options).unwrap()
    }

    fn answers() -> StoredAnswers {
        StoredAnswers {
            answers: vec![Answer::from_ppm(vec![700_000, 300_000], 990_000).unwrap()],
            cost: UnitUsage::default(),
        }
    }

    fn fact(byte: u8) -> Vec<u8> {
        [b"fact number ".as_slice(), &[byte; 4_000]].concat()
    }

    /// Answers 1 to 9 and fact 1 on day 100, facts 2 to 199 on day 110.
    fn filled() -> (tempfile::TempDir, PathBuf) {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("facts.redb");
        let store = open(&path, || 100);
        for byte in 1..10 {
            store
                .put(&FactKey::from_bytes([byte; 32]), &answers())
                .unwrap();
        }
        store.put_bytes(Kind::Fact, &[([1; 32], fact(1))]).unwrap();
        drop(store);
        let later: Vec<_> = (2..200).map(|byte| ([byte; 32], fact(byte))).collect();
        open(&path, || 110).put_bytes(Kind::Fact, &later).unwrap();
        (home, path)
    }

    /// Flips one bit of the file at the only place where these bytes lie.
    fn flip(path: &Path, bytes: &[u8]) {
        let mut file = std::fs::read(path).unwrap();
        let places: Vec<usize> = (0..file.len() - bytes.len())
            .filter(|&at| file[at..].starts_with(bytes))
            .collect();
        assert_eq!(places.len(), 1);
        file[places[0] + bytes.len() - 1] ^= 1;
        std::fs::write(path, file).unwrap();
    }

    #[test]
    fn stats_count_entries_payload_and_days() {
        let (_home, path) = filled();
        let found = stats(&path).unwrap();
        let json = entry::encode_answers(&answers()).unwrap().len() as u64;
        let table = |table: Table, entries, payload_bytes, oldest_day, newest_day| TableStats {
            table: table.name(),
            entries,
            payload_bytes,
            oldest_day,
            newest_day,
        };
        assert_eq!(
            found.tables,
            [
                table(Table::Answers, 9, 9 * json, Some(100), Some(100)),
                table(Table::Facts, 199, 199 * 4_012, Some(100), Some(110)),
                table(Table::Nodes, 0, 0, None, None),
            ]
        );
        assert_eq!(found.file_bytes, std::fs::metadata(&path).unwrap().len());
    }

    #[test]
    fn a_flipped_bit_is_found_missed_and_removed() {
        let (_home, path) = filled();
        let sound = verify(&path).unwrap();
        assert_eq!((sound.entries, sound.damaged.len()), (208, 0));
        flip(&path, &fact(77));
        let found = verify(&path).unwrap();
        assert_eq!(found.entries, 208);
        let damage = &found.damaged[0];
        assert_eq!((found.damaged.len(), damage.table), (1, "facts v1"));
        assert_eq!(damage.key, hex(&[77; 32]));
        assert!(damage.problem.contains("checksum"), "{}", damage.problem);
        let store = open(&path, || 120);
        assert!(!store.has(Kind::Fact, &[77; 32]));
        assert!(store.has(Kind::Fact, &[78; 32]));
        drop(store);
        let spared = GcOptions {
            damaged: false,
            older_than_days: Some(1_000),
            ..GC
        };
        assert_eq!(gc(&path, spared).unwrap().removed[1].damaged, 0);
        assert_eq!(verify(&path).unwrap(), found);
        let report = gc(&path, GC).unwrap();
        assert_eq!(
            (report.removed[1].damaged, report.removed[1].expired),
            (1, 0)
        );
        let clean = verify(&path).unwrap();
        assert_eq!((clean.entries, clean.damaged.len()), (207, 0));
    }

    #[test]
    fn collection_removes_by_age_and_shrinks_the_file() {
        let (_home, path) = filled();
        let options = GcOptions {
            older_than_days: Some(10),
            ..GC
        };
        let before = std::fs::read(&path).unwrap();
        let dry = gc(
            &path,
            GcOptions {
                dry_run: true,
                ..options
            },
        )
        .unwrap();
        let expired = |report: &GcReport| -> Vec<u64> {
            report.removed.iter().map(|table| table.expired).collect()
        };
        assert_eq!(expired(&dry), [9, 1, 0]);
        assert_eq!(dry.bytes_freed(), 0);
        assert!(dry.removed[1].bytes > 4_012);
        assert!(
            std::fs::read(&path).unwrap() == before,
            "a dry run changes nothing"
        );

        let report = gc(&path, options).unwrap();
        assert_eq!(report.removed, dry.removed);
        assert_eq!(verify(&path).unwrap().entries, 198);
        assert_eq!(expired(&gc(&path, options).unwrap()), [0, 0, 0]);

        let all = GcOptions {
            older_than_days: Some(9),
            ..GC
        };
        let report = gc(&path, all).unwrap();
        assert_eq!(expired(&report), [0, 198, 0]);
        assert!(report.bytes_freed() > 198 * 4_012, "{report:?}");
        let size = std::fs::metadata(&path).unwrap().len();
        assert_eq!(report.file_bytes_after, size);
        assert_eq!(verify(&path).unwrap().entries, 0);
    }

    #[test]
    fn readers_share_the_file_with_its_writer_and_collection_does_not() {
        let (_home, path) = filled();
        let store = open(&path, || 120);
        assert_eq!(stats(&path).unwrap().tables[0].entries, 9);
        store
            .put(&FactKey::from_bytes([99; 32]), &answers())
            .unwrap();
        assert_eq!(stats(&path).unwrap().tables[0].entries, 10);
        assert_eq!(verify(&path).unwrap().entries, 209);
        let dry = GcOptions {
            dry_run: true,
            ..GC
        };
        assert_eq!(gc(&path, dry).unwrap().bytes_freed(), 0);
        let message = gc(&path, GC).unwrap_err().to_string();
        assert!(message.contains("facts.redb: in use"), "{message}");
        drop(store);
        gc(&path, GC).unwrap();
    }

    #[test]
    fn space_that_a_reader_holds_back_is_named() {
        let (_home, path) = filled();
        let reader = open_shared(&path).unwrap();
        let reading = reader.begin_read().unwrap();
        let all = GcOptions {
            older_than_days: Some(0),
            ..GC
        };
        let message = gc(&path, all).unwrap_err().to_string();
        assert!(message.contains("another process reads"), "{message}");
        drop((reading, reader));
        assert_eq!(verify(&path).unwrap().entries, 0, "they are removed");
        assert!(gc(&path, all).unwrap().bytes_freed() > 198 * 4_012);
    }

    #[test]
    fn a_missing_or_foreign_file_is_named_and_none_is_made() {
        let home = tempfile::tempdir().unwrap();
        let gone = home.path().join("gone.redb");
        let notes = home.path().join("notes.txt");
        std::fs::write(&notes, "not a store").unwrap();
        for (path, part) in [(&gone, "no such file"), (&notes, "not a store")] {
            let name = path.file_name().unwrap().to_str().unwrap();
            for message in [
                stats(path).unwrap_err().to_string(),
                verify(path).unwrap_err().to_string(),
                gc(path, GC).unwrap_err().to_string(),
                gc(
                    path,
                    GcOptions {
                        dry_run: true,
                        ..GC
                    },
                )
                .unwrap_err()
                .to_string(),
            ] {
                assert!(
                    message.contains(name) && message.contains(part),
                    "{message}"
                );
            }
        }
        assert!(!gone.exists());
        assert_eq!(std::fs::read(&notes).unwrap(), b"not a store");
    }
}
