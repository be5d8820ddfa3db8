//! What a claim says that promises less than all.
//!
//! Its number is that of the promise, not of what happened to be decided when the run stopped.

use serde_json::{Value, json};

use super::report::{Interval, StopReport};
use crate::infer::PPM;
use crate::plan::Rule;
use crate::reducers::{Folded, Selection};

/// How a claim that promises less than all is put.
pub(crate) enum Restated {
    /// As any other.
    Plainly,
    /// With these words before it.
    After(&'static str),
    /// With a value and a note of its own, in the plan's words or in these.
    As {
        value: String,
        words: String,
        note: String,
    },
}

/// Puts a folded value as its rule promises it; otherwise why it cannot be put.
pub(crate) fn restate(
    rule: &Rule,
    report: &StopReport,
    reduce: &crate::plan::Reduce,
    folded: &mut Folded,
) -> Result<Restated, String> {
    let stopped = report.stopped_after.is_some();
    match rule {
        Rule::Threshold { at_least } if stopped => {
            folded.value = json!({ "at_least": at_least });
            folded.count = *at_least;
            Ok(Restated::After("at least "))
        }
        Rule::Examples { k } if stopped => {
            if let Value::Array(units) = &mut folded.value {
                units.truncate(*k as usize);
            }
            folded.count = folded.count.min(u64::from(*k));
            folded.cites.truncate(*k as usize);
            folded.cites_total = folded.cites_total.min(u64::from(*k));
            Ok(Restated::After("examples, not all: "))
        }
        Rule::Threshold { .. } | Rule::Examples { .. } | Rule::TopK => Ok(Restated::Plainly),
        Rule::Confidence { alpha_ppm, .. } => {
            let rows = report.rule_of(&reduce.name);
            let Some(interval) = rows.and_then(|row| row.interval.as_ref()) else {
                return Err(String::from(
                    "fewer units have an answer than its first look needs; run again with a larger budget",
                ));
            };
            let Interval {
                sample,
                matching,
                unknown,
                low,
                high,
                low_ppm,
                high_ppm,
            } = interval;
            let population = report.population;
            folded.value = json!({
                "low_ppm": low_ppm, "high_ppm": high_ppm, "low": low, "high": high,
                "population": population, "sample": sample, "matching": matching, "unknown": unknown,
            });
            folded.count = *sample;
            let value = format!("{} to {}", tenths(*low_ppm, false), tenths(*high_ppm, true));
            let selection = Selection::of(&reduce.filter);
            let words = format!("{value} of {population} units have {selection}");
            let confidence = tenths(PPM - alpha_ppm, false);
            let note = format!(
                " ({low} to {high} units, {confidence} confidence: {sample} asked in random order, \
                 {matching} of them so, {unknown} undecided)"
            );
            Ok(Restated::As { value, words, note })
        }
    }
}

/// Parts per million as percent with one decimal, rounded down or up.
pub(crate) fn tenths(ppm: u32, up: bool) -> String {
    let tenths = match up {
        true => ppm.div_ceil(1_000),
        false => ppm / 1_000,
    };
    match tenths % 10 {
        0 => format!("{} %", tenths / 10),
        tenth => format!("{}.{tenth} %", tenths / 10),
    }
}
