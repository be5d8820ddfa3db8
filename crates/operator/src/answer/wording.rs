//! What all claims share in their wording: a plan's placeholders, and what is not covered.

use crate::coverage::Counts;

/// Replaces both placeholders in one walk, so that a value holding braces is left alone.
pub(crate) fn fill(wording: &str, value: &str, count: u64) -> String {
    let mut text = String::new();
    let mut rest = wording;
    while let Some(open) = rest.find('{') {
        text.push_str(&rest[..open]);
        rest = &rest[open..];
        if let Some(after) = rest.strip_prefix("{value}") {
            text.push_str(value);
            rest = after;
        } else if let Some(after) = rest.strip_prefix("{count}") {
            text.push_str(&count.to_string());
            rest = after;
        } else {
            text.push('{');
            rest = &rest[1..];
        }
    }
    text + rest
}

/// Says what a claim does not cover; empty when it covers everything.
pub(crate) fn gap(counts: Counts) -> String {
    let incomplete = !counts.complete();
    gap_with(counts, if incomplete { "incomplete: " } else { "" })
}

/// As [`gap`], of a run that stopped where its rules allow it.
pub(crate) fn gap_by_rule(counts: Counts) -> String {
    gap_with(counts, "stopped by rule: ")
}

fn gap_with(counts: Counts, whole: &str) -> String {
    let mut gaps = Vec::new();
    for (count, name) in [
        (counts.abstained, "abstained"),
        (counts.errored, "errored"),
        (counts.cancelled, "were cancelled"),
        (counts.not_run, "were not run"),
    ] {
        if count > 0 {
            gaps.push(format!("{count} {name}"));
        }
    }
    if gaps.is_empty() {
        return String::new();
    }
    format!(
        " ({whole}of {} units {} and are not counted)",
        counts.units,
        gaps.join(", ")
    )
}
