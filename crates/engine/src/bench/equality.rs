//! Whether the arms gave the same answers: the reference is the first round of `unshared`.

use serde::{Deserialize, Serialize};

use super::Arm;
use super::arms::{RecordAnswer, Sample};

/// Margin, in parts per million, above which a decision must be the same in every arm.
pub const MARGIN_PPM: u32 = 50_000;

/// How the answers of one arm, over all its rounds, differ from the reference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Equality {
    /// The way.
    pub arm: Arm,
    /// Decisions compared.
    pub decisions: u64,
    /// Largest difference of one label's probability, in parts per million.
    pub largest_difference_ppm: u32,
    /// Decisions that chose another label.
    pub flips: u64,
    /// Of these, decisions whose margin in the reference is above [`MARGIN_PPM`].
    pub flips_above_margin: u64,
    /// Largest margin, in the reference, of a decision that flipped.
    pub largest_flipped_margin_ppm: Option<u32>,
    /// Texts compared.
    pub texts: u64,
    /// Texts in which any token differs.
    pub texts_differing: u64,
}

/// Margins of the reference's decisions, in parts per million.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Margins {
    /// The smallest.
    pub smallest_ppm: u32,
    /// The one in the middle.
    pub median_ppm: u32,
    /// Decisions with at most [`MARGIN_PPM`].
    pub narrow: u64,
}

/// Compares each arm that has the reference's prompts with it; nothing without a reference.
pub fn compare(samples: &[Sample]) -> Vec<Equality> {
    let Some(reference) = reference(samples) else {
        return Vec::new();
    };
    let mut out: Vec<Equality> = Vec::new();
    for sample in samples.iter().filter(|sample| sample.arm.same_prompts()) {
        if std::ptr::eq(sample, reference) {
            continue;
        }
        let at = match out.iter().position(|equality| equality.arm == sample.arm) {
            Some(at) => at,
            None => {
                out.push(Equality::none(sample.arm));
                out.len() - 1
            }
        };
        for (want, got) in reference.answers.iter().zip(&sample.answers) {
            out[at].add(want, got);
        }
    }
    out
}

/// Margins of the reference; none without one, or where it has no decisions.
pub fn margins(samples: &[Sample]) -> Option<Margins> {
    let answers = &reference(samples)?.answers;
    let mut margins: Vec<u32> = answers
        .iter()
        .flat_map(|answer| &answer.labels_ppm)
        .map(|labels| decide(labels).1)
        .collect();
    margins.sort_unstable();
    Some(Margins {
        smallest_ppm: *margins.first()?,
        median_ppm: margins[margins.len() / 2],
        narrow: margins.partition_point(|margin| *margin <= MARGIN_PPM) as u64,
    })
}

fn reference(samples: &[Sample]) -> Option<&Sample> {
    samples.iter().find(|sample| sample.arm == Arm::Unshared)
}

impl Equality {
    fn none(arm: Arm) -> Self {
        Self {
            arm,
            decisions: 0,
            largest_difference_ppm: 0,
            flips: 0,
            flips_above_margin: 0,
            largest_flipped_margin_ppm: None,
            texts: 0,
            texts_differing: 0,
        }
    }

    fn add(&mut self, want: &RecordAnswer, got: &RecordAnswer) {
        for (want, got) in want.labels_ppm.iter().zip(&got.labels_ppm) {
            self.decisions += 1;
            for (want, got) in want.iter().zip(got) {
                let difference = want.abs_diff(*got);
                self.largest_difference_ppm = self.largest_difference_ppm.max(difference);
            }
            let (label, margin) = decide(want);
            if label != decide(got).0 {
                self.flips += 1;
                self.flips_above_margin += u64::from(margin > MARGIN_PPM);
                self.largest_flipped_margin_ppm = self.largest_flipped_margin_ppm.max(Some(margin));
            }
        }
        if !want.tokens.is_empty() || !got.tokens.is_empty() {
            self.texts += 1;
            self.texts_differing += u64::from(want.tokens != got.tokens);
        }
    }
}

/// The most probable label, the lowest of equals, and its lead over the next.
fn decide(labels_ppm: &[u32]) -> (usize, u32) {
    let (mut label, mut best, mut second) = (0, 0, 0);
    for (index, &share) in labels_ppm.iter().enumerate() {
        if share > best || index == 0 {
            second = best;
            (label, best) = (index, share);
        } else {
            second = second.max(share);
        }
    }
    (label, best - second)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(arm: Arm, labels: &[[u32; 2]]) -> Sample {
        let answers = labels.iter().map(|labels| RecordAnswer {
            labels_ppm: vec![labels.to_vec()],
            ..RecordAnswer::default()
        });
        Sample {
            arm,
            load_us: 0,
            prefix_us: 0,
            records_us: 1,
            latency_us: Vec::new(),
            done_us: Vec::new(),
            tokens: None,
            forwards: 0,
            peak_bytes: None,
            gemm_flops_per_s: None,
            answers: answers.collect(),
        }
    }

    #[test]
    fn a_flip_counts_by_its_margin_in_the_reference() {
        let samples = [
            sample(Arm::Shared, &[[490_000, 510_000], [700_000, 300_000]]),
            sample(Arm::Unshared, &[[510_000, 490_000], [690_000, 310_000]]),
            sample(Arm::Nonce, &[[0, 1_000_000], [0, 1_000_000]]),
            sample(Arm::Shared, &[[510_000, 490_000], [300_000, 700_000]]),
        ];
        let compared = compare(&samples);
        assert_eq!(compared.len(), 1, "the nonce arm asks something else");
        let shared = &compared[0];
        assert_eq!((shared.arm, shared.decisions), (Arm::Shared, 4));
        assert_eq!((shared.flips, shared.flips_above_margin), (2, 1));
        assert_eq!(shared.largest_difference_ppm, 390_000);
        assert_eq!(shared.largest_flipped_margin_ppm, Some(380_000));
        let margins = margins(&samples).unwrap();
        assert_eq!((margins.smallest_ppm, margins.narrow), (20_000, 1));
    }

    #[test]
    fn nothing_is_claimed_without_the_reference() {
        let samples = [sample(Arm::Shared, &[[1, 2]])];
        assert!(compare(&samples).is_empty());
        assert!(margins(&samples).is_none());
    }
}
