//! Which stratum a unit belongs to, by how it ended.
//!
//! A unit without an answer is no negative: it may be what is looked for, and is kept apart.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::fact::{Fact, Status};
use crate::plan::AuditSpec;

/// Units that were not found for the same cause.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stratum {
    /// True for units that ended without an answer.
    pub unknown: bool,
    /// The prefilter or stage that left them out, or the status in which they ended.
    pub cause: String,
    /// Whether they lie near the boundary of what left them out.
    pub near: bool,
}

impl fmt::Display for Stratum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.unknown, self.near) {
            (true, _) => f.write_str(&self.cause),
            (false, true) => write!(f, "{}, near", self.cause),
            (false, false) => write!(f, "{}, far", self.cause),
        }
    }
}

/// Where a unit stands in an audit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// It was found.
    Found,
    /// It was not, and is one of these.
    In(Stratum),
}

/// Places a unit by its fact. `near` says whether the prefilter that settled it calls it near; a model's
/// negative is near where its margin is small.
pub fn place(spec: &AuditSpec, fact: &Fact, near: bool) -> Place {
    let cause = match fact.status {
        Status::Decided | Status::Excluded => fact.stage.clone(),
        other => {
            return Place::In(Stratum {
                unknown: true,
                cause: other.name().to_owned(),
                near: false,
            });
        }
    };
    let value = fact.values.get(&spec.field);
    if fact.status == Status::Decided && value.is_some_and(|value| value.label == spec.positive) {
        return Place::Found;
    }
    // What a selector left out has its margin in the step of the selector's own name.
    let step = fact.path.iter().rev().find(|step| step.stage == fact.stage);
    let value = value.or_else(|| step.and_then(|step| step.values.get(&step.stage)));
    let margin = value.and_then(|value| value.margin_ppm);
    let unsure = margin.is_some_and(|margin| margin < spec.near_margin_ppm);
    Place::In(Stratum {
        unknown: false,
        near: near || unsure,
        cause,
    })
}
