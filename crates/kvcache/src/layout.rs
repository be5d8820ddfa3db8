//! The shape of keys and values, and every size that follows from it.
//!
//! Back of the envelope: a slot takes 2 * layers * kv_heads * head_dim * 4 bytes. With 24 layers,
//! 2 kv heads and head dim 64 that is 24 KiB a token, so a rubric of 700 tokens takes 17.2 MB once,
//! against 17.2 GB if each of 1,000 records held its own copy.

use crate::error::CacheError;

/// The shape of one token's keys and values, and how many tokens make a block.
///
/// Shapes: a block is f32 `[layers, 2, kv_heads, block_slots, head_dim]`, keys before values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KvLayout {
    /// Transformer layers that store keys and values.
    pub layers: u32,
    /// Key/value heads per layer.
    pub kv_heads: u32,
    /// Floats per head.
    pub head_dim: u32,
    /// Slots per block.
    pub block_slots: u32,
}

impl KvLayout {
    /// Builds a layout whose every size is known to be representable.
    ///
    /// # Errors
    /// [`CacheError::LayoutInvalid`] when a dimension is zero or a block's bytes pass what one
    /// allocation can hold.
    pub fn new(
        layers: u32,
        kv_heads: u32,
        head_dim: u32,
        block_slots: u32,
    ) -> Result<Self, CacheError> {
        Self {
            layers,
            kv_heads,
            head_dim,
            block_slots,
        }
        .validate()
    }

    /// Gives the floats of one slot: keys and values of one token over all layers.
    pub fn slot_floats(&self) -> u64 {
        2 * u64::from(self.layers) * u64::from(self.kv_heads) * u64::from(self.head_dim)
    }

    /// Gives the bytes of one slot in f32.
    pub fn slot_bytes(&self) -> u64 {
        self.slot_floats() * FLOAT_BYTES
    }

    /// Gives the floats of one block.
    pub fn block_floats(&self) -> u64 {
        self.slot_floats() * u64::from(self.block_slots)
    }

    /// Gives the bytes of one block in f32.
    pub fn block_bytes(&self) -> u64 {
        self.block_floats() * FLOAT_BYTES
    }

    /// Gives the blocks that hold `slots` slots, the last one possibly in part.
    pub fn blocks_for(&self, slots: u32) -> u32 {
        slots.div_ceil(self.block_slots)
    }

    // The fields are public, so a layout can arrive that `new` never saw.
    pub(crate) fn validate(self) -> Result<Self, CacheError> {
        let product = [self.layers, self.kv_heads, self.head_dim, self.block_slots]
            .into_iter()
            .try_fold(2 * FLOAT_BYTES, |product, factor| {
                product.checked_mul(u64::from(factor))
            });
        match product {
            Some(bytes) if bytes > 0 && bytes <= isize::MAX as u64 => Ok(self),
            _ => Err(CacheError::LayoutInvalid {
                layers: self.layers,
                kv_heads: self.kv_heads,
                head_dim: self.head_dim,
                block_slots: self.block_slots,
            }),
        }
    }

    /// Floats that one token adds to one layer's keys (and as many to its values).
    pub(crate) fn row_floats(&self) -> usize {
        self.kv_heads as usize * self.head_dim as usize
    }

    /// First float of `[slots, head_dim]` for one side of one head in a region that holds `slots`
    /// tokens per run; blocks and prefixes share this inner shape.
    pub(crate) fn run_start(&self, layer: u32, side: Side, kv_head: u32, slots: u32) -> usize {
        assert!(layer < self.layers, "layer {layer} of {}", self.layers);
        assert!(
            kv_head < self.kv_heads,
            "kv head {kv_head} of {}",
            self.kv_heads
        );
        let run = (layer as usize * 2 + side as usize) * self.kv_heads as usize + kv_head as usize;
        run * self.run_floats(slots)
    }

    /// Floats of one run of `slots` tokens: `[slots, head_dim]`.
    pub(crate) fn run_floats(&self, slots: u32) -> usize {
        slots as usize * self.head_dim as usize
    }
}

/// Bytes of one stored number.
const FLOAT_BYTES: u64 = 4;

/// Keys or values: the second axis of every region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Key = 0,
    Value = 1,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_follow_from_the_shape() {
        let layout = KvLayout::new(24, 2, 64, 16).unwrap();
        assert_eq!(layout.slot_floats(), 6144);
        assert_eq!(layout.slot_bytes(), 24 * 1024);
        assert_eq!(layout.block_bytes(), 24 * 1024 * 16);
        assert_eq!(
            [0, 1, 15, 16, 17].map(|slots| layout.blocks_for(slots)),
            [0, 1, 1, 1, 2]
        );
    }

    #[test]
    fn zero_and_overflow_are_refused() {
        for zero in 0..4 {
            let mut field = [2; 4];
            field[zero] = 0;
            let found = KvLayout::new(field[0], field[1], field[2], field[3]);
            assert!(
                matches!(found, Err(CacheError::LayoutInvalid { .. })),
                "{field:?}"
            );
        }
        assert!(KvLayout::new(u32::MAX, u32::MAX, 1, 1).is_err());
        assert!(KvLayout::new(u32::MAX, u32::MAX, u32::MAX, u32::MAX).is_err());
    }

    #[test]
    fn runs_tile_a_region_without_gap_or_overlap() {
        let layout = KvLayout::new(3, 2, 5, 4).unwrap();
        let mut expected = 0;
        for layer in 0..3 {
            for side in [Side::Key, Side::Value] {
                for kv_head in 0..2 {
                    assert_eq!(layout.run_start(layer, side, kv_head, 4), expected);
                    expected += layout.run_floats(4);
                }
            }
        }
        assert_eq!(expected as u64, layout.block_floats());
    }
}
