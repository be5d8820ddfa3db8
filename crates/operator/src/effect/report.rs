//! What effects came to: one outcome for each, counted from receipts, in `effects.json`.
//!
//! The file stands beside the answer and changes nothing of it. Must not know trackers.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::receipt::Receipt;
use super::request::EffectRequest;
use crate::canonical::Canonical;
use crate::error::OperatorError;
use crate::id::{ContentHash, EffectKey, UnitId};
use crate::plan::effect::Action;
use crate::run_directory::replace;

/// Version of `effects.json`.
pub const EFFECTS_VERSION: u32 = 1;

/// Its name in the run directory.
pub const REPORT: &str = "effects.json";

/// How an effect ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectStatus {
    /// It is done, and a receipt proves it.
    Done,
    /// It was declined, here or by the tracker, and nothing was done.
    Refused,
    /// What it was decided upon is not there any more, so it must not be done.
    Conflict,
    /// It may have been done; only the tracker knows.
    Unknown,
    /// It was not done and may still be.
    NotRun,
}

impl EffectStatus {
    /// The status as reports spell it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Refused => "refused",
            Self::Conflict => "conflict",
            Self::Unknown => "unknown",
            Self::NotRun => "not run",
        }
    }
}

/// How one effect ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outcome {
    /// Its key; none where it could not be filled in.
    pub key: Option<EffectKey>,
    /// The unit that it is done for.
    pub unit_id: UnitId,
    /// The issue; none where it could not be filled in.
    pub resource: Option<String>,
    /// What was to be done.
    pub action: Action,
    /// How it ended.
    pub status: EffectStatus,
    /// Why it is not done.
    pub reason: Option<String>,
    /// The proof that it is.
    pub receipt: Option<Receipt>,
}

impl Outcome {
    pub(super) fn done(request: &EffectRequest, receipt: Receipt) -> Self {
        Self {
            receipt: Some(receipt),
            reason: None,
            ..Self::without(request, EffectStatus::Done, String::new())
        }
    }

    pub(super) fn without(request: &EffectRequest, status: EffectStatus, reason: String) -> Self {
        Self {
            key: Some(request.key()),
            unit_id: request.unit_id.clone(),
            resource: Some(request.resource.clone()),
            action: request.action,
            status,
            reason: Some(reason),
            receipt: None,
        }
    }
}

/// How many effects ended alike.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EffectCounts {
    /// All of them.
    pub due: u64,
    /// With a receipt.
    pub done: u64,
    /// Declined.
    pub refused: u64,
    /// Overtaken.
    pub conflict: u64,
    /// Only the tracker knows.
    pub unknown: u64,
    /// Still to be done.
    pub not_run: u64,
}

impl EffectCounts {
    /// Counts outcomes. Done is what has a receipt whose two hashes are equal; without one, an effect
    /// that is called done counts as unknown.
    pub fn of(outcomes: &[Outcome]) -> Self {
        let mut counts = Self::default();
        for outcome in outcomes {
            counts.due += 1;
            let proven = outcome
                .receipt
                .as_ref()
                .is_some_and(|receipt| receipt.observed == receipt.content);
            match outcome.status {
                EffectStatus::Done if proven => counts.done += 1,
                EffectStatus::Done | EffectStatus::Unknown => counts.unknown += 1,
                EffectStatus::Refused => counts.refused += 1,
                EffectStatus::Conflict => counts.conflict += 1,
                EffectStatus::NotRun => counts.not_run += 1,
            }
        }
        counts
    }

    /// Whether nothing is left that another run could still do or find out.
    pub const fn settled(&self) -> bool {
        self.unknown == 0 && self.not_run == 0
    }
}

/// What one declared effect came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EffectSection {
    /// Name of the plan's effect.
    pub name: String,
    /// What it does.
    pub action: Action,
    /// How many ended how.
    pub counts: EffectCounts,
    /// Each of them: those that were due in source order, then those that were refused before.
    pub outcomes: Vec<Outcome>,
}

impl EffectSection {
    /// A section with its counts.
    pub fn new(name: &str, action: Action, outcomes: Vec<Outcome>) -> Self {
        Self {
            name: name.to_owned(),
            action,
            counts: EffectCounts::of(&outcomes),
            outcomes,
        }
    }
}

/// The content of `effects.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EffectsReport {
    /// Format version, `EFFECTS_VERSION`.
    pub version: u32,
    /// Hash of the plan's meaning.
    pub plan_hash: ContentHash,
    /// Result hash of the verified answer that the effects follow from.
    pub answer: ContentHash,
    /// Lines of the journal when this was written.
    pub journal_lines: u64,
    /// Hash of the last of them, by which all are named.
    pub journal_head: ContentHash,
    /// The allowed effects, in plan order.
    pub effects: Vec<EffectSection>,
    /// Hash of all of the above.
    pub hash: ContentHash,
}

impl EffectsReport {
    /// A report with its hash.
    pub fn new(
        plan_hash: ContentHash,
        answer: ContentHash,
        journal: (u64, ContentHash),
        effects: Vec<EffectSection>,
    ) -> Self {
        let mut report = Self {
            version: EFFECTS_VERSION,
            plan_hash,
            answer,
            journal_lines: journal.0,
            journal_head: journal.1,
            effects,
            hash: ContentHash::of_bytes(b""),
        };
        report.hash = report.hash_content();
        report
    }

    /// Recomputes `hash` from the other parts.
    pub fn hash_content(&self) -> ContentHash {
        let mut canonical = Canonical::new("operator 2026 effects v1");
        canonical
            .u32(self.version)
            .bytes(self.plan_hash.as_bytes())
            .bytes(self.answer.as_bytes())
            .u64(self.journal_lines)
            .bytes(self.journal_head.as_bytes())
            .list(self.effects.len());
        for section in &self.effects {
            let counts = &section.counts;
            canonical.text(&section.name).text(section.action.as_str());
            for count in [
                counts.due,
                counts.done,
                counts.refused,
                counts.conflict,
                counts.unknown,
                counts.not_run,
            ] {
                canonical.u64(count);
            }
            canonical.list(section.outcomes.len());
            for outcome in &section.outcomes {
                encode_outcome(&mut canonical, outcome);
            }
        }
        ContentHash::of(&canonical)
    }
}

fn encode_outcome(canonical: &mut Canonical, outcome: &Outcome) {
    match &outcome.key {
        Some(key) => canonical.some().bytes(key.as_bytes()),
        None => canonical.none(),
    };
    canonical
        .text(outcome.unit_id.as_str())
        .optional_text(outcome.resource.as_deref())
        .text(outcome.action.as_str())
        .text(outcome.status.as_str())
        .optional_text(outcome.reason.as_deref());
    match &outcome.receipt {
        Some(receipt) => canonical.some().bytes(receipt.hash().as_bytes()),
        None => canonical.none(),
    };
}

/// Writes `effects.json` into a run directory.
///
/// # Errors
/// `Io` where it cannot be written.
pub fn write_report(directory: &Path, report: &EffectsReport) -> Result<(), OperatorError> {
    let path = directory.join(REPORT);
    let mut bytes =
        serde_json::to_vec_pretty(report).map_err(|error| invalid(&path, 0, error.to_string()))?;
    bytes.push(b'\n');
    replace(&path, &bytes)
}

/// Reads `effects.json`; none where the run did no effects.
///
/// # Errors
/// `Io` where it cannot be read, `FileInvalid` where it is no such report.
pub fn read_report(directory: &Path) -> Result<Option<EffectsReport>, OperatorError> {
    let path = directory.join(REPORT);
    let bytes = match std::fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => {
            return Err(OperatorError::Io {
                path: path.display().to_string(),
                action: "read",
                source,
            });
        }
    };
    serde_json::from_slice(&bytes).map(Some).map_err(|error| {
        let line = error.line() as u64;
        invalid(&path, line, format!("is no report of effects: {error}"))
    })
}

fn invalid(path: &Path, line: u64, problem: String) -> OperatorError {
    OperatorError::FileInvalid {
        path: path.display().to_string(),
        line,
        problem,
    }
}
