//! The tracker as the driver sees it: it can be written to, and it can be read.
//!
//! Must not know any tracker.

use super::receipt::Observation;
use super::request::EffectRequest;
use crate::id::EffectKey;

/// A request on its way to a tracker.
#[derive(Debug, Clone, Copy)]
pub struct Order<'a> {
    /// What is to be done.
    pub request: &'a EffectRequest,
    /// Under which key; a tracker that knows it does nothing.
    pub key: &'a EffectKey,
    /// The version that the issue must be at; else nothing is done.
    pub version: &'a str,
    /// The lease's fencing number; a tracker that has seen a higher one does nothing.
    pub fence: u64,
}

/// What the tracker answered to a write. None of these is a receipt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dispatch {
    /// It says that it did it.
    Accepted,
    /// It did nothing, and would not another time.
    Refused(String),
    /// It did nothing, because the issue is not at the version that it was read at.
    Moved(String),
    /// It did nothing, because the key names something else.
    KeyTaken(String),
    /// It did nothing, and may another time.
    Later {
        /// Milliseconds after which to ask again, where it says so.
        after_ms: Option<u64>,
        /// Why.
        reason: String,
    },
    /// Nobody knows whether it did it.
    Unknown {
        /// Milliseconds after which to ask again, where it says so.
        after_ms: Option<u64>,
        /// Why.
        reason: String,
    },
}

/// A tracker could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// Milliseconds after which to ask again, where it says so.
    pub after_ms: Option<u64>,
    /// Why.
    pub reason: String,
}

/// A tracker that effects are done on.
pub trait Effector {
    /// Whether a write that reading back does not show may be sent again under its key: the tracker
    /// knows keys, or a read tells for good that the write did not happen.
    fn repeatable(&self) -> bool;

    /// Reads the issue, on another path than the write where the tracker has one, and looks for the
    /// key in it. What was found is the issue's own content, never a copy of what was sent.
    ///
    /// # Errors
    /// Where it cannot be read.
    fn read_back(
        &self,
        request: &EffectRequest,
        key: &EffectKey,
    ) -> Result<Observation, Unreadable>;

    /// Writes. Returns only what is known: where in doubt, [`Dispatch::Unknown`].
    fn dispatch(&self, order: Order<'_>) -> Dispatch;
}
