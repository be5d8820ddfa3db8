//! A request: one effect of one unit, filled in, with the key that names it for ever.
//!
//! Must not know how it came about, nor whether it was done.

use serde::{Deserialize, Serialize};

use crate::canonical::Canonical;
use crate::id::{ContentHash, EffectKey, UnitId};
use crate::plan::effect::Action;

/// One effect that is due, complete: nothing is filled in later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EffectRequest {
    /// Name of the plan's effect.
    pub effect: String,
    /// The tracker, as the plan names it.
    pub tracker: String,
    /// The issue.
    pub resource: String,
    /// What is done to it.
    pub action: Action,
    /// The field that an edit sets.
    pub set: Option<String>,
    /// The value that the action takes.
    pub text: Option<String>,
    /// The version of the issue that was judged; none where the plan names none.
    pub expects: Option<String>,
    /// The unit that it is done for.
    pub unit_id: UnitId,
    /// Hash of the unit's record.
    pub source_hash: ContentHash,
    /// Hash of the plan's meaning.
    pub plan_hash: ContentHash,
}

impl EffectRequest {
    /// Hash of what is done to what; the same for the effect as asked for and as read back.
    pub fn content_hash(&self) -> ContentHash {
        self.content_with(self.action, self.set.as_deref(), self.text.as_deref())
    }

    /// The hash of what was found in this request's place.
    pub(super) fn content_with(
        &self,
        action: Action,
        set: Option<&str>,
        text: Option<&str>,
    ) -> ContentHash {
        let mut canonical = Canonical::new("operator 2026 effect v1");
        canonical
            .text(&self.tracker)
            .text(&self.resource)
            .text(action.as_str())
            .optional_text(set)
            .optional_text(text);
        ContentHash::of(&canonical)
    }

    /// The key: equal decisions have it in common, in every run and every process.
    pub fn key(&self) -> EffectKey {
        let mut canonical = Canonical::new("operator 2026 effect key v1");
        canonical
            .text(&self.effect)
            .bytes(self.content_hash().as_bytes())
            .bytes(self.plan_hash.as_bytes())
            .text(self.unit_id.as_str())
            .bytes(self.source_hash.as_bytes())
            .optional_text(self.expects.as_deref());
        EffectKey::of(&canonical)
    }
}
