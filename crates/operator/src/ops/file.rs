//! Units that are read from their file each time: what is held of a record that no one needs is
//! nothing.
//!
//! The file is gone through once to check that it is a partition, and once more for every visit; a
//! file that is another by then is refused. Law: as that of [`super::partition()`].

use std::collections::HashMap;
use std::path::Path;

use super::partition::{BadUnit, TextFields, Unit};
use super::units::{Place, Placed, Units};
use crate::error::OperatorError;
use crate::id::UnitId;
use crate::plan::Plan;
use crate::record::{BadRecord, Record, Scan, SourceArtifact, Span, no_record};

/// The units of a file.
pub struct FileUnits<'p> {
    plan: &'p Plan,
    scan: Scan<'static>,
    source: SourceArtifact,
    units: u32,
}

impl<'p> FileUnits<'p> {
    /// Opens a file and checks that its records are a partition; what cannot be read is shown to
    /// `warn`.
    ///
    /// Memory: one record, and 8 bytes per record while it is checked that no id occurs twice.
    ///
    /// # Errors
    /// As [`crate::record::read_source`] and [`super::partition()`].
    pub fn open(
        plan: &'p Plan,
        path: &Path,
        warn: &mut dyn FnMut(&BadUnit),
    ) -> Result<Self, OperatorError> {
        let scan = Scan::open_file(path, plan.input.format)?;
        let (mut units, mut good) = (0, 0_u64);
        let mut fields = TextFields::new(plan);
        let mut first_bad: Option<BadRecord> = None;
        // A record without an id is told of when all are known to have the fields that are read.
        let mut without_id = None;
        let mut ids = Vec::new();
        let source = scan.visit(&mut |_, found| {
            units += 1;
            match found {
                Ok(record) => {
                    good += 1;
                    fields.see(&record);
                    match Unit::id_of(plan, scan.path(), &record) {
                        Ok(id) => ids.push(short_hash(&id)),
                        Err(error) => {
                            without_id.get_or_insert(error);
                        }
                    }
                }
                Err(bad) => {
                    first_bad.get_or_insert_with(|| bad.clone());
                    let bad = BadUnit::of(bad);
                    ids.push(short_hash(&bad.id));
                    warn(&bad);
                }
            }
            Ok(())
        })?;
        if good == 0 {
            return Err(no_record(&source, u64::from(units), first_bad.as_ref()));
        }
        fields.check(&source.path)?;
        if let Some(error) = without_id {
            return Err(error);
        }
        let file = Self {
            plan,
            scan,
            source,
            units,
        };
        ids.sort_unstable();
        let suspects: Vec<u64> = ids
            .windows(2)
            .filter(|pair| pair[0] == pair[1])
            .map(|pair| pair[0])
            .collect();
        drop(ids);
        file.check_unique(&suspects)?;
        Ok(file)
    }

    /// Looks at the ids whose hashes meet; different ones may.
    fn check_unique(&self, suspects: &[u64]) -> Result<(), OperatorError> {
        if suspects.is_empty() {
            return Ok(());
        }
        let mut places: HashMap<UnitId, String> = HashMap::new();
        self.scan.visit(&mut |_, found| {
            let (id, place) = match found {
                Ok(record) => {
                    let id = Unit::id_of(self.plan, self.scan.path(), &record)?;
                    (id, record.place)
                }
                Err(bad) => (UnitId::synthesised(bad.ordinal), bad.place),
            };
            if suspects.binary_search(&short_hash(&id)).is_err() {
                return Ok(());
            }
            match places.get(&id) {
                None => {
                    places.insert(id, place);
                    Ok(())
                }
                Some(first) => Err(OperatorError::DuplicateId {
                    path: self.source.path.clone(),
                    field: self.plan.input.id.clone(),
                    id: id.to_string(),
                    first: first.clone(),
                    second: place,
                }),
            }
        })?;
        Ok(())
    }

    fn unit(&self, record: Record) -> Result<Unit, OperatorError> {
        Unit::of(self.plan, self.scan.path(), record)
    }

    fn changed(&self) -> OperatorError {
        OperatorError::SourceChanged {
            path: self.source.path.clone(),
        }
    }
}

impl Units for FileUnits<'_> {
    fn source(&self) -> &SourceArtifact {
        &self.source
    }

    fn len(&self) -> u32 {
        self.units
    }

    fn visit(
        &self,
        visitor: &mut dyn FnMut(Placed) -> Result<(), OperatorError>,
    ) -> Result<(), OperatorError> {
        let mut stopped = false;
        let mut seen = 0;
        let visited = self.scan.visit(&mut |span, found| {
            seen += 1;
            if seen > self.units {
                return Err(self.changed());
            }
            let placed = match found {
                Ok(record) => {
                    let place = Place {
                        ordinal: record.ordinal,
                        bytes: span.bytes,
                        start: span.start,
                    };
                    Placed::Unit(self.unit(record)?, place)
                }
                Err(bad) => Placed::Bad(BadUnit::of(bad)),
            };
            let taken = visitor(placed);
            stopped = taken.is_err();
            taken
        });
        match visited {
            Ok(source) if source == self.source => Ok(()),
            Err(error) if stopped || matches!(error, OperatorError::Io { .. }) => Err(error),
            // It was whole, and every record had an id, when it was opened.
            _ => Err(self.changed()),
        }
    }

    fn read(&self, place: Place) -> Result<Unit, OperatorError> {
        let span = Span {
            start: place.start,
            bytes: place.bytes,
        };
        match self.scan.read(place.ordinal, span)? {
            Some(record) => self.unit(record).map_err(|_| self.changed()),
            None => Err(self.changed()),
        }
    }
}

fn short_hash(id: &UnitId) -> u64 {
    let hash = blake3::hash(id.as_str().as_bytes());
    let mut short = [0; 8];
    short.copy_from_slice(&hash.as_bytes()[..8]);
    u64::from_le_bytes(short)
}
