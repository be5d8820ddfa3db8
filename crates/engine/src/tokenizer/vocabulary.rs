//! A byte-pair vocabulary as its file states it: tokens, merges, special ids, and the pipeline of
//! its pre-tokenizer. Must not know the file format, nor how text is encoded.

use super::error::TokenizerError;
use super::pipeline::Pipeline;

/// Names under which model families mark the end of a turn or of a text. A chat model may end its
/// answer with any of those its vocabulary holds, whichever one the file calls eos.
const END_MARKS: [&str; 7] = [
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|endoftext|>",
    "<|end|>",
    "<end_of_turn>",
];

/// What a token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A piece of ordinary text, spelled in the byte-level alphabet.
    Text,
    /// Control or user-defined: stands for itself, and only in trusted markup.
    Markup,
    /// Padding of the vocabulary; never produced.
    Unused,
}

/// One token.
pub(super) struct Token {
    pub(super) text: String,
    pub(super) kind: Kind,
}

/// All that a tokenizer is built from.
pub(super) struct Vocabulary {
    /// In order of id.
    pub(super) tokens: Vec<Token>,
    /// In order of rank, the first merged first.
    pub(super) merges: Vec<(String, String)>,
    pub(super) pipeline: Pipeline,
    pub(super) bos: Option<u32>,
    pub(super) add_bos: bool,
    /// End of sequence first, where the file names one.
    pub(super) stops: Vec<u32>,
}

impl Vocabulary {
    /// Adds the end marks of the known families to the stop ids.
    pub(super) fn add_end_marks(&mut self) {
        for (id, token) in (0u32..).zip(&self.tokens) {
            if token.kind == Kind::Markup
                && END_MARKS.contains(&token.text.as_str())
                && !self.stops.contains(&id)
            {
                self.stops.push(id);
            }
        }
    }

    /// Refuses vocabularies whose added tokens are needed for ordinary text.
    ///
    /// Runs of spaces as added tokens (the GPT-NeoX family) are part of plain text; taking them for
    /// markup would give other ids than the model was trained on.
    pub(super) fn check_markup(&self) -> Result<(), TokenizerError> {
        for (id, token) in self.tokens.iter().enumerate() {
            if token.kind == Kind::Markup && token.text.trim().is_empty() {
                return Err(TokenizerError::Unsupported {
                    key: format!("added token {id}"),
                    found: token.text.escape_debug().to_string(),
                    supported: "added tokens that are not blank".into(),
                });
            }
        }
        Ok(())
    }

    /// blake3 over everything that decides which ids a text gets, and where an answer stops.
    ///
    /// Every string is preceded by its length, every list by its count, as 64-bit little-endian
    /// numbers.
    pub(super) fn digest(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        let number = |hasher: &mut blake3::Hasher, n: u64| {
            hasher.update(&n.to_le_bytes());
        };
        let string = |hasher: &mut blake3::Hasher, s: &str| {
            hasher.update(&(s.len() as u64).to_le_bytes());
            hasher.update(s.as_bytes());
        };
        string(&mut hasher, "engine.tokenizer.v1");
        string(&mut hasher, &self.pipeline.name);
        number(&mut hasher, self.pipeline.ignore_merges.into());
        number(&mut hasher, self.tokens.len() as u64);
        for token in &self.tokens {
            number(&mut hasher, token.kind as u64);
            string(&mut hasher, &token.text);
        }
        number(&mut hasher, self.merges.len() as u64);
        for (left, right) in &self.merges {
            string(&mut hasher, left);
            string(&mut hasher, right);
        }
        number(&mut hasher, self.bos.map_or(u64::MAX, u64::from));
        number(&mut hasher, self.add_bos.into());
        number(&mut hasher, self.stops.len() as u64);
        for &stop in &self.stops {
            number(&mut hasher, stop.into());
        }
        *hasher.finalize().as_bytes()
    }
}

/// Cuts a merge written as two tokens with a space between.
pub(super) fn split_merge(index: usize, merge: &str) -> Result<(String, String), TokenizerError> {
    match merge.split_once(' ') {
        Some((left, right)) if !left.is_empty() && !right.is_empty() && !right.contains(' ') => {
            Ok((left.into(), right.into()))
        }
        _ => Err(TokenizerError::BadMerge {
            index: index as u64,
            merge: merge.into(),
        }),
    }
}
