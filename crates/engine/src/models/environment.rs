//! The surroundings that decide where models lie and how they are fetched, read once.
//!
//! The only place in this module that reads environment variables.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use super::{ModelEntry, ModelError};

/// Directories, endpoints and programs that finding and fetching models depends on.
///
/// Not `Debug`: it may hold the user's hub token, which must not reach a log.
#[derive(Clone)]
pub struct Environment {
    /// Where models are kept: `ENGINE_MODELS`, else `$XDG_CACHE_HOME/engine/models`, else
    /// `~/.cache/engine/models`.
    pub models_dir: PathBuf,
    /// What the engine can make again, such as remembered answers: `$XDG_CACHE_HOME/engine`, else
    /// `~/.cache/engine`.
    pub cache_dir: PathBuf,
    /// The hub's own cache: `$HF_HOME/hub`, else `~/.cache/huggingface/hub`.
    pub hub_cache: PathBuf,
    /// Base URL of the hub, without a closing slash: `HF_ENDPOINT`, else the public hub.
    pub hub_endpoint: String,
    /// Access token: `HF_TOKEN`, else what the hub's client finds in its token file.
    pub hub_token: Option<String>,
    /// `HF_HUB_OFFLINE` is 1, on, yes or true: the hub's cache is read, the hub is not asked.
    pub hub_offline: bool,
    /// How long the hub may stay silent before it counts as out of reach.
    pub hub_patience: Duration,
    /// The Python whose `-m pip` fetches packages: `ENGINE_PYTHON`, else `python3`.
    pub python: OsString,
}

impl Environment {
    /// Reads the process's environment.
    ///
    /// # Errors
    /// Neither `HOME` nor the variables that stand in for it are set.
    pub fn from_process() -> Result<Self, ModelError> {
        Self::from_lookup(|key| std::env::var_os(key))
    }

    /// Reads variables through `lookup`; an empty value counts as unset.
    ///
    /// # Errors
    /// As [`Environment::from_process`].
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<OsString>) -> Result<Self, ModelError> {
        let set = |key: &str| lookup(key).filter(|value| !value.is_empty());
        let text = |key: &str| set(key).and_then(|value| value.into_string().ok());
        // Windows has no HOME; its profile directory plays the part.
        let home = || {
            set("HOME")
                .or_else(|| set("USERPROFILE"))
                .map(PathBuf::from)
        };

        let cache_dir = set("XDG_CACHE_HOME")
            .map(|cache| PathBuf::from(cache).join("engine"))
            .or_else(|| Some(home()?.join(".cache/engine")));
        let models_dir = set("ENGINE_MODELS")
            .map(PathBuf::from)
            .or_else(|| Some(cache_dir.as_ref()?.join("models")))
            .ok_or(ModelError::NoHome {
                variable: "ENGINE_MODELS",
            })?;
        let hub_cache = set("HF_HOME")
            .map(PathBuf::from)
            .or_else(|| Some(home()?.join(".cache/huggingface")))
            .ok_or(ModelError::NoHome {
                variable: "HF_HOME",
            })?
            .join("hub");

        Ok(Self {
            cache_dir: cache_dir.unwrap_or_else(|| models_dir.clone()),
            models_dir,
            hub_cache,
            hub_endpoint: text("HF_ENDPOINT")
                .map(|url| url.trim_end_matches('/').to_owned())
                .unwrap_or_else(|| "https://huggingface.co".to_owned()),
            hub_token: text("HF_TOKEN").map(|token| token.trim().to_owned()),
            hub_offline: set("HF_HUB_OFFLINE").is_some_and(|value| is_true(&value)),
            hub_patience: Duration::from_secs(10),
            python: set("ENGINE_PYTHON").unwrap_or_else(|| "python3".into()),
        })
    }

    /// The directory of one model: its file, its record, its lock and parts under way.
    pub fn model_dir(&self, entry: &ModelEntry) -> PathBuf {
        self.models_dir.join(&entry.name)
    }

    /// Where a model's file lies once it has been fetched and verified.
    pub fn model_file(&self, entry: &ModelEntry) -> PathBuf {
        self.model_dir(entry).join(&entry.file)
    }
}

/// The spellings of "yes" that the hub's own clients accept.
fn is_true(value: &OsStr) -> bool {
    value.to_str().is_some_and(|v| {
        ["1", "on", "yes", "true"]
            .iter()
            .any(|yes| v.eq_ignore_ascii_case(yes))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn with(pairs: &[(&str, &str)]) -> Result<Environment, ModelError> {
        let pairs: Vec<(String, OsString)> = pairs
            .iter()
            .map(|(k, v)| (k.to_string(), OsString::from(v)))
            .collect();
        Environment::from_lookup(move |key| {
            pairs.iter().find(|(k, _)| k == key).map(|(_, v)| v.clone())
        })
    }

    #[test]
    fn models_dir_prefers_its_own_variable_then_the_cache_home_then_home() {
        let all = [
            ("ENGINE_MODELS", "m"),
            ("XDG_CACHE_HOME", "x"),
            ("HOME", "h"),
        ];
        assert_eq!(with(&all).unwrap().models_dir, PathBuf::from("m"));
        assert_eq!(
            with(&all[1..]).unwrap().models_dir,
            PathBuf::from("x/engine/models")
        );
        assert_eq!(
            with(&all[2..]).unwrap().models_dir,
            PathBuf::from("h/.cache/engine/models")
        );
        assert!(matches!(with(&[]), Err(ModelError::NoHome { .. })));
    }

    #[test]
    fn empty_counts_as_unset_and_the_hub_follows_its_own_variables() {
        let env = with(&[
            ("HOME", "h"),
            ("HF_HOME", "hf"),
            ("HF_ENDPOINT", "http://mirror/"),
            ("ENGINE_PYTHON", ""),
            ("HF_HUB_OFFLINE", "True"),
        ])
        .unwrap();
        assert_eq!(env.hub_cache, PathBuf::from("hf/hub"));
        assert_eq!(env.hub_endpoint, "http://mirror");
        assert_eq!(env.python, "python3");
        assert!(env.hub_offline);
        assert!(
            !with(&[("HOME", "h"), ("HF_HUB_OFFLINE", "0")])
                .unwrap()
                .hub_offline
        );
    }
}
