//! The fold: typed facts combined by lawful reducers over a bounded tree.
//!
//! A reducer is a monoid homomorphism from lists of facts; because of that neither the order of
//! arrival nor the shape of the tree can be seen in the result. Every node carries its coverage,
//! and coverage refuses a unit that is delivered twice. No float appears here, since its addition
//! is not associative. Must not know models, text or files.

use crate::coverage::Coverage;
use crate::error::OperatorError;
use crate::fact::Fact;

/// Children per node of the tree that `run` builds.
pub const FAN_IN: usize = 8;

/// Combines facts into a typed value.
///
/// Laws, each checked by random cases:
/// - `merge(empty, a) = a = merge(a, empty)`
/// - `merge(a, merge(b, c)) = merge(merge(a, b), c)`
/// - `merge(a, b) = merge(b, a)`
/// - a fact that the reducer does not select lifts to `empty`
///
/// Idempotence is *not* required (a count has none); disjointness is the business of `Coverage`.
pub trait Reducer {
    /// What a node holds; equal states finish to equal outputs.
    type State: Clone + PartialEq + std::fmt::Debug;
    /// What the root yields.
    type Output;

    /// Returns the neutral state.
    fn empty(&self) -> Self::State;
    /// Turns one fact into a state.
    fn lift(&self, fact: &Fact) -> Self::State;
    /// Combines the states of two disjoint sets of facts.
    fn merge(&self, left: Self::State, right: Self::State) -> Self::State;
    /// Reads the result off the state of the root.
    fn finish(&self, state: &Self::State) -> Self::Output;
}

/// The product of reducers is a reducer: all claims of a plan are folded in one walk.
impl<R: Reducer> Reducer for Vec<R> {
    type State = Vec<R::State>;
    type Output = Vec<R::Output>;

    fn empty(&self) -> Self::State {
        self.iter().map(Reducer::empty).collect()
    }

    fn lift(&self, fact: &Fact) -> Self::State {
        self.iter().map(|reducer| reducer.lift(fact)).collect()
    }

    fn merge(&self, left: Self::State, right: Self::State) -> Self::State {
        let pairs = left.into_iter().zip(right);
        self.iter()
            .zip(pairs)
            .map(|(reducer, (l, r))| reducer.merge(l, r))
            .collect()
    }

    fn finish(&self, state: &Self::State) -> Self::Output {
        self.iter()
            .zip(state)
            .map(|(reducer, state)| reducer.finish(state))
            .collect()
    }
}

/// One node of the tree: a state and the units it speaks for.
#[derive(Debug, Clone, PartialEq)]
pub struct Node<S> {
    /// Units below this node, each with its status.
    pub coverage: Coverage,
    /// The reducer's state over those units.
    pub state: S,
}

impl<S> Node<S> {
    /// Makes the leaf of one fact.
    pub fn leaf<R: Reducer<State = S>>(reducer: &R, fact: &Fact) -> Self {
        Self {
            coverage: Coverage::lift(fact),
            state: reducer.lift(fact),
        }
    }

    /// Makes the parent of some nodes.
    ///
    /// # Errors
    /// `OperatorError::CoverageOverlap` when two children hold the same unit.
    pub fn parent<R: Reducer<State = S>>(
        reducer: &R,
        children: impl IntoIterator<Item = Self>,
    ) -> Result<Self, OperatorError> {
        let empty = Self {
            coverage: Coverage::empty(),
            state: reducer.empty(),
        };
        children.into_iter().try_fold(empty, |node, child| {
            Ok(Self {
                coverage: node.coverage.merge(child.coverage)?,
                state: reducer.merge(node.state, child.state),
            })
        })
    }
}

/// Folds facts in key order with `fan_in` children per node and returns the root.
///
/// No facts give the empty node. Cost: one leaf per fact, `facts / (fan_in - 1)` inner nodes.
///
/// # Errors
/// `OperatorError::CoverageOverlap` when two facts speak for the same unit.
///
/// # Panics
/// If `fan_in < 2`: such a tree never narrows.
pub fn fold<R: Reducer>(
    reducer: &R,
    facts: &[Fact],
    fan_in: usize,
) -> Result<Node<R::State>, OperatorError> {
    assert!(
        fan_in >= 2,
        "a tree narrows only with fan-in of 2 or more, {fan_in} given"
    );
    let mut ordered: Vec<&Fact> = facts.iter().collect();
    ordered.sort_by(|a, b| a.unit_id.cmp(&b.unit_id));
    let mut level: Vec<Node<R::State>> = ordered
        .into_iter()
        .map(|fact| Node::leaf(reducer, fact))
        .collect();
    while level.len() > 1 {
        let mut children = level.into_iter().peekable();
        let mut parents = Vec::new();
        while children.peek().is_some() {
            parents.push(Node::parent(reducer, children.by_ref().take(fan_in))?);
        }
        level = parents;
    }
    match level.pop() {
        Some(root) => Ok(root),
        None => Node::parent(reducer, []),
    }
}
