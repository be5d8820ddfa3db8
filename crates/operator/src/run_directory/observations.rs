//! What tools answered, as a run keeps it: the text that citations of a tool stage resolve to.

use serde::{Deserialize, Serialize};

use crate::fact::FieldValue;
use crate::id::{ContentHash, UnitId};
use crate::tool::ObservationHead;

/// What one unit was shown at one tool stage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObservationRow {
    /// The unit.
    pub unit_id: UnitId,
    /// Name of the stage.
    pub stage: String,
    /// Hash of the text that later stages read, as the unit's step has it.
    pub shown_hash: ContentHash,
    /// Hash of the whole text that was read from the answer.
    pub text_hash: ContentHash,
    /// That text; absent where an earlier row has it, and in a redacted run.
    pub text: Option<String>,
    /// Its parts where it was cut up, in order; what was shown are then those that were kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<PartRow>,
    /// Name of the tool.
    pub tool: String,
    /// Where the answer came from, and when.
    #[serde(flatten)]
    pub head: ObservationHead,
}

/// One part of a long answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartRow {
    /// First byte in the text.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
    /// What the model said of it.
    pub value: FieldValue,
}
