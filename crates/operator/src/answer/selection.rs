//! What selectors chose and what came of it: one matrix of counts per selector, with the plan's reason
//! for asking a model at all.
//!
//! Nothing here changes an answer about a unit. Must not know how a choice was made.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::fact::{Fact, FieldValue, Status};
use crate::id::UnitId;
use crate::plan::{Plan, Select, StageOp};

/// How many of the closest choices of an option are named.
const CLOSEST_MAX: usize = 3;

/// What one selector chose, and how its units ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Selection {
    /// The selector's stage.
    pub stage: String,
    /// Why no predicate, index or classifier could decide this, in the plan's words.
    pub why: String,
    /// Units for which it chose.
    pub chosen: u64,
    /// Of these, units for which its choice was not clear, so that the declared option was taken.
    pub unclear: u64,
    /// Units that came to it and ended without a choice.
    pub without_choice: u64,
    /// Its options, in plan order.
    pub options: Vec<OptionRow>,
}

/// One row of the matrix: an option, and how the units ended that took it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OptionRow {
    /// The option.
    pub option: String,
    /// Units that took it.
    pub units: u64,
    /// Of these, units that took it because no choice was clear.
    pub unclear: u64,
    /// Units per status in which they ended.
    pub statuses: BTreeMap<String, u64>,
    /// Of the decided ones: units per field and label.
    pub labels: BTreeMap<String, BTreeMap<String, u64>>,
    /// Units per option that was the most probable one beside it.
    pub rivals: BTreeMap<String, u64>,
    /// The units whose rival came closest, the closest first.
    pub closest: Vec<Rivalry>,
}

/// A choice and its best alternative, in parts per million.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rivalry {
    /// The unit.
    pub unit_id: UnitId,
    /// Probability of the option that was taken.
    pub taken_ppm: u32,
    /// The most probable other option.
    pub rival: String,
    /// Its probability; more than that of the one taken where the choice was not clear.
    pub rival_ppm: u32,
}

/// Counts what every selector of the plan chose; empty where it has none.
pub fn selections<F: Borrow<Fact>>(
    plan: &Plan,
    facts: impl IntoIterator<Item = F>,
) -> Vec<Selection> {
    let selectors = plan.stages.iter().filter_map(|stage| match &stage.op {
        StageOp::Select(select) => Some((select, stage.name.as_str())),
        StageOp::Map(_) | StageOp::Tool(_) => None,
    });
    let mut found: Vec<(&Select, Selection)> = selectors
        .map(|(select, name)| (select, Selection::of(select, name)))
        .collect();
    if found.is_empty() {
        return Vec::new();
    }
    for fact in facts {
        for (select, selection) in &mut found {
            selection.add(select, fact.borrow());
        }
    }
    found.into_iter().map(|(_, selection)| selection).collect()
}

impl Selection {
    /// In one sentence: how many were chosen for, how clearly, and why a model was asked.
    pub fn told(&self) -> String {
        let without = match self.without_choice {
            0 => String::new(),
            units => format!(", {units} ended without a choice"),
        };
        let (stage, chosen, unclear) = (&self.stage, self.chosen, self.unclear);
        let why = &self.why;
        format!(
            "selector {stage} chose for {chosen} units, {unclear} of them unclear{without}; asked \
             because {why}"
        )
    }

    /// Option by outcome, the header first: units, then statuses and labels of decided units as far as
    /// there are any.
    pub fn matrix(&self) -> Vec<Vec<String>> {
        let seen = |status: &Status| {
            let mut rows = self.options.iter();
            rows.any(|row| row.statuses.contains_key(status.name()))
        };
        let statuses: Vec<Status> = Status::ALL.into_iter().filter(seen).collect();
        let labels: BTreeSet<(&str, &str)> = self
            .options
            .iter()
            .flat_map(|row| &row.labels)
            .flat_map(|(field, labels)| labels.keys().map(move |label| (&**field, &**label)))
            .collect();
        let mut header: Vec<String> = ["option", "units", "unclear"].map(str::to_owned).to_vec();
        header.extend(
            statuses
                .iter()
                .map(|status| status.name().replace('_', " ")),
        );
        header.extend(
            labels
                .iter()
                .map(|(field, label)| format!("{field} {label}")),
        );
        let row = |row: &OptionRow| {
            let units = [row.units, row.unclear].into_iter();
            let statuses = statuses
                .iter()
                .map(|status| row.statuses.get(status.name()));
            let labels = labels
                .iter()
                .map(|(field, label)| row.labels.get(*field)?.get(*label));
            let counts = statuses
                .chain(labels)
                .map(|count| count.copied().unwrap_or(0));
            let cells = units.chain(counts).map(|count| count.to_string());
            std::iter::once(row.option.clone()).chain(cells).collect()
        };
        std::iter::once(header)
            .chain(self.options.iter().map(row))
            .collect()
    }

    /// The closest choice of each option with its best alternative, one a line.
    pub fn closest(&self) -> impl Iterator<Item = String> {
        self.options.iter().filter_map(|row| {
            let close = row.closest.first()?;
            let (unit, rival) = (&close.unit_id, &close.rival);
            let (taken, other) = (percent(close.taken_ppm), percent(close.rival_ppm));
            let option = &row.option;
            Some(format!(
                "closest: {unit} took {option} at {taken}, {rival} had {other}"
            ))
        })
    }

    fn of(select: &Select, stage: &str) -> Self {
        let options = select.options.iter().map(|option| OptionRow {
            option: option.label.name.clone(),
            ..OptionRow::default()
        });
        Self {
            stage: stage.to_owned(),
            why: select.why.clone(),
            chosen: 0,
            unclear: 0,
            without_choice: 0,
            options: options.collect(),
        }
    }

    fn add(&mut self, select: &Select, fact: &Fact) {
        let mut steps = fact.path.iter();
        let Some(step) = steps.find(|step| step.stage == self.stage) else {
            return;
        };
        let value = step.values.get(&self.stage);
        let mut rows = self.options.iter_mut();
        let (Some(value), Some(row)) = (value, rows.find(|row| row.option == step.outcome)) else {
            self.without_choice += 1;
            return;
        };
        let margin = value.margin_ppm.unwrap_or(0);
        let unclear = select
            .unclear
            .as_ref()
            .is_some_and(|unclear| margin < unclear.margin_below_ppm);
        self.chosen += 1;
        self.unclear += u64::from(unclear);
        row.add(fact, value, unclear);
    }
}

impl OptionRow {
    fn add(&mut self, fact: &Fact, value: &FieldValue, unclear: bool) {
        self.units += 1;
        self.unclear += u64::from(unclear);
        *self
            .statuses
            .entry(fact.status.name().to_owned())
            .or_default() += 1;
        if fact.status == Status::Decided {
            for (field, value) in &fact.values {
                let labels = self.labels.entry(field.clone()).or_default();
                *labels.entry(value.label.clone()).or_default() += 1;
            }
        }
        let Some((rival, rival_ppm)) = rival(&self.option, value) else {
            return;
        };
        *self.rivals.entry(rival.to_owned()).or_default() += 1;
        let taken_ppm = value.probability_of(&self.option);
        let lead = |taken: u32, rival: u32| i64::from(taken) - i64::from(rival);
        let mine = lead(taken_ppm, rival_ppm);
        // Of equally close ones the first in the source stays ahead.
        let before = |other: &Rivalry| lead(other.taken_ppm, other.rival_ppm) <= mine;
        let place = self.closest.partition_point(before);
        let rivalry = Rivalry {
            unit_id: fact.unit_id.clone(),
            taken_ppm,
            rival: rival.to_owned(),
            rival_ppm,
        };
        self.closest.insert(place, rivalry);
        self.closest.truncate(CLOSEST_MAX);
    }
}

/// Parts per million as a percentage with one decimal, cut.
fn percent(ppm: u32) -> String {
    format!("{}.{} %", ppm / 10_000, ppm % 10_000 / 1_000)
}

/// The most probable option beside the one that was taken.
fn rival<'v>(taken: &str, value: &'v FieldValue) -> Option<(&'v str, u32)> {
    if value.label != taken {
        return Some((&value.label, value.probability_of(&value.label)));
    }
    let (option, ppm) = value.alternatives.first()?;
    Some((option, *ppm))
}
