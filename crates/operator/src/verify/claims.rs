//! Every claim, computed from all facts at once and compared with the one that was recorded.
//!
//! A summary is no claim of the fold; it is checked elsewhere.

use serde_json::Value;

use super::conclusions::conclude;
use super::derive::tally;
use super::difference::difference;
use super::promise::Put;
use super::shape::Leaf;
use super::{Place, Report, Subject, promise, summaries, wording};
use crate::answer::Claim;
use crate::coverage::Counts;
use crate::fact::Cite;
use crate::fold::UnitRef;
use crate::plan::{Contract, Plan, Reduce};
use crate::stopping::StopReport;

/// The claims that facts in key order give, in plan order, each with how many it speaks of;
/// summaries are left out.
pub(super) fn derive(
    plan: &Plan,
    leaves: &[Leaf<'_>],
    stop: Option<&StopReport>,
) -> Vec<(Claim, u64)> {
    let counts = tally(leaves.iter().map(|leaf| leaf.fact));
    let by_rule = stop.is_some_and(|stop| stop.stopped_after.is_some() && stop.complete);
    let unfinished = match by_rule {
        true => "stopped by rule: ",
        false => "incomplete: ",
    };
    plan.reduces
        .iter()
        .filter_map(|reduce| {
            let concluded = conclude(plan, reduce, leaves, counts)?;
            let concluded = unsealed(reduce, counts).map_or(concluded, Err);
            let put = concluded.and_then(|mut stated| {
                let put = promise::put(plan, reduce, stop, &mut stated)?;
                Ok((stated, put))
            });
            let (stated, put) = match put {
                Ok(stated) => stated,
                Err(refusal) => {
                    let claim = Claim {
                        name: reduce.name.clone(),
                        text: format!("{} is not answered: {refusal}", reduce.name),
                        value: Value::Null,
                        refused: Some(refusal),
                        cites: Vec::new(),
                        cites_total: 0,
                    };
                    return Some((claim, 0));
                }
            };
            let most = reduce.cite_max as usize;
            let cites: Vec<Cite> = stated
                .units
                .iter()
                .take(most)
                .filter_map(|unit| cite(unit, leaves))
                .collect();
            let said = match put {
                Put::Plainly => wording::word(reduce, &stated),
                Put::After(before) => before.to_owned() + &wording::word(reduce, &stated),
                Put::Words(words) => words,
            };
            let claim = Claim {
                name: reduce.name.clone(),
                text: said + &wording::gap_as(counts, unfinished),
                value: stated.value,
                refused: None,
                cites_total: stated.total,
                cites,
            };
            Some((claim, stated.count))
        })
        .collect()
}

/// Why a claim that speaks of every unit may not be made; none where it may.
fn unsealed(reduce: &Reduce, counts: Counts) -> Option<String> {
    let Counts {
        units,
        errored,
        cancelled,
        not_run,
        ..
    } = counts;
    if reduce.contract != Contract::Exhaustive || errored + cancelled + not_run == 0 {
        return None;
    }
    let mut missing = String::new();
    for (count, how) in [
        (errored, "errored"),
        (cancelled, "were cancelled"),
        (not_run, "were not run"),
    ] {
        if count > 0 {
            let comma = if missing.is_empty() { "" } else { ", " };
            missing.push_str(&format!("{comma}{count} {how}"));
        }
    }
    Some(format!(
        "an exhaustive claim speaks of every unit, and of {units} units {missing}; run again until all \
         have an answer"
    ))
}

fn cite(unit: &UnitRef, leaves: &[Leaf<'_>]) -> Option<Cite> {
    let place = leaves
        .binary_search_by_key(&unit.key, |leaf| leaf.unit.key)
        .ok()?;
    let fact = leaves[place].fact;
    Some(Cite {
        unit_id: fact.unit_id.clone(),
        source_hash: fact.source_hash,
        span: fact.evidence.first().cloned(),
        also: fact.evidence.iter().skip(1).cloned().collect(),
    })
}

/// Compares the recorded claims with the derived ones, in plan order.
pub(super) fn check(subject: Subject<'_>, right: &[Claim], report: &mut Report) {
    let summaries = summaries::names(subject.plan);
    let folded = |claim: &&Claim| !summaries.contains(claim.name.as_str());
    let found: Vec<&Claim> = subject.answer.claims.iter().filter(folded).collect();
    for (place, right) in right.iter().enumerate() {
        let named = found.iter().position(|claim| claim.name == right.name);
        let at = Place::Claim(right.name.clone());
        let Some(row) = named else {
            report.content(at, "is not made");
            continue;
        };
        if row != place {
            report.content(at, format!("is made at place {row}, {place} is right"));
        }
        compare(found[row], right, report);
    }
    for (row, claim) in found.iter().enumerate() {
        let mut before = found[..row].iter();
        let place = Place::Claim(claim.name.clone());
        if before.any(|other| other.name == claim.name) {
            report.content(place, "is made twice");
        } else if right.iter().all(|right| right.name != claim.name) {
            report.content(place, "is made, and the plan asks for no such claim");
        }
    }
}

fn compare(found: &Claim, right: &Claim, report: &mut Report) {
    report.checked.claims += 1;
    report.checked.cites += found.cites.len() as u64;
    let parts = [
        ("its value", difference(&found.value, &right.value)),
        ("its text", difference(&found.text, &right.text)),
        ("refused", difference(&found.refused, &right.refused)),
        ("cites:", difference(&found.cites, &right.cites)),
        (
            "cites_total",
            difference(&found.cites_total, &right.cites_total),
        ),
    ];
    for (what, differs) in parts {
        if let Some(differs) = differs {
            report.content(
                Place::Claim(found.name.clone()),
                format!("{what} {differs}"),
            );
        }
    }
}
