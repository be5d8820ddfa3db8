//! How a head is made where nobody asks for another way: which layers are read, what is tried.

use crate::head::{Candidate, Options, Reading, RecallTarget};

/// Version of the recipe; another one may come to other heads from the same labels.
pub const VERSION: u32 = 1;

/// Penalties that are tried, as weights of the squared length of features with a mean square of 1.
const PENALTIES: [f64; 8] = [0.1, 0.03, 0.01, 0.003, 0.001, 0.000_3, 0.000_1, 0.000_03];
/// Depths of the layers whose states are read, in percent of all layers.
const DEPTHS: [usize; 7] = [33, 42, 50, 58, 67, 75, 83];
/// Folds of cross-validation.
const FOLDS: usize = 5;

/// The layers that are read of a model of so many.
pub fn layers(depth: usize) -> Vec<usize> {
    let mut layers = DEPTHS.map(|percent| depth * percent / 100).to_vec();
    layers.dedup();
    layers
}

/// What heads may read: each layer's answer and mean, all of them, and these with the words.
pub fn readings(layers: &[usize]) -> Vec<Vec<Reading>> {
    let pair = |&layer: &usize| vec![Reading::Answer(layer), Reading::Mean(layer)];
    let all: Vec<Reading> = layers.iter().flat_map(pair).collect();
    let mut readings: Vec<Vec<Reading>> = layers.iter().map(pair).collect();
    readings.push(all);
    let with_words = readings.clone().into_iter().map(|mut readings| {
        readings.push(Reading::Words);
        readings
    });
    let with_words: Vec<Vec<Reading>> = with_words.collect();
    readings.extend(with_words);
    readings
}

/// How a head is trained on some of these readings; `own` are the weights that are tried of what groups do
/// not share.
pub fn options(
    readings: Vec<Vec<Reading>>,
    own: &[f64],
    seed: u64,
    recall: Option<RecallTarget>,
) -> Options {
    let candidates = readings.into_iter().flat_map(|readings| {
        own.iter().map(move |&own| Candidate {
            readings: readings.clone(),
            own,
        })
    });
    Options {
        candidates: candidates.collect(),
        penalties: PENALTIES.to_vec(),
        folds: FOLDS,
        seed,
        recall,
    }
}
