//! Which facts a reducer counts: decided ones whose fields carry the required labels.
//!
//! Must not know the reducers.

use std::collections::BTreeMap;

use crate::fact::{Fact, Status};

/// A conjunction of `field = label`; empty selects every decided fact.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection(BTreeMap<String, String>);

impl Selection {
    /// Requires every listed field to carry its label.
    pub fn new(terms: impl IntoIterator<Item = (String, String)>) -> Self {
        Self(terms.into_iter().collect())
    }

    /// True when the fact is decided and every term holds.
    ///
    /// Abstained facts keep their values for the reader but are never selected.
    pub fn admits(&self, fact: &Fact) -> bool {
        fact.status == Status::Decided
            && self
                .0
                .iter()
                .all(|(field, label)| fact.values.get(field).is_some_and(|v| v.label == *label))
    }
}

impl std::fmt::Display for Selection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, (field, label)) in self.0.iter().enumerate() {
            let and = if index == 0 { "" } else { " and " };
            write!(f, "{and}{field} = {label}")?;
        }
        Ok(())
    }
}
