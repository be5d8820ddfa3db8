//! What a unit says of itself: which piece it is, of which bytes, beside whom, and which relations
//! its answer needs.

use serde::Serialize;

use crate::id::{ContentHash, UnitId};
use crate::ops::{Unit, UnitKind};
use crate::plan::{Plan, Relation};

/// A unit without its text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Descriptor {
    /// Its id, unique in the input.
    pub unit_id: UnitId,
    /// What piece it is.
    pub unit_kind: UnitKind,
    /// Hash of all that it was made of.
    pub source_hash: ContentHash,
    /// The records that it was made of, or that stand beside it; empty where it is a record alone.
    pub neighborhood: Vec<UnitId>,
    /// Relations that the plan's answers depend on.
    pub required_relations: Vec<Relation>,
    /// The required relations that such a unit does not show.
    pub lacking: Vec<Relation>,
    /// Why no answer is sought, where none is.
    pub skip: Option<String>,
}

impl Descriptor {
    /// Describes a unit.
    pub fn of(plan: &Plan, unit: &Unit) -> Self {
        let required_relations = plan.required_relations();
        Self {
            unit_id: unit.id.clone(),
            unit_kind: unit.kind,
            source_hash: unit.source_hash,
            neighborhood: unit.neighbourhood.clone(),
            lacking: unit.lacks(plan, &required_relations),
            required_relations,
            skip: unit.skip.clone(),
        }
    }
}
