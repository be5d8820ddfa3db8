//! Stages that a model answers: what is remembered is looked up, equal texts are joined, and one job
//! answers the rest.
//!
//! Every unit that comes in is settled here or goes on, exactly once, whatever the backend does. An
//! answer is in the store before it is told. Must not know predicates, the order of stages or the fold.

use std::collections::HashMap;

use super::backends::Backends;
use super::flight::Flight;
use super::{Pass, causes, failure};
use crate::breaker::Guarded;
use crate::error::OperatorError;
use crate::event::Event;
use crate::fact::{Fact, Status, Step};
use crate::id::{FactKey, UnitId};
use crate::infer::{
    BackendIdentity, Completion, FailReason, Infer, InferError, InferJob, JobUsage, UnitOutcome,
    UnitTexts, UnitUsage,
};
use crate::ops::{Unit, Units, map};
use crate::plan::{EvidenceMode, Plan, Select, Stage, StageOp, Then, Turn};
use crate::store::{Store, StoredAnswers, Withheld, fact_key};
use crate::text::{self, TextProblem, UnitText};

/// A unit on its way to the backend, without its text.
struct Asked {
    flight: Flight,
    key: FactKey,
    /// What earlier attempts cost.
    spent: UnitUsage,
    /// Later units whose text is equal: they get its answer.
    same: Vec<Flight>,
}

/// The texts of the units that are asked, each rendered when the backend wants it.
struct Texts<'a> {
    plan: &'a Plan,
    units: &'a dyn Units,
    evidence: EvidenceMode,
    asked: &'a [Asked],
}

impl UnitTexts for Texts<'_> {
    fn len(&self) -> usize {
        self.asked.len()
    }

    fn id(&self, place: usize) -> &UnitId {
        &self.asked[place].flight.kept.id
    }

    fn text(&self, place: usize) -> Result<UnitText, TextProblem> {
        let flight = &self.asked[place].flight;
        if !flight.is_in_time(self.plan) {
            return Err(late(self.plan));
        }
        let (_, shown) = show(self.plan, self.units, self.evidence, flight)?;
        Ok(shown)
    }
}

/// Why a unit is asked nothing more whose own time is over.
pub(super) fn late(plan: &Plan) -> TextProblem {
    let most = plan.control.unit_ms_max.unwrap_or(0);
    TextProblem {
        reason: FailReason::Deadline,
        message: format!("its {most} ms (control: unit_ms_max) were over before it could be asked"),
    }
}

/// Reads a unit and renders what is shown of it.
fn show(
    plan: &Plan,
    units: &dyn Units,
    evidence: EvidenceMode,
    flight: &Flight,
) -> Result<(Unit, UnitText), TextProblem> {
    let unit = flight.read(units).map_err(|error| TextProblem {
        reason: FailReason::Malformed,
        message: causes(&error),
    })?;
    let shown = text::render_for(plan, &unit, &flight.shown_fields(), evidence)?;
    Ok((unit, shown))
}

/// Where the answer of a text comes from that was met before in this stage.
enum Met {
    /// Its unit is asked, at this place.
    Asked(usize),
    /// It was remembered, and its unit is settled.
    Settled(UnitId),
}

/// What all jobs of a run have used up so far.
#[derive(Default)]
pub(super) struct Spent {
    usage: UnitUsage,
    pass: UnitUsage,
    /// Why nothing more is asked.
    pub(super) over: Option<String>,
}

impl Spent {
    /// Counts a further pass from nothing.
    pub(super) fn begin_pass(&mut self) {
        self.pass = UnitUsage::default();
    }
}

/// What a stage leaves.
#[derive(Default)]
pub(super) struct StageOutcome {
    /// Units that a later stage takes.
    pub(super) onward: Vec<Flight>,
    /// Why the backend stopped before the end, when it did.
    pub(super) failure: Option<InferError>,
}

/// One stage while it runs.
struct Round<'r> {
    place: usize,
    stage: &'r Stage,
    turn: &'r Turn,
    identity: BackendIdentity,
    store: Option<&'r dyn Store>,
    onward: Vec<Flight>,
    done: u64,
    usage: UnitUsage,
    /// How often units have been asked, this time included.
    attempt: u32,
    /// What came of units that may be asked again, by place in the job, with what it cost.
    again: HashMap<usize, (UnitOutcome, UnitUsage)>,
}

/// How a unit's answer came about.
#[derive(Default)]
struct Manner {
    remembered: bool,
    same_as: Option<UnitId>,
    cost: UnitUsage,
}

impl Pass<'_, '_> {
    /// Takes units through a stage that a model answers.
    pub(super) fn ask_stage(
        &mut self,
        place: usize,
        flights: Vec<Flight>,
        backends: &mut Backends<'_>,
        store: Option<&dyn Store>,
    ) -> Result<StageOutcome, OperatorError> {
        let stage = &self.plan.stages[place];
        let Some(turn) = self.plan.turn(stage) else {
            return Ok(StageOutcome {
                onward: flights,
                failure: None,
            });
        };
        let withheld = backends.withheld;
        let mut infer = backends.watch(stage)?;
        let identity = infer.identity().clone();
        let mut round = Round {
            place,
            stage,
            turn: &turn,
            store: store.filter(|_| !identity.simulated),
            identity,
            onward: Vec::new(),
            done: 0,
            usage: UnitUsage::default(),
            attempt: 1,
            again: HashMap::new(),
        };
        let flights = self.relate(flights, stage, &turn, &mut round.onward)?;
        let asked = self.recall(flights, &mut round)?;
        let unproven = withheld.is_some_and(Withheld::take_unproven);
        let (mut failure, mut again) = self.ask(asked, &mut infer, unproven, &mut round)?;
        while !again.is_empty() {
            round.attempt += 1;
            self.journal.log(Event::Retried {
                stage: stage.name.clone(),
                units: again.len() as u64,
                attempt: round.attempt,
            })?;
            (failure, again) = self.ask(again, &mut infer, false, &mut round)?;
        }
        Ok(StageOutcome {
            onward: round.onward,
            failure,
        })
    }

    /// Renders what is shown of each unit and lands the units whose answers are remembered.
    fn recall(
        &mut self,
        flights: Vec<Flight>,
        round: &mut Round<'_>,
    ) -> Result<Vec<Asked>, OperatorError> {
        let turn = round.turn;
        let remembered = self.usage.remembered_units;
        let mut asked: Vec<Asked> = Vec::new();
        // A recording answers units, not texts: what it says of equal ones may differ.
        let mut met: Option<HashMap<FactKey, Met>> = (!round.identity.simulated).then(HashMap::new);
        for mut flight in flights {
            let (unit, shown) = match show(self.plan, self.units, turn.evidence, &flight) {
                Ok(read) => read,
                Err(problem) => {
                    let reason = failure(problem.reason, &problem.message);
                    let (status, name) = (Status::Errored, &round.stage.name);
                    if self.plan.is_staged() {
                        flight.step(Step::bare(name, status.name()));
                    }
                    self.settle(flight.end(self.plan, self.units, status, name, reason))?;
                    continue;
                }
            };
            let key = fact_key(&round.identity, &turn.rubric, &turn.questions, &shown);
            let known = met.as_ref().and_then(|met| met.get(&key));
            self.usage.duplicate_units += u64::from(known.is_some());
            let same_as = match known {
                Some(Met::Asked(place)) => {
                    asked[*place].same.push(flight);
                    continue;
                }
                Some(Met::Settled(first)) => Some(first.clone()),
                None => None,
            };
            let stored = round
                .store
                .and_then(|store| store.get(&key))
                .filter(|stored| map::check(&turn.questions, &shown, &stored.answers).is_ok());
            let Some(stored) = stored else {
                if let Some(met) = &mut met {
                    met.insert(key, Met::Asked(asked.len()));
                }
                asked.push(Asked {
                    flight,
                    key,
                    spent: UnitUsage::default(),
                    same: Vec::new(),
                });
                continue;
            };
            self.usage.remembered_units += 1;
            self.usage.tokens_as_if_uncached += stored.cost.prompt_tokens;
            let name = &round.stage.name;
            let fact = map::derive(self.plan, name, turn, &unit, &shown, &stored.answers);
            let first = same_as.is_none();
            let manner = Manner {
                remembered: true,
                same_as,
                cost: if first {
                    stored.cost
                } else {
                    UnitUsage::default()
                },
            };
            if first && let Some(met) = &mut met {
                met.insert(key, Met::Settled(unit.id));
            }
            self.land(flight, fact, round, manner)?;
        }
        let joined: u64 = asked.iter().map(|asked| asked.same.len() as u64).sum();
        self.journal.log(Event::MapStarted {
            stage: round.stage.name.clone(),
            remembered: self.usage.remembered_units - remembered,
            asked: asked.len() as u64,
            duplicates: joined,
        })?;
        Ok(asked)
    }

    /// Asks the backend in one job and lands every unit of it; nothing left asks nothing, but for
    /// canaries where answers were looked up that none has vouched for. Returns what is to be asked again.
    fn ask(
        &mut self,
        asked: Vec<Asked>,
        infer: &mut Guarded<'_, '_>,
        unproven: bool,
        round: &mut Round<'_>,
    ) -> Result<(Option<InferError>, Vec<Asked>), OperatorError> {
        if asked.is_empty() && !unproven {
            return Ok((None, Vec::new()));
        }
        round.usage = UnitUsage::default();
        let mut done = vec![false; asked.len()];
        let places: HashMap<UnitId, usize> = asked
            .iter()
            .enumerate()
            .map(|(place, asked)| (asked.flight.kept.id.clone(), place))
            .collect();
        let cancel = &self.job_cancel();
        let texts = Texts {
            plan: self.plan,
            units: self.units,
            evidence: round.turn.evidence,
            asked: &asked,
        };
        let job = InferJob {
            rubric: &round.turn.rubric,
            questions: &round.turn.questions,
            units: &texts,
            cancel,
        };
        let mut broken: Option<OperatorError> = None;
        let mut receive = |completion| {
            // The seam takes no error back: the first one is kept, and the job is told to stop.
            if broken.is_none() {
                let received = self.receive(completion, &asked, &mut done, &places, round);
                if let Err(error) = received {
                    cancel.cancel();
                    broken = Some(error);
                }
            }
        };
        let result = match cancel.is_cancelled() {
            true => Ok(JobUsage::default()),
            false => infer.infer(job, &mut receive),
        };
        if let Some(error) = broken {
            return Err(error);
        }
        self.heed(infer)?;
        let failure = match result {
            Ok(usage) => {
                self.usage.job += usage;
                None
            }
            Err(error @ InferError::Failed(_)) => {
                // The job's own count is lost; what its completed units report still stands.
                self.usage.job.prompt_tokens += round.usage.prompt_tokens;
                self.usage.job.computed_tokens += round.usage.computed_tokens;
                self.usage.job.cached_tokens += round.usage.cached_tokens;
                Some(error)
            }
            Err(error) => return Err(error.into()),
        };
        let reason = match (&failure, &self.spent.over, cancel.is_cancelled()) {
            (_, Some(over), _) if infer.trip().is_some() => over.clone(),
            (Some(error), _, _) => causes(error),
            (None, Some(over), _) => over.clone(),
            (None, None, true) => String::from("cancelled before it was asked"),
            (None, None, false) => String::from("the backend did not complete it"),
        };
        let stopped = failure.is_some() || cancel.is_cancelled();
        let mut outcomes = std::mem::take(&mut round.again);
        let mut again = Vec::new();
        for (place, mut left) in asked.into_iter().enumerate() {
            if let Some((outcome, usage)) = outcomes.remove(&place) {
                if stopped {
                    self.conclude_all(&left, &outcome, usage, round)?;
                } else {
                    left.spent += usage;
                    again.push(left);
                }
            } else if !done[place] {
                for flight in std::iter::once(left.flight).chain(left.same) {
                    self.leave(flight, round.stage, Status::NotRun, reason.clone())?;
                }
            }
        }
        Ok((failure, again))
    }

    /// Tells what became of canaries, and stops the run where a breaker is open.
    pub(super) fn heed(&mut self, infer: &mut Guarded<'_, '_>) -> Result<(), OperatorError> {
        for result in infer.take_results() {
            self.journal.log(result.into())?;
        }
        if let Some(trip) = infer.trip() {
            let reason = trip.to_string();
            self.spent.over = Some(reason.clone());
            self.options.cancel.cancel();
            let trip = trip.clone();
            self.journal.log(Event::BreakerOpen { trip, reason })?;
        }
        Ok(())
    }

    /// Turns one completion into a fact, or keeps it for another attempt.
    fn receive(
        &mut self,
        completion: Completion,
        asked: &[Asked],
        done: &mut [bool],
        places: &HashMap<UnitId, usize>,
        round: &mut Round<'_>,
    ) -> Result<(), OperatorError> {
        let unit_id = completion.unit_id.to_string();
        let Some(&place) = places.get(&completion.unit_id) else {
            return Err(OperatorError::UnknownCompletion { unit_id });
        };
        if std::mem::replace(&mut done[place], true) {
            return Err(OperatorError::DuplicateCompletion { unit_id });
        }
        let (first, usage) = (&asked[place], completion.usage);
        let outcome = completion.outcome;
        let transport = FailReason::Transport;
        let transient =
            matches!(&outcome, UnitOutcome::Failed { reason, .. } if *reason == transport);
        if transient && round.attempt < self.plan.control.attempts_max {
            round.again.insert(place, (outcome, usage));
        } else {
            self.conclude_all(first, &outcome, usage, round)?;
            round.done += 1;
        }
        self.spend(usage);
        self.usage.tokens_as_if_uncached += usage.prompt_tokens * first.same.len() as u64;
        round.usage += usage;
        self.journal.log(Event::Progress {
            done: round.done,
            asked: asked.len() as u64,
        })?;
        self.check_budget(round.stage.pass);
        Ok(())
    }

    /// Lands a unit that was asked, and all whose texts equal its own; remembers its answers.
    fn conclude_all(
        &mut self,
        first: &Asked,
        outcome: &UnitOutcome,
        usage: UnitUsage,
        round: &mut Round<'_>,
    ) -> Result<(), OperatorError> {
        let evidence = round.turn.evidence;
        let read = show(self.plan, self.units, evidence, &first.flight);
        let checked = match (outcome, &read) {
            (UnitOutcome::Answered(_), Err(problem)) => problem.clone().into(),
            (UnitOutcome::Answered(answers), Ok((_, shown))) => {
                match map::check(&round.turn.questions, shown, answers) {
                    Ok(()) => outcome.clone(),
                    Err(message) => UnitOutcome::Failed {
                        reason: FailReason::Schema,
                        message,
                    },
                }
            }
            (other, _) => (*other).clone(),
        };
        let mut cost = first.spent;
        cost += usage;
        if let (UnitOutcome::Answered(answers), Some(store)) = (&checked, round.store) {
            let answers = answers.clone();
            store.put(&first.key, &StoredAnswers { answers, cost })?;
        }
        let manner = Manner {
            cost,
            ..Manner::default()
        };
        self.conclude(first.flight.clone(), read, &checked, round, manner)?;
        for flight in &first.same {
            let read = show(self.plan, self.units, evidence, flight);
            let manner = Manner {
                same_as: Some(first.flight.kept.id.clone()),
                ..Manner::default()
            };
            self.conclude(flight.clone(), read, &checked, round, manner)?;
        }
        Ok(())
    }

    /// Lands a unit that was asked, or whose text equals that of one which was.
    fn conclude(
        &mut self,
        flight: Flight,
        read: Result<(Unit, UnitText), TextProblem>,
        outcome: &UnitOutcome,
        round: &mut Round<'_>,
        manner: Manner,
    ) -> Result<(), OperatorError> {
        let over = self.spent.over.as_deref().unwrap_or("cancelled").to_owned();
        let (status, reason) = match (outcome, &read) {
            (UnitOutcome::Answered(answers), Ok((unit, shown))) => {
                let (plan, name) = (self.plan, &round.stage.name);
                let fact = map::derive(plan, name, round.turn, unit, shown, answers);
                return self.land(flight, fact, round, manner);
            }
            (UnitOutcome::Answered(_), Err(problem)) => {
                (Status::Errored, failure(problem.reason, &problem.message))
            }
            (UnitOutcome::Failed { reason, message }, _) => {
                (Status::Errored, failure(*reason, message))
            }
            (UnitOutcome::Cancelled, _) => (Status::Cancelled, over),
            (UnitOutcome::NotRun, _) => (Status::NotRun, over),
        };
        // In a further pass what an earlier one found stands, but for what the backend itself failed on.
        let late = matches!(outcome, UnitOutcome::Failed { reason, .. } if *reason == FailReason::Deadline);
        if round.stage.pass > 0 && (late || status != Status::Errored) {
            let status = if late { Status::NotRun } else { status };
            return self.leave(flight, round.stage, status, reason);
        }
        let mut fact = self.ended(flight, status, round, manner, reason);
        fact.clipped_bytes = read.map_or(0, |(_, shown)| shown.clipped_bytes);
        self.settle(fact)
    }

    /// Takes an answered unit's fact: it is settled, or it goes on to a later stage.
    fn land(
        &mut self,
        mut flight: Flight,
        mut fact: Fact,
        round: &mut Round<'_>,
        manner: Manner,
    ) -> Result<(), OperatorError> {
        let name = &round.stage.name;
        fact.backend = Some(round.identity.name.clone());
        if !self.plan.is_staged() {
            fact.remembered = manner.remembered;
            fact.same_as = manner.same_as;
            fact.cost = manner.cost;
            fact.usage = if manner.remembered {
                UnitUsage::default()
            } else {
                manner.cost
            };
            return self.settle(fact);
        }
        let mut step = Step {
            stage: name.clone(),
            outcome: String::from("answered"),
            values: fact.values.clone(),
            observed: None,
            backend: fact.backend.clone(),
            remembered: manner.remembered,
            same_as: manner.same_as,
            cost: manner.cost,
        };
        if let StageOp::Select(select) = &round.stage.op {
            let option = chosen(select, name, &fact);
            let (label, then) = (option.label.name.clone(), option.then.clone());
            step.outcome.clone_from(&label);
            flight.step(step);
            flight.choose(&then);
            let status = match then {
                Then::Exclude => Some(Status::Excluded),
                Then::Abstain => Some(Status::Abstained),
                Then::Run(_) => None,
            };
            if let Some(status) = status {
                let reason = format!("selector {name} chose {label}");
                let fact = flight.end(self.plan, self.units, status, name, reason);
                return self.settle(fact);
            }
        } else {
            flight.step(step);
            flight.answer(self.plan, fact);
        }
        if flight.goes_on(self.plan, round.place + 1) {
            round.onward.push(flight);
            return Ok(());
        }
        self.settle(flight.finish(self.plan, self.units))
    }

    /// Settles a unit whose own time was over before a tool could be called for it.
    pub(super) fn expire(
        &mut self,
        mut flight: Flight,
        stage: &Stage,
    ) -> Result<(), OperatorError> {
        let late = late(self.plan);
        let reason = failure(late.reason, &late.message);
        if stage.pass > 0 {
            return self.leave(flight, stage, Status::NotRun, reason);
        }
        let status = Status::Errored;
        flight.step(Step::bare(&stage.name, late.reason.as_str()));
        self.settle(flight.end(self.plan, self.units, status, &stage.name, reason))
    }

    /// Settles a unit that a stage wanted and did not get. In a further pass what an earlier one found
    /// stands, and the path says what was not done.
    pub(super) fn leave(
        &mut self,
        mut flight: Flight,
        stage: &Stage,
        status: Status,
        reason: String,
    ) -> Result<(), OperatorError> {
        let (plan, units) = (self.plan, self.units);
        if stage.pass == 0 {
            let fact = flight.end(plan, units, status, &stage.name, reason);
            return self.settle(fact);
        }
        flight.step(Step::bare(&stage.name, status.name()));
        self.settle(flight.finish(plan, units))
    }

    /// The fact of a unit that was asked in vain, with what that cost.
    fn ended(
        &self,
        mut flight: Flight,
        status: Status,
        round: &Round<'_>,
        manner: Manner,
        reason: String,
    ) -> Fact {
        let name = &round.stage.name;
        let backend = Some(round.identity.name.clone());
        if self.plan.is_staged() {
            flight.step(Step {
                backend: backend.clone(),
                same_as: manner.same_as.clone(),
                cost: manner.cost,
                ..Step::bare(name, status.name())
            });
        }
        let mut fact = flight.end(self.plan, self.units, status, name, reason);
        fact.backend = backend;
        if !self.plan.is_staged() {
            fact.same_as = manner.same_as;
            (fact.usage, fact.cost) = (manner.cost, manner.cost);
        }
        fact
    }

    /// Counts what one answer cost.
    pub(super) fn spend(&mut self, cost: UnitUsage) {
        self.usage.tokens_as_if_uncached += cost.prompt_tokens;
        self.spent.usage += cost;
        self.spent.pass += cost;
    }

    /// Stops all jobs once the plan's budget, or that of the pass, is spent; what is done stands.
    pub(super) fn check_budget(&mut self, pass: usize) {
        let budget = &self.plan.budget;
        let seconds = self.journal.elapsed_us() / 1_000_000;
        let of_pass = pass.checked_sub(1).map(|place| &self.plan.passes[place]);
        let pass_over = of_pass
            .and_then(|pass| pass.tokens_max)
            .is_some_and(|most| self.spent.pass.computed_tokens >= most);
        if budget.seconds_max.is_some_and(|most| seconds >= most) {
            self.spent.over = Some(String::from("budget seconds_max"));
        } else if budget
            .tokens_max
            .is_some_and(|most| self.spent.usage.computed_tokens >= most)
        {
            self.spent.over = Some(String::from("budget tokens_max"));
        } else if self.is_too_dear() {
            self.spent.over = Some(String::from("budget money_max_micros"));
        } else if pass_over {
            self.spent.over = Some(String::from("tokens_max of the pass"));
        }
        if self.spent.over.is_some() {
            self.options.cancel.cancel();
        }
    }
}

impl Pass<'_, '_> {
    /// Whether the units' tokens cost as much as the budget has.
    fn is_too_dear(&self) -> bool {
        let (budget, usage) = (&self.plan.budget, &self.spent.usage);
        let cost = budget
            .price
            .map(|price| price.of(usage.computed_tokens, usage.cached_tokens, 0));
        cost.zip(budget.money_max_micros)
            .is_some_and(|(cost, most)| cost >= most)
    }
}

/// The option that is taken: the most probable one, or where it is not clear the declared one.
fn chosen<'s>(select: &'s Select, name: &str, fact: &Fact) -> &'s crate::plan::SelectOption {
    let value = fact.values.get(name);
    let label = value.map_or("", |value| value.label.as_str());
    let margin = value.and_then(|value| value.margin_ppm).unwrap_or(0);
    let wanted = match &select.unclear {
        Some(unclear) if margin < unclear.margin_below_ppm => &unclear.option,
        _ => label,
    };
    let option = select
        .options
        .iter()
        .find(|option| option.label.name == wanted);
    assert!(option.is_some(), "answers are among the declared options");
    match option {
        Some(option) => option,
        None => unreachable!("checked above"),
    }
}
