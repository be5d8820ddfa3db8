//! Multinomial logistic regression under a squared penalty, by L-BFGS.
//!
//! Source: Nocedal and Wright, "Numerical Optimization", algorithms 7.4 and 7.5, with steps halved until
//! Armijo's condition holds. The objective is convex, so that the start does not matter; everything is
//! f64 in a fixed order.

use std::collections::VecDeque;

use super::gram::{Factor, add_scaled, dot};

/// Pairs of steps and gradients that approximate the curvature.
const MEMORY: usize = 12;
const ROUNDS_MAX: usize = 300;
/// The largest entry of the gradient at which a fit is done.
const FLAT: f64 = 1e-6;
const ARMIJO: f64 = 1e-4;

/// A fitted model in the coordinates of a [`Factor`].
#[derive(Debug, Clone, PartialEq)]
pub struct Fit {
    /// `[classes][width]`
    pub directions: Vec<Vec<f64>>,
    /// `[classes]`, not penalised; they sum to about zero.
    pub bias: Vec<f64>,
}

/// What is fitted: some examples of a factor with their classes.
#[derive(Debug, Clone, Copy)]
pub struct Task<'a> {
    /// Coordinates of all examples.
    pub factor: &'a Factor,
    /// Examples that are learned from.
    pub learned: &'a [usize],
    /// Class of every example of the factor.
    pub class_of: &'a [usize],
    /// Classes.
    pub classes: usize,
    /// Half the weight of the squared length of all directions against the mean loss.
    pub penalty: f64,
}

impl Fit {
    /// Fits a task; a start of the same shape, such as the fit of a larger penalty, saves rounds.
    pub fn of(task: Task<'_>, start: Option<&Self>) -> Self {
        let width = task.factor.width() + 1;
        let mut at = vec![0.0; task.classes * width];
        if let Some(start) = start {
            let parts = start.directions.iter().zip(&start.bias);
            for (row, (direction, bias)) in at.chunks_exact_mut(width).zip(parts) {
                row[..width - 1].copy_from_slice(direction);
                row[width - 1] = *bias;
            }
        }
        let found = minimise(at, |at, gradient| task.loss(at, gradient));
        Self {
            directions: found
                .chunks_exact(width)
                .map(|row| row[..width - 1].to_vec())
                .collect(),
            bias: found
                .chunks_exact(width)
                .map(|row| row[width - 1])
                .collect(),
        }
    }

    /// Scores of an example's coordinates, one per class: log-odds up to a constant.
    pub fn scores(&self, row: &[f64]) -> Vec<f64> {
        let parts = self.directions.iter().zip(&self.bias);
        parts
            .map(|(direction, bias)| dot(&direction[..row.len()], row) + bias)
            .collect()
    }
}

impl Task<'_> {
    /// The objective at a point `[classes][width + 1]`; its gradient is written out.
    fn loss(&self, at: &[f64], gradient: &mut [f64]) -> f64 {
        let width = self.factor.width() + 1;
        let share = 1.0 / self.learned.len().max(1) as f64;
        gradient.fill(0.0);
        let mut loss = 0.0;
        for (row, out) in at.chunks_exact(width).zip(gradient.chunks_exact_mut(width)) {
            let direction = &row[..width - 1];
            loss += 0.5 * self.penalty * dot(direction, direction);
            add_scaled(&mut out[..width - 1], direction, self.penalty);
        }
        for &example in self.learned {
            let row = self.factor.row(example);
            let scores: Vec<f64> = at
                .chunks_exact(width)
                .map(|at| dot(&at[..row.len()], row) + at[width - 1])
                .collect();
            let class = self.class_of[example];
            let total = log_sum_exp(&scores);
            loss += share * (total - scores[class]);
            for (place, (score, out)) in scores
                .iter()
                .zip(gradient.chunks_exact_mut(width))
                .enumerate()
            {
                let wanted = f64::from(u8::from(place == class));
                let error = share * ((score - total).exp() - wanted);
                add_scaled(&mut out[..row.len()], row, error);
                out[width - 1] += error;
            }
        }
        loss
    }
}

/// The logarithm of a sum of powers.
pub fn log_sum_exp(scores: &[f64]) -> f64 {
    let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    most + scores
        .iter()
        .map(|score| (score - most).exp())
        .sum::<f64>()
        .ln()
}

/// Shares of a whole from scores divided by a temperature.
pub fn softmax(scores: &[f64], temperature: f64) -> Vec<f64> {
    let cool: Vec<f64> = scores.iter().map(|score| score / temperature).collect();
    let total = log_sum_exp(&cool);
    cool.iter().map(|score| (score - total).exp()).collect()
}

/// Finds the lowest point of a smooth convex function, which writes its gradient.
fn minimise(mut at: Vec<f64>, objective: impl Fn(&[f64], &mut [f64]) -> f64) -> Vec<f64> {
    let mut gradient = vec![0.0; at.len()];
    let mut value = objective(&at, &mut gradient);
    let mut memory: VecDeque<(Vec<f64>, Vec<f64>, f64)> = VecDeque::new();
    let mut next_gradient = vec![0.0; at.len()];
    for _ in 0..ROUNDS_MAX {
        let steepest = gradient.iter().fold(0.0, |most: f64, g| most.max(g.abs()));
        if steepest < FLAT {
            break;
        }
        let mut direction = descend(&memory, &gradient);
        let mut slope = dot(&direction, &gradient);
        if slope >= 0.0 {
            memory.clear();
            direction = gradient.iter().map(|g| -g).collect();
            slope = -dot(&gradient, &gradient);
        }
        let mut step = match memory.is_empty() {
            true => 1.0 / dot(&gradient, &gradient).sqrt().max(1.0),
            false => 1.0,
        };
        let (next, next_value) = loop {
            let mut next = at.clone();
            add_scaled(&mut next, &direction, step);
            let next_value = objective(&next, &mut next_gradient);
            if next_value <= value + ARMIJO * step * slope {
                break (next, next_value);
            }
            step *= 0.5;
            if step < 1e-12 {
                // As low as f64 can tell.
                return at;
            }
        };
        let moved: Vec<f64> = next.iter().zip(&at).map(|(a, b)| a - b).collect();
        let bent: Vec<f64> = next_gradient
            .iter()
            .zip(&gradient)
            .map(|(a, b)| a - b)
            .collect();
        let curvature = dot(&moved, &bent);
        if curvature > 1e-12 * dot(&bent, &bent) {
            if memory.len() == MEMORY {
                memory.pop_front();
            }
            memory.push_back((moved, bent, curvature));
        }
        (at, value) = (next, next_value);
        gradient.copy_from_slice(&next_gradient);
    }
    at
}

/// The two-loop recursion: the way down as far as the remembered curvature tells.
fn descend(memory: &VecDeque<(Vec<f64>, Vec<f64>, f64)>, gradient: &[f64]) -> Vec<f64> {
    let mut way: Vec<f64> = gradient.iter().map(|g| -g).collect();
    let mut factors = Vec::with_capacity(memory.len());
    for (moved, bent, curvature) in memory.iter().rev() {
        let factor = dot(moved, &way) / curvature;
        add_scaled(&mut way, bent, -factor);
        factors.push(factor);
    }
    if let Some((_, bent, curvature)) = memory.back() {
        let scale = curvature / dot(bent, bent);
        way.iter_mut().for_each(|value| *value *= scale);
    }
    for ((moved, bent, curvature), factor) in memory.iter().zip(factors.iter().rev()) {
        let back = dot(bent, &way) / curvature;
        add_scaled(&mut way, moved, factor - back);
    }
    way
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::gram::Gram;

    fn factor(points: &[[f64; 2]]) -> Factor {
        Gram::of(points.len(), |a, b| dot(&points[a], &points[b])).factor()
    }

    fn task<'a>(
        factor: &'a Factor,
        learned: &'a [usize],
        class_of: &'a [usize],
        penalty: f64,
    ) -> Task<'a> {
        Task {
            factor,
            learned,
            class_of,
            classes: 3,
            penalty,
        }
    }

    const POINTS: [[f64; 2]; 7] = [
        [1.0, 0.1],
        [1.2, -0.2],
        [-0.4, 1.0],
        [-0.6, 1.3],
        [-0.5, -1.1],
        [-0.7, -0.9],
        [0.9, 0.0],
    ];
    const CLASSES: [usize; 7] = [0, 0, 1, 1, 2, 2, 0];

    #[test]
    fn classes_that_can_be_parted_are_parted_also_where_they_were_not_learned() {
        let factor = factor(&POINTS);
        let fit = Fit::of(task(&factor, &[0, 1, 2, 3, 4, 5], &CLASSES, 1e-3), None);
        for (example, class) in CLASSES.into_iter().enumerate() {
            let scores = fit.scores(factor.row(example));
            let best = (0..3).max_by(|&a, &b| scores[a].total_cmp(&scores[b]));
            assert_eq!(best, Some(class), "{scores:?}");
        }
    }

    #[test]
    fn the_gradient_vanishes_where_a_fit_ends_and_the_start_does_not_matter() {
        let factor = factor(&POINTS);
        let learned: Vec<usize> = (0..7).collect();
        let task = task(&factor, &learned, &CLASSES, 0.01);
        let fit = Fit::of(task, None);
        let warm = Fit::of(
            task,
            Some(&Fit::of(
                Task {
                    penalty: 1.0,
                    ..task
                },
                None,
            )),
        );
        let flat: Vec<f64> = fit
            .directions
            .iter()
            .zip(&fit.bias)
            .flat_map(|(direction, bias)| direction.iter().chain([bias]))
            .copied()
            .collect();
        let mut gradient = vec![0.0; flat.len()];
        task.loss(&flat, &mut gradient);
        assert!(gradient.iter().all(|g| g.abs() < FLAT), "{gradient:?}");
        for example in 0..7 {
            let pairs = fit.scores(factor.row(example));
            for (a, b) in softmax(&pairs, 1.0)
                .iter()
                .zip(softmax(&warm.scores(factor.row(example)), 1.0))
            {
                assert!((a - b).abs() < 1e-4, "{a} {b}");
            }
        }
    }

    #[test]
    fn the_written_gradient_is_that_of_the_loss() {
        let factor = factor(&POINTS);
        let learned: Vec<usize> = (0..7).collect();
        let task = task(&factor, &learned, &CLASSES, 0.3);
        let at: Vec<f64> = (0..24).map(|i| f64::from(i % 7) * 0.2 - 0.5).collect();
        let mut gradient = vec![0.0; 24];
        task.loss(&at, &mut gradient);
        let mut scratch = vec![0.0; 24];
        for place in 0..24 {
            let mut near = at.clone();
            near[place] += 1e-5;
            let above = task.loss(&near, &mut scratch);
            near[place] -= 2e-5;
            let below = task.loss(&near, &mut scratch);
            let slope = (above - below) / 2e-5;
            assert!((slope - gradient[place]).abs() < 1e-7, "{place}: {slope}");
        }
    }
}
