//! The 8-bit integer tier: half the bytes and half the instructions of the 16-bit one.
//!
//! Weights are signed bytes with one scale per output and group of inputs; activations are rounded
//! to -127..=127 with one scale per row and group, and stored with 128 added, since the
//! instructions multiply unsigned by signed bytes. What the addition brings is taken off again in
//! integers. Sums are exact on every instruction set, so all agree to the bit and a row does not
//! depend on the other rows.
//!
//! Both sides are turned by the same Hadamard matrix before they are rounded, so that one large
//! activation does not cost its whole group its precision (as in QuaRot, Ashkboos et al. 2024).

mod kernels;
mod rotation;

use rayon::prelude::*;

use super::integer::{Aligned, Columns, Finish, PANEL, Target, largest, nearest};
use super::isa::Isa;
use kernels::Block;
use rotation::rotate;
#[cfg(target_arch = "x86_64")]
use rotation::rotate_avx512;

/// Four inputs of every column of a panel, `[32][4]`.
type Fours = Aligned<[i8; 4 * PANEL]>;

/// Most inputs that share a scale.
const GROUP_MAX: usize = 192;
/// Rows that share a pass over a panel; their group stays in the first-level cache.
const BLOCK_ROWS: usize = 32;
/// Added to every activation.
const OFFSET: i32 = 128;
/// Largest magnitude of a rounded activation.
const ACTIVATION_MAX: f32 = 127.0;
/// Largest magnitude of a rounded weight.
const WEIGHT_MAX: f32 = 127.0;
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
    values: Vec<Fours>,         // [panels][inputs / 4]
    scales: Vec<Columns<f32>>,  // [panels][groups]
    offsets: Vec<Columns<i32>>, // [panels][groups] minus 128 times the sum of the group's weights
    isa: Isa,
}

impl Panels {
    /// Rounds and repacks `weight`, `[outputs, inputs]`; none when the inputs are not a multiple of 64.
    pub fn pack(weight: &[f32], inputs: usize, outputs: usize, isa: Isa) -> Option<Self> {
        let group = group_of(inputs)?;
        let groups = inputs / group;
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
                let mut turned = [0.0; GROUP_MAX];
                let turned = &mut turned[..group];
                for column in 0..PANEL.min(outputs - panel * PANEL) {
                    let row = &weight[(panel * PANEL + column) * inputs..][..inputs];
                    for (index, part) in row.chunks_exact(group).enumerate() {
                        turned.copy_from_slice(part);
                        rotate(turned);
                        let max = largest(turned);
                        let inverse = if max > 0.0 { WEIGHT_MAX / max } else { 0.0 };
                        let mut sum = 0;
                        for (at, value) in turned.iter().enumerate() {
                            let k = index * group + at;
                            let rounded = nearest(value * inverse);
                            sum += rounded;
                            values[k / 4].0[column * 4 + k % 4] = rounded as i8;
                        }
                        // Turning both sides made their product longer by the size of a block.
                        scales[index].0[column] = max / (WEIGHT_MAX * rotation::BLOCK as f32);
                        offsets[index].0[column] = -OFFSET * sum;
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

    /// out = x * weight^T. `x` is `[rows, inputs]`, `out` is `[rows, outputs]`, or half as wide where
    /// columns are gated; `rounded` is scratch that keeps its memory.
    ///
    /// # Panics
    /// If the sizes do not agree.
    pub(super) fn forward(
        &self,
        x: &[f32],
        rounded: &mut RoundedRows,
        finish: Finish,
        out: &mut [f32],
    ) {
        let rows = x.len() / self.inputs;
        assert_eq!(x.len(), rows * self.inputs);
        let target = Target::new(out, rows, self.outputs, finish);
        if rows == 0 {
            return;
        }
        rounded.round(x, self.inputs, self.group);
        (0..self.outputs.div_ceil(PANEL))
            .into_par_iter()
            .for_each(|panel| self.panel(panel, rows, rounded, &target));
    }

    fn panel(&self, panel: usize, rows: usize, rounded: &RoundedRows, target: &Target) {
        let groups = self.inputs / self.group;
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
                group: self.group,
                place: target.place(first, count, panel),
            };
            block.multiply(self.isa, &mut tile[..count]);
            if block.place.is_none() {
                target.finish(first, panel, &mut tile[..count]);
            }
        }
    }
}

/// Inputs that share a scale, for a given number of inputs; none when it cannot be split evenly.
fn group_of(inputs: usize) -> Option<usize> {
    [128, GROUP_MAX, 64]
        .into_iter()
        .find(|group| inputs.is_multiple_of(*group))
}

/// How a row is cut into groups.
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
                round_block(x, Shape { inputs, group }, values, scales);
            });
    }
}

/// Calls `round` with every group of every row, the place of its bytes, and its scale.
#[inline(always)]
fn each_group(
    x: &[f32],
    shape: Shape,
    values: &mut [u8],
    scales: &mut [f32],
    mut round: impl FnMut(&[f32], &mut [u8]) -> f32,
) {
    let Shape { inputs, group } = shape;
    let rows = x.len() / inputs;
    for (row, x) in x.chunks_exact(inputs).enumerate() {
        for (index, part) in x.chunks_exact(group).enumerate() {
            let at = index * rows + row;
            scales[at] = round(part, &mut values[at * group..][..group]);
        }
    }
}

/// Turns and rounds one group; returns its scale.
#[inline(always)]
fn round_group(part: &[f32], values: &mut [u8]) -> f32 {
    let mut turned = [0.0; GROUP_MAX];
    let turned = &mut turned[..part.len()];
    turned.copy_from_slice(part);
    rotate(turned);
    let max = largest(turned);
    let inverse = if max > 0.0 { ACTIVATION_MAX / max } else { 0.0 };
    for (target, value) in values.iter_mut().zip(turned) {
        *target = (nearest(*value * inverse) + OFFSET) as u8;
    }
    max / ACTIVATION_MAX
}

/// [`round_group`] with AVX-512: the same operations in the same order, so the same bits.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn round_group_avx512(part: &[f32], values: &mut [u8]) -> f32 {
    use std::arch::x86_64::*;
    let blocks = part.len() / rotation::BLOCK;
    assert!(blocks <= GROUP_MAX / rotation::BLOCK && values.len() == part.len());
    let mut turned = [[_mm512_setzero_ps(); 4]; GROUP_MAX / rotation::BLOCK];
    let mut largest = _mm512_setzero_ps();
    for (block, turned) in turned[..blocks].iter_mut().enumerate() {
        let load = |vector: usize| {
            // SAFETY: the group has `blocks` blocks of four vectors.
            unsafe { _mm512_loadu_ps(part.as_ptr().add(block * rotation::BLOCK + vector * 16)) }
        };
        *turned = rotate_avx512([load(0), load(1), load(2), load(3)]);
        for vector in turned {
            largest = _mm512_max_ps(largest, _mm512_abs_ps(*vector));
        }
    }
    let max = _mm512_reduce_max_ps(largest);
    let inverse = if max > 0.0 { ACTIVATION_MAX / max } else { 0.0 };
    let inverse = _mm512_set1_ps(inverse);
    let offset = _mm512_set1_epi32(OFFSET);
    for (vector, values) in turned[..blocks]
        .as_flattened()
        .iter()
        .zip(values.as_chunks_mut().0)
    {
        let rounded = _mm512_cvtps_epi32(_mm512_mul_ps(*vector, inverse));
        let bytes = _mm512_cvtepi32_epi8(_mm512_add_epi32(rounded, offset));
        let values: &mut [u8; 16] = values;
        // SAFETY: sixteen bytes go into sixteen bytes.
        unsafe { _mm_storeu_si128(values.as_mut_ptr().cast(), bytes) };
    }
    max / ACTIVATION_MAX
}

#[allow(unsafe_code)]
fn round_block(x: &[f32], shape: Shape, values: &mut [u8], scales: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx512f,avx512dq")]
        fn widest(x: &[f32], shape: Shape, values: &mut [u8], scales: &mut [f32]) {
            each_group(x, shape, values, scales, |part, values| {
                round_group_avx512(part, values)
            });
        }
        #[target_feature(enable = "avx2")]
        fn wide(x: &[f32], shape: Shape, values: &mut [u8], scales: &mut [f32]) {
            each_group(x, shape, values, scales, round_group);
        }
        if Isa::detect() >= Isa::Avx512Vnni {
            // SAFETY: the features were just detected.
            return unsafe { widest(x, shape, values, scales) };
        }
        if Isa::detect() >= Isa::Avx2 {
            // SAFETY: the feature was just detected. Plain multiply and add, no fusion, so that
            // the rounding is the same everywhere.
            return unsafe { wide(x, shape, values, scales) };
        }
    }
    each_group(x, shape, values, scales, round_group);
}

#[cfg(test)]
mod tests;
