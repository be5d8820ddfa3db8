//! The fold: typed facts combined by lawful reducers over a bounded, content-addressed tree.
//!
//! ```text
//! facts --- key.rs ---> leaves under keys --- build.rs ---> nodes (node.rs) ---> root ---> claims
//!                                               |   ^
//!                                               v   | equal inputs, looked up
//!                                              NodeCache
//! ```
//!
//! A reducer is a monoid homomorphism from sets of facts; because of that neither the order of
//! arrival nor the shape of the tree can be seen in the result. The tree's shape follows from the
//! keys alone (`key.rs`), so that equal facts give equal trees whatever happened before, and one
//! changed leaf changes its ancestors and nothing else. No float appears here, since its addition is
//! not associative. Must not know models, text or files.

mod build;
mod key;
mod node;
mod record;
mod rows;
mod update;

pub use build::{FoldWork, NodeCache, StoredStates, fold};
pub use key::{KeyRange, LeafKey, UnitRef};
pub use node::{CITES_MAX, Child, Hashes, NODE_VERSION, Node, hash_inputs, hash_node};
pub use record::{NodeRecord, record_node, record_nodes, visit_paths};
pub use rows::{FactRef, FactRows, Leaves, SealedFacts};
pub use update::{Siblings, Tree};

use crate::canonical::Canonical;
use crate::error::OperatorError;
use crate::fact::Fact;
use crate::id::ContentHash;
use crate::plan::FoldKey;
use crate::reducers::Aggregate;

/// Children per node unless a plan says otherwise.
pub const FAN_IN: u32 = 8;

/// Combines facts into a typed value.
///
/// Laws, each checked by random cases, with `lift(f)` the empty state that absorbed `f`:
/// - absorbing is merging a lifted fact: `absorb(s, f) = merge(s, lift f)`
/// - `merge(empty, a) = a = merge(a, empty)`
/// - `merge(a, merge(b, c)) = merge(merge(a, b), c)`
/// - `merge(a, b) = merge(b, a)`
/// - a fact that the reducer does not select changes nothing
///
/// Idempotence is *not* required (a count has none); disjointness is the business of `Coverage`.
pub trait Reducer {
    /// What a node holds; equal states finish to equal outputs.
    type State: Clone + PartialEq + std::fmt::Debug;
    /// What the root yields.
    type Output;

    /// Returns the neutral state.
    fn empty(&self) -> Self::State;
    /// Adds one fact; returns whether the reducer selected it.
    fn absorb(&self, state: &mut Self::State, unit: &UnitRef, fact: &Fact) -> bool;
    /// Adds the state of a disjoint set of facts.
    fn merge(&self, into: &mut Self::State, from: &Self::State);
    /// Reads the result off the state of the root; `leaves` are the facts below it.
    ///
    /// # Errors
    /// Where the state overflowed a declared bound, so that an exact result cannot be given.
    fn finish(
        &self,
        state: &Self::State,
        leaves: &Leaves<'_>,
    ) -> Result<Self::Output, OperatorError>;
}

/// What is folded, and how wide the tree is.
#[derive(Debug, Clone)]
pub struct FoldSpec {
    /// The reducers, in plan order.
    pub reducers: Vec<Aggregate>,
    /// Most inputs of a node.
    pub fan_in: u32,
    /// What a leaf's key is made of.
    pub key: FoldKey,
    hash: ContentHash,
}

impl FoldSpec {
    /// Joins reducers with the width of the tree.
    ///
    /// # Panics
    /// If `fan_in < 2`: such a tree never narrows.
    pub fn new(reducers: Vec<Aggregate>, fan_in: u32, key: FoldKey) -> Self {
        assert!(
            fan_in >= 2,
            "a tree narrows only with fan-in of 2 or more, {fan_in} given"
        );
        let mut canonical = Canonical::new("operator 2026 fold spec v1");
        canonical.list(reducers.len());
        for reducer in &reducers {
            reducer.encode(&mut canonical);
        }
        Self {
            reducers,
            fan_in,
            key,
            hash: ContentHash::of(&canonical),
        }
    }

    /// Names the reducers with their versions and parameters.
    pub const fn hash(&self) -> ContentHash {
        self.hash
    }

    /// The place of a fact's leaf.
    pub fn place(&self, fact: &Fact) -> UnitRef {
        UnitRef {
            key: self.key_of(fact),
            id: fact.unit_id.clone(),
        }
    }

    fn key_of(&self, fact: &Fact) -> LeafKey {
        match self.key {
            FoldKey::Id => LeafKey::of_id(&fact.unit_id),
            FoldKey::Ordinal => LeafKey::of_ordinal(fact.ordinal),
        }
    }
}
