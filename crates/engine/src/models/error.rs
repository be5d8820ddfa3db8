//! What can go wrong with models: for a whole request, and for one source of one model.
//!
//! Each message names the file, model or place concerned and what to do about it.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

/// Why a model could not be had.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The manifest's text is not one: TOML or an unknown key (the parser names line and key).
    #[error("model manifest: {0}")]
    ManifestSyntax(#[from] Box<toml::de::Error>),

    /// A value in the manifest is not acceptable.
    #[error("model manifest: model `{model}`: {field} is `{value}`, want {want}")]
    ManifestValue {
        /// Name of the model, as written.
        model: String,
        /// The offending key.
        field: &'static str,
        /// What it holds.
        value: String,
        /// What it may hold.
        want: &'static str,
    },

    /// No such model.
    #[error(
        "no model named `{name}`; {}; `--model` also takes a path to a .gguf file",
        list_names(near, known)
    )]
    UnknownModel {
        /// The name asked for.
        name: String,
        /// Names of the manifest that look like it.
        near: Vec<String>,
        /// All names of the manifest.
        known: Vec<String>,
    },

    /// Neither the home directory nor the variable that replaces it is known.
    #[error("cannot tell the home directory: set HOME, or {variable}")]
    NoHome {
        /// The variable that makes the home directory unnecessary.
        variable: &'static str,
    },

    /// There is no such file.
    #[error(
        "{} is not there: check the path, or fetch a model of the manifest with `engine pull NAME`",
        path.display()
    )]
    Missing {
        /// The file looked for.
        path: PathBuf,
    },

    /// A file is present under a model's name and is not that model.
    #[error(
        "{} is not the model `{name}`: {mismatch}; fetch it again with `engine pull {name}`",
        path.display()
    )]
    Corrupt {
        /// The model it should be.
        name: String,
        /// The file.
        path: PathBuf,
        /// How it differs.
        mismatch: Mismatch,
    },

    /// The record beside a model file cannot be read as one.
    #[error(
        "{} is not a model record ({error}): delete it and run the command again",
        path.display()
    )]
    BadRecord {
        /// The record's path.
        path: PathBuf,
        /// What the parser said.
        error: Box<toml::de::Error>,
    },

    /// Every source was tried, none gave the model.
    #[error("{}", list_failures(name, sources, cure))]
    AllSourcesFailed {
        /// The model.
        name: String,
        /// Each source with its reason, in the order tried.
        sources: Vec<FailedSource>,
        /// Where a file put by hand would be found.
        cure: PathBuf,
    },

    /// The file system refused.
    #[error("cannot {action} {}: {error}", path.display())]
    Io {
        /// What was being done.
        action: &'static str,
        /// To what.
        path: PathBuf,
        /// What the system said.
        #[source]
        error: io::Error,
    },
}

impl ModelError {
    /// Wraps an error met while reading `path`.
    pub(super) fn reading(path: &Path) -> impl FnOnce(io::Error) -> Self {
        Self::doing("read", path)
    }

    /// Wraps an error met while doing `action` to `path`.
    pub(super) fn doing(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |error| Self::Io {
            action,
            path,
            error,
        }
    }
}

/// Two values that should have been equal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: expected {expected}, found {actual}")]
pub struct Mismatch {
    /// What was compared.
    pub what: &'static str,
    /// What it should have been.
    pub expected: String,
    /// What it was.
    pub actual: String,
}

impl Mismatch {
    /// An error unless both values are the same.
    pub(super) fn unless_equal(
        what: &'static str,
        expected: &str,
        actual: &str,
    ) -> Result<(), Self> {
        if expected == actual {
            return Ok(());
        }
        Err(Self {
            what,
            expected: expected.to_owned(),
            actual: actual.to_owned(),
        })
    }
}

/// One source that was tried in vain.
#[derive(Debug)]
pub struct FailedSource {
    /// The source in words, e.g. the hub's repository and revision.
    pub source: String,
    /// Why it gave nothing.
    pub reason: SourceError,
}

/// Why one source did not give the model. Each is one line.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The caller asked for no network.
    #[error("not asked: offline was requested and {what} is not on this machine")]
    Offline {
        /// What would have been fetched.
        what: String,
    },

    /// The user's environment keeps the hub out.
    #[error(
        "not asked: HF_HUB_OFFLINE is set and the hub's cache {} has no such file",
        cache.display()
    )]
    HubOffline {
        /// The cache looked into.
        cache: PathBuf,
    },

    /// The hub, or something on the way to it, said no.
    #[error("{endpoint}: {error}")]
    Hub {
        /// Base URL asked.
        endpoint: String,
        /// What the hub's client said.
        error: Box<hf_hub::api::sync::ApiError>,
    },

    /// Nothing came for too long.
    #[error("{endpoint}: no data for {seconds} s after {received} bytes")]
    HubSilent {
        /// Base URL asked.
        endpoint: String,
        /// How long was waited.
        seconds: u64,
        /// What had come by then.
        received: u64,
    },

    /// The download ended without a result.
    #[error("{endpoint}: the download stopped unexpectedly")]
    HubStopped {
        /// Base URL asked.
        endpoint: String,
    },

    /// The Python that should run pip did not start.
    #[error("cannot run `{python} -m pip`: {error}; install Python with pip or set ENGINE_PYTHON")]
    Python {
        /// The program.
        python: String,
        /// What the system said.
        error: io::Error,
    },

    /// pip ran and failed.
    #[error("pip, {package}=={version}: {status}: {line}")]
    Pip {
        /// Package asked for.
        package: String,
        /// Its version.
        version: String,
        /// How pip ended.
        status: ExitStatus,
        /// The last line it said.
        line: String,
    },

    /// pip succeeded and left no single wheel.
    #[error("pip, {package}=={version}: left {found} wheels, want 1")]
    Wheels {
        /// Package asked for.
        package: String,
        /// Its version.
        version: String,
        /// Wheels found.
        found: usize,
    },

    /// A wheel does not hold what the manifest says.
    #[error("{}: member `{member}`: {error}", wheel.display())]
    Member {
        /// The wheel.
        wheel: PathBuf,
        /// The member wanted.
        member: String,
        /// What the zip reader said.
        error: zip::result::ZipError,
    },

    /// The bytes are not the model's.
    #[error("refused, {0}")]
    Refused(#[from] Mismatch),

    /// The file system refused.
    #[error("cannot {action} {}: {error}", path.display())]
    Io {
        /// What was being done.
        action: &'static str,
        /// To what.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
}

impl SourceError {
    /// Wraps an error met while doing `action` to `path`.
    pub(super) fn doing(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |error| Self::Io {
            action,
            path,
            error,
        }
    }
}

fn list_names(near: &[String], known: &[String]) -> String {
    if near.is_empty() {
        format!("the manifest has {}", known.join(", "))
    } else {
        format!("did you mean {}?", near.join(" or "))
    }
}

fn list_failures(name: &str, sources: &[FailedSource], cure: &Path) -> String {
    let mut text = format!("no source gave the model `{name}`:");
    for failed in sources {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n  {}: {}", failed.source, failed.reason);
    }
    let _ = write!(
        text,
        "\nrun `engine pull {name}` again when the network is there (parts already fetched are \
         kept), point HF_HOME at a hub cache that has it, put the file at {}, or give \
         `--model PATH`",
        cure.display()
    );
    text
}
