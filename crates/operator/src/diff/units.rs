//! Compares units: what of each changed, and what can have changed it.
//!
//! A cause is named only where the runs differ in it: other bytes, another plan, another backend;
//! where none of these differs, it was the course of the run. Must not know trees or claims.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::column::ColumnValue;
use crate::fact::{Evidence, Fact, Status};
use crate::fold::{Hashes, UnitRef};
use crate::id::{ContentHash, UnitId};
use crate::ops::prefilter;
use crate::recorded::RecordedRun;

/// A unit that differs between two runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitDifference {
    /// The unit.
    pub unit_id: UnitId,
    /// In the first run; none where the unit was added.
    pub before: Option<UnitSide>,
    /// In the second run; none where the unit was removed.
    pub after: Option<UnitSide>,
    /// Whether the decision differs, and not only what it rests on.
    pub decision: bool,
    /// What differs; empty where the unit was added or removed.
    pub aspects: Vec<Aspect>,
    /// What can have changed it: each is something in which the runs differ.
    pub causes: Vec<Cause>,
}

/// A unit in one run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitSide {
    /// How it ended.
    pub status: Status,
    /// Where it ended.
    pub stage: String,
    /// Why.
    pub reason: Option<String>,
    /// Label and probability by field, in parts per million.
    pub values: BTreeMap<String, (String, Option<u32>)>,
    /// Its columns.
    pub columns: BTreeMap<String, ColumnValue>,
    /// Hash of its record.
    pub source_hash: ContentHash,
    /// The bytes that back it.
    pub evidence: Vec<Evidence>,
    /// Who answered.
    pub backend: Option<String>,
    /// Its leaf's hashes.
    #[serde(flatten)]
    pub hashes: Hashes,
}

/// Something of a unit that can differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Aspect {
    /// The bytes of its record.
    Source,
    /// How it ended.
    Status,
    /// Where it ended, or why.
    Reason,
    /// A chosen label.
    Labels,
    /// Probabilities or reason codes under the same labels.
    Probabilities,
    /// A column.
    Columns,
    /// The span that backs it.
    Evidence,
    /// How much of it the model was not shown.
    Clipping,
    /// Who answered.
    Answerer,
}

/// What can have changed a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The bytes of its record.
    Source,
    /// The plan.
    Plan,
    /// What an index said of it: it depends on all records and on the files that the index names.
    Index,
    /// Who answered.
    Backend,
    /// The course of the run: a limit, a failure, a cancellation, or another answer of the same
    /// backend to the same plan.
    Course,
}

/// Compares the units of two runs; returns those that differ, in key order, and how many do not.
pub(super) fn compare(before: &RecordedRun, after: &RecordedRun) -> (Vec<UnitDifference>, u64) {
    let mut pairs: BTreeMap<UnitRef, (Option<&Fact>, Option<&Fact>)> = BTreeMap::new();
    for fact in &before.facts {
        pairs.entry(before.spec().place(fact)).or_default().0 = Some(fact);
    }
    for fact in &after.facts {
        // Under the first run's key: the same unit is at one place even where the keys differ.
        let known = before.fact(&fact.unit_id);
        let place = known.map_or_else(
            || after.spec().place(fact),
            |known| before.spec().place(known),
        );
        pairs.entry(place).or_default().1 = Some(fact);
    }
    let all = pairs.len() as u64;
    let units: Vec<UnitDifference> = pairs
        .into_values()
        .filter_map(|(old, new)| compare_unit(before, after, old, new))
        .collect();
    let same = all - units.len() as u64;
    (units, same)
}

fn compare_unit(
    before: &RecordedRun,
    after: &RecordedRun,
    old: Option<&Fact>,
    new: Option<&Fact>,
) -> Option<UnitDifference> {
    let (left, right) = (old.map(side), new.map(side));
    let hashes = |side: &Option<UnitSide>| side.as_ref().map(|side| side.hashes);
    let (a, b) = (hashes(&left), hashes(&right));
    if a.map(|hashes| hashes.provenance_hash) == b.map(|hashes| hashes.provenance_hash) {
        return None;
    }
    let decision = a.map(|hashes| hashes.fact_hash) != b.map(|hashes| hashes.fact_hash);
    let (aspects, causes) = match (old, new) {
        (Some(old), Some(new)) => {
            let aspects = aspects(old, new);
            let causes = causes(before, after, old, new);
            (aspects, causes)
        }
        _ => (Vec::new(), vec![Cause::Source]),
    };
    Some(UnitDifference {
        unit_id: old.or(new)?.unit_id.clone(),
        before: left,
        after: right,
        decision,
        aspects,
        causes,
    })
}

fn side(fact: &Fact) -> UnitSide {
    let value = |(field, value): (&String, &crate::fact::FieldValue)| {
        (field.clone(), (value.label.clone(), value.probability_ppm))
    };
    UnitSide {
        status: fact.status,
        stage: fact.stage.clone(),
        reason: fact.reason.clone(),
        values: fact.values.iter().map(value).collect(),
        columns: fact.columns.clone(),
        source_hash: fact.source_hash,
        evidence: fact.evidence.clone(),
        backend: fact.backend.clone(),
        hashes: Hashes::of(fact),
    }
}

fn aspects(old: &Fact, new: &Fact) -> Vec<Aspect> {
    let labels = |fact: &Fact| -> Vec<(String, String)> {
        let values = fact.values.iter();
        values
            .map(|(field, value)| (field.clone(), value.label.clone()))
            .collect()
    };
    // Spans and hashes, since a redacted run has no quotes.
    let spans = |fact: &Fact| -> Vec<(String, u32, u32, ContentHash)> {
        let evidence = fact.evidence.iter();
        evidence
            .map(|span| (span.field.clone(), span.start, span.end, span.quote_hash))
            .collect()
    };
    let same_labels = labels(old) == labels(new);
    [
        (Aspect::Source, old.source_hash != new.source_hash),
        (Aspect::Status, old.status != new.status),
        (
            Aspect::Reason,
            old.stage != new.stage || old.reason != new.reason,
        ),
        (Aspect::Labels, !same_labels),
        (
            Aspect::Probabilities,
            same_labels && old.values != new.values,
        ),
        (Aspect::Columns, old.columns != new.columns),
        (Aspect::Evidence, spans(old) != spans(new)),
        (Aspect::Clipping, old.clipped_bytes != new.clipped_bytes),
        (
            Aspect::Answerer,
            old.backend != new.backend || old.simulated != new.simulated,
        ),
    ]
    .into_iter()
    .filter_map(|(aspect, differs)| differs.then_some(aspect))
    .collect()
}

/// What an index said of a unit that a predicate settled.
fn said(fact: &Fact) -> Option<&str> {
    let settled = fact.stage.starts_with("prefilter:");
    prefilter::said(fact.reason.as_deref().filter(|_| settled)?)
}

fn causes(before: &RecordedRun, after: &RecordedRun, old: &Fact, new: &Fact) -> Vec<Cause> {
    let (a, b) = (&before.answer, &after.answer);
    let asked = old.backend.is_some() || new.backend.is_some();
    let unasked = |fact: &Fact| matches!(fact.status, Status::NotRun | Status::Cancelled);
    let mut causes: Vec<Cause> = [
        (Cause::Source, old.source_hash != new.source_hash),
        (Cause::Plan, a.plan_hash != b.plan_hash),
        (Cause::Index, said(old) != said(new)),
        (
            Cause::Backend,
            asked && a.backend.digest != b.backend.digest,
        ),
        // Neither bytes nor plan nor backend leave a unit without an answer.
        (Cause::Course, unasked(old) || unasked(new)),
    ]
    .into_iter()
    .filter_map(|(cause, differs)| differs.then_some(cause))
    .collect();
    if causes.is_empty() {
        causes.push(Cause::Course);
    }
    causes
}
