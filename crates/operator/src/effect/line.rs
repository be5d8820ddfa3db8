//! Lines of the journal: what was about to happen, and what was seen.
//!
//! Each line names the hash of the one before, so that no line can be taken out or put in unseen.
//! The last line may have been cut by a crash; what it announced had not begun. Must not know files.

use serde::{Deserialize, Serialize};

use super::receipt::Receipt;
use super::request::EffectRequest;
use crate::id::{ContentHash, EffectKey};

/// Version of the journal's lines.
pub const JOURNAL_VERSION: u32 = 1;

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// Format version, `JOURNAL_VERSION`.
    pub v: u32,
    /// Position in the file, from 0.
    pub seq: u64,
    /// Plain BLAKE3 of the line before, its newline included; of nothing before the first.
    pub prev: ContentHash,
    /// What it says.
    #[serde(flatten)]
    pub entry: Entry,
}

/// What a line says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Entry {
    /// A process starts on the effects of a verified answer.
    Begun {
        /// The answer's result hash.
        answer: ContentHash,
        /// The plan's hash.
        plan: ContentHash,
        /// Effects that the command line allows.
        allowed: Vec<String>,
    },
    /// An effect is going to be done.
    Intended {
        /// Its key.
        key: EffectKey,
        /// All of it.
        request: Box<EffectRequest>,
        /// The answer that it follows from.
        answer: ContentHash,
    },
    /// It is about to be sent.
    Dispatched {
        /// Its key.
        key: EffectKey,
        /// Which attempt, from 1.
        attempt: u32,
        /// The lease's fencing number.
        fence: u64,
        /// The version that the issue must be at.
        version: String,
    },
    /// The tracker says that it did it; no receipt.
    Confirmed {
        /// Its key.
        key: EffectKey,
    },
    /// The tracker says that this attempt did nothing.
    Failed {
        /// Its key.
        key: EffectKey,
        /// Why.
        reason: String,
    },
    /// Nobody knows whether this attempt did it.
    Unknown {
        /// Its key.
        key: EffectKey,
        /// Why.
        reason: String,
    },
    /// The tracker was read.
    ReadBack {
        /// Its key.
        key: EffectKey,
        /// What was seen.
        #[serde(flatten)]
        found: ReadBack,
    },
}

impl Entry {
    /// The effect that it speaks of.
    pub fn key(&self) -> Option<&EffectKey> {
        match self {
            Self::Begun { .. } => None,
            Self::Intended { key, .. }
            | Self::Dispatched { key, .. }
            | Self::Confirmed { key }
            | Self::Failed { key, .. }
            | Self::Unknown { key, .. }
            | Self::ReadBack { key, .. } => Some(key),
        }
    }
}

/// What a read showed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "found", rename_all = "snake_case")]
pub enum ReadBack {
    /// It is done.
    Done {
        /// The proof.
        receipt: Box<Receipt>,
    },
    /// It is not done.
    Absent {
        /// The version that was read.
        version: String,
    },
    /// It cannot be done any more: the issue or the key is not what it was decided upon.
    Conflict {
        /// Why.
        reason: String,
    },
}

/// Reads lines; returns them with the number of bytes that they take, a cut last line left out.
///
/// # Errors
/// The number of the first line that is none or does not follow from the one before, and why.
pub fn parse_lines(bytes: &[u8]) -> Result<(Vec<Line>, usize), (u64, String)> {
    let whole = bytes
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |last| last + 1);
    let mut lines = Vec::new();
    let mut prev = ContentHash::of_bytes(b"");
    for (seq, text) in (0_u64..).zip(bytes[..whole].split_inclusive(|byte| *byte == b'\n')) {
        let invalid = |problem: String| (seq + 1, problem);
        let line: Line = serde_json::from_slice(text)
            .map_err(|error| invalid(format!("is no line of an effect journal: {error}")))?;
        if line.v != JOURNAL_VERSION {
            let problem = format!(
                "is of version {}, this program reads {JOURNAL_VERSION}",
                line.v
            );
            return Err(invalid(problem));
        }
        if line.seq != seq || line.prev != prev {
            return Err(invalid(
                "does not follow from the line before: the journal was changed by hand".to_owned(),
            ));
        }
        prev = ContentHash::of_bytes(text);
        lines.push(line);
    }
    Ok((lines, whole))
}
