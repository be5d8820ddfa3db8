//! The kernels of the 8-bit tier: one panel of weights by one block of rounded rows.
//!
//! All walk group by group, so that a group's weights are read from memory once a block; sums start
//! at the offsets, stay exact in 32 bits, and are scaled once a group. They differ in instructions
//! and in the rows that they keep in registers, not in any bit of the result.

use super::super::integer::{Isa, PANEL};

/// Sums of a block, `[rows][32]`.
pub(super) type Tile = [[f32; PANEL]; super::BLOCK_ROWS];

/// A panel and a block of rows.
pub(super) struct Block<'a> {
    /// `[groups][group / 4][32][4]`
    pub(super) weights: &'a [i8],
    /// `[groups][32]`
    pub(super) weight_scales: &'a [f32],
    /// `[groups][32]` what a group's sums start at.
    pub(super) offsets: &'a [i32],
    /// `[groups][rows][group]`
    pub(super) rows: &'a [u8],
    /// `[groups][rows]`
    pub(super) row_scales: &'a [f32],
    /// Inputs of a group.
    pub(super) group: usize,
}

/// One group of a panel and of some consecutive rows of a block.
#[derive(Clone, Copy)]
struct Strip<'a> {
    weights: &'a [i8],        // [group / 4][32][4]
    weight_scales: &'a [f32], // [32]
    offsets: &'a [i32],       // [32]
    rows: &'a [u8],           // [rows][group]
    row_scales: &'a [f32],    // [rows]
}

/// Calls a kernel with the number of rows as a constant.
macro_rules! with_rows {
    ($kernel:ident, $strip:expr, $tile:expr, $($count:literal)*) => {
        match $tile.len() {
            $($count => $kernel::<$count>($strip, $tile),)*
            rows => unreachable!("{rows} rows in one strip"),
        }
    };
}

impl Block<'_> {
    /// Fills `tile`, one row of sums for each row of the block.
    #[allow(unsafe_code)]
    pub(super) fn multiply(&self, isa: Isa, tile: &mut [[f32; PANEL]]) {
        tile.iter_mut().for_each(|row| row.fill(0.0));
        match isa {
            Isa::Scalar => self.strips(1, tile, |strip, tile| scalar(strip, &mut tile[0])),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `Isa::available` found the features.
            Isa::Avx512Vnni => self.strips(8, tile, |strip, tile| unsafe {
                with_rows!(avx512, strip, tile, 1 2 3 4 5 6 7 8);
            }),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Isa::AvxVnni => self.strips(6, tile, |strip, tile| unsafe {
                with_rows!(avx_vnni, strip, tile, 1 2 3 4 5 6);
            }),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Isa::Avx2 => self.strips(4, tile, |strip, tile| unsafe {
                with_rows!(avx2, strip, tile, 1 2 3 4);
            }),
            #[cfg(not(target_arch = "x86_64"))]
            _ => self.strips(1, tile, |strip, tile| scalar(strip, &mut tile[0])),
        }
    }

    /// Visits every group of every `rows_max` rows.
    #[inline(always)]
    fn strips(
        &self,
        rows_max: usize,
        tile: &mut [[f32; PANEL]],
        kernel: impl Fn(Strip<'_>, &mut [[f32; PANEL]]),
    ) {
        let (count, group) = (tile.len(), self.group);
        for index in 0..self.weight_scales.len() / PANEL {
            let rows = &self.rows[index * count * group..][..count * group];
            let row_scales = &self.row_scales[index * count..][..count];
            let strips = rows
                .chunks(rows_max * group)
                .zip(row_scales.chunks(rows_max))
                .zip(tile.chunks_mut(rows_max));
            for ((rows, row_scales), tile) in strips {
                let strip = Strip {
                    weights: &self.weights[index * group * PANEL..][..group * PANEL],
                    weight_scales: &self.weight_scales[index * PANEL..][..PANEL],
                    offsets: &self.offsets[index * PANEL..][..PANEL],
                    rows,
                    row_scales,
                };
                kernel(strip, tile);
            }
        }
    }
}

fn scalar(strip: Strip<'_>, out: &mut [f32; PANEL]) {
    let mut sums = [0i32; PANEL];
    sums.copy_from_slice(strip.offsets);
    for (k, value) in strip.rows.iter().enumerate() {
        let weights = &strip.weights[(k / 4) * 4 * PANEL..][..4 * PANEL];
        for (column, sum) in sums.iter_mut().enumerate() {
            *sum += i32::from(*value) * i32::from(weights[column * 4 + k % 4]);
        }
    }
    for ((out, sum), scale) in out.iter_mut().zip(sums).zip(strip.weight_scales) {
        *out = (sum as f32).mul_add(strip.row_scales[0] * scale, *out);
    }
}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, clippy::needless_range_loop)]
#[target_feature(enable = "avx512f,avx512vnni")]
fn avx512<const R: usize>(strip: Strip<'_>, tile: &mut [[f32; PANEL]]) {
    use std::arch::x86_64::*;
    let group = strip.rows.len() / R;
    assert!(tile.len() == R && strip.row_scales.len() == R);
    assert!(strip.weights.len() == group * PANEL && group.is_multiple_of(4));
    assert!(strip.offsets.len() == PANEL && strip.weight_scales.len() == PANEL);
    // SAFETY: all pointers stay inside the slices, whose lengths were just asserted.
    unsafe {
        let rows: [*const u8; R] = std::array::from_fn(|row| strip.rows.as_ptr().add(row * group));
        let offsets = strip.offsets.as_ptr();
        let start = [
            _mm512_loadu_si512(offsets.cast()),
            _mm512_loadu_si512(offsets.add(16).cast()),
        ];
        let mut sums = [start; R];
        for at in (0..group).step_by(4) {
            let weights = strip.weights.as_ptr().add(at * PANEL);
            let low = _mm512_loadu_si512(weights.cast());
            let high = _mm512_loadu_si512(weights.add(64).cast());
            for row in 0..R {
                let value = _mm512_set1_epi32(rows[row].add(at).cast::<i32>().read_unaligned());
                sums[row][0] = _mm512_dpbusd_epi32(sums[row][0], value, low);
                sums[row][1] = _mm512_dpbusd_epi32(sums[row][1], value, high);
            }
        }
        let scales = strip.weight_scales.as_ptr();
        let scales = [_mm512_loadu_ps(scales), _mm512_loadu_ps(scales.add(16))];
        for row in 0..R {
            let row_scale = _mm512_set1_ps(strip.row_scales[row]);
            for half in 0..2 {
                let out = tile[row].as_mut_ptr().add(half * 16);
                let scale = _mm512_mul_ps(row_scale, scales[half]);
                let sum = _mm512_cvtepi32_ps(sums[row][half]);
                _mm512_storeu_ps(out, _mm512_fmadd_ps(sum, scale, _mm512_loadu_ps(out)));
            }
        }
    }
}

/// The 256-bit kernels: `$step` adds the products of eight inputs by eight columns to `$sum`, from
/// two broadcasts of four inputs and the two weight vectors that belong to them.
#[cfg(target_arch = "x86_64")]
macro_rules! narrow {
    ($(#[$attribute:meta])* $name:ident, $step:ident) => {
        $(#[$attribute])*
        #[allow(unsafe_code, clippy::needless_range_loop)]
        fn $name<const R: usize>(strip: Strip<'_>, tile: &mut [[f32; PANEL]]) {
            use std::arch::x86_64::*;
            let group = strip.rows.len() / R;
            assert!(tile.len() == R && strip.row_scales.len() == R);
            assert!(strip.weights.len() == group * PANEL && group.is_multiple_of(8));
            assert!(strip.offsets.len() == PANEL && strip.weight_scales.len() == PANEL);
            // SAFETY: all pointers stay inside the slices, whose lengths were just asserted.
            unsafe {
                let rows: [*const u8; R] =
                    std::array::from_fn(|row| strip.rows.as_ptr().add(row * group));
                for half in 0..2 {
                    let offsets = strip.offsets.as_ptr().add(half * 16);
                    let start = [
                        _mm256_loadu_si256(offsets.cast()),
                        _mm256_loadu_si256(offsets.add(8).cast()),
                    ];
                    let mut sums = [start; R];
                    for at in (0..group).step_by(8) {
                        let weights = strip.weights.as_ptr().add(at * PANEL + half * 64);
                        let load = |step: usize, part: usize| {
                            _mm256_loadu_si256(weights.add(step * 4 * PANEL + part * 32).cast())
                        };
                        let low = [load(0, 0), load(1, 0)];
                        let high = [load(0, 1), load(1, 1)];
                        for row in 0..R {
                            let value = rows[row].add(at).cast::<i32>();
                            let values = [
                                _mm256_set1_epi32(value.read_unaligned()),
                                _mm256_set1_epi32(value.add(1).read_unaligned()),
                            ];
                            sums[row][0] = $step(sums[row][0], values, low);
                            sums[row][1] = $step(sums[row][1], values, high);
                        }
                    }
                    let scales = strip.weight_scales.as_ptr().add(half * 16);
                    for row in 0..R {
                        let row_scale = _mm256_set1_ps(strip.row_scales[row]);
                        for part in 0..2 {
                            let out = tile[row].as_mut_ptr().add(half * 16 + part * 8);
                            let scale =
                                _mm256_mul_ps(row_scale, _mm256_loadu_ps(scales.add(part * 8)));
                            let sum = _mm256_cvtepi32_ps(sums[row][part]);
                            _mm256_storeu_ps(out, _mm256_fmadd_ps(sum, scale, _mm256_loadu_ps(out)));
                        }
                    }
                }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
narrow!(
    #[target_feature(enable = "avx2,fma,avxvnni")]
    avx_vnni,
    accumulate
);

#[cfg(target_arch = "x86_64")]
narrow!(
    #[target_feature(enable = "avx2,fma")]
    avx2,
    meet
);

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::__m256i;

#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avxvnni")]
fn accumulate(sum: __m256i, values: [__m256i; 2], weights: [__m256i; 2]) -> __m256i {
    use std::arch::x86_64::_mm256_dpbusd_avx_epi32;
    let sum = _mm256_dpbusd_avx_epi32(sum, values[0], weights[0]);
    _mm256_dpbusd_avx_epi32(sum, values[1], weights[1])
}

#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx2")]
fn meet(sum: __m256i, values: [__m256i; 2], weights: [__m256i; 2]) -> __m256i {
    use std::arch::x86_64::{
        _mm256_add_epi16, _mm256_add_epi32, _mm256_madd_epi16, _mm256_maddubs_epi16,
        _mm256_set1_epi16,
    };
    let first = _mm256_maddubs_epi16(values[0], weights[0]);
    let second = _mm256_maddubs_epi16(values[1], weights[1]);
    // Packing bounds what meets here, so that neither step saturates or wraps.
    let four = _mm256_add_epi16(first, second);
    _mm256_add_epi32(sum, _mm256_madd_epi16(four, _mm256_set1_epi16(1)))
}
