//! Units that are handed out one at a time and can be read again: what a run goes over.
//!
//! A [`Partition`] holds them in memory; [`super::FileUnits`] reads them from their file. Must not
//! know what a run does with them.

use super::partition::{BadUnit, Partition, Unit};
use crate::error::OperatorError;
use crate::id::{ContentHash, UnitId};
use crate::record::SourceArtifact;

/// Where a unit's record lies, by which it is read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Position among all records, from 0.
    pub ordinal: u32,
    /// Bytes of its record in the file; 0 in memory.
    pub bytes: u32,
    /// Its first byte in the file; 0 in memory.
    pub start: u64,
}

/// A record in its turn.
#[derive(Debug, Clone)]
pub enum Placed {
    /// It can be read.
    Unit(Unit, Place),
    /// It cannot.
    Bad(BadUnit),
}

/// All units of an input, disjoint and complete: ordinals run from 0, and no id occurs twice.
pub trait Units: Sync {
    /// The file that they come from.
    fn source(&self) -> &SourceArtifact;

    /// How many there are, unreadable ones included.
    fn len(&self) -> u32;

    /// Whether there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Hands out every unit in input order.
    ///
    /// # Errors
    /// What the visitor returns; `Io` and `SourceChanged` where the file is not what it was.
    fn visit(
        &self,
        visitor: &mut dyn FnMut(Placed) -> Result<(), OperatorError>,
    ) -> Result<(), OperatorError>;

    /// Reads a unit that was handed out before.
    ///
    /// # Errors
    /// `Io` and `SourceChanged` where the file is not what it was.
    fn read(&self, place: Place) -> Result<Unit, OperatorError>;

    /// The unit with its neighbours beside it; none where it has none, or none are known.
    ///
    /// # Errors
    /// As [`Units::read`].
    fn widen(&self, _unit: &Unit) -> Result<Option<Unit>, OperatorError> {
        Ok(None)
    }
}

impl Units for Partition {
    fn source(&self) -> &SourceArtifact {
        &self.source
    }

    fn len(&self) -> u32 {
        self.len()
    }

    fn visit(
        &self,
        visitor: &mut dyn FnMut(Placed) -> Result<(), OperatorError>,
    ) -> Result<(), OperatorError> {
        let mut bad = self.bad.iter().peekable();
        for unit in &self.units {
            while let Some(bad) = bad.next_if(|bad| bad.ordinal < unit.ordinal) {
                visitor(Placed::Bad(bad.clone()))?;
            }
            let place = Place {
                ordinal: unit.ordinal,
                bytes: 0,
                start: 0,
            };
            visitor(Placed::Unit(unit.clone(), place))?;
        }
        bad.try_for_each(|bad| visitor(Placed::Bad(bad.clone())))
    }

    fn read(&self, place: Place) -> Result<Unit, OperatorError> {
        let found = self
            .units
            .binary_search_by_key(&place.ordinal, |unit| unit.ordinal);
        match found {
            Ok(index) => Ok(self.units[index].clone()),
            Err(_) => Err(OperatorError::SourceChanged {
                path: self.source.path.clone(),
            }),
        }
    }
}

/// A unit that is still to be answered, without its record.
#[derive(Debug, Clone)]
pub(crate) struct Kept {
    pub(crate) id: UnitId,
    pub(crate) place: Place,
    pub(crate) source_hash: ContentHash,
}

impl Kept {
    pub(crate) fn of(unit: &Unit, place: Place) -> Self {
        Self {
            id: unit.id.clone(),
            place,
            source_hash: unit.source_hash,
        }
    }

    /// Reads the unit again; it must be what it was.
    pub(crate) fn read(&self, units: &dyn Units) -> Result<Unit, OperatorError> {
        let unit = units.read(self.place)?;
        if unit.source_hash != self.source_hash || unit.id != self.id {
            return Err(OperatorError::SourceChanged {
                path: units.source().path.clone(),
            });
        }
        Ok(unit)
    }
}
