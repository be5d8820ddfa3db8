//! Paged key/value cache with one immutable shared prefix and many short forks.
//!
//! The crate knows blocks, slots and bytes. It never sees a model, a text, a tensor library or a
//! network; the caller's model identity reaches it as 32 opaque [`Namespace`] bytes.
//!
//! # The one invariant
//!
//! **A full block is never written again; only a tail with one owner is written; a shared tail is
//! copied on first append and the copy is returned as data.**
//!
//! Everything else follows. A sealed prefix can be read by thousands of sequences without a lock,
//! because nothing can write it. A fork costs an id list, because what it shares cannot change.
//! A slot that was committed holds the same floats until its last owner lets go.
//!
//! # The picture
//!
//! ```text
//!   rubric tokens            sealed once, contiguous per (layer, kv head), copied by no fork
//!   +----------------------+
//!   | Prefix  [0 .. P)     |<-----+-------------+-------------+
//!   +----------------------+      |             |             |
//!                              SequenceKv    SequenceKv    SequenceKv      one per record
//!                              table [0,1]   table [2]     table [2,3]
//!                                 |  |          |             | |
//!   store   +-----+-----+-----+-----+-----+     |             | |
//!   blocks  |  0  |  1  |  2  |  3  | ... |     +--- block 2 shared by a running fork:
//!           +-----+-----+-----+-----+-----+          read by both, copied before the first append
//! ```
//!
//! A *slot* is the room for one token's keys and values over all layers; a *block* is
//! `block_slots` slots. The prefix is a run of its own, so its length need not be a multiple of
//! anything and no copy is ever made because of it; copy on write serves the one honest case, the
//! fork of a running sequence.
//!
//! # The calls, in order
//!
//! 1. [`KvCache::admit`] with no prefix: a sequence with a worst-case promise of blocks.
//! 2. [`KvCache::reserve`] room, [`KvCache::write`] keys and values, [`KvCache::commit`].
//! 3. [`KvCache::seal`] the finished rubric: an immutable, checksummed [`Prefix`].
//! 4. [`KvCache::admit`] one sequence per record on that prefix; nothing is copied.
//! 5. [`Prefix::keys`], [`Prefix::values`] and [`KvCache::runs`]: what attention walks.
//! 6. [`KvCache::fork`] a running sequence, where one record branches.
//! 7. [`KvCache::release`] each sequence; [`KvCache::evict`] a prefix that nobody holds.
//!
//! Admission promises the worst case, so an admitted sequence can always finish: there is no
//! preemption, no swapping and no recomputation, and no state machine for them.
//!
//! ```
//! use kvcache::{KvCache, KvLayout, Namespace};
//!
//! # fn main() -> Result<(), kvcache::CacheError> {
//! let mut cache = KvCache::new(KvLayout::new(1, 1, 2, 4)?, 8)?;
//! let mut rubric = cache.admit(None, 3)?;
//! for slot in cache.reserve(&mut rubric, 3)?.slots {
//!     cache.write(0, slot, &[1.0, 2.0], &[3.0, 4.0]);
//! }
//! cache.commit(&mut rubric, 3);
//! let prefix = cache.seal(&Namespace([7; 32]), rubric, &[11, 12, 13])?;
//!
//! let record = cache.admit(Some(&prefix), 0)?;
//! assert_eq!(prefix.keys(0, 0), &[1.0, 2.0, 1.0, 2.0, 1.0, 2.0]);
//! assert_eq!(cache.stats().blocks_used, 0);
//! cache.release(record);
//! # Ok(())
//! # }
//! ```

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod cache;
mod error;
mod ids;
mod key;
mod laws;
mod layout;
mod pool;
mod prefix;
mod sequence;
mod stats;
mod store;
mod table;

pub use cache::KvCache;
pub use error::CacheError;
pub use ids::{BlockId, SlotId};
pub use key::{Namespace, PrefixKey};
pub use layout::KvLayout;
pub use prefix::Prefix;
pub use sequence::SequenceKv;
pub use stats::CacheStats;
pub use table::{BlockCopy, Reservation};
