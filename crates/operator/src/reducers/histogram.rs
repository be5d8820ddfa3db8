//! Counts selected facts by a measure between fixed edges. Exact: edges come from the plan.
//!
//! Edges that depend on the data could not be merged, so there is no way to ask for them.

use serde_json::{Value, json};

use super::{Folded, Groups, Selection, cite};
use crate::canonical::Canonical;
use crate::error::OperatorError;
use crate::fact::Fact;
use crate::fold::{Leaves, Reducer, UnitRef};
use crate::infer::PPM;
use crate::plan::Measure;

/// Counts facts per range of a measure.
///
/// Units: parts per million for a probability, else the column's own. Bins are `(.., e0)`,
/// `[e0, e1)`, .., `[en, ..)`; those of a probability begin at 0 and end at 1,000,000.
#[derive(Debug, Clone)]
pub struct Histogram {
    /// Which facts count.
    pub selection: Selection,
    /// The number counted by.
    pub measure: Measure,
    /// Inner edges, ascending.
    pub edges: Vec<i64>,
    /// Units named per bin at every node, and cited in all.
    pub cite_max: u32,
}

impl Histogram {
    /// Units that the claim cites at most.
    pub const fn cite_max(&self) -> u32 {
        self.cite_max
    }

    /// Writes the parameters into a hash.
    pub fn encode(&self, canonical: &mut Canonical) {
        self.selection.encode(canonical);
        self.measure.encode(canonical);
        canonical.list(self.edges.len());
        for edge in &self.edges {
            canonical.i64(*edge);
        }
        canonical.u32(self.cite_max);
    }

    /// The key of a bin; two digits keep bins in order up to the most that a plan may have.
    fn key(bin: usize) -> String {
        format!("{bin:02}")
    }
}

impl Reducer for Histogram {
    type State = Groups;
    type Output = Folded;

    fn empty(&self) -> Groups {
        Groups::empty()
    }

    fn absorb(&self, state: &mut Groups, unit: &UnitRef, fact: &Fact) -> bool {
        if !self.selection.admits(fact) {
            return false;
        }
        let measure = self.measure.read(fact);
        if let Some(number) = measure {
            let bin = self.edges.partition_point(|edge| *edge <= number);
            let cites = self.cite_max as usize;
            state.absorb(&Self::key(bin), 0, unit, cites, self.edges.len() + 1);
        }
        measure.is_some()
    }

    fn merge(&self, into: &mut Groups, from: &Groups) {
        into.merge(from, self.cite_max as usize, self.edges.len() + 1);
    }

    fn finish(&self, state: &Groups, leaves: &Leaves<'_>) -> Result<Folded, OperatorError> {
        let (unit, low, high) = match self.measure {
            Measure::Probability { .. } => ("_ppm", Some(0), Some(i64::from(PPM))),
            Measure::Column(_) => ("", None, None),
        };
        let edge = |bin: usize| self.edges.get(bin).copied();
        let bins: Vec<Value> = (0..=self.edges.len())
            .map(|bin| {
                let from = bin.checked_sub(1).and_then(edge).or(low);
                let to = edge(bin).or(high);
                let mut row = serde_json::Map::new();
                row.insert(format!("from{unit}"), json!(from));
                row.insert(format!("to{unit}"), json!(to));
                row.insert("count".to_owned(), json!(state.count(&Self::key(bin))));
                Value::Object(row)
            })
            .collect();
        let units = state.in_turn(
            state.groups.keys().map(String::as_str),
            self.cite_max as usize,
        );
        Ok(Folded {
            value: Value::Array(bins),
            count: state.total,
            cites: cite(units, leaves, self.cite_max)?,
            cites_total: state.total,
        })
    }
}
