//! Samples of one arm as figures: medians over the rounds, with the smallest and largest.

use serde::{Deserialize, Serialize};

use super::Arm;
use super::arms::{Sample, Tokens};
use super::flops::Bound;

/// Records at each end whose pace is compared.
const EDGE_RECORDS: usize = 50;

/// Median, smallest and largest of the rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The middle value; of an even number of values, the mean of the two in the middle.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// Of at least one value; none of no value.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (&min, &max) = (values.first()?, values.last()?);
        let middle = values.len() / 2;
        let median = match values.len() % 2 {
            1 => values[middle],
            _ => (values[middle - 1] + values[middle]) / 2.0,
        };
        Some(Self { median, min, max })
    }
}

/// What an arm did, over all its rounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// The way.
    pub arm: Arm,
    /// Records per second of prefix and records together, loading left out.
    pub records_per_s: Spread,
    /// Seconds until the model was loaded.
    pub load_s: Spread,
    /// Seconds spent on sealing prefixes.
    pub prefix_s: Spread,
    /// Seconds of the rest.
    pub records_s: Spread,
    /// Milliseconds from a record's entry to its answer, half of the records below.
    pub p50_ms: Spread,
    /// Nine tenths below.
    pub p90_ms: Spread,
    /// 99 hundredths below.
    pub p99_ms: Spread,
    /// Milliseconds per record over the first 50 answers, or the first half of fewer than 100.
    pub first_ms: Spread,
    /// The same over the last ones.
    pub last_ms: Spread,
    /// Largest resident memory in bytes.
    pub peak_bytes: Option<Spread>,
    /// Tokens of one round; all rounds must agree.
    pub tokens: Option<Tokens>,
    /// Operations per second that the answers needed (see [`super::flops`]).
    pub flops_per_s: Option<Spread>,
    /// Operations per second of the projections alone.
    pub gemm_flops_per_s: Option<Spread>,
    /// Their ratio, round by round.
    pub gemm_share: Option<Spread>,
}

impl Figures {
    /// Of the samples of one arm; none without a sample or a record.
    pub fn of(samples: &[&Sample], bound: &Bound) -> Option<Self> {
        let arm = samples.first()?.arm;
        let spread = |value: &dyn Fn(&Sample) -> f64| Spread::of(samples.iter().map(|s| value(s)));
        let some = |value: &dyn Fn(&Sample) -> Option<f64>| {
            let values: Option<Vec<f64>> = samples.iter().map(|s| value(s)).collect();
            Spread::of(values?)
        };
        let latency = |share: f64| {
            Spread::of(samples.iter().map(|sample| {
                let mut sorted = sample.latency_us.clone();
                sorted.sort_unstable();
                percentile(&sorted, share) as f64 / 1e3
            }))
        };
        let flops = match arm {
            Arm::Shared | Arm::Serial => Some(bound.shared_flops),
            Arm::Unshared | Arm::Salted | Arm::Nonce => Some(bound.unshared_flops),
            Arm::Api => None,
        };
        let rate = |sample: &Sample| Some(flops? / seconds(sample));
        Some(Self {
            arm,
            records_per_s: spread(&records_per_s)?,
            load_s: spread(&|sample| sample.load_us as f64 / 1e6)?,
            prefix_s: spread(&|sample| sample.prefix_us as f64 / 1e6)?,
            records_s: spread(&|sample| sample.records_us as f64 / 1e6)?,
            p50_ms: latency(0.5)?,
            p90_ms: latency(0.9)?,
            p99_ms: latency(0.99)?,
            first_ms: spread(&|sample| edges_ms(&sample.done_us).0)?,
            last_ms: spread(&|sample| edges_ms(&sample.done_us).1)?,
            peak_bytes: some(&|sample| sample.peak_bytes.map(|bytes| bytes as f64)),
            tokens: samples[0].tokens,
            flops_per_s: some(&rate),
            gemm_flops_per_s: some(&|sample| sample.gemm_flops_per_s),
            gemm_share: some(&|sample| Some(rate(sample)? / sample.gemm_flops_per_s?)),
        })
    }
}

/// Records per second of one sample.
pub fn records_per_s(sample: &Sample) -> f64 {
    sample.answers.len() as f64 / seconds(sample)
}

fn seconds(sample: &Sample) -> f64 {
    // A clock of microseconds may see no time pass over a few tiny records.
    (sample.prefix_us + sample.records_us).max(1) as f64 / 1e6
}

/// The smallest value that at least `share` of the values do not exceed; 0 of none.
pub fn percentile(sorted: &[u64], share: f64) -> u64 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted
        .get(rank.clamp(1, sorted.len().max(1)) - 1)
        .copied()
        .unwrap_or(0)
}

/// Milliseconds per record over the first and the last answers.
fn edges_ms(done_us: &[u64]) -> (f64, f64) {
    let count = done_us.len();
    let edge = EDGE_RECORDS.min(count / 2).max(1);
    let (Some(&first), Some(&last)) = (done_us.get(edge - 1), done_us.last()) else {
        return (0.0, 0.0);
    };
    let before = match count.checked_sub(edge + 1) {
        Some(index) => done_us[index],
        None => 0,
    };
    let pace = |us: u64| us as f64 / 1e3 / edge as f64;
    (pace(first), pace(last - before))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between() {
        let spread = Spread::of([4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!((spread.median, spread.min, spread.max), (2.5, 1.0, 4.0));
        assert_eq!(Spread::of([7.0, 5.0, 6.0]).unwrap().median, 6.0);
        assert!(Spread::of([]).is_none());
    }

    #[test]
    fn percentiles_are_values_that_occurred() {
        let sorted: Vec<u64> = (1..=200).collect();
        assert_eq!(percentile(&sorted, 0.5), 100);
        assert_eq!(percentile(&sorted, 0.9), 180);
        assert_eq!(percentile(&sorted, 0.99), 198);
        assert_eq!(percentile(&[9], 0.01), 9);
        assert_eq!(percentile(&[], 0.5), 0);
    }

    #[test]
    fn the_pace_of_both_ends_is_told_apart() {
        // 60 answers after 1 ms each, then 60 after 3 ms each.
        let done: Vec<u64> = (1..=120u64)
            .map(|n| 1000 * (n.min(60) + 3 * n.saturating_sub(60)))
            .collect();
        assert_eq!(edges_ms(&done), (1.0, 3.0));
        assert_eq!(edges_ms(&[4000]), (4.0, 4.0));
        assert_eq!(edges_ms(&[1000, 3000]), (1.0, 2.0));
    }
}
