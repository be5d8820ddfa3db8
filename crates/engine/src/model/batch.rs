//! One packed forward, as flat arrays: tokens of many records side by side, without padding.
//!
//! A batch is cut into segments. A segment's tokens attend to the shared prefix, to the committed
//! slots of its sequence, to all tokens of its ancestors in the batch, and causally to each other.
//! Thus records never see one another, and the branches of one record's questions share its rows.

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

    /// The segment's ancestors, nearest first.
    pub fn ancestors(&self, segment: usize) -> impl Iterator<Item = Segment> + '_ {
        std::iter::successors(self.segments[segment].parent, |&at| {
            self.segments[at].parent
        })
        .map(|at| self.segments[at])
    }

    /// The sequence whose slots precede the segment's context, if any.
    pub fn past(&self, segment: usize) -> Option<&SequenceKv> {
        let own = self.segments[segment];
        let root = self.ancestors(segment).last().unwrap_or(own);
        root.past.map(|at| self.sequences[at])
    }

    /// Empties the batch, keeping its memory.
    pub fn clear(&mut self) {
        self.tokens.clear();
        self.positions.clear();
        self.segments.clear();
        self.sequences.clear();
        self.slots.clear();
        self.asked.clear();
    }
}
