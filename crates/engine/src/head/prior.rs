//! Calibration without labels: the labels' own probabilities, less what the prompt alone prefers.
//!
//! What a prompt prefers is told by texts that say nothing (Zhao et al., "Calibrate Before Use", 2021) or
//! by the mean over many records (Zhou et al., "Batch Calibration", 2023). Either way log-probabilities
//! are shifted by a constant per label: a head with fixed weights.

use super::{Bond, Head, Part, Reading};
use crate::error::EngineError;

/// Texts that say nothing, whose answers show what the prompt prefers.
pub const CONTENT_FREE: [&str; 3] = ["N/A", "[MASK]", "..."];

/// Shares below this count as this: a label that is never likely is not made so.
const LEAST: f64 = 1e-4;

impl Head {
    /// The head that divides the labels' probabilities by what they come to on average.
    ///
    /// # Errors
    /// `BadHead` where there are no answers, or not one share for every label.
    pub fn from_prior(bond: Bond, answers: &[Vec<f64>]) -> Result<Self, EngineError> {
        let labels = bond.labels.len();
        let fits = answers.iter().all(|shares| shares.len() == labels);
        if answers.is_empty() || !fits {
            let problem = "cannot be made of no answer, or of answers to another question";
            return Err(EngineError::bad_head("the head", problem));
        }
        let bias = (0..labels).map(|label| {
            let sum: f64 = answers.iter().map(|shares| shares[label]).sum();
            -(sum / answers.len() as f64).max(LEAST).ln()
        });
        let weights = (0..labels * labels).map(|at| match at / labels == at % labels {
            true => 1.0,
            false => 0.0,
        });
        Self {
            bias: bias.collect(),
            parts: vec![Part {
                reading: Reading::Labels,
                weights: weights.collect(),
                vocabulary: None,
            }],
            groups: Vec::new(),
            temperature: 1.0,
            offset: vec![0.0; labels],
            digest: [0; 32],
            bond,
        }
        .sealed()
    }
}
