//! The file of a head: safetensors, with what it belongs to as JSON in its metadata.
//!
//! The same head gives the same bytes, and their BLAKE3 is the head's identity.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;

use operator::vocabulary::Vocabulary;
use safetensors::tensor::{Dtype, SafeTensors, View};
use serde::{Deserialize, Serialize};

use super::{Bond, Group, Head, Part, Reading};
use crate::error::EngineError;

/// Version of the format; others are refused.
const VERSION: u32 = 1;
const METADATA_KEY: &str = "engine head";

/// The JSON in the metadata.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Card {
    version: u32,
    bond: Bond,
    readings: Vec<Reading>,
    groups: Vec<String>,
    /// Words and pairs that [`Reading::Words`] knows.
    words: Vec<String>,
    idf_micro: Vec<u32>,
}

/// A named array on its way into the file.
struct Array {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl View for &Array {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(&self.bytes)
    }

    fn data_len(&self) -> usize {
        self.bytes.len()
    }
}

fn wide(values: &[f64]) -> Array {
    Array {
        dtype: Dtype::F64,
        shape: vec![values.len()],
        bytes: values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect(),
    }
}

fn narrow(values: &[f32], labels: usize) -> Array {
    Array {
        dtype: Dtype::F32,
        shape: vec![labels, values.len() / labels],
        bytes: values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect(),
    }
}

impl Head {
    /// Writes the head's file.
    ///
    /// # Errors
    /// `BadHead` where it cannot be written as safetensors; nothing that was trained or read is so.
    pub fn to_bytes(&self) -> Result<Vec<u8>, EngineError> {
        let labels = self.bond.labels.len();
        let vocabulary = self.parts.iter().find_map(|part| part.vocabulary.as_ref());
        let card = Card {
            version: VERSION,
            bond: self.bond.clone(),
            readings: self.readings().collect(),
            groups: self.groups.iter().map(|group| group.name.clone()).collect(),
            words: vocabulary.map_or(Vec::new(), |found| found.words().to_vec()),
            idf_micro: vocabulary.map_or(Vec::new(), |found| found.idf_micro().to_vec()),
        };
        let mut arrays = vec![
            ("bias".to_owned(), wide(&self.bias)),
            ("offset".to_owned(), wide(&self.offset)),
            ("temperature".to_owned(), wide(&[self.temperature])),
        ];
        for part in &self.parts {
            arrays.push((part.reading.to_string(), narrow(&part.weights, labels)));
        }
        for (at, group) in self.groups.iter().enumerate() {
            arrays.push((format!("group {at}: bias"), wide(&group.bias)));
            for (part, weights) in self.parts.iter().zip(&group.weights) {
                let name = format!("group {at}: {}", part.reading);
                arrays.push((name, narrow(weights, labels)));
            }
        }
        let bad = |problem: String| EngineError::bad_head("the head", problem);
        let json = serde_json::to_string(&card).map_err(|error| bad(error.to_string()))?;
        let metadata = HashMap::from([(METADATA_KEY.to_owned(), json)]);
        let views = arrays.iter().map(|(name, array)| (name, array));
        safetensors::serialize(views, Some(metadata)).map_err(|error| bad(error.to_string()))
    }

    /// Reads a head's file.
    ///
    /// # Errors
    /// `Io` where it cannot be read, `BadHead` where it is none, or its parts do not fit each other.
    pub fn load(path: &Path) -> Result<Self, EngineError> {
        let bytes = std::fs::read(path).map_err(|source| EngineError::io(path, source))?;
        Self::parse(&bytes).map_err(|problem| EngineError::bad_head(path, problem))
    }

    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let none = |error: &dyn std::fmt::Display| format!("is no head: {error}");
        let (_, header) = SafeTensors::read_metadata(bytes).map_err(|error| none(&error))?;
        let json = header
            .metadata()
            .as_ref()
            .and_then(|metadata| metadata.get(METADATA_KEY))
            .ok_or_else(|| none(&"its metadata does not say what it belongs to"))?;
        let card: Card = serde_json::from_str(json).map_err(|error| none(&error))?;
        if card.version != VERSION {
            return Err(format!(
                "is of version {}, this program reads {VERSION}",
                card.version
            ));
        }
        let tensors = SafeTensors::deserialize(bytes).map_err(|error| none(&error))?;
        let labels = card.bond.labels.len();
        if labels < 2 || card.words.len() != card.idf_micro.len() {
            return Err("its labels or words do not fit each other".to_owned());
        }
        let floats = |name: &str, count: usize| -> Result<Vec<f64>, String> {
            let found = tensors.tensor(name).map_err(|error| none(&error))?;
            if found.dtype() != Dtype::F64 || found.shape() != [count] {
                return Err(format!("its {name} is not {count} numbers of 64 bits"));
            }
            let numbers = found.data().chunks_exact(8).map(|bytes| {
                let mut number = [0; 8];
                number.copy_from_slice(bytes);
                f64::from_le_bytes(number)
            });
            finite(name, numbers.collect())
        };
        let weights = |name: &str, width: Option<usize>| -> Result<Vec<f32>, String> {
            let found = tensors.tensor(name).map_err(|error| none(&error))?;
            let wanted = width.unwrap_or_else(|| found.shape().last().copied().unwrap_or(0));
            if found.dtype() != Dtype::F32 || found.shape() != [labels, wanted] {
                return Err(format!(
                    "its {name} is not {labels} times {wanted} numbers of 32 bits"
                ));
            }
            let numbers = found.data().chunks_exact(4).map(|bytes| {
                let mut number = [0; 4];
                number.copy_from_slice(bytes);
                f32::from_le_bytes(number)
            });
            let numbers: Vec<f32> = numbers.collect();
            match numbers.iter().all(|number| number.is_finite()) {
                true => Ok(numbers),
                false => Err(format!("its {name} holds what is no number")),
            }
        };
        let mut parts = Vec::new();
        for reading in &card.readings {
            let words = *reading == Reading::Words;
            parts.push(Part {
                reading: *reading,
                weights: weights(&reading.to_string(), words.then_some(card.words.len()))?,
                vocabulary: words
                    .then(|| Vocabulary::new(card.words.clone(), card.idf_micro.clone())),
            });
        }
        let mut groups = Vec::new();
        for (at, name) in card.groups.iter().enumerate() {
            let of_parts = parts.iter().map(|part| {
                let width = part.weights.len() / labels;
                weights(&format!("group {at}: {}", part.reading), Some(width))
            });
            groups.push(Group {
                name: name.clone(),
                weights: of_parts.collect::<Result<_, _>>()?,
                bias: floats(&format!("group {at}: bias"), labels)?,
            });
        }
        let temperature = floats("temperature", 1)?[0];
        if temperature <= 0.0 {
            return Err(format!(
                "its temperature is {temperature}; above 0 is right"
            ));
        }
        Ok(Self {
            bias: floats("bias", labels)?,
            offset: floats("offset", labels)?,
            temperature,
            parts,
            groups,
            bond: card.bond,
            digest: *blake3::hash(bytes).as_bytes(),
        })
    }

    /// Takes the identity that its file has.
    pub(super) fn sealed(mut self) -> Result<Self, EngineError> {
        self.digest = *blake3::hash(&self.to_bytes()?).as_bytes();
        Ok(self)
    }
}

fn finite(name: &str, numbers: Vec<f64>) -> Result<Vec<f64>, String> {
    match numbers.iter().all(|number| number.is_finite()) {
        true => Ok(numbers),
        false => Err(format!("its {name} holds what is no number")),
    }
}
