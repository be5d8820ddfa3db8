//! Which facts a reducer counts: decided ones whose fields and columns carry the required values.
//!
//! Must not know the reducers.

use crate::canonical::Canonical;
use crate::column::ColumnType;
use crate::fact::{Fact, Status};
use crate::plan::{ColumnRef, Filter, KeySource};

/// A conjunction of `source = text`; empty selects every decided fact.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection(Vec<(KeySource, String)>);

impl Selection {
    /// Requires what a plan's filter requires.
    pub fn of(filter: &Filter) -> Self {
        let labels = filter
            .labels
            .iter()
            .map(|(field, label)| (KeySource::Label(field.clone()), label.clone()));
        let columns = filter.columns.iter().map(|(name, text)| {
            let column = ColumnRef {
                name: name.clone(),
                kind: ColumnType::Text,
            };
            (KeySource::Column(column), text.clone())
        });
        Self(labels.chain(columns).collect())
    }

    /// True when the fact is decided and every term holds.
    ///
    /// Abstained facts keep their values for the reader but are never selected.
    pub fn admits(&self, fact: &Fact) -> bool {
        fact.status == Status::Decided
            && self
                .0
                .iter()
                .all(|(source, text)| source.read(fact).is_some_and(|found| found == *text))
    }

    /// Writes the terms into a hash.
    pub fn encode(&self, canonical: &mut Canonical) {
        canonical.list(self.0.len());
        for (source, text) in &self.0 {
            source.encode(canonical);
            canonical.text(text);
        }
    }
}

impl std::fmt::Display for Selection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, (source, text)) in self.0.iter().enumerate() {
            let and = if index == 0 { "" } else { " and " };
            write!(f, "{and}{} = {text}", source.name())?;
        }
        Ok(())
    }
}
