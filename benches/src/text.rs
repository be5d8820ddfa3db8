//! The tokenizers and records of the fixtures.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Cursor, Read};

use candle_core::quantized::gguf_file::{Content, Value};
use operator::ops::{Partition, partition};
use operator::record::read_source;
use operator::{Plan, text};

use crate::{Result, fixture};

/// Metadata of a model's GGUF file, `smollm2` or `qwen2`; its merges are stored as the places
/// where tokens are cut.
///
/// # Errors
/// When the fixture is missing or damaged.
pub fn metadata(model: &str) -> Result<HashMap<String, Value>> {
    let name = format!("reference/{model}-tokenizer.zip");
    let mut archive = zip::ZipArchive::new(File::open(fixture(&name))?)?;
    let mut bytes = Vec::new();
    archive.by_name("tokenizer.gguf")?.read_to_end(&mut bytes)?;
    let mut metadata = Content::read(&mut Cursor::new(bytes))?.metadata;
    let first = metadata["reference.first_merged_token"].to_u32()? as usize;
    let tokens = metadata["tokenizer.ggml.tokens"].to_vec()?;
    let cuts = metadata["reference.merge_splits"].to_vec()?;
    let mut merges = Vec::with_capacity(cuts.len());
    for (token, cut) in tokens[first..].iter().zip(cuts) {
        let (token, cut) = (token.to_string()?, usize::from(cut.to_u8()?));
        let at = token
            .char_indices()
            .nth(cut)
            .map_or(token.len(), |(at, _)| at);
        merges.push(Value::String(format!("{} {}", &token[..at], &token[at..])));
    }
    metadata.insert("tokenizer.ggml.merges".into(), Value::Array(merges));
    Ok(metadata)
}

/// The plan that sorts issues by kind, and the corpus of 1,000 invented issues as its units.
///
/// # Errors
/// When a fixture is missing or damaged.
pub fn corpus() -> Result<(Plan, Partition)> {
    let plan = Plan::load(&fixture("plans/issue-kind.toml"))?;
    let (source, records, bad) = read_source(&fixture("issues-1000.json"), None)?;
    let parts = partition(&plan, source, records, bad)?;
    Ok((plan, parts))
}

/// The first `count` texts of the corpus as the model reads them.
///
/// # Errors
/// As [`corpus`].
pub fn texts(count: usize) -> Result<Vec<String>> {
    let (plan, parts) = corpus()?;
    let units = parts.units.iter().take(count);
    let texts = units.map(|unit| text::render(&plan, unit).map(|unit| unit.text));
    Ok(texts
        .collect::<std::result::Result<_, _>>()
        .map_err(|problem| problem.message)?)
}
