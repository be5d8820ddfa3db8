//! The engine's error type: what can go wrong with model files, devices and forwards.
//!
//! Bugs are assertions; trouble with one record is a status inside the answer, never an error.

use std::path::PathBuf;

use thiserror::Error;

/// Everything that stops the engine from answering at all.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EngineError {
    /// A model file or directory could not be read.
    #[error("{path}: {source}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The operating system's reason.
        #[source]
        source: std::io::Error,
    },
    /// A model file is not what it claims to be.
    #[error("{path} is not a usable model: {problem}; cure: {cure}")]
    BadModel {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, naming key or tensor.
        problem: String,
        /// What the user can do.
        cure: String,
    },
    /// A file is no trained head.
    #[error("{path} {problem}; write one with `engine calibrate PLAN --labels FILE`")]
    BadHead {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// A trained head does not belong here.
    #[error("the head for field {field:?} cannot be used: {problem}")]
    HeadMismatch {
        /// The field that it answers.
        field: String,
        /// What does not fit.
        problem: String,
    },
    /// The device was not compiled into this binary.
    #[error(
        "device {device} is not in this build; rebuild with `cargo build --release --features {device}` or use `--device cpu`"
    )]
    DeviceNotBuilt {
        /// The device asked for.
        device: &'static str,
    },
    /// The device is in this build, but this machine does not give it.
    #[error(
        "device {device} cannot be opened: {source}; look after its driver (`nvidia-smi` lists CUDA devices) or use `--device cpu`"
    )]
    DeviceUnavailable {
        /// The device asked for.
        device: &'static str,
        /// The driver's reason.
        #[source]
        source: candle_core::Error,
    },
    /// A tensor operation failed.
    #[error("tensor operation: {0}")]
    Tensor(#[from] candle_core::Error),
    /// The KV cache refused a request.
    #[error("kv cache: {0}")]
    Cache(#[from] kvcache::CacheError),
    /// Tokenizer trouble.
    #[error("tokenizer: {0}")]
    Tokenizer(#[from] crate::tokenizer::TokenizerError),
    /// Chat template trouble.
    #[error("chat template: {0}")]
    Prompt(#[from] crate::prompt::PromptError),
    /// The shared prompt leaves no room for records.
    #[error(
        "the rubric is {tokens} tokens long, the model's context holds {tokens_max}; shorten the rubric (it is never cut)"
    )]
    RubricTooLong {
        /// Tokens of the rubric's prompt.
        tokens: usize,
        /// Tokens that the context allows for it.
        tokens_max: usize,
    },
    /// A prompt and the text that is to follow it do not fit.
    #[error(
        "the prompt is {tokens} tokens long and up to {tokens_max} more are to be written; the model's context and the KV pool hold {room}: shorten the material or ask for fewer tokens"
    )]
    GenerationTooLong {
        /// Tokens of the prompt, shared prefix included.
        tokens: usize,
        /// Tokens that may be generated.
        tokens_max: u32,
        /// Tokens that fit, prompt and generated ones together.
        room: usize,
    },
    /// The model's logits hold infinities or no numbers, so that no token can be chosen.
    #[error(
        "the model's logits are not finite; check its file with `engine pull NAME --verify`, or try `--numerics f32`"
    )]
    NotFinite,
    /// A question cannot be scored.
    #[error("question {field}: {problem}")]
    BadQuestion {
        /// Name of the field.
        field: String,
        /// Why it cannot be scored.
        problem: String,
    },
}

impl EngineError {
    /// Wraps an operating-system error with the path it concerns.
    pub fn io(path: impl Into<PathBuf>, source: std::io::Error) -> Self {
        Self::Io {
            path: path.into(),
            source,
        }
    }

    /// A file that is no head.
    pub fn bad_head(path: impl Into<PathBuf>, problem: impl Into<String>) -> Self {
        Self::BadHead {
            path: path.into(),
            problem: problem.into(),
        }
    }

    /// A model file that cannot be used, with the usual cure.
    pub fn bad_model(path: impl Into<PathBuf>, problem: impl Into<String>) -> Self {
        Self::BadModel {
            path: path.into(),
            problem: problem.into(),
            cure:
                "fetch it again with `engine pull NAME`, or name another file with `--model PATH`"
                    .into(),
        }
    }
}
