//! What a cache holds at one moment, in numbers fit to publish.

/// A cache's accounts at one moment.
///
/// Counters that end in `_total`, `copies`, `copied_slots`, `prefix_evictions` and the leaks only
/// grow; everything else rises and falls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheStats {
    /// Sealed prefixes held.
    pub prefixes: u32,
    /// Bytes of their floats, each prefix once.
    pub prefix_bytes: u64,
    /// Bytes of committed own slots; a slot shared by running forks counts once.
    pub live_bytes: u64,
    /// Bytes that live forks would hold if each had its own prefix: (forks - 1) * prefix bytes.
    pub saved_bytes: u64,
    /// Bytes of one block.
    pub block_bytes: u64,
    /// Blocks of the pool.
    pub blocks_capacity: u32,
    /// Blocks with at least one owner.
    pub blocks_used: u32,
    /// Most blocks ever used at once.
    pub blocks_used_peak: u32,
    /// Blocks with more than one owner.
    pub blocks_shared: u32,
    /// Blocks without owner, promised ones included: capacity - used.
    pub blocks_free: u32,
    /// Free blocks that are promised to sequences or to copies of shared tails.
    pub blocks_promised: u32,
    /// Live sequences that hold a prefix.
    pub forks_live: u64,
    /// Sequences that ever held a prefix.
    pub forks_total: u64,
    /// Forks ever made of running sequences.
    pub running_forks_total: u64,
    /// Copies ever made of shared tails.
    pub copies: u64,
    /// Slots that those copies moved.
    pub copied_slots: u64,
    /// Prefixes evicted by request; the cache never evicts by itself.
    pub prefix_evictions: u64,
    /// Block references lost to sequences that were dropped rather than released.
    pub leaked_blocks: u64,
    /// Promises lost to sequences that were dropped rather than released.
    pub leaked_promises: u64,
    /// Bytes really allocated for blocks, free ones kept for reuse included.
    pub arena_bytes: u64,
}

impl CacheStats {
    /// Gives the bytes of used blocks that hold no committed slot.
    pub fn fragmented_bytes(&self) -> u64 {
        u64::from(self.blocks_used) * self.block_bytes - self.live_bytes
    }
}
