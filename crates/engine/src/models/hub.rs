//! The model hub as a source, through hf-hub: its cache on this machine, and its download.
//!
//! Whether a file is the right one is decided by the caller; this file only brings it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use hf_hub::api::Progress;
use hf_hub::api::sync::{ApiBuilder, ApiError};
use hf_hub::{Cache, Repo, RepoType};

use super::{Environment, PullEvent, PullReporter, SourceError};

/// How often a download is looked at.
const POLL: Duration = Duration::from_millis(100);

/// One file of one repository at one commit.
#[derive(Debug, Clone)]
pub(super) struct HubFile<'a> {
    pub(super) repo: &'a str,
    pub(super) revision: &'a str,
    pub(super) file: &'a str,
}

impl HubFile<'_> {
    fn repo(&self) -> Repo {
        Repo::with_revision(
            self.repo.to_owned(),
            RepoType::Model,
            self.revision.to_owned(),
        )
    }

    /// The file in the hub's cache, if an earlier download by any hub client left it there.
    pub(super) fn cached(&self, env: &Environment) -> Option<PathBuf> {
        let cache = Cache::new(env.hub_cache.clone()).repo(self.repo());
        // hf-hub finds a commit only through a `refs/<commit>` file, which the Python client does
        // not write; the snapshot of that commit is the same file.
        cache.get(self.file).or_else(|| {
            let path = cache.pointer_path(self.revision).join(self.file);
            path.is_file().then_some(path)
        })
    }

    /// Downloads the file into the hub's cache, going on from an interrupted download.
    ///
    /// Returns the path in the cache. The hub's client has no time limits of its own, so it runs on
    /// a thread that is left behind when it stays silent for longer than the environment allows.
    pub(super) fn download(
        &self,
        env: &Environment,
        reporter: &mut dyn PullReporter,
    ) -> Result<PathBuf, SourceError> {
        let meter = Arc::new(Meter::default());
        let (sender, receiver) = mpsc::channel();
        let task = {
            let (env, repo, meter) = (env.clone(), self.repo(), Arc::clone(&meter));
            let file = self.file.to_owned();
            move || {
                // The receiver is gone when patience ran out: nobody is left to tell.
                let _ = sender.send(download_blocking(&env, repo, &file, Tap(meter)));
            }
        };
        std::thread::spawn(task);

        let endpoint = || env.hub_endpoint.clone();
        let (mut seen, mut quiet) = (0, Duration::ZERO);
        loop {
            match receiver.recv_timeout(POLL) {
                Ok(result) => {
                    return result.map_err(|error| SourceError::Hub {
                        endpoint: endpoint(),
                        error: Box::new(error),
                    });
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(SourceError::HubStopped {
                        endpoint: endpoint(),
                    });
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            let beats = meter.beats.load(Ordering::Relaxed);
            quiet = if beats == seen {
                quiet + POLL
            } else {
                Duration::ZERO
            };
            seen = beats;
            let (done, total) = meter.read();
            // A connection that has delivered may pause for longer than one that has not answered.
            let limit = if beats == 0 {
                env.hub_patience
            } else {
                env.hub_patience * 3
            };
            if quiet >= limit {
                let seconds = limit.as_secs();
                return Err(SourceError::HubSilent {
                    endpoint: endpoint(),
                    seconds,
                    received: done,
                });
            }
            if total > 0 {
                reporter.report(PullEvent::Downloading {
                    what: self.file,
                    part: 1,
                    parts: 1,
                    done,
                    total: Some(total),
                });
            }
        }
    }
}

fn download_blocking(
    env: &Environment,
    repo: Repo,
    file: &str,
    progress: Tap,
) -> Result<PathBuf, ApiError> {
    // Retries stay 0: hf-hub resumes a retried append at the wrong offset when nothing was written
    // in between, and a new pull resumes anyway.
    let mut builder = ApiBuilder::from_cache(Cache::new(env.hub_cache.clone()))
        .with_endpoint(env.hub_endpoint.clone())
        .with_retries(0)
        .with_progress(false);
    if let Some(token) = &env.hub_token {
        builder = builder.with_token(Some(token.clone()));
    }
    builder
        .build()?
        .repo(repo)
        .download_with_progress(file, progress)
}

/// How far a download has come, shared between its thread and the one that reports.
#[derive(Debug, Default)]
struct Meter {
    done: AtomicU64,
    total: AtomicU64,
    /// Counts every sign of life, so that silence can be told from a slow start.
    beats: AtomicU64,
}

impl Meter {
    /// Bytes done and total; the total is 0 until the hub has answered.
    fn read(&self) -> (u64, u64) {
        (
            self.done.load(Ordering::Relaxed),
            self.total.load(Ordering::Relaxed),
        )
    }
}

/// The download's end of a [`Meter`].
struct Tap(Arc<Meter>);

impl Progress for Tap {
    fn init(&mut self, size: usize, _filename: &str) {
        self.0.total.store(size as u64, Ordering::Relaxed);
        self.0.done.store(0, Ordering::Relaxed);
        self.0.beats.fetch_add(1, Ordering::Relaxed);
    }

    fn update(&mut self, size: usize) {
        self.0.done.fetch_add(size as u64, Ordering::Relaxed);
        self.0.beats.fetch_add(1, Ordering::Relaxed);
    }

    fn finish(&mut self) {}
}
