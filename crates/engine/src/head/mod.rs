//! Trained heads: a question answered from the model's inner states instead of its labels' logits.
//!
//! The states come from the forward that scores the labels anyway, so that a head costs a product of a few
//! thousand numbers. It is fitted on few labels by [`train()`], kept in one file whose hash is its identity,
//! and bound to the backend, the rubric and the question that it was trained under: asked under another it
//! is refused. A head judges one record at a time; it must not know jobs, plans or facts.

mod examples;
mod file;
mod folds;
mod gram;
mod logistic;
mod prior;
mod rare;
mod reading;
mod recall;
mod temperature;
mod train;

#[cfg(test)]
mod tests;

use operator::vocabulary::Vocabulary;
use serde::{Deserialize, Serialize};

use crate::runner::RecordStates;

pub use examples::Examples;
pub use folds::{shuffle, split};
pub use prior::CONTENT_FREE;
pub use reading::Reading;
pub use recall::positives_needed;
pub use train::{Candidate, HeldOut, Options, RecallTarget, TrainError, Trained, Tried, train};

/// What a head belongs to: it answers nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bond {
    /// Identity of the backend without heads, as hex: model file, tokenizer, template, number format.
    pub backend: String,
    /// The backend in words, for a person.
    pub describe: String,
    /// Hash of the rubric, as hex.
    pub rubric: String,
    /// The question's field.
    pub field: String,
    /// What precedes its label.
    pub scaffold: String,
    /// Its labels, in order.
    pub labels: Vec<String>,
    /// The field of the record by which heads differ: the first one shown.
    pub group_by: Option<String>,
}

/// A head, read or just trained.
#[derive(Debug, Clone, PartialEq)]
pub struct Head {
    bond: Bond,
    parts: Vec<Part>,
    /// `[labels]`
    bias: Vec<f64>,
    /// What groups add, by name.
    groups: Vec<Group>,
    temperature: f64,
    /// `[labels]` added to the cooled scores, where a recall target moved the decision; else zero.
    offset: Vec<f64>,
    digest: [u8; 32],
}

/// The weights of one reading.
#[derive(Debug, Clone, PartialEq)]
struct Part {
    reading: Reading,
    weights: Vec<f32>, // [labels, width]
    /// Of [`Reading::Words`] alone.
    vocabulary: Option<Vocabulary>,
}

/// What differs for the records of a group.
#[derive(Debug, Clone, PartialEq)]
struct Group {
    name: String,
    weights: Vec<Vec<f32>>, // [parts][labels, width]
    bias: Vec<f64>,         // [labels]
}

/// What a head makes of a record's text: all that needs no forward.
#[derive(Debug, Clone, PartialEq)]
pub struct TextScores {
    scores: Vec<f64>, // [labels]
    group: Option<usize>,
}

impl Head {
    /// What it belongs to.
    pub fn bond(&self) -> &Bond {
        &self.bond
    }

    /// The hash of its file: its identity.
    pub fn digest(&self) -> [u8; 32] {
        self.digest
    }

    /// What it reads.
    pub fn readings(&self) -> impl Iterator<Item = Reading> + '_ {
        self.parts.iter().map(|part| part.reading)
    }

    /// Whether a model of so many layers, whose states are so wide, has what the head reads.
    ///
    /// # Errors
    /// A sentence naming the first reading that it has not.
    pub(crate) fn check_shape(&self, layers: usize, hidden: usize) -> Result<(), String> {
        let labels = self.bond.labels.len();
        for part in &self.parts {
            let deep = part.reading.layer().is_some_and(|layer| layer >= layers);
            let width = match part.reading {
                Reading::Labels => labels,
                _ => hidden,
            };
            let wide = part.vocabulary.is_none() && part.weights.len() != labels * width;
            if deep || wide {
                return Err(format!(
                    "it reads {} of another shape: the model has {layers} layers of {hidden} numbers",
                    part.reading
                ));
            }
        }
        Ok(())
    }

    /// Scores that the text alone gives.
    pub fn read_text(&self, text: &str) -> TextScores {
        let field = self.bond.group_by.as_ref();
        let name = field.and_then(|field| group_of(text, field));
        self.read_grouped(text, name)
    }

    fn read_grouped(&self, text: &str, name: Option<&str>) -> TextScores {
        let group = name.and_then(|name| self.groups.iter().position(|of| of.name == name));
        let mut scores = self.bias.clone();
        if let Some(group) = group {
            for (score, bias) in scores.iter_mut().zip(&self.groups[group].bias) {
                *score += bias;
            }
        }
        for (place, part) in self.parts.iter().enumerate() {
            let Some(vocabulary) = &part.vocabulary else {
                continue;
            };
            let row = vocabulary.weigh(&examples::terms(text));
            let width = vocabulary.words().len();
            let mut add = |weights: &[f32]| {
                for (score, weights) in scores.iter_mut().zip(weights.chunks_exact(width.max(1))) {
                    *score += row
                        .iter()
                        .map(|(word, weight)| f64::from(weights[*word as usize]) * weight)
                        .sum::<f64>();
                }
            };
            add(&part.weights);
            if let Some(group) = group {
                add(&self.groups[group].weights[place]);
            }
        }
        TextScores { scores, group }
    }

    /// Probability of each label of a record; sums to 1. `question` is the place of the question among
    /// those of the states, `taps` the layers that they were read from.
    ///
    /// # Panics
    /// If a layer that the head reads was not tapped, or the states are of another width.
    pub fn judge(
        &self,
        text: &TextScores,
        states: &RecordStates,
        question: usize,
        taps: &[usize],
    ) -> Vec<f64> {
        self.judge_rows(text, &|reading| state_of(reading, states, question, taps))
    }

    /// Judges a labelled example as it would judge the record that it was made of.
    ///
    /// # Panics
    /// If the examples lack what the head reads.
    pub fn judge_example(&self, examples: &Examples, place: usize) -> Vec<f64> {
        let text = examples.texts.get(place).map_or("", String::as_str);
        let name = examples.group_of.get(place).map(String::as_str);
        let text = self.read_grouped(text, name);
        self.judge_rows(&text, &|reading| {
            examples
                .states
                .get(&reading)
                .map(|rows| rows[place].as_slice())
        })
    }

    fn judge_rows<'s>(
        &self,
        text: &TextScores,
        row_of: &dyn Fn(Reading) -> Option<&'s [f32]>,
    ) -> Vec<f64> {
        let mut scores = text.scores.clone();
        for (place, part) in self.parts.iter().enumerate() {
            let Some(row) = row_of(part.reading) else {
                continue;
            };
            let mut add = |weights: &[f32]| {
                for (score, weights) in scores.iter_mut().zip(weights.chunks_exact(row.len())) {
                    *score += product(weights, row);
                }
            };
            add(&part.weights);
            if let Some(group) = text.group {
                add(&self.groups[group].weights[place]);
            }
        }
        self.shares(&scores)
    }

    fn shares(&self, scores: &[f64]) -> Vec<f64> {
        let moved: Vec<f64> = scores
            .iter()
            .zip(&self.offset)
            .map(|(score, offset)| score / self.temperature + offset)
            .collect();
        logistic::softmax(&moved, 1.0)
    }
}

/// The state that a reading means; none of words.
///
/// # Panics
/// If its layer was not tapped.
pub fn state_of<'s>(
    reading: Reading,
    states: &'s RecordStates,
    question: usize,
    taps: &[usize],
) -> Option<&'s [f32]> {
    let answer = &states.answers[question];
    let hidden = answer.len() / (taps.len() + 1);
    let place = |layer: usize| {
        let found = taps.iter().position(|&tap| tap == layer);
        found.unwrap_or_else(|| panic!("layer {layer} is tapped"))
    };
    let row = |of: &'s [f32], at: usize| Some(&of[at * hidden..(at + 1) * hidden]);
    match reading {
        Reading::Answer(layer) => row(answer, place(layer)),
        Reading::Final => row(answer, taps.len()),
        Reading::Mean(layer) => row(&states.mean, place(layer)),
        Reading::Words => None,
        Reading::Labels => Some(&states.labels[question]),
    }
}

/// The value of the field that a unit's text begins with, if it is this one and has one line.
pub fn group_of<'t>(text: &'t str, field: &str) -> Option<&'t str> {
    let line = text.lines().next()?;
    line.strip_prefix(field)?.strip_prefix(": ")
}

/// An inner product in f64, in the order of the features.
fn product(weights: &[f32], row: &[f32]) -> f64 {
    weights
        .iter()
        .zip(row)
        .map(|(weight, value)| f64::from(*weight) * f64::from(*value))
        .sum()
}
