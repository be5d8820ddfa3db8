//! TF-IDF: a text as the weights of the words that it has in common with the training texts.
//!
//! Weights are those usual in text classification: (1 + ln tf) times ln((1 + n) / (1 + df)) + 1, scaled to
//! length 1. What is kept of a vocabulary are integers, in millionths.

use std::collections::{BTreeMap, HashMap};

/// Most words that are kept, the most frequent ones.
const WORDS_MAX: usize = 20_000;
const MILLION: f64 = 1e6;

/// The words that count, each with its weight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vocabulary {
    /// In order of their place.
    words: Vec<String>,
    /// Inverse document frequencies, in millionths.
    idf_micro: Vec<u32>,
    places: HashMap<String, u32>,
}

impl Vocabulary {
    /// Counts the words of texts.
    pub fn of<'t>(texts: impl ExactSizeIterator<Item = &'t [String]>) -> Self {
        let total = texts.len() as f64;
        let mut found: HashMap<&str, u32> = HashMap::new();
        for text in texts {
            let mut once: Vec<&str> = text.iter().map(String::as_str).collect();
            once.sort_unstable();
            once.dedup();
            for word in once {
                *found.entry(word).or_default() += 1;
            }
        }
        let mut ranked: Vec<(&str, u32)> = found.into_iter().collect();
        ranked.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(b.0)));
        ranked.truncate(WORDS_MAX);
        let idf = |count: u32| ((1.0 + total) / (1.0 + f64::from(count))).ln() + 1.0;
        let idf_micro = ranked
            .iter()
            .map(|(_, count)| (idf(*count) * MILLION).round() as u32);
        let idf_micro = idf_micro.collect();
        Self::new(
            ranked.iter().map(|(word, _)| (*word).to_owned()).collect(),
            idf_micro,
        )
    }

    /// A vocabulary that was kept.
    pub fn new(words: Vec<String>, idf_micro: Vec<u32>) -> Self {
        let places = (0_u32..)
            .zip(&words)
            .map(|(place, word)| (word.clone(), place));
        Self {
            places: places.collect(),
            words,
            idf_micro,
        }
    }

    /// The words, by their place.
    pub fn words(&self) -> &[String] {
        &self.words
    }

    /// Inverse document frequencies in millionths, by the place of the word.
    pub fn idf_micro(&self) -> &[u32] {
        &self.idf_micro
    }

    /// The weights of a text by the place of the word, in that order; empty where it has none of them.
    pub fn weigh(&self, text: &[String]) -> Vec<(u32, f64)> {
        let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
        for word in text {
            if let Some(place) = self.places.get(word) {
                *counts.entry(*place).or_default() += 1;
            }
        }
        let mut weights: Vec<(u32, f64)> = counts
            .into_iter()
            .map(|(place, count)| {
                let idf = f64::from(self.idf_micro[place as usize]) / MILLION;
                (place, (1.0 + f64::from(count).ln()) * idf)
            })
            .collect();
        let length = weights
            .iter()
            .map(|(_, weight)| weight * weight)
            .sum::<f64>()
            .sqrt();
        for (_, weight) in &mut weights {
            *weight /= length;
        }
        weights
    }
}
