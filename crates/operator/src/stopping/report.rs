//! What a run that could stop did, told again from its facts alone.

use serde::{Deserialize, Serialize};

use super::order::past;
use super::rules::Rules;
use crate::canonical::Canonical;
use crate::error::OperatorError;
use crate::fact::{Fact, Status};
use crate::plan::{Plan, Rule, StopRule};

/// How far a run with stopping rules went, and what it may claim therefore.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StopReport {
    /// Units that went past the predicates; each had its turn.
    pub population: u64,
    /// Units whose turn came before every rule was met; none where the run did not stop by rule.
    pub stopped_after: Option<u64>,
    /// What each rule came to, in plan order.
    pub rules: Vec<RuleReport>,
    /// True when everything is there that the claims promise under their rules.
    pub complete: bool,
    /// The same for a person.
    pub text: String,
}

/// What one rule came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleReport {
    /// The reduction.
    pub reduce: String,
    /// The rule's kind.
    pub rule: String,
    /// What is known of a share; only of rule `confidence`, from its first look on.
    pub interval: Option<Interval>,
}

/// Bounds of how many units match, from a random sample of the population.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interval {
    /// Units in the sample.
    pub sample: u64,
    /// Of these, matching.
    pub matching: u64,
    /// Of these, without a decision; they count as matching above and as not matching below.
    pub unknown: u64,
    /// Matching units in the population, at least.
    pub low: u64,
    /// Matching units in the population, at most.
    pub high: u64,
    /// The lower bound as a share, rounded down.
    pub low_ppm: u32,
    /// The upper bound as a share, rounded up.
    pub high_ppm: u32,
}

impl StopReport {
    /// Writes what was found into a hash.
    pub(crate) fn encode(&self, canonical: &mut Canonical) {
        canonical.text("stop").u64(self.population);
        match self.stopped_after {
            Some(units) => canonical.some().u64(units),
            None => canonical.none(),
        };
        canonical.list(self.rules.len());
        for rule in &self.rules {
            canonical.text(&rule.reduce).text(&rule.rule);
            match &rule.interval {
                Some(interval) => canonical
                    .some()
                    .u64(interval.sample)
                    .u64(interval.matching)
                    .u64(interval.unknown)
                    .u64(interval.low)
                    .u64(interval.high),
                None => canonical.none(),
            };
        }
        canonical.bool(self.complete).text(&self.text);
    }

    /// What a rule came to, by the reduction's name.
    pub(crate) fn rule_of(&self, reduce: &str) -> Option<&RuleReport> {
        self.rules.iter().find(|rule| rule.reduce == reduce)
    }
}

/// Why a unit was left out, as its fact says it.
pub(crate) fn reason(plan: &Plan) -> String {
    let rules: Vec<String> = plan.control.stop.iter().map(StopRule::describe).collect();
    format!("stopped by rule: {}", rules.join(" and "))
}

/// Takes the units in their turns again and tells where the run stopped; none where the plan has no
/// rules. `visit` shows every fact once, in any order.
///
/// # Errors
/// What visiting may cause.
pub(crate) fn conclude(
    plan: &Plan,
    visit: impl FnOnce(&mut dyn FnMut(&Fact) -> Result<(), OperatorError>) -> Result<(), OperatorError>,
) -> Result<Option<StopReport>, OperatorError> {
    let Some(mut rules) = Rules::of(plan) else {
        return Ok(None);
    };
    let reason = reason(plan);
    let (mut turns, mut before) = (Vec::new(), Vec::new());
    // Units that have no answer for another reason than a rule.
    let mut unanswered = false;
    visit(&mut |fact| {
        let seen = rules.see(fact);
        let by_rule = fact.reason.as_deref() == Some(&reason);
        unanswered |= match fact.status {
            Status::Errored => true,
            Status::Cancelled | Status::NotRun => !by_rule,
            Status::Decided | Status::Abstained | Status::Excluded => false,
        };
        match past(fact) {
            true => turns.push((rules.ordering.turn(fact), seen)),
            false => before.push(seen),
        }
        Ok(())
    })?;
    turns.sort_unstable_by_key(|(turn, _)| *turn);
    before.iter().for_each(|seen| rules.settled(seen));
    let population = turns.len() as u64;
    rules.begin(population);
    let mut stopped_after = None;
    for (after, (turn, seen)) in (0_u64..).zip(&turns) {
        if rules.met(turn) {
            stopped_after = Some(after);
            break;
        }
        rules.observe(seen);
    }
    // What would be best may be among those that have no answer; other promises hold without them.
    let ranks = plan.control.stop.iter().any(|rule| rule.rule == Rule::TopK);
    let complete = match stopped_after {
        Some(_) => !(ranks && unanswered),
        None => !unanswered,
    };
    Ok(Some(StopReport {
        population,
        stopped_after,
        rules: rules.report(),
        complete,
        text: text(plan, population, stopped_after, complete),
    }))
}

fn text(plan: &Plan, population: u64, stopped_after: Option<u64>, complete: bool) -> String {
    let rules: Vec<String> = plan.control.stop.iter().map(StopRule::describe).collect();
    let rules = rules.join(" and ");
    let Some(after) = stopped_after else {
        return format!("every one of {population} units had its turn; not stopped by {rules}");
    };
    let holds = match complete {
        true => "the claims are complete for what they promise",
        false => "units before have no answer, so that the claims are incomplete",
    };
    format!("stopped after {after} of {population} units by {rules}: {holds}")
}
