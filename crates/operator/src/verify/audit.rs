//! The audit of an answer: who was in which stratum, who was drawn, and what that proves.
//!
//! Strata and found units are counted from the facts again, the sample is drawn again from the declared
//! seed, and every bound is tested by the probabilities that define it, summed in another way than they
//! were found. The division among strata, the arithmetic over them and the wording are those of the audit
//! itself. What the auditor should have said is not judged here.

use std::collections::{BTreeMap, HashMap};

use super::difference::difference;
use super::{Place, Report, Sources, Subject};
use crate::audit::{
    Allotment, AuditReport, AuditedUnit, Finding, Outcome, Reader, Stratum, allot, conclude,
};
use crate::canonical::Canonical;
use crate::fact::{Fact, Status};
use crate::id::{ContentHash, UnitId};
use crate::infer::PPM;
use crate::plan::{AUDIT_STAGE, AuditSpec, Plan, Unknown};

/// How far a tail may miss the allowed error by the rounding of its sum.
const ROUNDING: f64 = 1e-6;

/// Checks that an answer has the audit that its plan declares, and that it follows from the facts.
pub(super) fn check(subject: Subject<'_>, sources: &Sources, report: &mut Report) {
    let answer = subject.answer;
    let (spec, audit) = match (&subject.plan.audit, &answer.audit) {
        (Some(spec), Some(audit)) => (spec, audit),
        (None, Some(_)) => {
            return report.content(Place::Answer, "has an audit, and the plan declares none");
        }
        // An open breaker leaves nothing to audit.
        (Some(_), None) if answer.quarantine.is_none() => {
            return report.content(Place::Answer, "has no audit, and the plan declares one");
        }
        _ => return,
    };
    check_bounds(audit, report);
    let splits = |plan: &Plan| plan.prefilters.iter().any(|filter| filter.near.is_some());
    if matches!(sources, Sources::Absent(_)) && splits(subject.plan) {
        // Only the records tell near from far: without them no stratum can be counted again.
        return;
    }
    if matches!(sources, Sources::Read(registry) if registry.standing(0).is_none())
        && splits(subject.plan)
    {
        // Nor without the indexes that tell it, which is told apart.
        return;
    }
    let mut found = 0;
    let mut members: BTreeMap<Stratum, Vec<&Fact>> = BTreeMap::new();
    let rows: HashMap<&UnitId, &AuditedUnit> = audit
        .units
        .iter()
        .map(|unit| (&unit.unit_id, unit))
        .collect();
    for fact in subject.facts {
        match stratum(spec, subject.plan, fact, &rows, audit, sources) {
            Some(stratum) => members.entry(stratum).or_default().push(fact),
            None => found += 1,
        }
    }
    let strata: Vec<Stratum> = members.keys().cloned().collect();
    let outcomes = draw(spec, &members, audit, report);
    let reader = Reader {
        name: audit.auditor.clone(),
        hash: audit.auditor_hash,
        simulated: audit.simulated,
    };
    let right = conclude(spec, reader, found, &strata, &outcomes, audit.units.clone());
    if let Some(differs) = difference(audit, &right) {
        report.content(Place::Answer, format!("audit: {differs}"));
    }
}

/// The stage at which a unit ended before the audit; that of its fact, where the audit left it.
pub(super) fn ended(fact: &Fact) -> &str {
    if fact.stage != AUDIT_STAGE {
        return &fact.stage;
    }
    let reason = fact.reason.as_deref().unwrap_or_default();
    let stage = reason.strip_prefix("missed by ");
    let stage = stage.and_then(|rest| rest.strip_suffix(" and found by the audit"));
    stage.unwrap_or(&fact.stage)
}

/// The stratum that a fact was in when the audit began; none where its unit had been found.
fn stratum(
    spec: &AuditSpec,
    plan: &Plan,
    fact: &Fact,
    rows: &HashMap<&UnitId, &AuditedUnit>,
    audit: &AuditReport,
    sources: &Sources,
) -> Option<Stratum> {
    // What was put back no longer tells how it had ended; its row does, and `facts` holds it to that.
    let recorded = rows
        .get(&fact.unit_id)
        .and_then(|row| audit.strata.get(row.stratum as usize))
        .map(|row| row.stratum.clone());
    if fact.stage == AUDIT_STAGE {
        return recorded;
    }
    let label = fact.values.get(&spec.field).map(|value| &value.label);
    let unknown = !matches!(fact.status, Status::Decided | Status::Excluded);
    if unknown {
        return Some(Stratum {
            unknown,
            cause: fact.status.name().to_owned(),
            near: false,
        });
    }
    if fact.status == Status::Decided && label == Some(&spec.positive) {
        return None;
    }
    let chosen = || {
        let mut steps = fact.path.iter().rev();
        let step = steps.find(|step| step.stage == fact.stage)?;
        step.values.get(&step.stage)
    };
    let value = fact.values.get(&spec.field).or_else(chosen);
    let unsure = value
        .and_then(|value| value.margin_ppm)
        .is_some_and(|margin| margin < spec.near_margin_ppm);
    let near = match (fact.stage.strip_prefix("prefilter:"), sources) {
        (None, _) => unsure,
        (Some(name), Sources::Read(registry)) => {
            let filter = plan.prefilters.iter().find(|filter| filter.name == name);
            let near = filter.and_then(|filter| filter.near.as_ref());
            let fields = registry.fields(&fact.unit_id);
            let standing = registry.standing(fact.ordinal);
            near.zip(fields)
                .zip(standing)
                .is_some_and(|((near, fields), standing)| {
                    near.matches(fields, standing).unwrap_or(false)
                })
        }
        // No prefilter calls anything near, or the caller has turned back.
        (Some(_), Sources::Absent(_)) => false,
    };
    Some(Stratum {
        unknown: false,
        cause: fact.stage.clone(),
        near,
    })
}

/// Draws every sample again and counts what was said of it.
fn draw(
    spec: &AuditSpec,
    members: &BTreeMap<Stratum, Vec<&Fact>>,
    audit: &AuditReport,
    report: &mut Report,
) -> Vec<Outcome> {
    let sizes: Vec<Allotment> = members
        .iter()
        .map(|(stratum, units)| Allotment {
            population: units.len() as u64,
            near: stratum.near,
            unknown: stratum.unknown,
        })
        .collect();
    let given = allot(&sizes, spec.units_max, spec.unknown == Unknown::Inspect);
    let mut outcomes = Vec::new();
    for (place, ((stratum, facts), given)) in members.iter().zip(given).enumerate() {
        let rows: Vec<&AuditedUnit> = audit
            .units
            .iter()
            .filter(|unit| unit.stratum as usize == place)
            .collect();
        let mut order: Vec<([u8; 32], &Fact)> = facts
            .iter()
            .map(|fact| (ticket(&spec.seed, &fact.unit_id), *fact))
            .collect();
        order.sort_unstable_by_key(|(ticket, _)| *ticket);
        let drawn = order.iter().take(given as usize);
        let drawn: Vec<(&UnitId, u32)> = drawn
            .map(|(_, fact)| (&fact.unit_id, fact.ordinal))
            .collect();
        let found: Vec<(&UnitId, u32)> =
            rows.iter().map(|row| (&row.unit_id, row.ordinal)).collect();
        if found != drawn {
            let problem = format!(
                "audit: {stratum}: {} units were read, which are not the {} that the declared seed draws",
                found.len(),
                drawn.len()
            );
            report.content(Place::Answer, problem);
        }
        let count = |finding| rows.iter().filter(|row| row.finding == finding).count() as u64;
        outcomes.push(Outcome {
            population: facts.len() as u64,
            audited: rows.len().min(facts.len()) as u64,
            missed: count(Finding::Missed).min(facts.len() as u64),
            unresolved: count(Finding::Unresolved),
        });
    }
    for outcome in &mut outcomes {
        // Rows beyond the population are told above; the bounds need what can be.
        outcome.missed = outcome.missed.min(outcome.audited);
        outcome.unresolved = outcome.unresolved.min(outcome.audited - outcome.missed);
    }
    outcomes
}

/// What a unit draws in the lot.
fn ticket(seed: &str, unit: &UnitId) -> [u8; 32] {
    let mut text = Canonical::new("operator 2026 audit sample v1");
    text.text(seed).text(unit.as_str());
    *ContentHash::of(&text).as_bytes()
}

/// Tests each bound: with so many misses what was found may be chance, with one more it may not.
fn check_bounds(audit: &AuditReport, report: &mut Report) {
    let in_part = audit
        .strata
        .iter()
        .filter(|row| row.audited > 0 && row.audited < row.population)
        .count()
        .max(1) as u32;
    let alpha = f64::from((audit.alpha_ppm / in_part).max(1)) / f64::from(PPM);
    for row in &audit.strata {
        let said = row.missed + row.unresolved;
        let most = row.population - (row.audited - said.min(row.audited)).min(row.population);
        let chance = |misses| tail(row.population, misses, row.audited, said);
        let held = row.misses_upper <= most
            && chance(row.misses_upper) >= alpha * (1.0 - ROUNDING)
            && (row.misses_upper == most
                || chance(row.misses_upper + 1) < alpha * (1.0 + ROUNDING));
        if !held {
            let problem = format!(
                "audit: {}: {} is not the exact bound of its misses",
                row.stratum, row.misses_upper
            );
            report.content(Place::Answer, problem);
        }
    }
}

/// Probability that of `audited` units at most `found` are among the `misses`, by summing from none up
/// over logarithms of factorials.
fn tail(population: u64, misses: u64, audited: u64, found: u64) -> f64 {
    if misses > population || audited > population {
        return 0.0;
    }
    let mut logs = vec![0.0_f64];
    for n in 1..=population {
        logs.push(logs[n as usize - 1] + (n as f64).ln());
    }
    let choose = |n: u64, k: u64| logs[n as usize] - logs[k as usize] - logs[(n - k) as usize];
    let all = choose(population, audited);
    (0..=found.min(misses).min(audited))
        .filter(|hit| audited - hit <= population - misses)
        .map(|hit| (choose(misses, hit) + choose(population - misses, audited - hit) - all).exp())
        .sum()
}
