//! The k units most probable to carry a label.
//!
//! Merging keeps k candidates at every node under a total order (probability, then unit id) over
//! scores that are fixed before the fold; hence top_k(A u B) = merge(top_k(A), top_k(B)).

use serde_json::{Value, json};

use super::{Folded, Groups, Selection};
use crate::fact::Fact;
use crate::fold::Reducer;
use crate::infer::PPM;

/// Ranks selected units by the probability of a label, ties by unit id.
///
/// A unit decided by a predicate ranks as certain: first for its label, last for every other.
#[derive(Debug, Clone)]
pub struct TopK {
    /// Which facts are candidates.
    pub selection: Selection,
    /// The field ranked by.
    pub field: String,
    /// The label whose probability ranks; none takes the chosen label's.
    pub label: Option<String>,
    /// Units named.
    pub k: u32,
    /// Citations shown.
    pub cite_max: u32,
}

impl Reducer for TopK {
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
            let rank = (PPM.saturating_sub(ppm), fact.unit_id.clone());
            Groups::one("", rank, fact.cite(), self.k)
        })
    }

    fn merge(&self, left: Groups, right: Groups) -> Groups {
        left.merge(right)
    }

    fn finish(&self, state: &Groups) -> Folded {
        let value: Vec<Value> = state.get("").map_or_else(Vec::new, |units| {
            let entry = |(short, unit): &(u32, crate::id::UnitId)| {
                json!({ "unit_id": unit.as_str(), "probability_ppm": PPM - short })
            };
            units.best.keys().map(entry).collect()
        });
        Folded {
            count: value.len() as u64,
            cites_total: value.len() as u64,
            value: Value::Array(value),
            cites: state.cites([""], self.cite_max),
        }
    }
}
