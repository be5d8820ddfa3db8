//! What reading back shows, judged: a receipt is made here and nowhere else.
//!
//! Must not know how a tracker is read.

use serde::{Deserialize, Serialize};

use super::request::EffectRequest;
use crate::canonical::Canonical;
use crate::id::{ContentHash, EffectKey, UnitId};
use crate::plan::effect::Action;

/// An issue as it was read, looked at for one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    /// Its version; none where there is no such issue.
    pub version: Option<String>,
    /// What stands there under the key.
    pub found: Option<Found>,
    /// Where it was read, for a person.
    pub read_from: String,
}

/// What an issue holds under a key, read from the issue itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The action that the tracker did under the key.
    pub action: Action,
    /// The field that it set.
    pub set: Option<String>,
    /// The comment, label, content or message as it stands there now; none where it is gone.
    pub text: Option<String>,
    /// The version of the issue that the effect made.
    pub version: String,
}

/// Proof that an effect is done, from an independent read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Receipt {
    /// The effect's key.
    pub key: EffectKey,
    /// Name of the plan's effect.
    pub effect: String,
    /// The unit that it was done for.
    pub unit_id: UnitId,
    /// The issue.
    pub resource: String,
    /// What was done.
    pub action: Action,
    /// Hash of what was asked for.
    pub content: ContentHash,
    /// Hash of what was read; equal to `content`, or it would be no receipt.
    pub observed: ContentHash,
    /// The version that the effect made.
    pub applied_version: String,
    /// The version that was read.
    pub observed_version: String,
    /// Where it was read.
    pub read_from: String,
}

impl Receipt {
    /// Hash of the receipt.
    pub fn hash(&self) -> ContentHash {
        let mut canonical = Canonical::new("operator 2026 effect receipt v1");
        canonical
            .bytes(self.key.as_bytes())
            .text(&self.effect)
            .text(self.unit_id.as_str())
            .text(&self.resource)
            .text(self.action.as_str())
            .bytes(self.content.as_bytes())
            .bytes(self.observed.as_bytes())
            .text(&self.applied_version)
            .text(&self.observed_version)
            .text(&self.read_from);
        ContentHash::of(&canonical)
    }

    /// Whether it proves a request.
    pub fn proves(&self, request: &EffectRequest) -> bool {
        self.key == request.key()
            && self.effect == request.effect
            && self.unit_id == request.unit_id
            && self.resource == request.resource
            && self.action == request.action
            && self.content == request.content_hash()
            && self.observed == self.content
    }
}

/// What an observation says of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// It is done.
    Done(Box<Receipt>),
    /// It is not done; the issue is at this version.
    Absent(String),
    /// There is no such issue.
    Missing,
    /// Something else stands under its key.
    Conflict(String),
}

/// Judges what was read.
pub fn judge(request: &EffectRequest, observation: &Observation) -> Finding {
    let Some(version) = &observation.version else {
        return Finding::Missing;
    };
    let Some(found) = &observation.found else {
        return Finding::Absent(version.clone());
    };
    let content = request.content_hash();
    let observed = request.content_with(found.action, found.set.as_deref(), found.text.as_deref());
    if observed != content {
        let since = match found.version == *version {
            true => "",
            false => "; the issue was changed since",
        };
        return Finding::Conflict(format!(
            "the effect's key stands at version {} of {}, with other content than was asked for{since}",
            found.version, request.resource
        ));
    }
    Finding::Done(Box::new(Receipt {
        key: request.key(),
        effect: request.effect.clone(),
        unit_id: request.unit_id.clone(),
        resource: request.resource.clone(),
        action: request.action,
        content,
        observed,
        applied_version: found.version.clone(),
        observed_version: version.clone(),
        read_from: observation.read_from.clone(),
    }))
}
