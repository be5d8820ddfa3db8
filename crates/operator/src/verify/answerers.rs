//! Who answered at each step of a path, and what that cost: the fact's own account against its steps'.

use std::collections::HashMap;

use super::Subject;
use crate::fact::Fact;
use crate::id::UnitId;
use crate::infer::UnitUsage;
use crate::plan::{Auditor, Stage};

/// Problems, each with its unit.
pub(super) type Problems<'a> = Vec<(&'a UnitId, String)>;

/// Checks every step of every path.
pub(super) fn check<'a>(subject: Subject<'a>, problems: &mut Problems<'a>) {
    check_answerers(subject, problems);
    check_equals(subject, problems);
}

/// That a fact costs what its steps cost.
fn check_answerers<'a>(subject: Subject<'a>, problems: &mut Problems<'a>) {
    let (plan, backend) = (subject.plan, &subject.answer.backend);
    let audited_by_larger = plan
        .audit
        .as_ref()
        .is_some_and(|spec| matches!(spec.auditor, Auditor::Model { .. }));
    // Which of two backends is simulated is not told.
    let simulated =
        backend.simulated && !audited_by_larger && !plan.stages.iter().any(Stage::larger);
    let mut larger: Option<&String> = None;
    for fact in subject.facts {
        let mut wrong = |problem: String| problems.push((&fact.unit_id, problem));
        let mut total = (UnitUsage::default(), UnitUsage::default());
        let (mut last, mut remembered) = (None, true);
        for step in &fact.path {
            let Some(name) = &step.backend else { continue };
            let asks_larger = plan.stage(&step.stage).is_some_and(Stage::larger);
            let right = match asks_larger {
                true => *larger.get_or_insert(name),
                false => &backend.name,
            };
            if name != right {
                let stage = &step.stage;
                wrong(format!(
                    "was answered by {name:?} at {stage}, not by {right:?}"
                ));
            }
            if simulated && (step.remembered || step.same_as.is_some()) {
                wrong("is simulated, and an answer was looked up or shared".to_owned());
            }
            total.0 += step.cost;
            if !step.remembered {
                total.1 += step.cost;
            }
            remembered &= step.remembered;
            last = Some(name);
        }
        if fact.backend.as_ref() != last {
            let found = &fact.backend;
            wrong(format!(
                "was answered by {found:?}, by its path by {last:?}"
            ));
        }
        if (fact.cost, fact.usage) != total {
            wrong("costs another amount than its steps".to_owned());
        }
        if fact.remembered != (remembered && last.is_some()) {
            wrong("is not remembered as its steps are".to_owned());
        }
        if fact.same_as.is_some() {
            wrong("has the answer of another unit, which its steps would say".to_owned());
        }
    }
}

/// That an answer which is another unit's is what that unit has at the stage.
fn check_equals<'a>(subject: Subject<'a>, problems: &mut Problems<'a>) {
    let shares = |fact: &&Fact| fact.path.iter().any(|step| step.same_as.is_some());
    if !subject.facts.iter().any(|fact| shares(&fact)) {
        return;
    }
    let facts = subject.facts.iter();
    let known: HashMap<&UnitId, &Fact> = facts.map(|fact| (&fact.unit_id, fact)).collect();
    for fact in subject.facts.iter().filter(shares) {
        for step in &fact.path {
            let Some(same) = &step.same_as else { continue };
            let first = known.get(same).filter(|first| first.ordinal < fact.ordinal);
            let theirs = first.and_then(|first| {
                let mut steps = first.path.iter();
                steps.find(|other| other.stage == step.stage && other.same_as.is_none())
            });
            let alike = theirs.is_some_and(|theirs| {
                (&theirs.outcome, &theirs.values) == (&step.outcome, &step.values)
                    && (&theirs.backend, theirs.remembered) == (&step.backend, step.remembered)
            });
            if !alike {
                let stage = &step.stage;
                let problem = format!(
                    "has the answer of {same} at {stage}, which is no earlier unit with that answer"
                );
                problems.push((&fact.unit_id, problem));
            }
        }
    }
}
