//! Explanations: what a finished run knows of one unit, node or claim, and what that rests on.
//!
//! Pure functions from a recorded run to typed values; nothing is asked anew and nothing is guessed:
//! whether a unit counts is the reducer's own word, which bytes back it is the fact's. Must not know
//! how an explanation is shown.

mod claim;
mod find;
mod lack;
mod node;
mod standing;
mod unit;

pub use claim::{Carrier, ClaimExplanation, LeftOut, explain_claim};
pub use find::{Kind, find};
pub use lack::{Lack, lacks};
pub use node::{ChildPart, NodeExplanation, StateBrief, Unsettled, explain_node};
pub use standing::{Role, Standing, counts, standings};
pub use unit::{NodeStep, StateStep, UnitExplanation, explain_unit};

use serde::{Deserialize, Serialize};

use crate::error::OperatorError;
use crate::recorded::RecordedRun;

/// An explanation of one thing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Explanation {
    /// Of a unit.
    Unit(Box<UnitExplanation>),
    /// Of a node.
    Node(Box<NodeExplanation>),
    /// Of a claim.
    Claim(Box<ClaimExplanation>),
}

/// Explains what a name means in a run: a unit, else a node, else a claim, unless a kind is given.
///
/// # Errors
/// `NotRecorded` naming what was searched and what comes closest.
pub fn explain(
    run: &RecordedRun,
    wanted: &str,
    kind: Option<Kind>,
) -> Result<Explanation, OperatorError> {
    Ok(match find(run, wanted, kind)? {
        find::Found::Unit(fact) => Explanation::Unit(Box::new(explain_unit(run, fact))),
        find::Found::Node(record) => Explanation::Node(Box::new(explain_node(run, record)?)),
        find::Found::Claim(claim) => Explanation::Claim(Box::new(explain_claim(run, claim))),
    })
}
