//! The page of a difference: the outcome first, then what was given, then what came of it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use operator::diff::{
    Aspect, Both, Cause, ClaimDifference, ClaimSide, Difference, TreeDifference, UnitDifference,
    UnitSide,
};
use operator::id::ContentHash;

use crate::cli::words::{clip, coverage, ended, entry, indented, item, list, number, share, short};

/// Units shown of each kind of change, and units named on one line.
const UNITS: usize = 8;
/// Nodes shown.
const NODES: usize = 16;
/// Longest claim shown, in characters.
const CHARS: usize = 600;

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
    render_units(out, difference);
    render_tree(out, &difference.tree);
    render_claims(out, difference);
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

fn render_units(out: &mut String, difference: &Difference) {
    let units = &difference.units;
    let added = units.iter().filter(|unit| unit.before.is_none()).count();
    let removed = units.iter().filter(|unit| unit.after.is_none()).count();
    let _ = writeln!(
        out,
        "\nunits: {} same, {} changed, {added} added, {removed} removed",
        difference.units_same,
        units.len() - added - removed
    );
    let mut groups: BTreeMap<String, Vec<&UnitDifference>> = BTreeMap::new();
    for unit in units {
        groups.entry(group(unit)).or_default().push(unit);
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, units)| std::cmp::Reverse(units.len()));
    for (name, units) in groups {
        let text = format!("{}: {name}", number(units.len() as u64, "unit"));
        indented(out, "  ", 4, &text);
        for unit in units.iter().take(UNITS) {
            let text = match (&unit.before, &unit.after) {
                (Some(before), Some(after)) => change(unit, before, after),
                (Some(side), None) | (None, Some(side)) => state(side),
                (None, None) => String::new(),
            };
            let name = format!("    {:<8} ", unit.unit_id.as_str());
            indented(out, &name, 13, &text);
        }
        if units.len() > UNITS {
            let more = units.len() - UNITS;
            let _ = writeln!(out, "    ... and {more} more (--json lists them)");
        }
    }
}

/// What changes of a kind share.
fn group(unit: &UnitDifference) -> String {
    if unit.before.is_none() {
        return String::from("added");
    }
    if unit.after.is_none() {
        return String::from("removed");
    }
    let causes: Vec<&str> = unit.causes.iter().map(|cause| word(*cause)).collect();
    let what = if unit.decision {
        "decision changed"
    } else if unit.aspects == [Aspect::Evidence] {
        "same bytes and decision, other evidence"
    } else {
        "same decision, other provenance"
    };
    format!("{what}; by {}", causes.join(" or "))
}

fn word(cause: Cause) -> &'static str {
    match cause {
        Cause::Source => "its bytes",
        Cause::Plan => "the plan",
        Cause::Backend => "the backend",
        Cause::Course => "the course of the run",
    }
}

fn state(side: &UnitSide) -> String {
    let mut text = format!("{} at {}", ended(side.status), side.stage);
    if let Some(reason) = &side.reason {
        text.push_str(&format!(": {reason}"));
    }
    for (field, (label, ppm)) in &side.values {
        text.push_str(&format!(", {field} {label}{}", chance(*ppm)));
    }
    text
}

fn chance(ppm: Option<u32>) -> String {
    ppm.map_or_else(String::new, |ppm| format!(" {}", share(ppm)))
}

/// Everything of a unit that differs.
fn change(unit: &UnitDifference, before: &UnitSide, after: &UnitSide) -> String {
    let mut parts = Vec::new();
    for aspect in &unit.aspects {
        match aspect {
            Aspect::Source => parts.push(format!(
                "bytes {} -> {}",
                short(&before.source_hash),
                short(&after.source_hash)
            )),
            Aspect::Status => parts.push(format!(
                "{} -> {}",
                ended(before.status),
                ended(after.status)
            )),
            Aspect::Reason => {
                let reason = |side: &UnitSide| match &side.reason {
                    Some(reason) => format!("\"{reason}\""),
                    None => String::from("none"),
                };
                if before.stage != after.stage {
                    parts.push(format!("stage {} -> {}", before.stage, after.stage));
                }
                parts.push(format!("reason {} -> {}", reason(before), reason(after)));
            }
            Aspect::Labels | Aspect::Probabilities => parts.extend(values(before, after)),
            Aspect::Columns => {
                let names = before.columns.keys().chain(after.columns.keys());
                let mut names: Vec<&str> = names
                    .filter(|name| before.columns.get(*name) != after.columns.get(*name))
                    .map(String::as_str)
                    .collect();
                names.sort_unstable();
                names.dedup();
                parts.push(format!("columns {}", names.join(", ")));
            }
            Aspect::Evidence => {
                let span = |side: &UnitSide| {
                    side.evidence.first().map_or_else(
                        || String::from("none"),
                        |span| format!("{} {}..{}", span.field, span.start, span.end),
                    )
                };
                parts.push(format!("evidence {} -> {}", span(before), span(after)));
            }
            Aspect::Clipping => parts.push(String::from("other bytes were clipped")),
            Aspect::Answerer => {
                let name = |side: &UnitSide| side.backend.clone().unwrap_or("nobody".to_owned());
                parts.push(format!("answered by {} -> {}", name(before), name(after)));
            }
        }
    }
    parts.join("; ")
}

fn values(before: &UnitSide, after: &UnitSide) -> Vec<String> {
    let told = |side: &UnitSide, field: &str| {
        side.values.get(field).map_or_else(
            || String::from("none"),
            |(label, ppm)| format!("{label}{}", chance(*ppm)),
        )
    };
    let mut fields: Vec<&String> = before.values.keys().chain(after.values.keys()).collect();
    fields.sort_unstable();
    fields.dedup();
    fields
        .into_iter()
        .filter(|field| before.values.get(*field) != after.values.get(*field))
        .map(|field| format!("{field} {} -> {}", told(before, field), told(after, field)))
        .collect()
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

fn render_claims(out: &mut String, difference: &Difference) {
    let _ = writeln!(
        out,
        "\nclaims: {} same, {} changed",
        difference.claims_same,
        difference.claims.len()
    );
    for claim in &difference.claims {
        render_claim(out, claim);
    }
}

fn render_claim(out: &mut String, claim: &ClaimDifference) {
    let mut what = Vec::new();
    match (&claim.before, &claim.after) {
        (None, _) => what.push("new"),
        (_, None) => what.push("gone"),
        (Some(before), Some(after)) if claim.value_changed || before.text != after.text => {
            what.push(if claim.value_changed {
                "other value"
            } else {
                "same value in other words"
            });
        }
        _ => what.push("same value, other citations"),
    }
    if claim.reduction_changed && claim.before.is_some() && claim.after.is_some() {
        what.push("its reduction changed");
    }
    let _ = writeln!(out, "  {}: {}", claim.claim, what.join(", "));
    let text = |side: &Option<ClaimSide>| side.as_ref().map(|side| clip(&side.text, CHARS));
    match (text(&claim.before), text(&claim.after)) {
        (Some(before), Some(after)) if before == after => {
            indented(out, "      ", 6, &before);
        }
        (before, after) => {
            for (sign, text) in [("    - ", before), ("    + ", after)] {
                if let Some(text) = text {
                    indented(out, sign, 6, &text);
                }
            }
        }
    }
    let total = |side: &Option<ClaimSide>| side.as_ref().map(|side| side.cites_total);
    let mut cites: Vec<String> = [
        ("added", &claim.cites_added),
        ("removed", &claim.cites_removed),
        ("other bytes of", &claim.cites_changed),
    ]
    .into_iter()
    .filter(|(_, units)| !units.is_empty())
    .map(|(what, units)| format!("{what} {}", list(units, UNITS, units.len() as u64)))
    .collect();
    if let (Some(before), Some(after)) = (total(&claim.before), total(&claim.after))
        && before != after
    {
        cites.push(format!("could cite {before} -> {after}"));
    }
    if !cites.is_empty() {
        indented(out, "      cites: ", 13, &cites.join("; "));
    }
    if claim.behind_total > 0 {
        let units = list(&claim.behind, UNITS, claim.behind_total);
        indented(out, "      behind it: ", 17, &units);
    }
}
