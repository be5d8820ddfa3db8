//! One packed forward, as flat arrays: tokens of many records side by side, without padding.
//!
//! A batch is cut into segments. A segment's tokens attend to the shared prefix, to the committed
//! slots of its sequence, to all tokens of its ancestors in the batch, and causally to each other.
//! Thus records never see one another, and the branches of one record's questions share its rows.

use std::ops::Range;

use kvcache::{Prefix, SequenceKv, SlotId};

/// A run of consecutive tokens with one parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// First token, as an index into [`Batch::tokens`].
    pub start: usize,
    /// Tokens.
    pub len: usize,
    /// Segment that comes before this one in its context; always an earlier index.
    pub parent: Option<usize>,
    /// Index into [`Batch::sequences`]: the paged slots that come before a root segment.
    pub past: Option<usize>,
}

/// The flat arrays of one packed forward.
#[derive(Debug, Default)]
pub struct Batch<'a> {
    /// Prefix shared by every row, sealed before.
    pub prefix: Option<Prefix>,
    /// Sequences whose committed slots segments continue.
    pub sequences: Vec<&'a SequenceKv>,
    /// `[tokens]`
    pub tokens: Vec<u32>,
    /// `[tokens]` counted from the start of the context, prefix included.
    pub positions: Vec<u32>,
    /// Segments tile the tokens in order.
    pub segments: Vec<Segment>,
    /// `[tokens]` where keys and values go; empty when nothing is kept (scoring).
    pub slots: Vec<SlotId>,
    /// `[asked]` token indices, ascending, whose final hidden state is wanted.
    pub asked: Vec<usize>,
    /// Whether a coarser number format will do, where the model has one.
    pub coarse: bool,
    /// Layers, ascending and below the model's number of them, whose incoming residual is handed out:
    /// of the asked tokens, and averaged over `pooled`.
    pub taps: Vec<usize>,
    /// Ranges of tokens, ascending and never empty, each inside one context.
    pub pooled: Vec<Range<usize>>,
}

impl Batch<'_> {
    /// Appends a segment and returns its index.
    ///
    /// # Panics
    /// If `tokens` is empty or `parent` does not exist yet.
    pub fn push(&mut self, tokens: &[u32], parent: Option<usize>, past: Option<usize>) -> usize {
        assert!(!tokens.is_empty(), "a segment holds at least one token");
        let before = match (parent, past) {
            (Some(parent), _) => {
                let parent = self.segments[parent];
                self.positions[parent.start + parent.len - 1] + 1
            }
            (None, Some(past)) => self.prefix_len() + self.sequences[past].len(),
            (None, None) => self.prefix_len(),
        };
        let start = self.tokens.len();
        self.tokens.extend_from_slice(tokens);
        self.positions
            .extend((0..tokens.len() as u32).map(|index| before + index));
        self.segments.push(Segment {
            start,
            len: tokens.len(),
            parent,
            past,
        });
        self.segments.len() - 1
    }

    /// Asks for the final hidden state of the last token of a segment; returns the token index.
    pub fn ask_last(&mut self, segment: usize) -> usize {
        let Segment { start, len, .. } = self.segments[segment];
        let token = start + len - 1;
        if let Err(at) = self.asked.binary_search(&token) {
            self.asked.insert(at, token);
        }
        token
    }

    /// Tokens of the shared prefix, or 0.
    pub fn prefix_len(&self) -> u32 {
        self.prefix.as_ref().map_or(0, Prefix::len)
    }

    /// The segment's ancestors, nearest first, as indices.
    pub fn ancestors(&self, segment: usize) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(self.segments[segment].parent, |&at| {
            self.segments[at].parent
        })
    }

    /// The sequence whose slots precede the segment's context, if any.
    pub fn past(&self, segment: usize) -> Option<&SequenceKv> {
        let root = self.ancestors(segment).last().unwrap_or(segment);
        self.segments[root].past.map(|at| self.sequences[at])
    }

    /// Cuts a batch that keeps nothing into at most `count` batches of whole contexts and about
    /// equal numbers of rows; together they ask for the same rows in the same order.
    ///
    /// # Panics
    /// If the batch has slots.
    pub fn split(&self, count: usize) -> Vec<Batch<'_>> {
        assert!(self.slots.is_empty(), "rows that are kept stay together");
        let mut parts: Vec<Batch<'_>> = Vec::new();
        let (mut first_segment, mut first_token) = (0, 0);
        for index in 1..=self.segments.len() {
            let end = self
                .segments
                .get(index)
                .map_or(self.tokens.len(), |segment| segment.start);
            let is_root = self
                .segments
                .get(index)
                .is_none_or(|segment| segment.parent.is_none());
            let is_last = index == self.segments.len();
            // Parts take contexts until they have their share of the rows.
            let share = self.tokens.len() * (parts.len() + 1) / count;
            if !is_last && (!is_root || end < share || parts.len() + 1 == count) {
                continue;
            }
            let rows = first_token..end;
            let from = self.asked.partition_point(|&token| token < rows.start);
            let to = self.asked.partition_point(|&token| token < rows.end);
            let pooled = self
                .pooled
                .iter()
                .filter(|range| rows.contains(&range.start));
            parts.push(Batch {
                prefix: self.prefix.clone(),
                sequences: self.sequences.clone(),
                tokens: self.tokens[rows.clone()].to_vec(),
                positions: self.positions[rows.clone()].to_vec(),
                segments: self.segments[first_segment..index]
                    .iter()
                    .map(|segment| Segment {
                        start: segment.start - rows.start,
                        parent: segment.parent.map(|parent| parent - first_segment),
                        ..*segment
                    })
                    .collect(),
                slots: Vec::new(),
                asked: self.asked[from..to]
                    .iter()
                    .map(|token| token - rows.start)
                    .collect(),
                coarse: self.coarse,
                taps: self.taps.clone(),
                pooled: pooled
                    .map(|range| range.start - rows.start..range.end - rows.start)
                    .collect(),
            });
            (first_segment, first_token) = (index, end);
        }
        parts
    }

    /// Empties the batch, keeping its memory.
    pub fn clear(&mut self) {
        self.tokens.clear();
        self.positions.clear();
        self.segments.clear();
        self.sequences.clear();
        self.slots.clear();
        self.asked.clear();
        self.taps.clear();
        self.pooled.clear();
    }
}
