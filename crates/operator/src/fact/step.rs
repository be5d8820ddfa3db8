//! One stage of a unit's way through a plan.
//!
//! A plan without `[[stage]]` has one stage, and its facts have no steps. Must not know how a stage
//! is carried out.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::FieldValue;
use crate::canonical::Canonical;
use crate::id::{ContentHash, UnitId};
use crate::infer::UnitUsage;

/// What one stage made of a unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Name of the stage.
    pub stage: String,
    /// A selector's option as it was taken, `answered`, `observed`, or why there is neither.
    pub outcome: String,
    /// What was decided here, by field; a selector's choice stands under the stage's own name.
    pub values: BTreeMap<String, FieldValue>,
    /// Hash of the text that a tool or a neighbourhood showed to later stages.
    pub observed: Option<ContentHash>,
    /// Name of the backend that answered; absent where none was asked.
    pub backend: Option<String>,
    /// True when the answer was looked up instead of computed.
    pub remembered: bool,
    /// An earlier unit whose text at this stage was equal, and whose answer this is.
    pub same_as: Option<UnitId>,
    /// What computing the answer cost when it was computed.
    pub cost: UnitUsage,
}

impl Step {
    /// A step at which nobody answered.
    pub fn bare(stage: &str, outcome: &str) -> Self {
        Self {
            stage: stage.to_owned(),
            outcome: outcome.to_owned(),
            values: BTreeMap::new(),
            observed: None,
            backend: None,
            remembered: false,
            same_as: None,
            cost: UnitUsage::default(),
        }
    }

    /// Writes what was decided, and by whom, into a hash; not what it cost.
    pub(crate) fn encode(&self, canonical: &mut Canonical) {
        canonical.text(&self.stage).text(&self.outcome);
        super::encode_values(canonical, &self.values);
        match &self.observed {
            Some(hash) => canonical.some().bytes(hash.as_bytes()),
            None => canonical.none(),
        };
        canonical.optional_text(self.backend.as_deref());
    }
}
