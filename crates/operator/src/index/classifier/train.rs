//! Multinomial logistic regression by AdaGrad: one example at a time, in an order that ids alone decide.
//!
//! Source: Duchi, Hazan and Singer, "Adaptive Subgradient Methods" (2011). One thread, a fixed number of
//! rounds and fixed rates: equal labels and records give equal weights to the bit.

use super::shuffled;
use crate::vocabulary::Vocabulary;

const ROUNDS: usize = 30;
const RATE: f64 = 0.5;
/// Pull towards zero at every step, of the words of the example.
const DECAY: f64 = 1e-4;
const MILLION: f64 = 1e6;

/// A labelled text.
pub(super) struct Example {
    pub(super) id: String,
    pub(super) class: usize,
    pub(super) words: Vec<String>,
}

/// Weights in millionths: by class and then by word, and one more per class for all texts.
pub(super) struct Weights {
    pub(super) words: Vec<Vec<i64>>,
    pub(super) bias: Vec<i64>,
}

/// Puts examples into the order in which they are learned.
pub(super) fn order(examples: &mut [Example]) {
    examples.sort_by_cached_key(|example| shuffled(&example.id));
}

/// Learns the weights of ordered examples.
pub(super) fn train(examples: &[Example], vocabulary: &Vocabulary, classes: usize) -> Weights {
    let texts: Vec<Vec<(u32, f64)>> = examples
        .iter()
        .map(|example| vocabulary.weigh(&example.words))
        .collect();
    let mut rows: Vec<Learner> = (0..classes)
        .map(|_| Learner::new(vocabulary.words().len()))
        .collect();
    for _ in 0..ROUNDS {
        for (example, text) in examples.iter().zip(&texts) {
            let scores: Vec<f64> = rows.iter().map(|row| row.score(text)).collect();
            for (class, (row, share)) in rows.iter_mut().zip(shares(&scores)).enumerate() {
                let wanted = f64::from(u8::from(class == example.class));
                row.learn(text, share - wanted);
            }
        }
    }
    let micro = |weight: &f64| (weight * MILLION).round() as i64;
    Weights {
        words: rows
            .iter()
            .map(|row| row.words.iter().map(|slot| micro(&slot.weight)).collect())
            .collect(),
        bias: rows.iter().map(|row| micro(&row.bias.weight)).collect(),
    }
}

/// Shares of a whole from scores: softmax.
pub(super) fn shares(scores: &[f64]) -> Vec<f64> {
    let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let powers: Vec<f64> = scores.iter().map(|score| (score - most).exp()).collect();
    let sum: f64 = powers.iter().sum();
    powers.into_iter().map(|power| power / sum).collect()
}

/// A weight and the squares of its past gradients.
#[derive(Clone, Copy, Default)]
struct Slot {
    weight: f64,
    squares: f64,
}

impl Slot {
    fn step(&mut self, gradient: f64) {
        self.squares += gradient * gradient;
        if self.squares > 0.0 {
            self.weight -= RATE * gradient / self.squares.sqrt();
        }
    }
}

/// The weights of one class while they are learned.
struct Learner {
    words: Vec<Slot>,
    bias: Slot,
}

impl Learner {
    fn new(words: usize) -> Self {
        Self {
            words: vec![Slot::default(); words],
            bias: Slot::default(),
        }
    }

    fn score(&self, text: &[(u32, f64)]) -> f64 {
        let words = text
            .iter()
            .map(|(place, weight)| self.words[*place as usize].weight * weight);
        words.fold(self.bias.weight, |sum, part| sum + part)
    }

    fn learn(&mut self, text: &[(u32, f64)], error: f64) {
        for (place, weight) in text {
            let slot = &mut self.words[*place as usize];
            let gradient = error * weight + DECAY * slot.weight;
            slot.step(gradient);
        }
        self.bias.step(error);
    }
}
