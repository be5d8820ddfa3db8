//! The k most frequent labels of a field. Exact: all labels are counted, the cut comes last.

use serde_json::{Value, json};

use super::{CountBy, Folded, Groups};
use crate::fact::Fact;
use crate::fold::Reducer;

/// Names the most frequent labels; ties by label.
#[derive(Debug, Clone)]
pub struct TopKeys {
    /// How labels are counted.
    pub counts: CountBy,
    /// Labels named.
    pub k: u32,
}

impl Reducer for TopKeys {
    type State = Groups;
    type Output = Folded;

    fn empty(&self) -> Groups {
        Groups::empty()
    }

    fn lift(&self, fact: &Fact) -> Groups {
        self.counts.lift(fact)
    }

    fn merge(&self, left: Groups, right: Groups) -> Groups {
        left.merge(right)
    }

    fn finish(&self, state: &Groups) -> Folded {
        let mut keys = state.by_count();
        keys.truncate(self.k as usize);
        let total = keys.iter().map(|(_, count)| *count).sum();
        let value: Vec<Value> = keys
            .iter()
            .map(|(label, count)| json!({ "label": label, "count": count }))
            .collect();
        Folded {
            value: Value::Array(value),
            count: keys.len() as u64,
            cites: state.cites(keys.iter().map(|(label, _)| *label), self.counts.cite_max),
            cites_total: total,
        }
    }
}
