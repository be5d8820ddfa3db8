//! Grouped-query attention of a packed batch: the prefix part for all rows as matrix products,
//! then each row's own part, merged by softmax state.
//!
//! Knows slices and segments, no weights. Source: Milakov and Gimelshein 2018 (online softmax);
//! Hydragen 2024 (prefix and suffix parts merged by their log-sum-exp).

use std::sync::Arc;

use kvcache::{KvCache, Prefix, PrefixKey};
use rayon::prelude::*;

use super::batch::Batch;
use super::math;
use super::tiles::{self, Values};

/// Query rows that one tile aims for; the query heads of a key head share it.
const TILE_ROWS: usize = 96;
/// Keys of one step, a multiple of the panel: bounds a tile's scores to the second-level cache.
const TILE_KEYS: usize = 512;

/// A sealed prefix's keys in panels, packed once and shared by every forward.
#[derive(Debug, Clone)]
pub struct PackedPrefix {
    key: PrefixKey,
    heads: Arc<Vec<Vec<f32>>>, // [layers * kv_heads] panels
}

impl PackedPrefix {
    /// Packs every layer's and head's keys.
    pub fn new(prefix: &Prefix) -> Self {
        let layout = prefix.layout();
        let dim = layout.head_dim as usize;
        let len = prefix.len() as usize;
        let pairs: Vec<(u32, u32)> = (0..layout.layers)
            .flat_map(|layer| (0..layout.kv_heads).map(move |head| (layer, head)))
            .collect();
        let pack = |&(layer, head): &(u32, u32)| {
            let mut panels = vec![0.0; tiles::packed_len(len, dim)];
            tiles::pack_keys(prefix.keys(layer, head), dim, len, dim, &mut panels);
            panels
        };
        Self {
            key: prefix.key(),
            heads: Arc::new(pairs.par_iter().map(pack).collect()),
        }
    }

    /// The prefix it was packed from.
    pub fn key(&self) -> PrefixKey {
        self.key
    }
}

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

/// Keys and values as rows of `dim` floats, `stride` floats apart.
#[derive(Clone, Copy)]
struct Run<'a> {
    keys: Keys<'a>,
    values: &'a [f32],
    stride: usize,
    len: usize,
}

#[derive(Clone, Copy)]
enum Keys<'a> {
    Rows(&'a [f32]),
    Panels(&'a [f32]),
}

/// Running softmax of a tile of query rows: the monoid {max, sum, out}.
struct Tile {
    rows: usize,
    query: Vec<f32>,  // [rows, dim], scaled
    max: Vec<f32>,    // [rows]
    sum: Vec<f32>,    // [rows]
    out: Vec<f32>,    // [rows, dim]
    scores: Vec<f32>, // [rows, keys of one step, padded to panels]
    panels: Vec<f32>, // keys of one step, when they were not packed before
}

/// One layer's attention over a packed batch.
#[derive(Clone, Copy)]
pub struct Attention<'a> {
    /// The batch.
    pub batch: &'a Batch<'a>,
    /// Its prefix's keys, when it has a prefix.
    pub packed: Option<&'a PackedPrefix>,
    /// Where paged slots lie.
    pub cache: &'a KvCache,
    /// The layer.
    pub layer: usize,
    /// Shape of the heads.
    pub heads: Heads,
    /// f32 `[tokens, (query + 2 kv) * dim]`, after rotary embedding.
    pub qkv: &'a [f32],
}

impl<'a> Attention<'a> {
    /// Attends every row and writes `out`, f32 `[tokens, query * dim]`.
    ///
    /// Promises equality with one full softmax within rounding, and that a row's result does not
    /// depend on the other rows of the batch.
    pub fn attend(self, out: &mut [f32]) {
        let heads = self.heads;
        let tile_tokens = (TILE_ROWS / heads.group()).max(1);
        let mut work = Vec::new();
        let mut rest = out;
        for (segment, part) in self.batch.segments.iter().enumerate() {
            for start in (0..part.len).step_by(tile_tokens) {
                let len = tile_tokens.min(part.len - start);
                let (own, later) = rest.split_at_mut(len * heads.query * heads.dim);
                rest = later;
                work.push((segment, start, len, own));
            }
        }
        work.into_par_iter()
            .for_each_init(Tile::empty, |tile, (segment, start, len, out)| {
                for kv in 0..heads.kv {
                    let first = self.batch.segments[segment].start + start;
                    tile.load(self.qkv, first..first + len, kv, heads);
                    self.attend_tile(tile, segment, start, len, kv);
                    tile.store(out, len, kv, heads);
                }
            });
    }

    /// Prefix, paged slots, ancestors, own tokens: the keys in the order of their positions.
    fn attend_tile(self, tile: &mut Tile, segment: usize, start: usize, len: usize, kv: usize) {
        let heads = self.heads;
        let dim = heads.dim;
        let (layer, head) = (self.layer as u32, kv as u32);
        if let (Some(prefix), Some(packed)) = (&self.batch.prefix, self.packed) {
            let run = Run {
                keys: Keys::Panels(&packed.heads[self.layer * heads.kv + kv]),
                values: prefix.values(layer, head),
                stride: dim,
                len: prefix.len() as usize,
            };
            tile.attend(run, None, heads);
        }
        if let Some(past) = self.batch.past(segment) {
            for (keys, values) in self.cache.runs(past, layer, head) {
                let len = keys.len() / dim;
                tile.attend(
                    Run {
                        keys: Keys::Rows(keys),
                        values,
                        stride: dim,
                        len,
                    },
                    None,
                    heads,
                );
            }
        }
        let ancestors: Vec<_> = self.batch.ancestors(segment).collect();
        for ancestor in ancestors.iter().rev() {
            tile.attend(self.own_run(ancestor.start, ancestor.len, kv), None, heads);
        }
        let first = self.batch.segments[segment].start;
        tile.attend(self.own_run(first, start + len, kv), Some(start), heads);
    }

    /// Keys and values of tokens of the batch itself.
    fn own_run(self, first: usize, len: usize, kv: usize) -> Run<'a> {
        let (heads, width) = (self.heads, self.heads.width());
        let key = first * width + (heads.query + kv) * heads.dim;
        Run {
            keys: Keys::Rows(&self.qkv[key..]),
            values: &self.qkv[key + heads.kv * heads.dim..],
            stride: width,
            len,
        }
    }
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
            panels: Vec::new(),
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
            let width = self.score(run, first, len, heads.dim);
            for row in 0..self.rows {
                let visible = match causal {
                    Some(start) => (start + row / heads.group() + 1)
                        .saturating_sub(first)
                        .min(len),
                    None => len,
                };
                self.absorb_row(row, width, visible, heads.dim);
            }
            let values = Values {
                rows: &run.values[first * run.stride..],
                stride: run.stride,
                len,
            };
            tiles::accumulate(&self.scores, width, values, heads.dim, &mut self.out);
        }
    }

    /// scores = query * keys^T; returns the row width, `len` padded to whole panels.
    fn score(&mut self, run: Run<'_>, first: usize, len: usize, dim: usize) -> usize {
        let floats = tiles::packed_len(len, dim);
        let width = floats / dim;
        self.scores.resize(self.rows * width, 0.0);
        let panels = match run.keys {
            Keys::Panels(panels) => &panels[first * dim..][..floats],
            Keys::Rows(rows) => {
                if self.panels.len() < floats {
                    self.panels.resize(floats, 0.0);
                }
                let rows = &rows[first * run.stride..];
                tiles::pack_keys(rows, run.stride, len, dim, &mut self.panels);
                &self.panels[..floats]
            }
        };
        tiles::score(&self.query, dim, panels, width, &mut self.scores);
        width
    }

    /// Turns one row of scores into weights and rescales what the row has so far.
    fn absorb_row(&mut self, row: usize, width: usize, visible: usize, dim: usize) {
        let scores = &mut self.scores[row * width..(row + 1) * width];
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
