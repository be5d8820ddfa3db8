//! Explains a unit: how it ended and why, the bytes behind it, and its way up to the answer.
//!
//! Must not know pages.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::standing::{Standing, standings};
use crate::column::ColumnValue;
use crate::coverage::Counts;
use crate::fact::{Evidence, Fact, FieldValue, Status, Step};
use crate::fold::{Hashes, NodeRecord, Reducer, UnitRef};
use crate::id::{ContentHash, UnitId};
use crate::infer::UnitUsage;
use crate::ops::map;
use crate::plan::AUDIT_STAGE;
use crate::recorded::{RecordedRun, node_name};

/// All that a run knows of one unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitExplanation {
    /// The unit.
    pub unit_id: UnitId,
    /// Position of its record in the source, from 0.
    pub ordinal: u32,
    /// The source as the run read it.
    pub source: String,
    /// Hash of its record, or of all that it was made of.
    pub source_hash: ContentHash,
    /// The records that it was made of, or that stood beside it.
    pub members: Vec<UnitId>,
    /// How it ended.
    pub status: Status,
    /// Where it ended.
    pub stage: String,
    /// The reason as recorded.
    pub reason: Option<String>,
    /// Status, stage and reason in words.
    pub why: String,
    /// What each stage made of it, in order; empty in a plan of one stage.
    pub steps: Vec<Step>,
    /// Its decided values by field; those of an abstention count nowhere.
    pub values: BTreeMap<String, FieldValue>,
    /// Its columns.
    pub columns: BTreeMap<String, ColumnValue>,
    /// The bytes that back it; without quotes where the run is redacted.
    pub evidence: Vec<Evidence>,
    /// Bytes of its text that the model was not shown.
    pub clipped_bytes: u64,
    /// Who answered; none when nobody was asked.
    pub backend: Option<String>,
    /// Whether the answer was replayed or scripted.
    pub simulated: bool,
    /// Whether the answer was looked up.
    pub remembered: bool,
    /// The unit of the same text whose answer it has.
    pub same_as: Option<UnitId>,
    /// What it cost in this run.
    pub usage: UnitUsage,
    /// What its answer cost when it was computed.
    pub cost: UnitUsage,
    /// Its leaf's hashes.
    #[serde(flatten)]
    pub hashes: Hashes,
    /// The nodes above it, the nearest first, the root last.
    pub path: Vec<NodeStep>,
    /// How it stands to every claim.
    pub claims: Vec<Standing>,
}

/// One node on a unit's way up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStep {
    /// Its name.
    pub node: String,
    /// Its inputs.
    pub inputs: u64,
    /// Units below it, per status.
    pub coverage: Counts,
    /// Its hashes.
    #[serde(flatten)]
    pub hashes: Hashes,
    /// Whether the node itself cites the unit.
    pub cited: bool,
    /// Whether it is among the units that the node names as abstained or errored.
    pub unsettled: bool,
    /// What the state of each reduction holds of the unit, in plan order.
    pub states: Vec<StateStep>,
}

/// What one state of a node holds of a unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateStep {
    /// Name of the reduction.
    pub claim: String,
    /// Whether the unit went into the state.
    pub counted: bool,
    /// Whether the state still names it.
    pub named: bool,
}

/// Explains a unit of the run.
pub fn explain_unit(run: &RecordedRun, fact: &Fact) -> UnitExplanation {
    let unit = run.spec().place(fact);
    let counted: Vec<bool> = run
        .spec()
        .reducers
        .iter()
        .map(|reducer| reducer.absorb(&mut reducer.empty(), &unit, fact))
        .collect();
    let mut path: Vec<NodeStep> = run
        .path(&unit)
        .into_iter()
        .map(|record| step(run, record, &unit, &counted))
        .collect();
    path.reverse();
    UnitExplanation {
        unit_id: fact.unit_id.clone(),
        ordinal: fact.ordinal,
        source: run.answer.source.path.clone(),
        source_hash: fact.source_hash,
        members: fact.members.clone(),
        status: fact.status,
        stage: fact.stage.clone(),
        reason: fact.reason.clone(),
        why: tell(fact),
        steps: fact.path.clone(),
        values: fact.values.clone(),
        columns: fact.columns.clone(),
        evidence: fact.evidence.clone(),
        clipped_bytes: fact.clipped_bytes,
        backend: fact.backend.clone(),
        simulated: fact.simulated,
        remembered: fact.remembered,
        same_as: fact.same_as.clone(),
        usage: fact.usage,
        cost: fact.cost,
        hashes: Hashes::of(fact),
        path,
        claims: standings(&run.plan, run.spec(), &run.answer.claims, fact),
    }
}

fn step(run: &RecordedRun, record: &NodeRecord, unit: &UnitRef, counted: &[bool]) -> NodeStep {
    let node = &record.node;
    let names = run.reductions();
    let states = node.states.iter().zip(counted).zip(names);
    NodeStep {
        node: node_name(&node.range),
        inputs: node.children.len() as u64,
        coverage: node.coverage.counts,
        hashes: node.hashes,
        cited: record.citations.iter().any(|cite| cite.unit_id == unit.id),
        unsettled: node.unsettled.units().any(|other| other == unit),
        states: states
            .map(|((state, counted), reduce)| StateStep {
                claim: reduce.name.clone(),
                counted: *counted,
                named: state.named(usize::MAX).contains(&unit),
            })
            .collect(),
    }
}

/// Status, stage and reason as a sentence.
fn tell(fact: &Fact) -> String {
    let reason = fact.reason.as_deref().unwrap_or("no reason was recorded");
    let predicate = fact.stage.strip_prefix("prefilter:");
    match (fact.status, predicate) {
        (Status::Excluded, Some(name)) => format!("the predicate {name} left it out: {reason}"),
        (Status::Excluded, None) => format!("it was left out: {reason}"),
        (Status::Decided, Some(name)) => {
            format!("the predicate {name} decided it without a model: {reason}")
        }
        (Status::Decided, None) if fact.stage == AUDIT_STAGE => format!("it was {reason}"),
        (Status::Decided, None) => {
            let who = fact.backend.as_deref().unwrap_or("nobody");
            let how = match (&fact.same_as, fact.remembered) {
                (Some(same), _) => format!("answered {same}, whose text is the same"),
                (None, true) => String::from("answered in an earlier run, was remembered"),
                (None, false) => String::from("answered"),
            };
            format!("{who} {how}, and every field was sure enough to count")
        }
        (Status::Abstained, _) if fact.backend.is_none() => {
            format!("it was not asked, for it would have been a guess: {reason}")
        }
        (Status::Abstained, _) => format!(
            "it was answered, but too uncertainly to count; its values stand here for the reader \
             alone: {reason}"
        ),
        (Status::Errored, Some(name)) => {
            format!("the predicate {name} cannot be applied to its record: {reason}")
        }
        (Status::Errored, None) if fact.stage == map::STAGE => {
            format!("it got no usable answer: {reason}")
        }
        (Status::Errored, None) => format!("its record cannot be read: {reason}"),
        (Status::Cancelled, _) => {
            format!("its question was withdrawn before the answer came: {reason}")
        }
        (Status::NotRun, _) => format!("it was never asked: {reason}"),
    }
}
