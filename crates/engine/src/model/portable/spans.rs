//! Cuts a packed batch between its records, and says what each token of a piece may look at.
//!
//! One mask over the whole batch would grow with the square of its tokens, though records never see
//! one another. Knows batches and masks as numbers, no tensors.

use std::ops::Range;

use crate::model::Batch;

/// Consecutive tokens that see none of the batch outside: whole records with their branches, as
/// many as `tokens_max` allows, and at least one.
pub fn spans(batch: &Batch<'_>, tokens_max: usize) -> Vec<Range<usize>> {
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

/// 0 where a token of the span may look, negative infinity where not:
/// `[span, prefix + past + span]`.
pub fn visibility(batch: &Batch<'_>, span: &Range<usize>) -> Vec<f32> {
    let prefix = batch.prefix_len() as usize;
    let mut own = prefix;
    let mut past = Vec::with_capacity(batch.sequences.len());
    for sequence in &batch.sequences {
        past.push(own..own + sequence.len() as usize);
        own += sequence.len() as usize;
    }
    let width = own + span.len();
    let mut mask = vec![f32::NEG_INFINITY; span.len() * width];
    for (index, segment) in batch.segments.iter().enumerate() {
        if !span.contains(&segment.start) {
            continue;
        }
        let root = batch.segments[batch.ancestors(index).last().unwrap_or(index)];
        for offset in 0..segment.len {
            let row = segment.start - span.start + offset;
            let row = &mut mask[row * width..][..width];
            row[..prefix].fill(0.0);
            if let Some(sequence) = root.past {
                row[past[sequence].clone()].fill(0.0);
            }
            let (_, row) = row.split_at_mut(own);
            for ancestor in batch.ancestors(index).map(|at| batch.segments[at]) {
                row[ancestor.start - span.start..][..ancestor.len].fill(0.0);
            }
            row[segment.start - span.start..][..=offset].fill(0.0);
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
    fn a_token_sees_its_ancestors_and_what_came_before_it() {
        let seen = |mask: &[f32], width: usize| -> Vec<Vec<usize>> {
            mask.chunks_exact(width)
                .map(|row| (0..width).filter(|&at| row[at] == 0.0).collect())
                .collect()
        };
        let first = visibility(&batch(), &(0..5));
        let want = [
            vec![0],
            vec![0, 1],
            vec![2],
            vec![0, 1, 3],
            vec![0, 1, 3, 4],
        ];
        assert_eq!(seen(&first, 5), want);
        let last = visibility(&batch(), &(5..8));
        assert_eq!(seen(&last, 3), [vec![0], vec![0, 1], vec![0, 1, 2]]);
    }
}
