//! What a reduction may name, and the keys that several operations share.

use std::ops::{Range, RangeInclusive};

use toml::Spanned;

use super::names::{Named, Names, described, reference};
use super::{Fault, within};
use crate::column::{Column, ColumnType};
use crate::plan::file::ReduceFile;
use crate::plan::{ColumnRef, Filter, KeySource, Reduce};

const KEYS_MAX_DEFAULT: u32 = 4_096;
const KEYS_MAX: u32 = 65_536;

/// A reduction that is being checked, and what it may name.
pub(super) struct Scope<'a> {
    pub(super) file: &'a ReduceFile,
    pub(super) span: Range<usize>,
    /// The reduction, for messages: `reduce "name"`.
    pub(super) what: String,
    pub(super) op: &'static str,
    pub(super) names: Names<'a>,
    /// The reductions before this one.
    pub(super) earlier: &'a [Reduce],
    pub(super) filter: Filter,
}

impl<'a> Scope<'a> {
    pub(super) fn fault(&self, span: Range<usize>, problem: &str) -> Fault {
        (span, format!("{}: {problem}", self.what))
    }

    /// A key that the operation cannot do without.
    pub(super) fn need<T>(
        &self,
        key: &str,
        given: &'a Option<Spanned<T>>,
    ) -> Result<&'a Spanned<T>, Fault> {
        given.as_ref().ok_or_else(|| {
            let problem = format!("op {:?} needs {key:?}; add it", self.op);
            self.fault(self.span.clone(), &problem)
        })
    }

    /// A number in range, where one is given.
    pub(super) fn within(
        &self,
        key: &str,
        given: Option<&Spanned<u32>>,
        range: RangeInclusive<u32>,
    ) -> Result<Option<u32>, Fault> {
        within(given, &format!("{}: {key}", self.what), range)
    }

    /// How many, which the operation cannot do without.
    pub(super) fn k(&self, max: u32) -> Result<u32, Fault> {
        let given = self.need("k", &self.file.k)?;
        Ok(self.within("k", Some(given), 1..=max)?.unwrap_or(max))
    }

    /// The field or column that the operation reads.
    pub(super) fn named(&self) -> Result<(Named<'a>, Range<usize>), Fault> {
        let field = self.need("field", &self.file.field)?;
        let named = self.names.find(field.get_ref(), &self.what, field.span())?;
        Ok((named, field.span()))
    }

    /// A field or text column as a key.
    pub(super) fn key(&self) -> Result<KeySource, Fault> {
        match self.named()? {
            (Named::Field(field), _) => Ok(KeySource::Label(field.name.clone())),
            (Named::Column(column), span) => {
                let kinds = [ColumnType::Text];
                self.typed(column, &kinds, "a field or a text column", span)
                    .map(KeySource::Column)
            }
        }
    }

    /// Most different keys; only a column has so many that a limit is needed.
    pub(super) fn keys_max(&self, key: &KeySource) -> Result<u32, Fault> {
        match (&self.file.keys_max, key) {
            (Some(given), KeySource::Label(field)) => {
                let problem = format!(
                    "keys_max limits the keys of a column, and {field:?} is a field with fixed \
                     labels; remove it"
                );
                Err(self.fault(given.span(), &problem))
            }
            (given, _) => Ok(self
                .within("keys_max", given.as_ref(), 1..=KEYS_MAX)?
                .unwrap_or(KEYS_MAX_DEFAULT)),
        }
    }

    /// An integer or time column.
    pub(super) fn number(&self) -> Result<ColumnRef, Fault> {
        let kinds = [ColumnType::Integer, ColumnType::Time];
        self.column(&kinds, "an integer or time column")
    }

    /// An integer column.
    pub(super) fn integer(&self) -> Result<ColumnRef, Fault> {
        self.column(&[ColumnType::Integer], "an integer column")
    }

    /// A column of any type.
    pub(super) fn any_column(&self) -> Result<ColumnRef, Fault> {
        let kinds = [ColumnType::Integer, ColumnType::Text, ColumnType::Time];
        self.column(&kinds, "a column")
    }

    /// A column of one of the types.
    pub(super) fn typed(
        &self,
        column: &Column,
        kinds: &[ColumnType],
        expected: &str,
        span: Range<usize>,
    ) -> Result<ColumnRef, Fault> {
        if kinds.contains(&column.kind) {
            return Ok(reference(column));
        }
        let problem = format!(
            "op {:?} needs {expected}, not {}",
            self.op,
            described(column)
        );
        Err(self.fault(span, &problem))
    }

    fn column(&self, kinds: &[ColumnType], expected: &str) -> Result<ColumnRef, Fault> {
        let field = self.need("field", &self.file.field)?;
        if self.names.columns.is_empty() {
            let problem = format!(
                "op {:?} needs {expected}, and the plan has no [[column]]; add one",
                self.op
            );
            return Err(self.fault(field.span(), &problem));
        }
        match self.named()? {
            (Named::Column(column), span) => self.typed(column, kinds, expected, span),
            (Named::Field(field), span) => {
                let problem = format!(
                    "op {:?} needs {expected}, and {:?} is a field; declare a [[column]] and name \
                     that",
                    self.op, field.name
                );
                Err(self.fault(span, &problem))
            }
        }
    }
}
