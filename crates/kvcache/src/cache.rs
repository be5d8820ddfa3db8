//! The facade: pool, store and sealed prefixes behind the calls that an engine makes.
//!
//! One thread owns a cache, so nothing here locks. It decides no batching and no order, and it
//! evicts nothing by itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::error::CacheError;
use crate::ids::{BlockId, SlotId};
use crate::key::{Namespace, PrefixKey};
use crate::layout::{KvLayout, Side};
use crate::pool::BlockPool;
use crate::prefix::{Prefix, PrefixFork};
use crate::sequence::SequenceKv;
use crate::stats::CacheStats;
use crate::store::HostStore;
use crate::table::{BlockTable, Leaks, Reservation};

/// A paged cache of keys and values with sealed prefixes shared by many sequences.
///
/// Cost: memory is the sealed prefixes plus the most blocks ever used at once, whatever the
/// capacity; [`trim`](Self::trim) returns the memory of free blocks.
///
/// # Panics
/// Every method that takes a sequence panics when the sequence was admitted by another cache.
#[derive(Debug)]
pub struct KvCache {
    pub(crate) layout: KvLayout,
    pub(crate) pool: BlockPool,
    pub(crate) store: HostStore,
    pub(crate) prefixes: BTreeMap<PrefixKey, Prefix>,
    leaks: Arc<Leaks>,
    totals: Totals,
}

#[derive(Debug, Default)]
struct Totals {
    forks: u64,
    running_forks: u64,
    copies: u64,
    copied_slots: u64,
    prefix_evictions: u64,
}

impl KvCache {
    /// Builds a cache of at most `blocks` blocks; none is allocated yet.
    ///
    /// # Errors
    /// [`CacheError::LayoutInvalid`] for a layout that [`KvLayout::new`] would refuse, and
    /// [`CacheError::CapacityInvalid`] when the slots are none or more than slot ids can name.
    pub fn new(layout: KvLayout, blocks: u32) -> Result<Self, CacheError> {
        let layout = layout.validate()?;
        if blocks == 0 || blocks.checked_mul(layout.block_slots).is_none() {
            let block_slots = layout.block_slots;
            return Err(CacheError::CapacityInvalid {
                blocks,
                block_slots,
                slots_max: u32::MAX,
            });
        }
        Ok(Self {
            layout,
            pool: BlockPool::new(blocks, layout.block_slots),
            store: HostStore::new(layout),
            prefixes: BTreeMap::new(),
            leaks: Arc::default(),
            totals: Totals::default(),
        })
    }

    /// Gives the shape of the keys and values held.
    pub fn layout(&self) -> &KvLayout {
        &self.layout
    }

    /// Admits a sequence, on a sealed prefix or on none, with room for `slots_max` own slots.
    ///
    /// Copies and allocates nothing. The blocks for `slots_max` slots are promised at once, so an
    /// admitted sequence can always finish. Zero is a fork that only reads its prefix.
    ///
    /// # Errors
    /// [`CacheError::PrefixUnknown`] when this cache does not hold the prefix (evicted, or sealed
    /// elsewhere); [`CacheError::PoolExhausted`] when the blocks cannot be promised.
    pub fn admit(
        &mut self,
        prefix: Option<&Prefix>,
        slots_max: u32,
    ) -> Result<SequenceKv, CacheError> {
        // The cache's own clone is the one whose forks it counts and guards from eviction.
        let held = match prefix.map(Prefix::key) {
            Some(key) => Some(
                self.prefixes
                    .get(&key)
                    .ok_or(CacheError::PrefixUnknown { key })?,
            ),
            None => None,
        };
        let table = BlockTable::admit(slots_max, &self.layout, &mut self.pool, &self.leaks)?;
        self.totals.forks += u64::from(held.is_some());
        Ok(SequenceKv {
            fork: held.map(PrefixFork::of),
            table,
        })
    }

    /// Makes room for the sequence's next `slots` own slots.
    ///
    /// Reservations add up: slots reserved and not yet committed stay open, and the new ones
    /// follow them. A tail shared with a running fork is copied first; the copy is applied here
    /// and returned as data.
    ///
    /// # Errors
    /// [`CacheError::PromiseExceeded`] beyond the slots promised at admission; within them a
    /// reservation cannot fail.
    pub fn reserve(&mut self, seq: &mut SequenceKv, slots: u32) -> Result<Reservation, CacheError> {
        self.assert_owns(seq);
        let blocks_before = seq.blocks().len();
        let reservation = seq.table.reserve(slots, &self.layout, &mut self.pool)?;
        for block in &seq.blocks()[blocks_before..] {
            self.store.prepare(*block);
        }
        for copy in &reservation.copies {
            self.store.prepare(copy.target);
            self.store.copy(*copy);
            self.totals.copies += 1;
            self.totals.copied_slots += u64::from(copy.slots);
        }
        Ok(reservation)
    }

    /// Declares the sequence's next `slots` reserved slots written; they never change again.
    ///
    /// # Panics
    /// If fewer slots are reserved and uncommitted.
    pub fn commit(&mut self, seq: &mut SequenceKv, slots: u32) {
        self.assert_owns(seq);
        seq.table.commit(slots, &self.layout, &mut self.pool);
    }

    /// Forks a running sequence: the fork shares its prefix and every committed block.
    ///
    /// `slots_max` counts all own slots of the fork, the inherited ones included. No slot is
    /// copied now. A partial tail is copied by whichever owner appends first; that copy's block
    /// is promised here, so both can finish.
    ///
    /// # Errors
    /// [`CacheError::ReservationOpen`] when slots are reserved and uncommitted,
    /// [`CacheError::PromiseTooSmall`] when `slots_max` is below what is inherited,
    /// [`CacheError::PoolExhausted`] when the blocks cannot be promised.
    pub fn fork(&mut self, seq: &SequenceKv, slots_max: u32) -> Result<SequenceKv, CacheError> {
        self.assert_owns(seq);
        let table = seq.table.fork(slots_max, &self.layout, &mut self.pool)?;
        self.totals.forks += u64::from(seq.fork.is_some());
        self.totals.running_forks += 1;
        Ok(SequenceKv {
            fork: seq.prefix().map(PrefixFork::of),
            table,
        })
    }

    /// Takes a sequence back, with its blocks, promises and hold on its prefix.
    pub fn release(&mut self, seq: SequenceKv) {
        self.assert_owns(&seq);
        seq.table.release(&mut self.pool);
    }

    /// Turns a sequence without prefix into an immutable, checksummed prefix under its content key.
    ///
    /// The committed slots are copied into one contiguous run and the sequence is released, also
    /// on an error. When the key is already held, the prefix held is returned and nothing is
    /// copied.
    ///
    /// # Errors
    /// [`CacheError::SealOnPrefix`] when the sequence stands on a prefix,
    /// [`CacheError::SealLength`] when `tokens` are not one for each committed slot.
    pub fn seal(
        &mut self,
        namespace: &Namespace,
        seq: SequenceKv,
        tokens: &[u32],
    ) -> Result<Prefix, CacheError> {
        self.assert_owns(&seq);
        let sealed = self.gather(namespace, &seq, tokens);
        self.release(seq);
        let prefix = sealed?;
        Ok(self.prefixes.entry(prefix.key()).or_insert(prefix).clone())
    }

    /// Finds a sealed prefix by its content key.
    pub fn lookup(&self, key: &PrefixKey) -> Option<Prefix> {
        self.prefixes.get(key).cloned()
    }

    /// Drops a prefix that no sequence holds.
    ///
    /// Clones that the caller keeps stay readable, and their memory stays with them, but no
    /// sequence can be admitted on them any more.
    ///
    /// # Errors
    /// [`CacheError::PrefixUnknown`] when the key is not held, [`CacheError::PrefixInUse`] while
    /// forks live.
    pub fn evict(&mut self, key: &PrefixKey) -> Result<(), CacheError> {
        let key = *key;
        let prefix = self
            .prefixes
            .get(&key)
            .ok_or(CacheError::PrefixUnknown { key })?;
        let forks = prefix.forks();
        if forks > 0 {
            return Err(CacheError::PrefixInUse { key, forks });
        }
        self.prefixes.remove(&key);
        self.totals.prefix_evictions += 1;
        Ok(())
    }

    /// Writes one token's keys and values of one layer into a reserved slot.
    ///
    /// Shapes: `key` and `value` f32 `[kv_heads, head_dim]`.
    ///
    /// # Panics
    /// If the slot is committed, not reserved or shared, if a length differs from the layout, or
    /// if the layer lies outside it.
    pub fn write(&mut self, layer: u32, slot: SlotId, key: &[f32], value: &[f32]) {
        self.pool.assert_writable(slot);
        self.store.write(layer, slot, key, value);
    }

    /// Gives one head's keys and values of a whole block, slots never written included.
    ///
    /// Shapes: f32 `[block_slots, head_dim]` each. A slot that was never written reads as NaN in
    /// debug builds and as anything in others.
    ///
    /// # Panics
    /// If the block was never used, or the layer or head lies outside the layout.
    pub fn run(&self, block: BlockId, layer: u32, kv_head: u32) -> (&[f32], &[f32]) {
        self.cut(block, layer, kv_head, self.layout.block_slots)
    }

    /// Gives one head's keys and values over the sequence's own committed slots, in order.
    ///
    /// The prefix is not included. Every run but the last is a whole block; the last ends where
    /// the commits end.
    ///
    /// Shapes: f32 `[slots, head_dim]` each.
    ///
    /// # Panics
    /// On iteration, if the layer or head lies outside the layout.
    pub fn runs<'a>(
        &'a self,
        seq: &SequenceKv,
        layer: u32,
        kv_head: u32,
    ) -> impl Iterator<Item = (&'a [f32], &'a [f32])> {
        self.assert_owns(seq);
        let runs = seq.table.committed_runs(self.layout.block_slots);
        runs.map(move |(block, slots)| self.cut(block, layer, kv_head, slots))
    }

    /// Returns the memory of every free block; the capacity stays.
    ///
    /// Blocks are otherwise kept for reuse, so this is for the pause between two jobs.
    pub fn trim(&mut self) {
        let held: Vec<_> = self.store.held().collect();
        for block in held {
            if self.pool.references(block) == 0 {
                self.store.discard(block);
            }
        }
    }

    /// Gives the accounts at this moment.
    ///
    /// Cost: O(prefixes).
    pub fn stats(&self) -> CacheStats {
        let counts = self.pool.counts();
        let prefixes = self.prefixes.values();
        let saved = |prefix: &Prefix| prefix.forks().saturating_sub(1) * prefix.bytes();
        CacheStats {
            prefixes: self.prefixes.len() as u32,
            prefix_bytes: prefixes.clone().map(Prefix::bytes).sum(),
            live_bytes: counts.committed_slots * self.layout.slot_bytes(),
            saved_bytes: prefixes.clone().map(saved).fold(0, u64::saturating_add),
            block_bytes: self.layout.block_bytes(),
            blocks_capacity: self.pool.capacity(),
            blocks_used: counts.used,
            blocks_used_peak: counts.used_peak,
            blocks_shared: counts.shared,
            blocks_free: self.pool.free(),
            blocks_promised: self.pool.promised(),
            forks_live: prefixes.map(Prefix::forks).sum(),
            forks_total: self.totals.forks,
            running_forks_total: self.totals.running_forks,
            copies: self.totals.copies,
            copied_slots: self.totals.copied_slots,
            prefix_evictions: self.totals.prefix_evictions,
            leaked_blocks: self.leaks.blocks.load(Ordering::Relaxed),
            leaked_promises: self.leaks.promises.load(Ordering::Relaxed),
            arena_bytes: self.store.bytes(),
        }
    }

    fn gather(
        &self,
        namespace: &Namespace,
        seq: &SequenceKv,
        tokens: &[u32],
    ) -> Result<Prefix, CacheError> {
        if let Some(prefix) = seq.prefix() {
            return Err(CacheError::SealOnPrefix {
                prefix: prefix.key(),
            });
        }
        let (committed, found) = (seq.len(), tokens.len() as u64);
        if u64::from(committed) != found {
            return Err(CacheError::SealLength {
                committed,
                tokens: found,
            });
        }
        let key = PrefixKey::derive(namespace, &self.layout, tokens);
        if let Some(held) = self.lookup(&key) {
            return Ok(held);
        }
        let layout = &self.layout;
        let mut floats = Vec::with_capacity(tokens.len() * layout.slot_floats() as usize);
        for layer in 0..layout.layers {
            for side in [Side::Key, Side::Value] {
                for kv_head in 0..layout.kv_heads {
                    for (block, slots) in seq.table.committed_runs(layout.block_slots) {
                        let run = self.store.run(block, layer, side, kv_head, slots);
                        floats.extend_from_slice(run);
                    }
                }
            }
        }
        Ok(Prefix::new(
            namespace,
            *layout,
            tokens,
            floats.into_boxed_slice(),
        ))
    }

    fn cut(&self, block: BlockId, layer: u32, kv_head: u32, slots: u32) -> (&[f32], &[f32]) {
        (
            self.store.run(block, layer, Side::Key, kv_head, slots),
            self.store.run(block, layer, Side::Value, kv_head, slots),
        )
    }

    pub(crate) fn assert_owns(&self, seq: &SequenceKv) {
        assert!(
            seq.belongs_to(&self.leaks),
            "sequence was admitted by another cache"
        );
    }
}
