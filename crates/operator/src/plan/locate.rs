//! Where in a plan's text something is, for errors.

use std::ops::Range;

use crate::error::OperatorError;

/// A plan error at a span of the text.
pub(super) fn plan_error(
    text: &str,
    path: &str,
    span: &Range<usize>,
    problem: String,
) -> OperatorError {
    let (line, column) = place(text, span);
    OperatorError::Plan {
        path: path.to_owned(),
        line,
        column,
        problem,
    }
}

/// Line and column of a span's start, both from 1.
pub(super) fn place(text: &str, span: &Range<usize>) -> (u64, u64) {
    let before = &text.as_bytes()[..span.start.min(text.len())];
    let line_start = before
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |at| at + 1);
    let line = before.iter().filter(|byte| **byte == b'\n').count() as u64 + 1;
    (line, (before.len() - line_start) as u64 + 1)
}
