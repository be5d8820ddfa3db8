//! The units that a plan makes of records: what each was made of, and what that hashes to.
//!
//! Which records are neighbours is found by the one code that finds neighbours, over records that were
//! read anew; members, texts and hashes of a unit are then held against the records themselves.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::fields::text_of;
use crate::canonical::Canonical;
use crate::error::OperatorError;
use crate::group;
use crate::id::{ContentHash, UnitId};
use crate::ops::{BadUnit, Partition, Placed, Unit, UnitKind};
use crate::plan::Plan;

/// One unit as the source has it.
#[derive(Debug, Clone)]
pub(super) struct Known {
    pub(super) ordinal: u32,
    pub(super) hash: ContentHash,
    /// The decoded fields; none where the record cannot be read.
    pub(super) fields: Option<Map<String, Value>>,
    /// The records that it was made of.
    pub(super) members: Vec<UnitId>,
    /// Why nothing is asked about it.
    pub(super) skip: Option<String>,
    /// What it is with its neighbours beside it.
    pub(super) widened: Option<Box<Known>>,
}

impl Known {
    pub(super) fn record(ordinal: u32, fields: Map<String, Value>) -> Self {
        let mut text = Canonical::new("operator 2026 record v1");
        text.fields(&fields);
        Self {
            ordinal,
            hash: ContentHash::of(&text),
            fields: Some(fields),
            members: Vec::new(),
            skip: None,
            widened: None,
        }
    }

    pub(super) fn unread(ordinal: u32, hash: ContentHash) -> Self {
        Self {
            ordinal,
            hash,
            fields: None,
            members: Vec::new(),
            skip: None,
            widened: None,
        }
    }

    /// The unit as a fact with these members saw it.
    pub(super) fn seen_with(&self, members: &[UnitId]) -> &Self {
        match &self.widened {
            Some(widened) if !members.is_empty() => widened,
            _ => self,
        }
    }
}

/// Makes the plan's units of records that were read; none where they are its units as they are.
pub(super) fn arrange(
    plan: &Plan,
    partition: &Partition,
    records: &HashMap<UnitId, Known>,
) -> Result<Option<HashMap<UnitId, Known>>, OperatorError> {
    let Some(units) = group::arrange(plan, partition)? else {
        return Ok(None);
    };
    let mut known = HashMap::with_capacity(units.len() as usize);
    units.visit(&mut |placed| {
        match placed {
            Placed::Bad(BadUnit {
                id,
                ordinal,
                source_hash,
                ..
            }) => {
                known.insert(id, Known::unread(ordinal, source_hash));
            }
            Placed::Unit(unit, _) => {
                let wider = units.widen(&unit)?;
                let mut held = of(plan, &unit, records);
                held.widened = wider.map(|wider| Box::new(of(plan, &wider, records)));
                known.insert(unit.id, held);
            }
        }
        Ok(())
    })?;
    Ok(Some(known))
}

fn of(plan: &Plan, unit: &Unit, records: &HashMap<UnitId, Known>) -> Known {
    let record = |id: &UnitId| records.get(id).and_then(|known| known.fields.as_ref());
    let hash_of = |id: &UnitId| records.get(id).map(|known| known.hash);
    let mut fields = match unit.kind {
        UnitKind::Group => Map::new(),
        UnitKind::Record | UnitKind::Field | UnitKind::Widened => unit.record.fields.clone(),
    };
    let hash = match unit.kind {
        UnitKind::Record => hash_of(&unit.id).unwrap_or(unit.source_hash),
        UnitKind::Field => field_hash(unit, &unit.record.fields),
        UnitKind::Group => group_hash(&unit.neighbourhood, &hash_of),
        UnitKind::Widened => {
            let own = std::iter::once(&unit.id);
            let all: Vec<UnitId> = own.chain(&unit.neighbourhood).cloned().collect();
            group_hash(&all, &hash_of)
        }
    };
    if matches!(unit.kind, UnitKind::Group | UnitKind::Widened) {
        for member in &unit.neighbourhood {
            for text in &plan.input.text {
                let value = record(member).map(|fields| text_of(fields, &text.field));
                let name = group::member_field(&text.field, member);
                fields.insert(name, value.map_or(Value::Null, Value::from));
            }
        }
    }
    if unit.kind == UnitKind::Group {
        let whole = unit.neighbourhood.iter().filter_map(record).cloned();
        let whole = whole.map(Value::Object).collect();
        fields.insert("members".to_owned(), Value::Array(whole));
        let known = unit.record.fields.get("unit").cloned();
        fields.insert("unit".to_owned(), known.unwrap_or_default());
    }
    Known {
        ordinal: unit.ordinal,
        hash,
        fields: Some(fields),
        members: unit.neighbourhood.clone(),
        skip: unit.skip.clone(),
        widened: None,
    }
}

fn group_hash(members: &[UnitId], hash_of: &dyn Fn(&UnitId) -> Option<ContentHash>) -> ContentHash {
    let mut text = Canonical::new("operator 2026 group v1");
    text.list(members.len());
    for member in members {
        text.text(member.as_str());
        if let Some(hash) = hash_of(member) {
            text.bytes(hash.as_bytes());
        }
    }
    ContentHash::of(&text)
}

fn field_hash(unit: &Unit, fields: &Map<String, Value>) -> ContentHash {
    let mut text = Canonical::new("operator 2026 field unit v1");
    let shown = unit.texts.iter().flatten().next();
    if let (Some(record), Some(shown)) = (unit.neighbourhood.first(), shown) {
        text.text(record.as_str()).text(&shown.field);
        text.text(&text_of(fields, &shown.field));
    }
    ContentHash::of(&text)
}
