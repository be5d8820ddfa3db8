//! The answer: coverage, and claims that each cite their sources.
//!
//! `result_hash` covers what was asked and what was found, never cost, time, paths or whether an
//! answer was remembered; two runs agree exactly when their hashes do. Every citation can be
//! checked against the records alone. Must not know how the facts were folded.

mod page;
mod selection;
mod wording;

pub use page::render_page;
pub use selection::{OptionRow, Rivalry, Selection, selections};
pub(crate) use wording::{fill, gap, gap_by_rule};

use std::borrow::Borrow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::audit::AuditReport;
use crate::breaker::Trip;
use crate::canonical::Canonical;
use crate::coverage::Counts;
use crate::fact::{Cite, Evidence, Fact, Status};
use crate::fold::Hashes;
use crate::id::{ContentHash, UnitId};
use crate::ops::prefilter::shared_reason;
use crate::ops::{Partition, Unit};
use crate::stopping::StopReport;
use crate::text;

/// Version of `answer.json`.
pub const ANSWER_VERSION: u32 = 2;

/// One statement with the bytes that back it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Name of the plan's reduction.
    pub name: String,
    /// The statement; every number in it is read off `value` or the coverage. A model's prose says
    /// that it is one, and of how much of it code has checked.
    pub text: String,
    /// The typed value: an integer, a list or an object. Never a float.
    pub value: Value,
    /// Why there is no value: the reduction met more than it was declared for.
    pub refused: Option<String>,
    /// Citations, capped by the plan.
    pub cites: Vec<Cite>,
    /// Facts that could have been cited.
    pub cites_total: u64,
}

/// The file that was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AnswerSource {
    /// Path as given.
    pub path: String,
    /// Hash of its bytes.
    pub hash: ContentHash,
    /// Units that the plan makes of it, unreadable records included: its records, where it says nothing else.
    pub records: u64,
}

/// Who answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AnswerBackend {
    /// Short name.
    pub name: String,
    /// Hash over everything of the backend that can change an answer.
    pub digest: ContentHash,
    /// True when answers were replayed or scripted.
    pub simulated: bool,
}

/// How many units ended alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReasonCount {
    /// The status.
    pub status: Status,
    /// Where they ended.
    pub stage: String,
    /// The kind of reason, without the details of the unit.
    pub reason: Option<String>,
    /// Units.
    pub units: u64,
}

/// The tree that the facts were folded over; its shape is no part of the result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeSummary {
    /// Hashes of the root.
    #[serde(flatten)]
    pub hashes: Hashes,
    /// Most inputs of a node.
    pub fan_in: u32,
    /// Nodes on the longest path from the root to a leaf, the leaf not counted.
    pub levels: u64,
    /// Nodes in all.
    pub nodes: u64,
}

/// The content of `answer.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CitedAnswer {
    /// Format version, `ANSWER_VERSION`.
    pub version: u32,
    /// The plan's question.
    pub question: String,
    /// Hash of the plan's meaning-bearing parts.
    pub plan_hash: ContentHash,
    /// What was read.
    pub source: AnswerSource,
    /// Who answered.
    pub backend: AnswerBackend,
    /// True when answers were replayed or scripted; such an answer proves nothing about a model.
    pub simulated: bool,
    /// True when no unit errored, was cancelled or was left unasked; where the plan declares stopping
    /// rules, when everything is there that the claims promise under them.
    pub complete: bool,
    /// Hash of the answer.
    pub result_hash: ContentHash,
    /// The tree of the fold; none without units.
    pub tree: Option<TreeSummary>,
    /// Units per status.
    pub coverage: Counts,
    /// Units per status, stage and kind of reason.
    pub coverage_by_reason: Vec<ReasonCount>,
    /// The statements, in plan order.
    pub claims: Vec<Claim>,
    /// What selectors chose and what came of it; empty where the plan has none or a breaker opened.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub selections: Vec<Selection>,
    /// How far the run went, where the plan lets it stop early.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<StopReport>,
    /// What was found in a sample of what had not been; absent where the plan asks for no audit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit: Option<AuditReport>,
    /// Why nothing here may be taken for a fact; absent where no breaker opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quarantine: Option<Quarantine>,
}

/// What an open breaker left: facts that are kept for inquiry and are not to be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quarantine {
    /// Which breaker, and what it saw.
    pub trip: Trip,
    /// The same for a person; every claim is refused for it.
    pub reason: String,
}

impl Quarantine {
    /// The quarantine that a breaker puts a run under.
    pub fn of(trip: &Trip) -> Self {
        Self {
            trip: trip.clone(),
            reason: trip.to_string(),
        }
    }
}

impl CitedAnswer {
    /// Recomputes `result_hash` from the other parts.
    pub fn hash_result(&self) -> ContentHash {
        let mut canonical = Canonical::new("operator 2026 result v2");
        canonical
            .text(&self.question)
            .bytes(self.plan_hash.as_bytes());
        canonical
            .bytes(self.backend.digest.as_bytes())
            .bool(self.simulated);
        canonical.u64(self.coverage.units);
        for status in Status::ALL {
            canonical.text(status.name()).u64(self.coverage.of(status));
        }
        canonical.list(self.claims.len());
        for claim in &self.claims {
            canonical
                .text(&claim.name)
                .text(&claim.text)
                .value(&claim.value)
                .optional_text(claim.refused.as_deref());
            canonical.u64(claim.cites_total).list(claim.cites.len());
            for cite in &claim.cites {
                encode_cite(&mut canonical, cite);
            }
        }
        if !self.selections.is_empty() {
            // A list of texts and integers always has a value.
            let selections = serde_json::to_value(&self.selections).unwrap_or_default();
            canonical.text("selections").value(&selections);
        }
        if let Some(stop) = &self.stop {
            stop.encode(&mut canonical);
        }
        if let Some(audit) = &self.audit {
            canonical.text("audit").value(&audit.content());
        }
        if let Some(quarantine) = &self.quarantine {
            canonical.text("quarantine").text(&quarantine.reason);
        }
        ContentHash::of(&canonical)
    }

    /// Checks the answer against the records; returns every problem found, each naming its place.
    ///
    /// Knows units that are records; an answer over others is checked by [`crate::verify`].
    ///
    /// Checked: the hash, that statuses add up, that `complete` says what the counts say, and that
    /// each cited unit exists, has the cited hash and holds the quote at the cited bytes.
    pub fn verify(&self, partition: &Partition) -> Vec<String> {
        let mut problems = Vec::new();
        let hash = self.hash_result();
        if hash != self.result_hash {
            problems.push(format!(
                "result_hash is {}, the content hashes to {hash}",
                self.result_hash
            ));
        }
        let sum: u64 = Status::ALL
            .iter()
            .map(|status| self.coverage.of(*status))
            .sum();
        let records = (partition.units.len() + partition.bad.len()) as u64;
        if sum != self.coverage.units || sum != records {
            problems.push(format!(
                "statuses sum to {sum}, coverage says {} units, the source has {records}",
                self.coverage.units
            ));
        }
        let complete = self
            .stop
            .as_ref()
            .map_or_else(|| self.coverage.complete(), |stop| stop.complete);
        if self.complete != complete {
            problems.push(format!(
                "complete is {}, the counts say otherwise",
                self.complete
            ));
        }
        let units: BTreeMap<&UnitId, &Unit> = partition
            .units
            .iter()
            .map(|unit| (&unit.id, unit))
            .collect();
        for claim in &self.claims {
            for cite in &claim.cites {
                if let Err(problem) = resolve(cite, &units) {
                    problems.push(format!(
                        "claim {}: unit {}: {problem}",
                        claim.name, cite.unit_id
                    ));
                }
            }
        }
        problems
    }
}

/// Counts facts per status, stage and kind of reason, in report order, most frequent first.
pub fn count_reasons<F: Borrow<Fact>>(facts: impl IntoIterator<Item = F>) -> Vec<ReasonCount> {
    let mut counts: BTreeMap<(Status, String, Option<String>), u64> = BTreeMap::new();
    for fact in facts {
        let fact = fact.borrow();
        let reason = reason_kind(fact).map(str::to_owned);
        *counts
            .entry((fact.status, fact.stage.clone(), reason))
            .or_default() += 1;
    }
    let mut rows: Vec<ReasonCount> = counts
        .into_iter()
        .map(|((status, stage, reason), units)| ReasonCount {
            status,
            stage,
            reason,
            units,
        })
        .collect();
    let place = |status: Status| Status::ALL.iter().position(|known| *known == status);
    rows.sort_by_key(|row| (place(row.status), std::cmp::Reverse(row.units)));
    rows
}

/// The part of a reason that units share: errors, abstentions and indexes add the unit's own details.
fn reason_kind(fact: &Fact) -> Option<&str> {
    let reason = fact.reason.as_deref()?;
    match fact.status {
        Status::Errored | Status::Abstained => reason.split(": ").next(),
        _ => Some(shared_reason(reason)),
    }
}

fn encode_cite(canonical: &mut Canonical, cite: &Cite) {
    canonical
        .text(cite.unit_id.as_str())
        .bytes(cite.source_hash.as_bytes());
    match &cite.span {
        None => {
            canonical.none();
        }
        Some(span) => span.encode(canonical.some()),
    }
    // Written only where it is, so that answers over plain records keep their hashes.
    for span in &cite.also {
        span.encode(canonical.text("also"));
    }
}

fn resolve(cite: &Cite, units: &BTreeMap<&UnitId, &Unit>) -> Result<(), String> {
    let unit = units.get(&cite.unit_id).ok_or("is not in the source")?;
    let found = unit.record.source_hash();
    if found != cite.source_hash {
        return Err(format!(
            "source hash is {found}, the cite says {}",
            cite.source_hash
        ));
    }
    let mut spans = cite.span.iter().chain(&cite.also);
    spans.try_for_each(|span| resolve_span(span, unit))
}

fn resolve_span(span: &Evidence, unit: &Unit) -> Result<(), String> {
    let bytes = text::quote(&unit.record, &span.field, span.start, span.end);
    let place = format!("bytes {}..{} of {}", span.start, span.end, span.field);
    let Some(bytes) = bytes else {
        return Err(format!("{place} do not exist in the record"));
    };
    if ContentHash::of_bytes(bytes.as_bytes()) != span.quote_hash {
        return Err(format!("{place} are {bytes:?}, the cite has another hash"));
    }
    if span.quote.as_ref().is_some_and(|quote| *quote != bytes) {
        return Err(format!(
            "{place} are {bytes:?}, the cite quotes {:?}",
            span.quote
        ));
    }
    Ok(())
}
