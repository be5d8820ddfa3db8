//! The map stage of a run: what is remembered is looked up, equal texts are joined, and one job
//! answers the rest.
//!
//! Every unit that comes in is settled here exactly once, whatever the backend does. An answer is in
//! the store before it is told. Must not know predicates or the fold.

use std::collections::HashMap;

use super::{Pass, causes, failure};
use crate::error::OperatorError;
use crate::event::Event;
use crate::fact::{Fact, Status};
use crate::id::{FactKey, UnitId};
use crate::infer::{
    Completion, FailReason, Infer, InferError, InferJob, UnitOutcome, UnitTexts, UnitUsage,
};
use crate::ops::{Kept, Unit, Units, map};
use crate::plan::Plan;
use crate::store::{Store, StoredAnswers, fact_key};
use crate::text::{self, TextProblem, UnitText};

/// A unit on its way to the backend, without its text.
pub(super) struct Asked {
    unit: Kept,
    key: FactKey,
    /// Later units whose text is equal: they get its answer.
    same: Vec<Kept>,
}

/// The texts of the units that are asked, each rendered when the backend wants it.
struct Texts<'a> {
    plan: &'a Plan,
    units: &'a dyn Units,
    asked: &'a [Asked],
}

impl UnitTexts for Texts<'_> {
    fn len(&self) -> usize {
        self.asked.len()
    }

    fn id(&self, place: usize) -> &UnitId {
        &self.asked[place].unit.id
    }

    fn text(&self, place: usize) -> Result<UnitText, TextProblem> {
        let (_, shown) = show(self.plan, self.units, &self.asked[place].unit)?;
        Ok(shown)
    }
}

/// Reads a unit and renders what is shown of it.
fn show(plan: &Plan, units: &dyn Units, kept: &Kept) -> Result<(Unit, UnitText), TextProblem> {
    let unit = kept.read(units).map_err(|error| TextProblem {
        reason: FailReason::Malformed,
        message: causes(&error),
    })?;
    let shown = text::render(plan, &unit)?;
    Ok((unit, shown))
}

/// Where the answer of a text comes from that was met before in this run.
enum Met {
    /// Its unit is asked, at this place.
    Asked(usize),
    /// It was remembered, and its unit is settled.
    Settled(UnitId),
}

/// What the job has used up so far.
#[derive(Default)]
struct Spent {
    done: u64,
    usage: UnitUsage,
    over: Option<&'static str>,
}

impl Pass<'_, '_> {
    /// Renders what is shown of each unit and settles the units whose answers are remembered.
    pub(super) fn recall(
        &mut self,
        kept: Vec<Kept>,
        store: Option<&dyn Store>,
    ) -> Result<Vec<Asked>, OperatorError> {
        let rubric = self.plan.rubric();
        let mut asked: Vec<Asked> = Vec::new();
        // A recording answers units, not texts: what it says of equal ones may differ.
        let mut met: Option<HashMap<FactKey, Met>> = (!self.identity.simulated).then(HashMap::new);
        for kept in kept {
            let (unit, shown) = match show(self.plan, self.units, &kept) {
                Ok(read) => read,
                Err(problem) => {
                    let reason = failure(problem.reason, &problem.message);
                    self.settle(self.unanswered(&kept, Status::Errored, reason))?;
                    continue;
                }
            };
            let key = fact_key(self.identity, &rubric, &self.questions, &shown);
            let known = met.as_ref().and_then(|met| met.get(&key));
            self.usage.duplicate_units += u64::from(known.is_some());
            let same_as = match known {
                Some(Met::Asked(place)) => {
                    asked[*place].same.push(kept);
                    continue;
                }
                Some(Met::Settled(first)) => Some(first.clone()),
                None => None,
            };
            let stored = store
                .and_then(|store| store.get(&key))
                .filter(|stored| map::check(&self.questions, &shown, &stored.answers).is_ok());
            let Some(stored) = stored else {
                if let Some(met) = &mut met {
                    met.insert(key, Met::Asked(asked.len()));
                }
                asked.push(Asked {
                    unit: kept,
                    key,
                    same: Vec::new(),
                });
                continue;
            };
            self.usage.remembered_units += 1;
            self.usage.tokens_as_if_uncached += stored.cost.prompt_tokens;
            let mut fact = map::derive(self.plan, &self.questions, &unit, &shown, &stored.answers);
            fact.backend = Some(self.identity.name.clone());
            fact.remembered = true;
            match same_as {
                Some(_) => fact.same_as = same_as,
                None => {
                    fact.cost = stored.cost;
                    if let Some(met) = &mut met {
                        met.insert(key, Met::Settled(unit.id));
                    }
                }
            }
            self.settle(fact)?;
        }
        let same = asked.iter().map(|asked| asked.same.len() as u64);
        self.journal.log(Event::MapStarted {
            remembered: self.usage.remembered_units,
            asked: asked.len() as u64,
            duplicates: same.sum(),
        })?;
        Ok(asked)
    }

    /// Asks the backend in one job and settles every unit of it; nothing left asks nothing.
    pub(super) fn ask(
        &mut self,
        asked: Vec<Asked>,
        infer: &mut dyn Infer,
        store: Option<&dyn Store>,
    ) -> Result<Option<InferError>, OperatorError> {
        if asked.is_empty() {
            return Ok(None);
        }
        let mut done = vec![false; asked.len()];
        let places: HashMap<UnitId, usize> = asked
            .iter()
            .enumerate()
            .map(|(place, asked)| (asked.unit.id.clone(), place))
            .collect();
        let (rubric, questions) = (self.plan.rubric(), self.questions.clone());
        let cancel = self.options.cancel;
        let texts = Texts {
            plan: self.plan,
            units: self.units,
            asked: &asked,
        };
        let job = InferJob {
            rubric: &rubric,
            questions: &questions,
            units: &texts,
            cancel,
        };
        let mut spent = Spent::default();
        let mut broken: Option<OperatorError> = None;
        let result = infer.infer(job, &mut |completion| {
            // The seam takes no error back: the first one is kept, and the job is told to stop.
            if broken.is_none() {
                let received =
                    self.receive(completion, &asked, &mut done, &places, store, &mut spent);
                if let Err(error) = received {
                    cancel.cancel();
                    broken = Some(error);
                }
            }
        });
        if let Some(error) = broken {
            return Err(error);
        }
        let failure = match result {
            Ok(usage) => {
                self.usage.job += usage;
                None
            }
            Err(error @ InferError::Failed(_)) => {
                // The job's own count is lost; what its completed units report still stands.
                self.usage.job.prompt_tokens += spent.usage.prompt_tokens;
                self.usage.job.computed_tokens += spent.usage.computed_tokens;
                self.usage.job.cached_tokens += spent.usage.cached_tokens;
                Some(error)
            }
            Err(error) => return Err(error.into()),
        };
        let reason = match (&failure, spent.over, cancel.is_cancelled()) {
            (Some(error), _, _) => causes(error),
            (None, Some(over), _) => over.to_owned(),
            (None, None, true) => String::from("cancelled before it was asked"),
            (None, None, false) => String::from("the backend did not complete it"),
        };
        for (left, _) in asked.iter().zip(done).filter(|(_, done)| !done) {
            for kept in std::iter::once(&left.unit).chain(&left.same) {
                self.settle(self.unanswered(kept, Status::NotRun, reason.clone()))?;
            }
        }
        Ok(failure)
    }

    /// Turns one completion into a fact and remembers its answers.
    fn receive(
        &mut self,
        completion: Completion,
        asked: &[Asked],
        done: &mut [bool],
        places: &HashMap<UnitId, usize>,
        store: Option<&dyn Store>,
        spent: &mut Spent,
    ) -> Result<(), OperatorError> {
        let unit_id = completion.unit_id.to_string();
        let Some(&place) = places.get(&completion.unit_id) else {
            return Err(OperatorError::UnknownCompletion { unit_id });
        };
        if std::mem::replace(&mut done[place], true) {
            return Err(OperatorError::DuplicateCompletion { unit_id });
        }
        let (first, usage) = (&asked[place], completion.usage);
        let read = show(self.plan, self.units, &first.unit);
        let outcome = match (completion.outcome, &read) {
            (UnitOutcome::Answered(_), Err(problem)) => problem.clone().into(),
            (UnitOutcome::Answered(answers), Ok((_, shown))) => {
                match map::check(&self.questions, shown, &answers) {
                    Ok(()) => UnitOutcome::Answered(answers),
                    Err(message) => UnitOutcome::Failed {
                        reason: FailReason::Schema,
                        message,
                    },
                }
            }
            (other, _) => other,
        };
        if let (UnitOutcome::Answered(answers), Some(store)) = (&outcome, store) {
            let answers = answers.clone();
            store.put(
                &first.key,
                &StoredAnswers {
                    answers,
                    cost: usage,
                },
            )?;
        }
        let over = spent.over.unwrap_or("cancelled");
        let mut fact = self.conclude(&first.unit, read, &outcome, over);
        fact.usage = usage;
        fact.cost = usage;
        self.settle(fact)?;
        self.usage.tokens_as_if_uncached += usage.prompt_tokens;
        for kept in &first.same {
            let read = show(self.plan, self.units, kept);
            let mut fact = self.conclude(kept, read, &outcome, over);
            fact.same_as = Some(first.unit.id.clone());
            self.settle(fact)?;
            self.usage.tokens_as_if_uncached += usage.prompt_tokens;
        }
        spent.done += 1;
        spent.usage += usage;
        self.journal.log(Event::Progress {
            done: spent.done,
            asked: asked.len() as u64,
        })?;
        self.check_budget(spent);
        Ok(())
    }

    /// The fact of a unit that was asked, or whose text equals that of one which was.
    fn conclude(
        &self,
        kept: &Kept,
        read: Result<(Unit, UnitText), TextProblem>,
        outcome: &UnitOutcome,
        over: &str,
    ) -> Fact {
        let (status, reason) = match (outcome, &read) {
            (UnitOutcome::Answered(answers), Ok((unit, shown))) => {
                let mut fact = map::derive(self.plan, &self.questions, unit, shown, answers);
                fact.backend = Some(self.identity.name.clone());
                fact.simulated = self.identity.simulated;
                return fact;
            }
            (UnitOutcome::Answered(_), Err(problem)) => {
                (Status::Errored, failure(problem.reason, &problem.message))
            }
            (UnitOutcome::Failed { reason, message }, _) => {
                (Status::Errored, failure(*reason, message))
            }
            (UnitOutcome::Cancelled, _) => (Status::Cancelled, over.to_owned()),
            (UnitOutcome::NotRun, _) => (Status::NotRun, over.to_owned()),
        };
        let mut fact = match &read {
            Ok((unit, _)) => map::unanswered(self.plan, unit, status, map::STAGE, Some(reason)),
            Err(_) => self.unanswered(kept, status, reason),
        };
        fact.clipped_bytes = read.map_or(0, |(_, shown)| shown.clipped_bytes);
        fact.backend = Some(self.identity.name.clone());
        fact.simulated = self.identity.simulated;
        fact
    }

    /// The fact of a unit without an answer; without columns where its record cannot be read again.
    fn unanswered(&self, kept: &Kept, status: Status, reason: String) -> Fact {
        match kept.read(self.units) {
            Ok(unit) => map::unanswered(self.plan, &unit, status, map::STAGE, Some(reason)),
            Err(_) => Fact::bare(
                kept.id.clone(),
                kept.place.ordinal,
                kept.source_hash,
                status,
                map::STAGE,
                Some(reason),
            ),
        }
    }

    /// Stops the job once the plan's budget is spent; what is done stands.
    fn check_budget(&self, spent: &mut Spent) {
        let budget = &self.plan.budget;
        let seconds = self.journal.elapsed_us() / 1_000_000;
        if budget.seconds_max.is_some_and(|most| seconds >= most) {
            spent.over = Some("budget seconds_max");
        } else if budget
            .tokens_max
            .is_some_and(|most| spent.usage.computed_tokens >= most)
        {
            spent.over = Some("budget tokens_max");
        }
        if spent.over.is_some() {
            self.options.cancel.cancel();
        }
    }
}
