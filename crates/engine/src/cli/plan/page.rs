//! What a run would do, as a person reads it in a terminal.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, Table, presets};
use operator::survey::StageSurvey;

use super::super::{ladder, words};
use super::Outlook;

/// Records that are named of a list; all are in the JSON.
const SHOWN: usize = 5;

/// Renders an outlook.
pub fn render(outlook: &Outlook) -> String {
    let mut page = String::new();
    let out = &mut page;
    let survey = &outlook.survey;
    let _ = writeln!(out, "{}\n", outlook.question);
    words::entry(out, "plan", &format!("{}, valid", outlook.plan));
    words::entry(
        out,
        "input",
        &format!(
            "{}, {}",
            outlook.input,
            words::number(survey.units, "record")
        ),
    );
    match (&outlook.model, &outlook.without_model) {
        (Some(model), _) => words::entry(out, "model", &model.describe),
        (None, Some(reason)) => words::entry(
            out,
            "model",
            &format!("not here, so that tokens and remembered answers are unknown: {reason}"),
        ),
        (None, None) => {}
    }
    budget(out, outlook);
    for bad in survey.unreadable.iter().take(SHOWN) {
        words::entry(out, "unreadable", &format!("{}: {}", bad.place, bad.reason));
    }
    more(out, "unreadable", survey.unreadable.len());
    indexes(out, outlook);
    if !survey.ladder.is_empty() {
        let _ = writeln!(out, "\n{}", ladder::table(&survey.ladder));
    }
    let left = survey.kept - survey.over_limit;
    words::entry(out, "left", &words::number(left, "record"));
    if survey.over_limit > 0 {
        let over = words::number(survey.over_limit, "record");
        words::entry(out, "not run", &format!("{over} over the limit"));
    }
    let _ = writeln!(out, "\n{}", stages(&survey.stages));
    for stage in &survey.stages {
        lists(out, stage);
    }
    for step in &survey.may {
        words::entry(
            out,
            "may",
            &format!("{}: {}", step.step, step.may.join("; ")),
        );
    }
    expected(out, outlook);
    page
}

fn budget(out: &mut String, outlook: &Outlook) {
    let limits = [
        ("records", outlook.budget.units_max),
        ("tokens", outlook.budget.tokens_max),
        ("seconds", outlook.budget.seconds_max),
    ];
    let parts: Vec<String> = limits
        .into_iter()
        .filter_map(|(what, most)| Some(format!("at most {} {what}", most?)))
        .collect();
    let text = match parts.is_empty() {
        true => String::from("none"),
        false => parts.join(", "),
    };
    words::entry(out, "budget", &text);
}

fn indexes(out: &mut String, outlook: &Outlook) {
    for index in &outlook.survey.indexes {
        let mut text = format!(
            "{} ({}): {} of {} have a value, {} members",
            index.name, index.kind, index.valued, index.records, index.members
        );
        if index.unreadable > 0 {
            let _ = write!(text, ", {} with a field that is no text", index.unreadable);
        }
        if let Some(learned) = &index.learned {
            let _ = write!(
                text,
                "; learned from {}, of which {} are in the input and are not judged by it",
                words::number(learned.records, "record"),
                learned.not_judged
            );
            if learned.unknown > 0 {
                let names = words::list(&learned.unknown_ids, SHOWN, learned.unknown);
                let _ = write!(text, "; labels without a record: {names}");
            }
        }
        words::entry(out, "index", &text);
    }
}

/// A stage by its operator and name; the only stage of a plan has both in one.
fn title(stage: &StageSurvey) -> String {
    match stage.op == stage.name {
        true => stage.name.clone(),
        false => format!("{} {}", stage.op, stage.name),
    }
}

fn stages(stages: &[StageSurvey]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header([
        "stage",
        "units",
        "no text",
        "too long",
        "clipped",
        "remembered",
        "equal",
        "asked",
        "tokens",
    ]);
    let shown = |count: Option<u64>| count.map_or_else(|| String::from("?"), |n| n.to_string());
    for stage in stages {
        let most = if stage.at_most { "<= " } else { "" };
        let tokens = match (stage.shared_tokens, stage.unit_tokens) {
            (Some(shared), Some(units)) => format!("{most}{shared} + {units}"),
            _ => String::from("?"),
        };
        table.add_row([
            title(stage),
            format!("{most}{}", stage.units),
            stage.malformed.len().to_string(),
            stage.too_long.len().to_string(),
            stage.clipped.len().to_string(),
            shown(stage.remembered),
            shown(stage.duplicates),
            shown(stage.asked),
            tokens,
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

fn lists(out: &mut String, stage: &StageSurvey) {
    for (name, units) in [("no text", &stage.malformed), ("too long", &stage.too_long)] {
        for unit in units.iter().take(SHOWN) {
            words::entry(out, name, &format!("[{}] {}", unit.unit, unit.reason));
        }
        more(out, name, units.len());
    }
    if !stage.clipped.is_empty() {
        let mut longest: Vec<_> = stage.clipped.iter().collect();
        longest.sort_by_key(|unit| std::cmp::Reverse(unit.bytes));
        let names: Vec<String> = longest
            .iter()
            .map(|unit| format!("[{}] {} bytes", unit.unit, unit.bytes))
            .collect();
        let text = words::list(&names, SHOWN, names.len() as u64);
        words::entry(out, "clipped", &format!("{}: {text} left out", stage.name));
    }
    if stage.text_grows {
        let text = format!(
            "{}: a tool shows it more text than is counted here",
            stage.name
        );
        words::entry(out, "tokens", &text);
    }
}

fn more(out: &mut String, name: &str, total: usize) {
    if total > SHOWN {
        words::entry(out, name, &format!("and {} more", total - SHOWN));
    }
}

fn expected(out: &mut String, outlook: &Outlook) {
    let Some(expected) = &outlook.expected else {
        return;
    };
    let most = if expected.at_most { "at most " } else { "" };
    let tokens = expected.computed_tokens;
    let time = match (expected.millis, &expected.time_from) {
        (Some(millis), Some(from)) => {
            format!(
                "about {}.{} s, told from {from}",
                millis / 1_000,
                millis % 1_000 / 100
            )
        }
        _ => String::from("time unknown; pass --measure N to ask about N records"),
    };
    words::entry(
        out,
        "expected",
        &format!("{most}{tokens} tokens computed, {time}"),
    );
}
