//! What the tests share: a seeded generator, rows that are never equal, and the reading of a
//! sequence slot by slot.

use std::panic::{AssertUnwindSafe, catch_unwind};

use kvcache::{KvCache, KvLayout, Prefix, SequenceKv, SlotId};

/// SplitMix64: the same numbers on every machine.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, end: u32) -> u32 {
        (self.next() % u64::from(end)) as u32
    }
}

/// One token's floats over all layers: `[layers, 2, kv_heads, head_dim]`.
pub type Row = Vec<f32>;

/// A row whose every float is unlike any other row's, as long as the stamps differ.
pub fn row(layout: &KvLayout, stamp: u32) -> Row {
    let floats = layout.slot_floats() as u32;
    // Bit patterns of finite normal numbers, so that equality is exact.
    (0..floats)
        .map(|n| f32::from_bits(0x0080_0000 + stamp * floats + n))
        .collect()
}

/// Writes a row into a slot, layer by layer.
pub fn write_row(cache: &mut KvCache, slot: SlotId, row: &[f32]) {
    let layer_floats = row.len() / cache.layout().layers as usize;
    for (layer, floats) in (0..).zip(row.chunks_exact(layer_floats)) {
        let (key, value) = floats.split_at(layer_floats / 2);
        cache.write(layer, slot, key, value);
    }
}

/// Reserves, writes and commits one row a slot.
pub fn append(cache: &mut KvCache, seq: &mut SequenceKv, rows: &[Row]) {
    let slots = cache.reserve(seq, rows.len() as u32).unwrap().slots;
    for (slot, row) in slots.into_iter().zip(rows) {
        write_row(cache, slot, row);
    }
    cache.commit(seq, rows.len() as u32);
}

/// Reads the own committed slots of a sequence back as rows.
pub fn read_rows(cache: &KvCache, seq: &SequenceKv) -> Vec<Row> {
    let layout = *cache.layout();
    let mut rows = vec![Row::new(); seq.len() as usize];
    for layer in 0..layout.layers {
        for side in 0..2 {
            for kv_head in 0..layout.kv_heads {
                let mut slot = 0;
                for (keys, values) in cache.runs(seq, layer, kv_head) {
                    let run = if side == 0 { keys } else { values };
                    for floats in run.chunks_exact(layout.head_dim as usize) {
                        rows[slot].extend_from_slice(floats);
                        slot += 1;
                    }
                }
                assert_eq!(slot, rows.len(), "runs cover the committed slots");
            }
        }
    }
    rows
}

/// Reads a prefix back as rows.
pub fn read_prefix(prefix: &Prefix) -> Vec<Row> {
    let layout = prefix.layout();
    let mut rows = vec![Row::new(); prefix.len() as usize];
    for layer in 0..layout.layers {
        for side in 0..2 {
            for kv_head in 0..layout.kv_heads {
                let matrix = match side {
                    0 => prefix.keys(layer, kv_head),
                    _ => prefix.values(layer, kv_head),
                };
                assert_eq!(matrix.len(), rows.len() * layout.head_dim as usize);
                for (row, floats) in rows
                    .iter_mut()
                    .zip(matrix.chunks_exact(layout.head_dim as usize))
                {
                    row.extend_from_slice(floats);
                }
            }
        }
    }
    rows
}

/// Runs what must panic and gives the message.
pub fn panic_message(action: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(action)).expect_err("this must panic");
    match panic.downcast::<String>() {
        Ok(message) => *message,
        Err(other) => (*other.downcast::<&str>().unwrap()).to_string(),
    }
}
