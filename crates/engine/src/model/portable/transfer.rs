//! Keys and values between the cache in memory and the device: as few and as large copies as can be.

use candle_core::Tensor;
use kvcache::{KvCache, Prefix};

use super::{LayerKv, PortableModel};
use crate::model::Batch;

impl PortableModel {
    /// The prefix's keys and values per layer, uploaded when first seen.
    pub(super) fn upload(&mut self, prefix: &Prefix) -> candle_core::Result<()> {
        if self.prefixes.contains_key(&prefix.key()) {
            return Ok(());
        }
        let (kv, dim) = (self.config.kv_heads, self.config.head_dim);
        let shape = (kv, prefix.len() as usize, dim);
        let layers = (0..self.config.layers as u32)
            .map(|layer| {
                let gather = |values: bool| -> Vec<f32> {
                    (0..kv as u32)
                        .flat_map(|head| {
                            if values {
                                prefix.values(layer, head)
                            } else {
                                prefix.keys(layer, head)
                            }
                        })
                        .copied()
                        .collect()
                };
                Ok((
                    Tensor::from_vec(gather(false), shape, &self.device)?,
                    Tensor::from_vec(gather(true), shape, &self.device)?,
                ))
            })
            .collect::<candle_core::Result<Vec<_>>>()?;
        // One rubric is in use at a time; older uploads would only hold device memory.
        self.prefixes.clear();
        self.prefixes.insert(prefix.key(), layers);
        Ok(())
    }

    /// Committed slots of every sequence, side by side, for each layer; nothing without slots.
    pub(super) fn past(
        &self,
        batch: &Batch<'_>,
        cache: &KvCache,
    ) -> candle_core::Result<Option<Vec<LayerKv>>> {
        let slots: usize = batch
            .sequences
            .iter()
            .map(|sequence| sequence.len() as usize)
            .sum();
        if slots == 0 {
            return Ok(None);
        }
        let config = &self.config;
        let shape = (2 * config.layers, config.kv_heads, slots, config.head_dim);
        let mut rows = Vec::with_capacity(shape.0 * shape.1 * shape.2 * shape.3);
        for layer in 0..config.layers as u32 {
            for values in [false, true] {
                for head in 0..config.kv_heads as u32 {
                    for sequence in &batch.sequences {
                        for (k, v) in cache.runs(sequence, layer, head) {
                            rows.extend_from_slice(if values { v } else { k });
                        }
                    }
                }
            }
        }
        let all = Tensor::from_vec(rows, shape, &self.device)?;
        (0..config.layers)
            .map(|layer| Ok((all.get(2 * layer)?, all.get(2 * layer + 1)?)))
            .collect::<candle_core::Result<_>>()
            .map(Some)
    }

    /// Writes what `forward` kept, keys and values of each layer in turn, to the batch's slots.
    pub(super) fn store_slots(
        &self,
        batch: &Batch<'_>,
        cache: &mut KvCache,
        kept: &[Tensor],
    ) -> candle_core::Result<()> {
        // [2 * layers, kv_heads, tokens, head_dim] to a row per token, fetched at once.
        let rows: Vec<f32> = Tensor::stack(kept, 0)?
            .transpose(1, 2)?
            .contiguous()?
            .flatten_all()?
            .to_vec1()?;
        let width = self.config.kv_heads * self.config.head_dim;
        let half = batch.tokens.len() * width;
        for (layer, both) in rows.chunks_exact(2 * half).enumerate() {
            let (keys, values) = both.split_at(half);
            let pairs = keys.chunks_exact(width).zip(values.chunks_exact(width));
            for ((key, value), &slot) in pairs.zip(&batch.slots) {
                cache.write(layer as u32, slot, key, value);
            }
        }
        Ok(())
    }
}
