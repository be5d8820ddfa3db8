//! Control: when a run may stop before every unit has an answer, and how often a unit is asked.
//!
//! ```toml
//! [control]
//! attempts_max = 3                  # asks again what the backend could not be reached for; 1 where left out
//! unit_ms_max = 30_000              # a unit is not asked any more so long after its first question
//! stop = [
//!   { reduce = "blockers", rule = "threshold", at_least = 3 },   # of a count: "at least 3"
//!   { reduce = "some", rule = "examples", k = 3 },               # of a set of units: "3 examples"
//!   { reduce = "latest", rule = "top_k" },                       # of a top_k by a column
//!   { reduce = "share", rule = "confidence", half_width = 0.05, alpha = 0.05,
//!     looks = [100, 200, 400], seed = "2026-12" },               # of a count with a where
//! ]
//! ```
//!
//! A run stops when every rule is met. What a rule's claim promises is declared here before the run; a
//! plan in which another claim would then be partial is refused. Must not know how units are asked.

use serde::Deserialize;
use toml::Spanned;

use super::file::Share;
use super::{Measure, Operation, Order, Plan};
use crate::canonical::Canonical;

/// Stopping rules and attempts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Control {
    /// The rules, in order; empty asks every unit.
    pub stop: Vec<StopRule>,
    /// How often a unit is asked whose backend could not be reached; at least 1.
    pub attempts_max: u32,
    /// Milliseconds after its first question or call at which a unit is asked nothing more; an answer that
    /// is under way then still counts.
    pub unit_ms_max: Option<u32>,
}

impl Default for Control {
    fn default() -> Self {
        Self {
            stop: Vec::new(),
            attempts_max: 1,
            unit_ms_max: None,
        }
    }
}

/// When a claim needs no further unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StopRule {
    /// Name of the reduction whose claim is declared so.
    pub reduce: String,
    /// The rule.
    pub rule: Rule,
}

/// What a claim promises instead of all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rule {
    /// At least so many.
    Threshold {
        /// How many; at least 1.
        at_least: u64,
    },
    /// So many examples.
    Examples {
        /// How many; at least 1.
        k: u32,
    },
    /// The best by a column that is known before a unit is asked: units are asked best first.
    TopK,
    /// An interval for a share: units are asked in random order.
    Confidence {
        /// Half of the width at which the interval is narrow enough, in parts per million.
        half_width_ppm: u32,
        /// How probably the interval may miss the share, in parts per million, over all looks.
        alpha_ppm: u32,
        /// Sample sizes at which the interval is looked at, strictly ascending.
        looks: Vec<u64>,
        /// What the order follows from.
        seed: String,
    },
}

impl Rule {
    /// The rule as a plan spells it.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Threshold { .. } => "threshold",
            Self::Examples { .. } => "examples",
            Self::TopK => "top_k",
            Self::Confidence { .. } => "confidence",
        }
    }

    /// Whether units have to be asked in an order of the rule's own.
    pub const fn orders(&self) -> bool {
        matches!(self, Self::TopK | Self::Confidence { .. })
    }
}

impl StopRule {
    /// The rule and its claim, for a person.
    pub fn describe(&self) -> String {
        format!("{} of {}", self.rule.as_str(), self.reduce)
    }
}

impl Control {
    /// Whether a run may stop before every unit has an answer.
    pub fn stops(&self) -> bool {
        !self.stop.is_empty()
    }

    /// The rule of a reduction, where it has one.
    pub fn rule_of(&self, reduce: &str) -> Option<&Rule> {
        let mut rules = self.stop.iter();
        let found = rules.find(|rule| rule.reduce == reduce)?;
        Some(&found.rule)
    }

    /// Nothing for a plan without rules: such plans keep the hash that they had. How often a unit is
    /// asked is a limit.
    pub(super) fn encode(&self, canonical: &mut Canonical) {
        if self.stop.is_empty() {
            return;
        }
        canonical.text("control").list(self.stop.len());
        for StopRule { reduce, rule } in &self.stop {
            canonical.text(reduce).text(rule.as_str());
            match rule {
                Rule::Threshold { at_least } => {
                    canonical.u64(*at_least);
                }
                Rule::Examples { k } => {
                    canonical.u32(*k);
                }
                Rule::TopK => {}
                Rule::Confidence {
                    half_width_ppm,
                    alpha_ppm,
                    looks,
                    seed,
                } => {
                    canonical.u32(*half_width_ppm).u32(*alpha_ppm).text(seed);
                    canonical.list(looks.len());
                    for look in looks {
                        canonical.u64(*look);
                    }
                }
            }
        }
    }
}

impl Plan {
    /// The column, the number of units and the order of a reduction under [`Rule::TopK`].
    pub(crate) fn ranking(&self, reduce: &str) -> Option<(&super::Reduce, &Measure, u32, Order)> {
        let reduce = self.reduces.iter().find(|other| other.name == reduce)?;
        match &reduce.op {
            Operation::TopK { by, k, order } => Some((reduce, by, *k, *order)),
            _ => None,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ControlFile {
    pub(super) attempts_max: Option<Spanned<u32>>,
    pub(super) unit_ms_max: Option<Spanned<u32>>,
    #[serde(default)]
    pub(super) stop: Vec<Spanned<StopFile>>,
}

/// A rule with the keys of all kinds; which of them a rule has is checked later.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StopFile {
    pub(super) reduce: Spanned<String>,
    pub(super) rule: Spanned<String>,
    pub(super) at_least: Option<Spanned<u32>>,
    pub(super) k: Option<Spanned<u32>>,
    pub(super) half_width: Option<Spanned<Share>>,
    pub(super) alpha: Option<Spanned<Share>>,
    pub(super) looks: Option<Spanned<Vec<u32>>>,
    pub(super) seed: Option<Spanned<String>>,
}
