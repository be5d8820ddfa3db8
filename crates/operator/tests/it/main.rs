//! Integration tests of the operator crate, one binary.

#![allow(clippy::unwrap_used)]

mod effects;
mod input;
mod output;
