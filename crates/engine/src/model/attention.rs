//! Grouped-query attention of a packed batch: the prefix part for all rows as matrix products,
//! then each row's own part, merged by softmax state.
//!
//! Knows slices and segments, no weights. Source: Milakov and Gimelshein 2018 (online softmax);
//! Hydragen 2024 (prefix and suffix parts merged by their log-sum-exp).

use std::sync::Arc;

use kvcache::{KvCache, Prefix, PrefixKey};
use rayon::prelude::*;

use super::attention16::{Causal, Head, RoundedQuery, Softmax};
use super::batch::Batch;
use super::math;
use super::tiles::{self, Values};

/// Query rows that one tile aims for; the query heads of a key head share it.
const TILE_ROWS: usize = 96;
/// Keys of one step, a multiple of the panel: bounds a tile's scores to the second-level cache.
const TILE_KEYS: usize = 512;

/// Query rows for which packing keys that no one else uses does not pay: those of one decoded token.
const UNPACKED_ROWS: usize = 8;
/// Tokens that a segment must have for packing its keys to pay.
const PACKED_LEN: usize = 16;

/// A sealed prefix, packed once and shared by every forward.
#[derive(Debug, Clone)]
pub struct PackedPrefix {
    key: PrefixKey,
    heads: Arc<Vec<PackedHead>>, // [layers * kv_heads]
}

#[derive(Debug)]
enum PackedHead {
    /// Keys in panels; the values are read where they are.
    Floats(Vec<f32>),
    /// Keys and values.
    Integers(Head),
}

impl PackedPrefix {
    /// Packs every layer's and head's keys; in 16-bit integers if asked to and the machine can.
    pub fn new(prefix: &Prefix, integers: bool) -> Self {
        let layout = prefix.layout();
        let dim = layout.head_dim as usize;
        let len = prefix.len() as usize;
        let integers = integers && Head::is_available(dim);
        let pairs: Vec<(u32, u32)> = (0..layout.layers)
            .flat_map(|layer| (0..layout.kv_heads).map(move |head| (layer, head)))
            .collect();
        let pack = |&(layer, head): &(u32, u32)| {
            let (keys, values) = (prefix.keys(layer, head), prefix.values(layer, head));
            if integers {
                let mut head = Head::default();
                head.pack(keys, values, dim, len, dim);
                return PackedHead::Integers(head);
            }
            let mut panels = vec![0.0; tiles::packed_len(len, dim)];
            tiles::pack_keys(keys, dim, len, dim, &mut panels);
            PackedHead::Floats(panels)
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

/// Keys and values of a batch's own segments, packed once a layer for all tiles that see them.
#[derive(Debug, Default)]
pub struct OwnHeads {
    kv: usize,
    heads: Vec<Head>, // [segments * kv], and what larger batches left
}

impl OwnHeads {
    fn pack(&mut self, attention: Attention<'_>) {
        let Attention { heads, batch, .. } = attention;
        self.kv = heads.kv;
        let count = batch.segments.len() * heads.kv;
        if self.heads.len() < count {
            self.heads.resize_with(count, Head::default);
        }
        self.heads[..count]
            .par_iter_mut()
            .enumerate()
            .for_each(|(index, head)| {
                let (segment, kv) = (batch.segments[index / heads.kv], index % heads.kv);
                if segment.len < PACKED_LEN {
                    return;
                }
                let run = attention.own_run(segment.start, segment.len, kv);
                if let Keys::Rows(keys) = run.keys {
                    head.pack(keys, run.values, run.stride, run.len, heads.dim);
                }
            });
    }

    fn head(&self, segment: usize, kv: usize) -> &Head {
        &self.heads[segment * self.kv + kv]
    }
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
    rounded: RoundedQuery,
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
    /// Whether keys and values are rounded, where the machine can.
    pub integers: bool,
    /// Whether only the rows that the batch asks for matter; others may be left as they are.
    pub asked_only: bool,
}

impl<'a> Attention<'a> {
    /// Attends every row and writes `out`, f32 `[tokens, query * dim]`.
    ///
    /// Promises equality with one full softmax within rounding, and that a row's result does not
    /// depend on the other rows of the batch.
    pub fn attend(self, own: &mut OwnHeads, out: &mut [f32]) {
        let heads = self.heads;
        let integers = self.integers && Head::is_available(heads.dim);
        let own = integers.then(|| {
            own.pack(self);
            &*own
        });
        let tile_tokens = (TILE_ROWS / heads.group()).max(1);
        let mut work = Vec::new();
        let mut rest = out;
        for (segment, part) in self.batch.segments.iter().enumerate() {
            for start in (0..part.len).step_by(tile_tokens) {
                let len = tile_tokens.min(part.len - start);
                let (own, later) = rest.split_at_mut(len * heads.query * heads.dim);
                rest = later;
                let first = part.start + start;
                let next = self.batch.asked.partition_point(|&token| token < first);
                let is_asked = self
                    .batch
                    .asked
                    .get(next)
                    .is_some_and(|&token| token < first + len);
                if is_asked || !self.asked_only {
                    work.push((segment, start, len, own));
                }
            }
        }
        work.into_par_iter()
            .for_each_init(Tile::empty, |tile, (segment, start, len, out)| {
                for kv in 0..heads.kv {
                    let first = self.batch.segments[segment].start + start;
                    tile.load(self.qkv, first..first + len, kv, heads);
                    if integers {
                        tile.rounded.round(&tile.query, heads.dim);
                    }
                    self.attend_tile(tile, own, segment, start, len, kv);
                    tile.store(out, len, kv, heads);
                }
            });
    }

    /// Prefix, paged slots, ancestors, own tokens: the keys in the order of their positions.
    fn attend_tile(
        self,
        tile: &mut Tile,
        own: Option<&OwnHeads>,
        segment: usize,
        start: usize,
        len: usize,
        kv: usize,
    ) {
        let heads = self.heads;
        let dim = heads.dim;
        let (layer, head) = (self.layer as u32, kv as u32);
        if let (Some(prefix), Some(packed)) = (&self.batch.prefix, self.packed) {
            match &packed.heads[self.layer * heads.kv + kv] {
                PackedHead::Integers(packed) => tile.attend_integers(packed, None),
                PackedHead::Floats(panels) => {
                    let run = Run {
                        keys: Keys::Panels(panels),
                        values: prefix.values(layer, head),
                        stride: dim,
                        len: prefix.len() as usize,
                    };
                    tile.attend(run, None, heads);
                }
            }
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
        let ancestors: Vec<usize> = self.batch.ancestors(segment).collect();
        let packed = |segment: usize| {
            let len = self.batch.segments[segment].len;
            own.filter(|_| len >= PACKED_LEN)
                .map(|own| own.head(segment, kv))
        };
        for &ancestor in ancestors.iter().rev() {
            match packed(ancestor) {
                Some(head) => tile.attend_integers(head, None),
                None => {
                    let part = self.batch.segments[ancestor];
                    tile.attend(self.own_run(part.start, part.len, kv), None, heads);
                }
            }
        }
        match packed(segment) {
            Some(head) => {
                let group = heads.group();
                tile.attend_integers(head, Some(Causal { start, group }));
            }
            None => {
                let first = self.batch.segments[segment].start;
                tile.attend(self.own_run(first, start + len, kv), Some(start), heads);
            }
        }
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
            rounded: RoundedQuery::default(),
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

    /// Attends the tile to a packed head in integers; the query must have been rounded.
    fn attend_integers(&mut self, head: &Head, causal: Option<Causal>) {
        let state = Softmax {
            max: &mut self.max,
            sum: &mut self.sum,
            out: &mut self.out,
        };
        head.attend(&mut self.rounded, causal, state);
    }

    /// scores = query * keys^T; returns the row width, `len` padded to whole panels.
    fn score(&mut self, run: Run<'_>, first: usize, len: usize, dim: usize) -> usize {
        let floats = tiles::packed_len(len, dim);
        let width = floats / dim;
        self.scores.resize(self.rows * width, 0.0);
        let panels = match run.keys {
            Keys::Panels(panels) => &panels[first * dim..][..floats],
            Keys::Rows(keys) if self.rows <= UNPACKED_ROWS => {
                self.score_unpacked(&keys[first * run.stride..], run.stride, len, dim, width);
                return width;
            }
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

    /// Scores few rows key by key, where packing the keys would cost more.
    fn score_unpacked(
        &mut self,
        keys: &[f32],
        stride: usize,
        len: usize,
        dim: usize,
        width: usize,
    ) {
        let mut column = [0.0; UNPACKED_ROWS];
        let column = &mut column[..self.rows];
        for (at, key) in keys.chunks(stride).take(len).enumerate() {
            math::dots(&self.query, dim, &key[..dim], column);
            for (row, score) in column.iter().enumerate() {
                self.scores[row * width + at] = *score;
            }
        }
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
