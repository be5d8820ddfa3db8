//! Explains a node: its inputs, what it covers, what its states say, and which bytes it cites.
//!
//! What a state says is what the reducer would answer if there were no other units. Must not know
//! pages.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::coverage::Counts;
use crate::error::OperatorError;
use crate::fact::{Cite, Fact, Status};
use crate::fold::{Child, Hashes, KeyRange, Leaves, NodeRecord, Reducer};
use crate::id::UnitId;
use crate::infer::UnitUsage;
use crate::recorded::{RecordedRun, node_name};
use crate::reducers::AggregateState;

/// All that a run knows of one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeExplanation {
    /// Its name.
    pub node: String,
    /// Keys that it speaks for.
    pub range: KeyRange,
    /// Its level, the root's is 1.
    pub level: u64,
    /// Levels of the tree.
    pub levels: u64,
    /// Names from the root down to the node.
    pub path: Vec<String>,
    /// Its hashes.
    #[serde(flatten)]
    pub hashes: Hashes,
    /// Whether a store may know them: what was replayed or scripted is never stored.
    pub storable: bool,
    /// What it was made from, in key order.
    pub children: Vec<ChildPart>,
    /// Units below, per status.
    pub coverage: Counts,
    /// The first and the last unit below.
    pub ends: Option<(UnitId, UnitId)>,
    /// What its states say, in plan order.
    pub states: Vec<StateBrief>,
    /// What it cites, with quotes where the run has them.
    pub citations: Vec<Cite>,
    /// Units below that back some state, cited or not.
    pub cited_total: u64,
    /// Units below that abstained or errored, capped.
    pub unsettled: Vec<Unsettled>,
    /// All of them.
    pub unsettled_total: u64,
    /// What the answers below cost when they were computed.
    pub cost: UnitUsage,
}

/// One input of a node and what it adds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildPart {
    /// The unit's id, or the node's name.
    pub name: String,
    /// Whether it is the fact of one unit.
    pub leaf: bool,
    /// The units that it adds, per status.
    pub coverage: Counts,
    /// Its hashes.
    #[serde(flatten)]
    pub hashes: Hashes,
}

/// What one state of a node says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateBrief {
    /// Name of the reduction.
    pub claim: String,
    /// Its operation as a plan spells it.
    pub op: String,
    /// Units that went into the state.
    pub counted: u64,
    /// Different units that the state names.
    pub named: u64,
    /// What the reduction would answer over the units below.
    pub value: Value,
    /// Why it would not answer.
    pub refused: Option<String>,
}

/// A unit that stayed without a decision after it was read or asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unsettled {
    /// The unit.
    pub unit_id: UnitId,
    /// How it ended.
    pub status: Status,
    /// Why.
    pub reason: Option<String>,
}

/// Explains a node of the run.
///
/// # Errors
/// What reading a fact may cause; `CoverageOverlap` when the run has two facts for one unit.
pub fn explain_node(
    run: &RecordedRun,
    record: &NodeRecord,
) -> Result<NodeExplanation, OperatorError> {
    let node = &record.node;
    let coverage = &node.coverage;
    let ends = coverage.first.iter().zip(&coverage.last);
    let unsettled = node.unsettled.units().filter_map(|unit| {
        let fact = run.fact(&unit.id)?;
        Some(Unsettled {
            unit_id: unit.id.clone(),
            status: fact.status,
            reason: fact.reason.clone(),
        })
    });
    let levels = run.nodes.iter().map(|record| record.path.len()).max();
    Ok(NodeExplanation {
        node: node_name(&node.range),
        range: node.range,
        level: record.path.len() as u64,
        levels: levels.unwrap_or(0) as u64,
        path: record.path.iter().map(node_name).collect(),
        hashes: node.hashes,
        storable: !run.answer.simulated,
        children: node.children.iter().map(|child| part(run, child)).collect(),
        coverage: coverage.counts,
        ends: ends
            .map(|(first, last)| (first.id.clone(), last.id.clone()))
            .next(),
        states: states(run, record)?,
        citations: quoted(run, &record.citations),
        cited_total: node.cited_total,
        unsettled: unsettled.collect(),
        unsettled_total: node.unsettled.total,
        cost: node.cost,
    })
}

/// How many units went into a state.
pub(super) fn counted(state: &AggregateState) -> u64 {
    match state {
        AggregateState::Count(units) | AggregateState::TopK(units) => units.total,
        AggregateState::Extreme(state) => state.units.total,
        AggregateState::CountBy(groups)
        | AggregateState::Set(groups)
        | AggregateState::TopKeys(groups)
        | AggregateState::Histogram(groups) => groups.total,
        AggregateState::Sum(state) => state.units.total,
        AggregateState::Quantiles(state) => state.units.total,
        AggregateState::HeavyHitters(state) => state.total,
        AggregateState::Distinct(state) => state.units.total,
        // A unit on both sides went in twice.
        AggregateState::Join(state) => state.left.total + state.right.total,
        AggregateState::Clusters(state) => state.clusters.total + state.abstained.total,
        AggregateState::Components(state) => state.joining.total + state.against.len() as u64,
    }
}

fn part(run: &RecordedRun, child: &Child) -> ChildPart {
    let mut coverage = Counts::default();
    let name = match child {
        Child::Leaf { unit, .. } => {
            if let Some(fact) = run.fact(&unit.id) {
                coverage.add(fact.status);
            }
            unit.id.to_string()
        }
        Child::Node { range, .. } => {
            if let Some(record) = run.node(range) {
                coverage = record.node.coverage.counts;
            }
            node_name(range)
        }
    };
    ChildPart {
        name,
        leaf: matches!(child, Child::Leaf { .. }),
        coverage,
        hashes: *child.hashes(),
    }
}

fn states(run: &RecordedRun, record: &NodeRecord) -> Result<Vec<StateBrief>, OperatorError> {
    let below: Vec<Fact> = run.below(&record.node.range).into_iter().cloned().collect();
    let leaves = Leaves::arrange(run.spec(), &below)?;
    let reducers = &run.spec().reducers;
    let states = reducers.iter().zip(&record.node.states);
    run.reductions()
        .zip(states)
        .map(|(reduce, (reducer, state))| {
            let (value, refused) = match reducer.finish(state, &leaves) {
                Ok(folded) => (folded.value, None),
                Err(
                    refusal
                    @ (OperatorError::FoldOverflow { .. } | OperatorError::NotSealed { .. }),
                ) => (Value::Null, Some(refusal.to_string())),
                Err(error) => return Err(error),
            };
            let mut named = state.named(usize::MAX);
            named.sort_unstable();
            named.dedup();
            Ok(StateBrief {
                claim: reduce.name.clone(),
                op: reduce.op.as_str().to_owned(),
                counted: counted(state),
                named: named.len() as u64,
                value,
                refused,
            })
        })
        .collect()
}

/// Puts the quotes, which nodes leave out, back from the facts.
fn quoted(run: &RecordedRun, citations: &[Cite]) -> Vec<Cite> {
    citations
        .iter()
        .map(|cite| {
            run.fact(&cite.unit_id)
                .map_or_else(|| cite.clone(), Fact::cite)
        })
        .collect()
}
