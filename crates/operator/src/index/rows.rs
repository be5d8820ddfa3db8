//! Records as an index sees them: a position, an id and fields, one after the other.

use serde_json::{Map, Value};

use crate::error::OperatorError;
use crate::id::ContentHash;
use crate::ops::{Placed, Units};

/// One readable record.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    /// Its position among all records.
    pub ordinal: u32,
    /// The id of its unit.
    pub id: &'a str,
    /// Its fields.
    pub fields: &'a Map<String, Value>,
}

/// All readable records of an input, which may be visited more than once.
pub trait Rows {
    /// Hash of the file that they come from.
    fn source_hash(&self) -> ContentHash;

    /// How many records there are, unreadable ones included: ordinals are below it.
    fn len(&self) -> u32;

    /// Whether there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Hands out every readable record in input order.
    ///
    /// # Errors
    /// What the visitor returns, and what reading the records may cause.
    fn visit(
        &self,
        visitor: &mut dyn FnMut(Row<'_>) -> Result<(), OperatorError>,
    ) -> Result<(), OperatorError>;
}

/// The records of units.
pub struct UnitRows<'a>(pub &'a dyn Units);

impl Rows for UnitRows<'_> {
    fn source_hash(&self) -> ContentHash {
        self.0.source().hash
    }

    fn len(&self) -> u32 {
        self.0.len()
    }

    fn visit(
        &self,
        visitor: &mut dyn FnMut(Row<'_>) -> Result<(), OperatorError>,
    ) -> Result<(), OperatorError> {
        self.0.visit(&mut |placed| match placed {
            Placed::Bad(_) => Ok(()),
            Placed::Unit(unit, _) => visitor(Row {
                ordinal: unit.ordinal,
                id: unit.id.as_str(),
                fields: &unit.record.fields,
            }),
        })
    }
}
