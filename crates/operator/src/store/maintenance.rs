//! What a person does with a store's file: look at it, check it, remove from it.
//!
//! Looking and checking open the file for reading, also while another process writes it. A file
//! that a killed process left is recovered first, which needs the right to write.

use std::io::ErrorKind;
use std::path::Path;

use redb::{
    Database, DatabaseError, ReadOnlyDatabase, ReadableDatabase, ReadableTable, TableError,
};
use serde::Serialize;

use super::entry::{self, Table};
use super::redb::{ANSWERS_V1, builder, definition, explain, failed, guarded, refused};
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
        collect(path, &mut goes)?;
    }
    Ok(GcReport {
        dry_run: options.dry_run,
        removed: removed.to_vec(),
        file_bytes_before,
        file_bytes_after: file_bytes(path)?,
    })
}

/// Removes the entries for which `goes` holds, and compacts.
fn collect(
    path: &Path,
    goes: &mut impl FnMut(Table, &[u8; 32], &[u8]) -> bool,
) -> Result<(), OperatorError> {
    let mut database = guarded(|| builder().open(path)).map_err(|error| refused(path, &error))?;
    let remove = || -> Result<(), redb::Error> {
        let transaction = database.begin_write()?;
        for table in Table::ALL {
            let mut open = transaction.open_table(definition(table))?;
            open.retain(|key, value| !goes(table, key, value))?;
        }
        transaction.delete_table(ANSWERS_V1)?;
        transaction.commit()?;
        Ok(())
    };
    guarded(remove).map_err(|error| failed(path, explain(&error)))?;
    match guarded(|| database.compact()) {
        Ok(_) => Ok(()),
        Err(redb::Error::TransactionInProgress) => Err(failed(
            path,
            String::from(
                "the entries are removed, but another process reads the file, so its space is not \
                 given back; run this again when that process has ended",
            ),
        )),
        Err(error) => Err(failed(path, explain(&error))),
    }
}

/// Visits every entry, in table and key order, all as of one moment.
fn for_each(
    path: &Path,
    mut visit: impl FnMut(Table, &[u8; 32], &[u8]),
) -> Result<(), OperatorError> {
    let database = open_shared(path)?;
    let walk = || -> Result<(), redb::Error> {
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
    guarded(walk).map_err(|error| failed(path, explain(&error)))
}

/// Opens the file for reading, beside a process that writes it.
fn open_shared(path: &Path) -> Result<ReadOnlyDatabase, OperatorError> {
    file_bytes(path)?;
    let open = || match builder().open_read_only(path) {
        // Only a writer can recover what a killed process left; opening and closing does it.
        Err(DatabaseError::RepairAborted) => builder()
            .open(path)
            .and_then(Database::close)
            .and_then(|()| builder().open_read_only(path)),
        opened => opened,
    };
    guarded(open).map_err(|error| refused(path, &error))
}

fn file_bytes(path: &Path) -> Result<u64, OperatorError> {
    match std::fs::metadata(path) {
        Ok(metadata) => Ok(metadata.len()),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(failed(
            path,
            String::from("there is no such file; a run makes it, --store FILE names another"),
        )),
        Err(source) => Err(OperatorError::Io {
            path: path.display().to_string(),
            action: "read",
            source,
        }),
    }
}
