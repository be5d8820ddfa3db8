//! Files that are replaced as a whole or not at all, hashed on the way, never whole in memory.
//!
//! Must not know what is in them.

use std::fs::File;
use std::io::{BufWriter, Read as _, Write as _};
use std::path::Path;

use super::{ManifestFile, io};
use crate::error::OperatorError;
use crate::id::ContentHash;

/// A file on its way to its place.
pub(super) struct Draft<'a> {
    file: BufWriter<File>,
    hasher: blake3::Hasher,
    bytes: u64,
    path: &'a Path,
}

impl Draft<'_> {
    /// Writes on.
    ///
    /// # Errors
    /// `Io` when it cannot be written.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), OperatorError> {
        self.hasher.update(bytes);
        self.bytes += bytes.len() as u64;
        self.file
            .write_all(bytes)
            .map_err(|source| io(self.path, "write", source))
    }
}

/// Writes a file beside its place and moves it there, so that a reader sees old or new, never half.
///
/// # Errors
/// `Io` when it cannot be written or moved.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), OperatorError> {
    replace_with(path, |file| file.write(bytes)).map(|_| ())
}

/// As [`replace`], for content that is made as it is written; tells the file's hash and size.
///
/// # Errors
/// `Io` when it cannot be written or moved; what `write` returns.
pub(super) fn replace_with(
    path: &Path,
    write: impl FnOnce(&mut Draft<'_>) -> Result<(), OperatorError>,
) -> Result<ManifestFile, OperatorError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = path.with_file_name(format!(".{name}.draft"));
    let file = File::create(&beside).map_err(|source| io(&beside, "write", source))?;
    let mut draft = Draft {
        file: BufWriter::new(file),
        hasher: blake3::Hasher::new(),
        bytes: 0,
        path: &beside,
    };
    write(&mut draft)?;
    let (hash, bytes) = (*draft.hasher.finalize().as_bytes(), draft.bytes);
    draft
        .file
        .into_inner()
        .map_err(std::io::IntoInnerError::into_error)
        .and_then(|file| file.sync_all())
        .map_err(|source| io(&beside, "write", source))?;
    std::fs::rename(&beside, path).map_err(|source| io(path, "rename", source))?;
    Ok(ManifestFile {
        name: name.into_owned(),
        hash: ContentHash::from_bytes(hash),
        bytes,
    })
}

/// The hash and size of a file that is there.
pub(super) fn hash_file(path: &Path) -> std::io::Result<(ContentHash, u64)> {
    let mut file = File::open(path)?;
    let mut hasher = blake3::Hasher::new();
    let (mut piece, mut bytes) = (vec![0; 64 << 10], 0);
    loop {
        match file.read(&mut piece)? {
            0 => break,
            read => {
                hasher.update(&piece[..read]);
                bytes += read as u64;
            }
        }
    }
    let hash = ContentHash::from_bytes(*hasher.finalize().as_bytes());
    Ok((hash, bytes))
}

/// As it is listed in a manifest.
///
/// # Errors
/// `Io` when it cannot be read.
pub(super) fn list_file(path: &Path) -> Result<ManifestFile, OperatorError> {
    let (hash, bytes) = hash_file(path).map_err(|source| io(path, "read", source))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    Ok(ManifestFile {
        name: name.into_owned(),
        hash,
        bytes,
    })
}
