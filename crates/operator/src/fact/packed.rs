//! The facts of a run in little memory: one packed row per unit, found by its position in the source.
//!
//! Names that repeat from row to row (stages, reasons, labels, fields) are kept once. A fact of a unit
//! that a predicate left out takes about as many bytes as its record's hash and id. Rows are read one
//! at a time, as they were put. Must not know files or what a fact means.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::{Evidence, FACT_SCHEMA, Fact, FieldValue, Status, Step};
use crate::column::ColumnValue;
use crate::id::{ContentHash, UnitId};
use crate::infer::UnitUsage;

/// Bytes of a page; a row never lies on two, a longer row has a page of its own.
const PAGE_BYTES: usize = 256 << 10;

/// Names that are kept once; any further name is written out in its row.
const NAMES_MAX: usize = 4_096;

/// Facts by the position of their record.
#[derive(Debug, Default)]
pub struct Facts {
    pages: Vec<Vec<u8>>,
    /// Page and offset of each row, by ordinal; `NOWHERE` until its fact is put.
    rows: Vec<u64>,
    names: Vec<Arc<str>>,
    by_name: HashMap<Arc<str>, u64>,
    len: usize,
}

const NOWHERE: u64 = u64::MAX;

impl Facts {
    /// Makes room for the facts of so many units; none is there yet.
    pub fn with_units(units: u32) -> Self {
        Self {
            rows: vec![NOWHERE; units as usize],
            ..Self::default()
        }
    }

    /// How many facts there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Keeps a fact under its ordinal; false, and nothing is kept, where one is there already or the
    /// ordinal is none of the units'.
    ///
    /// # Panics
    /// If the fact is of another row format than [`FACT_SCHEMA`].
    pub fn put(&mut self, fact: &Fact) -> bool {
        assert_eq!(fact.schema, FACT_SCHEMA, "facts are made in one format");
        let place = fact.ordinal as usize;
        if self.rows.get(place) != Some(&NOWHERE) {
            return false;
        }
        let mut row = Vec::with_capacity(96);
        self.write(fact, &mut row);
        let fits = self
            .pages
            .last()
            .is_some_and(|page| page.len() + row.len() <= page.capacity());
        if !fits {
            self.pages
                .push(Vec::with_capacity(PAGE_BYTES.max(row.len())));
        }
        let index = self.pages.len() - 1;
        let page = &mut self.pages[index];
        self.rows[place] = ((index as u64) << 32) | page.len() as u64;
        page.extend_from_slice(&row);
        self.len += 1;
        true
    }

    /// Keeps a fact in place of the one under its ordinal; what that took is not freed.
    ///
    /// # Panics
    /// As `put`, and if there is none to be replaced.
    pub fn replace(&mut self, fact: &Fact) {
        let place = fact.ordinal as usize;
        let there = self.rows.get(place).is_some_and(|row| *row != NOWHERE);
        assert!(there, "only a fact that is there is replaced");
        self.rows[place] = NOWHERE;
        self.len -= 1;
        self.put(fact);
    }

    /// The fact of the unit at a position of the source.
    pub fn get(&self, ordinal: u32) -> Option<Fact> {
        let row = *self.rows.get(ordinal as usize)?;
        if row == NOWHERE {
            return None;
        }
        let (page, offset) = ((row >> 32) as usize, (row & u64::from(u32::MAX)) as usize);
        let fact = Row(&self.pages[page][offset..]).fact(ordinal, &self.names);
        assert!(fact.is_some(), "rows are read as they were written");
        fact
    }

    /// The facts in source order.
    pub fn iter(&self) -> impl Iterator<Item = Fact> + '_ {
        (0_u32..)
            .take(self.rows.len())
            .filter_map(|ordinal| self.get(ordinal))
    }

    /// The first position of the source that has no fact.
    pub fn missing(&self) -> Option<u32> {
        let place = self.rows.iter().position(|row| *row == NOWHERE)?;
        u32::try_from(place).ok()
    }

    fn write(&mut self, fact: &Fact, row: &mut Vec<u8>) {
        row.push(fact.status as u8);
        let usage = UnitUsage::default();
        let flags = [
            fact.remembered,
            fact.simulated,
            fact.usage != usage,
            fact.cost != usage,
        ];
        row.push(
            flags
                .iter()
                .fold(0, |bits, flag| (bits << 1) | u8::from(*flag)),
        );
        row.extend_from_slice(fact.source_hash.as_bytes());
        text(row, fact.unit_id.as_str());
        self.name(row, &fact.stage);
        self.optional_name(row, fact.reason.as_deref());
        self.optional_name(row, fact.backend.as_deref());
        optional(row, fact.same_as.as_ref(), |row, id| text(row, id.as_str()));
        number(row, fact.clipped_bytes);
        for usage in [fact.usage, fact.cost] {
            if usage != UnitUsage::default() {
                write_usage(row, usage);
            }
        }
        self.write_values(row, &fact.values);
        number(row, fact.columns.len() as u64);
        for (column, value) in &fact.columns {
            self.name(row, column);
            match value {
                ColumnValue::Integer(integer) => {
                    row.push(0);
                    row.extend_from_slice(&integer.to_le_bytes());
                }
                ColumnValue::Text(value) => {
                    row.push(1);
                    self.name(row, value);
                }
            }
        }
        number(row, fact.members.len() as u64);
        for member in &fact.members {
            text(row, member.as_str());
        }
        number(row, fact.path.len() as u64);
        for step in &fact.path {
            self.write_step(row, step);
        }
        number(row, fact.evidence.len() as u64);
        for evidence in &fact.evidence {
            self.name(row, &evidence.field);
            number(row, u64::from(evidence.start));
            number(row, u64::from(evidence.end));
            row.extend_from_slice(evidence.quote_hash.as_bytes());
            optional(row, evidence.quote.as_ref(), |row, quote| text(row, quote));
            optional(row, evidence.line.as_ref(), |row, line| {
                number(row, u64::from(*line));
            });
        }
    }

    fn write_values(&mut self, row: &mut Vec<u8>, values: &BTreeMap<String, FieldValue>) {
        number(row, values.len() as u64);
        for (field, value) in values {
            self.name(row, field);
            self.name(row, &value.label);
            let shares = [
                value.probability_ppm,
                value.margin_ppm,
                value.label_mass_ppm,
            ];
            for share in shares {
                optional(row, share.as_ref(), |row, ppm| {
                    number(row, u64::from(*ppm));
                });
            }
            number(row, value.alternatives.len() as u64);
            for (label, ppm) in &value.alternatives {
                self.name(row, label);
                number(row, u64::from(*ppm));
            }
            self.optional_name(row, value.reason_code.as_deref());
        }
    }

    fn write_step(&mut self, row: &mut Vec<u8>, step: &Step) {
        self.name(row, &step.stage);
        self.name(row, &step.outcome);
        self.write_values(row, &step.values);
        optional(row, step.observed.as_ref(), |row, hash| {
            row.extend_from_slice(hash.as_bytes());
        });
        self.optional_name(row, step.backend.as_deref());
        row.push(u8::from(step.remembered));
        optional(row, step.same_as.as_ref(), |row, id| text(row, id.as_str()));
        write_usage(row, step.cost);
    }

    /// A name by its number, from 1; 0 goes before one that is written out.
    fn name(&mut self, row: &mut Vec<u8>, name: &str) {
        if let Some(known) = self.by_name.get(name) {
            number(row, *known);
        } else if self.names.len() < NAMES_MAX {
            let kept: Arc<str> = Arc::from(name);
            self.names.push(kept.clone());
            let known = self.names.len() as u64;
            self.by_name.insert(kept, known);
            number(row, known);
        } else {
            number(row, 0);
            text(row, name);
        }
    }

    fn optional_name(&mut self, row: &mut Vec<u8>, name: Option<&str>) {
        row.push(u8::from(name.is_some()));
        if let Some(name) = name {
            self.name(row, name);
        }
    }
}

fn write_usage(row: &mut Vec<u8>, usage: UnitUsage) {
    number(row, usage.prompt_tokens);
    number(row, usage.computed_tokens);
    number(row, usage.cached_tokens);
    number(row, usage.micros);
}

fn number(row: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        row.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    row.push(number as u8);
}

fn text(row: &mut Vec<u8>, text: &str) {
    number(row, text.len() as u64);
    row.extend_from_slice(text.as_bytes());
}

fn optional<T>(row: &mut Vec<u8>, value: Option<&T>, write: impl FnOnce(&mut Vec<u8>, &T)) {
    row.push(u8::from(value.is_some()));
    if let Some(value) = value {
        write(row, value);
    }
}

/// What is left of a row; nothing is read of one that ends too early.
struct Row<'a>(&'a [u8]);

impl<'a> Row<'a> {
    fn fact(mut self, ordinal: u32, names: &[Arc<str>]) -> Option<Fact> {
        let row = &mut self;
        let status = row.byte()?;
        let status = Status::ALL
            .into_iter()
            .find(|known| *known as u8 == status)?;
        let flags = row.byte()?;
        let source_hash = row.hash()?;
        let unit_id = UnitId::new(row.text()?);
        let stage = row.name(names)?.to_owned();
        let mut fact = Fact::bare(unit_id, ordinal, source_hash, status, &stage, None);
        fact.reason = row.optional(|row| row.name(names).map(str::to_owned))?;
        fact.backend = row.optional(|row| row.name(names).map(str::to_owned))?;
        fact.same_as = row.optional(|row| row.text().map(UnitId::new))?;
        fact.clipped_bytes = row.number()?;
        (fact.remembered, fact.simulated) = (flags & 8 != 0, flags & 4 != 0);
        if flags & 2 != 0 {
            fact.usage = row.usage()?;
        }
        if flags & 1 != 0 {
            fact.cost = row.usage()?;
        }
        fact.values = row.values(names)?;
        for _ in 0..row.number()? {
            let column = row.name(names)?.to_owned();
            let value = match row.byte()? {
                0 => ColumnValue::Integer(i64::from_le_bytes(row.bytes(8)?.try_into().ok()?)),
                _ => ColumnValue::Text(row.name(names)?.to_owned()),
            };
            fact.columns.insert(column, value);
        }
        for _ in 0..row.number()? {
            fact.members.push(UnitId::new(row.text()?));
        }
        for _ in 0..row.number()? {
            fact.path.push(row.step(names)?);
        }
        for _ in 0..row.number()? {
            fact.evidence.push(Evidence {
                field: row.name(names)?.to_owned(),
                start: row.small()?,
                end: row.small()?,
                quote_hash: row.hash()?,
                quote: row.optional(|row| row.text().map(str::to_owned))?,
                line: row.optional(Self::small)?,
            });
        }
        Some(fact)
    }

    fn values(&mut self, names: &[Arc<str>]) -> Option<BTreeMap<String, FieldValue>> {
        let mut values = BTreeMap::new();
        for _ in 0..self.number()? {
            let field = self.name(names)?.to_owned();
            let mut value = FieldValue::set(self.name(names)?);
            value.probability_ppm = self.optional(Self::small)?;
            value.margin_ppm = self.optional(Self::small)?;
            value.label_mass_ppm = self.optional(Self::small)?;
            for _ in 0..self.number()? {
                let label = self.name(names)?.to_owned();
                value.alternatives.push((label, self.small()?));
            }
            value.reason_code = self.optional(|row| row.name(names).map(str::to_owned))?;
            values.insert(field, value);
        }
        Some(values)
    }

    fn step(&mut self, names: &[Arc<str>]) -> Option<Step> {
        Some(Step {
            stage: self.name(names)?.to_owned(),
            outcome: self.name(names)?.to_owned(),
            values: self.values(names)?,
            observed: self.optional(Self::hash)?,
            backend: self.optional(|row| row.name(names).map(str::to_owned))?,
            remembered: self.byte()? != 0,
            same_as: self.optional(|row| row.text().map(UnitId::new))?,
            cost: self.usage()?,
        })
    }

    fn usage(&mut self) -> Option<UnitUsage> {
        Some(UnitUsage {
            prompt_tokens: self.number()?,
            computed_tokens: self.number()?,
            cached_tokens: self.number()?,
            micros: self.number()?,
        })
    }

    fn name<'n>(&mut self, names: &'n [Arc<str>]) -> Option<&'n str>
    where
        'a: 'n,
    {
        match self.number()? {
            0 => self.text(),
            known => names
                .get(usize::try_from(known - 1).ok()?)
                .map(|name| &**name),
        }
    }

    fn optional<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        match self.byte()? {
            0 => Some(None),
            _ => read(self).map(Some),
        }
    }

    fn hash(&mut self) -> Option<ContentHash> {
        Some(ContentHash::from_bytes(self.bytes(32)?.try_into().ok()?))
    }

    fn text(&mut self) -> Option<&'a str> {
        let length = usize::try_from(self.number()?).ok()?;
        std::str::from_utf8(self.bytes(length)?).ok()
    }

    fn small(&mut self) -> Option<u32> {
        u32::try_from(self.number()?).ok()
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn byte(&mut self) -> Option<u8> {
        Some(self.bytes(1)?[0])
    }

    fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(head)
    }
}
