//! What a claim says that promises less than all, put again from its rule and what was found.

use serde_json::{Value, json};

use super::conclusions::Stated;
use super::wording::{condition, fill};
use crate::infer::PPM;
use crate::plan::{Plan, Reduce, Rule, StopRule};
use crate::stopping::{Interval, StopReport};

/// How a claim under a rule is put.
pub(super) enum Put {
    Plainly,
    After(&'static str),
    Words(String),
}

/// Puts what was concluded as its rule promises it; otherwise why it cannot be.
pub(super) fn put(
    plan: &Plan,
    reduce: &Reduce,
    stop: Option<&StopReport>,
    stated: &mut Stated,
) -> Result<Put, String> {
    let mut rules = plan.control.stop.iter();
    let rule = rules.find(|rule| rule.reduce == reduce.name);
    let (Some(StopRule { rule, .. }), Some(stop)) = (rule, stop) else {
        return Ok(Put::Plainly);
    };
    match (rule, stop.stopped_after) {
        (Rule::Threshold { at_least }, Some(_)) => {
            stated.value = json!({ "at_least": at_least });
            stated.count = *at_least;
            Ok(Put::After("at least "))
        }
        (Rule::Examples { k }, Some(_)) => {
            let most = *k as usize;
            if let Value::Array(units) = &mut stated.value {
                units.truncate(most);
            }
            stated.units.truncate(most);
            stated.count = stated.count.min(u64::from(*k));
            stated.total = stated.total.min(u64::from(*k));
            Ok(Put::After("examples, not all: "))
        }
        (Rule::Confidence { alpha_ppm, .. }, _) => {
            let mut rows = stop.rules.iter();
            let row = rows.find(|row| row.reduce == reduce.name);
            let Some(found) = row.and_then(|row| row.interval.as_ref()) else {
                return Err(
                    "fewer units have an answer than its first look needs; run again with a larger budget"
                        .to_owned(),
                );
            };
            let whole = stop.population;
            let Interval {
                sample,
                matching,
                unknown,
                low,
                high,
                ..
            } = found;
            stated.value = json!({
                "low_ppm": found.low_ppm, "high_ppm": found.high_ppm, "low": low, "high": high,
                "population": whole, "sample": sample, "matching": matching, "unknown": unknown,
            });
            stated.count = *sample;
            let percent = |tenths: u32| match tenths % 10 {
                0 => format!("{} %", tenths / 10),
                part => format!("{}.{part} %", tenths / 10),
            };
            let (from, to) = (found.low_ppm / 1_000, found.high_ppm.div_ceil(1_000));
            let value = format!("{} to {}", percent(from), percent(to));
            let words = match &reduce.claim {
                Some(claim) => fill(claim, &value, *sample),
                None => {
                    let having = condition(&reduce.filter);
                    let having = having.strip_prefix(" with ").unwrap_or_default();
                    format!("{value} of {whole} units have {having}")
                }
            };
            let sure = percent((PPM - alpha_ppm) / 1_000);
            Ok(Put::Words(format!(
                "{words} ({low} to {high} units, {sure} confidence: {sample} asked in random order, \
                 {matching} of them so, {unknown} undecided)"
            )))
        }
        _ => Ok(Put::Plainly),
    }
}
