//! The 16-bit integer tier: weights repacked once into panels, activations rounded per group,
//! products summed in 32-bit integers, groups joined in f32.
//!
//! Integer sums are exact, so every instruction set gives the same group sums, and a row's result
//! does not depend on the other rows. Bounds: 128 products of 13-bit activations and 12-bit weights
//! stay below 2^31.

use rayon::prelude::*;

#[cfg(target_arch = "x86_64")]
use super::integer::multiply_add;
use super::integer::{Aligned, Columns, Finish, PANEL, Target, group_of, largest, nearest};
use super::isa::Isa;

/// Rows of the register tile.
const TILE_ROWS: usize = 8;
/// Largest magnitude of a rounded activation.
const ACTIVATION_MAX: f32 = 4095.0;
/// Largest magnitude of a rounded weight.
const WEIGHT_MAX: f32 = 2047.0;
/// Rows rounded by one task.
const ROUND_ROWS: usize = 8;

/// Activations rounded to integers, `[rows, inputs]`, with one scale per row and group.
#[derive(Debug, Default)]
pub struct RoundedRows {
    values: Vec<i16>, // [rows, inputs]
    scales: Vec<f32>, // [rows, groups]
}

/// A weight matrix in panels of 32 outputs: `[panels][inputs / 2][32][2]`.
#[derive(Debug)]
pub struct Panels {
    inputs: usize,
    outputs: usize,
    group: usize,
    values: Vec<i16>,
    scales: Vec<f32>, // [panels][groups][32]
    isa: Isa,
}

impl Panels {
    /// Rounds and repacks `weight`, `[outputs, inputs]`; none when the inputs have no group size.
    pub fn pack(weight: &[f32], inputs: usize, outputs: usize, isa: Isa) -> Option<Self> {
        let group = group_of(inputs)?;
        let groups = inputs / group;
        let panels = outputs.div_ceil(PANEL);
        let mut values = vec![0i16; panels * inputs * PANEL];
        let mut scales = vec![0.0f32; panels * groups * PANEL];
        values
            .par_chunks_mut(inputs * PANEL)
            .zip(scales.par_chunks_mut(groups * PANEL))
            .enumerate()
            .for_each(|(panel, (values, scales))| {
                for column in 0..PANEL.min(outputs - panel * PANEL) {
                    let row = &weight[(panel * PANEL + column) * inputs..][..inputs];
                    for (index, part) in row.chunks_exact(group).enumerate() {
                        let max = part.iter().fold(0.0f32, |max, value| max.max(value.abs()));
                        let inverse = if max > 0.0 { WEIGHT_MAX / max } else { 0.0 };
                        scales[index * PANEL + column] = max / WEIGHT_MAX;
                        for (at, value) in part.iter().enumerate() {
                            let k = index * group + at;
                            values[(k / 2) * 2 * PANEL + column * 2 + k % 2] =
                                nearest(value * inverse) as i16;
                        }
                    }
                }
            });
        Some(Self {
            inputs,
            outputs,
            group,
            values,
            scales,
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
        let values = &self.values[panel * self.inputs * PANEL..][..self.inputs * PANEL];
        let scales = &self.scales[panel * groups * PANEL..][..groups * PANEL];
        let mut tile = [Aligned([0.0f32; PANEL]); TILE_ROWS];
        let mut first = 0;
        while first < rows {
            let count = TILE_ROWS.min(rows - first);
            let task = Task {
                weights: values,
                weight_scales: scales,
                rows: &rounded.values[first * self.inputs..][..count * self.inputs],
                row_scales: &rounded.scales[first * groups..][..count * groups],
                inputs: self.inputs,
                group: self.group,
            };
            task.run(count, self.isa, &mut tile);
            target.finish(first, panel, &mut tile[..count]);
            first += count;
        }
    }
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
            .par_chunks_mut(ROUND_ROWS * inputs)
            .zip(self.scales[..rows * groups].par_chunks_mut(ROUND_ROWS * groups))
            .zip(x.par_chunks(ROUND_ROWS * inputs))
            .for_each(|((values, scales), x)| round_groups(x, group, values, scales));
    }
}

#[inline(always)]
fn round_groups_body(x: &[f32], group: usize, values: &mut [i16], scales: &mut [f32]) {
    let parts = x.chunks_exact(group).zip(values.chunks_exact_mut(group));
    for ((part, values), scale) in parts.zip(scales) {
        let max = largest(part);
        let inverse = if max > 0.0 { ACTIVATION_MAX / max } else { 0.0 };
        *scale = max / ACTIVATION_MAX;
        for (target, value) in values.iter_mut().zip(part) {
            *target = nearest(value * inverse) as i16;
        }
    }
}

#[allow(unsafe_code)]
fn round_groups(x: &[f32], group: usize, values: &mut [i16], scales: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx512f,avx512bw")]
        fn widest(x: &[f32], group: usize, values: &mut [i16], scales: &mut [f32]) {
            round_groups_body(x, group, values, scales);
        }
        #[target_feature(enable = "avx2")]
        fn wide(x: &[f32], group: usize, values: &mut [i16], scales: &mut [f32]) {
            round_groups_body(x, group, values, scales);
        }
        if Isa::detect() >= Isa::Avx512Vnni {
            // SAFETY: as below.
            return unsafe { widest(x, group, values, scales) };
        }
        if Isa::detect() >= Isa::Avx2 {
            // SAFETY: the feature was just detected. Plain multiply and add, no fusion, so that
            // the rounding is the same everywhere.
            return unsafe { wide(x, group, values, scales) };
        }
    }
    round_groups_body(x, group, values, scales);
}

/// One register tile over the whole depth: up to 8 rows by one panel.
struct Task<'a> {
    weights: &'a [i16],       // [inputs / 2][32][2]
    weight_scales: &'a [f32], // [groups][32]
    rows: &'a [i16],          // [rows][inputs]
    row_scales: &'a [f32],    // [rows][groups]
    inputs: usize,
    group: usize,
}

type Tile = [Columns<f32>; TILE_ROWS];

impl Task<'_> {
    #[allow(unsafe_code)]
    fn run(&self, rows: usize, isa: Isa, tile: &mut Tile) {
        assert_eq!(self.weights.len(), self.inputs * PANEL);
        assert_eq!(self.rows.len(), rows * self.inputs);
        tile[..rows].iter_mut().for_each(|row| row.0.fill(0.0));
        match isa {
            Isa::Scalar => self.scalar(rows, tile),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `Isa::detect` found the features; sizes were asserted above.
            Isa::Avx512Vnni => unsafe {
                match rows {
                    8 => self.avx512::<8>(tile),
                    7 => self.avx512::<7>(tile),
                    6 => self.avx512::<6>(tile),
                    5 => self.avx512::<5>(tile),
                    4 => self.avx512::<4>(tile),
                    3 => self.avx512::<3>(tile),
                    2 => self.avx512::<2>(tile),
                    _ => self.avx512::<1>(tile),
                }
            },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Isa::Avx2 | Isa::AvxVnni => unsafe {
                for half in 0..2 {
                    let mut row = 0;
                    while row < rows {
                        match rows - row {
                            1 => self.avx2::<1>(row, half, tile),
                            2 => self.avx2::<2>(row, half, tile),
                            3 => self.avx2::<3>(row, half, tile),
                            _ => self.avx2::<4>(row, half, tile),
                        }
                        row += 4;
                    }
                }
            },
            #[cfg(not(target_arch = "x86_64"))]
            _ => self.scalar(rows, tile),
        }
    }

    fn scalar(&self, rows: usize, tile: &mut Tile) {
        let groups = self.inputs / self.group;
        for (row, out) in tile[..rows].iter_mut().enumerate() {
            let values = &self.rows[row * self.inputs..][..self.inputs];
            for group in 0..groups {
                let mut sums = [0i32; PANEL];
                for k in group * self.group..(group + 1) * self.group {
                    let weights = &self.weights[(k / 2) * 2 * PANEL..][..2 * PANEL];
                    for (column, sum) in sums.iter_mut().enumerate() {
                        *sum += i32::from(values[k]) * i32::from(weights[column * 2 + k % 2]);
                    }
                }
                let row_scale = self.row_scales[row * groups + group];
                let scales = &self.weight_scales[group * PANEL..][..PANEL];
                for ((out, sum), scale) in out.0.iter_mut().zip(sums).zip(scales) {
                    *out = (sum as f32).mul_add(row_scale * scale, *out);
                }
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[allow(unsafe_code, clippy::needless_range_loop)]
    #[target_feature(enable = "avx512f,avx512vnni")]
    unsafe fn avx512<const R: usize>(&self, tile: &mut Tile) {
        use std::arch::x86_64::*;
        let groups = self.inputs / self.group;
        let pairs = self.group / 2;
        // SAFETY: all pointers stay inside the asserted slices.
        unsafe {
            let rows: [*const i32; R] =
                std::array::from_fn(|row| self.rows.as_ptr().add(row * self.inputs).cast::<i32>());
            for group in 0..groups {
                let mut sums = [[_mm512_setzero_si512(); 2]; R];
                let weights = self.weights.as_ptr().add(group * self.group * PANEL);
                let base = group * pairs;
                for pair in 0..pairs {
                    let at = weights.add(pair * 2 * PANEL);
                    let low = _mm512_loadu_si512(at.cast());
                    let high = _mm512_loadu_si512(at.add(PANEL).cast());
                    for row in 0..R {
                        let value = _mm512_set1_epi32(rows[row].add(base + pair).read_unaligned());
                        sums[row][0] = multiply_add(sums[row][0], value, low);
                        sums[row][1] = multiply_add(sums[row][1], value, high);
                    }
                }
                let scales = self.weight_scales.as_ptr().add(group * PANEL);
                for row in 0..R {
                    let row_scale = _mm512_set1_ps(self.row_scales[row * groups + group]);
                    for half in 0..2 {
                        let out = tile[row].0.as_mut_ptr().add(half * 16);
                        let scale =
                            _mm512_mul_ps(row_scale, _mm512_loadu_ps(scales.add(half * 16)));
                        let sum = _mm512_cvtepi32_ps(sums[row][half]);
                        _mm512_storeu_ps(out, _mm512_fmadd_ps(sum, scale, _mm512_loadu_ps(out)));
                    }
                }
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[allow(unsafe_code, clippy::needless_range_loop)]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn avx2<const R: usize>(&self, first: usize, half: usize, tile: &mut Tile) {
        use std::arch::x86_64::*;
        let groups = self.inputs / self.group;
        let pairs = self.group / 2;
        // SAFETY: all pointers stay inside the asserted slices.
        unsafe {
            let rows: [*const i32; R] = std::array::from_fn(|row| {
                self.rows
                    .as_ptr()
                    .add((first + row) * self.inputs)
                    .cast::<i32>()
            });
            for group in 0..groups {
                let mut sums = [[_mm256_setzero_si256(); 2]; R];
                let weights = self
                    .weights
                    .as_ptr()
                    .add(group * self.group * PANEL + half * PANEL);
                let base = group * pairs;
                for pair in 0..pairs {
                    let at = weights.add(pair * 2 * PANEL);
                    let low = _mm256_loadu_si256(at.cast());
                    let high = _mm256_loadu_si256(at.add(16).cast());
                    for row in 0..R {
                        let value = _mm256_set1_epi32(rows[row].add(base + pair).read_unaligned());
                        sums[row][0] =
                            _mm256_add_epi32(sums[row][0], _mm256_madd_epi16(value, low));
                        sums[row][1] =
                            _mm256_add_epi32(sums[row][1], _mm256_madd_epi16(value, high));
                    }
                }
                let scales = self.weight_scales.as_ptr().add(group * PANEL + half * 16);
                for row in 0..R {
                    let row_scale = _mm256_set1_ps(self.row_scales[(first + row) * groups + group]);
                    for part in 0..2 {
                        let out = tile[first + row].0.as_mut_ptr().add(half * 16 + part * 8);
                        let scale = _mm256_mul_ps(row_scale, _mm256_loadu_ps(scales.add(part * 8)));
                        let sum = _mm256_cvtepi32_ps(sums[row][part]);
                        _mm256_storeu_ps(out, _mm256_fmadd_ps(sum, scale, _mm256_loadu_ps(out)));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::samples::values;

    fn forward(isa: Isa, rows: usize, inputs: usize, outputs: usize) -> Vec<f32> {
        let weight = values(inputs * outputs, 3);
        let x = values(rows * inputs, 9);
        let panels = Panels::pack(&weight, inputs, outputs, isa).unwrap();
        let mut out = vec![0.0; rows * outputs];
        panels.forward(&x, &mut RoundedRows::default(), Finish::Plain, &mut out);
        out
    }

    #[test]
    fn instruction_sets_agree_to_the_bit() {
        for (rows, inputs, outputs) in [(1, 64, 5), (3, 96, 32), (8, 128, 33), (13, 896, 70)] {
            let want = forward(Isa::Scalar, rows, inputs, outputs);
            for isa in Isa::available() {
                assert_eq!(
                    forward(isa, rows, inputs, outputs),
                    want,
                    "{isa:?} {rows} {inputs}"
                );
            }
        }
    }

    #[test]
    fn products_are_close_to_exact_ones() {
        let (rows, inputs, outputs) = (7, 576, 40);
        let got = forward(Isa::detect(), rows, inputs, outputs);
        let (weight, x) = (values(inputs * outputs, 3), values(rows * inputs, 9));
        for row in 0..rows {
            for column in 0..outputs {
                let exact: f64 = (0..inputs)
                    .map(|k| {
                        f64::from(x[row * inputs + k]) * f64::from(weight[column * inputs + k])
                    })
                    .sum();
                // Rounding errors of 1/8190 and 1/4094 of full scale, over sqrt(inputs) terms.
                let error = (f64::from(got[row * outputs + column]) - exact).abs();
                assert!(error < 0.03, "{row} {column}: {error}");
            }
        }
    }

    #[test]
    fn a_row_does_not_depend_on_its_company_in_any_bit() {
        let (inputs, outputs) = (896, 64);
        let weight = values(inputs * outputs, 3);
        let x = values(11 * inputs, 9);
        let panels = Panels::pack(&weight, inputs, outputs, Isa::detect()).unwrap();
        let mut rounded = RoundedRows::default();
        let mut together = vec![0.0; 11 * outputs];
        panels.forward(&x, &mut rounded, Finish::Plain, &mut together);
        for row in 0..11 {
            let mut alone = vec![0.0; outputs];
            panels.forward(
                &x[row * inputs..][..inputs],
                &mut rounded,
                Finish::Plain,
                &mut alone,
            );
            assert_eq!(alone, together[row * outputs..][..outputs]);
        }
    }

    #[test]
    fn the_largest_values_do_not_overflow() {
        let inputs = 128;
        let weight = vec![-1.0; inputs * 32];
        let panels = Panels::pack(&weight, inputs, 32, Isa::detect()).unwrap();
        let mut out = vec![0.0; 32];
        panels.forward(
            &vec![1.0; inputs],
            &mut RoundedRows::default(),
            Finish::Plain,
            &mut out,
        );
        assert!(
            out.iter().all(|value| (value + 128.0).abs() < 1e-3),
            "{out:?}"
        );
    }

    #[test]
    fn widths_without_a_group_are_refused() {
        assert!(Panels::pack(&[0.0; 100], 50, 2, Isa::Scalar).is_none());
    }
}
