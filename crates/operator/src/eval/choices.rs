//! Selectors measured against labels: which true labels went which way.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::Labels;
use crate::fact::Fact;

/// One selector's options by the true labels of the units that took them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChoiceReport {
    /// The selector's stage.
    pub stage: String,
    /// Labelled units per option and true label; options that none took are left out.
    pub options: BTreeMap<String, BTreeMap<String, u64>>,
    /// Units that took an option and have no label.
    pub unlabelled: u64,
}

/// Counts, for each selector by the name of its stage, the true labels of what it chose.
pub fn evaluate_choices<'s>(
    facts: &[Fact],
    labels: &Labels,
    selectors: impl IntoIterator<Item = &'s str>,
) -> Vec<ChoiceReport> {
    let report = |stage: &str| {
        let mut options: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
        let mut unlabelled = 0;
        for fact in facts {
            let mut steps = fact.path.iter();
            // Where there was no choice, there is no value.
            let chose = steps.find(|step| step.stage == stage && step.values.contains_key(stage));
            let Some(step) = chose else { continue };
            match labels.get(&fact.unit_id) {
                None => unlabelled += 1,
                Some(label) => {
                    let row = options.entry(step.outcome.clone()).or_default();
                    *row.entry(label.clone()).or_default() += 1;
                }
            }
        }
        ChoiceReport {
            stage: stage.to_owned(),
            options,
            unlabelled,
        }
    };
    selectors.into_iter().map(report).collect()
}

impl fmt::Display for ChoiceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (stage, unlabelled) = (&self.stage, self.unlabelled);
        writeln!(
            f,
            "selector {stage}, option -> true labels ({unlabelled} units without a label)"
        )?;
        let width = self
            .options
            .keys()
            .map(|option| option.chars().count())
            .max();
        let width = width.unwrap_or(0);
        for (option, labels) in &self.options {
            let cells = labels
                .iter()
                .map(|(label, units)| format!("{label} {units}"));
            let cells = cells.collect::<Vec<_>>().join(", ");
            writeln!(f, "{option:width$} -> {cells}")?;
        }
        Ok(())
    }
}
