//! Summaries: a model's prose, of which everything but the meaning is looked up again.
//!
//! Held against the derived claims: what stands apart, word for word; every unit with its citation;
//! and the numbers of the prose, which `prose.rs` reads.

use std::collections::BTreeSet;

use serde_json::Value;

use super::difference::difference;
use super::prose::{Known, holds, one_line, unread};
use super::{Derived, Place, Report, Subject, wording};
use crate::answer::Claim;
use crate::coverage::Counts;
use crate::fact::Cite;
use crate::plan::{Operation, Plan, Reduce};

/// Names of the summaries of a plan.
pub(super) fn names(plan: &Plan) -> BTreeSet<&str> {
    let summaries = plan
        .reduces
        .iter()
        .filter(|reduce| matches!(reduce.op, Operation::Summary { .. }));
    summaries.map(|reduce| reduce.name.as_str()).collect()
}

/// Checks that every summary of the plan is among the claims at its place, and says nothing new.
pub(super) fn check(subject: Subject<'_>, derived: &Derived, counts: Counts, report: &mut Report) {
    for (place, reduce) in subject.plan.reduces.iter().enumerate() {
        let Operation::Summary { of, .. } = &reduce.op else {
            continue;
        };
        let at = Place::Claim(reduce.name.clone());
        let mut claims = subject.answer.claims.iter().enumerate();
        let Some((row, claim)) = claims.find(|(_, claim)| claim.name == reduce.name) else {
            report.content(at, "is not made");
            continue;
        };
        if row != place {
            report.content(
                at.clone(),
                format!("is made at place {row}, {place} is right"),
            );
        }
        report.checked.claims += 1;
        report.checked.cites += claim.cites.len() as u64;
        let known = Known::of(subject, derived, of, counts);
        let mut problems = Vec::new();
        match &claim.refused {
            Some(reason) => check_refused(claim, reason, &known, &mut problems),
            None => check_text(subject, reduce, claim, &known, &mut problems),
        }
        for problem in problems {
            report.content(at.clone(), problem);
        }
    }
}

fn check_refused(claim: &Claim, reason: &str, known: &Known<'_>, problems: &mut Vec<String>) {
    // Where nothing was gathered, nothing stands beside it.
    let gathered =
        !reason.starts_with("none of the claims ") && !reason.starts_with("what it is of ");
    let apart = if gathered {
        listed(&known.apart)
    } else {
        String::new()
    };
    let text = format!("{} is not answered: {reason}{apart}", claim.name);
    let parts = [
        ("its text", difference(&claim.text, &text)),
        ("its value", difference(&claim.value, &Value::Null)),
        ("cites:", difference(&claim.cites, &Vec::<Cite>::new())),
        ("cites_total", difference(&claim.cites_total, &0_u64)),
    ];
    for (what, differs) in parts {
        problems.extend(differs.map(|differs| format!("{what} {differs}")));
    }
}

fn check_text(
    subject: Subject<'_>,
    reduce: &Reduce,
    claim: &Claim,
    known: &Known<'_>,
    problems: &mut Vec<String>,
) {
    let value = &claim.value;
    let rows = |key: &str| value[key].as_array().map_or(&[][..], Vec::as_slice);
    let prose = value["prose"].as_str().unwrap_or_default();
    let units: Vec<&str> = rows("cited_units")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let numbers: Vec<&str> = rows("checked_numbers")
        .iter()
        .filter_map(|number| number["written"].as_str())
        .collect();
    let line = one_line(prose);
    let worded = match &reduce.claim {
        Some(claim) => wording::fill(claim, &line, units.len() as u64),
        None => line,
    };
    let text = format!(
        "{worded}{} (prose of the model {}; checked: {} numbers, {} units; meaning not checked){}",
        listed(&known.apart),
        subject.answer.backend.name,
        rows("checked_numbers").len(),
        units.len(),
        wording::gap(known.counts),
    );
    let cites: Vec<Cite> = units
        .iter()
        .filter(|unit| known.texts.contains(**unit))
        .filter_map(|unit| known.facts.get(unit))
        .take(reduce.cite_max as usize)
        .map(|fact| Cite {
            unit_id: fact.unit_id.clone(),
            source_hash: fact.source_hash,
            span: fact.evidence.first().cloned(),
            also: fact.evidence.iter().skip(1).cloned().collect(),
        })
        .collect();
    let parts = [
        ("its text", difference(&claim.text, &text)),
        ("dissent:", difference(&value["dissent"], &known.apart)),
        ("cites:", difference(&claim.cites, &cites)),
        ("cites_total", difference(&claim.cites_total, &units.len())),
    ];
    for (what, differs) in parts {
        problems.extend(differs.map(|differs| format!("{what} {differs}")));
    }
    for unit in &units {
        if !known.texts.contains(*unit) || !known.facts.contains_key(unit) {
            problems.push(format!(
                "cites unit {unit}, which no claim that it is of names"
            ));
        }
    }
    for number in &numbers {
        if !prose.contains(number) {
            problems.push(format!("has checked {number:?}, which is not in its prose"));
        } else if !holds(number, known, &units) {
            problems.push(format!(
                "says {number:?}, which no claim that it is of says"
            ));
        }
    }
    for digits in unread(prose, known, &units, &numbers) {
        problems.push(format!("says {digits}, which was not checked"));
    }
}

/// What code adds to a text.
fn listed(apart: &[Value]) -> String {
    if apart.is_empty() {
        return String::new();
    }
    let lists: Vec<String> = apart
        .iter()
        .map(|apart| {
            let claim = apart["claim"].as_str().map(|claim| format!("{claim}, "));
            let kind = apart["kind"].as_str().unwrap_or_default();
            let start = format!("{}{kind}", claim.unwrap_or_default());
            if let Some(reason) = apart["reason"].as_str() {
                return format!("{start}: {}", one_line(reason));
            }
            let units = apart["units"].as_array().map_or(&[][..], Vec::as_slice);
            let ids: String = units
                .iter()
                .filter_map(Value::as_str)
                .map(|unit| format!(" [{}]", one_line(unit)))
                .collect();
            let total = apart["total"].as_u64().unwrap_or_default();
            let more = match total.saturating_sub(units.len() as u64) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            format!("{start} ({total}):{ids}{more}")
        })
        .collect();
    format!(" | added by code: {}", lists.join("; "))
}
