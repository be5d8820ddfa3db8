//! Checks the report of effects against the journal, the facts and the answer of the run.
//!
//! No tracker is asked: that a receipt's content is what was asked for follows from hashes, that it is
//! still so only the tracker can say. Must not know trackers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::journal::read_journal;
use super::line::Line;
use super::recover::{Recovered, State};
use super::report::{
    EFFECTS_VERSION, EffectCounts, EffectStatus, EffectsReport, Outcome, read_report,
};
use crate::error::OperatorError;
use crate::fact::{Fact, Status};
use crate::id::{ContentHash, UnitId};
use crate::verify::RunFiles;

/// What a check of a run's effects found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EffectsCheck {
    /// Everything that does not hold.
    pub findings: Vec<String>,
    /// Receipts that were compared with their requests.
    pub receipts: u64,
    /// Lines of the journal that were followed.
    pub lines: u64,
}

impl EffectsCheck {
    /// True when nothing wrong was found.
    pub fn holds(&self) -> bool {
        self.findings.is_empty()
    }
}

/// Checks the effects of a run directory: the journal's chain, every receipt against its request, its
/// unit's fact and the answer, and all counts and hashes of the report.
///
/// # Errors
/// `Io` and `FileInvalid` where a file cannot be read at all; a journal that was changed is one.
pub fn verify_effects(directory: &Path) -> Result<EffectsCheck, OperatorError> {
    let (lines, recovered, head) = read_journal(directory)?;
    let mut check = EffectsCheck {
        lines: lines.len() as u64,
        ..EffectsCheck::default()
    };
    let Some(report) = read_report(directory)? else {
        if !lines.is_empty() {
            let missing = "effects.json is missing: the work was cut off; recover it";
            check.findings.push(missing.to_owned());
        }
        return Ok(check);
    };
    let files = RunFiles::read(directory)?;
    check_head(&report, (&lines, head), &files, &mut check.findings);
    let facts: BTreeMap<&UnitId, &Fact> = files
        .facts
        .iter()
        .map(|fact| (&fact.unit_id, fact))
        .collect();
    let mut seen = BTreeSet::new();
    for section in &report.effects {
        let name = &section.name;
        if EffectCounts::of(&section.outcomes) != section.counts {
            let finding = format!("effect {name}: the counts are not those of the outcomes");
            check.findings.push(finding);
        }
        match files.plan.effect(name) {
            Some(spec) if spec.action == section.action => {}
            _ => {
                let finding = format!("effect {name}: is not that of the plan");
                check.findings.push(finding);
            }
        }
        for outcome in &section.outcomes {
            let unit = &outcome.unit_id;
            let mut found = |problem: String| {
                check
                    .findings
                    .push(format!("effect {name} of unit {unit}: {problem}"));
            };
            if let Some(key) = outcome.key
                && !seen.insert(key)
            {
                found("is listed twice".to_owned());
            }
            let fact = facts.get(unit).copied();
            check_outcome(outcome, name, &recovered, fact, &report, &mut found);
            check.receipts += u64::from(outcome.receipt.is_some());
        }
    }
    for (key, standing) in &recovered.standings {
        if matches!(standing.state, State::Done(_))
            && standing.answer == report.answer
            && !seen.contains(key)
        {
            let (effect, unit) = (&standing.request.effect, &standing.request.unit_id);
            check.findings.push(format!(
                "effect {effect} of unit {unit} is done in the journal and not in the report"
            ));
        }
    }
    Ok(check)
}

fn check_head(
    report: &EffectsReport,
    (lines, head): (&[Line], ContentHash),
    files: &RunFiles,
    findings: &mut Vec<String>,
) {
    let mut found = |problem: &str| findings.push(format!("effects.json: {problem}"));
    if report.version != EFFECTS_VERSION {
        found("is of another version");
    }
    if report.hash_content() != report.hash {
        found("its hash is not that of its content");
    }
    if report.plan_hash != files.plan.hash() {
        found("its plan is not that of the run");
    }
    if report.answer != files.answer.result_hash {
        found("follows from another answer than the one beside it");
    }
    if files.answer.hash_result() != files.answer.result_hash {
        found("the answer beside it does not hash to its own result hash");
    }
    // A later process may have written on; what the report names must still be there.
    let named = match report.journal_lines.checked_sub(1) {
        None => Some(ContentHash::of_bytes(b"")),
        Some(_) if report.journal_lines == lines.len() as u64 => Some(head),
        Some(_) => usize::try_from(report.journal_lines)
            .ok()
            .and_then(|next| lines.get(next))
            .map(|next| next.prev),
    };
    if named != Some(report.journal_head) {
        found("names lines that the journal does not have");
    }
}

fn check_outcome(
    outcome: &Outcome,
    name: &str,
    recovered: &Recovered,
    fact: Option<&Fact>,
    report: &EffectsReport,
    found: &mut dyn FnMut(String),
) {
    let Some(receipt) = &outcome.receipt else {
        if outcome.status == EffectStatus::Done {
            found("is called done without a receipt".to_owned());
        }
        return;
    };
    if outcome.status != EffectStatus::Done || outcome.key != Some(receipt.key) {
        found("has a receipt of something else".to_owned());
    }
    let Some(standing) = recovered.standings.get(&receipt.key) else {
        found("has a receipt that the journal does not know".to_owned());
        return;
    };
    let request = &standing.request;
    if standing.state != State::Done(Box::new(receipt.clone())) {
        found("has another receipt than the journal".to_owned());
    }
    if request.effect != *name || !receipt.proves(request) {
        found("has a receipt that does not prove it".to_owned());
    }
    if request.plan_hash != report.plan_hash {
        found("was decided under another plan".to_owned());
    }
    match fact {
        Some(fact) if fact.status == Status::Decided && fact.source_hash == request.source_hash => {
        }
        _ => found("its unit is not decided, or not from the same record".to_owned()),
    }
}
