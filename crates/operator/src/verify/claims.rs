//! Every claim, computed from all facts at once and compared with the one that was recorded.
//!
//! A summary is no claim of the fold: of it only numbers and citations are checked, which must
//! come from the claims that it summarises.

use std::collections::BTreeSet;

use serde_json::Value;

use super::conclusions::conclude;
use super::derive::tally;
use super::difference::difference;
use super::shape::Leaf;
use super::{Place, Report, Subject, wording};
use crate::answer::Claim;
use crate::fact::Cite;
use crate::fold::UnitRef;
use crate::plan::{Operation, Plan};

/// The claims that facts in key order give, in plan order; summaries are left out.
pub(super) fn derive(plan: &Plan, leaves: &[Leaf<'_>]) -> Vec<Claim> {
    let counts = tally(leaves.iter().map(|leaf| leaf.fact));
    plan.reduces
        .iter()
        .filter_map(|reduce| {
            let stated = match conclude(plan, reduce, leaves, counts)? {
                Ok(stated) => stated,
                Err(refusal) => {
                    return Some(Claim {
                        name: reduce.name.clone(),
                        text: format!("{} is not answered: {refusal}", reduce.name),
                        value: Value::Null,
                        refused: Some(refusal),
                        cites: Vec::new(),
                        cites_total: 0,
                    });
                }
            };
            let most = reduce.cite_max as usize;
            let cites: Vec<Cite> = stated
                .units
                .iter()
                .take(most)
                .filter_map(|unit| cite(unit, leaves))
                .collect();
            // The units that share an extreme are known only as far as they are named.
            let capped = matches!(reduce.op, Operation::Min(_) | Operation::Max(_));
            Some(Claim {
                name: reduce.name.clone(),
                text: wording::word(reduce, &stated, counts),
                value: stated.value,
                refused: None,
                cites_total: if capped {
                    cites.len() as u64
                } else {
                    stated.total
                },
                cites,
            })
        })
        .collect()
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
    })
}

/// Compares the recorded claims with the derived ones, in plan order.
pub(super) fn check(subject: Subject<'_>, right: &[Claim], report: &mut Report) {
    let is_summary = |claim: &Claim| {
        let mut reduces = subject.plan.reduces.iter();
        reduces.any(|reduce| {
            reduce.name == claim.name && matches!(reduce.op, Operation::Summary { .. })
        })
    };
    let found: Vec<&Claim> = subject.answer.claims.iter().collect();
    let (summaries, found): (Vec<&Claim>, Vec<&Claim>) =
        found.into_iter().partition(|claim| is_summary(claim));
    for summary in summaries {
        check_summary(subject, summary, report);
    }
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

/// A summary may name only numbers and units that the claims it summarises name.
fn check_summary(subject: Subject<'_>, summary: &Claim, report: &mut Report) {
    let mut reduces = subject.plan.reduces.iter();
    let Some(Operation::Summary { of, .. }) = reduces
        .find(|reduce| reduce.name == summary.name)
        .map(|reduce| &reduce.op)
    else {
        return;
    };
    let sources: Vec<&Claim> = subject
        .answer
        .claims
        .iter()
        .filter(|claim| of.contains(&claim.name))
        .collect();
    let known: BTreeSet<String> = sources
        .iter()
        .flat_map(|claim| [numbers(&claim.text), numbers(&claim.value.to_string())])
        .flatten()
        .collect();
    let place = || Place::Claim(summary.name.clone());
    for number in numbers(&summary.text) {
        if !known.contains(&number) {
            let problem = format!("its text says {number}, no claim that it summarises does");
            report.content(place(), problem);
        }
    }
    for cite in &summary.cites {
        if !sources.iter().any(|claim| claim.cites.contains(cite)) {
            let problem = format!(
                "cites unit {}, no claim that it summarises does",
                cite.unit_id
            );
            report.content(place(), problem);
        }
    }
    report.checked.claims += 1;
    report.checked.cites += summary.cites.len() as u64;
}

/// Runs of digits in a text.
fn numbers(text: &str) -> Vec<String> {
    text.split(|char: char| !char.is_ascii_digit())
        .filter(|run| !run.is_empty())
        .map(str::to_owned)
        .collect()
}
