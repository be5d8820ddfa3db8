//! Records in, typed facts out, folded into an answer in which every claim cites its sources.
//!
//! The algebra on one page; each operator is one file under `ops/`:
//!
//! | operator  | from -> to              | law                                                   |
//! |-----------|-------------------------|-------------------------------------------------------|
//! | partition | records -> units        | disjoint and complete; a duplicate id stops the run   |
//! | index     | records -> values       | pure given the plan, the records and the files it names |
//! | prefilter | unit -> route           | pure and idempotent given the indexes                 |
//! | map       | units -> facts          | map(a ++ b) = map(a) ++ map(b) given the same answers |
//! | reduce    | facts -> folded         | fold(a ++ b) = merge(fold a, fold b), in any order    |
//! | summary   | claims -> prose         | none: code reads its numbers and ids again or refuses |
//! | control   | plan -> turns           | a run stops only where what is left cannot change a claim |
//! | effect    | facts -> receipts       | exactly once per key; what is unknown is read, not redone |
//!
//! The crate asks questions through the trait [`infer::Infer`] and knows nothing of who answers: no
//! tokens, no KV cache, no model, no HTTP, no async. It reads no clock, no environment and no
//! randomness, and nothing in the fold or in a hash is a float.
//!
//! The way through: [`record::read_source`] -> [`ops::partition()`] -> [`ops::prefilter()`] ->
//! [`text::render`] -> [`infer::Infer`] -> `fact` -> `fold` -> `answer`, driven by `run`. An input that
//! need not fit into memory goes the same way through [`ops::FileUnits`] and [`run::run_over`].

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod answer;
pub mod audit;
pub mod breaker;
pub mod canary;
pub mod canonical;
pub mod column;
pub mod compose;
pub mod coverage;
pub mod diff;
pub mod effect;
pub mod error;
pub mod eval;
pub mod event;
pub mod explain;
pub mod fact;
pub mod fold;
pub mod group;
pub mod id;
pub mod index;
pub mod infer;
mod nearest;
pub mod ops;
pub mod plan;
pub mod predicate;
pub mod record;
pub mod recorded;
pub mod reducers;
pub mod replay;
pub mod run;
pub mod run_directory;
pub mod selfcheck;
pub mod stopping;
pub mod store;
pub mod survey;
pub mod text;
pub mod tool;
pub mod trials;
pub mod verify;
pub mod vocabulary;
pub mod words;

pub use error::OperatorError;
pub use plan::Plan;
