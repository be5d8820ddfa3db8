//! Tool stages: arguments are read from each record, the kernel calls, and what was read is shown to
//! later stages.
//!
//! Every unit that comes in is settled here or goes on, exactly once, whatever the tool does. What a
//! tool answered is never an argument of another. Must not know how quotas are kept or a tool is
//! carried out.

use std::collections::HashMap;
use std::sync::Arc;

use super::Pass;
use super::asking::StageOutcome;
use super::backends::Backends;
use super::flight::{Flight, Shown};
use crate::error::OperatorError;
use crate::event::Event;
use crate::fact::{Status, Step};
use crate::id::ContentHash;
use crate::infer::UnitUsage;
use crate::plan::{Stage, TextField, ToolStage};
use crate::run_directory::{ObservationRow, PartRow};
use crate::store::Store;
use crate::tool::{
    Arguments, Observation, Reading, StoredObservations, ToolError, ToolOutcome, ToolRequest,
};

/// An answer with the unit that it belongs to.
pub(super) struct Seen {
    pub(super) flight: Flight,
    pub(super) observation: Arc<Observation>,
    pub(super) reading: Arc<Reading>,
    /// Whether no call was made for it.
    pub(super) shared: bool,
}

/// What parts of an answer came to.
#[derive(Default)]
pub(super) struct Parted {
    pub(super) rows: Vec<PartRow>,
    pub(super) backend: Option<String>,
    /// Whether every answer was looked up.
    pub(super) remembered: bool,
    pub(super) cost: UnitUsage,
}

/// One tool stage while it runs.
#[derive(Clone, Copy)]
pub(super) struct Calling<'c> {
    pub(super) place: usize,
    pub(super) stage: &'c Stage,
    pub(super) tool: &'c ToolStage,
}

impl<'a> Pass<'a, '_> {
    /// Takes units through a stage that calls a tool.
    pub(super) fn call_stage(
        &mut self,
        (place, tool): (usize, &'a ToolStage),
        flights: Vec<Flight>,
        backends: &mut Backends<'_>,
        store: Option<&dyn Store>,
    ) -> Result<StageOutcome, OperatorError> {
        let stage = &self.plan.stages[place];
        let calling = Calling { place, stage, tool };
        let mut outcome = StageOutcome::default();
        let seen = self.call(calling, flights, backends, store)?;
        let (long, short): (Vec<Seen>, Vec<Seen>) = seen.into_iter().partition(|seen| {
            let chars = || seen.reading.text.chars().count();
            tool.split
                .as_ref()
                .is_some_and(|split| chars() > split.over_chars as usize)
        });
        for seen in short {
            let onward = self.observe(calling, seen, None)?;
            outcome.onward.extend(onward);
        }
        if let Some(split) = &tool.split
            && !long.is_empty()
        {
            outcome.failure =
                self.part(calling, split, long, (backends, store), &mut outcome.onward)?;
        }
        Ok(outcome)
    }

    /// Makes all calls; settles the units whose call ended without an answer.
    fn call(
        &mut self,
        calling: Calling<'_>,
        flights: Vec<Flight>,
        backends: &mut Backends<'_>,
        store: Option<&dyn Store>,
    ) -> Result<Vec<Seen>, OperatorError> {
        let (stage, tool) = (calling.stage, calling.tool);
        let mut requests = Vec::new();
        let mut waiting: Vec<Option<Flight>> = Vec::new();
        for flight in flights {
            if !flight.is_in_time(self.plan) {
                self.expire(flight, stage)?;
                continue;
            }
            match self.request(tool, &flight) {
                Ok(request) => {
                    requests.push(request);
                    waiting.push(Some(flight));
                }
                Err(error) => self.fail(calling, flight, &error, 0)?,
            }
        }
        let Some(kernel) = backends.kernel.as_mut().filter(|_| !requests.is_empty()) else {
            return Ok(Vec::new());
        };
        self.journal.log(Event::ToolStarted {
            stage: stage.name.clone(),
            tool: tool.tool.clone(),
            requests: requests.len() as u64,
        })?;
        let asked = requests.len() as u64;
        let cache = store.map(StoredObservations);
        let cache = cache.as_ref().map(|cache| cache as _);
        let cancel = &self.job_cancel();
        let mut readings: HashMap<ContentHash, Result<Arc<Reading>, ToolError>> = HashMap::new();
        let (mut seen, mut done) = (Vec::new(), 0);
        let usage = kernel.run(requests, cache, cancel, &mut |index, outcome| {
            let Some(flight) = waiting[index].take() else {
                unreachable!("the kernel ends each request once");
            };
            match outcome {
                ToolOutcome::Observed {
                    observation,
                    shared,
                } => {
                    let read = || Reading::of(&observation.body, &tool.fields).map(Arc::new);
                    let reading = readings.entry(observation.head.hash).or_insert_with(read);
                    match reading.clone() {
                        Ok(reading) => seen.push(Seen {
                            flight,
                            observation,
                            reading,
                            shared,
                        }),
                        Err(error) => {
                            let attempts = observation.head.attempts;
                            self.fail(calling, flight, &error, attempts)?;
                        }
                    }
                }
                ToolOutcome::Failed { error, attempts } => {
                    self.fail(calling, flight, &error, attempts)?;
                }
                ToolOutcome::Cancelled => {
                    let reason = String::from("cancelled while its tool was called");
                    self.give_up(calling, flight, Status::Cancelled, reason)?;
                }
                ToolOutcome::NotRun(reason) => {
                    self.give_up(calling, flight, Status::NotRun, reason)?;
                }
            }
            done += 1;
            self.journal.log(Event::Progress { done, asked })?;
            self.check_budget(stage.pass);
            Ok(())
        })?;
        self.usage.tools += usage;
        self.journal.log(Event::ToolDone {
            stage: stage.name.clone(),
            usage,
        })?;
        // Answers come in any order; what follows goes by that of the source.
        seen.sort_by_key(|seen| seen.flight.ordinal());
        Ok(seen)
    }

    /// Reads a tool's arguments from the record as it is in the source.
    fn request(&self, tool: &ToolStage, flight: &Flight) -> Result<ToolRequest, ToolError> {
        let malformed = |problem: String| ToolError::Malformed(problem);
        let unit = flight
            .kept
            .read(self.units)
            .map_err(|error| malformed(super::causes(&error)))?;
        let spec = self.plan.tool(&tool.tool);
        let declared = spec.map_or(&[][..], |spec| &spec.arguments);
        let arguments = Arguments::read(declared, &unit.record).map_err(malformed)?;
        Ok(ToolRequest {
            tool: tool.tool.clone(),
            arguments,
        })
    }

    /// Shows what was read to later stages; the unit goes on, or is settled where none takes it.
    pub(super) fn observe(
        &mut self,
        calling: Calling<'_>,
        seen: Seen,
        parted: Option<Parted>,
    ) -> Result<Option<Flight>, OperatorError> {
        let (stage, tool) = (calling.stage, calling.tool);
        let mut flight = seen.flight;
        let text: Arc<str> = match &parted {
            None => seen.reading.text.as_str().into(),
            Some(parted) => kept_text(&seen.reading.text, &parted.rows, tool).into(),
        };
        let parted = parted.unwrap_or_else(|| Parted {
            remembered: true,
            ..Parted::default()
        });
        let shown = Shown {
            field: TextField {
                field: stage.name.clone(),
                max_chars: tool.max_chars,
                policy: tool.policy,
            },
            text,
        };
        let hash = shown.hash();
        if self.journal.directory.is_some() {
            let redact = self.options.redact;
            let row = ObservationRow {
                unit_id: flight.kept.id.clone(),
                stage: stage.name.clone(),
                shown_hash: hash,
                text_hash: ContentHash::of_bytes(seen.reading.text.as_bytes()),
                text: (!redact).then(|| seen.reading.text.clone()),
                parts: parted.rows,
                tool: tool.tool.clone(),
                head: seen.observation.head.clone(),
            };
            self.keep_observation(flight.ordinal(), row)?;
        }
        flight.step(Step {
            observed: Some(hash),
            backend: parted.backend,
            remembered: seen.shared && parted.remembered,
            cost: parted.cost,
            ..Step::bare(&stage.name, "observed")
        });
        flight.show(shown);
        if flight.goes_on(self.plan, calling.place + 1) {
            return Ok(Some(flight));
        }
        self.settle(flight.finish(self.plan, self.units))?;
        Ok(None)
    }

    /// Settles a unit whose call failed: it is errored, never taken for one without an answer.
    pub(super) fn fail(
        &mut self,
        calling: Calling<'_>,
        mut flight: Flight,
        error: &ToolError,
        attempts: u32,
    ) -> Result<(), OperatorError> {
        let (stage, tool) = (calling.stage, &calling.tool.tool);
        let calls = match attempts {
            0 | 1 => String::new(),
            calls => format!(", after {calls} calls"),
        };
        let reason = format!("{error} (tool {tool}{calls})");
        flight.step(Step::bare(&stage.name, error.as_str()));
        let status = Status::Errored;
        let fact = flight.end(self.plan, self.units, status, &stage.name, reason);
        self.settle(fact)
    }

    /// Settles a unit whose call the run stopped. In a further pass what an earlier one found stands.
    pub(super) fn give_up(
        &mut self,
        calling: Calling<'_>,
        mut flight: Flight,
        status: Status,
        reason: String,
    ) -> Result<(), OperatorError> {
        let stage = calling.stage;
        if stage.pass > 0 {
            return self.leave(flight, stage, status, reason);
        }
        if status == Status::Cancelled {
            flight.step(Step::bare(&stage.name, status.name()));
        }
        let reason = self.spent.over.clone().unwrap_or(reason);
        let fact = flight.end(self.plan, self.units, status, &stage.name, reason);
        self.settle(fact)
    }
}

/// The parts that a model kept, in order.
fn kept_text(text: &str, parts: &[PartRow], tool: &ToolStage) -> String {
    let keep = tool.split.as_ref().map_or("", |split| &split.keep);
    let kept: Vec<&str> = parts
        .iter()
        .filter(|part| part.value.label == keep)
        .map(|part| &text[part.start as usize..part.end as usize])
        .collect();
    kept.join("\n")
}
