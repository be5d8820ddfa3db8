//! Counts the selected facts. Exact, order and shape invariant.

use serde_json::Value;

use super::{Folded, Groups, Selection};
use crate::fact::Fact;
use crate::fold::Reducer;

/// Counts selected facts and cites the first of them in source order.
#[derive(Debug, Clone)]
pub struct Count {
    /// Which facts count.
    pub selection: Selection,
    /// Citations kept at every node.
    pub cite_max: u32,
}

impl Reducer for Count {
    type State = Groups;
    type Output = Folded;

    fn empty(&self) -> Groups {
        Groups::empty()
    }

    fn lift(&self, fact: &Fact) -> Groups {
        if !self.selection.admits(fact) {
            return Groups::empty();
        }
        Groups::one(
            "",
            (fact.ordinal, fact.unit_id.clone()),
            fact.cite(),
            self.cite_max,
        )
    }

    fn merge(&self, left: Groups, right: Groups) -> Groups {
        left.merge(right)
    }

    fn finish(&self, state: &Groups) -> Folded {
        let count = state.count("");
        Folded {
            value: Value::from(count),
            count,
            cites: state.cites([""], self.cite_max),
            cites_total: count,
        }
    }
}
