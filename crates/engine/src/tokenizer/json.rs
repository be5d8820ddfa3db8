//! Reads a vocabulary from the `tokenizer.json` of a safetensors directory and the two
//! configuration files beside it. Must not know how text is encoded.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Map, Value};

use super::error::TokenizerError;
use super::pipeline::Pipeline;
use super::vocabulary::{Kind, Token, Vocabulary, split_merge};

/// The largest id taken; a file that names a higher one is damaged, and would only cost memory.
const MAX_ID: u64 = 1 << 22;

/// Reads `tokenizer.json` at `path`; `tokenizer_config.json` and `generation_config.json` in the
/// same folder give the bos and stop tokens where they exist.
pub(super) fn read_vocabulary(path: &Path) -> Result<Vocabulary, TokenizerError> {
    let root = read_object(path)?.ok_or_else(|| TokenizerError::Read {
        path: path.into(),
        source: std::io::ErrorKind::NotFound.into(),
    })?;
    let place = path.display().to_string();
    let missing = |key: &str| TokenizerError::Missing {
        place: place.clone(),
        key: key.into(),
    };
    let model = root
        .get("model")
        .and_then(Value::as_object)
        .ok_or_else(|| missing("model"))?;
    check_model(&root, model)?;

    let tokens = read_tokens(&root, model, &missing)?;
    let merges = model
        .get("merges")
        .and_then(Value::as_array)
        .ok_or_else(|| missing("model.merges"))?;
    let merges = merges
        .iter()
        .enumerate()
        .map(read_merge)
        .collect::<Result<_, _>>()?;
    let pipeline = read_pipeline(path, &root, model, &missing)?;
    let mut vocabulary = Vocabulary {
        tokens,
        merges,
        pipeline,
        bos: None,
        add_bos: false,
        stops: Vec::new(),
    };
    read_settings(path, &mut vocabulary)?;
    Ok(vocabulary)
}

fn check_model(
    root: &Map<String, Value>,
    model: &Map<String, Value>,
) -> Result<(), TokenizerError> {
    let unset = |v: &Value| matches!(v, Value::Null | Value::Bool(false)) || v == "" || v == 0.0;
    let refuse = |key: &str, found: &Value, supported: &str| {
        Err(TokenizerError::Unsupported {
            key: key.into(),
            found: found.to_string(),
            supported: supported.into(),
        })
    };
    for key in [
        "dropout",
        "continuing_subword_prefix",
        "end_of_word_suffix",
        "byte_fallback",
    ] {
        if let Some(found) = model.get(key)
            && !unset(found)
        {
            return refuse(&format!("model.{key}"), found, "unset");
        }
    }
    let kind = model.get("type").unwrap_or(&Value::Null);
    if kind != "BPE" {
        return refuse("model.type", kind, "BPE");
    }
    let decoder = root
        .get("decoder")
        .and_then(|d| d.get("type"))
        .unwrap_or(&Value::Null);
    if decoder != "ByteLevel" {
        return refuse("decoder.type", decoder, "ByteLevel");
    }
    let pre_tokenizer = root.get("pre_tokenizer").unwrap_or(&Value::Null);
    match byte_level(pre_tokenizer).and_then(|b| b.get("add_prefix_space")) {
        Some(Value::Bool(false)) => Ok(()),
        _ => refuse(
            "pre_tokenizer",
            pre_tokenizer,
            "ByteLevel with add_prefix_space false",
        ),
    }
}

fn byte_level(pre_tokenizer: &Value) -> Option<&Value> {
    if pre_tokenizer.get("type")? == "ByteLevel" {
        return Some(pre_tokenizer);
    }
    pre_tokenizer
        .get("pretokenizers")?
        .as_array()?
        .iter()
        .find_map(byte_level)
}

fn read_tokens(
    root: &Map<String, Value>,
    model: &Map<String, Value>,
    missing: &dyn Fn(&str) -> TokenizerError,
) -> Result<Vec<Token>, TokenizerError> {
    let vocab = model
        .get("vocab")
        .and_then(Value::as_object)
        .ok_or_else(|| missing("model.vocab"))?;
    let mut tokens = Vec::with_capacity(vocab.len());
    for (text, id) in vocab {
        put(&mut tokens, text, id, Kind::Text)?;
    }
    let added = root
        .get("added_tokens")
        .and_then(Value::as_array)
        .map_or(&[][..], Vec::as_slice);
    for token in added {
        let text = token.get("content").and_then(Value::as_str);
        let text = text.ok_or_else(|| missing("added_tokens[].content"))?;
        for key in ["lstrip", "rstrip", "single_word"] {
            if token.get(key) == Some(&Value::Bool(true)) {
                return Err(TokenizerError::Unsupported {
                    key: format!("{key} of the added token {text}"),
                    found: "true".into(),
                    supported: "false".into(),
                });
            }
        }
        put(
            &mut tokens,
            text,
            token.get("id").unwrap_or(&Value::Null),
            Kind::Markup,
        )?;
    }
    Ok(tokens)
}

/// Ids that no token has are left as unused tokens without text.
fn put(tokens: &mut Vec<Token>, text: &str, id: &Value, kind: Kind) -> Result<(), TokenizerError> {
    let key = || format!("id of the token {}", text.escape_debug());
    let id = id.as_u64().ok_or_else(|| TokenizerError::WrongType {
        key: key(),
        expected: "an integer",
        found: id.to_string(),
    })?;
    if id >= MAX_ID {
        return Err(TokenizerError::IdOutOfRange {
            key: key(),
            id,
            size: MAX_ID,
        });
    }
    let index = id as usize;
    while tokens.len() <= index {
        tokens.push(Token {
            text: String::new(),
            kind: Kind::Unused,
        });
    }
    tokens[index] = Token {
        text: text.into(),
        kind,
    };
    Ok(())
}

/// A merge is written `"a b"` or, in newer files, `["a", "b"]`.
fn read_merge((index, merge): (usize, &Value)) -> Result<(String, String), TokenizerError> {
    if let Some(text) = merge.as_str() {
        return split_merge(index, text);
    }
    let parts: Option<Vec<&str>> = merge
        .as_array()
        .and_then(|parts| parts.iter().map(Value::as_str).collect());
    match parts.as_deref() {
        Some([left, right]) => Ok((String::from(*left), String::from(*right))),
        _ => Err(TokenizerError::BadMerge {
            index: index as u64,
            merge: merge.to_string(),
        }),
    }
}

fn read_pipeline(
    path: &Path,
    root: &Map<String, Value>,
    model: &Map<String, Value>,
    missing: &dyn Fn(&str) -> TokenizerError,
) -> Result<Pipeline, TokenizerError> {
    let json = |source| TokenizerError::Json {
        path: path.into(),
        source,
    };
    let normalizer = root.get("normalizer").unwrap_or(&Value::Null);
    let pre_tokenizer = root
        .get("pre_tokenizer")
        .ok_or_else(|| missing("pre_tokenizer"))?;
    Ok(Pipeline {
        name: format!("json:{normalizer}{pre_tokenizer}"),
        normalizer: serde_json::from_value(normalizer.clone()).map_err(json)?,
        pre_tokenizer: serde_json::from_value(pre_tokenizer.clone()).map_err(json)?,
        ignore_merges: model.get("ignore_merges") == Some(&Value::Bool(true)),
    })
}

fn read_settings(path: &Path, vocabulary: &mut Vocabulary) -> Result<(), TokenizerError> {
    let mut stops = BTreeSet::new();
    let size = vocabulary.tokens.len() as u64;
    let generation = path.with_file_name("generation_config.json");
    if let Some(settings) = read_object(&generation)? {
        let ids = settings.get("eos_token_id").unwrap_or(&Value::Null);
        let ids = ids
            .as_array()
            .map_or(std::slice::from_ref(ids), Vec::as_slice);
        for id in ids.iter().filter_map(Value::as_u64) {
            if id >= size {
                return Err(TokenizerError::IdOutOfRange {
                    key: "eos_token_id".into(),
                    id,
                    size,
                });
            }
            stops.insert(id as u32);
        }
    }
    let Some(settings) = read_object(&path.with_file_name("tokenizer_config.json"))? else {
        vocabulary.stops = stops.into_iter().collect();
        return Ok(());
    };
    let id_of = |key: &str| {
        let value = settings.get(key)?;
        let text = value.as_str().or_else(|| value.get("content")?.as_str())?;
        let named = |t: &Token| t.kind == Kind::Markup && t.text == text;
        vocabulary.tokens.iter().position(named).map(|id| id as u32)
    };
    let (bos, eos) = (id_of("bos_token"), id_of("eos_token"));
    vocabulary.bos = bos;
    vocabulary.add_bos = settings.get("add_bos_token") == Some(&Value::Bool(true));
    vocabulary.stops = eos.into_iter().collect();
    vocabulary
        .stops
        .extend(stops.into_iter().filter(|&id| Some(id) != eos));
    Ok(())
}

/// The JSON object in a file; `None` if there is no such file.
pub(crate) fn read_object(path: &Path) -> Result<Option<Map<String, Value>>, TokenizerError> {
    match std::fs::read(path) {
        Ok(bytes) => {
            serde_json::from_slice(&bytes)
                .map(Some)
                .map_err(|source| TokenizerError::Json {
                    path: path.into(),
                    source,
                })
        }
        Err(source) if source.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(TokenizerError::Read {
            path: path.into(),
            source,
        }),
    }
}
