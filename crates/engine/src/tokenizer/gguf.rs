//! Reads a vocabulary from the metadata of a GGUF file. Must not know how text is encoded.

use std::collections::HashMap;

use candle_core::quantized::gguf_file::Value;

use super::error::TokenizerError;
use super::pipeline::Pipeline;
use super::vocabulary::{Kind, Token, Vocabulary};

/// The metadata of a GGUF file, by key.
pub(super) type Metadata = HashMap<String, Value>;

/// Reads the byte-pair vocabulary of a GGUF file.
///
/// Token types (`tokenizer.ggml.token_type`): 1 is text; 3 (control) and 4 (user defined) are
/// markup; 2 (unknown), 5 (unused) and 6 (byte, of SentencePiece models alone) are never produced.
pub(super) fn read_vocabulary(metadata: &Metadata) -> Result<Vocabulary, TokenizerError> {
    let model = string(metadata, "tokenizer.ggml.model")?;
    if model != "gpt2" {
        return Err(TokenizerError::Unsupported {
            key: "tokenizer.ggml.model".into(),
            found: model.into(),
            supported: "gpt2 (byte-level BPE)".into(),
        });
    }
    let pipeline = Pipeline::from_pre_type(string(metadata, "tokenizer.ggml.pre")?)?;
    let texts = strings(metadata, "tokenizer.ggml.tokens")?;
    let kinds = kinds(metadata, texts.len())?;
    let tokens: Vec<Token> = texts
        .zip(kinds)
        .map(|(text, kind)| {
            Ok(Token {
                text: text?.into(),
                kind,
            })
        })
        .collect::<Result<_, _>>()?;
    let merges = strings(metadata, "tokenizer.ggml.merges")?
        .enumerate()
        .map(|(index, merge)| super::vocabulary::split_merge(index, merge?))
        .collect::<Result<_, _>>()?;

    let id = |key| token_id(metadata, key, tokens.len());
    let bos = id("tokenizer.ggml.bos_token_id")?;
    let stops = [
        id("tokenizer.ggml.eos_token_id")?,
        id("tokenizer.ggml.eot_token_id")?,
    ];
    let add_bos = match metadata.get("tokenizer.ggml.add_bos_token") {
        None => false,
        Some(Value::Bool(add)) => *add,
        Some(other) => {
            return Err(wrong_type(
                "tokenizer.ggml.add_bos_token",
                "a boolean",
                other,
            ));
        }
    };
    let stops = stops.into_iter().flatten().collect();
    Ok(Vocabulary {
        tokens,
        merges,
        pipeline,
        bos,
        add_bos,
        stops,
    })
}

fn kinds(metadata: &Metadata, expected: usize) -> Result<Vec<Kind>, TokenizerError> {
    let key = "tokenizer.ggml.token_type";
    let Some(value) = metadata.get(key) else {
        return Ok(vec![Kind::Text; expected]);
    };
    let Value::Array(entries) = value else {
        return Err(wrong_type(key, "a list", value));
    };
    if entries.len() != expected {
        return Err(TokenizerError::LengthMismatch {
            key: key.into(),
            expected: expected as u64,
            found: entries.len() as u64,
        });
    }
    let kind = |(index, entry)| match integer(entry) {
        Some(1) => Ok(Kind::Text),
        Some(3 | 4) => Ok(Kind::Markup),
        Some(_) => Ok(Kind::Unused),
        None => Err(wrong_type(&format!("{key}[{index}]"), "an integer", entry)),
    };
    entries.iter().enumerate().map(kind).collect()
}

/// The string under `key`.
pub(super) fn string<'a>(metadata: &'a Metadata, key: &str) -> Result<&'a str, TokenizerError> {
    match require(metadata, key)? {
        Value::String(text) => Ok(text),
        other => Err(wrong_type(key, "a string", other)),
    }
}

fn strings<'a>(
    metadata: &'a Metadata,
    key: &'static str,
) -> Result<impl ExactSizeIterator<Item = Result<&'a str, TokenizerError>>, TokenizerError> {
    let Value::Array(entries) = require(metadata, key)? else {
        return Err(wrong_type(
            key,
            "a list of strings",
            require(metadata, key)?,
        ));
    };
    Ok(entries
        .iter()
        .enumerate()
        .map(move |(index, entry)| match entry {
            Value::String(text) => Ok(text.as_str()),
            other => Err(wrong_type(&format!("{key}[{index}]"), "a string", other)),
        }))
}

fn token_id(metadata: &Metadata, key: &str, size: usize) -> Result<Option<u32>, TokenizerError> {
    let Some(value) = metadata.get(key) else {
        return Ok(None);
    };
    let id = integer(value).ok_or_else(|| wrong_type(key, "an integer", value))?;
    match u32::try_from(id) {
        Ok(small) if (small as usize) < size => Ok(Some(small)),
        _ => Err(TokenizerError::IdOutOfRange {
            key: key.into(),
            id,
            size: size as u64,
        }),
    }
}

fn require<'a>(metadata: &'a Metadata, key: &str) -> Result<&'a Value, TokenizerError> {
    metadata.get(key).ok_or_else(|| TokenizerError::Missing {
        place: "the GGUF metadata".into(),
        key: key.into(),
    })
}

fn integer(value: &Value) -> Option<u64> {
    match *value {
        Value::U8(v) => Some(v.into()),
        Value::U16(v) => Some(v.into()),
        Value::U32(v) => Some(v.into()),
        Value::U64(v) => Some(v),
        Value::I8(v) => v.try_into().ok(),
        Value::I16(v) => v.try_into().ok(),
        Value::I32(v) => v.try_into().ok(),
        Value::I64(v) => v.try_into().ok(),
        _ => None,
    }
}

fn wrong_type(key: &str, expected: &'static str, found: &Value) -> TokenizerError {
    let found = format!("{:?}", found.value_type());
    TokenizerError::WrongType {
        key: key.into(),
        expected,
        found,
    }
}
