//! Block and slot ids, and the one place that converts between them.
//!
//! Law K4: slot = block * block_slots + offset, always. No other file multiplies or divides ids.

use std::fmt;

/// Names one block of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u32);

/// Names one slot of the store: the room for one token's keys and values over all layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotId(pub u32);

impl SlotId {
    /// Names the slot at `offset` of `block`.
    ///
    /// # Panics
    /// If `offset` is not below `block_slots`, or the id passes 32 bits (which a cache's capacity
    /// check rules out for its own blocks).
    pub fn at(block: BlockId, offset: u32, block_slots: u32) -> Self {
        assert!(
            offset < block_slots,
            "offset {offset} lies outside a block of {block_slots}"
        );
        let first = block.0.checked_mul(block_slots);
        let slot = first.and_then(|first| first.checked_add(offset));
        let Some(slot) = slot else {
            panic!(
                "slot {offset} of block {} passes the range of slot ids",
                block.0
            )
        };
        Self(slot)
    }

    /// Gives the block that holds this slot.
    ///
    /// # Panics
    /// If `block_slots` is zero.
    pub fn block(self, block_slots: u32) -> BlockId {
        BlockId(self.0 / block_slots)
    }

    /// Gives this slot's place inside its block, in slots.
    ///
    /// # Panics
    /// If `block_slots` is zero.
    pub fn offset(self, block_slots: u32) -> u32 {
        self.0 % block_slots
    }
}

impl BlockId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for BlockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {}", self.0)
    }
}

impl fmt::Display for SlotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "slot {}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slot_splits_into_the_block_and_offset_it_was_made_of() {
        for block_slots in [1, 2, 3, 16, 64] {
            for block in [0, 1, 2, 1000] {
                for offset in 0..block_slots {
                    let slot = SlotId::at(BlockId(block), offset, block_slots);
                    assert_eq!(slot.block(block_slots), BlockId(block));
                    assert_eq!(slot.offset(block_slots), offset);
                }
            }
        }
    }
}
