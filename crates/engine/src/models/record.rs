//! The record beside a model file (`<file>.b3`): which BLAKE3 it had when it was read whole.
//!
//! It saves hashing at each start, and is the pin of a model that the manifest doesn't pin.

use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

use super::ModelError;
use super::digest::Digest;

/// What a model file was when it was last hashed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// BLAKE3 of the whole file, 64 lower-case hex digits.
    pub blake3: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// Its modification time, nanoseconds since 1970; 0 where the file system has none, and then
    /// the file is hashed at each start.
    pub modified_ns: u64,
}

impl Record {
    /// Describes the file at `path`, whose digest is known.
    pub(super) fn of(path: &Path, digest: &Digest) -> Result<Self, ModelError> {
        let metadata = std::fs::metadata(path).map_err(ModelError::reading(path))?;
        Ok(Self {
            blake3: digest.blake3.clone(),
            bytes: digest.bytes,
            modified_ns: modified_ns(&metadata),
        })
    }

    /// Whether the file still looks as it did: same length, same modification time.
    pub(super) fn describes(&self, metadata: &Metadata) -> bool {
        self.modified_ns != 0
            && self.bytes == metadata.len()
            && self.modified_ns == modified_ns(metadata)
    }

    /// The record beside a model file; `None` when there is none.
    ///
    /// # Errors
    /// It is there and cannot be read.
    pub fn read(model: &Path) -> Result<Option<Self>, ModelError> {
        let path = record_path(model);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(ModelError::reading(&path)(error)),
        };
        match toml::from_str(&text) {
            Ok(record) => Ok(Some(record)),
            Err(error) => Err(ModelError::BadRecord {
                path,
                error: Box::new(error),
            }),
        }
    }

    /// Writes the record, all or nothing.
    pub(super) fn write(&self, model: &Path) -> Result<(), ModelError> {
        let path = record_path(model);
        let draft = path.with_added_extension("part");
        let text = format!(
            "blake3 = \"{}\"\nbytes = {}\nmodified_ns = {}\n",
            self.blake3, self.bytes, self.modified_ns
        );
        std::fs::write(&draft, text).map_err(ModelError::doing("write", &draft))?;
        std::fs::rename(&draft, &path).map_err(ModelError::doing("rename into place", &path))
    }
}

/// `<file>.b3` beside the file.
pub(super) fn record_path(model: &Path) -> PathBuf {
    model.with_added_extension("b3")
}

fn modified_ns(metadata: &Metadata) -> u64 {
    metadata
        .modified()
        .ok()
        .and_then(|time| time.duration_since(UNIX_EPOCH).ok())
        .and_then(|since| u64::try_from(since.as_nanos()).ok())
        .unwrap_or(0)
}
