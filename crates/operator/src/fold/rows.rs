//! The facts that a fold reads: anything that hands them out by position, and their key order.
//!
//! Must not know nodes or reducers.

use std::hint::black_box;
use std::ops::Deref;

use rayon::prelude::*;

use super::{FoldSpec, Hashes, LeafKey, UnitRef};
use crate::coverage::Counts;
use crate::error::OperatorError;
use crate::fact::{Fact, Facts};
use crate::id::UnitId;
use crate::plan::FoldKey;

/// A fact that is lent, or that was made to be read.
#[derive(Debug)]
pub enum FactRef<'a> {
    /// It lies in memory.
    Lent(&'a Fact),
    /// It was read for this purpose.
    Made(Box<Fact>),
}

impl Deref for FactRef<'_> {
    type Target = Fact;

    fn deref(&self) -> &Fact {
        match self {
            Self::Lent(fact) => fact,
            Self::Made(fact) => fact,
        }
    }
}

/// Facts by position; positions mean nothing to the fold but where to read.
pub trait FactRows: Sync {
    /// How many facts there are.
    fn len(&self) -> usize;

    /// Whether there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads one fact.
    ///
    /// # Errors
    /// `Io` or `FileInvalid` where facts lie in a file that cannot be read.
    fn read(&self, position: usize) -> Result<FactRef<'_>, OperatorError>;

    /// The place of a fact's leaf; read off the fact, unless it is kept beside the facts.
    ///
    /// # Errors
    /// As `read`.
    fn key(&self, position: usize, spec: &FoldSpec) -> Result<LeafKey, OperatorError> {
        Ok(spec.key_of(&*self.read(position)?))
    }

    /// Whether facts lie in memory as they are, so that reading one ahead is worth it.
    fn lent(&self) -> bool {
        true
    }

    /// The hashes of a fact that was read; computed, unless they are kept beside the facts.
    fn hashes(&self, _position: usize, fact: &Fact) -> Hashes {
        Hashes::of(fact)
    }
}

impl FactRows for [Fact] {
    fn len(&self) -> usize {
        self.len()
    }

    fn read(&self, position: usize) -> Result<FactRef<'_>, OperatorError> {
        Ok(FactRef::Lent(&self[position]))
    }
}

impl FactRows for Vec<Fact> {
    fn len(&self) -> usize {
        self.as_slice().len()
    }

    fn read(&self, position: usize) -> Result<FactRef<'_>, OperatorError> {
        self.as_slice().read(position)
    }
}

/// Positions are those of the source, so that every unit must have its fact.
impl FactRows for Facts {
    fn len(&self) -> usize {
        self.len()
    }

    fn read(&self, position: usize) -> Result<FactRef<'_>, OperatorError> {
        let place = u32::try_from(position).ok();
        match place.and_then(|place| self.get(place)) {
            Some(fact) => Ok(FactRef::Made(Box::new(fact))),
            None => panic!("unit {position} has no fact; a fold begins when all are there"),
        }
    }

    fn lent(&self) -> bool {
        false
    }
}

/// Facts with their hashes, which were computed when the facts were made.
#[derive(Debug, Default)]
pub struct SealedFacts {
    facts: Vec<Fact>,
    hashes: Vec<Hashes>,
    id_keys: Vec<LeafKey>,
}

impl SealedFacts {
    /// Hashes every fact once.
    pub fn seal(facts: Vec<Fact>) -> Self {
        let seal = |fact: &Fact| (Hashes::of(fact), LeafKey::of_id(&fact.unit_id));
        let (hashes, id_keys) = facts.par_iter().map(seal).unzip();
        Self {
            facts,
            hashes,
            id_keys,
        }
    }

    /// The facts.
    pub fn facts(&self) -> &[Fact] {
        &self.facts
    }

    /// Each fact with its hashes.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Fact, &Hashes)> {
        self.facts.iter().zip(&self.hashes)
    }

    /// Gives the facts back.
    pub fn into_facts(self) -> Vec<Fact> {
        self.facts
    }
}

impl FactRows for SealedFacts {
    fn len(&self) -> usize {
        self.facts.len()
    }

    fn read(&self, position: usize) -> Result<FactRef<'_>, OperatorError> {
        Ok(FactRef::Lent(&self.facts[position]))
    }

    fn key(&self, position: usize, spec: &FoldSpec) -> Result<LeafKey, OperatorError> {
        Ok(match spec.key {
            FoldKey::Id => self.id_keys[position],
            FoldKey::Ordinal => spec.key_of(&self.facts[position]),
        })
    }

    fn hashes(&self, position: usize, _fact: &Fact) -> Hashes {
        self.hashes[position]
    }
}

/// One leaf's place and where its fact is; 32 bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) key: LeafKey,
    pub(super) position: usize,
}

/// The facts of a fold in key order, each unit once.
pub struct Leaves<'a> {
    rows: &'a dyn FactRows,
    spec: &'a FoldSpec,
    entries: Vec<Entry>,
}

impl<'a> Leaves<'a> {
    /// Puts facts into key order; the order in which they come does not matter.
    ///
    /// Memory: 32 bytes per fact beside what `rows` holds.
    ///
    /// # Errors
    /// `CoverageOverlap` when two facts speak for the same unit or share a key; what reading a
    /// fact may cause.
    pub fn arrange(spec: &'a FoldSpec, rows: &'a dyn FactRows) -> Result<Self, OperatorError> {
        let mut entries = (0..rows.len())
            .into_par_iter()
            .map(|position| {
                let key = rows.key(position, spec)?;
                Ok(Entry { key, position })
            })
            .collect::<Result<Vec<_>, OperatorError>>()?;
        if !entries.is_sorted_by(|a, b| a.key < b.key) {
            entries.par_sort_unstable_by_key(|entry| entry.key);
        }
        let twice = entries.windows(2).find(|pair| pair[0].key == pair[1].key);
        if let Some(pair) = twice {
            let unit_id = rows.read(pair[1].position)?.unit_id.to_string();
            return Err(OperatorError::CoverageOverlap { unit_id });
        }
        Ok(Self {
            rows,
            spec,
            entries,
        })
    }

    /// How many leaves there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Reads the fact of a unit; none when it is no leaf here.
    ///
    /// # Errors
    /// What reading a fact may cause.
    pub fn find(&self, unit: &UnitRef) -> Result<Option<FactRef<'a>>, OperatorError> {
        let found = self
            .entries
            .binary_search_by_key(&unit.key, |entry| entry.key);
        match found {
            Ok(place) => {
                let fact = self.rows.read(self.entries[place].position)?;
                Ok((fact.unit_id == unit.id).then_some(fact))
            }
            Err(_) => Ok(None),
        }
    }

    /// Visits every leaf in key order.
    ///
    /// # Errors
    /// What reading a fact or the visitor may cause.
    pub fn visit(
        &self,
        visitor: &mut dyn FnMut(&UnitRef, &Fact) -> Result<(), OperatorError>,
    ) -> Result<(), OperatorError> {
        for entry in &self.entries {
            let fact = self.rows.read(entry.position)?;
            visitor(&self.unit(entry, &fact), &fact)?;
        }
        Ok(())
    }

    /// The ids of all leaves, in key order.
    ///
    /// # Errors
    /// What reading a fact may cause.
    pub fn ids(&self) -> Result<Vec<UnitId>, OperatorError> {
        let id = |entry: &Entry| Ok(self.rows.read(entry.position)?.unit_id.clone());
        self.entries.iter().map(id).collect()
    }

    /// Refuses where some unit has no answer: what is absent can be told only of the whole.
    ///
    /// # Errors
    /// `NotSealed` with the number of units that errored, were cancelled or were not run.
    pub fn require_complete(&self, what: &'static str) -> Result<(), OperatorError> {
        let mut counts = Counts::default();
        self.visit(&mut |_, fact| {
            counts.add(fact.status);
            Ok(())
        })?;
        if counts.complete() {
            return Ok(());
        }
        Err(OperatorError::NotSealed {
            what,
            missing: counts.errored + counts.cancelled + counts.not_run,
            units: counts.units,
        })
    }

    /// What the leaves were arranged under.
    pub const fn spec(&self) -> &'a FoldSpec {
        self.spec
    }

    /// Reads what a fold will read of these facts and forgets it: a loop that does nothing else
    /// waits for memory once where the fold would wait for every fact in turn.
    pub(super) fn touch(&self, entries: &[Entry]) -> Result<(), OperatorError> {
        if !self.rows.lent() {
            return Ok(());
        }
        let first = |text: &str| u64::from(text.as_bytes().first().copied().unwrap_or_default());
        let mut sum = 0;
        for entry in entries {
            if let FactRef::Lent(fact) = self.rows.read(entry.position)? {
                sum += fact.status as u64 + fact.cost.micros + first(fact.unit_id.as_str());
                for (name, value) in &fact.values {
                    sum += first(name) + first(&value.label);
                }
            }
        }
        black_box(sum);
        Ok(())
    }

    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    pub(super) fn read(&self, entry: &Entry) -> Result<FactRef<'a>, OperatorError> {
        self.rows.read(entry.position)
    }

    pub(super) fn hashes(&self, entry: &Entry, fact: &Fact) -> Hashes {
        self.rows.hashes(entry.position, fact)
    }

    pub(super) fn unit(&self, entry: &Entry, fact: &Fact) -> UnitRef {
        UnitRef {
            key: entry.key,
            id: fact.unit_id.clone(),
        }
    }
}
