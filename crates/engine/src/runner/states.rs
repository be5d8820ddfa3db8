//! The inner states that a record's score comes with, where layers are tapped.

use super::Score;
use crate::model::States;

/// States of one record in the tapped layers, f32.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordStates {
    /// Per question `[taps + 1, hidden]`: the state at the first node of its answer, as it enters each
    /// tapped layer, and at last normed after all layers.
    pub answers: Vec<Vec<f32>>,
    /// Per question, the logarithm of each label's probability by the labels' own logits.
    pub labels: Vec<Vec<f32>>,
    /// `[taps, hidden]`: mean over the record's own rows, rubric and answers left out.
    pub mean: Vec<f32>,
}

/// Probabilities below this count as this.
const LEAST: f64 = 1e-12;

/// What rows of a record that went before into slots add to its mean.
#[derive(Default)]
pub(super) struct Pool {
    sum: Vec<f32>, // [taps, hidden]
    rows: usize,
}

impl Pool {
    /// Takes the means `[taps, hidden]` of so many rows.
    pub(super) fn add(&mut self, mean: Vec<f32>, rows: usize) {
        self.sum.resize(mean.len(), 0.0);
        for (sum, mean) in self.sum.iter_mut().zip(mean) {
            *sum += mean * rows as f32;
        }
        self.rows += rows;
    }

    /// The states of the record at a place of a forward, of which the forward held `rows` rows;
    /// `answers` are places among the asked rows.
    pub(super) fn read(
        &self,
        states: &States,
        answers: impl Iterator<Item = usize>,
        place: usize,
        (rows, hidden): (usize, usize),
        scores: &[Score],
    ) -> RecordStates {
        let at = |of: &[f32], row: usize| of[row * hidden..(row + 1) * hidden].to_vec();
        let mut mean: Vec<f32> = states.means.iter().flat_map(|of| at(of, place)).collect();
        if self.rows > 0 {
            let all = (self.rows + rows) as f32;
            for (mean, sum) in mean.iter_mut().zip(&self.sum) {
                *mean = (*mean * rows as f32 + sum) / all;
            }
        }
        let logs = |score: &Score| -> Vec<f32> {
            let shares = score.probabilities.iter();
            shares.map(|&share| share.max(LEAST).ln() as f32).collect()
        };
        let layers = || states.rows.iter().chain([&states.hidden]);
        RecordStates {
            answers: answers
                .map(|row| layers().flat_map(|of| at(of, row)).collect())
                .collect(),
            labels: scores.iter().map(logs).collect(),
            mean,
        }
    }
}
