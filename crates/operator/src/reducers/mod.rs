//! The reducers, one per file, and the closed set that a plan may name.
//!
//! All share one lawful state (`Groups`); they differ in which key and rank a fact gets and in
//! how the root is read. Must not know plans, files or models.

mod count;
mod count_by;
mod groups;
mod histogram;
mod selection;
mod set;
mod top_k;
mod top_keys;

pub use count::Count;
pub use count_by::CountBy;
pub use groups::{Groups, Rank, Ranked};
pub use histogram::Histogram;
pub use selection::Selection;
pub use set::Set;
pub use top_k::TopK;
pub use top_keys::TopKeys;

use serde_json::Value;

use crate::fact::{Cite, Fact};
use crate::fold::Reducer;

/// What a reducer yields at the root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folded {
    /// The typed value: an integer, a list or an object of integers. Never a float.
    pub value: Value,
    /// Facts or members that the value speaks of.
    pub count: u64,
    /// Capped citations.
    pub cites: Vec<Cite>,
    /// Facts that could have been cited.
    pub cites_total: u64,
}

/// One of the reducers that a plan may name.
#[derive(Debug, Clone)]
pub enum Aggregate {
    /// `count`
    Count(Count),
    /// `count_by`
    CountBy(CountBy),
    /// `set`
    Set(Set),
    /// `top_k`
    TopK(TopK),
    /// `top_keys`
    TopKeys(TopKeys),
    /// `histogram`
    Histogram(Histogram),
}

impl Reducer for Aggregate {
    type State = Groups;
    type Output = Folded;

    fn empty(&self) -> Groups {
        Groups::empty()
    }

    fn lift(&self, fact: &Fact) -> Groups {
        match self {
            Aggregate::Count(reducer) => reducer.lift(fact),
            Aggregate::CountBy(reducer) => reducer.lift(fact),
            Aggregate::Set(reducer) => reducer.lift(fact),
            Aggregate::TopK(reducer) => reducer.lift(fact),
            Aggregate::TopKeys(reducer) => reducer.lift(fact),
            Aggregate::Histogram(reducer) => reducer.lift(fact),
        }
    }

    fn merge(&self, left: Groups, right: Groups) -> Groups {
        left.merge(right)
    }

    fn finish(&self, state: &Groups) -> Folded {
        match self {
            Aggregate::Count(reducer) => reducer.finish(state),
            Aggregate::CountBy(reducer) => reducer.finish(state),
            Aggregate::Set(reducer) => reducer.finish(state),
            Aggregate::TopK(reducer) => reducer.finish(state),
            Aggregate::TopKeys(reducer) => reducer.finish(state),
            Aggregate::Histogram(reducer) => reducer.finish(state),
        }
    }
}
