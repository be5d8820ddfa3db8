//! The page of a claim.

use std::fmt::Write as _;

use operator::explain::ClaimExplanation;

use crate::cli::words::{clip, entry, indented, item, number, short, span, value};

/// Longest quote shown, in characters.
const QUOTE: usize = 100;
/// Longest value shown, in characters.
const VALUE: usize = 400;
/// Nodes shown.
const NODES: usize = 16;

/// Appends the page.
pub fn render(out: &mut String, explained: &ClaimExplanation) {
    let claim = &explained.claim;
    let _ = writeln!(out, "claim {}: {}\n", claim.name, explained.op);
    entry(out, "says", &claim.text);
    match &claim.refused {
        Some(refused) => entry(out, "no value", refused),
        None => entry(out, "value", &clip(&value(&claim.value), VALUE)),
    }
    if explained.written_from.is_empty() {
        let selects = match explained.selects.as_str() {
            "" => "every decided unit",
            selects => selects,
        };
        entry(out, "selects", selects);
        let counted = format!(
            "{} of {} units",
            explained.counted, explained.coverage.units
        );
        let outliers = match explained.op.as_str() {
            "clusters" => ", with the abstentions that the claim names",
            _ => "",
        };
        entry(out, "counted", &(counted + outliers));
        let left: Vec<String> = explained
            .left_out
            .iter()
            .map(|row| format!("{} ({})", row.why, row.units))
            .collect();
        if !left.is_empty() {
            entry(out, "left out", &left.join(", "));
        }
    } else {
        let text = format!("the model, from {}", explained.written_from.join(", "));
        entry(out, "written by", &text);
    }
    let _ = writeln!(
        out,
        "\ncites {} of {}",
        claim.cites.len(),
        number(claim.cites_total, "unit")
    );
    for cite in &claim.cites {
        let text = cite.span.as_ref().map_or_else(
            || format!("the whole record, {}", short(&cite.source_hash)),
            |evidence| span(evidence, QUOTE),
        );
        item(out, cite.unit_id.as_str(), &text);
        for evidence in &cite.also {
            item(out, cite.unit_id.as_str(), &span(evidence, QUOTE));
        }
    }
    if explained.written_from.is_empty() {
        let _ = writeln!(
            out,
            "\ncarried by {} of {}",
            explained.carriers_total,
            number(explained.nodes, "node")
        );
    }
    for carrier in explained.carriers.iter().take(NODES) {
        let depth = usize::try_from(carrier.level).unwrap_or(1);
        let indent = "  ".repeat(depth);
        let text = format!(
            "{} counted of {}",
            carrier.counted,
            number(carrier.units, "unit")
        );
        let name = format!("{indent}{:<11} ", carrier.node);
        indented(out, &name, indent.len() + 12, &text);
    }
    let more = explained
        .carriers_total
        .saturating_sub(explained.carriers.len().min(NODES) as u64);
    if more > 0 {
        let _ = writeln!(out, "  ... and {more} more");
    }
}
