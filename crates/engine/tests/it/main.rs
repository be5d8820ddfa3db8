//! One integration binary, so that candle links once.

#![allow(clippy::unwrap_used, missing_docs)]

mod bench;
mod canaries;
mod cli;
mod effects;
mod explain;
mod generate;
mod heads;
mod killed;
mod packing;
mod plan;
mod real_model;
mod reference;
mod resume;
mod selectors;
mod store;
mod summary;
mod taps;
mod tiers;
mod tiny;
mod tokenizer;
mod tools;
mod verify;
