//! Attention in 16-bit integers, for machines that multiply and accumulate them: twice the rate of
//! f32.
//!
//! Keys are rounded to 12 bits with one scale per key, values to 11 bits with one scale per
//! dimension and panel of 64 keys; query rows to 13 bits, softmax weights to 15 bits of the largest.
//! Score, softmax and weighted sum of six rows by one panel stay in the first-level cache. A row's
//! result does not depend on the other rows. Knows slices, no batches.

#[cfg(target_arch = "x86_64")]
use super::integer::multiply_add;
use super::integer::{Aligned, largest, nearest};
use super::isa::Isa;

/// Keys of one panel.
pub(super) const PANEL: usize = 64;
/// Query rows of the register tile.
const ROWS: usize = 6;
/// Dimensions that one register tile of sums holds; head widths must be a multiple.
const WIDTH: usize = 64;
/// Widest head.
const DIM_MAX: usize = 256;
/// Largest magnitude of a rounded key.
const KEY_MAX: f32 = 2047.0;
/// Largest magnitude of a rounded value.
const VALUE_MAX: f32 = 1023.0;
/// Largest magnitude of a rounded query.
const QUERY_MAX: f32 = 4095.0;
/// Weight of a row's largest score: fine enough for the many small weights beside a token that
/// draws most of the attention. 64 keys of it and the largest value stay below 2^31.
const WEIGHT_MAX: f32 = 32767.0;

const _: () = assert!(64 * WEIGHT_MAX as i64 * VALUE_MAX as i64 <= i32::MAX as i64);
const _: () = assert!(DIM_MAX as i64 * QUERY_MAX as i64 * KEY_MAX as i64 <= i32::MAX as i64);

/// Two neighbours of 16 bits, the first one low, for each of 16 columns.
type Pairs = Aligned<[i32; 16]>;

/// Keys and values of one head, packed.
#[derive(Debug, Default)]
pub struct Head {
    dim: usize,
    len: usize,
    keys: Vec<Pairs>,       // [panels][dim / 2][64 keys]
    key_scales: Vec<f32>,   // [panels * 64]
    values: Vec<Pairs>,     // [panels][dim / 64][32 pairs of keys 32 apart][64 dims]
    value_scales: Vec<f32>, // [panels][dim]
}

/// Query rows rounded for [`Head::attend`], and what the kernel needs beside them.
#[derive(Debug, Default)]
pub struct RoundedQuery {
    values: Vec<i16>,              // [rows, dim]
    scales: Vec<f32>,              // [rows]
    sums: Vec<Aligned<[f32; 16]>>, // [rows] sums of weights, by column modulo 16
}

impl RoundedQuery {
    /// Rounds `query`, f32 `[rows, dim]`, one scale a row; `dim` is a multiple of 64.
    #[allow(unsafe_code)]
    pub fn round(&mut self, query: &[f32], dim: usize) {
        self.values.resize(query.len(), 0);
        self.scales.resize(query.len() / dim, 0.0);
        #[cfg(target_arch = "x86_64")]
        {
            #[target_feature(enable = "avx512f,avx512bw")]
            fn wide(query: &[f32], dim: usize, values: &mut [i16], scales: &mut [f32]) {
                round_rows(query, dim, values, scales);
            }
            if Head::is_available(dim) {
                // SAFETY: the features were just detected.
                return unsafe { wide(query, dim, &mut self.values, &mut self.scales) };
            }
        }
        round_rows(query, dim, &mut self.values, &mut self.scales);
    }
}

#[inline(always)]
fn round_rows(query: &[f32], dim: usize, values: &mut [i16], scales: &mut [f32]) {
    let rows = query.chunks_exact(dim).zip(values.chunks_exact_mut(dim));
    for ((row, values), scale) in rows.zip(scales) {
        *scale = largest(row) / QUERY_MAX;
        let inverse = inverse(*scale);
        for (target, value) in values.iter_mut().zip(row) {
            *target = nearest(value * inverse) as i16;
        }
    }
}

/// Rows of one context, each of which sees the keys up to its own token.
#[derive(Debug, Clone, Copy)]
pub struct Causal {
    /// Keys before the first row's token.
    pub start: usize,
    /// Rows of one token.
    pub group: usize,
}

impl Causal {
    /// Keys that a row sees.
    fn seen(self, row: usize) -> usize {
        self.start + row / self.group + 1
    }
}

/// Running softmax of query rows, as the caller keeps it: f32 `[rows]`, `[rows]` and `[rows, dim]`.
pub struct Softmax<'a> {
    /// Largest score so far.
    pub max: &'a mut [f32],
    /// Sum of weights so far.
    pub sum: &'a mut [f32],
    /// Weighted sum of values so far.
    pub out: &'a mut [f32],
}

/// Two numbers of 16 bits in one of 32, the first one low.
#[inline(always)]
fn join(low: i32, high: i32) -> i32 {
    (low & 0xffff) | (high << 16)
}

#[inline(always)]
fn inverse(scale: f32) -> f32 {
    if scale > 0.0 { 1.0 / scale } else { 0.0 }
}

impl Head {
    /// Whether this machine and width have the kernel.
    pub fn is_available(dim: usize) -> bool {
        dim.is_multiple_of(WIDTH) && dim <= DIM_MAX && Isa::detect() >= Isa::Avx512Vnni
    }

    /// Rounds and packs `len` keys and values, rows of `dim` f32 that lie `stride` apart; what the
    /// head held before is forgotten, its memory stays.
    ///
    /// # Panics
    /// If the slices are too short or `dim` is not a multiple of 64.
    #[allow(unsafe_code)]
    pub fn pack(&mut self, keys: &[f32], values: &[f32], stride: usize, len: usize, dim: usize) {
        assert!(dim.is_multiple_of(WIDTH) && stride >= dim && len > 0);
        let needed = (len - 1) * stride + dim;
        assert!(keys.len() >= needed && values.len() >= needed);
        let panels = len.div_ceil(PANEL);
        let blank = Aligned([0; 16]);
        (self.dim, self.len) = (dim, len);
        self.keys.resize(panels * PANEL * dim / 32, blank);
        self.key_scales.resize(panels * PANEL, 0.0);
        self.values.resize(panels * PANEL * dim / 32, blank);
        self.value_scales.resize(panels * dim, 0.0);
        #[cfg(target_arch = "x86_64")]
        {
            #[target_feature(enable = "avx512f,avx512bw,avx512dq")]
            fn wide(head: &mut Head, keys: &[f32], values: &[f32], stride: usize) {
                head.pack_keys(keys, stride);
                head.pack_values(values, stride);
            }
            if Self::is_available(dim) {
                // SAFETY: the features were just detected.
                return unsafe { wide(self, keys, values, stride) };
            }
        }
        self.pack_keys(keys, stride);
        self.pack_values(values, stride);
    }

    #[inline(always)]
    fn pack_keys(&mut self, keys: &[f32], stride: usize) {
        let mut rounded = [0i32; DIM_MAX / 2];
        let rounded = &mut rounded[..self.dim / 2];
        for key in 0..self.key_scales.len() {
            let (panel, column) = (key / PANEL, key % PANEL);
            if key < self.len {
                let row = &keys[key * stride..][..self.dim];
                let scale = largest(row) / KEY_MAX;
                let inverse = inverse(scale);
                self.key_scales[key] = scale;
                for (pair, row) in rounded.iter_mut().zip(row.as_chunks::<2>().0) {
                    *pair = join(nearest(row[0] * inverse), nearest(row[1] * inverse));
                }
            } else {
                self.key_scales[key] = 0.0;
                rounded.fill(0);
            }
            let vectors = &mut self.keys[panel * self.dim * PANEL / 32..];
            let vectors = vectors.iter_mut().skip(column / 16).step_by(PANEL / 16);
            for (vector, pair) in vectors.zip(&*rounded) {
                vector.0[column % 16] = *pair;
            }
        }
    }

    #[inline(always)]
    fn pack_values(&mut self, values: &[f32], stride: usize) {
        let dim = self.dim;
        let nothing = [0.0; DIM_MAX];
        for panel in 0..self.len.div_ceil(PANEL) {
            let first = panel * PANEL;
            let count = PANEL.min(self.len - first);
            let mut inverses = [0.0f32; DIM_MAX];
            let inverses = &mut inverses[..dim];
            for key in first..first + count {
                for (max, value) in inverses.iter_mut().zip(&values[key * stride..][..dim]) {
                    let magnitude = value.abs();
                    *max = if magnitude > *max { magnitude } else { *max };
                }
            }
            let scales = &mut self.value_scales[panel * dim..][..dim];
            for (scale, max) in scales.iter_mut().zip(&mut *inverses) {
                *scale = *max / VALUE_MAX;
                *max = inverse(*scale);
            }
            let row = |at: usize| match at < count {
                true => &values[(first + at) * stride..][..dim],
                false => &nothing[..dim],
            };
            for pair in 0..PANEL / 2 {
                let (low, high) = (row(pair), row(pair + PANEL / 2));
                for part in 0..dim / WIDTH {
                    let at = ((panel * dim / WIDTH + part) * PANEL / 2 + pair) * (WIDTH / 16);
                    let vectors = self.values[at..][..WIDTH / 16].iter_mut();
                    let rows = low[part * WIDTH..].as_chunks::<16>().0.iter();
                    let rows = rows.zip(high[part * WIDTH..].as_chunks::<16>().0);
                    let rows = rows.zip(inverses[part * WIDTH..].as_chunks::<16>().0);
                    for (vector, ((low, high), inverse)) in vectors.zip(rows) {
                        for lane in 0..16 {
                            let low = nearest(low[lane] * inverse[lane]);
                            vector.0[lane] = join(low, nearest(high[lane] * inverse[lane]));
                        }
                    }
                }
            }
        }
    }

    /// Attends every query row to the keys that it sees and absorbs the result into `state`, whose
    /// sums and outputs are in units of `e^(score - max)`. Without `causal` all keys are seen; a row
    /// that sees none must have seen one before.
    ///
    /// # Panics
    /// If the sizes do not agree or the kernel is not available.
    #[allow(unsafe_code)]
    #[cfg_attr(not(target_arch = "x86_64"), allow(unused_mut))]
    pub fn attend(&self, query: &mut RoundedQuery, causal: Option<Causal>, mut state: Softmax<'_>) {
        let rows = query.scales.len();
        assert!(Self::is_available(self.dim));
        assert_eq!(query.values.len(), rows * self.dim);
        assert!(state.max.len() == rows && state.sum.len() == rows);
        assert_eq!(state.out.len(), rows * self.dim);
        // The kernel's scores are powers of two.
        let rescale = |max: &mut [f32], by: f32| max.iter_mut().for_each(|max| *max *= by);
        rescale(state.max, std::f32::consts::LOG2_E);
        query.sums.clear();
        query.sums.resize(rows, Aligned([0.0; 16]));
        #[cfg(target_arch = "x86_64")]
        for panel in 0..self.len.div_ceil(PANEL) {
            let mut first = 0;
            while first < rows {
                let seen: [usize; ROWS] = std::array::from_fn(|row| {
                    let seen = causal.map_or(self.len, |causal| causal.seen(first + row));
                    seen.min(self.len).saturating_sub(panel * PANEL).min(PANEL)
                });
                // Later rows see no fewer keys.
                if seen[ROWS - 1] == 0 {
                    first += ROWS;
                    continue;
                }
                // SAFETY: the features are there and the sizes were asserted.
                unsafe {
                    match rows - first {
                        1 => self.tile::<1>(panel, first, query, seen, &mut state),
                        2 => self.tile::<2>(panel, first, query, seen, &mut state),
                        3 => self.tile::<3>(panel, first, query, seen, &mut state),
                        4 => self.tile::<4>(panel, first, query, seen, &mut state),
                        5 => self.tile::<5>(panel, first, query, seen, &mut state),
                        _ => self.tile::<ROWS>(panel, first, query, seen, &mut state),
                    }
                }
                first += ROWS;
            }
        }
        for (sum, lanes) in state.sum.iter_mut().zip(&query.sums) {
            *sum += lanes.0.iter().sum::<f32>();
        }
        rescale(state.max, std::f32::consts::LN_2);
    }

    /// R rows from `first` on by one panel.
    #[cfg(target_arch = "x86_64")]
    #[allow(unsafe_code, clippy::needless_range_loop)]
    #[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vnni")]
    fn tile<const R: usize>(
        &self,
        panel: usize,
        first: usize,
        query: &mut RoundedQuery,
        seen: [usize; ROWS],
        state: &mut Softmax<'_>,
    ) {
        use std::arch::x86_64::*;
        let dim = self.dim;
        let max = &mut state.max[first..][..R];
        let sum = &mut state.sum[first..][..R];
        let out = &mut state.out[first * dim..][..R * dim];
        let keys = &self.keys[panel * dim / 2 * (PANEL / 16)..][..dim / 2 * (PANEL / 16)];
        let key_scales = &self.key_scales[panel * PANEL..][..PANEL];
        let queries = &query.values[first * dim..][..R * dim];
        let query_scales = &query.scales[first..][..R];
        let lanes = &mut query.sums[first..][..R];
        let mut weights = [Aligned([0i32; PANEL / 2]); R];
        // SAFETY: every pointer stays inside the slices just taken.
        unsafe {
            let mut sums = [[_mm512_setzero_si512(); 4]; R];
            for pair in 0..dim / 2 {
                let row = keys.as_ptr().add(pair * 4);
                let k: [__m512i; 4] =
                    std::array::from_fn(|at| _mm512_load_si512(row.add(at).cast()));
                for r in 0..R {
                    let q = queries.as_ptr().add(r * dim + pair * 2).cast::<i32>();
                    let q = _mm512_set1_epi32(q.read_unaligned());
                    for at in 0..4 {
                        sums[r][at] = multiply_add(sums[r][at], q, k[at]);
                    }
                }
            }
            let scales: [__m512; 4] =
                std::array::from_fn(|at| _mm512_loadu_ps(key_scales.as_ptr().add(at * 16)));
            for r in 0..R {
                // In powers of two from here on, as the exponential below takes them.
                let scale = _mm512_set1_ps(query_scales[r] * std::f32::consts::LOG2_E);
                let mut scores: [__m512; 4] = std::array::from_fn(|at| {
                    let score = _mm512_cvtepi32_ps(sums[r][at]);
                    _mm512_mul_ps(score, _mm512_mul_ps(scale, scales[at]))
                });
                if seen[r] < PANEL {
                    let hidden = _mm512_set1_ps(f32::NEG_INFINITY);
                    for (at, score) in scores.iter_mut().enumerate() {
                        let seen = seen[r].saturating_sub(at * 16).min(16);
                        let seen = ((1u32 << seen) - 1) as u16;
                        *score = _mm512_mask_blend_ps(seen, hidden, *score);
                    }
                }
                let largest = _mm512_max_ps(
                    _mm512_max_ps(scores[0], scores[1]),
                    _mm512_max_ps(scores[2], scores[3]),
                );
                let before = max[r];
                // Seldom true after the first panel: what is above the maximum is looked for only then.
                if _mm512_cmp_ps_mask::<_CMP_GT_OQ>(largest, _mm512_set1_ps(before)) != 0 {
                    let largest = _mm512_reduce_max_ps(largest);
                    let keep = (before - largest).exp2();
                    max[r] = largest;
                    sum[r] *= keep;
                    lanes[r].0.iter_mut().for_each(|sum| *sum *= keep);
                    if before > f32::NEG_INFINITY {
                        for value in &mut out[r * dim..][..dim] {
                            *value *= keep;
                        }
                    }
                }
                let top = _mm512_set1_ps(max[r]);
                let [a, b, c, d] = scores.map(|score| weight_of(_mm512_sub_ps(score, top)));
                let total = _mm512_add_epi32(_mm512_add_epi32(a, b), _mm512_add_epi32(c, d));
                let place = weights[r].0.as_mut_ptr();
                let low = _mm512_or_si512(a, _mm512_slli_epi32::<16>(c));
                let high = _mm512_or_si512(b, _mm512_slli_epi32::<16>(d));
                _mm512_store_si512(place.cast(), low);
                _mm512_store_si512(place.add(16).cast(), high);
                let lanes = lanes[r].0.as_mut_ptr();
                let step = _mm512_set1_ps(1.0 / WEIGHT_MAX);
                let total = _mm512_cvtepi32_ps(total);
                _mm512_store_ps(lanes, _mm512_fmadd_ps(total, step, _mm512_load_ps(lanes)));
            }
            for part in 0..dim / WIDTH {
                let at = (panel * dim / WIDTH + part) * PANEL / 2 * (WIDTH / 16);
                let values = self.values[at..][..PANEL / 2 * (WIDTH / 16)].as_ptr();
                let scales = self.value_scales[panel * dim + part * WIDTH..][..WIDTH].as_ptr();
                let mut sums = [[_mm512_setzero_si512(); 4]; R];
                for pair in 0..PANEL / 2 {
                    let row = values.add(pair * 4);
                    let v: [__m512i; 4] =
                        std::array::from_fn(|at| _mm512_load_si512(row.add(at).cast()));
                    for r in 0..R {
                        let w = _mm512_set1_epi32(weights[r].0[pair]);
                        for at in 0..4 {
                            sums[r][at] = multiply_add(sums[r][at], w, v[at]);
                        }
                    }
                }
                for at in 0..4 {
                    let scale = _mm512_loadu_ps(scales.add(at * 16));
                    let scale = _mm512_mul_ps(scale, _mm512_set1_ps(1.0 / WEIGHT_MAX));
                    for r in 0..R {
                        let place = out.as_mut_ptr().add(r * dim + part * WIDTH + at * 16);
                        let value = _mm512_cvtepi32_ps(sums[r][at]);
                        let value = _mm512_fmadd_ps(value, scale, _mm512_loadu_ps(place));
                        _mm512_storeu_ps(place, value);
                    }
                }
            }
        }
    }
}

/// 2^x in steps of 1 / 32767, for x <= 0: interpolated between -1/2 and 1/2 at five Chebyshev nodes,
/// an eighth of a step off at most.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn weight_of(x: std::arch::x86_64::__m512) -> std::arch::x86_64::__m512i {
    use std::arch::x86_64::*;
    const SERIES: [f32; 5] = [
        WEIGHT_MAX,
        0.693_121 * WEIGHT_MAX,
        0.240_223_5 * WEIGHT_MAX,
        0.055_921_976 * WEIGHT_MAX,
        0.009_666_369 * WEIGHT_MAX,
    ];
    // What is hidden is minus infinity, of which no fraction can be taken.
    let x = _mm512_max_ps(x, _mm512_set1_ps(-126.0));
    let n = _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(x);
    let r = _mm512_sub_ps(x, n);
    let mut p = _mm512_set1_ps(SERIES[4]);
    for at in (0..4).rev() {
        p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(SERIES[at]));
    }
    _mm512_cvtps_epi32(_mm512_scalef_ps(p, n))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::samples::values;

    struct Case {
        rows: usize,
        dim: usize,
        len: usize,
        query: Vec<f32>,
        keys: Vec<f32>,
        values: Vec<f32>,
        causal: Option<Causal>,
    }

    impl Case {
        fn new(rows: usize, dim: usize, len: usize) -> Self {
            let mut query = values(rows * dim, 3);
            // Every third row attends sharply, the others broadly.
            for (row, query) in query.chunks_exact_mut(dim).enumerate() {
                let size = if row % 3 == 0 { 4.0 } else { 0.3 };
                query.iter_mut().for_each(|value| *value *= size);
            }
            let (keys, values) = (values(len * dim, 5), values(len * dim, 7));
            Self {
                rows,
                dim,
                len,
                query,
                keys,
                values,
                causal: None,
            }
        }

        /// The running softmax after the prefix, divided out.
        fn attend(&self, rows: std::ops::Range<usize>) -> Vec<f32> {
            let mut head = Head::default();
            // Packed once for other keys, whose traces must be gone.
            head.pack(&self.values, &self.keys, self.dim, self.len, self.dim);
            head.pack(&self.keys, &self.values, self.dim, self.len, self.dim);
            let count = rows.len();
            let mut query = RoundedQuery::default();
            query.round(
                &self.query[rows.start * self.dim..rows.end * self.dim],
                self.dim,
            );
            let (mut max, mut sum) = (vec![f32::NEG_INFINITY; count], vec![0.0; count]);
            let mut out = vec![0.0; count * self.dim];
            let state = Softmax {
                max: &mut max,
                sum: &mut sum,
                out: &mut out,
            };
            let causal = self.causal.map(|causal| Causal {
                start: causal.start + rows.start / causal.group,
                ..causal
            });
            head.attend(&mut query, causal, state);
            for (out, sum) in out.chunks_exact_mut(self.dim).zip(sum) {
                out.iter_mut().for_each(|value| *value /= sum);
            }
            out
        }

        fn exact(&self, row: usize) -> Vec<f64> {
            let query = &self.query[row * self.dim..][..self.dim];
            let dot = |key: &[f32]| -> f64 {
                key.iter()
                    .zip(query)
                    .map(|(a, b)| f64::from(*a) * f64::from(*b))
                    .sum()
            };
            let seen = self.causal.map_or(self.len, |causal| causal.seen(row));
            let keys = self.keys.chunks_exact(self.dim).take(seen);
            let scores: Vec<f64> = keys.map(dot).collect();
            let max = scores.iter().copied().fold(f64::MIN, f64::max);
            let sum: f64 = scores.iter().map(|score| (score - max).exp()).sum();
            let mut out = vec![0.0; self.dim];
            for (score, value) in scores.iter().zip(self.values.chunks_exact(self.dim)) {
                let weight = (score - max).exp() / sum;
                for (out, value) in out.iter_mut().zip(value) {
                    *out += weight * f64::from(*value);
                }
            }
            out
        }
    }

    #[test]
    fn attention_is_close_to_the_exact_one_at_every_odd_size() {
        if !Head::is_available(64) {
            return;
        }
        for (rows, dim, len) in [
            (1, 64, 1),
            (7, 64, 63),
            (6, 64, 64),
            (13, 128, 65),
            (96, 64, 486),
        ] {
            let mut case = Case::new(rows, dim, len);
            for causal in [
                None,
                Some(Causal { start: 0, group: 3 }),
                Some(Causal {
                    start: 61,
                    group: 1,
                }),
            ] {
                case.causal = causal;
                let got = case.attend(0..rows);
                for row in 0..rows {
                    let want = case.exact(row);
                    for (got, want) in got[row * dim..].iter().zip(want) {
                        let error = (f64::from(*got) - want).abs();
                        assert!(
                            error < 5e-3,
                            "{rows} {dim} {len} row {row} {causal:?}: {error}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn a_row_does_not_depend_on_its_company_in_any_bit() {
        if !Head::is_available(64) {
            return;
        }
        let case = Case::new(11, 64, 200);
        let together = case.attend(0..11);
        for row in 0..11 {
            assert_eq!(case.attend(row..row + 1), together[row * 64..][..64]);
        }
        assert_eq!(case.len, 200);
    }

    #[test]
    fn the_largest_values_do_not_overflow() {
        if !Head::is_available(64) {
            return;
        }
        let mut case = Case::new(2, 64, 128);
        case.query.fill(1.0);
        case.keys.fill(0.5);
        case.values.fill(-3.0);
        assert_eq!(case.rows, 2);
        for value in case.attend(0..2) {
            assert!((value + 3.0).abs() < 1e-3, "{value}");
        }
    }
}
