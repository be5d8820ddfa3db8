//! A run directory, verified as a whole: its files against the manifest, and the answer in it.

use std::path::{Path, PathBuf};

use super::difference::difference;
use super::{Place, Registry, Report, Sources, Subject, observations};
use crate::answer::CitedAnswer;
use crate::error::OperatorError;
use crate::fact::Fact;
use crate::fold::NodeRecord;
use crate::id::ContentHash;
use crate::plan::Plan;
use crate::run_directory::{
    MANIFEST_VERSION, Manifest, ObservationRow, read_answer, read_facts, read_manifest, read_nodes,
    read_observations,
};

/// Every file that a finished run lists.
const LISTED: [&str; 6] = [
    "nodes.jsonl",
    "facts.jsonl",
    "answer.json",
    "answer.md",
    "usage.json",
    "events.jsonl",
];

/// The file that a run lists where a breaker opened, and only there.
const QUARANTINE: &str = "quarantine.json";

/// The file that a run lists where its plan calls tools, and only there.
const OBSERVATIONS: &str = "observations.jsonl";

/// The parts of a run directory that verification reads.
#[derive(Debug)]
pub struct RunFiles {
    /// The plan, from the text in the manifest.
    pub plan: Plan,
    /// The manifest.
    pub manifest: Manifest,
    /// The facts.
    pub facts: Vec<Fact>,
    /// The tree.
    pub nodes: Vec<NodeRecord>,
    /// The answer.
    pub answer: CitedAnswer,
    /// What tools answered.
    pub observations: Vec<ObservationRow>,
}

impl RunFiles {
    /// Reads a run directory.
    ///
    /// # Errors
    /// `Io` and `FileInvalid` where a file cannot be read or the run left no answer, `Plan` where the plan in the manifest
    /// is none.
    pub fn read(directory: &Path) -> Result<Self, OperatorError> {
        let manifest = read_manifest(directory)?;
        let shown = directory.join("manifest.json").display().to_string();
        if !manifest.finished && !directory.join("answer.json").exists() {
            return Err(OperatorError::FileInvalid {
                path: shown,
                line: 0,
                problem: "says that the run did not finish, so there is no answer to verify; run \
                          it again"
                    .to_owned(),
            });
        }
        let mut plan = Plan::parse(&manifest.plan_text, &format!("{shown} (plan_text)"))?;
        // Files that its indexes name lie beside the plan's own.
        plan.path.clone_from(&manifest.plan_path);
        Ok(Self {
            observations: read_observations(directory, &plan)?,
            plan,
            facts: read_facts(&directory.join("facts.jsonl"))?,
            nodes: read_nodes(directory)?,
            answer: read_answer(directory)?,
            manifest,
        })
    }

    /// What is verified.
    pub fn subject(&self) -> Subject<'_> {
        Subject {
            plan: &self.plan,
            facts: &self.facts,
            nodes: &self.nodes,
            answer: &self.answer,
        }
    }
}

/// Verifies a run directory against its records: those in `input` or, without it, in the file that
/// the run read, where that is still there.
///
/// # Errors
/// As `RunFiles::read`; `Io` where `input` cannot be read.
pub fn verify_directory(directory: &Path, input: Option<&Path>) -> Result<Report, OperatorError> {
    let files = RunFiles::read(directory)?;
    let mut report = Report::default();
    let quarantined = files.answer.quarantine.is_some();
    let extra = (quarantined, files.plan.calls_tools());
    check_listed(directory, &files.manifest, extra, &mut report);
    check_manifest(&files, &mut report);
    let path = input.map_or_else(|| PathBuf::from(&files.answer.source.path), Path::to_owned);
    let mut sources = match std::fs::read(&path) {
        Ok(bytes) => open(&files, &path, &bytes, &mut report),
        Err(source) if input.is_some() => {
            return Err(OperatorError::Io {
                path: path.display().to_string(),
                action: "read",
                source,
            });
        }
        Err(error) => Sources::Absent(format!("{}: {error}", path.display())),
    };
    let observations = observations::check(files.subject(), &files.observations, &mut report);
    if let Sources::Read(registry) = &mut sources {
        registry.take_observations(observations);
    }
    super::check(files.subject(), &sources, &mut report);
    report.sort();
    Ok(report)
}

/// Reads the records; a file that the run did not read is a finding, and is used all the same, for
/// it tells which records changed.
fn open(files: &RunFiles, path: &Path, bytes: &[u8], report: &mut Report) -> Sources {
    let place = Place::File(path.display().to_string());
    let (hash, right) = (ContentHash::of_bytes(bytes), files.answer.source.hash);
    if hash != right {
        let problem = format!("hashes to {hash}, the run read a file of {right}");
        report.content(place.clone(), problem);
    }
    match Registry::read(&files.plan, &path.display().to_string(), bytes) {
        Ok(registry) => {
            if registry.bytes() != files.manifest.input.bytes {
                let (found, right) = (registry.bytes(), files.manifest.input.bytes);
                report.content(
                    place,
                    format!("has {found} bytes, the manifest says {right}"),
                );
            }
            Sources::Read(registry)
        }
        Err(error) => {
            report.content(place, format!("cannot be read as records: {error}"));
            Sources::Absent(error.to_string())
        }
    }
}

fn check_listed(
    directory: &Path,
    manifest: &Manifest,
    (quarantined, observed): (bool, bool),
    report: &mut Report,
) {
    let quarantine = quarantined.then_some(QUARANTINE);
    let extra = quarantine
        .into_iter()
        .chain(observed.then_some(OBSERVATIONS));
    let names: Vec<&str> = LISTED.into_iter().chain(extra).collect();
    for name in &names {
        let times = manifest
            .files
            .iter()
            .filter(|file| file.name == *name)
            .count();
        if times != 1 {
            let problem = format!("is listed {times} times in the manifest, once is right");
            report.content(Place::File((*name).to_owned()), problem);
        }
    }
    for file in &manifest.files {
        let place = Place::File(file.name.clone());
        // A name is looked up only where it stays inside the directory.
        if !names.contains(&file.name.as_str()) {
            report.content(place, "is listed in the manifest, and is no file of a run");
            continue;
        }
        let bytes = match std::fs::read(directory.join(&file.name)) {
            Ok(bytes) => bytes,
            Err(error) => {
                report.content(place, error.to_string());
                continue;
            }
        };
        let (hash, size) = (ContentHash::of_bytes(&bytes), bytes.len() as u64);
        if hash != file.hash {
            let problem = format!("hashes to {hash}, the manifest says {}", file.hash);
            report.hash(place.clone(), problem);
        }
        if size != file.bytes {
            let problem = format!("has {size} bytes, the manifest says {}", file.bytes);
            report.content(place, problem);
        }
    }
}

fn check_manifest(files: &RunFiles, report: &mut Report) {
    let (manifest, answer) = (&files.manifest, &files.answer);
    let parts = [
        (
            "its version",
            difference(&manifest.version, &MANIFEST_VERSION),
        ),
        ("finished", difference(&manifest.finished, &true)),
        (
            "plan_hash",
            difference(&manifest.plan_hash, &files.plan.hash()),
        ),
        (
            "input.path",
            difference(&manifest.input.path, &answer.source.path),
        ),
        (
            "input.hash",
            difference(&manifest.input.hash, &answer.source.hash),
        ),
        (
            "records",
            difference(&manifest.records, &answer.source.records),
        ),
        ("backend:", difference(&manifest.backend, &answer.backend)),
    ];
    for (what, differs) in parts {
        if let Some(differs) = differs {
            let place = Place::File(String::from("manifest.json"));
            report.content(place, format!("{what} {differs}"));
        }
    }
}
