//! The portable path: the same packed forward in candle tensor operations, for CPU, CUDA and Metal.
//!
//! Written for equality, not speed: attention is one masked product over prefix, paged slots and
//! the batch's own rows. A sealed prefix is uploaded to the device once and reused by every batch.

use std::collections::HashMap;

use candle_core::{DType, Device, Tensor};
use kvcache::{KvCache, Prefix, PrefixKey};

use super::batch::Batch;
use super::math::RotaryTable;
use super::{Model, ModelConfig, ModelFiles};
use crate::error::EngineError;

struct Layer {
    attention_norm: Tensor, // [hidden]
    query: Projection,
    key: Projection,
    value: Projection,
    attention_output: Projection,
    feed_forward_norm: Tensor, // [hidden]
    gate: Projection,
    up: Projection,
    down: Projection,
}

/// Weights `[outputs, inputs]`, bias `[outputs]`.
struct Projection {
    weight: Tensor,
    bias: Option<Tensor>,
}

impl Projection {
    fn forward(&self, x: &Tensor) -> candle_core::Result<Tensor> {
        let out = x.matmul(&self.weight.t()?)?;
        match &self.bias {
            Some(bias) => out.broadcast_add(bias),
            None => Ok(out),
        }
    }
}

/// Keys and values of one layer, `[kv_heads, tokens, head_dim]` each.
type LayerKv = (Tensor, Tensor);

/// A model in candle tensors on any device.
pub struct PortableModel {
    config: ModelConfig,
    device: Device,
    embedding: Tensor, // [vocab, hidden]
    head: Option<Tensor>,
    layers: Vec<Layer>,
    output_norm: Tensor,
    rotary: RotaryTable,
    prefixes: HashMap<PrefixKey, Vec<LayerKv>>,
    rows_forwarded: u64,
    forwards: u64,
}

impl PortableModel {
    /// Reads every tensor to the device.
    ///
    /// # Errors
    /// `BadModel` naming the tensor, `Tensor` when the device refuses it.
    pub fn load(files: &ModelFiles, device: &Device) -> Result<Self, EngineError> {
        let config = files.config.clone();
        let matrix = |name: &str, shape: &[usize]| -> Result<Tensor, EngineError> {
            Ok(Tensor::from_vec(files.tensor(name, shape)?, shape, device)?)
        };
        let projection = |name: String, out: usize, input: usize| -> Result<_, EngineError> {
            let bias = format!("{name}.bias");
            Ok(Projection {
                weight: matrix(&format!("{name}.weight"), &[out, input])?,
                bias: if files.has(&bias) {
                    Some(matrix(&bias, &[out])?)
                } else {
                    None
                },
            })
        };
        let (hidden, wide) = (config.hidden, config.feed_forward);
        let query = config.heads * config.head_dim;
        let kv = config.kv_heads * config.head_dim;
        let layers = (0..config.layers)
            .map(|index| {
                let name = |part: &str| format!("blk.{index}.{part}");
                Ok(Layer {
                    attention_norm: matrix(&name("attn_norm.weight"), &[hidden])?,
                    query: projection(name("attn_q"), query, hidden)?,
                    key: projection(name("attn_k"), kv, hidden)?,
                    value: projection(name("attn_v"), kv, hidden)?,
                    attention_output: projection(name("attn_output"), hidden, query)?,
                    feed_forward_norm: matrix(&name("ffn_norm.weight"), &[hidden])?,
                    gate: projection(name("ffn_gate"), wide, hidden)?,
                    up: projection(name("ffn_up"), wide, hidden)?,
                    down: projection(name("ffn_down"), hidden, wide)?,
                })
            })
            .collect::<Result<Vec<_>, EngineError>>()?;
        let head = if files.has("output.weight") {
            Some(matrix("output.weight", &[config.vocab, hidden])?)
        } else {
            None
        };
        Ok(Self {
            embedding: matrix("token_embd.weight", &[config.vocab, hidden])?,
            head,
            layers,
            output_norm: matrix("output_norm.weight", &[hidden])?,
            rotary: RotaryTable::new(config.head_dim, config.rope_base),
            prefixes: HashMap::new(),
            device: device.clone(),
            rows_forwarded: 0,
            forwards: 0,
            config,
        })
    }

    fn norm(&self, x: &Tensor, weight: &Tensor) -> candle_core::Result<Tensor> {
        let mean = x.sqr()?.mean_keepdim(1)?;
        let scale = (mean + f64::from(self.config.norm_epsilon))?.sqrt()?;
        x.broadcast_div(&scale)?.broadcast_mul(weight)
    }

    /// `[tokens, heads * head_dim]` to rotated `[heads, tokens, head_dim]`.
    fn heads_of(
        &self,
        x: &Tensor,
        heads: usize,
        rotary: Option<&(Tensor, Tensor)>,
    ) -> candle_core::Result<Tensor> {
        let tokens = x.dim(0)?;
        let dim = self.config.head_dim;
        let x = x
            .reshape((tokens, heads, dim))?
            .transpose(0, 1)?
            .contiguous()?;
        let Some((cos, sin)) = rotary else {
            return Ok(x);
        };
        let low = x.narrow(2, 0, dim / 2)?;
        let high = x.narrow(2, dim / 2, dim / 2)?;
        let first = (low.broadcast_mul(cos)? - high.broadcast_mul(sin)?)?;
        let second = (high.broadcast_mul(cos)? + low.broadcast_mul(sin)?)?;
        Tensor::cat(&[&first, &second], 2)
    }

    /// Cosines and sines of the batch's positions, `[1, tokens, head_dim / 2]` each.
    fn rotary_of(&mut self, positions: &[u32]) -> candle_core::Result<(Tensor, Tensor)> {
        self.rotary
            .grow(positions.iter().max().map_or(0, |&last| last as usize) + 1);
        let half = self.config.head_dim / 2;
        let (mut cos, mut sin) = (Vec::new(), Vec::new());
        for &position in positions {
            let (c, s) = self.rotary.at(position);
            cos.extend_from_slice(c);
            sin.extend_from_slice(s);
        }
        let shape = (1, positions.len(), half);
        Ok((
            Tensor::from_vec(cos, shape, &self.device)?,
            Tensor::from_vec(sin, shape, &self.device)?,
        ))
    }

    /// The prefix's keys and values per layer, uploaded when first seen.
    fn upload(&mut self, prefix: &Prefix) -> candle_core::Result<()> {
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

    /// Committed slots of every sequence, side by side, `[kv_heads, slots, head_dim]` each.
    fn past(
        &self,
        batch: &Batch<'_>,
        cache: &KvCache,
        layer: usize,
    ) -> candle_core::Result<Option<LayerKv>> {
        let slots: usize = batch
            .sequences
            .iter()
            .map(|sequence| sequence.len() as usize)
            .sum();
        if slots == 0 {
            return Ok(None);
        }
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        for head in 0..self.config.kv_heads as u32 {
            for sequence in &batch.sequences {
                for (k, v) in cache.runs(sequence, layer as u32, head) {
                    keys.extend_from_slice(k);
                    values.extend_from_slice(v);
                }
            }
        }
        let shape = (self.config.kv_heads, slots, self.config.head_dim);
        Ok(Some((
            Tensor::from_vec(keys, shape, &self.device)?,
            Tensor::from_vec(values, shape, &self.device)?,
        )))
    }

    fn attend(
        &self,
        query: &Tensor,
        runs: &[LayerKv],
        mask: &Tensor,
    ) -> candle_core::Result<Tensor> {
        let config = &self.config;
        let (kv, dim) = (config.kv_heads, config.head_dim);
        let group = config.heads / kv;
        let tokens = query.dim(1)?;
        let keys: Vec<&Tensor> = runs.iter().map(|run| &run.0).collect();
        let values: Vec<&Tensor> = runs.iter().map(|run| &run.1).collect();
        let keys = Tensor::cat(&keys, 1)?;
        let values = Tensor::cat(&values, 1)?;
        let query = (query.reshape((kv, group * tokens, dim))? / (dim as f64).sqrt())?;
        let scores = query.matmul(&keys.transpose(1, 2)?.contiguous()?)?;
        let positions = keys.dim(1)?;
        let scores = scores
            .reshape((kv, group, tokens, positions))?
            .broadcast_add(mask)?
            .reshape((kv, group * tokens, positions))?;
        let scores = scores.broadcast_sub(&scores.max_keepdim(2)?)?.exp()?;
        let weights = scores.broadcast_div(&scores.sum_keepdim(2)?)?;
        weights
            .matmul(&values)?
            .reshape((config.heads, tokens, dim))?
            .transpose(0, 1)?
            .reshape((tokens, config.heads * dim))
    }
}

/// 0 where a token may look, negative infinity where not: `[tokens, prefix + past + tokens]`.
fn visibility(batch: &Batch<'_>) -> (Vec<f32>, usize) {
    let tokens = batch.tokens.len();
    let prefix = batch.prefix_len() as usize;
    let starts: Vec<usize> = batch
        .sequences
        .iter()
        .scan(prefix, |at, sequence| {
            let start = *at;
            *at += sequence.len() as usize;
            Some(start)
        })
        .collect();
    let own = prefix
        + batch
            .sequences
            .iter()
            .map(|s| s.len() as usize)
            .sum::<usize>();
    let width = own + tokens;
    let mut mask = vec![f32::NEG_INFINITY; tokens * width];
    for (index, segment) in batch.segments.iter().enumerate() {
        let root = batch.ancestors(index).last().unwrap_or(*segment);
        for offset in 0..segment.len {
            let row = &mut mask[(segment.start + offset) * width..][..width];
            row[..prefix].fill(0.0);
            if let Some(past) = root.past {
                row[starts[past]..][..batch.sequences[past].len() as usize].fill(0.0);
            }
            for ancestor in batch.ancestors(index) {
                row[own + ancestor.start..][..ancestor.len].fill(0.0);
            }
            row[own + segment.start..][..=offset].fill(0.0);
        }
    }
    (mask, width)
}

impl Model for PortableModel {
    fn config(&self) -> &ModelConfig {
        &self.config
    }

    fn tier(&self) -> String {
        let device = match self.device {
            Device::Cpu => "cpu",
            Device::Cuda(_) => "cuda",
            Device::Metal(_) => "metal",
        };
        format!("{device}-portable-f32-v1")
    }

    fn forward(&mut self, batch: &Batch<'_>, cache: &mut KvCache) -> Result<Vec<f32>, EngineError> {
        let tokens = batch.tokens.len();
        self.rows_forwarded += tokens as u64;
        self.forwards += 1;
        if let Some(prefix) = &batch.prefix {
            self.upload(prefix)?;
        }
        let rotary = self.rotary_of(&batch.positions)?;
        let (mask, width) = visibility(batch);
        let mask = Tensor::from_vec(mask, (1, 1, tokens, width), &self.device)?;
        let ids = Tensor::new(batch.tokens.as_slice(), &self.device)?;
        let mut x = self.embedding.index_select(&ids, 0)?;
        for (index, layer) in self.layers.iter().enumerate() {
            let normed = self.norm(&x, &layer.attention_norm)?;
            let heads = (self.config.heads, self.config.kv_heads);
            let query = self.heads_of(&layer.query.forward(&normed)?, heads.0, Some(&rotary))?;
            let key = self.heads_of(&layer.key.forward(&normed)?, heads.1, Some(&rotary))?;
            let value = self.heads_of(&layer.value.forward(&normed)?, heads.1, None)?;
            self.store_slots(batch, cache, index, &key, &value)?;
            let mut runs = Vec::new();
            if let Some(prefix) = &batch.prefix {
                runs.push(self.prefixes[&prefix.key()][index].clone());
            }
            runs.extend(self.past(batch, cache, index)?);
            runs.push((key, value));
            let attended = self.attend(&query, &runs, &mask)?;
            x = (x + layer.attention_output.forward(&attended)?)?;
            let normed = self.norm(&x, &layer.feed_forward_norm)?;
            let gate = layer.gate.forward(&normed)?.silu()?;
            let up = layer.up.forward(&normed)?;
            x = (x + layer.down.forward(&(gate * up)?)?)?;
        }
        if batch.asked.is_empty() {
            return Ok(Vec::new());
        }
        let asked: Vec<u32> = batch.asked.iter().map(|&token| token as u32).collect();
        let x = x.index_select(&Tensor::new(asked, &self.device)?, 0)?;
        Ok(self.norm(&x, &self.output_norm)?.flatten_all()?.to_vec1()?)
    }

    fn logits(&mut self, hidden: &[f32]) -> Result<Vec<f32>, EngineError> {
        let rows = hidden.len() / self.config.hidden;
        let hidden = Tensor::from_slice(hidden, (rows, self.config.hidden), &self.device)?;
        let head = self.head.as_ref().unwrap_or(&self.embedding);
        Ok(hidden.matmul(&head.t()?)?.flatten_all()?.to_vec1()?)
    }

    fn forget(&mut self, key: &PrefixKey) {
        self.prefixes.remove(key);
    }

    fn rows_forwarded(&self) -> u64 {
        self.rows_forwarded
    }

    fn forwards(&self) -> u64 {
        self.forwards
    }
}

impl PortableModel {
    fn store_slots(
        &self,
        batch: &Batch<'_>,
        cache: &mut KvCache,
        layer: usize,
        key: &Tensor,
        value: &Tensor,
    ) -> candle_core::Result<()> {
        if batch.slots.is_empty() {
            return Ok(());
        }
        let rows = |x: &Tensor| -> candle_core::Result<Vec<f32>> {
            x.transpose(0, 1)?
                .contiguous()?
                .flatten_all()?
                .to_dtype(DType::F32)?
                .to_vec1()
        };
        let width = self.config.kv_heads * self.config.head_dim;
        let (keys, values) = (rows(key)?, rows(value)?);
        let pairs = keys.chunks_exact(width).zip(values.chunks_exact(width));
        for ((key, value), &slot) in pairs.zip(&batch.slots) {
            cache.write(layer as u32, slot, key, value);
        }
        Ok(())
    }
}
