//! Groups, and records that know their neighbours, as what a run goes over.
//!
//! Memory: about 100 bytes per record and 16 per neighbour, and while similar texts are looked for about
//! 1 KiB per record; members are read again by their place whenever a unit is.

use std::collections::HashSet;

use crate::error::OperatorError;
use crate::ops::{BadUnit, Place, Placed, Unit, Units};
use crate::plan::{Granularity, GroupPlan, Nearness, Plan};
use crate::record::SourceArtifact;

use super::compose;
use super::fields::FieldUnits;
use super::gather::{self, Entry};
use super::id;
use super::near::{self, Neighbour};
use super::shape::{self, Group};

/// What a plan makes of records; none where they are its units as they are.
///
/// # Errors
/// What reading the records may cause; [`OperatorError::TooManyUnits`], and
/// [`OperatorError::DuplicateId`] where two groups have one id.
pub fn arrange<'a>(
    plan: &'a Plan,
    units: &'a dyn Units,
) -> Result<Option<Box<dyn Units + 'a>>, OperatorError> {
    let group = match (&plan.unit.group, plan.unit.kind) {
        (_, Granularity::Field) => return Ok(Some(Box::new(FieldUnits::new(plan, units)?))),
        (Some(group), _) => group,
        (None, _) => return Ok(None),
    };
    let gathered = gather::gather(plan, group, units)?;
    let near = near::near(group, &gathered);
    if plan.unit.kind != Granularity::Group {
        return Ok(Some(Box::new(NearUnits::new(
            plan,
            units,
            gathered.entries,
            near,
        ))));
    }
    let groups = shape::shape(group, &gathered, &near);
    let units = GroupUnits {
        plan,
        units,
        alone: alone(group),
        groups,
        entries: gathered.entries,
        bad: gathered.bad,
    };
    units.check(group)?;
    Ok(Some(Box::new(units)))
}

/// Why a record without neighbours is not asked about.
fn alone(group: &GroupPlan) -> String {
    match &group.by {
        Nearness::Key { field } => format!("no other record has its {field}"),
        by => format!("no neighbour by {}", by.as_str()),
    }
}

/// Units that are groups; records without neighbours follow, and then what cannot be read.
struct GroupUnits<'a> {
    plan: &'a Plan,
    units: &'a dyn Units,
    groups: Vec<Group>,
    entries: Vec<Entry>,
    bad: Vec<BadUnit>,
    /// Why a record alone is not asked about.
    alone: String,
}

impl GroupUnits<'_> {
    fn check(&self, group: &GroupPlan) -> Result<(), OperatorError> {
        let path = || self.units.source().path.clone();
        if u32::try_from(self.groups.len() + self.bad.len()).is_err() {
            return Err(OperatorError::TooManyUnits { path: path() });
        }
        let mut ids = HashSet::with_capacity(self.groups.len() + self.bad.len());
        let made = self.groups.iter().map(|group| {
            let members = group.members.iter();
            let ids = members.map(|member| self.entries[*member as usize].id.clone());
            id::of_group(&ids.collect::<Vec<_>>())
        });
        for id in made.chain(self.bad.iter().map(|bad| bad.id.clone())) {
            if let Some(twice) = ids.replace(id) {
                let by = group.by.as_str();
                return Err(OperatorError::DuplicateId {
                    path: path(),
                    field: self.plan.input.id.clone(),
                    id: twice.to_string(),
                    first: format!("one group by {by}"),
                    second: String::from("another"),
                });
            }
        }
        Ok(())
    }

    fn compose(&self, ordinal: u32, group: &Group) -> Result<Unit, OperatorError> {
        compose::group(
            self.plan,
            group,
            &self.entries,
            self.units,
            ordinal,
            &self.alone,
        )
    }
}

impl Units for GroupUnits<'_> {
    fn source(&self) -> &SourceArtifact {
        self.units.source()
    }

    fn len(&self) -> u32 {
        u32::try_from(self.groups.len() + self.bad.len()).unwrap_or(u32::MAX)
    }

    fn visit(
        &self,
        visitor: &mut dyn FnMut(Placed) -> Result<(), OperatorError>,
    ) -> Result<(), OperatorError> {
        let mut ordinal = 0;
        for group in &self.groups {
            let place = Place {
                ordinal,
                bytes: 0,
                start: 0,
            };
            visitor(Placed::Unit(self.compose(ordinal, group)?, place))?;
            ordinal += 1;
        }
        for bad in &self.bad {
            visitor(Placed::Bad(BadUnit {
                ordinal,
                ..bad.clone()
            }))?;
            ordinal += 1;
        }
        Ok(())
    }

    fn read(&self, place: Place) -> Result<Unit, OperatorError> {
        match self.groups.get(place.ordinal as usize) {
            Some(group) => self.compose(place.ordinal, group),
            None => Err(OperatorError::SourceChanged {
                path: self.units.source().path.clone(),
            }),
        }
    }
}

/// Units that are records and know their neighbours.
struct NearUnits<'a> {
    plan: &'a Plan,
    units: &'a dyn Units,
    entries: Vec<Entry>,
    near: Vec<Vec<Neighbour>>,
    /// The entry of an ordinal; none of a record that cannot be read.
    by_ordinal: Vec<Option<u32>>,
}

impl<'a> NearUnits<'a> {
    fn new(
        plan: &'a Plan,
        units: &'a dyn Units,
        entries: Vec<Entry>,
        near: Vec<Vec<Neighbour>>,
    ) -> Self {
        let mut by_ordinal = vec![None; units.len() as usize];
        for (place, entry) in (0_u32..).zip(&entries) {
            by_ordinal[entry.place.ordinal as usize] = Some(place);
        }
        Self {
            plan,
            units,
            entries,
            near,
            by_ordinal,
        }
    }
}

impl Units for NearUnits<'_> {
    fn source(&self) -> &SourceArtifact {
        self.units.source()
    }

    fn len(&self) -> u32 {
        self.units.len()
    }

    fn visit(
        &self,
        visitor: &mut dyn FnMut(Placed) -> Result<(), OperatorError>,
    ) -> Result<(), OperatorError> {
        self.units.visit(visitor)
    }

    fn read(&self, place: Place) -> Result<Unit, OperatorError> {
        self.units.read(place)
    }

    fn widen(&self, unit: &Unit) -> Result<Option<Unit>, OperatorError> {
        let entry = self
            .by_ordinal
            .get(unit.ordinal as usize)
            .copied()
            .flatten();
        let near = entry.map_or(&[][..], |entry| &self.near[entry as usize]);
        if near.is_empty() {
            return Ok(None);
        }
        let mut others: Vec<usize> = near.iter().map(|near| near.entry as usize).collect();
        near::in_order_of_plan(self.plan, &self.entries, &mut others);
        let others: Vec<&Entry> = others.iter().map(|other| &self.entries[*other]).collect();
        compose::beside(self.plan, unit, &others, self.units).map(Some)
    }
}
