//! The two small matrix products of attention: query rows by key panels, weights by values.
//!
//! Keys are packed into panels of 64 positions, transposed, so that both products stream through
//! memory and neither packs anything per call. Written once per vector width behind run-time
//! detection; a row's result never depends on the other rows.

use super::isa::Isa;

/// Positions of one key panel.
pub const PANEL: usize = 64;
/// Query rows of the register tile.
const ROWS: usize = 6;

/// Floats that the panels of `len` keys take.
pub fn packed_len(len: usize, dim: usize) -> usize {
    len.div_ceil(PANEL) * PANEL * dim
}

/// Transposes keys `[len, dim]`, rows `stride` apart, into panels `[panels][dim][64]`; positions
/// past the end become zeros.
pub fn pack_keys(keys: &[f32], stride: usize, len: usize, dim: usize, out: &mut [f32]) {
    for (panel, out) in out[..packed_len(len, dim)]
        .chunks_exact_mut(PANEL * dim)
        .enumerate()
    {
        let count = PANEL.min(len - panel * PANEL);
        for column in 0..PANEL {
            if column < count {
                let key = &keys[(panel * PANEL + column) * stride..][..dim];
                for (d, &value) in key.iter().enumerate() {
                    out[d * PANEL + column] = value;
                }
            } else {
                for d in 0..dim {
                    out[d * PANEL + column] = 0.0;
                }
            }
        }
    }
}

/// scores = query * keys^T.
///
/// Shapes: `query` `[rows, dim]`; `panels` `[width / 64][dim][64]`; `scores` `[rows, width]`.
///
/// # Panics
/// If the sizes do not agree.
#[allow(unsafe_code)]
pub fn score(query: &[f32], dim: usize, panels: &[f32], width: usize, scores: &mut [f32]) {
    let rows = query.len() / dim;
    assert_eq!(query.len(), rows * dim);
    assert_eq!(panels.len(), width * dim);
    assert_eq!(scores.len(), rows * width);
    assert!(width.is_multiple_of(PANEL));
    match Isa::detect() {
        // SAFETY: the features were detected and the sizes asserted.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512Vnni => unsafe { avx512::score(query, dim, panels, width, scores) },
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 | Isa::AvxVnni => unsafe { avx2::score(query, dim, panels, width, scores) },
        _ => score_scalar(query, dim, panels, width, scores),
    }
}

/// out += weights * values.
///
/// Shapes: `weights` `[rows, width]`, of which the first `len` columns count; `values`
/// `[len, dim]`, rows `stride` apart; `out` `[rows, dim]`.
///
/// # Panics
/// If the sizes do not agree.
#[allow(unsafe_code)]
pub fn accumulate(weights: &[f32], width: usize, values: Values<'_>, dim: usize, out: &mut [f32]) {
    let rows = out.len() / dim;
    assert_eq!(out.len(), rows * dim);
    assert_eq!(weights.len(), rows * width);
    assert!(values.len <= width && values.len > 0);
    assert!(values.rows.len() >= (values.len - 1) * values.stride + dim);
    match Isa::detect() {
        // SAFETY: the features were detected and the sizes asserted.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512Vnni => unsafe { avx512::accumulate(weights, width, values, dim, out) },
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 | Isa::AvxVnni => unsafe { avx2::accumulate(weights, width, values, dim, out) },
        _ => accumulate_scalar(weights, width, values, dim, out),
    }
}

/// Value rows, `stride` floats apart.
#[derive(Debug, Clone, Copy)]
pub struct Values<'a> {
    /// `[len, dim]` with the stride between rows.
    pub rows: &'a [f32],
    /// Floats from one row to the next.
    pub stride: usize,
    /// Rows.
    pub len: usize,
}

fn score_scalar(query: &[f32], dim: usize, panels: &[f32], width: usize, scores: &mut [f32]) {
    for (query, scores) in query.chunks_exact(dim).zip(scores.chunks_exact_mut(width)) {
        let panels = panels.chunks_exact(PANEL * dim);
        for (panel, scores) in panels.zip(scores.chunks_exact_mut(PANEL)) {
            scores.fill(0.0);
            for (&q, keys) in query.iter().zip(panel.chunks_exact(PANEL)) {
                for (score, &key) in scores.iter_mut().zip(keys) {
                    *score += q * key;
                }
            }
        }
    }
}

fn accumulate_scalar(
    weights: &[f32],
    width: usize,
    values: Values<'_>,
    dim: usize,
    out: &mut [f32],
) {
    for (weights, out) in weights.chunks_exact(width).zip(out.chunks_exact_mut(dim)) {
        for (position, &weight) in weights[..values.len].iter().enumerate() {
            let row = &values.rows[position * values.stride..][..dim];
            for (out, &value) in out.iter_mut().zip(row) {
                *out += weight * value;
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
macro_rules! vector_tiles {
    ($module:ident, $feature:literal, $lanes:literal, $columns:literal,
     $zero:ident, $load:ident, $store:ident, $broadcast:ident, $fused:ident) => {
        #[allow(unsafe_code)]
        mod $module {
            use super::{PANEL, ROWS, Values};
            use std::arch::x86_64::*;

            /// Vectors side by side in the register tile.
            const COLUMNS: usize = $columns;
            const LANES: usize = $lanes;

            #[target_feature(enable = $feature)]
            pub(super) unsafe fn score(
                query: &[f32],
                dim: usize,
                panels: &[f32],
                width: usize,
                scores: &mut [f32],
            ) {
                let rows = query.len() / dim;
                for panel in 0..width / PANEL {
                    let keys = panels[panel * PANEL * dim..].as_ptr();
                    let mut row = 0;
                    while row < rows {
                        let count = ROWS.min(rows - row);
                        for column in (0..PANEL).step_by(COLUMNS * LANES) {
                            // SAFETY: the caller asserted the sizes.
                            unsafe {
                                let q = query.as_ptr().add(row * dim);
                                let k = keys.add(column);
                                let s = scores
                                    .as_mut_ptr()
                                    .add(row * width + panel * PANEL + column);
                                match count {
                                    6 => product::<6, COLUMNS, false>(
                                        q, dim, dim, k, PANEL, s, width,
                                    ),
                                    5 => product::<5, COLUMNS, false>(
                                        q, dim, dim, k, PANEL, s, width,
                                    ),
                                    4 => product::<4, COLUMNS, false>(
                                        q, dim, dim, k, PANEL, s, width,
                                    ),
                                    3 => product::<3, COLUMNS, false>(
                                        q, dim, dim, k, PANEL, s, width,
                                    ),
                                    2 => product::<2, COLUMNS, false>(
                                        q, dim, dim, k, PANEL, s, width,
                                    ),
                                    _ => product::<1, COLUMNS, false>(
                                        q, dim, dim, k, PANEL, s, width,
                                    ),
                                }
                            }
                        }
                        row += count;
                    }
                }
            }

            #[target_feature(enable = $feature)]
            pub(super) unsafe fn accumulate(
                weights: &[f32],
                width: usize,
                values: Values<'_>,
                dim: usize,
                out: &mut [f32],
            ) {
                let rows = out.len() / dim;
                let mut column = 0;
                while column < dim {
                    let wide = dim - column >= COLUMNS * LANES;
                    let narrow = dim - column >= LANES;
                    let mut row = 0;
                    while row < rows {
                        let count = ROWS.min(rows - row);
                        // SAFETY: the caller asserted the sizes.
                        unsafe {
                            let w = weights.as_ptr().add(row * width);
                            let v = values.rows.as_ptr().add(column);
                            let o = out.as_mut_ptr().add(row * dim + column);
                            let (len, stride) = (values.len, values.stride);
                            match (wide, count) {
                                (true, 6) => {
                                    product::<6, COLUMNS, true>(w, width, len, v, stride, o, dim)
                                }
                                (true, 5) => {
                                    product::<5, COLUMNS, true>(w, width, len, v, stride, o, dim)
                                }
                                (true, 4) => {
                                    product::<4, COLUMNS, true>(w, width, len, v, stride, o, dim)
                                }
                                (true, 3) => {
                                    product::<3, COLUMNS, true>(w, width, len, v, stride, o, dim)
                                }
                                (true, 2) => {
                                    product::<2, COLUMNS, true>(w, width, len, v, stride, o, dim)
                                }
                                (true, _) => {
                                    product::<1, COLUMNS, true>(w, width, len, v, stride, o, dim)
                                }
                                (false, _) if narrow => {
                                    for r in 0..count {
                                        product::<1, 1, true>(
                                            w.add(r * width),
                                            width,
                                            len,
                                            v,
                                            stride,
                                            o.add(r * dim),
                                            dim,
                                        );
                                    }
                                }
                                (false, _) => {
                                    for r in 0..count {
                                        for c in 0..dim - column {
                                            for at in 0..len {
                                                *o.add(r * dim + c) += *w.add(r * width + at)
                                                    * *v.add(at * stride + c);
                                            }
                                        }
                                    }
                                }
                            }
                        }
                        row += count;
                    }
                    column += if wide {
                        COLUMNS * LANES
                    } else if narrow {
                        LANES
                    } else {
                        dim - column
                    };
                }
            }

            /// R x C vectors of out (+)= left * right, over `depth`.
            #[target_feature(enable = $feature)]
            #[inline]
            unsafe fn product<const R: usize, const C: usize, const ADD: bool>(
                left: *const f32,
                left_stride: usize,
                depth: usize,
                right: *const f32,
                right_stride: usize,
                out: *mut f32,
                out_stride: usize,
            ) {
                // SAFETY: the callers keep every pointer inside its matrix.
                unsafe {
                    let mut sums = [[$zero(); C]; R];
                    if ADD {
                        for r in 0..R {
                            for c in 0..C {
                                sums[r][c] = $load(out.add(r * out_stride + c * LANES));
                            }
                        }
                    }
                    for at in 0..depth {
                        let row = right.add(at * right_stride);
                        let mut vectors = [$zero(); C];
                        for c in 0..C {
                            vectors[c] = $load(row.add(c * LANES));
                        }
                        for r in 0..R {
                            let scalar = $broadcast(*left.add(r * left_stride + at));
                            for c in 0..C {
                                sums[r][c] = $fused(scalar, vectors[c], sums[r][c]);
                            }
                        }
                    }
                    for r in 0..R {
                        for c in 0..C {
                            $store(out.add(r * out_stride + c * LANES), sums[r][c]);
                        }
                    }
                }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
vector_tiles!(
    avx512,
    "avx512f",
    16,
    4,
    _mm512_setzero_ps,
    _mm512_loadu_ps,
    _mm512_storeu_ps,
    _mm512_set1_ps,
    _mm512_fmadd_ps
);
#[cfg(target_arch = "x86_64")]
vector_tiles!(
    avx2,
    "avx2,fma",
    8,
    2,
    _mm256_setzero_ps,
    _mm256_loadu_ps,
    _mm256_storeu_ps,
    _mm256_set1_ps,
    _mm256_fmadd_ps
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::samples::values;

    /// All widths of vectors give the naive products, at every odd size.
    #[test]
    fn products_equal_naive_ones() {
        for (rows, dim, len) in [
            (1, 16, 1),
            (5, 64, 63),
            (6, 64, 64),
            (13, 128, 65),
            (7, 24, 130),
            (3, 20, 9),
        ] {
            let stride = dim + 3;
            let keys = values(len * stride, 1);
            let query = values(rows * dim, 2);
            let mut panels = vec![9.0; packed_len(len, dim)];
            pack_keys(&keys, stride, len, dim, &mut panels);
            let width = panels.len() / dim;
            let mut scores = vec![7.0; rows * width];
            let mut scalar = scores.clone();
            score(&query, dim, &panels, width, &mut scores);
            score_scalar(&query, dim, &panels, width, &mut scalar);
            let mut out = values(rows * dim, 4);
            let mut out_scalar = out.clone();
            let before = out.clone();
            let run = Values {
                rows: &keys,
                stride,
                len,
            };
            accumulate(&scores, width, run, dim, &mut out);
            accumulate_scalar(&scores, width, run, dim, &mut out_scalar);
            for row in 0..rows {
                for key in 0..len {
                    let want: f32 = (0..dim)
                        .map(|d| query[row * dim + d] * keys[key * stride + d])
                        .sum();
                    assert!((scores[row * width + key] - want).abs() < 1e-4);
                    assert!((scalar[row * width + key] - want).abs() < 1e-4);
                }
                for d in 0..dim {
                    let sum: f32 = (0..len)
                        .map(|key| scores[row * width + key] * keys[key * stride + d])
                        .sum();
                    let want = before[row * dim + d] + sum;
                    assert!(
                        (out[row * dim + d] - want).abs() < 1e-3,
                        "{rows} {dim} {len}"
                    );
                    assert!((out_scalar[row * dim + d] - want).abs() < 1e-3);
                }
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    #[allow(unsafe_code)]
    fn the_narrower_vectors_are_tested_on_wider_machines_too() {
        if !std::is_x86_feature_detected!("avx2") || !std::is_x86_feature_detected!("fma") {
            return;
        }
        let (rows, dim, len) = (11, 72, 100);
        let keys = values(len * dim, 5);
        let query = values(rows * dim, 6);
        let mut panels = vec![0.0; packed_len(len, dim)];
        pack_keys(&keys, dim, len, dim, &mut panels);
        let width = panels.len() / dim;
        let (mut a, mut b) = (vec![0.0; rows * width], vec![0.0; rows * width]);
        score_scalar(&query, dim, &panels, width, &mut a);
        // SAFETY: the features were detected; the sizes are those of `score`.
        unsafe { avx2::score(&query, dim, &panels, width, &mut b) };
        assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-4));
        let (mut c, mut d) = (vec![0.0; rows * dim], vec![0.0; rows * dim]);
        let run = Values {
            rows: &keys,
            stride: dim,
            len,
        };
        accumulate_scalar(&a, width, run, dim, &mut c);
        // SAFETY: as above.
        unsafe { avx2::accumulate(&a, width, run, dim, &mut d) };
        assert!(c.iter().zip(&d).all(|(c, d)| (c - d).abs() < 1e-3));
    }
}
