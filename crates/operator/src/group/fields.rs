//! Units that are one field of a record each.
//!
//! Law: every record has one unit per declared field, in the plan's order; a field without text says
//! so and is not asked about. A unit sees its whole record in predicates and columns, and shows one
//! field of it.

use serde_json::Value;

use crate::canonical::Canonical;
use crate::error::OperatorError;
use crate::id::{ContentHash, UnitId};
use crate::ops::{BadUnit, Place, Placed, Unit, UnitKind, Units};
use crate::plan::Plan;
use crate::predicate;
use crate::record::SourceArtifact;
use crate::text::field_text;

use super::id;

/// One unit per record and declared field.
pub(super) struct FieldUnits<'a> {
    plan: &'a Plan,
    units: &'a dyn Units,
    /// Fields per record.
    width: u32,
    len: u32,
}

impl<'a> FieldUnits<'a> {
    pub(super) fn new(plan: &'a Plan, units: &'a dyn Units) -> Result<Self, OperatorError> {
        let fields = plan.unit.fields.len();
        let width = u32::try_from(fields).unwrap_or(u32::MAX);
        let too_many = || OperatorError::TooManyUnits {
            path: units.source().path.clone(),
        };
        let len = units.len().checked_mul(width).ok_or_else(too_many)?;
        Ok(Self {
            plan,
            units,
            width,
            len,
        })
    }

    /// The unit of a record's field, which has this place among all fields of it.
    fn of(&self, record: &Unit, place: u32) -> Unit {
        let text = &self.plan.unit.fields[place as usize];
        let ordinal = record.ordinal * self.width + place;
        let found = field_text(&record.record, &text.field);
        let empty =
            matches!(&found, Ok(found) if found.as_ref().is_none_or(|f| f.trim().is_empty()));
        let mut canonical = Canonical::new("operator 2026 field unit v1");
        canonical.text(record.id.as_str()).text(&text.field);
        canonical.text(&spelled(record, &text.field));
        Unit {
            id: id::of_field(&record.id, &text.field),
            kind: UnitKind::Field,
            ordinal,
            source_hash: ContentHash::of(&canonical),
            record: record.record.clone(),
            neighbourhood: vec![record.id.clone()],
            texts: Some(vec![text.clone()]),
            skip: empty.then(|| format!("field {} is empty", text.field)),
        }
    }
}

/// The values of a field as text, whatever they are; it is hashed, also where it cannot be shown.
fn spelled(record: &Unit, field: &str) -> String {
    let leaves = predicate::leaves(&record.record.fields, field).unwrap_or_default();
    let parts: Vec<String> = leaves
        .into_iter()
        .map(|leaf| match leaf {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        })
        .collect();
    parts.join(", ")
}

impl Units for FieldUnits<'_> {
    fn source(&self) -> &SourceArtifact {
        self.units.source()
    }

    fn len(&self) -> u32 {
        self.len
    }

    fn visit(
        &self,
        visitor: &mut dyn FnMut(Placed) -> Result<(), OperatorError>,
    ) -> Result<(), OperatorError> {
        self.units.visit(&mut |placed| {
            for place in 0..self.width {
                visitor(match &placed {
                    Placed::Unit(record, at) => {
                        let unit = self.of(record, place);
                        let at = Place {
                            ordinal: unit.ordinal,
                            ..*at
                        };
                        Placed::Unit(unit, at)
                    }
                    Placed::Bad(bad) => {
                        let field = &self.plan.unit.fields[place as usize].field;
                        Placed::Bad(BadUnit {
                            ordinal: bad.ordinal * self.width + place,
                            id: UnitId::new(&format!("{}#{field}", bad.id)),
                            ..bad.clone()
                        })
                    }
                })?;
            }
            Ok(())
        })
    }

    fn read(&self, place: Place) -> Result<Unit, OperatorError> {
        let record = self.units.read(Place {
            ordinal: place.ordinal / self.width,
            ..place
        })?;
        Ok(self.of(&record, place.ordinal % self.width))
    }
}
