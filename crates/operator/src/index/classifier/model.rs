//! The trained classifier, its file, and how it judges.
//!
//! The file holds integers and words only, so that a classifier that was read judges as the one that
//! was written.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::invalid;
use super::train::{Example, order, shares, train};
use crate::error::OperatorError;
use crate::infer::Answer;
use crate::plan::ClassifierIndex;
use crate::vocabulary::Vocabulary;

/// Version of the file.
const VERSION: u32 = 1;
const MILLION: f64 = 1e6;

/// A trained classifier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Classifier {
    fields: Vec<String>,
    classes: Vec<String>,
    trained_on: BTreeSet<String>,
    vocabulary: Vocabulary,
    /// By class and then by word, in millionths.
    weights: Vec<Vec<i64>>,
    /// By class, in millionths.
    bias: Vec<i64>,
}

/// The file's JSON.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClassifierFile {
    version: u32,
    fields: Vec<String>,
    classes: Vec<String>,
    /// Ids of the records that it was trained on, sorted.
    trained_on: BTreeSet<String>,
    words: Vec<String>,
    idf_micro: Vec<u32>,
    weights_micro: Vec<Vec<i64>>,
    bias_micro: Vec<i64>,
}

impl Classifier {
    /// Learns from labelled texts.
    pub(super) fn train(spec: &ClassifierIndex, mut examples: Vec<Example>) -> Self {
        order(&mut examples);
        let vocabulary = Vocabulary::of(examples.iter().map(|example| example.words.as_slice()));
        let weights = train(&examples, &vocabulary, spec.classes.len());
        Self {
            fields: spec.fields.clone(),
            classes: spec.classes.clone(),
            trained_on: examples.into_iter().map(|example| example.id).collect(),
            vocabulary,
            weights: weights.words,
            bias: weights.bias,
        }
    }

    /// Ids of the records that it was trained on.
    pub fn trained_on(&self) -> impl Iterator<Item = &str> {
        self.trained_on.iter().map(String::as_str)
    }

    /// Judges the words of a text: a distribution over the classes; none where no word is known.
    pub fn judge(&self, words: &[String]) -> Option<Answer> {
        let text = self.vocabulary.weigh(words);
        if text.is_empty() {
            return None;
        }
        let scores: Vec<f64> = self
            .weights
            .iter()
            .zip(&self.bias)
            .map(|(weights, bias)| {
                let parts = text
                    .iter()
                    .map(|(place, weight)| weights[*place as usize] as f64 * weight);
                parts.fold(*bias as f64, |sum, part| sum + part) / MILLION
            })
            .collect();
        Answer::from_weights(&shares(&scores), 1.0)
    }

    /// Reads a classifier from its file's bytes; `path` names it.
    ///
    /// # Errors
    /// `FileInvalid` where it is none, or parts of it do not fit each other.
    pub fn parse(path: &str, bytes: &[u8]) -> Result<Self, OperatorError> {
        let file: ClassifierFile = serde_json::from_slice(bytes).map_err(|error| {
            let problem = format!("is no classifier: {error}; write one with engine plan");
            OperatorError::FileInvalid {
                path: path.to_owned(),
                line: error.line() as u64,
                problem,
            }
        })?;
        if file.version != VERSION {
            let problem = format!(
                "is of version {}, this program reads {VERSION}; train it again",
                file.version
            );
            return Err(invalid(path, problem));
        }
        let (classes, words) = (file.classes.len(), file.words.len());
        let fits = file.idf_micro.len() == words
            && file.bias_micro.len() == classes
            && file.weights_micro.len() == classes
            && file.weights_micro.iter().all(|row| row.len() == words);
        if !fits {
            let problem = "its numbers of classes, words and weights differ; train it again";
            return Err(invalid(path, problem.to_owned()));
        }
        Ok(Self {
            fields: file.fields,
            classes: file.classes,
            trained_on: file.trained_on,
            vocabulary: Vocabulary::new(file.words, file.idf_micro),
            weights: file.weights_micro,
            bias: file.bias_micro,
        })
    }

    /// Writes the classifier's file; the same bytes for the same classifier.
    ///
    /// # Errors
    /// `FileInvalid` where it cannot be written as JSON; nothing that was trained or read is so.
    pub fn to_json(&self) -> Result<Vec<u8>, OperatorError> {
        let file = ClassifierFile {
            version: VERSION,
            fields: self.fields.clone(),
            classes: self.classes.clone(),
            trained_on: self.trained_on.clone(),
            words: self.vocabulary.words().to_vec(),
            idf_micro: self.vocabulary.idf_micro().to_vec(),
            weights_micro: self.weights.clone(),
            bias_micro: self.bias.clone(),
        };
        serde_json::to_vec(&file).map_err(|error| invalid("classifier", error.to_string()))
    }

    /// Whether it is what the plan's index describes.
    pub(super) fn check(&self, path: &str, spec: &ClassifierIndex) -> Result<(), OperatorError> {
        for (what, found, wanted) in [
            ("classes", &self.classes, &spec.classes),
            ("fields", &self.fields, &spec.fields),
        ] {
            if found != wanted {
                let problem = format!(
                    "has the {what} {}, the plan's index has {}; make them equal",
                    found.join(", "),
                    wanted.join(", ")
                );
                return Err(invalid(path, problem));
            }
        }
        Ok(())
    }
}
