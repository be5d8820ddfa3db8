//! The breaker for a backend that cannot be reached, or refuses to serve.

use super::Trip;
use crate::infer::{FailReason, UnitOutcome};

/// Failures in a row that open it.
pub const TRANSPORT_IN_A_ROW: u32 = 3;

/// Counts failures of the way to the backend; failures of single units do not matter to it.
#[derive(Debug, Clone, Default)]
pub struct TransportBreaker {
    in_a_row: u32,
}

impl TransportBreaker {
    /// Starts closed.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes what became of one call; says why it opens, if it does.
    pub fn observe(&mut self, outcome: &UnitOutcome) -> Option<Trip> {
        match outcome {
            UnitOutcome::Failed {
                reason: FailReason::Denied,
                message,
            } => Some(Trip::Denied {
                message: message.clone(),
            }),
            UnitOutcome::Failed {
                reason: FailReason::Transport,
                message,
            } => {
                self.in_a_row += 1;
                (self.in_a_row >= TRANSPORT_IN_A_ROW).then(|| Trip::Transport {
                    in_a_row: self.in_a_row,
                    message: message.clone(),
                })
            }
            // Whatever else a reply says, the backend was there to give it.
            UnitOutcome::Answered(_) | UnitOutcome::Failed { .. } => {
                self.in_a_row = 0;
                None
            }
            UnitOutcome::Cancelled | UnitOutcome::NotRun => None,
        }
    }
}
