//! An answer under quarantine: it may state nothing, and says why in the breaker's own words.

use super::difference::difference;
use super::{Place, Report, Subject};
use crate::answer::{Claim, Quarantine};
use crate::breaker::Trip;
use crate::fact::Status;

/// How the reason of a unit that a breaker called off begins.
const OPEN: &str = "breaker open: ";

/// Checks a quarantine against the facts; a run that a breaker stopped may not hide it.
pub(super) fn check(subject: Subject<'_>, report: &mut Report) {
    let told = subject.answer.quarantine.as_ref();
    if let Some(quarantine) = told {
        check_reason(quarantine, report);
        check_claims(subject, quarantine, report);
    }
    for fact in subject.facts {
        let reason = fact.reason.as_deref().unwrap_or_default();
        let called_off = fact.status == Status::NotRun && reason.starts_with(OPEN);
        if called_off && told.is_none_or(|told| told.reason != reason) {
            let problem = format!("was called off for {reason:?}, which the answer does not tell");
            report.content(Place::Unit(fact.unit_id.clone()), problem);
        }
    }
}

fn check_reason(quarantine: &Quarantine, report: &mut Report) {
    let right = match &quarantine.trip {
        Trip::Canary { judged, misses, .. } => {
            format!("{OPEN}{misses} of {judged} canaries got a wrong answer")
        }
        Trip::Transport { in_a_row, message } => {
            format!("{OPEN}{in_a_row} calls in a row did not reach the backend ({message})")
        }
        Trip::Denied { message } => format!("{OPEN}the backend refuses ({message})"),
    };
    if let Some(differs) = difference(&quarantine.reason, &right) {
        report.content(Place::Answer, format!("its quarantine: reason {differs}"));
    }
}

/// Every claim is refused for the quarantine's reason, and says nothing else.
fn check_claims(subject: Subject<'_>, quarantine: &Quarantine, report: &mut Report) {
    let claims = subject.plan.reduces.iter().map(|reduce| Claim {
        name: reduce.name.clone(),
        text: format!("{} is not answered: {}", reduce.name, quarantine.reason),
        value: serde_json::Value::Null,
        refused: Some(quarantine.reason.clone()),
        cites: Vec::new(),
        cites_total: 0,
    });
    let right: Vec<Claim> = claims.collect();
    let found = &subject.answer.claims;
    report.checked.claims += found.len() as u64;
    if let Some(differs) = difference(found, &right) {
        let problem = format!("is under quarantine, and its claims state something: {differs}");
        report.content(Place::Answer, problem);
    }
}
