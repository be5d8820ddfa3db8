//! A tracker of files: one JSON file an issue, `NAME.json`, in one directory.
//!
//! A change is made under a lock of the operating system: read, compared, replaced as a whole, on
//! disk. So a read tells for good whether a write happened once its process has ended. Reading back
//! opens the file anew. `.locks` and `.leases` beside the issues hold no content.

use std::fs::File;
use std::path::{Path, PathBuf};

use operator::effect::{
    Dispatch, EffectRequest, Effector, Observation, Order, Unreadable, sync_directory,
};
use operator::id::EffectKey;
use operator::run_directory::replace;

use super::issue::{Issue, Version, escape};

/// Issues in a directory.
#[derive(Debug)]
pub struct FileTracker {
    directory: PathBuf,
}

impl FileTracker {
    /// Opens a directory of issues.
    ///
    /// # Errors
    /// Where it is none, or its lock directory cannot be made.
    pub fn open(directory: &Path) -> std::io::Result<Self> {
        if !directory.is_dir() {
            return Err(std::io::Error::new(
                std::io::ErrorKind::NotADirectory,
                "is no directory of issues",
            ));
        }
        std::fs::create_dir_all(directory.join(".locks"))?;
        Ok(Self {
            directory: directory.to_owned(),
        })
    }

    /// Where leases on its issues are kept.
    pub fn leases(&self) -> PathBuf {
        self.directory.join(".leases")
    }

    fn path(&self, resource: &str) -> PathBuf {
        self.directory.join(format!("{}.json", escape(resource)))
    }

    fn read(&self, resource: &str) -> Result<Option<Issue>, String> {
        let path = self.path(resource);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(format!("{}: cannot read: {error}", path.display())),
        };
        serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|error| format!("{}: is no issue: {error}", path.display()))
    }

    fn lock(&self, resource: &str) -> Result<File, String> {
        let path = self.directory.join(".locks").join(escape(resource));
        let lock = File::create(&path);
        lock.and_then(|lock| lock.lock().map(|()| lock))
            .map_err(|error| format!("{}: cannot lock: {error}", path.display()))
    }

    /// Puts an issue in its place; when this returns it is on disk, under its name.
    fn write(&self, resource: &str, issue: &Issue) -> Result<(), String> {
        let path = self.path(resource);
        let told = |error: String| format!("{}: cannot write: {error}", path.display());
        let mut bytes =
            serde_json::to_vec_pretty(issue).map_err(|error| told(error.to_string()))?;
        bytes.push(b'\n');
        replace(&path, &bytes).map_err(|error| told(error.to_string()))?;
        sync_directory(&self.directory).map_err(|error| told(error.to_string()))
    }
}

impl Effector for FileTracker {
    fn repeatable(&self) -> bool {
        true
    }

    fn read_back(
        &self,
        request: &EffectRequest,
        key: &EffectKey,
    ) -> Result<Observation, Unreadable> {
        let issue = self.read(&request.resource).map_err(|reason| Unreadable {
            after_ms: None,
            reason,
        })?;
        Ok(Observation {
            version: issue.as_ref().map(|issue| issue.version.0.clone()),
            found: issue.and_then(|issue| issue.find(key)),
            read_from: self.path(&request.resource).display().to_string(),
        })
    }

    fn dispatch(&self, order: Order<'_>) -> Dispatch {
        let (request, key) = (order.request, order.key);
        let resource = &request.resource;
        let later = |reason: String| Dispatch::Later {
            after_ms: None,
            reason,
        };
        // Held until the issue is in its place; a process that ends lets go of it.
        let _lock = match self.lock(resource) {
            Ok(lock) => lock,
            Err(reason) => return later(reason),
        };
        let mut issue = match self.read(resource) {
            Ok(Some(issue)) => issue,
            Ok(None) => return Dispatch::Refused(format!("there is no issue {resource:?}")),
            Err(reason) => return later(reason),
        };
        if let Some(applied) = issue.applied.iter().find(|applied| applied.key == *key) {
            let same = applied.action == request.action
                && applied.set == request.set
                && applied.text == request.text;
            return match same {
                true => Dispatch::Accepted,
                false => Dispatch::KeyTaken(format!("key {key} was used for something else")),
            };
        }
        if order.fence < issue.fence {
            return later(format!(
                "the lease (number {}) was overtaken by number {}",
                order.fence, issue.fence
            ));
        }
        if issue.version.0 != order.version {
            return Dispatch::Moved(format!(
                "issue {resource:?} is at version {}, not {}",
                issue.version.0, order.version
            ));
        }
        let Some(next) = issue
            .version
            .0
            .parse::<u64>()
            .ok()
            .and_then(|n| n.checked_add(1))
        else {
            let version = &issue.version.0;
            return Dispatch::Refused(format!("version {version:?} of {resource:?} is no number"));
        };
        issue.apply(request, *key, Version(next.to_string()));
        issue.fence = order.fence;
        match self.write(resource, &issue) {
            Ok(()) => Dispatch::Accepted,
            Err(reason) => Dispatch::Unknown {
                after_ms: None,
                reason,
            },
        }
    }
}
