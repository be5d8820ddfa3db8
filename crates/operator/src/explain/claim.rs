//! Explains a claim: what it says, what it rests on, whom it leaves out and why, and which nodes
//! carry it.
//!
//! Must not know pages.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::lack::{Lack, lacks};
use super::node::counted;
use super::standing::counts;
use crate::answer::Claim;
use crate::coverage::Counts;
use crate::fact::Status;
use crate::plan::Operation;
use crate::recorded::{RecordedRun, node_name};
use crate::reducers::Selection;

/// Most nodes that are listed.
const CARRIERS_MAX: usize = 64;

/// All that a run knows of one claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimExplanation {
    /// The claim with its value and citations.
    pub claim: Claim,
    /// Its operation as a plan spells it.
    pub op: String,
    /// The terms that a unit must meet; empty where every decided unit counts.
    pub selects: String,
    /// Claims from which a model wrote this one; empty when code folded it.
    pub written_from: Vec<String>,
    /// Units of the run per status.
    pub coverage: Counts,
    /// Units that went into the value.
    pub counted: u64,
    /// Units left out, by what they lack first.
    pub left_out: Vec<LeftOut>,
    /// Nodes whose state holds something of the claim, parents before children, capped.
    pub carriers: Vec<Carrier>,
    /// All of them.
    pub carriers_total: u64,
    /// Nodes of the tree.
    pub nodes: u64,
}

/// Units that do not count for the same reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Why, in words.
    pub why: String,
    /// Units.
    pub units: u64,
}

/// A node that carries a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carrier {
    /// Its name.
    pub node: String,
    /// Its level, the root's is 1.
    pub level: u64,
    /// Units that went into its state of this claim.
    pub counted: u64,
    /// Units below it.
    pub units: u64,
}

/// Explains a claim of the run.
pub fn explain_claim(run: &RecordedRun, claim: &Claim) -> ClaimExplanation {
    let reduce = run
        .plan
        .reduces
        .iter()
        .find(|reduce| reduce.name == claim.name);
    let mut counted_units = 0;
    let mut left_out: BTreeMap<String, u64> = BTreeMap::new();
    let written_from = match reduce.map(|reduce| &reduce.op) {
        Some(Operation::Summary { of, .. }) => of.clone(),
        _ => Vec::new(),
    };
    if let Some(reduce) = reduce.filter(|_| written_from.is_empty()) {
        for fact in &run.facts {
            if counts(&run.plan, run.spec(), reduce, fact) {
                counted_units += 1;
            } else if let Some(lack) = lacks(reduce, fact).first() {
                *left_out.entry(kind(lack)).or_default() += 1;
            }
        }
    }
    let mut left_out: Vec<LeftOut> = left_out
        .into_iter()
        .map(|(why, units)| LeftOut { why, units })
        .collect();
    left_out.sort_by_key(|row| std::cmp::Reverse(row.units));
    let place = run
        .reductions()
        .position(|reduce| reduce.name == claim.name);
    let carriers: Vec<Carrier> = place.map_or_else(Vec::new, |place| carriers(run, place));
    ClaimExplanation {
        claim: claim.clone(),
        op: reduce.map_or_else(String::new, |reduce| reduce.op.as_str().to_owned()),
        selects: reduce.map_or_else(String::new, selects),
        written_from,
        coverage: run.answer.coverage,
        counted: counted_units,
        left_out,
        carriers_total: carriers.len() as u64,
        carriers: carriers.into_iter().take(CARRIERS_MAX).collect(),
        nodes: run.nodes.len() as u64,
    }
}

fn selects(reduce: &crate::plan::Reduce) -> String {
    match &reduce.op {
        Operation::Join { left, right, .. } => {
            let side = |side: &crate::plan::JoinSide| {
                let selection = Selection::of(&side.filter).to_string();
                let by = side.key.name();
                if selection.is_empty() {
                    format!("every decided unit by {by}")
                } else {
                    format!("{selection} by {by}")
                }
            };
            format!("left {}; right {}", side(left), side(right))
        }
        _ => Selection::of(&reduce.filter).to_string(),
    }
}

fn carriers(run: &RecordedRun, place: usize) -> Vec<Carrier> {
    run.nodes
        .iter()
        .map(|record| Carrier {
            node: node_name(&record.node.range),
            level: record.path.len() as u64,
            counted: record.node.states.get(place).map_or(0, counted),
            units: record.node.coverage.counts.units,
        })
        .filter(|carrier| carrier.counted > 0)
        .collect()
}

/// The part of a lack that units share.
fn kind(lack: &Lack) -> String {
    match lack {
        Lack::Decision {
            found: Status::NotRun,
        } => String::from("not run"),
        Lack::Decision { found } => found.to_string(),
        Lack::Value { name, wanted, .. } => format!("{name} is not {wanted}"),
        Lack::Measure { name, .. } => format!("no value of {name}"),
    }
}
