//! The integration tests of the cache, in one binary.
//!
//! They use the public calls alone. Every random test is seeded and names its seed when it fails.

#![allow(clippy::unwrap_used)]

mod edges;
mod forks;
mod key;
mod misuse;
mod model;
mod support;
