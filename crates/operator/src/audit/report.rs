//! What an audit proves, from counts alone; every number is an integer.
//!
//! The bounds hold against what the auditor says, and take every unit that was found for rightly
//! found. A unit that the auditor could not decide counts as missed in every bound.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::allot::{Allotment, allot};
use super::bounds::misses_upper;
use super::strata::Stratum;
use crate::id::{ContentHash, UnitId};
use crate::infer::PPM;
use crate::plan::{AuditSpec, Unknown};

/// What the auditor said of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    /// It is what was looked for: it had been missed.
    Missed,
    /// It is not.
    Sound,
    /// It gave no answer.
    Unresolved,
}

/// A unit that was read again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditedUnit {
    /// The unit.
    pub unit_id: UnitId,
    /// Position of its record in the source.
    pub ordinal: u32,
    /// Its stratum, by position in the report.
    pub stratum: u32,
    /// What the auditor said.
    pub finding: Finding,
}

/// One stratum with what was found in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StratumReport {
    /// Which.
    pub stratum: Stratum,
    /// Units in it.
    pub population: u64,
    /// Of these, read.
    pub audited: u64,
    /// Of these, missed before.
    pub missed: u64,
    /// Of these, without an answer.
    pub unresolved: u64,
    /// Most misses that there are in all, at this stratum's share of the allowed error.
    pub misses_upper: u64,
}

/// Who reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reader {
    /// For a person.
    pub name: String,
    /// Hash of the label file, or of the model and its rubric.
    pub hash: ContentHash,
    /// Whether its answers are replayed or scripted.
    pub simulated: bool,
}

/// What a stratum's sample came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// Units in it.
    pub population: u64,
    /// Of these, read.
    pub audited: u64,
    /// Of these, missed before.
    pub missed: u64,
    /// Of these, without an answer.
    pub unresolved: u64,
}

/// The numbers of an audit over all strata.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Statistic {
    /// Units that the run found.
    pub found: u64,
    /// Units that it did not, those without an answer included.
    pub not_found: u64,
    /// Of these, read.
    pub audited: u64,
    /// Of these, missed before; now in the answer.
    pub missed: u64,
    /// Of these, without an answer from the auditor.
    pub unresolved: u64,
    /// Most misses that there are in all.
    pub misses_upper: u64,
    /// Most misses among what was not found, in parts per million, rounded up.
    pub elusion_upper_ppm: u32,
    /// Least recall of the run before the audit, in parts per million, rounded down.
    pub recall_lower_ppm: u32,
    /// Least recall of the answer with the misses in it, rounded down.
    pub recall_lower_with_missed_ppm: u32,
    /// Recall by extrapolation, which may be far off; none where a stratum was not read.
    pub recall_naive_ppm: Option<u32>,
}

/// An audit with everything needed to compute it again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditReport {
    /// The field that was audited.
    pub field: String,
    /// The label that may not be missed.
    pub positive: String,
    /// Who read; everything here is relative to that.
    pub auditor: String,
    /// Hash of the label file, the rubric or the other model.
    pub auditor_hash: ContentHash,
    /// Whether the auditor's answers were replayed or scripted.
    pub simulated: bool,
    /// Hash of the audit's parameters as they stood in the plan before the run.
    pub declared: ContentHash,
    /// The recall to be certified, in parts per million.
    pub target_recall_ppm: u32,
    /// How probably the bound may be wrong, in parts per million.
    pub alpha_ppm: u32,
    /// Whether the recall before the audit is certified.
    pub certified: bool,
    /// About how many units the auditor would have to read, were no more missed; none where no number
    /// is enough, and where it is certified.
    pub units_to_certify: Option<u64>,
    /// The numbers over all strata.
    pub statistic: Statistic,
    /// The strata in order.
    pub strata: Vec<StratumReport>,
    /// Every unit that was read.
    pub units: Vec<AuditedUnit>,
    /// The same in a sentence.
    pub text: String,
}

impl AuditReport {
    /// Everything in it as a value, for hashing.
    pub fn content(&self) -> Value {
        // A struct of texts, integers and lists always has a value.
        serde_json::to_value(self).unwrap_or_default()
    }
}

/// The bounds of strata that were sampled, and the sum over them.
///
/// The allowed error is shared by those that were read in part: of what was read whole, or not at all,
/// nothing is uncertain.
pub fn statistic(found: u64, outcomes: &[Outcome], alpha_ppm: u32) -> (Vec<u64>, Statistic) {
    let in_part = |outcome: &&Outcome| outcome.audited > 0 && outcome.audited < outcome.population;
    let shares = outcomes.iter().filter(in_part).count().max(1);
    let alpha = (alpha_ppm / u32::try_from(shares).unwrap_or(u32::MAX)).max(1);
    let uppers: Vec<u64> = outcomes
        .iter()
        .map(|o| misses_upper(o.population, o.audited, o.missed + o.unresolved, alpha))
        .collect();
    let sum = |part: fn(&Outcome) -> u64| outcomes.iter().map(part).sum::<u64>();
    let (missed, upper) = (sum(|o| o.missed), uppers.iter().sum());
    let statistic = Statistic {
        found,
        not_found: sum(|o| o.population),
        audited: sum(|o| o.audited),
        missed,
        unresolved: sum(|o| o.unresolved),
        misses_upper: upper,
        elusion_upper_ppm: share_up(upper, sum(|o| o.population)),
        recall_lower_ppm: share_down(found, found + upper),
        recall_lower_with_missed_ppm: share_down(found + missed, found + upper),
        recall_naive_ppm: naive(found, outcomes),
    };
    (uppers, statistic)
}

/// Makes the report of an audit; `strata`, `outcomes` and the indices in `units` agree.
pub fn conclude(
    spec: &AuditSpec,
    reader: Reader,
    found: u64,
    strata: &[Stratum],
    outcomes: &[Outcome],
    units: Vec<AuditedUnit>,
) -> AuditReport {
    let (uppers, statistic) = statistic(found, outcomes, spec.alpha_ppm);
    let certified = statistic.recall_lower_ppm >= spec.target_recall_ppm;
    let rows = strata.iter().zip(outcomes).zip(&uppers);
    let strata_reports = rows
        .map(|((stratum, outcome), upper)| StratumReport {
            stratum: stratum.clone(),
            population: outcome.population,
            audited: outcome.audited,
            missed: outcome.missed,
            unresolved: outcome.unresolved,
            misses_upper: *upper,
        })
        .collect();
    let mut report = AuditReport {
        field: spec.field.clone(),
        positive: spec.positive.clone(),
        auditor: reader.name,
        auditor_hash: reader.hash,
        simulated: reader.simulated,
        declared: spec.hash(),
        target_recall_ppm: spec.target_recall_ppm,
        alpha_ppm: spec.alpha_ppm,
        certified,
        units_to_certify: match certified {
            true => None,
            false => units_to_certify(spec, found, strata, outcomes),
        },
        statistic,
        strata: strata_reports,
        units,
        text: String::new(),
    };
    report.text = word(&report);
    report
}

/// The smallest number of units that would certify the target, under the same division among strata
/// and with no further miss.
fn units_to_certify(
    spec: &AuditSpec,
    found: u64,
    strata: &[Stratum],
    outcomes: &[Outcome],
) -> Option<u64> {
    let inspect = spec.unknown == Unknown::Inspect;
    let sizes: Vec<Allotment> = strata
        .iter()
        .zip(outcomes)
        .map(|(stratum, outcome)| Allotment {
            population: outcome.population,
            near: stratum.near,
            unknown: stratum.unknown,
        })
        .collect();
    let enough = |budget: u64| {
        let given = allot(&sizes, budget, inspect);
        let wanted: Vec<Outcome> = outcomes
            .iter()
            .zip(given)
            .map(|(outcome, given)| Outcome {
                audited: given.max(outcome.audited),
                ..*outcome
            })
            .collect();
        statistic(found, &wanted, spec.alpha_ppm).1.recall_lower_ppm >= spec.target_recall_ppm
    };
    let (mut low, mut high) = (0, sizes.iter().map(|size| size.population).sum());
    if !enough(high) {
        return None;
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if enough(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    Some(high)
}

fn word(report: &AuditReport) -> String {
    let statistic = &report.statistic;
    let confidence = percent(PPM - report.alpha_ppm);
    let (missed, wanted) = (statistic.missed, percent(report.target_recall_ppm));
    let undecided = match statistic.unresolved {
        0 => String::new(),
        unresolved => format!(", {unresolved} it could not decide"),
    };
    let mut text = format!(
        "of {} units that were not found, {} were read again by {}: {missed} had been missed and are in \
         the answer now{undecided}. With {confidence} confidence at most {} were missed in all (elusion \
         at most {}), and if what was found is right, at least {} of all {} = {} were found without the \
         audit, and {} with it. ",
        statistic.not_found,
        statistic.audited,
        report.auditor,
        statistic.misses_upper,
        percent_up(statistic.elusion_upper_ppm),
        percent(statistic.recall_lower_ppm),
        report.field,
        report.positive,
        percent(statistic.recall_lower_with_missed_ppm),
    );
    text.push_str(&match (report.certified, report.units_to_certify) {
        (true, _) => format!("The target of {wanted} is certified."),
        (false, Some(units)) => format!(
            "The target of {wanted} is NOT certified: about {units} units would have to be read, were no \
             more of them missed."
        ),
        (false, None) => format!(
            "The target of {wanted} is NOT certified, and reading all of the units that may be read would \
             not certify it: too many were missed, or have no answer."
        ),
    });
    text
}

/// Extrapolates each stratum's share of misses.
fn naive(found: u64, outcomes: &[Outcome]) -> Option<u32> {
    let mut millionths = u128::from(found) * u128::from(PPM);
    let whole = millionths;
    for outcome in outcomes {
        if outcome.population == 0 {
            continue;
        }
        let missed = u128::from(outcome.missed) * u128::from(outcome.population) * u128::from(PPM);
        millionths += missed.checked_div(u128::from(outcome.audited))?;
    }
    if millionths == 0 {
        return Some(PPM);
    }
    Some((whole * u128::from(PPM) / millionths) as u32)
}

fn share_down(part: u64, all: u64) -> u32 {
    match all {
        0 => PPM,
        _ => (u128::from(part) * u128::from(PPM) / u128::from(all)) as u32,
    }
}

fn share_up(part: u64, all: u64) -> u32 {
    match all {
        0 => 0,
        _ => (u128::from(part) * u128::from(PPM)).div_ceil(u128::from(all)) as u32,
    }
}

/// A percentage with one decimal, rounded down: a bound from below may only be understated.
fn percent(ppm: u32) -> String {
    decimal(ppm / 1_000)
}

/// As `percent`, rounded up.
fn percent_up(ppm: u32) -> String {
    decimal(ppm.div_ceil(1_000))
}

fn decimal(tenths: u32) -> String {
    match tenths % 10 {
        0 => format!("{} %", tenths / 10),
        tenth => format!("{}.{tenth} %", tenths / 10),
    }
}
