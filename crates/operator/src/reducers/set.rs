//! The set of selected units, or of the labels that they carry. Exact, also idempotent.

use serde_json::Value;

use super::{Folded, Groups, Selection};
use crate::fact::Fact;
use crate::fold::Reducer;

/// Lists units in source order or, given a field, the labels seen, in the order of their names.
#[derive(Debug, Clone)]
pub struct Set {
    /// Which facts are members.
    pub selection: Selection,
    /// The field whose labels are collected; none collects the units themselves.
    pub field: Option<String>,
    /// Citations shown.
    pub cite_max: u32,
}

impl Reducer for Set {
    type State = Groups;
    type Output = Folded;

    fn empty(&self) -> Groups {
        Groups::empty()
    }

    fn lift(&self, fact: &Fact) -> Groups {
        if !self.selection.admits(fact) {
            return Groups::empty();
        }
        let rank = (fact.ordinal, fact.unit_id.clone());
        match &self.field {
            // The members are the value, so none may be cut.
            None => Groups::one("", rank, fact.cite(), u32::MAX),
            Some(field) => fact.values.get(field).map_or_else(Groups::empty, |value| {
                Groups::one(&value.label, rank, fact.cite(), self.cite_max)
            }),
        }
    }

    fn merge(&self, left: Groups, right: Groups) -> Groups {
        left.merge(right)
    }

    fn finish(&self, state: &Groups) -> Folded {
        let mut labels: Vec<&str> = state.by_count().into_iter().map(|(key, _)| key).collect();
        labels.sort_unstable();
        let members: Vec<Value> = match &self.field {
            None => state.get("").map_or_else(Vec::new, |units| {
                units
                    .best
                    .keys()
                    .map(|(_, unit)| Value::from(unit.as_str()))
                    .collect()
            }),
            Some(_) => labels.iter().map(|label| Value::from(*label)).collect(),
        };
        Folded {
            count: members.len() as u64,
            value: Value::Array(members),
            cites: state.cites(labels, self.cite_max),
            cites_total: state.total(),
        }
    }
}
