//! The page of a difference: the outcome first, then what was given, then what came of it.

use std::fmt::Write as _;

use operator::diff::{Both, Difference, TreeDifference};
use operator::id::ContentHash;

use super::{claims, units};
use crate::cli::words::{coverage, entry, indented, item, list, number, short};

/// Nodes shown.
const NODES: usize = 16;

/// Renders the page.
pub fn render(difference: &Difference, before: &str, after: &str) -> String {
    let mut page = String::new();
    let out = &mut page;
    let result = &difference.result;
    if difference.same_result {
        let _ = writeln!(out, "same result {}\n", result.before);
    } else {
        let _ = writeln!(out, "results differ: {}\n", outcome(difference));
    }
    entry(
        out,
        "before",
        &format!("{before}, result {}", short(&result.before)),
    );
    entry(
        out,
        "after",
        &format!("{after}, result {}", short(&result.after)),
    );
    out.push('\n');
    render_given(out, difference);
    units::render(out, difference);
    render_tree(out, &difference.tree);
    claims::render(out, difference);
    page
}

/// What of the result differs.
fn outcome(difference: &Difference) -> String {
    let mut parts = Vec::new();
    let claims = difference.claims.len() as u64;
    if claims > 0 {
        parts.push(number(claims, "claim"));
    }
    for (same, name) in [
        (difference.coverage.same(), "the coverage"),
        (difference.plan.same(), "the plan"),
        (
            difference.backend.same() && difference.simulated.same(),
            "the backend",
        ),
    ] {
        if !same {
            parts.push(name.to_owned());
        }
    }
    match claims {
        0 if parts.is_empty() => String::from("only in their hashes"),
        0 => format!("only in {}, every claim is the same", parts.join(", ")),
        _ => parts.join(", "),
    }
}

/// What the runs were given.
fn render_given(out: &mut String, difference: &Difference) {
    entry(out, "plan", &hashes(&difference.plan, None));
    let question = &difference.question;
    if !question.same() {
        let text = format!("\"{}\" -> \"{}\"", question.before, question.after);
        entry(out, "question", &text);
    }
    let source = hashes(&difference.source, Some(&difference.source_path));
    entry(out, "source", &source);
    let mut backend = hashes(&difference.backend, Some(&difference.backend_name));
    match (difference.simulated.before, difference.simulated.after) {
        (true, true) => backend.push_str(" (both simulated)"),
        (true, false) => backend.push_str(" (before simulated)"),
        (false, true) => backend.push_str(" (after simulated)"),
        (false, false) => {}
    }
    entry(out, "backend", &backend);
    let counts = &difference.coverage;
    let text = if counts.same() {
        coverage(&counts.before)
    } else {
        format!(
            "{} -> {}",
            coverage(&counts.before),
            coverage(&counts.after)
        )
    };
    entry(out, "coverage", &text);
}

fn hashes(hash: &Both<ContentHash>, name: Option<&Both<String>>) -> String {
    let told = |side: fn(&Both<String>) -> &String, hash: &ContentHash| match name {
        Some(name) => format!("{} {}", side(name), short(hash)),
        None => short(hash),
    };
    let before = told(|name| &name.before, &hash.before);
    if hash.same() {
        format!("same: {before}")
    } else {
        format!(
            "changed: {before} -> {}",
            told(|name| &name.after, &hash.after)
        )
    }
}

fn render_tree(out: &mut String, tree: &TreeDifference) {
    let (changed, added, removed) = match tree {
        TreeDifference::Incomparable { why } => {
            out.push('\n');
            indented(
                out,
                "nodes: ",
                2,
                &format!("not compared one by one: {why}"),
            );
            return;
        }
        TreeDifference::Compared {
            reductions_changed,
            nodes,
            same,
            visited,
            changed,
            added,
            removed,
        } => {
            let _ = writeln!(
                out,
                "\nnodes: {same} same, {} changed, {} added, {} removed ({visited} of {} looked at)",
                changed.len(),
                added.len(),
                removed.len(),
                nodes.before + nodes.after
            );
            if *reductions_changed {
                let _ = writeln!(
                    out,
                    "  the plan's reductions differ, and with them every node"
                );
            }
            (changed, added, removed)
        }
    };
    for node in changed.iter().take(NODES) {
        let text = match (node.decision, node.states.as_slice()) {
            (false, _) => String::from("provenance only: other bytes below, the same decisions"),
            (true, []) => String::from("decisions below differ, no state does"),
            (true, states) => {
                format!("states {}", list(states, states.len(), states.len() as u64))
            }
        };
        item(out, &node.node, &text);
    }
    if changed.len() > NODES {
        let _ = writeln!(
            out,
            "  ... and {} more (--json lists them)",
            changed.len() - NODES
        );
    }
    for (what, nodes) in [("added", added), ("removed", removed)] {
        let names: Vec<&str> = nodes.iter().map(|node| node.node.as_str()).collect();
        if !names.is_empty() {
            item(out, what, &list(&names, NODES, names.len() as u64));
        }
    }
}
