//! One sequence's ordered blocks: reserve, commit, fork, release. Ids and counts only, no float.
//!
//! Law K1: only slots at or past `reserved` are handed out, so a full block is never written
//! again. Law K2: a shared tail is left before it is appended to, and the copy is returned as data.
//! Law K7: a table that still holds blocks or promises must not be dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::CacheError;
use crate::ids::{BlockId, SlotId};
use crate::layout::KvLayout;
use crate::pool::BlockPool;

/// Room made for a sequence's next slots.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reservation {
    /// The slots to write, in the order of the tokens.
    pub slots: Vec<SlotId>,
    /// Copies of shared tails that the reservation made; none or one.
    ///
    /// The cache has applied them to its own store; a caller that mirrors the store elsewhere
    /// applies them there before it writes the slots.
    pub copies: Vec<BlockCopy>,
}

/// A copy of the first slots of one block to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockCopy {
    /// The shared block that was left.
    pub source: BlockId,
    /// The block that the sequence now owns alone.
    pub target: BlockId,
    /// Slots copied, from the start of the block.
    pub slots: u32,
}

/// Blocks and promises lost to tables that were dropped rather than released.
#[derive(Debug, Default)]
pub(crate) struct Leaks {
    pub(crate) blocks: AtomicU64,
    pub(crate) promises: AtomicU64,
}

/// A sequence's ordered block ids and how far they are reserved and committed.
#[derive(Debug)]
pub(crate) struct BlockTable {
    blocks: Vec<BlockId>,
    committed: u32, // slots; committed <= reserved
    reserved: u32,  // slots; reserved <= slots_max
    slots_max: u32,
    promised: u32, // blocks; blocks held + promised = blocks for slots_max
    leaks: Arc<Leaks>,
}

impl BlockTable {
    /// Opens an empty table that is promised the blocks for `slots_max` slots.
    pub(crate) fn admit(
        slots_max: u32,
        layout: &KvLayout,
        pool: &mut BlockPool,
        leaks: &Arc<Leaks>,
    ) -> Result<Self, CacheError> {
        let promised = layout.blocks_for(slots_max);
        pool.promise(promised)?;
        let leaks = Arc::clone(leaks);
        Ok(Self {
            blocks: Vec::new(),
            committed: 0,
            reserved: 0,
            slots_max,
            promised,
            leaks,
        })
    }

    /// Opens a table that shares every committed block of this one and copies none.
    pub(crate) fn fork(
        &self,
        slots_max: u32,
        layout: &KvLayout,
        pool: &mut BlockPool,
    ) -> Result<Self, CacheError> {
        let committed = self.committed;
        if self.reserved != committed {
            return Err(CacheError::ReservationOpen {
                reserved: self.reserved,
                committed,
            });
        }
        if slots_max < committed {
            return Err(CacheError::PromiseTooSmall {
                inherited: committed,
                slots_max,
            });
        }
        let promised = layout.blocks_for(slots_max) - self.blocks.len() as u32;
        let tail_partial = !committed.is_multiple_of(layout.block_slots);
        pool.share(&self.blocks, tail_partial, promised)?;
        Ok(Self {
            blocks: self.blocks.clone(),
            committed,
            reserved: committed,
            slots_max,
            promised,
            leaks: Arc::clone(&self.leaks),
        })
    }

    /// Makes room for the next `slots` slots, leaving a shared tail first.
    pub(crate) fn reserve(
        &mut self,
        slots: u32,
        layout: &KvLayout,
        pool: &mut BlockPool,
    ) -> Result<Reservation, CacheError> {
        let start = self.reserved;
        if slots > self.slots_max - start {
            return Err(CacheError::PromiseExceeded {
                requested: slots,
                reserved: start,
                slots_max: self.slots_max,
            });
        }
        let end = start + slots;
        let copies = if slots == 0 {
            Vec::new()
        } else {
            self.leave_shared_tail(layout, pool)
        };
        while (self.blocks.len() as u32) < layout.blocks_for(end) {
            self.blocks.push(pool.take());
            self.promised -= 1;
        }
        for (block, _, block_end) in spans(start, end, layout.block_slots) {
            pool.open(self.blocks[block], block_end);
        }
        self.reserved = end;
        let slot_at = |slot| self.slot(slot, layout.block_slots);
        Ok(Reservation {
            slots: (start..end).map(slot_at).collect(),
            copies,
        })
    }

    /// Declares the next `slots` reserved slots written.
    pub(crate) fn commit(&mut self, slots: u32, layout: &KvLayout, pool: &mut BlockPool) {
        let open = self.reserved - self.committed;
        assert!(slots <= open, "{slots} slots committed, {open} reserved");
        let end = self.committed + slots;
        for (block, _, block_end) in spans(self.committed, end, layout.block_slots) {
            pool.commit(self.blocks[block], block_end);
        }
        self.committed = end;
    }

    /// Gives every block and promise back.
    pub(crate) fn release(mut self, pool: &mut BlockPool) {
        pool.retract(std::mem::take(&mut self.promised));
        for block in std::mem::take(&mut self.blocks) {
            pool.release(block);
        }
    }

    pub(crate) fn blocks(&self) -> &[BlockId] {
        &self.blocks
    }

    pub(crate) fn committed(&self) -> u32 {
        self.committed
    }

    pub(crate) fn reserved(&self) -> u32 {
        self.reserved
    }

    pub(crate) fn slots_max(&self) -> u32 {
        self.slots_max
    }

    pub(crate) fn promised(&self) -> u32 {
        self.promised
    }

    pub(crate) fn leaks(&self) -> &Arc<Leaks> {
        &self.leaks
    }

    /// Gives the committed slots as whole or partial blocks, in order.
    pub(crate) fn committed_runs(&self, block_slots: u32) -> impl Iterator<Item = (BlockId, u32)> {
        spans(0, self.committed, block_slots).map(|(block, _, end)| (self.blocks[block], end))
    }

    fn slot(&self, slot: u32, block_slots: u32) -> SlotId {
        let block = self.blocks[(slot / block_slots) as usize];
        SlotId::at(block, slot % block_slots, block_slots)
    }

    fn leave_shared_tail(&mut self, layout: &KvLayout, pool: &mut BlockPool) -> Vec<BlockCopy> {
        let slots = self.reserved % layout.block_slots;
        match self.blocks.last_mut() {
            Some(tail) if slots != 0 && pool.references(*tail) > 1 => {
                let source = *tail;
                *tail = pool.copy_on_write(source);
                vec![BlockCopy {
                    source,
                    target: *tail,
                    slots,
                }]
            }
            _ => Vec::new(),
        }
    }
}

impl Drop for BlockTable {
    fn drop(&mut self) {
        if self.blocks.is_empty() && self.promised == 0 {
            return;
        }
        self.leaks
            .blocks
            .fetch_add(self.blocks.len() as u64, Ordering::Relaxed);
        self.leaks
            .promises
            .fetch_add(u64::from(self.promised), Ordering::Relaxed);
        // Panicking twice would abort and hide the first reason.
        if cfg!(debug_assertions) && !std::thread::panicking() {
            panic!(
                "sequence dropped with {} blocks and {} promised ones; release it to its cache",
                self.blocks.len(),
                self.promised
            );
        }
    }
}

/// Cuts `start..end` at block borders: (index in the table, first offset, end offset).
fn spans(start: u32, end: u32, block_slots: u32) -> impl Iterator<Item = (usize, u32, u32)> {
    let mut next = start;
    std::iter::from_fn(move || {
        if next >= end {
            return None;
        }
        let offset = next % block_slots;
        let block_end = (offset + (end - next)).min(block_slots);
        let span = ((next / block_slots) as usize, offset, block_end);
        next += block_end - offset;
        Some(span)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_cover_a_range_once_and_in_order() {
        for block_slots in [1, 2, 3, 5] {
            for start in 0..12 {
                for end in start..16 {
                    let mut next = start;
                    for (block, first, last) in spans(start, end, block_slots) {
                        assert_eq!(block as u32 * block_slots + first, next);
                        assert!(first < last && last <= block_slots);
                        next += last - first;
                    }
                    assert_eq!(next, end);
                }
            }
        }
        let far = spans(u32::MAX - 3, u32::MAX, 2)
            .map(|(_, first, last)| last - first)
            .sum();
        assert_eq!(3u32, far);
    }
}
