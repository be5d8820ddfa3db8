//! Leases: one owner at a time for a resource, for a while, with a number that only grows.
//!
//! The lease is a file; a lock of the operating system guards the moment in which it is read and
//! replaced. Who crashed keeps the lease until it expires, unless the same owner comes back: an owner
//! is one journal, which only one process can hold. The fencing number tells a tracker that an owner
//! whose lease expired unnoticed comes too late. Must not read a clock: now is handed in.

use std::fs::File;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::OperatorError;
use crate::id::ContentHash;
use crate::run_directory::replace;

/// The leases that one owner takes in one directory.
#[derive(Debug, Clone)]
pub struct Leases {
    directory: PathBuf,
    owner: String,
    ttl_ms: u64,
}

/// A resource that is this owner's until the lease expires.
#[derive(Debug, PartialEq, Eq)]
pub struct Lease {
    /// The resource.
    pub resource: String,
    /// Higher than that of any lease of the resource before.
    pub fence: u64,
    /// When it ends, in milliseconds of the caller's clock.
    pub expires_ms: u64,
}

/// Somebody else has the resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Busy {
    /// Who.
    pub owner: String,
    /// Until when, unless it is given back or renewed.
    pub expires_ms: u64,
}

/// The content of a lease's file; kept after the lease so that the number never falls.
#[derive(Debug, Serialize, Deserialize)]
struct Row {
    resource: String,
    owner: Option<String>,
    fence: u64,
    expires_ms: u64,
}

impl Leases {
    /// Leases in a directory, which is made; all who change the same resources must name the same.
    ///
    /// # Errors
    /// `Io` where it cannot be made.
    pub fn new(directory: &Path, owner: &str, ttl_ms: u64) -> Result<Self, OperatorError> {
        std::fs::create_dir_all(directory).map_err(|source| io(directory, "make", source))?;
        Ok(Self {
            directory: directory.to_owned(),
            owner: owner.to_owned(),
            ttl_ms,
        })
    }

    /// Takes a resource that is free, expired, or this owner's from before a crash.
    ///
    /// # Errors
    /// `Io` and `FileInvalid` where the lease's file cannot be read or written.
    pub fn acquire(
        &self,
        resource: &str,
        now_ms: u64,
    ) -> Result<Result<Lease, Busy>, OperatorError> {
        self.locked(resource, |row| {
            match &row.owner {
                Some(owner) if *owner != self.owner && row.expires_ms > now_ms => {
                    return (
                        Err(Busy {
                            owner: owner.clone(),
                            expires_ms: row.expires_ms,
                        }),
                        false,
                    );
                }
                _ => {}
            }
            row.owner = Some(self.owner.clone());
            row.fence += 1;
            row.expires_ms = now_ms.saturating_add(self.ttl_ms);
            let lease = Lease {
                resource: resource.to_owned(),
                fence: row.fence,
                expires_ms: row.expires_ms,
            };
            (Ok(lease), true)
        })
    }

    /// Makes a lease last from now on; false where somebody else took the resource since.
    ///
    /// # Errors
    /// As [`Leases::acquire`].
    pub fn renew(&self, lease: &mut Lease, now_ms: u64) -> Result<bool, OperatorError> {
        let held = self.locked(&lease.resource, |row| {
            let mine = self.owns(row, lease.fence);
            if mine {
                row.expires_ms = now_ms.saturating_add(self.ttl_ms);
            }
            (mine.then_some(row.expires_ms), mine)
        })?;
        lease.expires_ms = held.unwrap_or(lease.expires_ms);
        Ok(held.is_some())
    }

    /// Gives a resource back; nothing where somebody else has it by now.
    ///
    /// # Errors
    /// As [`Leases::acquire`].
    pub fn release(&self, lease: Lease) -> Result<(), OperatorError> {
        self.locked(&lease.resource, |row| {
            let mine = self.owns(row, lease.fence);
            if mine {
                row.owner = None;
            }
            ((), mine)
        })
    }

    fn owns(&self, row: &Row, fence: u64) -> bool {
        row.owner.as_ref() == Some(&self.owner) && row.fence == fence
    }

    /// Reads a lease, changes it, and writes it where the change says so; nobody else does meanwhile.
    fn locked<T>(
        &self,
        resource: &str,
        change: impl FnOnce(&mut Row) -> (T, bool),
    ) -> Result<T, OperatorError> {
        let name = ContentHash::of_bytes(resource.as_bytes());
        let guard = self.directory.join(format!("{name}.lock"));
        let lock = File::create(&guard).map_err(|source| io(&guard, "open", source))?;
        lock.lock().map_err(|source| io(&guard, "lock", source))?;
        let path = self.directory.join(format!("{name}.lease"));
        let mut row = match std::fs::read(&path) {
            Ok(bytes) => {
                serde_json::from_slice(&bytes).map_err(|error| OperatorError::FileInvalid {
                    path: path.display().to_string(),
                    line: error.line() as u64,
                    problem: format!(
                        "is no lease ({error}); see that nobody works on {resource:?}, then remove it"
                    ),
                })?
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Row {
                resource: resource.to_owned(),
                owner: None,
                fence: 0,
                expires_ms: 0,
            },
            Err(source) => return Err(io(&path, "read", source)),
        };
        let (result, changed) = change(&mut row);
        if changed {
            let mut bytes =
                serde_json::to_vec(&row).map_err(|error| OperatorError::FileInvalid {
                    path: path.display().to_string(),
                    line: 0,
                    problem: error.to_string(),
                })?;
            bytes.push(b'\n');
            replace(&path, &bytes)?;
        }
        Ok(result)
    }
}

fn io(path: &Path, action: &'static str, source: std::io::Error) -> OperatorError {
    OperatorError::Io {
        path: path.display().to_string(),
        action,
        source,
    }
}
