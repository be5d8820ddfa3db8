//! A run that could stop early: whether its rules were met where it says, and by those units alone.
//!
//! Turns are drawn and ordered again from the facts, each rule is searched for the first turn before
//! which it is met, and no unit before that may have been left out, nor any after it have an answer.
//! Units before it that have no answer for another reason leave the best incomplete.

use super::difference::difference;
use super::read::{number, selects};
use super::shape::key;
use super::share::Survey;
use super::{Place, Report, Subject};
use crate::canonical::Canonical;
use crate::column::ColumnValue;
use crate::fact::{Fact, Status};
use crate::group;
use crate::id::ContentHash;
use crate::plan::{Operation, Order, Plan, Reduce, Rule, StopRule};
use crate::stopping::{RuleReport, StopReport};

/// How the reason of a unit begins that a rule left out.
pub(super) const BY_RULE: &str = "stopped by rule: ";

/// A unit's turn, and its place among the best where a rule ranks: the smaller, the better.
pub(super) type Turn<'f> = ((bool, Option<(i64, u128)>, [u8; 32], u32), &'f Fact);

/// What an answer with stopping rules must say of itself; none where the plan has none.
///
/// Of a bound that is exact to rounding the recorded one is taken.
pub(super) fn derive(subject: Subject<'_>) -> Option<StopReport> {
    let plan = subject.plan;
    let rules = &plan.control.stop;
    if rules.is_empty() {
        return None;
    }
    let (turns, before) = arrange(plan, subject.facts);
    let population = turns.len();
    let mut logs = vec![0.0_f64];
    for n in 1..=population {
        logs.push(logs[n - 1] + (n as f64).ln());
    }
    let mut last = Some(0);
    let mut rows = Vec::new();
    for rule in rules {
        let Some(reduce) = reduce_of(plan, rule) else {
            continue;
        };
        let recorded = subject.answer.stop.as_ref().and_then(|stop| {
            let row = stop.rules.iter().find(|row| row.reduce == rule.reduce)?;
            row.interval.as_ref()
        });
        let (met, interval) = match &rule.rule {
            Rule::Threshold { at_least } => (matched(reduce, &turns, &before, *at_least), None),
            Rule::Examples { k } => (matched(reduce, &turns, &before, u64::from(*k)), None),
            Rule::TopK => (settled(plan, reduce, &turns, &before), None),
            Rule::Confidence {
                half_width_ppm,
                alpha_ppm,
                looks,
                ..
            } => {
                let survey = Survey {
                    reduce,
                    turns: &turns,
                    logs: &logs,
                    alpha_ppm: alpha_ppm / (2 * looks.len() as u32),
                    recorded,
                };
                survey.narrow(looks, 2 * u64::from(*half_width_ppm))
            }
        };
        last = last
            .zip(met)
            .map(|(last, met): (usize, usize)| last.max(met));
        rows.push(RuleReport {
            reduce: rule.reduce.clone(),
            rule: rule.rule.as_str().to_owned(),
            interval,
        });
    }
    let stopped_after = last
        .filter(|units| *units < population)
        .map(|units| units as u64);
    let by_rule = reason(plan);
    let unanswered = subject.facts.iter().any(|fact| match fact.status {
        Status::Errored => true,
        Status::Cancelled | Status::NotRun => fact.reason.as_ref() != Some(&by_rule),
        _ => false,
    });
    let ranks = rules.iter().any(|rule| rule.rule == Rule::TopK);
    let complete = !unanswered || (stopped_after.is_some() && !ranks);
    let names = by_rule.strip_prefix(BY_RULE).unwrap_or_default();
    let text = match stopped_after {
        None => {
            format!("every one of {population} units had its turn; not stopped by {names}")
        }
        Some(after) => format!(
            "stopped after {after} of {population} units by {names}: {}",
            if complete {
                "the claims are complete for what they promise"
            } else {
                "units before have no answer, so that the claims are incomplete"
            }
        ),
    };
    Some(StopReport {
        population: population as u64,
        stopped_after,
        rules: rows,
        complete,
        text,
    })
}

/// Compares what an answer says of its stop, and holds every unit to it.
pub(super) fn check(subject: Subject<'_>, right: Option<&StopReport>, report: &mut Report) {
    let told = subject.answer.stop.as_ref();
    // What an open breaker leaves promises nothing.
    let right = right.filter(|_| subject.answer.quarantine.is_none());
    if let Some(differs) = difference(&told, &right) {
        report.content(Place::Answer, format!("stop: {differs}"));
    }
    let plan = subject.plan;
    let by_rule = reason(plan);
    let (turns, before) = arrange(plan, subject.facts);
    let stopped = right.and_then(|right| right.stopped_after);
    let stopped = stopped.and_then(|units| usize::try_from(units).ok());
    let mut not_run = false;
    for (place, (_, fact)) in turns.iter().enumerate() {
        let left_out = is_left_out(fact);
        let problem = match stopped {
            Some(stopped) if place >= stopped => {
                let called_off = matches!(fact.status, Status::Cancelled | Status::NotRun);
                let late = not_run && fact.status == Status::Cancelled;
                not_run |= fact.status == Status::NotRun;
                if !called_off || fact.reason.as_ref() != Some(&by_rule) {
                    let status = fact.status;
                    Some(format!(
                        "is {status} for {:?}, and its turn came after the run had stopped by rule",
                        fact.reason
                    ))
                } else if late {
                    Some("was cancelled, after units that were not even asked".to_owned())
                } else {
                    None
                }
            }
            _ if left_out && subject.answer.quarantine.is_none() => {
                Some("was left out by rule, and its turn came before the rules were met".to_owned())
            }
            _ => None,
        };
        if let Some(problem) = problem {
            report.content(Place::Unit(fact.unit_id.clone()), problem);
        }
    }
    for fact in before.into_iter().filter(|fact| is_left_out(fact)) {
        let problem = "was left out by rule, and never had a turn";
        report.content(Place::Unit(fact.unit_id.clone()), problem);
    }
}

fn is_left_out(fact: &Fact) -> bool {
    let called_off = matches!(fact.status, Status::Cancelled | Status::NotRun);
    let reason = fact.reason.as_deref().unwrap_or_default();
    called_off && reason.starts_with(BY_RULE)
}

/// The units with a turn, in order of their turns, and those without.
fn arrange<'f>(plan: &Plan, facts: &'f [Fact]) -> (Vec<Turn<'f>>, Vec<&'f Fact>) {
    let (mut turns, mut before) = (Vec::new(), Vec::new());
    for fact in facts {
        let stage = fact.stage.as_str();
        if stage.starts_with("prefilter:") || stage == "partition" || stage == group::STAGE {
            before.push(fact);
            continue;
        }
        let mut turn = (false, None, [0; 32], fact.ordinal);
        for rule in &plan.control.stop {
            match (&rule.rule, reduce_of(plan, rule)) {
                (Rule::Confidence { seed, .. }, _) => turn.2 = ticket(seed, fact),
                (Rule::TopK, Some(reduce)) => {
                    turn.1 = place(plan, reduce, fact);
                    turn.0 = turn.1.is_none();
                }
                _ => {}
            }
        }
        turns.push((turn, fact));
    }
    turns.sort_by_key(|(turn, _)| *turn);
    (turns, before)
}

fn reduce_of<'p>(plan: &'p Plan, rule: &StopRule) -> Option<&'p Reduce> {
    plan.reduces
        .iter()
        .find(|reduce| reduce.name == rule.reduce)
}

/// A unit's place among the best, were it selected; none where its columns keep it out.
fn place(plan: &Plan, reduce: &Reduce, fact: &Fact) -> Option<(i64, u128)> {
    let Operation::TopK { by, order, .. } = &reduce.op else {
        return None;
    };
    for (column, wanted) in &reduce.filter.columns {
        match fact.columns.get(column)? {
            ColumnValue::Text(text) if text == wanted => {}
            _ => return None,
        }
    }
    let number = number(by, fact)?;
    let turned = match order {
        Order::Largest => !number,
        Order::Smallest => number,
    };
    Some((turned, key(plan.fold.key, fact)))
}

/// What a unit draws in the lot for the order of asking.
fn ticket(seed: &str, fact: &Fact) -> [u8; 32] {
    let mut text = Canonical::new("operator 2026 asking order v1");
    text.text(seed).text(fact.unit_id.as_str());
    *ContentHash::of(&text).as_bytes()
}

fn reason(plan: &Plan) -> String {
    let rules = plan.control.stop.iter();
    let named: Vec<String> = rules
        .map(|rule| format!("{} of {}", rule.rule.as_str(), rule.reduce))
        .collect();
    BY_RULE.to_owned() + &named.join(" and ")
}

/// The first turn before which so many units match.
fn matched(reduce: &Reduce, turns: &[Turn<'_>], before: &[&Fact], wanted: u64) -> Option<usize> {
    let hit = |fact: &&Fact| selects(&reduce.filter, fact);
    let known = before.iter().filter(|fact| hit(fact)).count() as u64;
    let Some(more) = wanted.checked_sub(known).filter(|more| *more > 0) else {
        return Some(0);
    };
    let mut hits = turns.iter().enumerate().filter(|(_, (_, fact))| hit(fact));
    let last = hits.nth(usize::try_from(more - 1).ok()?)?;
    Some(last.0 + 1)
}

/// The first turn whose unit could not be among the best, whatever its answer: nor any after it.
fn settled(plan: &Plan, reduce: &Reduce, turns: &[Turn<'_>], before: &[&Fact]) -> Option<usize> {
    let Operation::TopK { k, .. } = &reduce.op else {
        return None;
    };
    let selected = before.iter().filter(|fact| selects(&reduce.filter, fact));
    let known: Vec<(i64, u128)> = selected
        .filter_map(|fact| place(plan, reduce, fact))
        .collect();
    let mut found = 0;
    for (at, ((_, bound, ..), fact)) in turns.iter().enumerate() {
        let Some(bound) = bound else { return Some(at) };
        // All that were found before are better: turns go from the best on.
        let better = found + known.iter().filter(|other| *other < bound).count();
        if better >= *k as usize {
            return Some(at);
        }
        found += usize::from(selects(&reduce.filter, fact));
    }
    Some(turns.len())
}
