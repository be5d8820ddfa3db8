//! How text is normalised and cut before byte-pair merging, by pre-tokenizer type. Knows the
//! published pipelines; must not know where a vocabulary came from.

use tokenizers::normalizers::NFC;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{NormalizerWrapper, PreTokenizerWrapper, SplitDelimiterBehavior};

use super::error::TokenizerError;

/// Splitting of Qwen2 and Qwen2.5: every digit alone.
const QWEN2_SPLIT: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*",
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
);

/// Splitting of Llama 3: digits in threes.
const LLAMA3_SPLIT: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*",
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
);

/// The pre-tokenizer types of `tokenizer.ggml.pre` that are supported.
pub(super) const SUPPORTED: &str =
    "qwen2, deepseek-r1-qwen, smollm, llama-bpe, llama3, llama-v3, gpt-2";

/// What happens to a text before and around the merges.
pub(super) struct Pipeline {
    /// Identifies the pipeline in the digest.
    pub(super) name: String,
    pub(super) normalizer: Option<NormalizerWrapper>,
    pub(super) pre_tokenizer: PreTokenizerWrapper,
    /// Whether a piece that is a token as a whole is taken without merging.
    pub(super) ignore_merges: bool,
}

impl Pipeline {
    /// The pipeline for a value of `tokenizer.ggml.pre`.
    ///
    /// Sources: the `tokenizer.json` files published with the models, and llama.cpp's table of
    /// pre-tokenizer types. An unknown type is refused, since a wrong guess gives plausible but
    /// wrong ids (the digits of a SmolLM2 model under GPT-2's splitting, for example).
    pub(super) fn from_pre_type(pre: &str) -> Result<Self, TokenizerError> {
        let (normalizer, pre_tokenizer, ignore_merges) = match pre {
            "qwen2" | "deepseek-r1-qwen" => (Some(NFC.into()), split(QWEN2_SPLIT)?, false),
            "llama-bpe" | "llama3" | "llama-v3" => (None, split(LLAMA3_SPLIT)?, true),
            "smollm" => {
                let digits = Digits::new(true).into();
                (
                    None,
                    Sequence::new(vec![digits, byte_level(true)]).into(),
                    false,
                )
            }
            "gpt-2" => (None, byte_level(true), false),
            other => {
                return Err(TokenizerError::Unsupported {
                    key: "tokenizer.ggml.pre".into(),
                    found: other.into(),
                    supported: SUPPORTED.into(),
                });
            }
        };
        Ok(Self {
            name: format!("pre:{pre}"),
            normalizer,
            pre_tokenizer,
            ignore_merges,
        })
    }
}

fn byte_level(use_regex: bool) -> PreTokenizerWrapper {
    ByteLevel::new(false, false, use_regex).into()
}

fn split(pattern: &str) -> Result<PreTokenizerWrapper, TokenizerError> {
    let pattern = SplitPattern::Regex(pattern.into());
    let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false).map_err(|e| {
        TokenizerError::Build {
            detail: e.to_string(),
        }
    })?;
    Ok(Sequence::new(vec![split.into(), byte_level(false)]).into())
}
