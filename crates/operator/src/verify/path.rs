//! Every unit's way through the plan's stages, walked again from the steps that its fact has.
//!
//! The walk goes stage by stage over all units at once, because a further pass has room for so many only.
//! What is known of a unit is what its earlier steps say; from that follows which stage takes it, and no
//! step may be there or lacking without that. A value's place in the steps is not believed: the fact's own
//! values, status and reason have to be what the way comes to. Must not know how a run is carried out.

use std::collections::BTreeMap;

use super::answerers;
use super::audit::ended;
use super::facts::doubt_in;
use super::steps::{self, Outcome};
use super::stopping::BY_RULE;
use super::units::lacks_relation;
use super::{Place, Report, Subject};
use crate::fact::{Fact, FieldValue, Status, Step};
use crate::id::UnitId;
use crate::plan::{AUDIT_STAGE, Condition, MAP_STAGE, Plan, Stage, StageOp, Then};

/// Why a unit was not run that no stage was asked about.
const LIMITS: [&str; 2] = ["limit", "budget units_max"];

/// One unit on its way.
struct Walk<'a> {
    fact: &'a Fact,
    /// How many of its steps were taken.
    taken: usize,
    values: BTreeMap<&'a str, &'a FieldValue>,
    /// Stages that selectors chose.
    chosen: Vec<&'a str>,
    /// The last stage that answered.
    answered: Option<&'a str>,
    pass: usize,
    end: End,
    problems: Vec<String>,
}

/// How a way ends.
enum End {
    /// It goes on as far as stages take it.
    Open,
    /// In what it had by then: a further pass was stopped.
    Stands,
    /// At its last step.
    Ended { status: Status, reason: String },
    /// At a stage of which it has no step, because the run stopped there.
    Stopped(String),
    /// Without a relation that an answer needs.
    Lacks,
}

/// Checks the path of every fact, and that of each only as many steps are there as were due.
pub(super) fn check(subject: Subject<'_>, report: &mut Report) {
    let plan = subject.plan;
    let mut problems: Vec<(&UnitId, String)> = Vec::new();
    if !plan.is_staged() {
        let stepped = subject.facts.iter().filter(|fact| !fact.path.is_empty());
        problems.extend(stepped.map(|fact| {
            let problem = "has a path, and the plan names no stages".to_owned();
            (&fact.unit_id, problem)
        }));
    } else {
        let mut walks = Vec::new();
        for fact in subject.facts {
            match begin(plan, fact) {
                Ok(walk) => walks.extend(walk),
                Err(problem) => problems.push((&fact.unit_id, problem)),
            }
        }
        let mut pass = 0;
        for (place, stage) in plan.stages.iter().enumerate() {
            if stage.pass != pass {
                pass = stage.pass;
                admit(plan, &mut walks, place);
            }
            walks.iter_mut().for_each(|walk| walk.come(plan, stage));
        }
        for mut walk in walks {
            walk.conclude(plan);
            let unit = &walk.fact.unit_id;
            problems.extend(walk.problems.into_iter().map(|problem| (unit, problem)));
        }
        answerers::check(subject, &mut problems);
    }
    for (unit, problem) in problems {
        report.content(Place::Unit(unit.clone()), problem);
    }
}

/// Whether a unit was left out by the plan's stopping rules; that they let it be is checked elsewhere.
fn left_out(plan: &Plan, status: Status, reason: &str) -> bool {
    let stopped = matches!(status, Status::NotRun | Status::Cancelled);
    stopped && !plan.control.stop.is_empty() && reason.starts_with(BY_RULE)
}

/// A unit before its first stage; none where it never came to one.
fn begin<'a>(plan: &'a Plan, fact: &'a Fact) -> Result<Option<Walk<'a>>, String> {
    let at = ended(fact);
    let came = at == MAP_STAGE || plan.stage(at).is_some();
    let first = plan.stages.first().map(|stage| stage.name.as_str());
    let limited = match fact.reason.as_deref() {
        Some(reason) if fact.stage != AUDIT_STAGE => {
            fact.status == Status::NotRun && LIMITS.contains(&reason)
                || left_out(plan, fact.status, reason)
        }
        _ => fact.stage == AUDIT_STAGE && fact.path.is_empty(),
    };
    if !came || (limited && first == Some(at)) {
        return match fact.path.is_empty() {
            true => Ok(None),
            false => Err(format!("ended at {at}, before all stages, and has a path")),
        };
    }
    let mut next = 0;
    for step in &fact.path {
        let name = &step.stage;
        let mut stages = plan.stages.iter();
        match stages.position(|stage| stage.name == *name) {
            None => return Err(format!("went through {name:?}, which is no stage")),
            Some(place) if place < next => {
                return Err(format!("went through {name} twice or after a later stage"));
            }
            Some(place) => next = place + 1,
        }
    }
    Ok(Some(Walk {
        fact,
        taken: 0,
        values: BTreeMap::new(),
        chosen: Vec::new(),
        answered: None,
        pass: 0,
        end: End::Open,
        problems: Vec::new(),
    }))
}

/// Lets the first units that stages of a pass take into it, as many as it has room for.
fn admit(plan: &Plan, walks: &mut [Walk<'_>], place: usize) {
    let pass = plan.stages[place].pass;
    let mut room = plan.passes[pass - 1].units_max;
    for walk in walks {
        let stages = plan.stages[place..].iter();
        let mut of_pass = stages.take_while(|stage| stage.pass == pass);
        if room > 0
            && matches!(walk.end, End::Open)
            && of_pass.any(|stage| walk.is_wanted(plan, stage))
        {
            room -= 1;
            walk.pass = pass;
        }
    }
}

impl<'a> Walk<'a> {
    /// Whether a stage takes the unit, were it in the stage's pass.
    fn is_wanted(&self, plan: &Plan, stage: &Stage) -> bool {
        let chosen = self.chosen.contains(&stage.name.as_str());
        (chosen || !plan.is_chosen(&stage.name)) && self.meets(plan, &stage.when)
    }

    fn meets(&self, plan: &Plan, when: &Condition) -> bool {
        let labels = when.labels.iter().all(|(field, label)| {
            let value = self.values.get(field.as_str());
            value.is_some_and(|value| value.label == *label)
        });
        // A field not asked yet is as uncertain as can be.
        let margins = when.margin_below_ppm.iter().all(|(field, most)| {
            let margin = match self.values.get(field.as_str()) {
                None => Some(0),
                Some(value) => value.margin_ppm,
            };
            margin.is_some_and(|margin| margin < *most)
        });
        let abstains = self.answered.is_none() || self.doubt(plan).is_some();
        labels && margins && when.abstained.is_none_or(|wanted| wanted == abstains)
    }

    fn doubt(&self, plan: &Plan) -> Option<String> {
        let mut fields = plan.fields.iter();
        fields.find_map(|field| doubt_in(field, self.values.get(field.name.as_str())?))
    }

    /// Comes to a stage: takes its step where it has one, and has one where it was due.
    fn come(&mut self, plan: &'a Plan, stage: &'a Stage) {
        let next = self.fact.path.get(self.taken);
        let step = next.filter(|step| step.stage == stage.name);
        let due =
            matches!(self.end, End::Open) && self.pass == stage.pass && self.is_wanted(plan, stage);
        let name = &stage.name;
        match (due, step) {
            (false, None) => {}
            (true, Some(step)) => self.take(plan, stage, step),
            (false, Some(step)) => {
                let problem = format!("went through {name}, which did not take it");
                self.problems.push(problem);
                self.take(plan, stage, step);
            }
            (true, None) => {
                let stopped = self.fact.status == Status::NotRun || self.fact.stage == AUDIT_STAGE;
                if stopped && stage.pass == 0 && next.is_none() && ended(self.fact) == name {
                    self.end = End::Stopped(name.clone());
                } else {
                    let problem = format!("lacks a step of {name}, which took it");
                    self.problems.push(problem);
                }
            }
        }
    }

    /// Takes a step: what is known of the unit after it.
    fn take(&mut self, plan: &'a Plan, stage: &'a Stage, step: &'a Step) {
        self.taken += 1;
        self.problems.extend(steps::check(plan, stage, step));
        match steps::outcome(stage, step) {
            Outcome::Chose(option) => {
                let reason = format!("selector {} chose {}", stage.name, option.label.name);
                match &option.then {
                    Then::Run(stages) => self.chosen.extend(stages.iter().map(String::as_str)),
                    Then::Exclude => {
                        let status = Status::Excluded;
                        self.end = End::Ended { status, reason };
                    }
                    Then::Abstain => {
                        let status = Status::Abstained;
                        self.end = End::Ended { status, reason };
                    }
                }
            }
            Outcome::Answered => {
                let values = step.values.iter();
                self.values
                    .extend(values.map(|(field, value)| (field.as_str(), value)));
                self.answered = Some(&stage.name);
            }
            Outcome::Observed => {}
            Outcome::Alone => {
                if self.taken == self.fact.path.len() && lacks_relation(plan, self.fact) {
                    self.end = End::Lacks;
                }
            }
            Outcome::Failed(status) if stage.pass > 0 && status != Status::Errored => {
                self.end = End::Stands;
            }
            Outcome::Failed(status) => {
                // The words are the unit's own; what they begin with is looked at with the status.
                let reason = self.fact.reason.clone().unwrap_or_default();
                if let StageOp::Tool(_) = stage.op
                    && status == Status::Errored
                    && !reason.starts_with(&step.outcome)
                {
                    let problem = format!("is {} for {reason:?}", step.outcome);
                    self.problems.push(problem);
                }
                self.end = End::Ended { status, reason };
            }
            Outcome::Unknown => {}
        }
    }

    /// Compares the fact with what its way comes to.
    fn conclude(&mut self, plan: &Plan) {
        let fact = self.fact;
        let last = fact.path.last().map(|step| step.stage.as_str());
        let last = last.unwrap_or(MAP_STAGE);
        let (status, reason, stage) = match &self.end {
            End::Ended { status, reason } => (*status, Some(reason.clone()), last),
            End::Stopped(stage) => (Status::NotRun, fact.reason.clone(), stage.as_str()),
            End::Lacks => (Status::Abstained, fact.reason.clone(), last),
            End::Open | End::Stands => {
                let (status, reason) = self.stands(plan);
                (status, reason, self.answered.unwrap_or(last))
            }
        };
        let stage = stage.to_owned();
        if ended(fact) != stage {
            let at = ended(fact);
            self.problems
                .push(format!("ended at {at}, by its path at {stage}"));
        }
        if fact.stage == AUDIT_STAGE {
            // The audit's own word stands for all that follows.
            return;
        }
        if (fact.status, &fact.reason) != (status, &reason) {
            let (found, why) = (fact.status, &fact.reason);
            self.problems.push(format!(
                "is {found} for {why:?}, by its path {status} for {reason:?}"
            ));
        }
        let keeps = matches!(self.end, End::Open | End::Stands | End::Lacks);
        let found = fact
            .values
            .iter()
            .map(|(field, value)| (field.as_str(), value));
        let right = self.values.iter().filter(|_| keeps);
        if !found.eq(right.map(|(field, value)| (*field, *value))) {
            let problem = "has other values than its path comes to".to_owned();
            self.problems.push(problem);
        }
        let backed = keeps && self.answered.is_some();
        if !backed && !fact.evidence.is_empty() {
            let problem = "has evidence, and no stage of its path answered".to_owned();
            self.problems.push(problem);
        }
    }

    /// Status and reason of a unit that no further stage takes.
    fn stands(&self, plan: &Plan) -> (Status, Option<String>) {
        let mut fields = plan.fields.iter();
        let missing = fields.find(|field| !self.values.contains_key(field.name.as_str()));
        let doubt = match missing {
            Some(field) => {
                let name = &field.name;
                Some(format!("not asked: no stage that it took asks {name}"))
            }
            None => self.doubt(plan),
        };
        match doubt {
            Some(_) => (Status::Abstained, doubt),
            None => (Status::Decided, None),
        }
    }
}
