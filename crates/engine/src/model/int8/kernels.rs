//! The kernels of the 8-bit tier: one panel of weights by one block of rounded rows.
//!
//! All pass over a few groups at a time, so that their weights are read from memory once a block;
//! a group's sums start at its offsets, stay exact in 32 bits, and are scaled once. Kernels differ
//! in instructions and in the rows that they keep in registers, not in any bit of the result.

use super::super::integer::{Columns, PANEL, Place};
use super::super::isa::Isa;
use super::Fours;

/// Inputs that one pass aims for: with the block's rows they fit the first-level cache.
const PASS_INPUTS: usize = 576;

/// A panel and a block of rows.
pub(super) struct Block<'a> {
    /// `[groups][group / 4]`
    pub(super) weights: &'a [Fours],
    /// `[groups]`
    pub(super) weight_scales: &'a [Columns<f32>],
    /// `[groups]` what a group's sums start at.
    pub(super) offsets: &'a [Columns<i32>],
    /// `[groups][rows][group]`
    pub(super) rows: &'a [u8],
    /// `[groups][rows]`
    pub(super) row_scales: &'a [f32],
    /// Inputs that share a scale.
    pub(super) group: usize,
    /// Where the last sums go; none when they stay in the tile.
    pub(super) place: Option<Place>,
}

/// The groups of one pass for some consecutive rows of a block.
#[derive(Clone, Copy)]
struct Strip<'a> {
    is_first: bool, // whether nothing is in the tile yet
    groups: usize,
    group: usize,                      // inputs of a group
    stride: usize,                     // rows of the block
    weights: &'a [Fours],              // [groups][group / 4]
    weight_scales: &'a [Columns<f32>], // [groups]
    offsets: &'a [Columns<i32>],       // [groups]
    rows: &'a [u8],                    // [groups][stride][group], from the strip's first row on
    row_scales: &'a [f32],             // [groups][stride], likewise
    place: Option<Place>,              // of the strip's first row, in the last pass
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
    /// Sums every row of the block in `tile`; the finished sums go to the place, if there is one.
    #[allow(unsafe_code)]
    pub(super) fn multiply(&self, isa: Isa, tile: &mut [Columns<f32>]) {
        match isa {
            Isa::Scalar => self.strips(1, tile, |strip, tile| scalar(strip, &mut tile[0].0)),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `Isa::available` found the features.
            Isa::Avx512Vnni => self.strips(8, tile, |strip, tile| unsafe {
                with_rows!(avx512, strip, tile, 1 2 3 4 5 6 7 8);
            }),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Isa::AvxVnni => self.strips(5, tile, |strip, tile| unsafe {
                with_rows!(avx_vnni, strip, tile, 1 2 3 4 5);
            }),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Isa::Avx2 => self.strips(4, tile, |strip, tile| unsafe {
                with_rows!(avx2, strip, tile, 1 2 3 4);
            }),
            #[cfg(not(target_arch = "x86_64"))]
            _ => self.strips(1, tile, |strip, tile| scalar(strip, &mut tile[0].0)),
        }
    }

    /// Visits the groups of every pass for every `rows_max` rows.
    #[inline(always)]
    fn strips(
        &self,
        rows_max: usize,
        tile: &mut [Columns<f32>],
        kernel: impl Fn(Strip<'_>, &mut [Columns<f32>]),
    ) {
        let stride = tile.len();
        let (all, group) = (self.weight_scales.len(), self.group);
        let pass = (PASS_INPUTS / group).max(1);
        for first in (0..all).step_by(pass) {
            let groups = pass.min(all - first);
            let rows = &self.rows[first * stride * group..];
            let row_scales = &self.row_scales[first * stride..];
            for (index, tile) in tile.chunks_mut(rows_max).enumerate() {
                let strip = Strip {
                    is_first: first == 0,
                    groups,
                    group,
                    stride,
                    weights: &self.weights[first * group / 4..][..groups * group / 4],
                    weight_scales: &self.weight_scales[first..][..groups],
                    offsets: &self.offsets[first..][..groups],
                    rows: &rows[index * rows_max * group..],
                    row_scales: &row_scales[index * rows_max..],
                    place: match self.place {
                        Some(place) if first + groups == all => Some(place.below(index * rows_max)),
                        _ => None,
                    },
                };
                kernel(strip, tile);
            }
        }
    }
}

impl Strip<'_> {
    /// Asserts that all that a kernel of `count` rows reads lies inside the slices.
    #[inline(always)]
    fn check(&self, count: usize) {
        let rows = (self.groups - 1) * self.stride + count;
        assert!(self.groups > 0 && count <= self.stride);
        assert!(self.weights.len() * 4 == self.groups * self.group);
        assert!(self.weight_scales.len() == self.groups);
        assert!(self.offsets.len() == self.groups);
        assert!(self.rows.len() >= rows * self.group && self.row_scales.len() >= rows);
    }
}

#[allow(unsafe_code)]
fn scalar(strip: Strip<'_>, out: &mut [f32; PANEL]) {
    if strip.is_first {
        out.fill(0.0);
    }
    for group in 0..strip.groups {
        let row = &strip.rows[group * strip.stride * strip.group..][..strip.group];
        let row_scale = strip.row_scales[group * strip.stride];
        let mut sums = [0i32; PANEL];
        sums.copy_from_slice(&strip.offsets[group].0);
        for (k, value) in row.iter().enumerate() {
            let weights = &strip.weights[group * strip.group / 4 + k / 4].0;
            for (column, sum) in sums.iter_mut().enumerate() {
                *sum += i32::from(*value) * i32::from(weights[column * 4 + k % 4]);
            }
        }
        let scales = &strip.weight_scales[group].0;
        for ((out, sum), scale) in out.iter_mut().zip(sums).zip(scales) {
            *out = (sum as f32).mul_add(row_scale * scale, *out);
        }
    }
    if let Some(place) = strip.place {
        // SAFETY: the place has this row.
        unsafe { place.start.copy_from_nonoverlapping(out.as_ptr(), PANEL) };
    }
}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, clippy::needless_range_loop)]
#[target_feature(enable = "avx512f,avx512vnni")]
fn avx512<const R: usize>(strip: Strip<'_>, tile: &mut [Columns<f32>]) {
    use std::arch::x86_64::*;
    assert!(tile.len() == R);
    strip.check(R);
    let size = strip.group;
    for group in 0..strip.groups {
        let place = strip.place.filter(|_| group + 1 == strip.groups);
        // SAFETY: all pointers stay inside the slices, as `check` asserted, or in the place.
        unsafe {
            let rows = strip.rows.as_ptr().add(group * strip.stride * size);
            let weights = strip.weights.as_ptr().add(group * size / 4).cast::<i8>();
            let offsets = strip.offsets[group].0.as_ptr();
            let start = [
                _mm512_loadu_si512(offsets.cast()),
                _mm512_loadu_si512(offsets.add(16).cast()),
            ];
            let mut sums = [start; R];
            for at in (0..size).step_by(4) {
                let low = _mm512_loadu_si512(weights.add(at * PANEL).cast());
                let high = _mm512_loadu_si512(weights.add(at * PANEL + 64).cast());
                for row in 0..R {
                    let value = rows.add(row * size + at).cast::<i32>().read_unaligned();
                    let value = _mm512_set1_epi32(value);
                    sums[row][0] = _mm512_dpbusd_epi32(sums[row][0], value, low);
                    sums[row][1] = _mm512_dpbusd_epi32(sums[row][1], value, high);
                }
            }
            let scales = strip.weight_scales[group].0.as_ptr();
            let scales = [_mm512_loadu_ps(scales), _mm512_loadu_ps(scales.add(16))];
            let row_scales = strip.row_scales.as_ptr().add(group * strip.stride);
            for row in 0..R {
                let row_scale = _mm512_set1_ps(*row_scales.add(row));
                for half in 0..2 {
                    let out = tile[row].0.as_mut_ptr().add(half * 16);
                    let scale = _mm512_mul_ps(row_scale, scales[half]);
                    let sum = _mm512_cvtepi32_ps(sums[row][half]);
                    let before = if strip.is_first && group == 0 {
                        _mm512_setzero_ps()
                    } else {
                        _mm512_loadu_ps(out)
                    };
                    let to = match place {
                        Some(place) => place.start.add(row * place.stride + half * 16),
                        None => out,
                    };
                    _mm512_storeu_ps(to, _mm512_fmadd_ps(sum, scale, before));
                }
            }
        }
    }
}

/// The 256-bit kernels: `$step` adds the products of eight inputs by eight columns to a sum, from
/// two broadcasts of four inputs and the two weight vectors that belong to them; `$offset` says
/// whether it leaves what was added to the inputs to the offsets.
#[cfg(target_arch = "x86_64")]
macro_rules! narrow {
    ($(#[$attribute:meta])* $name:ident, $step:ident, $offset:literal) => {
        $(#[$attribute])*
        #[allow(unsafe_code, clippy::needless_range_loop)]
        fn $name<const R: usize>(strip: Strip<'_>, tile: &mut [Columns<f32>]) {
            use std::arch::x86_64::*;
            assert!(tile.len() == R);
            strip.check(R);
            let size = strip.group;
            for (group, half) in (0..strip.groups).flat_map(|group| [(group, 0), (group, 16)]) {
                let place = strip.place.filter(|_| group + 1 == strip.groups);
                // SAFETY: all pointers stay inside the slices, as `check` asserted, or in the place.
                unsafe {
                    let rows = strip.rows.as_ptr().add(group * strip.stride * size);
                    let weights = strip.weights.as_ptr().add(group * size / 4).cast::<i8>();
                    let weights = weights.add(half * 4);
                    let offsets = strip.offsets[group].0.as_ptr().add(half);
                    let mut sums = [[_mm256_setzero_si256(); 2]; R];
                    if $offset {
                        let low = _mm256_loadu_si256(offsets.cast());
                        sums = [[low, _mm256_loadu_si256(offsets.add(8).cast())]; R];
                    }
                    for at in (0..size).step_by(8) {
                        let load = |four: usize, part: usize| {
                            let at = (at + four * 4) * PANEL + part * 32;
                            _mm256_loadu_si256(weights.add(at).cast())
                        };
                        let low = [load(0, 0), load(1, 0)];
                        let high = [load(0, 1), load(1, 1)];
                        for row in 0..R {
                            let value = rows.add(row * size + at).cast::<i32>();
                            let values = [
                                _mm256_set1_epi32(value.read_unaligned()),
                                _mm256_set1_epi32(value.add(1).read_unaligned()),
                            ];
                            sums[row][0] = $step(sums[row][0], values, low);
                            sums[row][1] = $step(sums[row][1], values, high);
                        }
                    }
                    let scales = strip.weight_scales[group].0.as_ptr().add(half);
                    let row_scales = strip.row_scales.as_ptr().add(group * strip.stride);
                    for row in 0..R {
                        let row_scale = _mm256_set1_ps(*row_scales.add(row));
                        for part in 0..2 {
                            let out = tile[row].0.as_mut_ptr().add(half + part * 8);
                            let scale =
                                _mm256_mul_ps(row_scale, _mm256_loadu_ps(scales.add(part * 8)));
                            let sum = _mm256_cvtepi32_ps(sums[row][part]);
                            let before = if strip.is_first && group == 0 {
                                _mm256_setzero_ps()
                            } else {
                                _mm256_loadu_ps(out)
                            };
                            let to = match place {
                                Some(place) => {
                                    place.start.add(row * place.stride + half + part * 8)
                                }
                                None => out,
                            };
                            _mm256_storeu_ps(to, _mm256_fmadd_ps(sum, scale, before));
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
    accumulate,
    true
);

#[cfg(target_arch = "x86_64")]
narrow!(
    #[target_feature(enable = "avx2,fma")]
    avx2,
    multiply_signed,
    false
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
fn multiply_signed(sum: __m256i, values: [__m256i; 2], weights: [__m256i; 2]) -> __m256i {
    use std::arch::x86_64::*;
    let four = |value: __m256i, weight: __m256i| {
        // Magnitudes times weights that took their signs: two products of 127 * 127 fit 16 bits.
        let value = _mm256_xor_si256(value, _mm256_set1_epi8(i8::MIN));
        let two = _mm256_maddubs_epi16(_mm256_abs_epi8(value), _mm256_sign_epi8(weight, value));
        _mm256_madd_epi16(two, _mm256_set1_epi16(1))
    };
    let sum = _mm256_add_epi32(sum, four(values[0], weights[0]));
    _mm256_add_epi32(sum, four(values[1], weights[1]))
}
