//! What the benches share: seeded inputs, none of them read from outside the repository.
//!
//! Times nothing itself. Every input is a function of its arguments, so that two runs measure the
//! same work.

pub mod facts;
pub mod model;
pub mod random;
pub mod text;

use std::path::{Path, PathBuf};

/// The first error of a bench's preparation ends it.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// A path inside the repository's fixtures.
pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../fixtures")
        .join(name)
}
