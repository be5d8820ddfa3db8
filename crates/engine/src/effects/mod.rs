//! Effects on real trackers: opens what a plan names, and does what a verified run comes to.
//!
//! | module | job |
//! |---|---|
//! | [`issue`] | an issue as JSON, and what it says about a key |
//! | [`files`] | a tracker of JSON files in a directory |
//! | [`http`] | a tracker spoken to over HTTP |
//!
//! A run's effects are done from its directory alone, after all of it was verified again: the same way
//! right after the run and after a crash. The order of work, and when something may be sent twice, is
//! the operator's.

pub mod files;
pub mod http;
pub mod issue;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use operator::effect::{
    Batch, Due, EffectRequest, EffectSection, EffectStatus, Effector, EffectsReport, Finding,
    Journal, Leases, Limits, Outcome, Performer, intend, judge, look_back, perform, read_report,
    tell, write_report,
};
use operator::error::OperatorError;
use operator::id::{ContentHash, EffectKey};
use operator::infer::CancelFlag;
use operator::ops::FileUnits;
use operator::plan::Plan;
use operator::plan::effect::{EffectSpec, Target};
use operator::verify::{Report, RunFiles, verify_directory};

use files::FileTracker;
use http::HttpTracker;

/// How long a lease lasts without being renewed.
const LEASE_MS: u64 = 30_000;
/// How long one request may take; less than a lease.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Why effects are not done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EffectsError {
    /// A file of the run cannot be used.
    #[error(transparent)]
    Operator(#[from] OperatorError),
    /// The run does not hold.
    #[error(
        "{path}: the run does not verify ({} findings; the first: {first}), so no effect is done; see \
         engine verify", .report.findings.len()
    )]
    NotVerified {
        /// The run directory.
        path: String,
        /// The first finding, or why the records were not compared.
        first: String,
        /// All of it.
        report: Box<Report>,
    },
    /// Some units have no answer.
    #[error("{path}: some records have no answer, so no effect is done; run it again to its end")]
    Incomplete {
        /// The run directory.
        path: String,
    },
    /// A name that the plan does not have.
    #[error("the plan has no effect {name:?}; it has {known}")]
    NoSuchEffect {
        /// The name.
        name: String,
        /// Those that it has.
        known: String,
    },
    /// The token's variable is not set.
    #[error("effect {effect:?} needs a token; set the environment variable {variable}")]
    NoToken {
        /// The effect.
        effect: String,
        /// The variable.
        variable: String,
    },
    /// A tracker cannot be opened.
    #[error("effect {effect:?}: {path}")]
    Tracker {
        /// The effect.
        effect: String,
        /// The directory.
        path: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// What doing effects needs beside the run directory.
pub struct Doing<'a> {
    /// The run directory.
    pub run: &'a Path,
    /// The records [default: the file that the run names].
    pub input: Option<&'a Path>,
    /// Effects that the command line allows, by name.
    pub allowed: &'a [String],
    /// Directory for leases on services, which have none of their own.
    pub leases: &'a Path,
    /// Ends the work before the next write.
    pub cancel: &'a CancelFlag,
    /// How long one effect is tried.
    pub limits: Limits,
}

/// Refuses a name that is no effect of the plan.
///
/// # Errors
/// `NoSuchEffect`.
pub fn check_allowed(plan: &Plan, allowed: &[String]) -> Result<(), EffectsError> {
    match allowed.iter().find(|name| plan.effect(name).is_none()) {
        None => Ok(()),
        Some(name) => {
            let known: Vec<&str> = plan
                .effects
                .iter()
                .map(|effect| effect.name.as_str())
                .collect();
            Err(EffectsError::NoSuchEffect {
                name: name.clone(),
                known: if known.is_empty() {
                    "none".to_owned()
                } else {
                    known.join(", ")
                },
            })
        }
    }
}

/// Says what the effects of a run would be, without verifying or doing anything.
///
/// # Errors
/// `Operator` where the run or its records cannot be read.
pub fn preview(
    run: &Path,
    input: Option<&Path>,
    show: &mut dyn FnMut(&Batch<'_>),
) -> Result<(), EffectsError> {
    let files = RunFiles::read(run)?;
    let plan = Plan::parse(&files.manifest.plan_text, &files.manifest.plan_path)?;
    for batch in &gather(&plan, &files, input)? {
        show(batch);
    }
    Ok(())
}

/// Does the allowed effects of a finished run that verifies, and writes `effects.json`.
///
/// What an earlier process left is taken up from the journal: this is also how a crash is recovered.
///
/// # Errors
/// `NotVerified` and `Incomplete` before anything is done; `NoToken` and `Tracker` where a tracker
/// cannot be opened; `Operator` where a file cannot be read or written.
pub fn carry_out(doing: &Doing<'_>) -> Result<EffectsReport, EffectsError> {
    let files = verified(doing.run, doing.input)?;
    let plan = Plan::parse(&files.manifest.plan_text, &files.manifest.plan_path)?;
    check_allowed(&plan, doing.allowed)?;
    let batches = gather(&plan, &files, doing.input)?;
    // All trackers open before the first effect is done.
    let mut trackers = Vec::new();
    for batch in &batches {
        let allowed = doing.allowed.contains(&batch.spec.name);
        let tracker = allowed.then(|| open(&plan, batch.spec, doing.leases));
        trackers.push(tracker.transpose()?);
    }
    let answer = files.answer.result_hash;
    let mut journal = Journal::open(doing.run)?;
    journal.begin(answer, files.manifest.plan_hash, doing.allowed)?;
    let owner = owner(doing.run);
    let mut sections = Vec::new();
    for (batch, tracker) in batches.iter().zip(&trackers) {
        let (name, action) = (&batch.spec.name, batch.spec.action);
        let Some(tracker) = tracker else {
            let outcomes = tell(&batch.requests, &journal);
            if !outcomes.is_empty() {
                sections.push(EffectSection::new(name, action, outcomes));
            }
            continue;
        };
        let leases = Leases::new(&tracker.leases, &owner, LEASE_MS)?;
        let left = left_over(&journal, batch);
        let mut performer = Performer {
            journal: &mut journal,
            leases: &leases,
            effector: tracker.effector.as_ref(),
            cancel: doing.cancel,
            clock: &now_ms,
            pause: &std::thread::sleep,
            limits: doing.limits,
        };
        look_back(&left, &mut performer)?;
        let mut outcomes = perform(&batch.requests, answer, &mut performer)?;
        outcomes.extend(batch.refused.iter().cloned());
        sections.push(EffectSection::new(name, action, outcomes));
    }
    let head = (journal.lines(), journal.head());
    let report = EffectsReport::new(files.manifest.plan_hash, answer, head, sections);
    write_report(doing.run, &report)?;
    Ok(report)
}

/// Effects that may have been sent for an earlier answer, and that this one does not ask for.
fn left_over(journal: &Journal, batch: &Batch<'_>) -> Vec<EffectRequest> {
    let due: BTreeSet<EffectKey> = batch.requests.iter().map(EffectRequest::key).collect();
    let left = journal.standings().iter().filter(|(key, standing)| {
        standing.request.effect == batch.spec.name
            && standing.open > 0
            && standing.due(true) != Due::Nothing
            && !due.contains(key)
    });
    left.map(|(_, standing)| standing.request.clone()).collect()
}

/// Asks the trackers again for every receipt of a run; tells those that no longer hold.
///
/// # Errors
/// As [`carry_out`], but for verification.
pub fn read_again(run: &Path, leases: &Path) -> Result<(u64, Vec<String>), EffectsError> {
    let files = RunFiles::read(run)?;
    let plan = Plan::parse(&files.manifest.plan_text, &files.manifest.plan_path)?;
    let (_, recovered, _) = operator::effect::read_journal(run)?;
    let (mut read, mut findings) = (0, Vec::new());
    let Some(report) = read_report(run)? else {
        return Ok((read, findings));
    };
    for section in &report.effects {
        let Some(spec) = plan.effect(&section.name) else {
            continue;
        };
        let tracker = open(&plan, spec, leases)?;
        let done = |outcome: &&Outcome| outcome.status == EffectStatus::Done;
        for outcome in section.outcomes.iter().filter(done) {
            let Some((key, standing)) = outcome
                .key
                .and_then(|key| recovered.standings.get_key_value(&key))
            else {
                continue;
            };
            read += 1;
            let what = format!("effect {} of unit {}", section.name, outcome.unit_id);
            match tracker.effector.read_back(&standing.request, key) {
                Err(unreadable) => findings.push(format!("{what}: {}", unreadable.reason)),
                Ok(observation) => match judge(&standing.request, &observation) {
                    Finding::Done(_) => {}
                    Finding::Conflict(reason) => findings.push(format!("{what}: {reason}")),
                    Finding::Absent(_) | Finding::Missing => {
                        findings.push(format!("{what}: is not there any more"));
                    }
                },
            }
        }
    }
    Ok((read, findings))
}

/// Reads a run that is complete and of which every hash, claim and citation was derived again.
fn verified(run: &Path, input: Option<&Path>) -> Result<RunFiles, EffectsError> {
    let path = run.display().to_string();
    let report = verify_directory(run, input)?;
    let first = report.findings.first().map(ToString::to_string);
    if let Some(first) = first.or_else(|| report.sources_absent.clone()) {
        return Err(EffectsError::NotVerified {
            path,
            first,
            report: Box::new(report),
        });
    }
    let files = RunFiles::read(run)?;
    if !files.answer.complete {
        return Err(EffectsError::Incomplete { path });
    }
    Ok(files)
}

fn gather<'p>(
    plan: &'p Plan,
    files: &RunFiles,
    input: Option<&Path>,
) -> Result<Vec<Batch<'p>>, EffectsError> {
    let path = input.map_or_else(|| PathBuf::from(&files.manifest.input.path), Path::to_owned);
    let units = FileUnits::open(plan, &path, &mut |_| {})?;
    Ok(intend(plan, &files.facts, &units)?)
}

/// A tracker with the directory of its leases.
struct Tracker {
    effector: Box<dyn Effector>,
    leases: PathBuf,
}

fn open(plan: &Plan, spec: &EffectSpec, leases: &Path) -> Result<Tracker, EffectsError> {
    match &spec.target {
        Target::Files(directory) => {
            let directory = plan.beside(directory);
            let tracker =
                FileTracker::open(&directory).map_err(|source| EffectsError::Tracker {
                    effect: spec.name.clone(),
                    path: directory.display().to_string(),
                    source,
                })?;
            Ok(Tracker {
                leases: tracker.leases(),
                effector: Box::new(tracker),
            })
        }
        Target::Http(service) => {
            let token = match &service.token_env {
                None => None,
                Some(variable) => Some(
                    std::env::var(variable)
                        .ok()
                        .map(|token| token.trim().to_owned())
                        .filter(|token| !token.is_empty())
                        .ok_or_else(|| EffectsError::NoToken {
                            effect: spec.name.clone(),
                            variable: variable.clone(),
                        })?,
                ),
            };
            let name = ContentHash::of_bytes(service.url.as_bytes()).to_string();
            Ok(Tracker {
                effector: Box::new(HttpTracker::new(&service.url, token.as_deref(), TIMEOUT)),
                leases: leases.join(name),
            })
        }
    }
}

/// Who holds the leases: the run's journal, which one process at a time writes.
fn owner(run: &Path) -> String {
    let path = std::fs::canonicalize(run).unwrap_or_else(|_| run.to_owned());
    format!("run {}", path.display())
}

/// Milliseconds since the Unix epoch by the system's clock; 0 where that is set before it.
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}
