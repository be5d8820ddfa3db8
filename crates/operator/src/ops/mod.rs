//! The operators, one file each, which never call each other; and the units that they work on, in
//! memory (`partition`) or in their file (`file`). Re-exports only.

mod file;
pub mod map;
pub mod partition;
pub mod prefilter;
pub mod reduce;
pub mod summary;
mod units;

pub use file::FileUnits;
pub use partition::{BadUnit, Partition, Unit, UnitKind, partition};
pub use prefilter::{Route, prefilter, prefilter_watched};
pub(crate) use units::Kept;
pub use units::{Place, Placed, Units};
