//! Long answers of tools, taken apart: each part is a small context of its own under one rubric, and
//! the parts that the model keeps are what later stages read.
//!
//! All parts of all answers go into one job, and are looked up and joined as units are. Depth and
//! fan-out are the stage's; tokens, time and cancellation those of the run. Must not know how a tool
//! is called.

use std::collections::HashMap;
use std::ops::Range;

use super::backends::Backends;
use super::calling::{Calling, Parted, Seen};
use super::flight::Flight;
use super::{Pass, failure};
use crate::error::OperatorError;
use crate::event::Event;
use crate::fact::{FieldValue, Status};
use crate::id::{FactKey, UnitId};
use crate::infer::{Infer, InferError, InferJob, UnitOutcome, UnitUsage};
use crate::ops::map;
use crate::plan::{ClipPolicy, Split, TextField, Turn};
use crate::run_directory::PartRow;
use crate::store::{Store, StoredAnswers, fact_key};
use crate::text::{self, UnitText};
use crate::tool::ToolError;

/// One answer with its parts.
struct Whole {
    seen: Seen,
    parts: Vec<(Range<usize>, FactKey)>,
}

/// What is known of a part.
#[derive(Clone)]
enum Known {
    Answered {
        value: FieldValue,
        remembered: bool,
        cost: UnitUsage,
    },
    /// Why it has no answer.
    Failed(String),
    Stopped(Status),
}

impl Pass<'_, '_> {
    /// Cuts answers into parts, asks about each, and shows what is kept.
    pub(super) fn part(
        &mut self,
        calling: Calling<'_>,
        split: &Split,
        long: Vec<Seen>,
        (backends, store): (&mut Backends<'_>, Option<&dyn Store>),
        onward: &mut Vec<Flight>,
    ) -> Result<Option<InferError>, OperatorError> {
        let turn = self.plan.part_turn(&calling.stage.name, split);
        let identity = backends.main.identity().clone();
        let store = store.filter(|_| !identity.simulated);
        let mut wholes = Vec::new();
        let mut known: HashMap<FactKey, Known> = HashMap::new();
        let mut asked: Vec<UnitText> = Vec::new();
        let mut keys: HashMap<UnitId, FactKey> = HashMap::new();
        for seen in long {
            let parts = match self.cut(calling, split, &seen) {
                Ok(parts) => parts,
                Err(reason) => {
                    let attempts = seen.observation.head.attempts;
                    self.fail(calling, seen.flight, &reason, attempts)?;
                    continue;
                }
            };
            let mut keyed = Vec::with_capacity(parts.len());
            for (range, shown) in parts {
                let key = fact_key(&identity, &turn.rubric, &turn.questions, &shown);
                keyed.push((range, key));
                if known.contains_key(&key) {
                    continue;
                }
                let stored = store.and_then(|store| store.get(&key));
                let stored = stored
                    .filter(|stored| map::check(&turn.questions, &shown, &stored.answers).is_ok());
                let state = match stored {
                    Some(stored) => {
                        self.usage.tokens_as_if_uncached += stored.cost.prompt_tokens;
                        Known::Answered {
                            value: map::value_of(&turn.fields[0], &stored.answers[0]),
                            remembered: true,
                            cost: stored.cost,
                        }
                    }
                    None => {
                        keys.insert(shown.unit_id.clone(), key);
                        asked.push(shown);
                        Known::Stopped(Status::NotRun)
                    }
                };
                known.insert(key, state);
            }
            wholes.push(Whole { seen, parts: keyed });
        }
        let failure = match asked.is_empty() {
            true => None,
            false => {
                self.ask_parts(calling, &turn, &asked, &keys, &mut known, (backends, store))?
            }
        };
        let (answers, mut parts, mut kept) = (wholes.len() as u64, 0, 0);
        for whole in wholes {
            let rows = self.land_parts(calling, whole, &known, &identity.name, onward)?;
            parts += rows.len() as u64;
            kept += rows.iter().filter(|&label| *label == split.keep).count() as u64;
        }
        self.journal.log(Event::PartsDone {
            stage: calling.stage.name.clone(),
            answers,
            parts,
            kept,
        })?;
        Ok(failure)
    }

    /// Cuts one answer and renders its parts, each named after its unit.
    fn cut(
        &self,
        calling: Calling<'_>,
        split: &Split,
        seen: &Seen,
    ) -> Result<Vec<(Range<usize>, UnitText)>, ToolError> {
        let (chars, most) = (split.part_chars as usize, split.parts_max as usize);
        let parts = seen.reading.split(chars, most, split.depth_max)?;
        let name = &calling.stage.name;
        let field = TextField {
            field: name.clone(),
            max_chars: u32::MAX,
            policy: ClipPolicy::Error,
        };
        let render = |(place, range): (usize, Range<usize>)| {
            // A control character keeps it apart from the ids of units.
            let id = UnitId::new(&format!("{}\u{1f}{name}\u{1f}{place}", seen.flight.kept.id));
            let (hash, part) = (
                seen.flight.kept.source_hash,
                &seen.reading.text[range.clone()],
            );
            let shown = text::render_alone(id, hash, part, &field);
            let shown = shown.map_err(|problem| ToolError::Malformed(problem.message))?;
            Ok((range, shown))
        };
        parts.into_iter().enumerate().map(render).collect()
    }

    fn ask_parts(
        &mut self,
        calling: Calling<'_>,
        turn: &Turn,
        asked: &Vec<UnitText>,
        keys: &HashMap<UnitId, FactKey>,
        known: &mut HashMap<FactKey, Known>,
        (backends, store): (&mut Backends<'_>, Option<&dyn Store>),
    ) -> Result<Option<InferError>, OperatorError> {
        let cancel = &self.job_cancel();
        let job = InferJob {
            rubric: &turn.rubric,
            questions: &turn.questions,
            units: asked,
            cancel,
        };
        let texts: HashMap<&UnitId, &UnitText> =
            asked.iter().map(|shown| (&shown.unit_id, shown)).collect();
        let total = asked.len() as u64;
        let (mut done, mut broken) = (0, None);
        let mut infer = backends.watch_parts();
        let result = infer.infer(job, &mut |completion| {
            if broken.is_some() {
                return;
            }
            let (id, cost) = (&completion.unit_id, completion.usage);
            let (Some(key), Some(shown)) = (keys.get(id), texts.get(id)) else {
                broken = Some(OperatorError::UnknownCompletion {
                    unit_id: id.to_string(),
                });
                cancel.cancel();
                return;
            };
            let state = match completion.outcome {
                UnitOutcome::Answered(answers) => {
                    match map::check(&turn.questions, shown, &answers) {
                        Err(message) => Known::Failed(message),
                        Ok(()) => {
                            let value = map::value_of(&turn.fields[0], &answers[0]);
                            let stored = StoredAnswers { answers, cost };
                            match store.map_or(Ok(()), |store| store.put(key, &stored)) {
                                Ok(()) => Known::Answered {
                                    value,
                                    remembered: false,
                                    cost,
                                },
                                Err(error) => {
                                    broken = Some(error);
                                    cancel.cancel();
                                    return;
                                }
                            }
                        }
                    }
                }
                UnitOutcome::Failed { reason, message } => Known::Failed(failure(reason, &message)),
                UnitOutcome::Cancelled => Known::Stopped(Status::Cancelled),
                UnitOutcome::NotRun => Known::Stopped(Status::NotRun),
            };
            known.insert(*key, state);
            done += 1;
            self.spend(cost);
            let logged = self.journal.log(Event::Progress { done, asked: total });
            self.check_budget(calling.stage.pass);
            if let Err(error) = logged {
                broken = Some(error);
                cancel.cancel();
            }
        });
        if let Some(error) = broken {
            return Err(error);
        }
        self.heed(&mut infer)?;
        match result {
            Ok(usage) => {
                self.usage.job += usage;
                Ok(None)
            }
            Err(error @ InferError::Failed(_)) => Ok(Some(error)),
            Err(error) => Err(error.into()),
        }
    }

    /// Shows what was kept of one answer, or settles its unit; returns the labels of its parts.
    fn land_parts(
        &mut self,
        calling: Calling<'_>,
        whole: Whole,
        known: &HashMap<FactKey, Known>,
        backend: &str,
        onward: &mut Vec<Flight>,
    ) -> Result<Vec<String>, OperatorError> {
        let Whole { seen, parts } = whole;
        let mut parted = Parted {
            backend: Some(backend.to_owned()),
            remembered: true,
            ..Parted::default()
        };
        for (place, (range, key)) in parts.into_iter().enumerate() {
            match known.get(&key) {
                Some(Known::Answered {
                    value,
                    remembered,
                    cost,
                }) => {
                    parted.remembered &= remembered;
                    parted.cost += *cost;
                    parted.rows.push(PartRow {
                        start: range.start as u64,
                        end: range.end as u64,
                        value: value.clone(),
                    });
                }
                Some(Known::Failed(reason)) => {
                    let error = ToolError::Malformed(format!("part {place}: {reason}"));
                    self.fail(calling, seen.flight, &error, seen.observation.head.attempts)?;
                    return Ok(Vec::new());
                }
                Some(Known::Stopped(_)) | None => {
                    let status = match known.get(&key) {
                        Some(Known::Stopped(status)) => *status,
                        _ => Status::NotRun,
                    };
                    let reason = String::from("stopped before all parts were read");
                    self.give_up(calling, seen.flight, status, reason)?;
                    return Ok(Vec::new());
                }
            }
        }
        let labels = parted
            .rows
            .iter()
            .map(|row| row.value.label.clone())
            .collect();
        onward.extend(self.observe(calling, seen, Some(parted))?);
        Ok(labels)
    }
}
