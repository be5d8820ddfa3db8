//! The reducers, one per file, and the closed set that a plan may name.
//!
//! Each keeps a lawful state (see `fold::Reducer`); states that name units keep them in `Ranked`,
//! under a cap and beside the exact total. Must not know plans' files or models.

mod clusters;
mod components;
mod count;
mod count_by;
mod distinct;
mod extreme;
mod groups;
mod heavy_hitters;
mod histogram;
mod join;
mod number_keys;
mod quantiles;
mod ranked;
mod selection;
mod set;
mod source;
mod sum;
mod top_k;
mod top_keys;

pub use clusters::{ClusterState, Clusters};
pub use components::{Against, ComponentState, Components};
pub use count::Count;
pub use count_by::CountBy;
pub use distinct::{Distinct, DistinctState};
pub use extreme::{Extreme, ExtremeState};
pub use groups::Groups;
pub use heavy_hitters::{HeavyHitters, HitterState};
pub use histogram::Histogram;
pub use join::{Join, JoinState, Side};
pub use quantiles::{QuantileState, Quantiles};
pub use ranked::Ranked;
pub use selection::Selection;
pub use set::Set;
pub use sum::{Sum, SumState};
pub use top_k::TopK;
pub use top_keys::TopKeys;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::canonical::Canonical;
use crate::error::OperatorError;
use crate::fact::{Cite, Fact};
use crate::fold::{Leaves, Reducer, UnitRef};

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

/// Cites units by their facts, at most `max`.
///
/// # Errors
/// What reading a fact may cause.
///
/// # Panics
/// If a unit is no leaf of the fold: states name only what they absorbed.
pub(crate) fn cite<'a>(
    units: impl IntoIterator<Item = &'a UnitRef>,
    leaves: &Leaves<'_>,
    max: u32,
) -> Result<Vec<Cite>, OperatorError> {
    units
        .into_iter()
        .take(max as usize)
        .map(|unit| {
            let fact = leaves.find(unit)?;
            assert!(fact.is_some(), "a state names unit {}, no leaf", unit.id);
            Ok(fact.map(|fact| fact.cite()))
        })
        .filter_map(Result::transpose)
        .collect()
}

/// Declares the closed set: for each reducer its name in plans and the type of its state.
macro_rules! aggregates {
    ($($(#[$doc:meta])* $name:ident $op:literal $version:literal $state:ty),* $(,)?) => {
        /// One of the reducers that a plan may name.
        #[derive(Debug, Clone)]
        pub enum Aggregate {
            $($(#[$doc])* $name($name)),*
        }

        /// The state of one of the reducers.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(tag = "op")]
        pub enum AggregateState {
            $($(#[$doc])* #[serde(rename = $op)] $name($state)),*
        }

        impl Aggregate {
            /// The operation's name in plans.
            pub const fn op(&self) -> &'static str {
                match self { $(Self::$name(_) => $op),* }
            }

            /// Units that a claim of the reducer cites at most.
            pub const fn cite_max(&self) -> u32 {
                match self { $(Self::$name(reducer) => reducer.cite_max()),* }
            }

            /// Writes operation, version and parameters into a hash.
            pub fn encode(&self, canonical: &mut Canonical) {
                match self {
                    $(Self::$name(reducer) => {
                        canonical.text($op).u32($version);
                        reducer.encode(canonical);
                    }),*
                }
            }
        }

        impl AggregateState {
            /// Writes the state into a hash.
            pub fn encode(&self, canonical: &mut Canonical) {
                match self {
                    $(Self::$name(state) => {
                        canonical.text($op);
                        state.encode(canonical);
                    }),*
                }
            }

            /// At most `max` units that the state names, those that matter most first.
            pub fn named(&self, max: usize) -> Vec<&UnitRef> {
                match self {
                    $(Self::$name(state) => state.named(max)),*
                }
            }
        }

        impl Reducer for Aggregate {
            type State = AggregateState;
            type Output = Folded;

            fn empty(&self) -> AggregateState {
                match self {
                    $(Self::$name(reducer) => AggregateState::$name(reducer.empty())),*
                }
            }

            fn absorb(&self, state: &mut AggregateState, unit: &UnitRef, fact: &Fact) -> bool {
                match (self, state) {
                    $((Self::$name(reducer), AggregateState::$name(state)) => {
                        reducer.absorb(state, unit, fact)
                    })*
                    (reducer, state) => mismatch(reducer, state),
                }
            }

            fn merge(&self, into: &mut AggregateState, from: &AggregateState) {
                match (self, into, from) {
                    $((
                        Self::$name(reducer),
                        AggregateState::$name(into),
                        AggregateState::$name(from),
                    ) => reducer.merge(into, from),)*
                    (reducer, into, _) => mismatch(reducer, into),
                }
            }

            fn finish(
                &self,
                state: &AggregateState,
                leaves: &Leaves<'_>,
            ) -> Result<Folded, OperatorError> {
                match (self, state) {
                    $((Self::$name(reducer), AggregateState::$name(state)) => {
                        reducer.finish(state, leaves)
                    })*
                    (reducer, state) => mismatch(reducer, state),
                }
            }
        }
    };
}

aggregates! {
    /// `count`
    Count "count" 1 Ranked,
    /// `count_by`
    CountBy "count_by" 1 Groups,
    /// `set`
    Set "set" 1 Groups,
    /// `top_k`
    TopK "top_k" 1 Ranked,
    /// `top_keys`
    TopKeys "top_keys" 1 Groups,
    /// `histogram`
    Histogram "histogram" 1 Groups,
    /// `min` and `max`
    Extreme "extreme" 1 ExtremeState,
    /// `sum` and `mean`
    Sum "sum" 1 SumState,
    /// `quantiles`
    Quantiles "quantiles" 1 QuantileState,
    /// `heavy_hitters`
    HeavyHitters "heavy_hitters" 1 HitterState,
    /// `distinct`
    Distinct "distinct" 1 DistinctState,
    /// `join`
    Join "join" 1 JoinState,
    /// `clusters`
    Clusters "clusters" 1 ClusterState,
    /// `components`
    Components "components" 1 ComponentState,
}

/// States are made by the reducer beside which they stand; anything else is a fault of ours.
#[track_caller]
fn mismatch(reducer: &Aggregate, state: &AggregateState) -> ! {
    panic!("state {state:?} is none of reducer {}", reducer.op());
}

impl Ranked {
    fn named(&self, max: usize) -> Vec<&UnitRef> {
        self.units().take(max).collect()
    }
}

impl Groups {
    fn named(&self, max: usize) -> Vec<&UnitRef> {
        self.in_turn(self.groups.keys().map(String::as_str), max)
    }
}
