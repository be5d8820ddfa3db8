//! Labelled examples as a head learns them.

use std::collections::BTreeMap;

use operator::vocabulary::Vocabulary;
use operator::words::words;

use super::gram::{Gram, dot};
use super::reading::Reading;

/// Examples with everything that may be read of them, in an order that must not depend on their file.
#[derive(Debug, Clone, Default)]
pub struct Examples {
    /// What tells examples apart; equal texts are one example.
    pub ids: Vec<String>,
    /// Class of each, as a place among the labels.
    pub class_of: Vec<usize>,
    /// What each belongs to, where heads differ by it: else empty.
    pub group_of: Vec<String>,
    /// Per reading of the model's states, a row of each example, all of one width.
    pub states: BTreeMap<Reading, Vec<Vec<f32>>>,
    /// The text of each, for its words.
    pub texts: Vec<String>,
}

impl Examples {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Some of them, in the order given.
    ///
    /// # Panics
    /// If there is no such place.
    pub fn take(&self, places: &[usize]) -> Self {
        fn some<T: Clone>(of: &[T], places: &[usize]) -> Vec<T> {
            match of.is_empty() {
                true => Vec::new(),
                false => places.iter().map(|&place| of[place].clone()).collect(),
            }
        }
        Self {
            ids: some(&self.ids, places),
            class_of: some(&self.class_of, places),
            group_of: some(&self.group_of, places),
            states: self
                .states
                .iter()
                .map(|(reading, rows)| (*reading, some(rows, places)))
                .collect(),
            texts: some(&self.texts, places),
        }
    }
}

/// Examples of one reading in the form in which they are learned: every feature with mean 0 and
/// deviation 1, examples with a mean square of about 1.
pub(super) enum Block {
    Dense {
        rows: Vec<Vec<f64>>,
        mean: Vec<f64>,
        /// What a centred feature is multiplied by.
        scale: Vec<f64>,
    },
    Sparse {
        rows: Vec<Vec<(u32, f64)>>,
        vocabulary: Vocabulary,
    },
}

/// Deviations below this share of the largest are taken for it: such features carry rounding alone.
const DEVIATION_MIN: f64 = 1e-6;

impl Block {
    pub(super) fn of(examples: &Examples, reading: Reading) -> Self {
        if reading == Reading::Words {
            let texts: Vec<Vec<String>> = examples.texts.iter().map(|text| terms(text)).collect();
            let vocabulary = Vocabulary::of(texts.iter().map(Vec::as_slice));
            let rows = texts.iter().map(|text| vocabulary.weigh(text)).collect();
            return Self::Sparse { rows, vocabulary };
        }
        let states = &examples.states[&reading];
        let width = states.first().map_or(0, Vec::len);
        let share = 1.0 / states.len().max(1) as f64;
        let mut mean = vec![0.0; width];
        for row in states {
            for (mean, value) in mean.iter_mut().zip(row) {
                *mean += share * f64::from(*value);
            }
        }
        let mut variance = vec![0.0; width];
        for row in states {
            for ((variance, mean), value) in variance.iter_mut().zip(&mean).zip(row) {
                *variance += share * (f64::from(*value) - mean).powi(2);
            }
        }
        let most = variance.iter().copied().fold(0.0, f64::max).sqrt();
        let least = (most * DEVIATION_MIN).max(f64::MIN_POSITIVE);
        let root = (width.max(1) as f64).sqrt();
        let scale: Vec<f64> = variance
            .iter()
            .map(|variance| 1.0 / (variance.sqrt().max(least) * root))
            .collect();
        let rows = states
            .iter()
            .map(|row| {
                let parts = row.iter().zip(&mean).zip(&scale);
                parts
                    .map(|((value, mean), scale)| (f64::from(*value) - mean) * scale)
                    .collect()
            })
            .collect();
        Self::Dense { rows, mean, scale }
    }

    pub(super) fn vocabulary(&self) -> Option<Vocabulary> {
        match self {
            Self::Dense { .. } => None,
            Self::Sparse { vocabulary, .. } => Some(vocabulary.clone()),
        }
    }

    pub(super) fn gram(&self) -> Gram {
        match self {
            Self::Dense { rows, .. } => Gram::of(rows.len(), |a, b| dot(&rows[a], &rows[b])),
            Self::Sparse { rows, .. } => Gram::of(rows.len(), |a, b| overlap(&rows[a], &rows[b])),
        }
    }
}

/// Words and pairs of neighbouring words of a text.
pub(super) fn terms(text: &str) -> Vec<String> {
    let single: Vec<String> = words(text).collect();
    let pairs = single.windows(2).map(|pair| pair.join(" "));
    let pairs: Vec<String> = pairs.collect();
    single.into_iter().chain(pairs).collect()
}

/// The inner product of two sparse rows in order of their places.
fn overlap(a: &[(u32, f64)], b: &[(u32, f64)]) -> f64 {
    let (mut sum, mut at) = (0.0, 0);
    for (place, weight) in a {
        while at < b.len() && b[at].0 < *place {
            at += 1;
        }
        if at < b.len() && b[at].0 == *place {
            sum += weight * b[at].1;
        }
    }
    sum
}
