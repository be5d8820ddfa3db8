//! Circuit breakers: what stops a run before it produces more of what cannot be trusted.
//!
//! Two of them. [`EProcess`] watches canaries, units whose answers are known, and opens when their
//! misses are no longer explained by the rate that the plan tolerates. [`TransportBreaker`] watches
//! whether the backend can be reached at all. [`Guard`] stands between the run and the backend, so
//! that both see every completion before anyone makes a record of it. Must not know facts or files.

mod e_process;
mod guard;
mod logarithm;
mod transport;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::id::ContentHash;

pub use e_process::{EProcess, EProcessSpec};
pub use guard::{CanaryResult, Guard, Guarded};
pub use transport::{TRANSPORT_IN_A_ROW, TransportBreaker};

/// Why a breaker opened; it never closes again in the same run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "breaker", rename_all = "snake_case")]
pub enum Trip {
    /// Too many canaries got a wrong answer: the rubric, or the model under it, is suspect.
    Canary {
        /// Hash of the rubric.
        rubric: ContentHash,
        /// Canaries that were judged under it.
        judged: u64,
        /// Of these, missed.
        misses: u64,
    },
    /// The backend could not be reached so many times in a row.
    Transport {
        /// Failures without an answer between them.
        in_a_row: u32,
        /// What the last one said.
        message: String,
    },
    /// The backend refuses to serve: trying again cannot help.
    Denied {
        /// What it said.
        message: String,
    },
}

impl Trip {
    /// Whether what was decided before is suspect as well, and may not be remembered.
    pub const fn taints(&self) -> bool {
        matches!(self, Self::Canary { .. })
    }
}

impl fmt::Display for Trip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Canary { judged, misses, .. } => write!(
                f,
                "breaker open: {misses} of {judged} canaries got a wrong answer"
            ),
            Self::Transport { in_a_row, message } => write!(
                f,
                "breaker open: {in_a_row} calls in a row did not reach the backend ({message})"
            ),
            Self::Denied { message } => {
                write!(f, "breaker open: the backend refuses ({message})")
            }
        }
    }
}
