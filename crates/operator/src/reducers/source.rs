//! Where a reducer reads its keys and its numbers in a fact.
//!
//! Must not know the reducers.

use std::borrow::Cow;

use crate::canonical::Canonical;
use crate::column::ColumnValue;
use crate::fact::Fact;
use crate::infer::PPM;
use crate::plan::{KeySource, Measure};

impl KeySource {
    /// The fact's key; none where the fact has no such value.
    pub fn read<'f>(&self, fact: &'f Fact) -> Option<Cow<'f, str>> {
        match self {
            Self::Label(field) => fact
                .values
                .get(field)
                .map(|value| Cow::Borrowed(value.label.as_str())),
            Self::Column(column) => fact.columns.get(&column.name).map(|value| match value {
                ColumnValue::Text(text) => Cow::Borrowed(text.as_str()),
                ColumnValue::Integer(integer) => Cow::Owned(integer.to_string()),
            }),
            Self::Id => Some(Cow::Borrowed(fact.unit_id.as_str())),
        }
    }
}

impl Measure {
    /// The fact's number: parts per million of a probability, or a column's own units; none where
    /// the fact has no such value.
    ///
    /// A value set by a predicate counts as certain: the whole for its label, zero for any other.
    pub fn read(&self, fact: &Fact) -> Option<i64> {
        match self {
            Self::Probability { field, label } => {
                let value = fact.values.get(field)?;
                let label = label.as_deref().unwrap_or(&value.label);
                Some(i64::from(value.probability_of(label).min(PPM)))
            }
            Self::Column(column) => match fact.columns.get(&column.name)? {
                ColumnValue::Integer(integer) => Some(*integer),
                ColumnValue::Text(_) => None,
            },
        }
    }
}

impl KeySource {
    /// Writes the source into a hash.
    pub fn encode(&self, canonical: &mut Canonical) {
        match self {
            Self::Label(field) => canonical.text("label").text(field),
            Self::Column(column) => canonical
                .text("column")
                .text(&column.name)
                .text(column.kind.as_str()),
            Self::Id => canonical.text("id"),
        };
    }
}

impl Measure {
    /// Writes the source into a hash.
    pub fn encode(&self, canonical: &mut Canonical) {
        match self {
            Self::Probability { field, label } => canonical
                .text("probability")
                .text(field)
                .optional_text(label.as_deref()),
            Self::Column(column) => canonical
                .text("column")
                .text(&column.name)
                .text(column.kind.as_str()),
        };
    }
}
