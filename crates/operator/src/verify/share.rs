//! The share that a sample proves: the first look that is narrow enough, and its exact bounds.
//!
//! Bounds are tested by the probabilities that define them, summed over logarithms of factorials.

use super::read::selects;
use super::stopping::Turn;
use crate::fact::{Fact, Status};
use crate::infer::PPM;
use crate::plan::Reduce;
use crate::stopping::Interval;

/// How far a tail may miss the allowed error by the rounding of its sum.
const ROUNDING: f64 = 1e-6;

/// A share in a population whose units come in random order.
pub(super) struct Survey<'s, 'f> {
    pub(super) reduce: &'s Reduce,
    pub(super) turns: &'s [Turn<'f>],
    /// Logarithms of factorials.
    pub(super) logs: &'s [f64],
    pub(super) alpha_ppm: u32,
    pub(super) recorded: Option<&'s Interval>,
}

impl Survey<'_, '_> {
    /// The first look at which the interval is narrow enough, and that interval, or else the latest.
    pub(super) fn narrow(
        &self,
        looks: &[u64],
        width_ppm: u64,
    ) -> (Option<usize>, Option<Interval>) {
        let whole = self.turns.len();
        let sizes = looks.iter().filter_map(|look| usize::try_from(*look).ok());
        let mut sizes: Vec<usize> = sizes.filter(|size| *size < whole).collect();
        sizes.extend((whole > 0).then_some(whole));
        let mut latest = None;
        for size in sizes {
            let sample = &self.turns[..size];
            let never = |fact: &Fact| matches!(fact.status, Status::Cancelled | Status::NotRun);
            if sample.iter().any(|(_, fact)| never(fact)) {
                break;
            }
            let interval = self.look(sample);
            let width = u64::from(interval.high_ppm - interval.low_ppm);
            latest = Some(interval);
            if width <= width_ppm {
                return (Some(size), latest);
            }
        }
        (None, latest)
    }

    fn look(&self, sample: &[Turn<'_>]) -> Interval {
        let count = |test: &dyn Fn(&Fact) -> bool| {
            let hits = sample.iter().filter(|(_, fact)| test(fact));
            hits.count() as u64
        };
        let matching = count(&|fact| selects(&self.reduce.filter, fact));
        let unknown = count(&|fact| matches!(fact.status, Status::Abstained | Status::Errored));
        let (size, whole) = (sample.len() as u64, self.turns.len() as u64);
        let said = self.recorded.filter(|recorded| recorded.sample == size);
        let low = said.and_then(|said| whole.checked_sub(said.low));
        let low = whole - self.most(size, size - matching, low);
        let high = self.most(size, matching + unknown, said.map(|said| said.high));
        let million = u128::from(PPM);
        let share = |units: u64| u128::from(units) * million;
        Interval {
            sample: size,
            matching,
            unknown,
            low,
            high,
            low_ppm: (share(low) / u128::from(whole)) as u32,
            high_ppm: share(high).div_ceil(u128::from(whole)) as u32,
        }
    }

    /// The most units of a kind that there can be, of which a sample has `found`.
    fn most(&self, size: u64, found: u64, said: Option<u64>) -> u64 {
        let whole = self.turns.len() as u64;
        let most = whole - (size - found);
        let alpha = f64::from(self.alpha_ppm) / f64::from(PPM);
        let chance = |units: u64| self.tail(size, units, found);
        let exact = |units: &u64| {
            (found..=most).contains(units)
                && chance(*units) >= alpha * (1.0 - ROUNDING)
                && (*units == most || chance(*units + 1) < alpha * (1.0 + ROUNDING))
        };
        if let Some(said) = said.filter(exact) {
            return said;
        }
        let (mut holds, mut beyond) = (found, most + 1);
        while beyond - holds > 1 {
            let middle = holds + (beyond - holds) / 2;
            match chance(middle) >= alpha {
                true => holds = middle,
                false => beyond = middle,
            }
        }
        holds
    }

    /// Probability that a sample has at most `found` of so many units of the whole.
    fn tail(&self, size: u64, units: u64, found: u64) -> f64 {
        let whole = self.turns.len() as u64;
        let log = |n: u64| self.logs[n as usize];
        let choose = |n: u64, k: u64| log(n) - log(k) - log(n - k);
        (0..=found.min(units).min(size))
            .filter(|hit| size - hit <= whole - units)
            .map(|hit| {
                let ways = choose(units, hit) + choose(whole - units, size - hit);
                (ways - choose(whole, size)).exp()
            })
            .sum()
    }
}
