//! Effects: plans, leases, the journal's crash points, and the driver on a tracker that misbehaves.

mod driver;
mod journal;
mod leases;
mod plans;
pub(crate) mod tracker;

use operator::effect::EffectRequest;
use operator::id::{ContentHash, UnitId};
use operator::plan::effect::Action;

/// A comment on an issue.
pub fn comment(unit: u32, resource: &str, expects: Option<&str>) -> EffectRequest {
    EffectRequest {
        effect: "tell".to_owned(),
        tracker: "file_tracker:there".to_owned(),
        resource: resource.to_owned(),
        action: Action::Comment,
        set: None,
        text: Some(format!("about {unit}")),
        expects: expects.map(str::to_owned),
        unit_id: UnitId::new(&unit.to_string()),
        source_hash: ContentHash::of_bytes(&unit.to_le_bytes()),
        plan_hash: ContentHash::of_bytes(b"plan"),
    }
}

pub fn answer() -> ContentHash {
    ContentHash::of_bytes(b"answer")
}
