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
use crate::infer::{Completion, FailReason, Infer, InferError, InferJob, UnitOutcome, UnitUsage};
use crate::ops::{Unit, map};
use crate::store::{Store, StoredAnswers, fact_key};
use crate::text::{self, UnitText};

/// A unit on its way to the backend.
pub(super) struct Asked<'a> {
    unit: &'a Unit,
    key: FactKey,
    /// Later units whose text is equal: they get its answer.
    same: Vec<(&'a Unit, UnitText)>,
    done: bool,
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
    pub(super) fn recall<'u>(
        &mut self,
        kept: Vec<&'u Unit>,
        store: Option<&dyn Store>,
    ) -> Result<Vec<(Asked<'u>, UnitText)>, OperatorError> {
        let rubric = self.plan.rubric();
        let mut asked: Vec<(Asked<'u>, UnitText)> = Vec::new();
        // A recording answers units, not texts: what it says of equal ones may differ.
        let mut met: Option<HashMap<FactKey, Met>> = (!self.identity.simulated).then(HashMap::new);
        for unit in kept {
            let shown = match text::render(self.plan, unit) {
                Ok(shown) => shown,
                Err(problem) => {
                    let reason = Some(failure(problem.reason, &problem.message));
                    self.settle(map::unanswered(
                        self.plan,
                        unit,
                        Status::Errored,
                        map::STAGE,
                        reason,
                    ))?;
                    continue;
                }
            };
            let key = fact_key(self.identity, &rubric, &self.questions, &shown);
            let known = met.as_ref().and_then(|met| met.get(&key));
            self.usage.duplicate_units += u64::from(known.is_some());
            let same_as = match known {
                Some(Met::Asked(place)) => {
                    asked[*place].0.same.push((unit, shown));
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
                let same = Vec::new();
                let done = false;
                asked.push((
                    Asked {
                        unit,
                        key,
                        same,
                        done,
                    },
                    shown,
                ));
                continue;
            };
            self.usage.remembered_units += 1;
            self.usage.tokens_as_if_uncached += stored.cost.prompt_tokens;
            let mut fact = map::derive(self.plan, &self.questions, unit, &shown, &stored.answers);
            fact.backend = Some(self.identity.name.clone());
            fact.remembered = true;
            match same_as {
                Some(_) => fact.same_as = same_as,
                None => {
                    fact.cost = stored.cost;
                    if let Some(met) = &mut met {
                        met.insert(key, Met::Settled(unit.id.clone()));
                    }
                }
            }
            self.settle(fact)?;
        }
        let same = asked.iter().map(|(asked, _)| asked.same.len() as u64);
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
        asked: Vec<(Asked<'_>, UnitText)>,
        infer: &mut dyn Infer,
        store: Option<&dyn Store>,
    ) -> Result<Option<InferError>, OperatorError> {
        if asked.is_empty() {
            return Ok(None);
        }
        let (mut asked, shown): (Vec<Asked<'_>>, Vec<UnitText>) = asked.into_iter().unzip();
        let places: HashMap<UnitId, usize> = asked
            .iter()
            .enumerate()
            .map(|(place, asked)| (asked.unit.id.clone(), place))
            .collect();
        let (rubric, questions) = (self.plan.rubric(), self.questions.clone());
        let cancel = self.options.cancel;
        let job = InferJob {
            rubric: &rubric,
            questions: &questions,
            units: &shown,
            cancel,
        };
        let mut spent = Spent::default();
        let mut broken: Option<OperatorError> = None;
        let result = infer.infer(job, &mut |completion| {
            // The seam takes no error back: the first one is kept, and the job is told to stop.
            if broken.is_none() {
                let received =
                    self.receive(completion, &mut asked, &shown, &places, store, &mut spent);
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
        for left in asked.iter().filter(|asked| !asked.done) {
            let same = left.same.iter().map(|(unit, _)| *unit);
            for unit in std::iter::once(left.unit).chain(same) {
                let reason = Some(reason.clone());
                self.settle(map::unanswered(
                    self.plan,
                    unit,
                    Status::NotRun,
                    map::STAGE,
                    reason,
                ))?;
            }
        }
        Ok(failure)
    }

    /// Turns one completion into a fact and remembers its answers.
    fn receive(
        &mut self,
        completion: Completion,
        asked: &mut [Asked<'_>],
        shown: &[UnitText],
        places: &HashMap<UnitId, usize>,
        store: Option<&dyn Store>,
        spent: &mut Spent,
    ) -> Result<(), OperatorError> {
        let unit_id = completion.unit_id.to_string();
        let Some(&place) = places.get(&completion.unit_id) else {
            return Err(OperatorError::UnknownCompletion { unit_id });
        };
        if std::mem::replace(&mut asked[place].done, true) {
            return Err(OperatorError::DuplicateCompletion { unit_id });
        }
        let (first, usage) = (&asked[place], completion.usage);
        let outcome = match completion.outcome {
            UnitOutcome::Answered(answers) => {
                match map::check(&self.questions, &shown[place], &answers) {
                    Ok(()) => UnitOutcome::Answered(answers),
                    Err(message) => UnitOutcome::Failed {
                        reason: FailReason::Schema,
                        message,
                    },
                }
            }
            other => other,
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
        let mut fact = self.conclude(first.unit, &shown[place], &outcome, over);
        fact.usage = usage;
        fact.cost = usage;
        self.settle(fact)?;
        self.usage.tokens_as_if_uncached += usage.prompt_tokens;
        for (unit, shown) in &first.same {
            let mut fact = self.conclude(unit, shown, &outcome, over);
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
    fn conclude(&self, unit: &Unit, shown: &UnitText, outcome: &UnitOutcome, over: &str) -> Fact {
        let bare =
            |status, reason| map::unanswered(self.plan, unit, status, map::STAGE, Some(reason));
        let mut fact = match outcome {
            UnitOutcome::Answered(answers) => {
                map::derive(self.plan, &self.questions, unit, shown, answers)
            }
            UnitOutcome::Failed { reason, message } => {
                bare(Status::Errored, failure(*reason, message))
            }
            UnitOutcome::Cancelled => bare(Status::Cancelled, over.to_owned()),
            UnitOutcome::NotRun => bare(Status::NotRun, over.to_owned()),
        };
        fact.clipped_bytes = shown.clipped_bytes;
        fact.backend = Some(self.identity.name.clone());
        fact.simulated = self.identity.simulated;
        fact
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
