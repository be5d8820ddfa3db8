//! The units of a difference, those that changed alike together.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use operator::diff::{Aspect, Cause, Difference, UnitDifference, UnitSide};

use crate::cli::words::{ended, indented, number, share, short};

/// Units shown of each kind of change.
const UNITS: usize = 8;

/// Appends the section.
pub fn render(out: &mut String, difference: &Difference) {
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
        Cause::Index => "what an index said",
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
