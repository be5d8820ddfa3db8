//! Groups: units that are not records, made from records by declared neighbourhoods.
//!
//! ```text
//! gather      one pass over the records: id, place, hash, key, time and links of each; no text
//! sketch      a text as its heaviest terms, compared in whole numbers
//! near        who is whose neighbour, by similarity, key, links or time
//! shape       pairs and clusters of neighbours, and records that have none
//! compose     members read again by their place, and put into one record
//! fields      units that are one field of a record
//! units       all of it as `Units`, over which a run goes as over records
//! link, id    what names a record in a text; what a group is called
//! descriptor  what a unit says of itself
//! ```
//!
//! Laws: every record is in at least one unit, or has a unit of its own that says why it is in none;
//! ids of units are unique; which groups there are, and in which order, does not depend on the order
//! of the records. Must not know predicates, models or the fold.

mod compose;
mod descriptor;
mod fields;
mod gather;
mod id;
mod link;
mod near;
mod order;
mod shape;
mod sketch;
mod units;

pub use descriptor::Descriptor;
pub use units::arrange;

pub(crate) use compose::{member_field, member_of};
pub(crate) use id::of_group as group_id;
pub(crate) use order::by_id;

/// Name of the stage at which units end that have nothing to be asked about.
pub const STAGE: &str = "unit";
