//! One step of a path against its stage: what it may say, taken by itself.

use super::facts::{OF_TOOLS, check_distribution, check_value};
use crate::fact::{FieldValue, Status, Step};
use crate::infer::UnitUsage;
use crate::plan::{Plan, Select, SelectOption, Stage, StageOp, required};

/// What a step says happened.
pub(super) enum Outcome<'a> {
    /// A selector chose.
    Chose(&'a SelectOption),
    /// Fields were answered.
    Answered,
    /// A tool showed something.
    Observed,
    /// It was to be widened, and has no neighbour.
    Alone,
    /// There is no answer.
    Failed(Status),
    /// Nothing that this stage does.
    Unknown,
}

/// What became of units that have no answer.
const FAILED: [Status; 3] = [Status::Errored, Status::Cancelled, Status::NotRun];

/// What a step says, by the operator of its stage.
pub(super) fn outcome<'a>(stage: &'a Stage, step: &Step) -> Outcome<'a> {
    let said = step.outcome.as_str();
    let failed = FAILED.into_iter().find(|status| status.name() == said);
    // An option may be called like anything; only a choice has a value.
    if let StageOp::Select(select) = &stage.op
        && !step.values.is_empty()
    {
        let mut options = select.options.iter();
        let option = options.find(|option| option.label.name == said);
        return option.map_or(Outcome::Unknown, Outcome::Chose);
    }
    match (&stage.op, said, failed) {
        (StageOp::Map(_), "answered", _) => Outcome::Answered,
        (StageOp::Map(_), "no neighbour", _) => Outcome::Alone,
        (StageOp::Tool(_), "observed", _) => Outcome::Observed,
        (_, _, Some(status)) => Outcome::Failed(status),
        (StageOp::Tool(_), error, None) if OF_TOOLS.contains(&error) => {
            Outcome::Failed(Status::Errored)
        }
        _ => Outcome::Unknown,
    }
}

/// Checks a step by itself.
pub(super) fn check(plan: &Plan, stage: &Stage, step: &Step) -> Vec<String> {
    let (name, said) = (&stage.name, &step.outcome);
    let mut problems = Vec::new();
    let outcome = outcome(stage, step);
    match (&outcome, &stage.op) {
        (Outcome::Unknown, op) => {
            let op = op.as_str();
            problems.push(format!(
                "at {name} it is {said:?}, which no {op} stage says"
            ));
        }
        (Outcome::Chose(_), StageOp::Select(select)) => {
            problems.extend(check_choice(select, name, step));
        }
        (Outcome::Answered, StageOp::Map(map)) => {
            let asked = || plan.fields.iter().filter(|f| map.fields.contains(&f.name));
            if step.values.len() != map.fields.len()
                || asked().any(|field| !step.values.contains_key(&field.name))
            {
                let found: Vec<&String> = step.values.keys().collect();
                let wanted = &map.fields;
                problems.push(format!("at {name} it has {found:?}, asked was {wanted:?}"));
            }
            for field in asked() {
                let value = step.values.get(&field.name);
                let problem = value.and_then(|value| check_value(field, value));
                problems.extend(problem.map(|problem| format!("at {name}: {problem}")));
            }
        }
        (Outcome::Alone, StageOp::Map(map)) => {
            let asked = plan.fields.iter().filter(|f| map.fields.contains(&f.name));
            if !map.widen && required(asked).is_empty() {
                problems.push(format!("needed no neighbour at {name}, and had none"));
            }
        }
        _ => {}
    }
    let answered = matches!(outcome, Outcome::Chose(_) | Outcome::Answered);
    let observed = matches!(outcome, Outcome::Observed);
    if !answered && !step.values.is_empty() {
        problems.push(format!("has values at {name}, where it is {said:?}"));
    }
    if answered && step.backend.is_none() {
        problems.push(format!("was answered at {name}, and no backend is named"));
    }
    let unasked = match outcome {
        Outcome::Alone => true,
        Outcome::Failed(status) => status != Status::Errored && stage.pass > 0,
        _ => false,
    };
    if unasked && step.backend.is_some() {
        problems.push(format!("was not asked at {name}, and a backend is named"));
    }
    if observed != step.observed.is_some() {
        problems.push(format!(
            "shows a text at {name} without a tool, or none with one"
        ));
    }
    let none = UnitUsage::default();
    if step.backend.is_none() && (step.cost != none || step.same_as.is_some()) {
        problems.push(format!(
            "was asked of nobody at {name}, and has a cost or an equal"
        ));
    }
    if step.remembered && !answered && !observed {
        problems.push(format!("is remembered at {name}, and has no answer there"));
    }
    if step.same_as.is_some() && step.cost != none {
        problems.push(format!(
            "has the answer of an equal at {name}, and its cost"
        ));
    }
    problems
}

/// A choice is a whole distribution over the options, and the option taken follows from it.
fn check_choice(select: &Select, name: &str, step: &Step) -> Option<String> {
    let value = match step.values.get(name) {
        Some(value) if step.values.len() == 1 && value.reason_code.is_none() => value,
        _ => return Some(format!("at {name} it has other values than a choice")),
    };
    let options = select
        .options
        .iter()
        .map(|option| option.label.name.as_str());
    if let Some(problem) = check_distribution(name, options.collect(), value) {
        return Some(problem);
    }
    let right = right_option(select, value);
    (step.outcome != right).then(|| {
        let taken = &step.outcome;
        format!("took {taken:?} at {name}, by its probabilities {right:?} is right")
    })
}

fn right_option<'v>(select: &'v Select, value: &'v FieldValue) -> &'v str {
    match (&select.unclear, value.margin_ppm) {
        (Some(unclear), Some(margin)) if margin < unclear.margin_below_ppm => &unclear.option,
        _ => &value.label,
    }
}
