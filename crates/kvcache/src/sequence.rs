//! What one sequence carries: a hold on a prefix, and a table of its own blocks.
//!
//! It holds no float and can do nothing by itself; every change goes through the cache.

use std::sync::Arc;

use crate::ids::BlockId;
use crate::prefix::{Prefix, PrefixFork};
use crate::table::{BlockTable, Leaks};

/// One sequence's place in a cache: an optional sealed prefix, then its own slots.
///
/// It must go back through [`KvCache::release`](crate::KvCache::release) or
/// [`KvCache::seal`](crate::KvCache::seal). Dropping one that holds blocks or promises loses them
/// to the pool: it panics in debug builds, and in every build it is counted in
/// [`CacheStats`](crate::CacheStats).
#[derive(Debug)]
pub struct SequenceKv {
    pub(crate) fork: Option<PrefixFork>,
    pub(crate) table: BlockTable,
}

impl SequenceKv {
    /// Gives the sealed prefix that the sequence stands on.
    pub fn prefix(&self) -> Option<&Prefix> {
        self.fork.as_ref().map(PrefixFork::prefix)
    }

    /// Gives the committed own slots; the prefix is not counted.
    pub fn len(&self) -> u32 {
        self.table.committed()
    }

    /// Says whether no own slot is committed.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Gives the own slots reserved so far, committed ones included.
    pub fn reserved(&self) -> u32 {
        self.table.reserved()
    }

    /// Gives the most own slots that the sequence was promised.
    pub fn slots_max(&self) -> u32 {
        self.table.slots_max()
    }

    /// Gives the sequence's own blocks, in order; some may be shared with running forks.
    pub fn blocks(&self) -> &[BlockId] {
        self.table.blocks()
    }

    /// Gives the blocks still promised to the sequence, beyond those it holds.
    pub fn blocks_promised(&self) -> u32 {
        self.table.promised()
    }

    pub(crate) fn belongs_to(&self, leaks: &Arc<Leaks>) -> bool {
        Arc::ptr_eq(self.table.leaks(), leaks)
    }
}
