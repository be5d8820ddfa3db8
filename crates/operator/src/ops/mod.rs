//! The operators, one file each; they never call each other. Re-exports only.

pub mod map;
pub mod partition;
pub mod prefilter;
pub mod reduce;
pub mod summary;

pub use partition::{BadUnit, Partition, Unit, UnitKind, partition};
pub use prefilter::{Route, prefilter};
