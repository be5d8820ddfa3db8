//! The operators, one file each; they never call each other. Re-exports only.

mod file;
pub mod map;
pub mod partition;
pub mod prefilter;
pub mod reduce;
pub mod summary;
mod units;

pub use file::FileUnits;
pub use partition::{BadUnit, Partition, Unit, UnitKind, partition};
pub use prefilter::{Route, prefilter};
pub(crate) use units::Kept;
pub use units::{Place, Placed, Units};
