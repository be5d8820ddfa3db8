//! What a head reads of a record.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// One source of features.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Reading {
    /// The residual at the first node of the answer, as it enters a layer.
    Answer(usize),
    /// The normed final state there, from which the labels' logits are made.
    Final,
    /// The mean over the record's own rows of the residual that enters a layer.
    Mean(usize),
    /// The words of the record, by TF-IDF.
    Words,
    /// The logarithms of the labels' probabilities by their own logits.
    Labels,
}

impl Reading {
    /// The layer that has to be tapped for it, where there is one.
    pub fn layer(self) -> Option<usize> {
        match self {
            Self::Answer(layer) | Self::Mean(layer) => Some(layer),
            Self::Final | Self::Words | Self::Labels => None,
        }
    }
}

impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answer(layer) => write!(f, "answer@{layer}"),
            Self::Final => f.write_str("answer@final"),
            Self::Mean(layer) => write!(f, "mean@{layer}"),
            Self::Words => f.write_str("words"),
            Self::Labels => f.write_str("labels"),
        }
    }
}

impl FromStr for Reading {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let layer = |of: &str| of.parse::<usize>().ok();
        let found = match text.split_once('@') {
            Some(("answer", "final")) => Some(Self::Final),
            Some(("answer", at)) => layer(at).map(Self::Answer),
            Some(("mean", at)) => layer(at).map(Self::Mean),
            None if text == "words" => Some(Self::Words),
            None if text == "labels" => Some(Self::Labels),
            _ => None,
        };
        found.ok_or_else(|| {
            format!("{text:?} is nothing that a head reads; write answer@14, answer@final, mean@14, words or labels")
        })
    }
}

impl From<Reading> for String {
    fn from(reading: Reading) -> Self {
        reading.to_string()
    }
}

impl TryFrom<String> for Reading {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}
