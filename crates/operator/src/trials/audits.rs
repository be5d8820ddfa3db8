//! Audits of populations whose misses are known.

use super::numbers::Numbers;
use crate::audit::{Allotment, Outcome, allot, sample, statistic};
use crate::id::UnitId;
use crate::infer::PPM;

/// Most wrong, in parts per million: 95 % confidence.
const ALPHA_PPM: u32 = 50_000;

/// How often bounds held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditTrials {
    /// Audits.
    pub runs: u64,
    /// Of these, with no more misses than the bound says, and no less recall.
    pub held: u64,
    /// Sum of the true recall, in parts per million.
    recall_sum: u64,
    /// Sum of the bounds of recall, in parts per million.
    bound_sum: u64,
}

impl AuditTrials {
    /// Mean true recall in parts per million.
    pub const fn mean_recall_ppm(&self) -> u64 {
        self.recall_sum / self.runs
    }

    /// Mean bound of recall in parts per million: how much of the truth it gives away.
    pub const fn mean_bound_ppm(&self) -> u64 {
        self.bound_sum / self.runs
    }
}

/// A population in one stratum: its units, the first of which are misses.
struct Members {
    near: bool,
    units: Vec<UnitId>,
    misses: u64,
}

/// Audits so many populations of one to `strata_max` strata, of 20 to 500 units, each with its own rate
/// of misses, by samples of 20 to 300.
///
/// One stratum shows how tight the bound is; several, what adding bounds up gives away.
///
/// # Panics
/// If `runs` or `strata_max` is 0.
pub fn audit_trials(runs: u64, strata_max: u64) -> AuditTrials {
    assert!(runs > 0, "a mean needs at least one run");
    let mut trials = AuditTrials {
        runs,
        held: 0,
        recall_sum: 0,
        bound_sum: 0,
    };
    for run in 0..runs {
        let mut numbers = Numbers::new(run);
        let (found, strata) = population(&mut numbers, strata_max);
        let seed = numbers.below(u64::MAX).to_string();
        let outcomes = audit(&seed, &strata, 20 + numbers.below(281));
        let missed: u64 = strata.iter().map(|stratum| stratum.misses).sum();
        let (_, statistic) = statistic(found, &outcomes, ALPHA_PPM);
        let recall = found * u64::from(PPM) / (found + missed).max(1);
        let holds =
            statistic.misses_upper >= missed && u64::from(statistic.recall_lower_ppm) <= recall;
        trials.held += u64::from(holds);
        trials.recall_sum += recall;
        trials.bound_sum += u64::from(statistic.recall_lower_ppm);
    }
    trials
}

fn population(numbers: &mut Numbers, strata_max: u64) -> (u64, Vec<Members>) {
    let strata = (0..1 + numbers.below(strata_max))
        .map(|stratum| {
            let size = 20 + numbers.below(481);
            // From none to a fifth of a stratum: where bounds are tight they are easily broken.
            let rate = numbers.below(200_001) as u32;
            let misses = (0..size).filter(|_| numbers.happens(rate)).count() as u64;
            Members {
                near: stratum % 2 == 0,
                units: (0..size)
                    .map(|unit| UnitId::new(&format!("{stratum}/{unit}")))
                    .collect(),
                misses,
            }
        })
        .collect();
    (1 + numbers.below(200), strata)
}

fn audit(seed: &str, strata: &[Members], budget: u64) -> Vec<Outcome> {
    let sizes: Vec<Allotment> = strata
        .iter()
        .map(|stratum| Allotment {
            population: stratum.units.len() as u64,
            near: stratum.near,
            unknown: false,
        })
        .collect();
    let given = allot(&sizes, budget, false);
    strata
        .iter()
        .zip(given)
        .map(|(stratum, given)| {
            let drawn = sample(seed, stratum.units.iter(), given as usize);
            let misses = &stratum.units[..stratum.misses as usize];
            Outcome {
                population: stratum.units.len() as u64,
                audited: given,
                missed: drawn.iter().filter(|unit| misses.contains(unit)).count() as u64,
                unresolved: 0,
            }
        })
        .collect()
}
