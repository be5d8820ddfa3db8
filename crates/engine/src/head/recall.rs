//! A threshold that finds a declared share of a label, with a guarantee for few examples.
//!
//! The threshold is an order statistic of the scores of held-out records that truly have the label. The
//! share of all such records that score below the k-th smallest of n is distributed as Beta(k, n - k + 1),
//! whatever the distribution of the scores; so the largest k is taken under which that share is too large
//! with a probability of at most alpha. Source: Wilks, "Determination of Sample Sizes for Setting
//! Tolerance Limits" (1941); the bound is Clopper and Pearson's. It holds for records drawn as the held-out
//! ones were, and says nothing about others.

use operator::audit::rate_upper_ppm;
use operator::infer::PPM;

/// The place, from 0, in the ascending scores of held-out positives, of the threshold that finds at least
/// `recall_ppm` of all positives at a confidence of `1 - alpha`; none where there are too few.
pub fn place(positives: usize, recall_ppm: u32, alpha_ppm: u32) -> Option<usize> {
    // With the k-th smallest as threshold, k - 1 are known to be missed: k - 1 = place.
    let allowed = PPM - recall_ppm;
    let holds =
        |missed: usize| missed < positives && upper_ppm(positives, missed, alpha_ppm) <= allowed;
    if !holds(0) {
        return None;
    }
    let (mut low, mut high) = (0, positives);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if holds(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    Some(low)
}

/// Fewest held-out positives for which [`place`] finds a threshold.
pub fn positives_needed(recall_ppm: u32, alpha_ppm: u32) -> Option<usize> {
    (1..=1_000_000).find(|&count| place(count, recall_ppm, alpha_ppm).is_some())
}

fn upper_ppm(positives: usize, missed: usize, alpha_ppm: u32) -> u32 {
    rate_upper_ppm(positives as u64, missed as u64, alpha_ppm)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_positives_are_needed_as_the_power_of_the_recall_says() {
        // 0.9^29 < 0.05 < 0.9^28, and 0.95^59 < 0.05 < 0.95^58.
        assert_eq!(positives_needed(900_000, 50_000), Some(29));
        assert_eq!(positives_needed(950_000, 50_000), Some(59));
        assert_eq!(place(28, 900_000, 50_000), None);
        assert_eq!(place(29, 900_000, 50_000), Some(0));
    }

    #[test]
    fn more_positives_allow_more_misses_but_never_the_whole_allowance() {
        let mut before = 0;
        for positives in [29, 100, 300, 1_000, 5_000] {
            let place = place(positives, 900_000, 50_000).unwrap();
            assert!(place >= before && place < positives / 10);
            before = place;
        }
        assert!(before > 400, "{before} of 5,000");
    }

    /// Draws held-out scores again and again from a known distribution, and looks at what the threshold
    /// misses of it.
    #[test]
    fn the_guarantee_holds_in_simulation() {
        let mut state = 0x1234_5678_9ABC_DEF0_u64;
        let mut uniform = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        for positives in [29, 60, 150] {
            let place = place(positives, 900_000, 50_000).unwrap();
            let (mut kept, draws) = (0, 4_000);
            for _ in 0..draws {
                let mut scores: Vec<f64> = (0..positives).map(|_| uniform()).collect();
                scores.sort_by(f64::total_cmp);
                // A uniform score lies below the threshold with the threshold as probability.
                kept += u32::from(scores[place] <= 0.1);
            }
            // Four standard deviations below 95 %.
            assert!(
                f64::from(kept) / f64::from(draws) > 0.936,
                "{positives}: {kept}"
            );
        }
    }
}
