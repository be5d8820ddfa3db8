//! The 8-bit integer tier: half the bytes and half the instructions of the 16-bit one.
//!
//! Weights are signed bytes with one scale per output and group of inputs; activations are rounded
//! to -127..=127 with one scale per row and group, and stored with 128 added, since the
//! instructions multiply unsigned by signed bytes. What the addition brings is taken off again in
//! integers. Sums are exact on every instruction set, so all agree to the bit and a row does not
//! depend on the other rows.
//!
//! Without accumulating instructions, AVX2 adds four products in 16 bits. Packing therefore keeps
//! the weights of one sign among any four that meet there at a sum of at most 128: 255 * 128 fits.

mod kernels;

use rayon::prelude::*;

use super::integer::{Aligned, Columns, Isa, PANEL, Target, largest, nearest};
use kernels::Block;

/// Four inputs of every column of a panel, `[32][4]`.
type Fours = Aligned<[i8; 4 * PANEL]>;

/// Inputs that share a scale: the groups of the formats that model files use.
const GROUP: usize = 32;
/// Rows that share a pass over a panel; their group stays in the first-level cache.
const BLOCK_ROWS: usize = 32;
/// Added to every activation.
const OFFSET: i32 = 128;
/// Largest magnitude of a rounded activation.
const ACTIVATION_MAX: f32 = 127.0;
/// Largest magnitude of a rounded weight.
const WEIGHT_MAX: f32 = 127.0;
/// Bound on the weights of one sign that meet in 16 bits.
const MEETING_MAX: i32 = 128;
/// The same before rounding, which can add half to each of the four.
const MEETING_UNROUNDED: f32 = MEETING_MAX as f32 - 2.0;

const _: () = assert!((OFFSET + ACTIVATION_MAX as i32) * MEETING_MAX <= i16::MAX as i32);

/// Activations rounded to bytes: blocks of rows, `[blocks][groups][rows of the block][32]`, with
/// one scale per row and group, `[blocks][groups][rows of the block]`.
#[derive(Debug, Default)]
pub struct RoundedRows {
    values: Vec<u8>,
    scales: Vec<f32>,
}

/// A weight matrix in panels of 32 outputs.
#[derive(Debug)]
pub struct Panels {
    inputs: usize,
    outputs: usize,
    values: Vec<Fours>,         // [panels][inputs / 4]
    scales: Vec<Columns<f32>>,  // [panels][groups]
    offsets: Vec<Columns<i32>>, // [panels][groups] minus 128 times the sum of the group's weights
    isa: Isa,
}

impl Panels {
    /// Rounds and repacks `weight`, `[outputs, inputs]`; none when the inputs are not a multiple of 32.
    pub fn pack(weight: &[f32], inputs: usize, outputs: usize, isa: Isa) -> Option<Self> {
        if !inputs.is_multiple_of(GROUP) {
            return None;
        }
        let groups = inputs / GROUP;
        let panels = outputs.div_ceil(PANEL);
        let mut values = vec![Aligned([0; 4 * PANEL]); panels * inputs / 4];
        let mut scales = vec![Aligned([0.0; PANEL]); panels * groups];
        let mut offsets = vec![Aligned([0; PANEL]); panels * groups];
        values
            .par_chunks_mut(inputs / 4)
            .zip(scales.par_chunks_mut(groups))
            .zip(offsets.par_chunks_mut(groups))
            .enumerate()
            .for_each(|(panel, ((values, scales), offsets))| {
                for column in 0..PANEL.min(outputs - panel * PANEL) {
                    let row = &weight[(panel * PANEL + column) * inputs..][..inputs];
                    for (index, part) in row.chunks_exact(GROUP).enumerate() {
                        let scale = scale_of(part);
                        let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
                        let mut sum = 0;
                        for (at, value) in part.iter().enumerate() {
                            let k = index * GROUP + at;
                            let rounded = nearest(value * inverse);
                            sum += rounded;
                            values[k / 4].0[column * 4 + k % 4] = rounded as i8;
                        }
                        scales[index].0[column] = scale;
                        offsets[index].0[column] = -OFFSET * sum;
                    }
                }
            });
        Some(Self {
            inputs,
            outputs,
            values,
            scales,
            offsets,
            isa,
        })
    }

    /// out = x * weight^T. `x` is `[rows, inputs]`, `out` is `[rows, outputs]`; `rounded` is
    /// scratch that keeps its memory.
    ///
    /// # Panics
    /// If the sizes do not agree.
    pub fn forward(&self, x: &[f32], rounded: &mut RoundedRows, out: &mut [f32]) {
        let rows = x.len() / self.inputs;
        assert_eq!(x.len(), rows * self.inputs);
        assert_eq!(out.len(), rows * self.outputs);
        if rows == 0 {
            return;
        }
        rounded.round(x, self.inputs);
        let target = Target::new(out, self.outputs);
        (0..self.outputs.div_ceil(PANEL))
            .into_par_iter()
            .for_each(|panel| self.panel(panel, rows, rounded, &target));
    }

    fn panel(&self, panel: usize, rows: usize, rounded: &RoundedRows, target: &Target) {
        let groups = self.inputs / GROUP;
        let fours = self.inputs / 4;
        let mut tile = [Aligned([0.0; PANEL]); BLOCK_ROWS];
        for first in (0..rows).step_by(BLOCK_ROWS) {
            let count = BLOCK_ROWS.min(rows - first);
            let block = Block {
                weights: &self.values[panel * fours..][..fours],
                weight_scales: &self.scales[panel * groups..][..groups],
                offsets: &self.offsets[panel * groups..][..groups],
                rows: &rounded.values[first * self.inputs..][..count * self.inputs],
                row_scales: &rounded.scales[first * groups..][..count * groups],
            };
            block.multiply(self.isa, &mut tile[..count]);
            for (offset, row) in tile[..count].iter().enumerate() {
                target.write(first + offset, panel, &row.0);
            }
        }
    }
}

/// Positions in eight consecutive inputs whose products AVX2 adds in 16 bits.
const MEETING: [[usize; 4]; 2] = [[0, 1, 4, 5], [2, 3, 6, 7]];

/// The finest scale at which a group of weights fits bytes and AVX2's 16-bit sums.
fn scale_of(part: &[f32]) -> f32 {
    let mut meeting = 0.0f32;
    for eight in part.chunks_exact(8) {
        for set in MEETING {
            let positive: f32 = set.iter().map(|&at| eight[at].max(0.0)).sum();
            let negative: f32 = set.iter().map(|&at| (-eight[at]).max(0.0)).sum();
            meeting = meeting.max(positive).max(negative);
        }
    }
    (largest(part) / WEIGHT_MAX).max(meeting / MEETING_UNROUNDED)
}

impl RoundedRows {
    fn round(&mut self, x: &[f32], inputs: usize) {
        let groups = inputs / GROUP;
        let rows = x.len() / inputs;
        if self.values.len() < x.len() {
            self.values.resize(x.len(), 0);
        }
        if self.scales.len() < rows * groups {
            self.scales.resize(rows * groups, 0.0);
        }
        self.values[..x.len()]
            .par_chunks_mut(BLOCK_ROWS * inputs)
            .zip(self.scales[..rows * groups].par_chunks_mut(BLOCK_ROWS * groups))
            .zip(x.par_chunks(BLOCK_ROWS * inputs))
            .for_each(|((values, scales), x)| round_block(x, inputs, values, scales));
    }
}

#[inline(always)]
fn round_block_body(x: &[f32], inputs: usize, values: &mut [u8], scales: &mut [f32]) {
    let rows = x.len() / inputs;
    for (row, x) in x.chunks_exact(inputs).enumerate() {
        for (index, part) in x.chunks_exact(GROUP).enumerate() {
            let at = index * rows + row;
            let max = largest(part);
            let inverse = if max > 0.0 { ACTIVATION_MAX / max } else { 0.0 };
            scales[at] = max / ACTIVATION_MAX;
            let values = &mut values[at * GROUP..][..GROUP];
            for (target, value) in values.iter_mut().zip(part) {
                *target = (nearest(value * inverse) + OFFSET) as u8;
            }
        }
    }
}

#[allow(unsafe_code)]
fn round_block(x: &[f32], inputs: usize, values: &mut [u8], scales: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2")]
        fn wide(x: &[f32], inputs: usize, values: &mut [u8], scales: &mut [f32]) {
            round_block_body(x, inputs, values, scales);
        }
        if std::is_x86_feature_detected!("avx2") {
            // SAFETY: the feature was just detected. Plain multiply and add, no fusion, so that
            // the rounding is the same everywhere.
            return unsafe { wide(x, inputs, values, scales) };
        }
    }
    round_block_body(x, inputs, values, scales);
}

#[cfg(test)]
mod tests;
