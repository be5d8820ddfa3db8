//! One number that makes held-out probabilities as sure as they are right.
//!
//! Source: Guo et al., "On Calibration of Modern Neural Networks" (2017).

use super::logistic::log_sum_exp;

const COLDEST: f64 = 0.05;
const HOTTEST: f64 = 20.0;

/// The temperature under which the true classes are most probable, for scores `[examples][classes]`.
///
/// The loss is convex in the reciprocal, which is searched by golden section.
pub fn fit(scores: &[Vec<f64>], class_of: &[usize]) -> f64 {
    let ratio = (5.0_f64.sqrt() - 1.0) / 2.0;
    let (mut low, mut high) = (1.0 / HOTTEST, 1.0 / COLDEST);
    let at = |inverse: f64| loss(scores, class_of, 1.0 / inverse);
    for _ in 0..80 {
        let (left, right) = (high - ratio * (high - low), low + ratio * (high - low));
        if at(left) <= at(right) {
            high = right;
        } else {
            low = left;
        }
    }
    2.0 / (low + high)
}

/// Mean negative logarithm of the probability of the true class.
pub fn loss(scores: &[Vec<f64>], class_of: &[usize], temperature: f64) -> f64 {
    let sum: f64 = scores
        .iter()
        .zip(class_of)
        .map(|(scores, &class)| {
            let cool: Vec<f64> = scores.iter().map(|score| score / temperature).collect();
            log_sum_exp(&cool) - cool[class]
        })
        .sum();
    sum / scores.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_that_are_three_times_too_sure_are_cooled_by_three() {
        // Of each group the share that is right is exactly what a third of its score says.
        let (mut scores, mut class_of) = (Vec::new(), Vec::new());
        for (odds, right, wrong) in [(3.0_f64, 75, 25), (9.0, 90, 10), (1.0, 50, 50)] {
            for class in std::iter::repeat_n(0, right).chain(std::iter::repeat_n(1, wrong)) {
                scores.push(vec![3.0 * odds.ln(), 0.0]);
                class_of.push(class);
            }
        }
        let found = fit(&scores, &class_of);
        assert!((found - 3.0).abs() < 1e-4, "{found}");
        assert!(loss(&scores, &class_of, found) < loss(&scores, &class_of, 1.0));
    }
}
