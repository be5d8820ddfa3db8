//! The run directory: what a run leaves behind, each file replaced as a whole or not at all.
//!
//! ```text
//! manifest.json   plan, input, backend, options, files with their hashes; finished last
//! facts.jsonl     one row per unit; appended as units finish, rewritten in source order at the end
//! events.jsonl    the run log
//! nodes.jsonl     one row per node of the fold, parents before children
//! answer.json     the answer                    answer.md   the same for people
//! usage.json      tokens and time
//! observations.jsonl  only where stages call tools: what they answered
//! quarantine.json only where a breaker opened: why nothing of the run may be taken for a fact
//! ```
//!
//! A killed run leaves `manifest.json` with `"finished": false` and the facts so far.
//! Must not know how facts come about.

mod nodes;
mod observations;
mod replace;

use std::collections::HashSet;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::answer::{AnswerBackend, CitedAnswer, render_page};
use crate::error::OperatorError;
use crate::event::EventLine;
use crate::fact::{Fact, Facts};
use crate::fold::{KeyRange, NodeRecord};
use crate::id::ContentHash;
use crate::infer::BackendIdentity;
use crate::plan::Plan;
use crate::record::SourceArtifact;
use crate::run::RunUsage;

use replace::{hash_file, list_file, replace_with};

pub use nodes::{NodeDraft, NodeRow};
pub use observations::{ObservationRow, PartRow};
pub use replace::replace;

/// Version of `manifest.json`.
pub const MANIFEST_VERSION: u32 = 1;

const MANIFEST: &str = "manifest.json";
const FACTS: &str = "facts.jsonl";
const EVENTS: &str = "events.jsonl";
const NODES: &str = "nodes.jsonl";
const QUARANTINE: &str = "quarantine.json";
const OBSERVATIONS: &str = "observations.jsonl";

/// A file of the run with the hash of its bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestFile {
    /// Name inside the directory.
    pub name: String,
    /// BLAKE3 of its bytes.
    pub hash: ContentHash,
    /// Its size.
    pub bytes: u64,
}

/// The content of `manifest.json`: everything needed to say what the other files are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Format version, `MANIFEST_VERSION`.
    pub version: u32,
    /// False until every file is in place.
    pub finished: bool,
    /// Version of the program that ran.
    pub engine_version: String,
    /// Path of the plan.
    pub plan_path: String,
    /// Hash of the plan's meaning-bearing parts.
    pub plan_hash: ContentHash,
    /// The plan as it was read.
    pub plan_text: String,
    /// The input.
    pub input: SourceArtifact,
    /// Units that the plan makes of the input, unreadable records included.
    pub records: u64,
    /// Who answers.
    pub backend: AnswerBackend,
    /// One line about the backend.
    pub backend_description: String,
    /// Options of the run, as the caller names them.
    pub options: Value,
    /// Files of the finished run.
    pub files: Vec<ManifestFile>,
}

/// A directory that a run writes into.
#[derive(Debug)]
pub struct RunDirectory {
    path: PathBuf,
    engine_version: String,
    options: Value,
    opened: Option<Opened>,
}

#[derive(Debug)]
struct Opened {
    manifest: Manifest,
    facts: File,
    events: File,
    observations: Option<Observations>,
}

#[derive(Debug)]
struct Observations {
    file: File,
    /// Texts that are there.
    texts: HashSet<ContentHash>,
}

impl RunDirectory {
    /// Makes the directory, or takes over one that an earlier run wrote.
    ///
    /// # Errors
    /// `FileInvalid` when the directory holds files but no manifest: it belongs to something else.
    /// `Io` when it cannot be made or read.
    pub fn create(
        path: &Path,
        engine_version: &str,
        options: Value,
    ) -> Result<Self, OperatorError> {
        std::fs::create_dir_all(path).map_err(|source| io(path, "make", source))?;
        let mut entries = std::fs::read_dir(path).map_err(|source| io(path, "read", source))?;
        if entries.next().is_some() && !path.join(MANIFEST).exists() {
            return Err(OperatorError::FileInvalid {
                path: path.display().to_string(),
                line: 0,
                problem: format!(
                    "holds files but no {MANIFEST}, so no run wrote it; name an empty directory"
                ),
            });
        }
        Ok(Self {
            path: path.to_owned(),
            engine_version: engine_version.to_owned(),
            options,
            opened: None,
        })
    }

    /// Returns the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Marks the directory as unfinished and opens the two logs.
    ///
    /// # Errors
    /// `Io` when a file cannot be written.
    pub fn begin(
        &mut self,
        plan: &Plan,
        input: &SourceArtifact,
        records: u64,
        backend: &BackendIdentity,
    ) -> Result<(), OperatorError> {
        let manifest = Manifest {
            version: MANIFEST_VERSION,
            finished: false,
            engine_version: self.engine_version.clone(),
            plan_path: plan.path.clone(),
            plan_hash: plan.hash(),
            plan_text: plan.text.clone(),
            input: input.clone(),
            records,
            backend: AnswerBackend {
                name: backend.name.clone(),
                digest: ContentHash::from_bytes(backend.digest),
                simulated: backend.simulated,
            },
            backend_description: backend.describe.clone(),
            options: self.options.clone(),
            files: Vec::new(),
        };
        replace(&self.path.join(MANIFEST), &json(&self.path, &manifest)?)?;
        // Those of an earlier run say nothing of this one.
        for name in [QUARANTINE, OBSERVATIONS] {
            let stale = self.path.join(name);
            match std::fs::remove_file(&stale) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(io(&stale, "remove", error));
                }
                _ => {}
            }
        }
        let observations = match plan.calls_tools() {
            true => Some(Observations {
                file: self.open_log(OBSERVATIONS)?,
                texts: HashSet::new(),
            }),
            false => None,
        };
        let facts = self.open_log(FACTS)?;
        let events = self.open_log(EVENTS)?;
        self.opened = Some(Opened {
            manifest,
            facts,
            events,
            observations,
        });
        Ok(())
    }

    /// Appends a fact; it is in the operating system's hands when this returns.
    ///
    /// # Errors
    /// `Io` when it cannot be written.
    ///
    /// # Panics
    /// If the run has not begun.
    pub fn append_fact(&mut self, fact: &Fact) -> Result<(), OperatorError> {
        let path = self.path.join(FACTS);
        append(&path, &mut self.opened().facts, fact)
    }

    /// Appends what a tool answered about a unit; a text is written once.
    ///
    /// # Errors
    /// `Io` when it cannot be written.
    ///
    /// # Panics
    /// If the run has not begun.
    pub fn append_observation(&mut self, mut row: ObservationRow) -> Result<(), OperatorError> {
        let path = self.path.join(OBSERVATIONS);
        let Some(observations) = &mut self.opened().observations else {
            unreachable!("the plan calls tools");
        };
        if row.text.is_some() && !observations.texts.insert(row.text_hash) {
            row.text = None;
        }
        append(&path, &mut observations.file, &row)
    }

    /// Appends an event.
    ///
    /// # Errors
    /// `Io` when it cannot be written.
    ///
    /// # Panics
    /// If the run has not begun.
    pub fn append_event(&mut self, line: &EventLine) -> Result<(), OperatorError> {
        let path = self.path.join(EVENTS);
        append(&path, &mut self.opened().events, line)
    }

    /// Opens a place for the rows of nodes, which are made children before parents.
    ///
    /// # Errors
    /// `Io` when the file cannot be made.
    pub fn draft_nodes(&self) -> Result<NodeDraft, OperatorError> {
        NodeDraft::create(self.path.join(".nodes.jsonl.rows"))
    }

    /// Writes the nodes of the fold from their draft, parents before children.
    ///
    /// # Errors
    /// `Io` when a file cannot be read or written.
    ///
    /// # Panics
    /// If the run has not begun.
    pub fn write_nodes(
        &mut self,
        draft: NodeDraft,
        rows: Vec<(KeyRange, NodeRow)>,
        fan_in: u32,
    ) -> Result<(), OperatorError> {
        let path = self.path.join(NODES);
        let listed = replace_with(&path, |file| draft.copy_in_order(rows, fan_in, file))?;
        self.opened().manifest.files.push(listed);
        Ok(())
    }

    /// Writes the answer, puts the facts into source order and marks the directory finished.
    ///
    /// # Errors
    /// `Io` when a file cannot be written.
    ///
    /// # Panics
    /// If the run has not begun.
    pub fn finish(
        &mut self,
        facts: &Facts,
        answer: &CitedAnswer,
        usage: &RunUsage,
    ) -> Result<(), OperatorError> {
        let directory = self.path.clone();
        let opened = self.opened();
        let facts_path = directory.join(FACTS);
        let mut listed = vec![replace_with(&facts_path, |file| {
            for fact in facts.iter() {
                file.write(&line_of(&facts_path, &fact)?)?;
            }
            Ok(())
        })?];
        let files: [(&str, Vec<u8>); 3] = [
            ("answer.json", json(&directory, answer)?),
            ("answer.md", render_page(answer, usage).into_bytes()),
            ("usage.json", json(&directory, usage)?),
        ];
        let quarantine = match &answer.quarantine {
            Some(quarantine) => Some((QUARANTINE, json(&directory, quarantine)?)),
            None => None,
        };
        for (name, bytes) in files.iter().chain(&quarantine) {
            listed.push(replace_with(&directory.join(name), |file| {
                file.write(bytes)
            })?);
        }
        let events = directory.join(EVENTS);
        opened
            .events
            .sync_all()
            .map_err(|source| io(&events, "write", source))?;
        listed.push(list_file(&events)?);
        if let Some(observations) = &opened.observations {
            let path = directory.join(OBSERVATIONS);
            let synced = observations.file.sync_all();
            synced.map_err(|source| io(&path, "write", source))?;
            listed.push(list_file(&path)?);
        }
        opened.manifest.files.extend(listed);
        opened.manifest.finished = true;
        replace(
            &directory.join(MANIFEST),
            &json(&directory, &opened.manifest)?,
        )
    }

    /// Opens a log empty, without a moment in which an earlier run's file is half there.
    fn open_log(&self, name: &str) -> Result<File, OperatorError> {
        let path = self.path.join(name);
        replace(&path, &[])?;
        File::options()
            .append(true)
            .open(&path)
            .map_err(|source| io(&path, "write", source))
    }

    fn opened(&mut self) -> &mut Opened {
        assert!(
            self.opened.is_some(),
            "a run directory is written only between begin and finish"
        );
        match &mut self.opened {
            Some(opened) => opened,
            None => unreachable!("checked above"),
        }
    }
}

/// Reads the manifest of a run directory.
///
/// # Errors
/// `Io` when it cannot be read, `FileInvalid` when it is not a manifest.
pub fn read_manifest(directory: &Path) -> Result<Manifest, OperatorError> {
    read_json(&directory.join(MANIFEST))
}

/// Reads the answer of a run directory.
///
/// # Errors
/// `Io` when it cannot be read, `FileInvalid` when it is not an answer.
pub fn read_answer(directory: &Path) -> Result<CitedAnswer, OperatorError> {
    read_json(&directory.join("answer.json"))
}

/// Reads what a run cost.
///
/// # Errors
/// `Io` when it cannot be read, `FileInvalid` when it is not what a run cost.
pub fn read_usage(directory: &Path) -> Result<RunUsage, OperatorError> {
    read_json(&directory.join("usage.json"))
}

/// Reads a facts file; a last line without its newline was cut by a crash and is left out.
///
/// # Errors
/// `Io` when it cannot be read, `FileInvalid` with the line when a whole line is not a fact.
pub fn read_facts(path: &Path) -> Result<Vec<Fact>, OperatorError> {
    read_lines(path, "a fact")
}

/// Reads the nodes of a run directory.
///
/// # Errors
/// `Io` when the file cannot be read, `FileInvalid` with the line when a line is not a node.
pub fn read_nodes(directory: &Path) -> Result<Vec<NodeRecord>, OperatorError> {
    read_lines(&directory.join(NODES), "a node of the fold")
}

/// Reads what tools answered in a run; nothing where its plan calls none.
///
/// # Errors
/// `Io` when the file cannot be read, `FileInvalid` with the line when a line is none of its rows.
pub fn read_observations(
    directory: &Path,
    plan: &Plan,
) -> Result<Vec<ObservationRow>, OperatorError> {
    match plan.calls_tools() {
        true => read_lines(&directory.join(OBSERVATIONS), "what a tool answered"),
        false => Ok(Vec::new()),
    }
}

fn read_lines<T: serde::de::DeserializeOwned>(
    path: &Path,
    what: &str,
) -> Result<Vec<T>, OperatorError> {
    let bytes = std::fs::read(path).map_err(|source| io(path, "read", source))?;
    let whole = bytes
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |last| last + 1);
    let mut rows = Vec::new();
    for (number, line) in (1_u64..).zip(bytes[..whole].split_inclusive(|byte| *byte == b'\n')) {
        rows.push(
            serde_json::from_slice(line).map_err(|error| OperatorError::FileInvalid {
                path: path.display().to_string(),
                line: number,
                problem: format!("is not {what}: {error}"),
            })?,
        );
    }
    Ok(rows)
}

/// Compares the files of a finished run with its manifest; returns every problem found.
///
/// # Errors
/// As `read_manifest`.
pub fn verify_files(directory: &Path) -> Result<Vec<String>, OperatorError> {
    let manifest = read_manifest(directory)?;
    let mut problems = Vec::new();
    if !manifest.finished {
        problems.push(format!("{MANIFEST} says that the run did not finish"));
    }
    for file in &manifest.files {
        match hash_file(&directory.join(&file.name)) {
            Err(error) => problems.push(format!("{}: {error}", file.name)),
            Ok((hash, _)) if hash != file.hash => {
                let name = &file.name;
                problems.push(format!(
                    "{name} hashes to {hash}, the manifest says {}",
                    file.hash
                ));
            }
            Ok(_) => {}
        }
    }
    Ok(problems)
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, OperatorError> {
    let bytes = std::fs::read(path).map_err(|source| io(path, "read", source))?;
    serde_json::from_slice(&bytes).map_err(|error| OperatorError::FileInvalid {
        path: path.display().to_string(),
        line: error.line() as u64,
        problem: format!("{error}; the run that wrote it was of another version or was cut off"),
    })
}

fn append<T: Serialize>(path: &Path, file: &mut File, row: &T) -> Result<(), OperatorError> {
    // One write per line: a crash leaves whole lines and at most one cut one, at the end.
    file.write_all(&line_of(path, row)?)
        .map_err(|source| io(path, "write", source))
}

fn line_of<T: Serialize>(path: &Path, row: &T) -> Result<Vec<u8>, OperatorError> {
    let mut line = serde_json::to_vec(row).map_err(|error| unwritable(path, &error))?;
    line.push(b'\n');
    Ok(line)
}

fn json<T: Serialize>(path: &Path, value: &T) -> Result<Vec<u8>, OperatorError> {
    let mut bytes = serde_json::to_vec_pretty(value).map_err(|error| unwritable(path, &error))?;
    bytes.push(b'\n');
    Ok(bytes)
}

fn unwritable(path: &Path, error: &serde_json::Error) -> OperatorError {
    OperatorError::FileInvalid {
        path: path.display().to_string(),
        line: 0,
        problem: error.to_string(),
    }
}

fn io(path: &Path, action: &'static str, source: std::io::Error) -> OperatorError {
    OperatorError::Io {
        path: path.display().to_string(),
        action,
        source,
    }
}
