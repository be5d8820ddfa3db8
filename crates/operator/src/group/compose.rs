//! Several records as one: what a group, and a record with its neighbours, look like to all that
//! reads records.
//!
//! A member's text field is found as `FIELD of ID`, so that a span names whose bytes it cites. The
//! members' own fields are under `members`, what is known of the unit under `unit`:
//!
//! ```json
//! { "title of 12": "...", "title of 15": "...", "members": [{ ... }, { ... }],
//!   "unit": { "kind": "group", "size": 2, "part": 1, "parts": 1, "similarity_ppm": 412000 } }
//! ```

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::canonical::Canonical;
use crate::error::OperatorError;
use crate::id::{ContentHash, UnitId};
use crate::ops::{Unit, UnitKind, Units};
use crate::plan::{Plan, TextField};
use crate::record::Record;
use crate::text::field_text;

use super::gather::Entry;
use super::id;
use super::shape::Group;

/// Under which name a member's field is shown and cited.
pub(crate) fn member_field(field: &str, member: &UnitId) -> String {
    format!("{field} of {member}")
}

/// Which of the records of a unit a shown field belongs to; none where it is the unit's own.
pub(crate) fn member_of<'u>(plan: &Plan, unit: &'u Unit, field: &str) -> Option<&'u UnitId> {
    unit.neighbourhood.iter().find(|member| {
        let mut texts = plan.input.text.iter();
        texts.any(|text| member_field(&text.field, member) == field)
    })
}

/// Hash of what a unit was made of.
fn hash_of<'m>(members: impl ExactSizeIterator<Item = (&'m UnitId, ContentHash)>) -> ContentHash {
    let mut canonical = Canonical::new("operator 2026 group v1");
    canonical.list(members.len());
    for (id, hash) in members {
        canonical.text(id.as_str()).bytes(hash.as_bytes());
    }
    ContentHash::of(&canonical)
}

/// Reads an entry again; it must be what it was.
fn read(entry: &Entry, units: &dyn Units) -> Result<Unit, OperatorError> {
    let unit = units.read(entry.place)?;
    if unit.source_hash != entry.source_hash || unit.id != entry.id {
        return Err(OperatorError::SourceChanged {
            path: units.source().path.clone(),
        });
    }
    Ok(unit)
}

/// A group as a unit.
pub(super) fn group(
    plan: &Plan,
    group: &Group,
    entries: &[Entry],
    units: &dyn Units,
    ordinal: u32,
    alone: &str,
) -> Result<Unit, OperatorError> {
    let members: Vec<&Entry> = group
        .members
        .iter()
        .map(|member| &entries[*member as usize])
        .collect();
    let ids: Vec<UnitId> = members.iter().map(|entry| entry.id.clone()).collect();
    let (mut fields, mut texts, mut whole) = (Map::new(), Vec::new(), Vec::new());
    let mut places = Vec::new();
    for entry in &members {
        let unit = read(entry, units)?;
        show(plan, &unit, &mut fields, &mut texts);
        places.push(unit.record.place.clone());
        whole.push(Value::Object(unit.record.fields.clone()));
    }
    fields.insert("members".to_owned(), Value::Array(whole));
    let (part, parts) = group.part;
    let mut known = json!({
        "kind": "group", "size": ids.len(), "part": part, "parts": parts,
    });
    if let (Some(ppm), Some(known)) = (group.similarity_ppm, known.as_object_mut()) {
        known.insert("similarity_ppm".to_owned(), Value::from(ppm));
    }
    fields.insert("unit".to_owned(), known);
    let hashes = members.iter().map(|entry| (&entry.id, entry.source_hash));
    Ok(Unit {
        id: id::of_group(&ids),
        kind: UnitKind::Group,
        ordinal,
        source_hash: hash_of(hashes),
        record: Arc::new(Record {
            ordinal,
            place: places.join(" and "),
            fields,
            warnings: Vec::new(),
        }),
        skip: (ids.len() == 1).then(|| alone.to_owned()),
        neighbourhood: ids,
        texts: Some(texts),
    })
}

/// A record with others beside it; its id and its own fields stay what they are.
pub(super) fn beside(
    plan: &Plan,
    unit: &Unit,
    others: &[&Entry],
    units: &dyn Units,
) -> Result<Unit, OperatorError> {
    let mut fields = unit.record.fields.clone();
    let mut texts = plan.input.text.clone();
    for entry in others {
        show(plan, &read(entry, units)?, &mut fields, &mut texts);
    }
    let own = (&unit.id, unit.source_hash);
    let hashes: Vec<(&UnitId, ContentHash)> = std::iter::once(own)
        .chain(others.iter().map(|entry| (&entry.id, entry.source_hash)))
        .collect();
    Ok(Unit {
        id: unit.id.clone(),
        kind: UnitKind::Widened,
        ordinal: unit.ordinal,
        source_hash: hash_of(hashes.into_iter()),
        record: Arc::new(Record {
            fields,
            ..Record::clone(&unit.record)
        }),
        neighbourhood: others.iter().map(|entry| entry.id.clone()).collect(),
        texts: Some(texts),
        skip: None,
    })
}

/// Adds a member's text fields, clipped as the plan says for each.
fn show(plan: &Plan, unit: &Unit, fields: &mut Map<String, Value>, texts: &mut Vec<TextField>) {
    for text in &plan.input.text {
        let name = member_field(&text.field, &unit.id);
        let value = match field_text(&unit.record, &text.field) {
            Ok(found) => found.map(|found| Value::from(&*found)),
            // An object: it is found so again when the unit is shown, which is where it is told.
            Err(_) => unit.record.fields.get(&text.field).cloned(),
        };
        if let Some(value) = value {
            fields.insert(name.clone(), value);
        }
        texts.push(TextField {
            field: name,
            ..text.clone()
        });
    }
}
