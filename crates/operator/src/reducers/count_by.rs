//! Counts the selected facts by the label of one field. Exact, order and shape invariant.

use serde_json::{Map, Value};

use super::{Folded, Groups, Selection};
use crate::fact::Fact;
use crate::fold::Reducer;

/// Counts selected facts per label; labels that no fact carries show as zero.
#[derive(Debug, Clone)]
pub struct CountBy {
    /// Which facts count.
    pub selection: Selection,
    /// The field whose labels are the keys.
    pub field: String,
    /// Every label of the field, so that an absent one is a zero and not a gap.
    pub labels: Vec<String>,
    /// Citations kept per label at every node, and shown in all.
    pub cite_max: u32,
}

impl Reducer for CountBy {
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
            let rank = (fact.ordinal, fact.unit_id.clone());
            Groups::one(&value.label, rank, fact.cite(), self.cite_max)
        })
    }

    fn merge(&self, left: Groups, right: Groups) -> Groups {
        left.merge(right)
    }

    fn finish(&self, state: &Groups) -> Folded {
        let keys = state.by_count();
        let mut value: Map<String, Value> = keys
            .iter()
            .map(|(label, count)| (String::from(*label), Value::from(*count)))
            .collect();
        for label in &self.labels {
            value
                .entry(label.clone())
                .or_insert_with(|| Value::from(0_u64));
        }
        Folded {
            value: Value::Object(value),
            count: state.total(),
            cites: state.cites(keys.iter().map(|(label, _)| *label), self.cite_max),
            cites_total: state.total(),
        }
    }
}
