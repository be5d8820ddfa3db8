//! The prefix-reuse benchmark: the same records on the same packer, with and without a shared
//! prefix, and what each way computed, took and answered. Beside it, [`decode`]: what continuing
//! prompts together is worth.
//!
//! [`work`] makes the token sequences, [`arms`] runs one way in one process, [`api`] asks a server,
//! [`flops`] and [`rate`] give the bounds, [`figures`] and [`equality`] judge the samples,
//! [`report`] and [`plot`] write them. Knows no plan and no terminal.

pub mod api;
pub mod arms;
pub mod decode;
pub mod equality;
pub mod figures;
pub mod flops;
pub mod machine;
pub mod plot;
pub mod rate;
pub mod report;
pub mod work;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::error::EngineError;

/// One way of computing the same answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arm {
    /// One sealed prefix, forked by every record; records packed.
    Shared,
    /// The whole prompt per record; records packed.
    Unshared,
    /// The code of `shared`, but each record has its own salt and seals the prefix for itself.
    Salted,
    /// The code of `salted`, and the prefix's first tokens differ in every record, so that no cache
    /// of any kind could share it.
    Nonce,
    /// `shared` with one record at a time: what reuse gives without packing.
    Serial,
    /// A server's chat completions.
    Api,
}

impl Arm {
    /// Those that need no server, in the order in which a round runs them.
    pub const LOCAL: [Self; 5] = [
        Self::Shared,
        Self::Unshared,
        Self::Salted,
        Self::Nonce,
        Self::Serial,
    ];

    /// Its name in files and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Unshared => "unshared",
            Self::Salted => "salted",
            Self::Nonce => "nonce",
            Self::Serial => "serial",
            Self::Api => "api",
        }
    }

    /// Whether all records stand on one prefix that is computed once.
    pub fn shares(self) -> bool {
        matches!(self, Self::Shared | Self::Serial)
    }

    /// Whether its prompts and questions are those of `unshared`, so that its answers must be too.
    pub fn same_prompts(self) -> bool {
        !matches!(self, Self::Nonce | Self::Api)
    }
}

/// Why there is no measurement.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BenchError {
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A length leaves no room for what every prompt holds.
    #[error("{option} {asked} is too short: {least} is the least here ({why})")]
    TooShort {
        /// The option.
        option: &'static str,
        /// What was asked for.
        asked: usize,
        /// The least that works.
        least: usize,
        /// What takes the room.
        why: String,
    },
    /// A prompt is longer than the model's context.
    #[error(
        "record {record}: {prefix} tokens of prefix, {tokens} of the record, {branches} of questions and {output} of output are {}; the model's context holds {context}",
        prefix + tokens + branches + output
    )]
    NoRoom {
        /// Index of the record.
        record: usize,
        /// Tokens of the prefix.
        prefix: usize,
        /// Tokens of the record.
        tokens: usize,
        /// Tokens of the questions.
        branches: usize,
        /// Tokens to be generated.
        output: usize,
        /// Tokens of the context.
        context: usize,
    },
    /// No records, no records at once, or no labels.
    #[error("{what} is 0; at least 1 is needed")]
    Nothing {
        /// What there is none of.
        what: &'static str,
    },
    /// The vocabulary has too few words to make texts from.
    #[error("the model's vocabulary has {found} whole words; {least} are needed")]
    NoWords {
        /// Words found.
        found: usize,
        /// Words needed.
        least: usize,
    },
    /// The counters do not add up: a bug, and no figure of the arm can be trusted.
    #[error(
        "arm {arm}: {computed} tokens computed and {cached} cached are not the {logical} of all prompts"
    )]
    Counters {
        /// The arm.
        arm: &'static str,
        /// Rows that entered layer 0.
        computed: u64,
        /// Rows taken from a sealed prefix.
        cached: u64,
        /// Rows of all prompts.
        logical: u64,
    },
    /// A record was given no answer.
    #[error("arm {arm}: record {record} has no answer, or one that is not finite")]
    NoAnswer {
        /// The arm.
        arm: &'static str,
        /// Index of the record.
        record: usize,
    },
    /// A server did not answer as it should.
    #[error("{url}, record {record}: {problem}")]
    Api {
        /// The endpoint.
        url: String,
        /// Index of the record.
        record: usize,
        /// What went wrong.
        problem: String,
    },
    /// The plot could not be drawn.
    #[error("the plot: {problem}")]
    Plot {
        /// What the backend said.
        problem: String,
    },
}
