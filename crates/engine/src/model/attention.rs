//! Grouped-query attention of a packed batch: the prefix part for all rows as matrix products,
//! then each row's own part, merged by softmax state.
//!
//! Knows slices and segments, no weights. Source: Milakov and Gimelshein 2018 (online softmax);
//! Hydragen 2024 (prefix and suffix parts merged by their log-sum-exp).

use gemm::Parallelism;
use kvcache::KvCache;
use rayon::prelude::*;

use super::batch::Batch;
use super::math;

/// Tokens of one tile: with several query heads per key head, their rows fill the matrix kernel.
const TILE_TOKENS: usize = 16;
/// Keys of one step: bounds the scores of a tile to what the second-level cache holds.
const TILE_KEYS: usize = 512;

/// Shape of the heads.
#[derive(Debug, Clone, Copy)]
pub struct Heads {
    /// Query heads.
    pub query: usize,
    /// Key/value heads.
    pub kv: usize,
    /// Width of a head.
    pub dim: usize,
}

impl Heads {
    fn width(self) -> usize {
        (self.query + 2 * self.kv) * self.dim
    }

    fn group(self) -> usize {
        self.query / self.kv
    }
}

/// Keys or values as rows of `dim` floats, `stride` floats apart.
#[derive(Clone, Copy)]
struct Run<'a> {
    keys: &'a [f32],
    values: &'a [f32],
    stride: usize,
    len: usize,
}

/// Running softmax of a tile of query rows: the monoid {max, sum, out}.
struct Tile {
    rows: usize,
    query: Vec<f32>,  // [rows, dim], scaled
    max: Vec<f32>,    // [rows]
    sum: Vec<f32>,    // [rows]
    out: Vec<f32>,    // [rows, dim]
    scores: Vec<f32>, // [rows, keys of one step]
}

/// Attends every row of `qkv` and writes `out`.
///
/// Promises equality with one full softmax within rounding, and that a row's result does not
/// depend on the other rows of the batch.
///
/// Shapes: `qkv` f32 `[tokens, (query + 2 kv) * dim]` after rotary embedding; `out` f32
/// `[tokens, query * dim]`.
pub fn attend(
    batch: &Batch<'_>,
    cache: &KvCache,
    layer: usize,
    heads: Heads,
    qkv: &[f32],
    out: &mut [f32],
) {
    let mut work = Vec::new();
    let mut rest = out;
    for (segment, part) in batch.segments.iter().enumerate() {
        for start in (0..part.len).step_by(TILE_TOKENS) {
            let len = TILE_TOKENS.min(part.len - start);
            let (own, later) = rest.split_at_mut(len * heads.query * heads.dim);
            rest = later;
            work.push((segment, start, len, own));
        }
    }
    work.into_par_iter()
        .for_each_init(Tile::empty, |tile, (segment, start, len, out)| {
            for kv in 0..heads.kv {
                let first = batch.segments[segment].start + start;
                tile.load(qkv, first..first + len, kv, heads);
                attend_tile(
                    tile,
                    batch,
                    cache,
                    layer,
                    (segment, start, len),
                    kv,
                    heads,
                    qkv,
                );
                tile.store(out, len, kv, heads);
            }
        });
}

#[allow(clippy::too_many_arguments)]
fn attend_tile(
    tile: &mut Tile,
    batch: &Batch<'_>,
    cache: &KvCache,
    layer: usize,
    (segment, start, len): (usize, usize, usize),
    kv: usize,
    heads: Heads,
    qkv: &[f32],
) {
    let dim = heads.dim;
    if let Some(prefix) = &batch.prefix {
        let (layer, head) = (layer as u32, kv as u32);
        let run = Run {
            keys: prefix.keys(layer, head),
            values: prefix.values(layer, head),
            stride: dim,
            len: prefix.len() as usize,
        };
        tile.attend(run, None, heads);
    }
    if let Some(past) = batch.past(segment) {
        for (keys, values) in cache.runs(past, layer as u32, kv as u32) {
            tile.attend(
                Run {
                    keys,
                    values,
                    stride: dim,
                    len: keys.len() / dim,
                },
                None,
                heads,
            );
        }
    }
    let own_run = |first: usize, len: usize| {
        let width = heads.width();
        let key = first * width + (heads.query + kv) * dim;
        Run {
            keys: &qkv[key..],
            values: &qkv[key + heads.kv * dim..],
            stride: width,
            len,
        }
    };
    // Nearest ancestor last, so that rows meet their keys in the order of their positions.
    let ancestors: Vec<_> = batch.ancestors(segment).collect();
    for ancestor in ancestors.iter().rev() {
        tile.attend(own_run(ancestor.start, ancestor.len), None, heads);
    }
    let first = batch.segments[segment].start;
    tile.attend(own_run(first, start + len), Some(start), heads);
}

impl Tile {
    fn empty() -> Self {
        Self {
            rows: 0,
            query: Vec::new(),
            max: Vec::new(),
            sum: Vec::new(),
            out: Vec::new(),
            scores: Vec::new(),
        }
    }

    /// Gathers the query rows of one key head: row = token * group + head within the group.
    fn load(&mut self, qkv: &[f32], tokens: std::ops::Range<usize>, kv: usize, heads: Heads) {
        let group = heads.group();
        let scale = 1.0 / (heads.dim as f32).sqrt();
        self.rows = tokens.len() * group;
        self.query.clear();
        for token in tokens {
            let from = token * heads.width() + kv * group * heads.dim;
            let rows = &qkv[from..from + group * heads.dim];
            self.query.extend(rows.iter().map(|value| value * scale));
        }
        self.max.clear();
        self.max.resize(self.rows, f32::NEG_INFINITY);
        self.sum.clear();
        self.sum.resize(self.rows, 0.0);
        self.out.clear();
        self.out.resize(self.rows * heads.dim, 0.0);
    }

    /// Attends the tile to a run. `causal`: the run is the tile's own segment and the tile's first
    /// token sits at this index of it, so that token `t` sees keys up to `causal + t`.
    fn attend(&mut self, run: Run<'_>, causal: Option<usize>, heads: Heads) {
        for first in (0..run.len).step_by(TILE_KEYS) {
            let len = TILE_KEYS.min(run.len - first);
            self.score(run, first, len, heads.dim);
            for row in 0..self.rows {
                let visible = match causal {
                    Some(start) => (start + row / heads.group() + 1)
                        .saturating_sub(first)
                        .min(len),
                    None => len,
                };
                self.absorb_row(row, len, visible, heads.dim);
            }
            self.accumulate(run, first, len, heads.dim);
        }
    }

    /// scores = query * keys^T
    #[allow(unsafe_code)]
    fn score(&mut self, run: Run<'_>, first: usize, len: usize, dim: usize) {
        self.scores.resize(self.rows * len, 0.0);
        let keys = &run.keys[first * run.stride..];
        assert!(keys.len() >= (len - 1) * run.stride + dim);
        // SAFETY: query is [rows, dim], keys is [len, dim] with the asserted stride, and scores is
        // [rows, len]; none of them overlap.
        unsafe {
            gemm::gemm(
                self.rows,
                len,
                dim,
                self.scores.as_mut_ptr(),
                1,
                len as isize,
                false,
                self.query.as_ptr(),
                1,
                dim as isize,
                keys.as_ptr(),
                run.stride as isize,
                1,
                0.0,
                1.0,
                false,
                false,
                false,
                Parallelism::None,
            );
        }
    }

    /// Turns one row of scores into weights and rescales what the row has so far.
    fn absorb_row(&mut self, row: usize, len: usize, visible: usize, dim: usize) {
        let scores = &mut self.scores[row * len..(row + 1) * len];
        let (seen, hidden) = scores.split_at_mut(visible);
        hidden.fill(0.0);
        if seen.is_empty() {
            return;
        }
        let max = self.max[row].max(math::maximum(seen));
        let keep = (self.max[row] - max).exp();
        self.sum[row] = self.sum[row] * keep + math::exponentials(seen, max);
        self.max[row] = max;
        if keep != 1.0 {
            for value in &mut self.out[row * dim..(row + 1) * dim] {
                *value *= keep;
            }
        }
    }

    /// out += weights * values
    #[allow(unsafe_code)]
    fn accumulate(&mut self, run: Run<'_>, first: usize, len: usize, dim: usize) {
        let values = &run.values[first * run.stride..];
        assert!(values.len() >= (len - 1) * run.stride + dim);
        // SAFETY: weights is [rows, len], values is [len, dim] with the asserted stride, and out is
        // [rows, dim]; none of them overlap.
        unsafe {
            gemm::gemm(
                self.rows,
                dim,
                len,
                self.out.as_mut_ptr(),
                1,
                dim as isize,
                true,
                self.scores.as_ptr(),
                1,
                len as isize,
                values.as_ptr(),
                1,
                run.stride as isize,
                1.0,
                1.0,
                false,
                false,
                false,
                Parallelism::None,
            );
        }
    }

    /// Writes out / sum to its place: `out` is `[tokens, query * dim]` of the tile's tokens.
    fn store(&self, out: &mut [f32], tokens: usize, kv: usize, heads: Heads) {
        let group = heads.group();
        for token in 0..tokens {
            for head in 0..group {
                let row = token * group + head;
                let scale = 1.0 / self.sum[row];
                let at = (token * heads.query + kv * group + head) * heads.dim;
                let from = &self.out[row * heads.dim..(row + 1) * heads.dim];
                for (target, value) in out[at..at + heads.dim].iter_mut().zip(from) {
                    *target = value * scale;
                }
            }
        }
    }
}
