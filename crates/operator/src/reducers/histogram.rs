//! Counts selected facts by probability between fixed edges. Exact: edges come from the plan.
//!
//! Edges that depend on the data could not be merged, so there is no way to ask for them.

use serde_json::{Value, json};

use super::{Folded, Groups, Selection};
use crate::fact::Fact;
use crate::fold::Reducer;
use crate::infer::PPM;

/// Counts facts per probability range.
///
/// Units: edges in parts per million, ascending. Bins are `[0, e0)`, `[e0, e1)`, .., `[en, 1e6]`.
#[derive(Debug, Clone)]
pub struct Histogram {
    /// Which facts count.
    pub selection: Selection,
    /// The field measured.
    pub field: String,
    /// The label whose probability is measured; none takes the chosen label's.
    pub label: Option<String>,
    /// Inner edges.
    pub edges: Vec<u32>,
    /// Citations kept per bin at every node, and shown in all.
    pub cite_max: u32,
}

impl Histogram {
    fn bin(&self, ppm: u32) -> usize {
        self.edges.iter().take_while(|edge| ppm >= **edge).count()
    }
}

impl Reducer for Histogram {
    type State = Groups;
    type Output = Folded;

    fn empty(&self) -> Groups {
        Groups::empty()
    }

    fn lift(&self, fact: &Fact) -> Groups {
        let value = fact
            .values
            .get(&self.field)
            .filter(|_| self.selection.admits(fact));
        value.map_or_else(Groups::empty, |value| {
            let ppm = value.probability_of(self.label.as_deref().unwrap_or(&value.label));
            let rank = (fact.ordinal, fact.unit_id.clone());
            Groups::one(self.bin(ppm).to_string(), rank, fact.cite(), self.cite_max)
        })
    }

    fn merge(&self, left: Groups, right: Groups) -> Groups {
        left.merge(right)
    }

    fn finish(&self, state: &Groups) -> Folded {
        let keys: Vec<String> = (0..=self.edges.len()).map(|bin| bin.to_string()).collect();
        let starts = std::iter::once(0).chain(self.edges.iter().copied());
        let ends = self.edges.iter().copied().chain(std::iter::once(PPM));
        let bins: Vec<Value> = keys
            .iter()
            .zip(starts.zip(ends))
            .map(|(key, (start, end))| {
                json!({ "from_ppm": start, "to_ppm": end, "count": state.count(key) })
            })
            .collect();
        Folded {
            value: Value::Array(bins),
            count: state.total(),
            cites: state.cites(keys.iter().map(String::as_str), self.cite_max),
            cites_total: state.total(),
        }
    }
}
