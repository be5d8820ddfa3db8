//! The set of selected units, or of the keys that they carry. Exact, also idempotent.

use serde_json::Value;

use super::{Folded, Groups, Selection, cite};
use crate::canonical::Canonical;
use crate::error::OperatorError;
use crate::fact::Fact;
use crate::fold::{Leaves, Reducer, UnitRef};
use crate::plan::KeySource;

/// Most units that are listed; the count beside them is of all.
pub const UNITS_MAX: usize = 65_536;

/// Lists units in key order or, given a key, the keys seen in the order of their text.
#[derive(Debug, Clone)]
pub struct Set {
    /// Which facts are members.
    pub selection: Selection,
    /// What is collected; none collects the units themselves.
    pub key: Option<KeySource>,
    /// Most keys; with more the reducer refuses to answer.
    pub keys_max: u32,
    /// Units cited.
    pub cite_max: u32,
}

impl Set {
    /// Units that the claim cites at most.
    pub const fn cite_max(&self) -> u32 {
        self.cite_max
    }

    /// Writes the parameters into a hash.
    pub fn encode(&self, canonical: &mut Canonical) {
        self.selection.encode(canonical);
        match &self.key {
            Some(key) => key.encode(canonical.some()),
            None => {
                canonical.none();
            }
        }
        canonical.u32(self.keys_max).u32(self.cite_max);
    }

    /// Units named per key: all members where they are the value, else what is cited.
    fn units_max(&self) -> usize {
        match self.key {
            None => UNITS_MAX,
            Some(_) => self.cite_max as usize,
        }
    }
}

impl Reducer for Set {
    type State = Groups;
    type Output = Folded;

    fn empty(&self) -> Groups {
        Groups::empty()
    }

    fn absorb(&self, state: &mut Groups, unit: &UnitRef, fact: &Fact) -> bool {
        if !self.selection.admits(fact) {
            return false;
        }
        let key = match &self.key {
            None => Some("".into()),
            Some(key) => key.read(fact),
        };
        if let Some(key) = &key {
            state.absorb(key, 0, unit, self.units_max(), self.keys_max as usize);
        }
        key.is_some()
    }

    fn merge(&self, into: &mut Groups, from: &Groups) {
        into.merge(from, self.units_max(), self.keys_max as usize);
    }

    fn finish(&self, state: &Groups, leaves: &Leaves<'_>) -> Result<Folded, OperatorError> {
        if state.overflowed {
            return Err(OperatorError::FoldOverflow {
                what: format!(
                    "values of {}",
                    self.key.as_ref().map_or("", KeySource::name)
                ),
                max: u64::from(self.keys_max),
                cure: "narrow its where, use distinct, or raise keys_max",
            });
        }
        let members: Vec<Value> = match &self.key {
            None => state.get("").map_or_else(Vec::new, |units| {
                units
                    .units()
                    .map(|unit| Value::from(unit.id.as_str()))
                    .collect()
            }),
            Some(_) => state
                .groups
                .keys()
                .map(|key| Value::from(key.as_str()))
                .collect(),
        };
        let units = state.in_turn(
            state.groups.keys().map(String::as_str),
            self.cite_max as usize,
        );
        Ok(Folded {
            count: match &self.key {
                None => state.total,
                Some(_) => members.len() as u64,
            },
            value: Value::Array(members),
            cites: cite(units, leaves, self.cite_max)?,
            cites_total: state.total,
        })
    }
}
