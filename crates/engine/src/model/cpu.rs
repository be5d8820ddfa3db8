//! The fast CPU path: projections over packed weights, fused query/key/value and gate/up, prefix
//! attention as matrix products, no allocation of buffers once they have grown.
//!
//! A batch of several contexts is cut into lanes of whole contexts. A lane goes through all layers
//! on its own thread and waits for no other; what a thread leaves undone others may take.

use kvcache::KvCache;
use rayon::prelude::*;

use super::attention::{Attention, Heads, OwnHeads, PackedPrefix};
use super::batch::Batch;
use super::gated::Gated;
use super::isa::Isa;
use super::linear::{Linear, Numerics, Rounded};
use super::math::{self, RotaryTable};
use super::{Model, ModelConfig, ModelFiles, States};
use crate::error::EngineError;

/// Rows that a lane aims for: they keep the projections busy and stay near the core.
const LANE_ROWS: usize = 256;

struct Layer {
    attention_norm: Vec<f32>,
    qkv: Linear,
    attention_output: Linear,
    feed_forward_norm: Vec<f32>,
    gate_up: Gated,
    down: Linear,
}

/// Buffers of one lane; they grow to the largest batch seen and stay.
#[derive(Default)]
struct Buffers {
    residual: Vec<f32>,  // [rows, hidden]
    normed: Vec<f32>,    // [rows, hidden]
    qkv: Vec<f32>,       // [rows, (heads + 2 kv_heads) * head_dim]
    attended: Vec<f32>,  // [rows, heads * head_dim]
    projected: Vec<f32>, // [rows, hidden]
    gate_up: Vec<f32>,   // [rows, 2 * feed_forward], in tiers that need it
    activated: Vec<f32>, // [rows, feed_forward]
    rounded: Rounded,    // scratch of the integer tiers
    own: OwnHeads,       // keys and values of the batch itself
}

/// A model whose weights live in memory, in the format of its numerics tier.
pub struct CpuModel {
    config: ModelConfig,
    embedding: Vec<f32>, // [vocab, hidden]
    head: Linear,
    numerics: Numerics,
    layers: Vec<Layer>,
    output_norm: Vec<f32>,
    rotary: RotaryTable,
    packed: Option<PackedPrefix>,
    lanes: Vec<Buffers>, // at least one
    rows_forwarded: u64,
    forwards: u64,
}

impl CpuModel {
    /// Reads every tensor and fuses the projections that share an input.
    ///
    /// # Errors
    /// `BadModel` naming the tensor that is missing or has the wrong shape or type.
    pub fn load(files: &ModelFiles, numerics: Numerics) -> Result<Self, EngineError> {
        let numerics = numerics.resolve();
        let config = files.config.clone();
        let (hidden, vocab) = (config.hidden, config.vocab);
        let layers = (0..config.layers)
            .into_par_iter()
            .map(|index| load_layer(files, index, numerics))
            .collect::<Result<Vec<_>, _>>()?;
        let embedding = files.tensor("token_embd.weight", &[vocab, hidden])?;
        let head = if files.has("output.weight") {
            files.tensor("output.weight", &[vocab, hidden])?
        } else {
            embedding.clone()
        };
        // The head is never coarse: few rows pass it, and they carry the answer.
        let head_numerics = match numerics {
            Numerics::F32 => Numerics::F32,
            _ => Numerics::Int16,
        };
        Ok(Self {
            embedding,
            head: Linear::new(hidden, vocab, head, None, head_numerics),
            numerics,
            layers,
            output_norm: files.tensor("output_norm.weight", &[hidden])?,
            rotary: RotaryTable::new(config.head_dim, config.rope_base),
            packed: None,
            lanes: vec![Buffers::default()],
            rows_forwarded: 0,
            forwards: 0,
            config,
        })
    }
}

/// The tier of the fast CPU path under a number format, on this machine.
pub(crate) fn tier(numerics: Numerics) -> String {
    format!(
        "cpu-{}-{}-v2",
        numerics.resolve().name(),
        Isa::detect().name()
    )
}

fn load_layer(files: &ModelFiles, index: usize, numerics: Numerics) -> Result<Layer, EngineError> {
    let config = &files.config;
    let (hidden, feed_forward) = (config.hidden, config.feed_forward);
    let query = config.heads * config.head_dim;
    let kv = config.kv_heads * config.head_dim;
    let name = |part: &str| format!("blk.{index}.{part}");
    let mut qkv = files.tensor(&name("attn_q.weight"), &[query, hidden])?;
    qkv.extend(files.tensor(&name("attn_k.weight"), &[kv, hidden])?);
    qkv.extend(files.tensor(&name("attn_v.weight"), &[kv, hidden])?);
    let bias = if files.has(&name("attn_q.bias")) {
        let mut bias = files.tensor(&name("attn_q.bias"), &[query])?;
        bias.extend(files.tensor(&name("attn_k.bias"), &[kv])?);
        bias.extend(files.tensor(&name("attn_v.bias"), &[kv])?);
        Some(bias)
    } else {
        None
    };
    let gate = files.tensor(&name("ffn_gate.weight"), &[feed_forward, hidden])?;
    let up = files.tensor(&name("ffn_up.weight"), &[feed_forward, hidden])?;
    let output = files.tensor(&name("attn_output.weight"), &[hidden, query])?;
    let down = files.tensor(&name("ffn_down.weight"), &[hidden, feed_forward])?;
    Ok(Layer {
        attention_norm: files.tensor(&name("attn_norm.weight"), &[hidden])?,
        qkv: Linear::new(hidden, config.qkv_width(), qkv, bias, numerics),
        attention_output: Linear::new(query, hidden, output, None, numerics),
        feed_forward_norm: files.tensor(&name("ffn_norm.weight"), &[hidden])?,
        gate_up: Gated::new(hidden, &gate, &up, numerics),
        down: Linear::new(feed_forward, hidden, down, None, numerics),
    })
}

/// Grows a buffer and returns its first `len` floats.
fn sized(buffer: &mut Vec<f32>, len: usize) -> &mut [f32] {
    if buffer.len() < len {
        buffer.resize(len, 0.0);
    }
    &mut buffer[..len]
}

fn norm_rows(x: &[f32], weight: &[f32], epsilon: f32, out: &mut [f32]) {
    let width = weight.len();
    out.par_chunks_mut(width)
        .with_min_len(16)
        .zip(x.par_chunks(width))
        .for_each(|(out, row)| math::rms_norm(row, weight, epsilon, out));
}

impl Buffers {
    /// The feed-forward part of one layer over the first `rows` rows of the residual.
    fn feed_forward(&mut self, pass: &Pass<'_>, layer: &Layer, rows: usize) {
        let config = pass.config;
        let (hidden, wide) = (config.hidden, config.feed_forward);
        let residual = sized(&mut self.residual, rows * hidden);
        let normed = sized(&mut self.normed, rows * hidden);
        norm_rows(
            residual,
            &layer.feed_forward_norm,
            config.norm_epsilon,
            normed,
        );
        let activated = sized(&mut self.activated, rows * wide);
        layer.gate_up.forward(
            normed,
            pass.coarse,
            &mut self.rounded,
            &mut self.gate_up,
            activated,
        );
        let projected = sized(&mut self.projected, rows * hidden);
        layer
            .down
            .forward(activated, pass.coarse, &mut self.rounded, projected);
        math::add(residual, projected);
    }

    /// Query, key and value of every row, rotated to its position.
    fn project_qkv(&mut self, pass: &Pass<'_>, layer: &Layer, positions: &[u32]) {
        let (config, rotary) = (pass.config, pass.rotary);
        let rows = positions.len();
        let residual = sized(&mut self.residual, rows * config.hidden);
        let normed = sized(&mut self.normed, rows * config.hidden);
        norm_rows(residual, &layer.attention_norm, config.norm_epsilon, normed);
        let width = config.qkv_width();
        let qkv = sized(&mut self.qkv, rows * width);
        layer
            .qkv
            .forward(normed, pass.coarse, &mut self.rounded, qkv);
        let rotated = (config.heads + config.kv_heads) * config.head_dim;
        qkv.par_chunks_mut(width)
            .with_min_len(16)
            .zip(positions)
            .for_each(|(row, &position)| {
                let (cos, sin) = rotary.at(position);
                for head in row[..rotated].chunks_exact_mut(config.head_dim) {
                    math::rotate(head, cos, sin);
                }
            });
    }

    /// Copies what the batch taps of the residual, before a layer changes it.
    fn tap(&self, batch: &Batch<'_>, hidden: usize, states: &mut States) {
        let row = |token: usize| &self.residual[token * hidden..(token + 1) * hidden];
        let asked = batch.asked.iter();
        states
            .rows
            .push(asked.flat_map(|&token| row(token)).copied().collect());
        let mut means = vec![0.0; batch.pooled.len() * hidden];
        for (mean, range) in means.chunks_exact_mut(hidden).zip(&batch.pooled) {
            for token in range.clone() {
                math::add(mean, row(token));
            }
            let tokens = range.len() as f32;
            mean.iter_mut().for_each(|value| *value /= tokens);
        }
        states.means.push(means);
    }

    /// Keeps only the asked rows of the residual and of the attention's output.
    fn keep_rows(&mut self, asked: &[usize], config: &ModelConfig) {
        let width = config.heads * config.head_dim;
        for (to, &from) in asked.iter().enumerate() {
            let hidden = config.hidden;
            self.residual
                .copy_within(from * hidden..(from + 1) * hidden, to * hidden);
            self.attended
                .copy_within(from * width..(from + 1) * width, to * width);
        }
    }
}

/// The cache of a forward: keys and values are written only where a batch has slots.
enum Slots<'a> {
    Read(&'a KvCache),
    Write(&'a mut KvCache),
}

/// What all lanes of a forward share.
struct Pass<'a> {
    config: &'a ModelConfig,
    embedding: &'a [f32],
    layers: &'a [Layer],
    output_norm: &'a [f32],
    rotary: &'a RotaryTable,
    packed: Option<&'a PackedPrefix>,
    /// Whether attention is rounded.
    integers: bool,
    /// Whether projections may use the coarser format.
    coarse: bool,
}

impl Pass<'_> {
    /// Takes a batch through all layers; returns its asked rows and what it taps.
    fn forward(&self, batch: &Batch<'_>, mut slots: Slots<'_>, buffers: &mut Buffers) -> States {
        let config = self.config;
        let (rows, hidden) = (batch.tokens.len(), config.hidden);
        let heads = Heads {
            query: config.heads,
            kv: config.kv_heads,
            dim: config.head_dim,
        };
        let residual = sized(&mut buffers.residual, rows * hidden);
        for (row, &token) in residual.chunks_exact_mut(hidden).zip(&batch.tokens) {
            row.copy_from_slice(&self.embedding[token as usize * hidden..][..hidden]);
        }
        let mut states = States::default();
        for (index, layer) in self.layers.iter().enumerate() {
            if batch.taps.contains(&index) {
                buffers.tap(batch, hidden, &mut states);
            }
            buffers.project_qkv(self, layer, &batch.positions);
            let qkv = sized(&mut buffers.qkv, rows * config.qkv_width());
            if let Slots::Write(cache) = &mut slots {
                store_slots(batch, cache, index, config, qkv);
            }
            let attended = sized(&mut buffers.attended, rows * heads.query * heads.dim);
            let last = index + 1 == config.layers;
            Attention {
                batch,
                packed: self.packed,
                cache: match &slots {
                    Slots::Read(cache) => cache,
                    Slots::Write(cache) => cache,
                },
                layer: index,
                heads,
                qkv,
                integers: self.integers,
                asked_only: last,
            }
            .attend(&mut buffers.own, attended);
            // After the last keys and values only the asked rows matter.
            let kept = if last { batch.asked.len() } else { rows };
            if last {
                buffers.keep_rows(&batch.asked, config);
            }
            let attended = sized(&mut buffers.attended, kept * heads.query * heads.dim);
            let projected = sized(&mut buffers.projected, kept * hidden);
            layer
                .attention_output
                .forward(attended, self.coarse, &mut buffers.rounded, projected);
            math::add(sized(&mut buffers.residual, kept * hidden), projected);
            buffers.feed_forward(self, layer, kept);
        }
        let asked = batch.asked.len();
        states.hidden.resize(asked * hidden, 0.0);
        let residual = sized(&mut buffers.residual, asked * hidden);
        let out = &mut states.hidden;
        norm_rows(residual, self.output_norm, config.norm_epsilon, out);
        states
    }
}

impl Model for CpuModel {
    fn config(&self) -> &ModelConfig {
        &self.config
    }

    fn tier(&self) -> String {
        tier(self.numerics)
    }

    fn asks_again(&self) -> bool {
        self.numerics == Numerics::Auto
    }

    fn forward_tapped(
        &mut self,
        batch: &Batch<'_>,
        cache: &mut KvCache,
    ) -> Result<States, EngineError> {
        let config = &self.config;
        let rows = batch.tokens.len();
        self.rows_forwarded += rows as u64;
        self.forwards += 1;
        let last_position = batch
            .positions
            .iter()
            .max()
            .map_or(0, |&last| last as usize);
        self.rotary.grow(last_position + 1);
        let integers = self.numerics != Numerics::F32;
        // One rubric is in use at a time: its keys are packed when it first appears.
        if let Some(prefix) = &batch.prefix
            && self
                .packed
                .as_ref()
                .is_none_or(|packed| packed.key() != prefix.key())
        {
            self.packed = Some(PackedPrefix::new(prefix, integers));
        }
        let pass = Pass {
            config,
            embedding: &self.embedding,
            layers: &self.layers,
            output_norm: &self.output_norm,
            rotary: &self.rotary,
            packed: self.packed.as_ref(),
            integers,
            coarse: batch.coarse,
        };
        let lanes = rows.div_ceil(LANE_ROWS).max(rayon::current_num_threads());
        if !batch.slots.is_empty() || lanes == 1 {
            return Ok(pass.forward(batch, Slots::Write(cache), &mut self.lanes[0]));
        }
        let parts = batch.split(lanes);
        if self.lanes.len() < parts.len() {
            self.lanes.resize_with(parts.len(), Buffers::default);
        }
        let states: Vec<States> = parts
            .par_iter()
            .zip(self.lanes.par_iter_mut())
            .map(|(part, buffers)| pass.forward(part, Slots::Read(cache), buffers))
            .collect();
        Ok(States::concat(states))
    }

    fn logits(&mut self, hidden: &[f32]) -> Result<Vec<f32>, EngineError> {
        let rows = hidden.len() / self.config.hidden;
        let mut out = vec![0.0; rows * self.config.vocab];
        let rounded = &mut self.lanes[0].rounded;
        self.head.forward(hidden, false, rounded, &mut out);
        Ok(out)
    }

    fn rows_forwarded(&self) -> u64 {
        self.rows_forwarded
    }

    fn forwards(&self) -> u64 {
        self.forwards
    }
}

/// Writes keys and values of every row to its slot, when the batch keeps them.
fn store_slots(
    batch: &Batch<'_>,
    cache: &mut KvCache,
    layer: usize,
    config: &ModelConfig,
    qkv: &[f32],
) {
    let query = config.heads * config.head_dim;
    let kv = config.kv_heads * config.head_dim;
    for (row, &slot) in qkv.chunks_exact(config.qkv_width()).zip(&batch.slots) {
        cache.write(
            layer as u32,
            slot,
            &row[query..query + kv],
            &row[query + kv..],
        );
    }
}
