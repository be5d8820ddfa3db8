//! The portable path: the same packed forward in candle tensor operations, for CPU, CUDA and Metal.
//!
//! Written for equality, not speed: attention is one masked product over prefix, paged slots and
//! the rows of a few records. A sealed prefix is uploaded to the device once and reused by every
//! batch. Everything is f32. A forward waits for the device once, at its end, and once more where
//! slots are kept.

mod pieces;
mod transfer;

use std::collections::HashMap;

use candle_core::{Device, Tensor};
use kvcache::{KvCache, PrefixKey};

use super::batch::Batch;
use super::math::RotaryTable;
use super::{Model, ModelConfig, ModelFiles, States};
use crate::error::EngineError;
use pieces::Piece;

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

/// Tokens that attention takes at once, at most.
const PIECE_ROWS: usize = 512;

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

    /// Pieces of attention, each with its mask `[1, 1, rows, prefix + past + seen]`.
    fn pieces(&self, batch: &Batch<'_>) -> candle_core::Result<Vec<(Piece, Tensor)>> {
        pieces::pieces(batch, PIECE_ROWS)
            .into_iter()
            .map(|piece| {
                let mask = pieces::visibility(batch, &piece);
                let shape = (1, 1, piece.rows.len(), mask.len() / piece.rows.len());
                let mask = Tensor::from_vec(mask, shape, &self.device)?;
                Ok((piece, mask))
            })
            .collect()
    }

    /// Attention of one piece: `query` `[heads, tokens, head_dim]`, `own` and `before` (what all
    /// tokens share) as [`LayerKv`]; returns `[rows, heads * head_dim]`.
    fn attend(
        &self,
        (piece, mask): &(Piece, Tensor),
        query: &Tensor,
        own: &LayerKv,
        before: &[&LayerKv],
    ) -> candle_core::Result<Tensor> {
        let config = &self.config;
        let (kv, dim) = (config.kv_heads, config.head_dim);
        let group = config.heads / kv;
        let rows = piece.rows.len();
        let part = |x: &Tensor, start, len| x.narrow(1, start, len)?.contiguous();
        let own_keys = part(&own.0, piece.first, piece.seen())?;
        let own_values = part(&own.1, piece.first, piece.seen())?;
        let mut keys: Vec<&Tensor> = before.iter().map(|run| &run.0).collect();
        let mut values: Vec<&Tensor> = before.iter().map(|run| &run.1).collect();
        keys.push(&own_keys);
        values.push(&own_values);
        let keys = Tensor::cat(&keys, 1)?;
        let values = Tensor::cat(&values, 1)?;
        let query = part(query, piece.rows.start, rows)?.reshape((kv, group * rows, dim))?;
        let scores = (query / (dim as f64).sqrt())?.matmul(&keys.transpose(1, 2)?)?;
        let positions = keys.dim(1)?;
        let scores = scores
            .reshape((kv, group, rows, positions))?
            .broadcast_add(mask)?
            .reshape((kv, group * rows, positions))?;
        let scores = scores.broadcast_sub(&scores.max_keepdim(2)?)?.exp()?;
        let weights = scores.broadcast_div(&scores.sum_keepdim(2)?)?;
        weights
            .matmul(&values)?
            .reshape((config.heads, rows, dim))?
            .transpose(0, 1)?
            .reshape((rows, config.heads * dim))
    }
}

impl Model for PortableModel {
    fn config(&self) -> &ModelConfig {
        &self.config
    }

    fn tier(&self) -> String {
        tier(&self.device)
    }

    fn forward_tapped(
        &mut self,
        batch: &Batch<'_>,
        cache: &mut KvCache,
    ) -> Result<States, EngineError> {
        // A device may read past its table where the processor would notice.
        let vocab = self.config.vocab;
        assert!(batch.tokens.iter().all(|&token| (token as usize) < vocab));
        self.rows_forwarded += batch.tokens.len() as u64;
        self.forwards += 1;
        if let Some(prefix) = &batch.prefix {
            self.upload(prefix)?;
        }
        let rotary = self.rotary_of(&batch.positions)?;
        let pieces = self.pieces(batch)?;
        let past = self.past(batch, cache)?;
        let mut kept = Vec::new();
        let ids = Tensor::new(batch.tokens.as_slice(), &self.device)?;
        let asked: Vec<u32> = batch.asked.iter().map(|&token| token as u32).collect();
        let asked = match asked.is_empty() {
            true => None,
            false => Some(Tensor::new(asked, &self.device)?),
        };
        let mut tapped = Vec::new();
        let mut x = self.embedding.index_select(&ids, 0)?;
        for (index, layer) in self.layers.iter().enumerate() {
            if batch.taps.contains(&index) {
                tapped.push(tap(&x, asked.as_ref(), &batch.pooled)?);
            }
            let normed = self.norm(&x, &layer.attention_norm)?;
            let heads = (self.config.heads, self.config.kv_heads);
            let query = self.heads_of(&layer.query.forward(&normed)?, heads.0, Some(&rotary))?;
            let key = self.heads_of(&layer.key.forward(&normed)?, heads.1, Some(&rotary))?;
            let value = self.heads_of(&layer.value.forward(&normed)?, heads.1, None)?;
            if !batch.slots.is_empty() {
                kept.extend([key.clone(), value.clone()]);
            }
            let mut before = Vec::new();
            if let Some(prefix) = &batch.prefix {
                before.push(&self.prefixes[&prefix.key()][index]);
            }
            before.extend(past.as_ref().map(|layers| &layers[index]));
            let own = (key, value);
            let attended = pieces
                .iter()
                .map(|piece| self.attend(piece, &query, &own, &before))
                .collect::<candle_core::Result<Vec<_>>>()?;
            let attended = Tensor::cat(&attended, 0)?;
            x = (x + layer.attention_output.forward(&attended)?)?;
            let normed = self.norm(&x, &layer.feed_forward_norm)?;
            let gate = layer.gate.forward(&normed)?.silu()?;
            let up = layer.up.forward(&normed)?;
            x = (x + layer.down.forward(&(gate * up)?)?)?;
        }
        if !kept.is_empty() {
            self.store_slots(batch, cache, &kept)?;
        }
        let mut states = States::default();
        for (rows, means) in tapped {
            states.rows.push(download(rows)?);
            states.means.push(download(means)?);
        }
        if let Some(asked) = asked {
            let x = x.index_select(&asked, 0)?;
            states.hidden = download(Some(self.norm(&x, &self.output_norm)?))?;
        }
        Ok(states)
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

/// Rows of the residual and its means over ranges, `[asked, hidden]` and `[pooled, hidden]`; they stay
/// on the device until the forward is done.
type Tapped = (Option<Tensor>, Option<Tensor>);

fn tap(
    x: &Tensor,
    asked: Option<&Tensor>,
    pooled: &[std::ops::Range<usize>],
) -> candle_core::Result<Tapped> {
    let rows = asked.map(|asked| x.index_select(asked, 0)).transpose()?;
    let means = pooled
        .iter()
        .map(|range| x.narrow(0, range.start, range.len())?.mean_keepdim(0))
        .collect::<candle_core::Result<Vec<_>>>()?;
    let means = match means.is_empty() {
        true => None,
        false => Some(Tensor::cat(&means, 0)?),
    };
    Ok((rows, means))
}

/// A tensor's values in row order; none of a tensor that is not there.
fn download(tensor: Option<Tensor>) -> candle_core::Result<Vec<f32>> {
    tensor.map_or(Ok(Vec::new()), |tensor| tensor.flatten_all()?.to_vec1())
}

/// The tier of the portable path on a device.
pub(crate) fn tier(device: &Device) -> String {
    let device = match device {
        Device::Cpu => "cpu",
        Device::Cuda(_) => "cuda",
        Device::Metal(_) => "metal",
    };
    format!("{device}-portable-f32-v2")
}
