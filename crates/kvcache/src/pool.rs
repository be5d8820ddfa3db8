//! Who owns which block: reference counts, the free list, promises. Ids and counts only, no float.
//!
//! Law K3: the references held by all tables, and the promises held by all tables and shared
//! tails, add up to the pool's counts; free + used = capacity; promised <= free.
//!
//! A promise is a block that is still free but spoken for. There are two kinds: those of a table,
//! for the slots it was admitted with, and those of a shared tail. A tail with k owners needs at
//! most k - 1 copies, since the last owner is alone and writes in place; so it carries exactly
//! k - 1 promises, whichever owner appends first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::error::CacheError;
use crate::ids::{BlockId, SlotId};

/// Reference counts, free list and promises of the store's blocks.
///
/// Cost: memory grows with the most blocks ever used at once, not with capacity.
#[derive(Debug)]
pub(crate) struct BlockPool {
    capacity: u32,
    block_slots: u32,
    blocks: Vec<BlockState>, // [blocks ever used], by block id
    // Lowest id first keeps the store dense and the order of ids deterministic.
    freed: BinaryHeap<Reverse<BlockId>>,
    counts: PoolCounts,
}

/// Totals that the pool keeps up to date; `check` recomputes each of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PoolCounts {
    pub(crate) used: u32,
    pub(crate) used_peak: u32,
    pub(crate) shared: u32,
    pub(crate) promised_tables: u32,
    pub(crate) promised_copies: u32,
    pub(crate) references: u64,
    pub(crate) committed_slots: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct BlockState {
    references: u32,
    copies_promised: u32,
    committed: u32, // slots, from the block's start
    reserved: u32,  // slots, from the block's start; committed <= reserved
}

impl BlockPool {
    pub(crate) fn new(capacity: u32, block_slots: u32) -> Self {
        Self {
            capacity,
            block_slots,
            blocks: Vec::new(),
            freed: BinaryHeap::new(),
            counts: PoolCounts::default(),
        }
    }

    pub(crate) fn capacity(&self) -> u32 {
        self.capacity
    }

    pub(crate) fn counts(&self) -> PoolCounts {
        self.counts
    }

    pub(crate) fn free(&self) -> u32 {
        self.capacity - self.counts.used
    }

    pub(crate) fn promised(&self) -> u32 {
        self.counts.promised_tables + self.counts.promised_copies
    }

    pub(crate) fn references(&self, block: BlockId) -> u32 {
        self.blocks
            .get(block.index())
            .map_or(0, |state| state.references)
    }

    pub(crate) fn copies_promised(&self, block: BlockId) -> u32 {
        self.blocks
            .get(block.index())
            .map_or(0, |state| state.copies_promised)
    }

    /// Promises `blocks` blocks to a table.
    pub(crate) fn promise(&mut self, blocks: u32) -> Result<(), CacheError> {
        self.require(blocks)?;
        self.counts.promised_tables += blocks;
        Ok(())
    }

    /// Takes back what a table was promised and did not use.
    pub(crate) fn retract(&mut self, blocks: u32) {
        assert!(
            blocks <= self.counts.promised_tables,
            "more promises retracted than given"
        );
        self.counts.promised_tables -= blocks;
    }

    /// Turns one of a table's promises into an empty block that it owns alone.
    pub(crate) fn take(&mut self) -> BlockId {
        self.retract(1);
        self.allocate(BlockState {
            references: 1,
            ..BlockState::default()
        })
    }

    /// Shares `blocks` with one more table that is promised `promise` blocks of its own.
    ///
    /// `tail_partial` says that the last of them has room left, so that a copy must be promised.
    pub(crate) fn share(
        &mut self,
        blocks: &[BlockId],
        tail_partial: bool,
        promise: u32,
    ) -> Result<(), CacheError> {
        let copies = u32::from(tail_partial);
        self.require(promise.saturating_add(copies))?;
        self.counts.promised_tables += promise;
        self.counts.promised_copies += copies;
        for block in blocks {
            let state = used(&mut self.blocks, *block);
            assert_eq!(
                state.committed, state.reserved,
                "{block} is shared while being written"
            );
            state.references += 1;
            self.counts.references += 1;
            self.counts.shared += u32::from(state.references == 2);
        }
        if let (true, Some(tail)) = (tail_partial, blocks.last()) {
            used(&mut self.blocks, *tail).copies_promised += 1;
        }
        Ok(())
    }

    /// Moves one owner of the shared tail `source` to a fresh block holding the same slots.
    pub(crate) fn copy_on_write(&mut self, source: BlockId) -> BlockId {
        let state = used(&mut self.blocks, source);
        assert!(
            state.copies_promised > 0,
            "{source} is copied without a promise"
        );
        let copied = BlockState {
            references: 1,
            copies_promised: 0,
            committed: state.committed,
            reserved: state.reserved,
        };
        state.copies_promised -= 1;
        self.counts.promised_copies -= 1;
        self.release(source);
        self.allocate(copied)
    }

    /// Gives up one reference; the last one frees the block.
    pub(crate) fn release(&mut self, block: BlockId) {
        let state = used(&mut self.blocks, block);
        state.references -= 1;
        self.counts.references -= 1;
        self.counts.shared -= u32::from(state.references == 1);
        let copies_needed = state
            .copies_promised
            .min(state.references.saturating_sub(1));
        self.counts.promised_copies -= state.copies_promised - copies_needed;
        state.copies_promised = copies_needed;
        if state.references == 0 {
            self.counts.committed_slots -= u64::from(state.committed);
            self.counts.used -= 1;
            *state = BlockState::default();
            self.freed.push(Reverse(block));
        }
    }

    /// Opens the slots of an owned block up to `end` for writing.
    pub(crate) fn open(&mut self, block: BlockId, end: u32) {
        let state = used(&mut self.blocks, block);
        assert_eq!(
            state.references, 1,
            "{block} is shared and cannot be appended to"
        );
        assert!(
            state.reserved <= end && end <= self.block_slots,
            "{block} cannot open to {end}"
        );
        state.reserved = end;
    }

    /// Declares the slots of an owned block up to `end` written; they never change again.
    pub(crate) fn commit(&mut self, block: BlockId, end: u32) {
        let state = used(&mut self.blocks, block);
        assert!(
            state.committed <= end && end <= state.reserved,
            "{block} cannot commit to {end}"
        );
        self.counts.committed_slots += u64::from(end - state.committed);
        state.committed = end;
    }

    /// Asserts that the slot is reserved, uncommitted and owned by one table.
    pub(crate) fn assert_writable(&self, slot: SlotId) {
        let block = slot.block(self.block_slots);
        let offset = slot.offset(self.block_slots);
        let state = self.blocks.get(block.index()).copied().unwrap_or_default();
        assert!(
            state.references == 1 && state.committed <= offset && offset < state.reserved,
            "{slot} is not open for writing: {block} has {} owners, slots {}..{} open",
            state.references,
            state.committed,
            state.reserved
        );
    }

    /// Lists the blocks in use.
    pub(crate) fn used_blocks(&self) -> impl Iterator<Item = BlockId> {
        (0..)
            .map(BlockId)
            .zip(&self.blocks)
            .filter(|(_, s)| s.references > 0)
            .map(|(id, _)| id)
    }

    /// Recomputes every count from the blocks and asserts law K3.
    pub(crate) fn check(&self) {
        let mut found = PoolCounts {
            promised_tables: self.counts.promised_tables,
            used_peak: self.counts.used_peak,
            ..PoolCounts::default()
        };
        for (id, state) in self.blocks.iter().enumerate() {
            if state.references == 0 {
                assert_eq!(*state, BlockState::default(), "free block {id} keeps state");
                continue;
            }
            let copies_most = state.references - 1;
            assert!(
                state.copies_promised == 0 || state.copies_promised == copies_most,
                "block {id} has {} owners and {} promised copies",
                state.references,
                state.copies_promised
            );
            assert!(state.committed <= state.reserved && state.reserved <= self.block_slots);
            assert!(
                copies_most == 0 || state.committed == state.reserved,
                "block {id} is open"
            );
            found.used += 1;
            found.shared += u32::from(state.references > 1);
            found.promised_copies += state.copies_promised;
            found.references += u64::from(state.references);
            found.committed_slots += u64::from(state.committed);
        }
        assert_eq!(
            found, self.counts,
            "the pool's counts differ from its blocks"
        );
        assert_eq!(
            self.freed.len() + found.used as usize,
            self.blocks.len(),
            "free list"
        );
        assert!(
            self.freed
                .iter()
                .all(|Reverse(block)| self.references(*block) == 0)
        );
        assert!(
            self.counts.used <= self.counts.used_peak && self.counts.used_peak <= self.capacity
        );
        assert_eq!(
            self.free() + self.counts.used,
            self.capacity,
            "free + used = capacity"
        );
        assert!(self.promised() <= self.free(), "more is promised than free");
    }

    fn require(&self, requested: u32) -> Result<(), CacheError> {
        let free = self.free() - self.promised();
        if requested > free {
            return Err(CacheError::PoolExhausted {
                requested,
                free,
                capacity: self.capacity,
            });
        }
        Ok(())
    }

    fn allocate(&mut self, state: BlockState) -> BlockId {
        assert!(
            self.counts.used < self.capacity,
            "a promised block is missing"
        );
        let block = match self.freed.pop() {
            Some(Reverse(block)) => block,
            None => {
                self.blocks.push(BlockState::default());
                BlockId(self.blocks.len() as u32 - 1)
            }
        };
        assert_eq!(self.references(block), 0, "{block} is handed out twice");
        self.blocks[block.index()] = state;
        self.counts.used += 1;
        self.counts.used_peak = self.counts.used_peak.max(self.counts.used);
        self.counts.references += 1;
        self.counts.committed_slots += u64::from(state.committed);
        block
    }
}

// Free-standing, so that a block's state and the counts can be borrowed at once.
fn used(blocks: &mut [BlockState], block: BlockId) -> &mut BlockState {
    match blocks.get_mut(block.index()) {
        Some(state) if state.references > 0 => state,
        _ => panic!("{block} is not in use"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_with_k_owners_carries_k_less_one_copies() {
        let mut pool = BlockPool::new(8, 4);
        pool.promise(1).unwrap();
        let tail = pool.take();
        pool.open(tail, 2);
        pool.commit(tail, 2);
        for owners in 2..=4 {
            pool.share(&[tail], true, 0).unwrap();
            assert_eq!(pool.copies_promised(tail), owners - 1);
        }
        pool.release(tail);
        assert_eq!((pool.references(tail), pool.promised()), (3, 2));
        let copy = pool.copy_on_write(tail);
        assert_eq!((pool.references(tail), pool.promised()), (2, 1));
        pool.check();
        for block in [tail, tail, copy] {
            pool.release(block);
        }
        pool.check();
        assert_eq!((pool.counts().used, pool.promised()), (0, 0));
    }

    #[test]
    fn promises_are_refused_before_blocks_run_out() {
        let mut pool = BlockPool::new(3, 4);
        pool.promise(2).unwrap();
        let found = pool.promise(2);
        assert_eq!(
            found,
            Err(CacheError::PoolExhausted {
                requested: 2,
                free: 1,
                capacity: 3
            })
        );
        pool.promise(1).unwrap();
        assert_eq!(
            [pool.take(), pool.take(), pool.take()],
            [BlockId(0), BlockId(1), BlockId(2)]
        );
        pool.release(BlockId(2));
        pool.release(BlockId(0));
        pool.promise(1).unwrap();
        assert_eq!(pool.take(), BlockId(0), "the lowest free id comes first");
        pool.check();
    }
}
