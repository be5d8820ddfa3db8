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

use super::integer::{Isa, PANEL, Target, group_of, largest, nearest};
use kernels::{Block, Tile};

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

/// Activations rounded to bytes: blocks of rows, `[blocks][groups][rows of the block][group]`, with
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
    group: usize,
    values: Vec<i8>,   // [panels][inputs / 4][32][4]
    scales: Vec<f32>,  // [panels][groups][32]
    offsets: Vec<i32>, // [panels][groups][32] minus 128 times the sum of the group's weights
    isa: Isa,
}

impl Panels {
    /// Rounds and repacks `weight`, `[outputs, inputs]`; none when the inputs have no group size.
    pub fn pack(weight: &[f32], inputs: usize, outputs: usize, isa: Isa) -> Option<Self> {
        let group = group_of(inputs)?;
        let groups = inputs / group;
        let panels = outputs.div_ceil(PANEL);
        let mut values = vec![0i8; panels * inputs * PANEL];
        let mut scales = vec![0.0f32; panels * groups * PANEL];
        let mut offsets = vec![0i32; panels * groups * PANEL];
        values
            .par_chunks_mut(inputs * PANEL)
            .zip(scales.par_chunks_mut(groups * PANEL))
            .zip(offsets.par_chunks_mut(groups * PANEL))
            .enumerate()
            .for_each(|(panel, ((values, scales), offsets))| {
                for column in 0..PANEL.min(outputs - panel * PANEL) {
                    let row = &weight[(panel * PANEL + column) * inputs..][..inputs];
                    for (index, part) in row.chunks_exact(group).enumerate() {
                        let scale = scale_of(part);
                        let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
                        let mut sum = 0;
                        for (at, value) in part.iter().enumerate() {
                            let k = index * group + at;
                            let rounded = nearest(value * inverse);
                            sum += rounded;
                            values[(k / 4) * 4 * PANEL + column * 4 + k % 4] = rounded as i8;
                        }
                        scales[index * PANEL + column] = scale;
                        offsets[index * PANEL + column] = -OFFSET * sum;
                    }
                }
            });
        Some(Self {
            inputs,
            outputs,
            group,
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
        rounded.round(x, self.inputs, self.group);
        let target = Target::new(out, self.outputs);
        (0..self.outputs.div_ceil(PANEL))
            .into_par_iter()
            .for_each(|panel| self.panel(panel, rows, rounded, &target));
    }

    fn panel(&self, panel: usize, rows: usize, rounded: &RoundedRows, target: &Target) {
        let groups = self.inputs / self.group;
        let scaled = panel * groups * PANEL..(panel + 1) * groups * PANEL;
        let mut tile: Tile = [[0.0; PANEL]; BLOCK_ROWS];
        for first in (0..rows).step_by(BLOCK_ROWS) {
            let count = BLOCK_ROWS.min(rows - first);
            let block = Block {
                weights: &self.values[panel * self.inputs * PANEL..][..self.inputs * PANEL],
                weight_scales: &self.scales[scaled.clone()],
                offsets: &self.offsets[scaled.clone()],
                rows: &rounded.values[first * self.inputs..][..count * self.inputs],
                row_scales: &rounded.scales[first * groups..][..count * groups],
                group: self.group,
            };
            block.multiply(self.isa, &mut tile[..count]);
            for (offset, row) in tile[..count].iter().enumerate() {
                target.write(first + offset, panel, row);
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

/// How inputs are cut into groups.
#[derive(Debug, Clone, Copy)]
struct Shape {
    inputs: usize,
    group: usize,
}

impl RoundedRows {
    fn round(&mut self, x: &[f32], inputs: usize, group: usize) {
        let groups = inputs / group;
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
            .for_each(|((values, scales), x)| {
                round_block(x, Shape { inputs, group }, values, scales)
            });
    }
}

#[inline(always)]
fn round_block_body(x: &[f32], shape: Shape, values: &mut [u8], scales: &mut [f32]) {
    let Shape { inputs, group } = shape;
    let rows = x.len() / inputs;
    for (row, x) in x.chunks_exact(inputs).enumerate() {
        for (index, part) in x.chunks_exact(group).enumerate() {
            let at = index * rows + row;
            let max = largest(part);
            let inverse = if max > 0.0 { ACTIVATION_MAX / max } else { 0.0 };
            scales[at] = max / ACTIVATION_MAX;
            let values = &mut values[at * group..][..group];
            for (target, value) in values.iter_mut().zip(part) {
                *target = (nearest(value * inverse) + OFFSET) as u8;
            }
        }
    }
}

#[allow(unsafe_code)]
fn round_block(x: &[f32], shape: Shape, values: &mut [u8], scales: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2")]
        fn wide(x: &[f32], shape: Shape, values: &mut [u8], scales: &mut [f32]) {
            round_block_body(x, shape, values, scales);
        }
        if std::is_x86_feature_detected!("avx2") {
            // SAFETY: the feature was just detected. Plain multiply and add, no fusion, so that
            // the rounding is the same everywhere.
            return unsafe { wide(x, shape, values, scales) };
        }
    }
    round_block_body(x, shape, values, scales);
}

#[cfg(test)]
mod tests;
