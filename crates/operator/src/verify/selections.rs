//! What selectors chose, counted again from the paths: cell by cell, each over all facts.

use std::collections::BTreeMap;

use super::difference::difference;
use super::{Place, Report, Subject};
use crate::answer::{OptionRow, Rivalry, Selection};
use crate::fact::{Fact, FieldValue, Status, Step};
use crate::plan::{Select, StageOp};

/// How many of the closest choices of an option are named.
const CLOSEST: usize = 3;

/// Compares what the answer says of each selector with what the facts say.
pub(super) fn check(subject: Subject<'_>, report: &mut Report) {
    let found = &subject.answer.selections;
    if subject.answer.quarantine.is_some() {
        if !found.is_empty() {
            report.content(Place::Answer, "is under quarantine, and counts choices");
        }
        return;
    }
    let stages = subject.plan.stages.iter();
    let right: Vec<Selection> = stages
        .filter_map(|stage| match &stage.op {
            StageOp::Select(select) => Some(count(select, &stage.name, subject.facts)),
            StageOp::Map(_) | StageOp::Tool(_) => None,
        })
        .collect();
    if let Some(differs) = difference(found, &right) {
        report.content(Place::Answer, format!("selections: {differs}"));
    }
}

/// A unit at a selector.
struct Choice<'a> {
    fact: &'a Fact,
    step: &'a Step,
    /// The distribution, where there was a choice.
    value: Option<&'a FieldValue>,
}

fn count(select: &Select, name: &str, facts: &[Fact]) -> Selection {
    let came: Vec<Choice<'_>> = facts
        .iter()
        .filter_map(|fact| {
            let step = fact.path.iter().find(|step| step.stage == name)?;
            let options = || select.options.iter().map(|option| &option.label.name);
            let known = options().any(|option| *option == step.outcome);
            let value = step.values.get(name).filter(|_| known);
            Some(Choice { fact, step, value })
        })
        .collect();
    let unclear = |choice: &&Choice<'_>| {
        let margin = choice.value.and_then(|value| value.margin_ppm);
        match &select.unclear {
            Some(unclear) if choice.value.is_some() => {
                margin.unwrap_or_default() < unclear.margin_below_ppm
            }
            _ => false,
        }
    };
    let chosen = came.iter().filter(|choice| choice.value.is_some()).count();
    let options = select.options.iter().map(|option| {
        let option = &option.label.name;
        let takes = |choice: &&Choice<'_>| choice.value.is_some() && choice.step.outcome == *option;
        let took: Vec<&Choice<'_>> = came.iter().filter(takes).collect();
        let mut row = OptionRow {
            option: option.clone(),
            units: took.len() as u64,
            unclear: took.iter().copied().filter(unclear).count() as u64,
            ..outcomes(&took)
        };
        (row.rivals, row.closest) = rivals(option, &took);
        row
    });
    Selection {
        stage: name.to_owned(),
        why: select.why.clone(),
        chosen: chosen as u64,
        unclear: came.iter().filter(unclear).count() as u64,
        without_choice: (came.len() - chosen) as u64,
        options: options.collect(),
    }
}

/// How units ended.
fn outcomes(took: &[&Choice<'_>]) -> OptionRow {
    let mut row = OptionRow::default();
    for status in Status::ALL {
        let ended = took.iter().filter(|choice| choice.fact.status == status);
        let units = ended.count() as u64;
        if units > 0 {
            row.statuses.insert(status.name().to_owned(), units);
        }
    }
    let decided = took
        .iter()
        .filter(|choice| choice.fact.status == Status::Decided);
    for (field, value) in decided.flat_map(|choice| &choice.fact.values) {
        let labels = row.labels.entry(field.clone()).or_default();
        *labels.entry(value.label.clone()).or_default() += 1;
    }
    row
}

/// The best other option of each unit, and the units for which it came closest.
fn rivals(option: &str, took: &[&Choice<'_>]) -> (BTreeMap<String, u64>, Vec<Rivalry>) {
    let mut all: Vec<Rivalry> = Vec::new();
    for choice in took {
        let Some(value) = choice.value else { continue };
        let best = (&value.label, value.probability_ppm.unwrap_or_default());
        let others = value.alternatives.iter().map(|(label, ppm)| (label, *ppm));
        let shares: Vec<(&String, u32)> = std::iter::once(best).chain(others).collect();
        let taken = shares.iter().find(|(label, _)| *label == option);
        let rival = shares.iter().find(|(label, _)| *label != option);
        let Some((rival, rival_ppm)) = rival else {
            continue;
        };
        all.push(Rivalry {
            unit_id: choice.fact.unit_id.clone(),
            taken_ppm: taken.map_or(0, |(_, ppm)| *ppm),
            rival: (*rival).clone(),
            rival_ppm: *rival_ppm,
        });
    }
    let mut counts = BTreeMap::new();
    for rivalry in &all {
        *counts.entry(rivalry.rival.clone()).or_default() += 1;
    }
    all.sort_by_key(|rivalry| i64::from(rivalry.taken_ppm) - i64::from(rivalry.rival_ppm));
    all.truncate(CLOSEST);
    (counts, all)
}
