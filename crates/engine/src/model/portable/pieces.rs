//! Cuts a packed batch into pieces of attention, and says what each token of a piece may look at.
//!
//! One mask over the whole batch would grow with the square of its tokens, though records never see
//! one another. Knows batches and masks as numbers, no tensors.

use std::ops::Range;

use crate::model::Batch;

/// Tokens that are attended to together.
#[derive(Debug, PartialEq, Eq)]
pub struct Piece {
    /// They see no token of the batch before this one.
    pub first: usize,
    /// They see none after their end.
    pub rows: Range<usize>,
}

impl Piece {
    /// Tokens of the batch that some of its rows may see.
    pub fn seen(&self) -> usize {
        self.rows.end - self.first
    }
}

/// Pieces of at most `rows_max` tokens, in order: several records, or a part of a long one.
pub fn pieces(batch: &Batch<'_>, rows_max: usize) -> Vec<Piece> {
    let cut = |span: Range<usize>| {
        let first = span.start;
        span.clone().step_by(rows_max).map(move |start| Piece {
            first,
            rows: start..span.end.min(start + rows_max),
        })
    };
    spans(batch, rows_max).into_iter().flat_map(cut).collect()
}

/// Consecutive tokens that see none of the batch outside: whole records with their branches, as
/// many as `tokens_max` allows, and at least one.
fn spans(batch: &Batch<'_>, tokens_max: usize) -> Vec<Range<usize>> {
    let mut records: Vec<Range<usize>> = Vec::new();
    for (index, segment) in batch.segments.iter().enumerate() {
        let root = batch.segments[batch.ancestors(index).last().unwrap_or(index)];
        let mut start = segment.start;
        // A branch may follow other records than its own: all that lies between joins them.
        while let Some(record) = records.pop_if(|record| record.end > root.start) {
            start = record.start;
        }
        records.push(start..segment.start + segment.len);
    }
    let mut spans: Vec<Range<usize>> = Vec::new();
    for record in records {
        match spans.last_mut() {
            Some(span) if record.end - span.start <= tokens_max => span.end = record.end,
            _ => spans.push(record),
        }
    }
    spans
}

/// 0 where a row of the piece may look, negative infinity where not:
/// `[rows, prefix + past + seen]`.
pub fn visibility(batch: &Batch<'_>, piece: &Piece) -> Vec<f32> {
    let Piece { first, ref rows } = *piece;
    let prefix = batch.prefix_len() as usize;
    let mut own = prefix;
    let mut past = Vec::with_capacity(batch.sequences.len());
    for sequence in &batch.sequences {
        past.push(own..own + sequence.len() as usize);
        own += sequence.len() as usize;
    }
    let width = own + piece.seen();
    let mut mask = vec![f32::NEG_INFINITY; rows.len() * width];
    for (index, segment) in batch.segments.iter().enumerate() {
        let root = batch.segments[batch.ancestors(index).last().unwrap_or(index)];
        let end = segment.start + segment.len;
        for token in segment.start.max(rows.start)..end.min(rows.end) {
            let row = &mut mask[(token - rows.start) * width..][..width];
            row[..prefix].fill(0.0);
            if let Some(sequence) = root.past {
                row[past[sequence].clone()].fill(0.0);
            }
            let (_, row) = row.split_at_mut(own);
            for ancestor in batch.ancestors(index).map(|at| batch.segments[at]) {
                row[ancestor.start - first..][..ancestor.len].fill(0.0);
            }
            row[segment.start - first..=token - first].fill(0.0);
        }
    }
    mask
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three records; the first has a branch that stands after the second.
    fn batch() -> Batch<'static> {
        let mut batch = Batch::default();
        let first = batch.push(&[1, 2], None, None);
        batch.push(&[3], None, None);
        batch.push(&[4, 5], Some(first), None);
        batch.push(&[6, 7, 8], None, None);
        batch
    }

    #[test]
    fn a_cut_never_parts_a_branch_from_its_record() {
        let batch = batch();
        assert_eq!(spans(&batch, 1), [0..5, 5..8]);
        assert_eq!(spans(&batch, 7), [0..5, 5..8]);
        assert_eq!(spans(&batch, 8), vec![0..8]);
        assert!(spans(&Batch::default(), 8).is_empty());
    }

    #[test]
    fn a_long_record_is_cut_into_rows_that_see_all_of_it_before_them() {
        let piece = |first, rows| Piece { first, rows };
        let want = [piece(0, 0..3), piece(0, 3..5), piece(5, 5..8)];
        assert_eq!(pieces(&batch(), 3), want);
    }

    #[test]
    fn a_token_sees_its_ancestors_and_what_came_before_it() {
        let seen = |first, rows| -> Vec<Vec<usize>> {
            let piece = Piece { first, rows };
            let width = piece.seen();
            visibility(&batch(), &piece)
                .chunks_exact(width)
                .map(|row| (0..width).filter(|&at| row[at] == 0.0).collect())
                .collect()
        };
        let whole = [
            vec![0],
            vec![0, 1],
            vec![2],
            vec![0, 1, 3],
            vec![0, 1, 3, 4],
        ];
        assert_eq!(seen(0, 0..5), whole);
        assert_eq!(seen(0, 1..4), whole[1..4]);
        assert_eq!(seen(5, 5..8), [vec![0], vec![0, 1], vec![0, 1, 2]]);
    }
}
