//! The page of a node.

use std::fmt::Write as _;

use operator::explain::NodeExplanation;
use operator::fact::Status;

use crate::cli::words::{clip, cost, coverage, ended, entry, item, number, short, span, value};

/// Longest quote and value shown, in characters.
const CHARS: usize = 100;
/// Citations and unsettled units shown.
const SHOWN: usize = 8;

/// Appends the page.
pub fn render(out: &mut String, node: &NodeExplanation) {
    let root = if node.level == 1 { ", the root" } else { "" };
    let _ = writeln!(
        out,
        "node {}: level {} of {}{root}\n",
        node.node, node.level, node.levels
    );
    if let Some((first, last)) = &node.ends {
        let text = format!("{}; from {first} to {last}", coverage(&node.coverage));
        entry(out, "covers", &text);
    }
    entry(out, "path", &node.path.join(" > "));
    let lookup = if node.storable {
        "by which a later fold looks its states up"
    } else {
        "not stored, for the answers are simulated"
    };
    let hashes = format!(
        "decision {} ({lookup}), provenance {}",
        short(&node.hashes.fact_hash),
        short(&node.hashes.provenance_hash)
    );
    entry(out, "hashes", &hashes);
    entry(out, "cost", &cost(&node.cost));
    let _ = writeln!(
        out,
        "\nmade from {}",
        number(node.children.len() as u64, "input")
    );
    for child in &node.children {
        let adds = if child.leaf {
            let status = Status::ALL.into_iter();
            let mut status = status.filter(|status| child.coverage.of(*status) > 0);
            format!("unit, {}", status.next().map_or("unknown", ended))
        } else {
            format!("node, {}", coverage(&child.coverage))
        };
        let text = format!(
            "{adds}; decision {}, provenance {}",
            short(&child.hashes.fact_hash),
            short(&child.hashes.provenance_hash)
        );
        item(out, &child.name, &text);
    }
    let _ = writeln!(out, "\nstates, as claims over the units below");
    for state in &node.states {
        let told = match &state.refused {
            Some(refused) => format!("not answered: {refused}"),
            None => clip(&value(&state.value), CHARS),
        };
        let text = format!(
            "{}, {} counted, {} named: {told}",
            state.op, state.counted, state.named
        );
        item(out, &state.claim, &text);
    }
    let _ = writeln!(
        out,
        "\ncites {} of {}",
        node.citations.len(),
        number(node.cited_total, "unit")
    );
    for cite in node.citations.iter().take(SHOWN) {
        let text = cite.span.as_ref().map_or_else(
            || format!("the whole record, {}", short(&cite.source_hash)),
            |evidence| span(evidence, CHARS),
        );
        item(out, cite.unit_id.as_str(), &text);
        for evidence in &cite.also {
            item(out, cite.unit_id.as_str(), &span(evidence, CHARS));
        }
    }
    if node.citations.len() > SHOWN {
        let _ = writeln!(
            out,
            "  ... and {} more (--json lists them)",
            node.citations.len() - SHOWN
        );
    }
    if node.unsettled_total > 0 {
        let _ = writeln!(out, "\nunsettled: {}", number(node.unsettled_total, "unit"));
        for unit in node.unsettled.iter().take(SHOWN) {
            let reason = unit.reason.as_deref().unwrap_or("no reason was recorded");
            let text = format!("{}: {reason}", ended(unit.status));
            item(out, unit.unit_id.as_str(), &text);
        }
        let more = node.unsettled_total - node.unsettled.len().min(SHOWN) as u64;
        if more > 0 {
            let _ = writeln!(out, "  ... and {more} more");
        }
    }
}
