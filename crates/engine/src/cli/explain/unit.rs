//! The page of a unit.

use std::fmt::Write as _;

use operator::column::ColumnValue;
use operator::explain::{Lack, NodeStep, Role, Standing, UnitExplanation};
use operator::fact::{FieldValue, Step};
use operator::plan::AUDIT_STAGE;

use crate::cli::words::{
    clip, cost, coverage, ended, entry, indented, item, number, share, short, span,
};

/// Longest quote shown, in characters.
const CHARS: usize = 160;
/// Longest claim shown, in characters: one line.
const CLAIM: usize = 80;
/// Other labels shown beside the chosen one.
const ALTERNATIVES: usize = 3;

/// Appends the page.
pub fn render(out: &mut String, unit: &UnitExplanation) {
    let _ = writeln!(
        out,
        "unit {}: {} at {}\n",
        unit.unit_id,
        ended(unit.status),
        unit.stage
    );
    entry(out, "why", &unit.why);
    entry(
        out,
        "record",
        &format!(
            "position {} of {}, bytes hash to {}",
            unit.ordinal,
            unit.source,
            short(&unit.source_hash)
        ),
    );
    if !unit.members.is_empty() {
        let members: Vec<&str> = unit.members.iter().map(|member| member.as_str()).collect();
        entry(out, "records", &members.join(", "));
    }
    if unit.clipped_bytes > 0 {
        let text = format!("{} bytes of its text were not shown", unit.clipped_bytes);
        entry(out, "clipped", &text);
    }
    entry(out, "answered by", &answered(unit));
    if !unit.steps.is_empty() {
        let _ = writeln!(out, "stages");
        for step in &unit.steps {
            item(out, &step.stage, &told(step));
        }
    }
    if !unit.values.is_empty() {
        let _ = writeln!(out, "values");
        for (field, value) in &unit.values {
            item(out, field, &decided(value, &unit.stage));
        }
    }
    if !unit.columns.is_empty() {
        let _ = writeln!(out, "columns");
        for (name, value) in &unit.columns {
            let text = match value {
                ColumnValue::Integer(integer) => integer.to_string(),
                ColumnValue::Text(text) => format!("\"{}\"", clip(text, CHARS)),
            };
            item(out, name, &text);
        }
    }
    for evidence in &unit.evidence {
        entry(out, "evidence", &span(evidence, CHARS));
    }
    if unit.evidence.is_empty() {
        entry(out, "evidence", "none: no bytes are pointed at");
    }
    entry(
        out,
        "hashes",
        &format!(
            "decision {}, provenance {}",
            short(&unit.hashes.fact_hash),
            short(&unit.hashes.provenance_hash)
        ),
    );
    let nodes = number(unit.path.len() as u64, "node");
    let _ = writeln!(out, "\npath to the answer: the leaf, then {nodes}");
    for (place, step) in unit.path.iter().enumerate() {
        let root = if place + 1 == unit.path.len() {
            " (root)"
        } else {
            ""
        };
        render_step(out, step, root);
    }
    let _ = writeln!(out, "\nclaims");
    for standing in &unit.claims {
        item(out, &standing.claim, &stands(standing));
        indented(out, "             ", 13, &clip(&standing.text, CLAIM));
    }
}

fn answered(unit: &UnitExplanation) -> String {
    let Some(backend) = &unit.backend else {
        return String::from("nobody: it was not asked");
    };
    let simulated = if unit.simulated { " (simulated)" } else { "" };
    if let Some(same) = &unit.same_as {
        format!("{backend}{simulated}, for {same}, whose text is the same")
    } else if unit.remembered {
        format!(
            "{backend}{simulated} in an earlier run, remembered: it cost {} then",
            cost(&unit.cost)
        )
    } else {
        format!("{backend}{simulated} in this run: {}", cost(&unit.usage))
    }
}

/// What a stage made of a unit, and who answered there.
fn told(step: &Step) -> String {
    let mut text = step.outcome.clone();
    for (field, value) in &step.values {
        let ppm = value
            .probability_ppm
            .map_or_else(String::new, |ppm| format!(" {}", share(ppm)));
        // A selector's choice stands under the stage's own name.
        if *field == step.stage {
            text.push_str(&format!(" ({}{ppm})", value.label));
        } else {
            text.push_str(&format!("; {field} {}{ppm}", value.label));
        }
    }
    if let Some(hash) = &step.observed {
        text.push_str(&format!(" a text that hashes to {}", short(hash)));
    }
    if let Some(backend) = &step.backend {
        let how = match (&step.same_as, step.remembered) {
            (Some(same), _) => format!(", as of {same}, whose text is the same"),
            (None, true) => String::from(", remembered"),
            (None, false) => String::new(),
        };
        text.push_str(&format!(" (by {backend}{how})"));
    }
    text
}

fn decided(value: &FieldValue, stage: &str) -> String {
    let Some(ppm) = value.probability_ppm else {
        let by = match stage {
            AUDIT_STAGE => "the audit",
            _ => "a predicate",
        };
        return format!("{} (set by {by}, certain)", value.label);
    };
    let mut text = format!("{} {}", value.label, share(ppm));
    if let Some(margin) = value.margin_ppm {
        text.push_str(&format!(", margin {}", share(margin)));
    }
    if let Some(mass) = value.label_mass_ppm {
        text.push_str(&format!(", label mass {}", share(mass)));
    }
    let others: Vec<String> = value
        .alternatives
        .iter()
        .take(ALTERNATIVES)
        .map(|(label, ppm)| format!("{label} {}", share(*ppm)))
        .collect();
    if !others.is_empty() {
        let more = value.alternatives.len().saturating_sub(ALTERNATIVES);
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        text.push_str(&format!("; else {}{more}", others.join(", ")));
    }
    if let Some(code) = &value.reason_code {
        text.push_str(&format!("; because {code}"));
    }
    text
}

fn render_step(out: &mut String, step: &NodeStep, root: &str) {
    let covers = format!(
        "{} over {}",
        number(step.inputs, "input"),
        coverage(&step.coverage)
    );
    item(out, &format!("{}{root}", step.node), &covers);
    let mut line = |text: &str| indented(out, "             ", 13, text);
    line(&format!(
        "decision {}, provenance {}",
        short(&step.hashes.fact_hash),
        short(&step.hashes.provenance_hash)
    ));
    let names = |named: bool| -> String {
        let states = step.states.iter();
        let states = states.filter(|state| state.counted && state.named == named);
        let names: Vec<&str> = states.map(|state| state.claim.as_str()).collect();
        names.join(", ")
    };
    let (named, counted) = (names(true), names(false));
    match (named.is_empty(), counted.is_empty()) {
        (true, true) => line("in no state"),
        (false, true) => line(&format!("counted and named in {named}")),
        (true, false) => line(&format!("counted in {counted}")),
        (false, false) => line(&format!(
            "counted and named in {named}; counted only in {counted}"
        )),
    }
    match (step.cited, step.unsettled) {
        (true, _) => line("cited by the node"),
        (false, true) => line("named by the node as unsettled"),
        (false, false) => {}
    }
}

/// How the unit stands to a claim, in words.
fn stands(standing: &Standing) -> String {
    let cited = match standing.cited {
        Some(place) => format!("cited as {place} of {}", standing.cites),
        None if standing.cites == 0 => String::from("the claim cites nothing"),
        None => format!(
            "not cited (the claim cites {} of {})",
            standing.cites, standing.cites_total
        ),
    };
    if !standing.written_from.is_empty() {
        return format!(
            "written by the model from {}; {cited}",
            standing.written_from.join(", ")
        );
    }
    if !standing.counted {
        let lacks: Vec<String> = standing.lacks.iter().map(lacking).collect();
        return match lacks.is_empty() {
            true => String::from("not counted"),
            false => format!("not counted: {}", lacks.join("; ")),
        };
    }
    let mut parts = vec![String::from("counted")];
    parts.extend(standing.roles.iter().map(role));
    if standing.roles.is_empty() && standing.op == "top_k" {
        parts.push(String::from("not among the best"));
    }
    parts.push(cited);
    parts.join(", ")
}

fn role(role: &Role) -> String {
    match role {
        Role::Listed => String::from("listed"),
        Role::Ranked { place } => format!("ranked {place}"),
        Role::Side { side } => format!("on the {side} side"),
        Role::Key { key } => format!("under {key}"),
        Role::Exemplar { cluster } => format!("an exemplar of {cluster}"),
        Role::Unclustered => String::from("unclustered"),
        Role::Dissent => String::from("named as dissent"),
        Role::Abstention => String::from("named as an abstention"),
    }
}

fn lacking(lack: &Lack) -> String {
    let on = |side: &Option<String>| {
        side.as_ref()
            .map_or_else(String::new, |side| format!("{side}: "))
    };
    match lack {
        Lack::Decision { found } => format!("it is {}", ended(*found)),
        Lack::Value {
            side,
            name,
            wanted,
            found: Some(found),
        } => format!("{}{name} is {found}, the claim wants {wanted}", on(side)),
        Lack::Value {
            side, name, wanted, ..
        } => format!("{}it has no {name}, the claim wants {wanted}", on(side)),
        Lack::Measure { side, name } => format!("{}it has no value of {name}", on(side)),
    }
}
