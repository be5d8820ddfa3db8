//! The floats: one allocation a block, made when the block is first used. No policy.
//!
//! Which slot may be written and when a block is copied is decided elsewhere; this file only
//! moves numbers. In debug builds a block starts out as NaN, so that reading a slot which was
//! never written shows at once.

use crate::ids::{BlockId, SlotId};
use crate::layout::{KvLayout, Side};
use crate::table::BlockCopy;

/// The arena of blocks in host memory.
///
/// Shapes: each block is f32 `[layers, 2, kv_heads, block_slots, head_dim]`.
#[derive(Debug)]
pub(crate) struct HostStore {
    layout: KvLayout,
    blocks: Vec<Option<Box<[f32]>>>, // [blocks ever used], by block id
    blocks_held: u64,
}

impl HostStore {
    pub(crate) fn new(layout: KvLayout) -> Self {
        Self {
            layout,
            blocks: Vec::new(),
            blocks_held: 0,
        }
    }

    /// Gives a block its memory, or clears what a former owner left.
    pub(crate) fn prepare(&mut self, block: BlockId) {
        if self.blocks.len() <= block.index() {
            self.blocks.resize_with(block.index() + 1, || None);
        }
        let floats = self.layout.block_floats() as usize;
        let held = &mut self.blocks_held;
        let region = self.blocks[block.index()].get_or_insert_with(|| {
            *held += 1;
            vec![0.0; floats].into_boxed_slice()
        });
        if cfg!(debug_assertions) {
            region.fill(f32::NAN);
        }
    }

    /// Returns a free block's memory.
    pub(crate) fn discard(&mut self, block: BlockId) {
        if let Some(region) = self.blocks.get_mut(block.index()).and_then(Option::take) {
            drop(region);
            self.blocks_held -= 1;
        }
    }

    pub(crate) fn holds(&self, block: BlockId) -> bool {
        self.blocks.get(block.index()).is_some_and(Option::is_some)
    }

    /// Lists the blocks that have memory, used or not.
    pub(crate) fn held(&self) -> impl Iterator<Item = BlockId> {
        (0..)
            .map(BlockId)
            .zip(&self.blocks)
            .filter(|(_, r)| r.is_some())
            .map(|(id, _)| id)
    }

    /// Gives the bytes really allocated.
    pub(crate) fn bytes(&self) -> u64 {
        self.blocks_held * self.layout.block_bytes()
    }

    /// Copies the first slots of one block to another.
    pub(crate) fn copy(&mut self, copy: BlockCopy) {
        let floats = self.layout.run_floats(copy.slots);
        let starts = self.run_starts();
        let pair = self
            .blocks
            .get_disjoint_mut([copy.source.index(), copy.target.index()]);
        let Ok([Some(source), Some(target)]) = pair else {
            panic!("{} cannot be copied to {}", copy.source, copy.target)
        };
        for start in starts {
            target[start..start + floats].copy_from_slice(&source[start..start + floats]);
        }
    }

    /// Writes one token's keys and values of one layer: f32 `[kv_heads, head_dim]` each.
    pub(crate) fn write(&mut self, layer: u32, slot: SlotId, key: &[f32], value: &[f32]) {
        let layout = self.layout;
        let dim = layout.head_dim as usize;
        assert_eq!(
            key.len(),
            layout.row_floats(),
            "key is [kv_heads, head_dim]"
        );
        assert_eq!(
            value.len(),
            layout.row_floats(),
            "value is [kv_heads, head_dim]"
        );
        let block = slot.block(layout.block_slots);
        let offset = slot.offset(layout.block_slots) as usize * dim;
        let Some(Some(region)) = self.blocks.get_mut(block.index()) else {
            panic!("{block} has no memory")
        };
        for (side, row) in [(Side::Key, key), (Side::Value, value)] {
            for (kv_head, head) in (0..).zip(row.chunks_exact(dim)) {
                let start = layout.run_start(layer, side, kv_head, layout.block_slots) + offset;
                region[start..start + dim].copy_from_slice(head);
            }
        }
    }

    /// Gives the first `slots` slots of one side of one head: f32 `[slots, head_dim]`.
    pub(crate) fn run(
        &self,
        block: BlockId,
        layer: u32,
        side: Side,
        kv_head: u32,
        slots: u32,
    ) -> &[f32] {
        let layout = &self.layout;
        let Some(Some(region)) = self.blocks.get(block.index()) else {
            panic!("{block} has no memory")
        };
        let start = layout.run_start(layer, side, kv_head, layout.block_slots);
        &region[start..start + layout.run_floats(slots)]
    }

    fn run_starts(&self) -> impl Iterator<Item = usize> + use<> {
        let stride = self.layout.run_floats(self.layout.block_slots);
        (0..self.layout.block_floats() as usize).step_by(stride)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fresh_or_reused_block_reads_as_nan_in_debug_builds() {
        if !cfg!(debug_assertions) {
            return;
        }
        let mut store = HostStore::new(KvLayout::new(1, 1, 2, 2).unwrap());
        store.prepare(BlockId(1));
        store.write(0, SlotId(2), &[1.0, 2.0], &[3.0, 4.0]);
        assert_eq!(store.run(BlockId(1), 0, Side::Value, 0, 1), &[3.0, 4.0]);
        let unwritten = &store.run(BlockId(1), 0, Side::Key, 0, 2)[2..];
        assert!(unwritten.iter().all(|float| float.is_nan()));
        store.prepare(BlockId(1));
        assert!(
            store
                .run(BlockId(1), 0, Side::Key, 0, 2)
                .iter()
                .all(|float| float.is_nan())
        );
        assert_eq!(
            store.bytes(),
            32,
            "block 0 was never used and has no memory"
        );
    }
}
