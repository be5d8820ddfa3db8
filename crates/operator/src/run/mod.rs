//! One pass over a plan: partition in, predicates, memory, one job for the rest, fold, summaries,
//! answer.
//!
//! The only file that knows the order of the operators. It reads no clock (one is handed in), no
//! environment and no randomness, and must not know who answers. A unit that cannot be read or
//! answered is a status in the answer; only a broken contract or a broken disk stops the run.

mod asking;
mod auditing;
mod backends;
mod calling;
mod control;
mod flight;
mod folding;
mod journal;
mod ladder;
mod parting;
mod stages;
mod summaries;
mod widening;

use serde::{Deserialize, Serialize};

use crate::answer::{
    ANSWER_VERSION, AnswerBackend, AnswerSource, CitedAnswer, Claim, Quarantine, count_reasons,
    selections,
};
use crate::audit::AuditReport;
use crate::breaker::{Guard, Trip};
use crate::compose::ComposeUsage;
use crate::coverage::Counts;
use crate::error::OperatorError;
use crate::event::{Event, EventSink};
use crate::fact::{Fact, Facts, FieldValue, Status};
use crate::group;
use crate::id::{ContentHash, UnitId};
use crate::index::{Indexes, UnitRows};
use crate::infer::{BackendIdentity, CancelFlag, FailReason, Infer, InferError, JobUsage};
use crate::ops::{BadUnit, Kept, Partition, Placed, Route, Unit, Units, map};
use crate::plan::{EvidenceMode, Plan};
use crate::run_directory::RunDirectory;
use crate::store::{Store, Withheld};
use crate::text;
use crate::tool::{self, ToolUsage, Toolbox};

pub use ladder::{Ladder, Rung, RungKind};

use asking::Spent;
use auditing::KnownLabels;
use backends::Backends;
use control::Control;
use flight::Flight;
use journal::Journal;

/// How a run is bounded and watched; nothing here changes what an answer says about a unit.
pub struct RunOptions<'a> {
    /// Most units that go past the predicates, in source order; the rest is not run.
    pub limit: Option<u32>,
    /// The caller's clock in microseconds; only differences matter.
    pub clock: &'a dyn Fn() -> u64,
    /// Whether quotes are left out of everything that the run writes; their hashes stay.
    pub redact: bool,
    /// Set by the caller to stop; the run sets it too when the plan's budget is spent.
    pub cancel: &'a CancelFlag,
    /// The model that stages with `model = "larger"` ask.
    pub larger: Option<&'a mut dyn Infer>,
    /// The tools that the command line allows.
    pub tools: Option<Toolbox<'a>>,
}

/// What a run cost.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunUsage {
    /// What the backend counted for the run's job; all zero when nothing was asked.
    #[serde(flatten)]
    pub job: JobUsage,
    /// Milliseconds of the caller's clock from start to fold.
    pub wall_ms: u64,
    /// Units whose answers were looked up.
    pub remembered_units: u64,
    /// Units that got the answer of a unit with equal text; among them remembered ones.
    pub duplicate_units: u64,
    /// Prompt tokens of all answered units, as if neither prefix nor answers had been kept.
    pub tokens_as_if_uncached: u64,
    /// Prompt tokens of canaries; part of `job`, and of no fact.
    #[serde(default)]
    pub canary_tokens: u64,
    /// What calls of tools came to.
    #[serde(default)]
    pub tools: ToolUsage,
    /// What the plan's summaries cost; no part of `job`.
    #[serde(default)]
    pub composed: ComposeUsage,
    /// What the tokens cost by the plan's price, in millionths; absent where it names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub money_micros: Option<u64>,
    /// What each index, predicate and stage decided and cost, in order.
    #[serde(default)]
    pub ladder: Vec<Rung>,
}

impl RunUsage {
    /// What all tokens cost by the plan's price; none where it names none.
    fn money(&self, plan: &Plan) -> Option<u64> {
        let (job, composed) = (&self.job, &self.composed);
        plan.budget.price.map(|price| {
            price.of(
                job.computed_tokens + composed.computed_tokens,
                job.cached_tokens + composed.cached_tokens,
                job.generated_tokens + composed.generated_tokens,
            )
        })
    }
}

/// What a run yields; with all its facts, or with [`Facts`] that are read one at a time.
#[derive(Debug)]
pub struct RunOutcome<F = Vec<Fact>> {
    /// One fact per unit, in source order.
    pub facts: F,
    /// The folded, cited answer.
    pub answer: CitedAnswer,
    /// What it cost.
    pub usage: RunUsage,
    /// Why the backend stopped before the end, when it did; the units left are not run.
    pub backend_failure: Option<InferError>,
    /// Why a breaker opened, if one did: the answer then states nothing.
    pub trip: Option<Trip>,
}

/// Reads the files that a plan names beside its input, canaries and an auditor's labels, as a run does
/// before it asks anything.
///
/// # Errors
/// What is wrong with one of them.
pub fn check_files(plan: &Plan) -> Result<(), OperatorError> {
    crate::canary::load(plan)?;
    auditing::known_labels(plan)?;
    Ok(())
}

/// Runs a plan over a partition and hands all facts out.
///
/// # Errors
/// As [`run_over`].
pub fn run(
    plan: &Plan,
    partition: Partition,
    infer: &mut dyn Infer,
    store: Option<&dyn Store>,
    options: RunOptions<'_>,
    events: &mut dyn EventSink,
    directory: Option<&mut RunDirectory>,
) -> Result<RunOutcome, OperatorError> {
    let outcome = run_over(plan, &partition, infer, store, options, events, directory)?;
    Ok(RunOutcome {
        facts: outcome.facts.iter().collect(),
        answer: outcome.answer,
        usage: outcome.usage,
        backend_failure: outcome.backend_failure,
        trip: outcome.trip,
    })
}

/// Runs a plan over units, of which it holds no record longer than it needs it.
///
/// The units are the records, or what the plan makes of them.
///
/// Memory: about 110 bytes per unit, 130 more for each that goes past the predicates, what its values
/// and columns take, its indexes ([`Indexes::compute`]), and a few records. The store is neither read nor written for a simulated backend. Summaries are written
/// by the same backend after the fold; one that cannot be written or does not pass is a refused claim.
///
/// # Errors
/// `ToolNotAllowed` and `NoLargerModel` when the plan needs what was not given; `Infer` when the backend
/// refuses the job as a whole; `UnknownCompletion` and
/// `DuplicateCompletion` when it breaks its contract; `CoverageMismatch` and `CoverageOverlap` when
/// facts and units differ; `Io` and `Store` when something cannot be written; `SourceChanged` when
/// the input does not hold still; `Plan`, `Io` and `FileInvalid` when an index cannot be computed.
pub fn run_over(
    plan: &Plan,
    units: &dyn Units,
    infer: &mut dyn Infer,
    store: Option<&dyn Store>,
    options: RunOptions<'_>,
    events: &mut dyn EventSink,
    directory: Option<&mut RunDirectory>,
) -> Result<RunOutcome<Facts>, OperatorError> {
    tool::suffice(plan, options.tools.as_ref())?;
    let trusted = store.filter(|_| !infer.identity().simulated);
    let withheld = trusted.filter(|_| plan.canary.is_some()).map(Withheld::new);
    let store = match &withheld {
        Some(withheld) => Some(withheld as &dyn Store),
        None => trusted,
    };
    let mut backends = Backends {
        main: infer,
        larger: match options.larger {
            Some(larger) => Some(larger),
            None => None,
        },
        guard: Guard::new(plan, units.source().hash)?,
        withheld: withheld.as_ref(),
        kernel: options
            .tools
            .map(|toolbox| toolbox.kernel(plan, units.source().hash)),
    };
    backends.suffice(plan)?;
    let arranged = group::arrange(plan, units)?;
    let units = arranged.as_deref().unwrap_or(units);
    let identity = backends.main.identity().clone();
    let simulated = backends.simulated();
    let records = u64::from(units.len());
    let started_us = (options.clock)();
    // What can be refused is refused before anything is written.
    let indexes = Indexes::compute(plan, &UnitRows(units), options.clock)?;
    let mut pass = Pass {
        plan,
        units,
        identity: &identity,
        simulated,
        spent: Spent::default(),
        options: Bounds {
            limit: options.limit,
            redact: options.redact,
            cancel: options.cancel,
        },
        journal: Journal {
            events,
            directory,
            clock: options.clock,
            started_us,
            lines: 0,
        },
        facts: Facts::with_units(units.len()),
        usage: RunUsage::default(),
        labels: auditing::known_labels(plan)?,
        ladder: Ladder::new(plan, &indexes),
        settled: Counts::default(),
        control: Control::of(plan),
    };
    if let Some(directory) = &mut pass.journal.directory {
        directory.begin(plan, units.source(), records, &identity)?;
    }
    pass.journal.log(Event::RunStarted {
        plan_hash: plan.hash(),
        source_hash: units.source().hash,
        backend: identity.name.clone(),
        simulated,
        units: records,
    })?;
    for report in indexes.reports() {
        let report = report.clone();
        pass.journal.log(Event::IndexDone { report })?;
    }
    let kept = pass.filter(&indexes)?;
    let flights = kept.into_iter().map(Flight::new).collect();
    let backend_failure = pass.ask_all(flights, &mut backends, store)?;
    let trip = backends.guard.trip().cloned();
    let stopped = backend_failure.is_some() || options.cancel.is_cancelled();
    if let Some(withheld) = &withheld {
        match &trip {
            Some(trip) if trip.taints() => withheld.discard()?,
            None if !stopped && backends.guard.vouches() => withheld.release()?,
            // Nothing speaks against the answers, and not all for them: the next run decides.
            _ => {}
        }
    }
    let broken = backend_failure.is_some();
    pass.usage.canary_tokens = backends.guard.usage().prompt_tokens;
    let audit = match &trip {
        Some(_) => None,
        None => pass.audit(&mut backends, trusted, &indexes)?,
    };
    // The auditor may have found the backend gone; what was decided before that stands.
    let answer = pass.answer(backends.main, broken, trip.as_ref(), audit, trusted)?;
    pass.usage.money_micros = pass.usage.money(plan);
    pass.usage.ladder = std::mem::take(&mut pass.ladder).into_rungs();
    pass.usage.wall_ms = (options.clock)().saturating_sub(started_us) / 1_000;
    pass.journal.log(Event::RunFinished {
        coverage: answer.coverage,
        complete: answer.complete,
        result_hash: answer.result_hash,
    })?;
    let Pass {
        facts,
        usage,
        mut journal,
        ..
    } = pass;
    if let Some(directory) = &mut journal.directory {
        directory.finish(&facts, &answer, &usage)?;
    }
    Ok(RunOutcome {
        facts,
        answer,
        usage,
        backend_failure,
        trip,
    })
}

/// What bounds a run.
#[derive(Clone, Copy)]
struct Bounds<'o> {
    limit: Option<u32>,
    redact: bool,
    cancel: &'o CancelFlag,
}

/// The state of one run.
struct Pass<'a, 'o> {
    plan: &'a Plan,
    units: &'a dyn Units,
    identity: &'a BackendIdentity,
    /// Whether any backend is simulated.
    simulated: bool,
    spent: Spent,
    options: Bounds<'o>,
    journal: Journal<'o>,
    facts: Facts,
    usage: RunUsage,
    /// What the auditor knows already.
    labels: Option<KnownLabels>,
    ladder: Ladder,
    /// Units that have their fact.
    settled: Counts,
    /// What may stop the run early; none where the plan asks every unit.
    control: Option<Control<'a>>,
}

impl<'a> Pass<'a, '_> {
    /// Accounts for unreadable records and applies the predicates; returns what needs an answer.
    fn filter(&mut self, indexes: &Indexes) -> Result<Vec<Kept>, OperatorError> {
        // Cut before the memory is read, so that a warm run covers the same units as a cold one.
        let (most, over) = self.units_most();
        let mut kept = Vec::new();
        let (mut past, mut excluded, mut decided) = (0, 0, 0);
        let clock = self.journal.clock;
        let first_stage = self
            .plan
            .stages
            .first()
            .map_or(map::STAGE, |stage| &stage.name);
        let units = self.units;
        units.visit(&mut |placed| {
            let (unit, place) = match placed {
                Placed::Unit(unit, place) => (unit, place),
                Placed::Bad(bad) => return self.settle(unreadable(&bad)),
            };
            let plan = self.plan;
            let bare = |status, stage: &str, reason| {
                map::unanswered(plan, &unit, status, stage, Some(reason))
            };
            if let Some(reason) = &unit.skip {
                excluded += 1;
                return self.settle(bare(Status::Excluded, group::STAGE, reason.clone()));
            }
            match self.ladder.route(plan, &unit, indexes, clock) {
                Route::Model { .. } => {
                    past += 1;
                    // Units that are asked in another order are cut in that order.
                    if self.take_turn(&unit) || past <= most {
                        kept.push(Kept::of(&unit, place));
                        return Ok(());
                    }
                    self.settle(bare(Status::NotRun, first_stage, over.to_owned()))
                }
                Route::Exclude { prefilter, reason } => {
                    excluded += 1;
                    let stage = filter_stage(prefilter);
                    self.settle(bare(Status::Excluded, &stage, reason.into_owned()))
                }
                Route::Decide {
                    prefilter,
                    reason,
                    set,
                } => {
                    decided += 1;
                    let stage = filter_stage(prefilter);
                    let mut fact = bare(Status::Decided, &stage, reason.into_owned());
                    fact.values = set
                        .iter()
                        .map(|(field, label)| (field.clone(), FieldValue::set(label.clone())))
                        .collect();
                    fact.evidence = self.first_line(&unit);
                    self.settle(fact)
                }
                Route::Malformed { prefilter, message } => {
                    let reason = failure(FailReason::Malformed, &message);
                    self.settle(bare(Status::Errored, &filter_stage(prefilter), reason))
                }
            }
        })?;
        self.journal.log(Event::PrefilterDone {
            excluded,
            decided,
            kept: past,
        })?;
        Ok(kept)
    }

    /// Takes a unit's only fact.
    fn settle(&mut self, fact: Fact) -> Result<(), OperatorError> {
        self.settled.add(fact.status);
        match self.hold(fact) {
            Some(fact) => self.record(fact),
            None => Ok(()),
        }
    }

    /// Records a unit's only fact.
    fn record(&mut self, mut fact: Fact) -> Result<(), OperatorError> {
        fact.simulated = self.simulated && fact.backend.is_some();
        if self.options.redact {
            for evidence in &mut fact.evidence {
                evidence.quote = None;
            }
        }
        if let Some(directory) = &mut self.journal.directory {
            directory.append_fact(&fact)?;
        }
        if !self.facts.put(&fact) {
            return Err(OperatorError::CoverageOverlap {
                unit_id: fact.unit_id.to_string(),
            });
        }
        self.journal.log(Event::Unit {
            id: fact.unit_id,
            place: fact.ordinal,
            status: fact.status,
            stage: fact.stage,
            remembered: fact.remembered,
        })
    }

    /// Replaces a unit's fact by what the audit found.
    fn amend(&mut self, mut fact: Fact) {
        if self.options.redact {
            for evidence in &mut fact.evidence {
                evidence.quote = None;
            }
        }
        self.facts.replace(&fact);
    }

    /// Checks that every unit has its fact, and folds them.
    fn answer(
        &mut self,
        infer: &mut dyn Infer,
        broken: bool,
        trip: Option<&Trip>,
        audit: Option<AuditReport>,
        store: Option<&dyn Store>,
    ) -> Result<CitedAnswer, OperatorError> {
        // What an open breaker leaves is not remembered.
        let store = store.filter(|_| trip.is_none());
        let (source, records) = (self.units.source(), u64::from(self.units.len()));
        if let Some(ordinal) = self.facts.missing() {
            return Err(OperatorError::CoverageMismatch {
                expected: records,
                found: self.facts.len() as u64,
                unit_id: UnitId::synthesised(ordinal).to_string(),
            });
        }
        let directory = self.journal.directory.as_deref_mut();
        let folded = folding::fold(self.plan, &self.facts, store, directory)?;
        self.journal.log(Event::Folded {
            work: folded.reduction.work,
            root: folded.reduction.root.as_ref().map(|root| root.hashes),
        })?;
        let claims = match trip {
            Some(trip) => quarantine(self.plan, trip),
            None => self.summarise(&folded.reduction, infer, broken, store)?,
        };
        let counts = folded.reduction.counts;
        let stop = folded.reduction.stop.filter(|_| trip.is_none());
        let mut answer = CitedAnswer {
            version: ANSWER_VERSION,
            question: self.plan.question.clone(),
            plan_hash: self.plan.hash(),
            source: AnswerSource {
                path: source.path.clone(),
                hash: source.hash,
                records,
            },
            backend: AnswerBackend {
                name: self.identity.name.clone(),
                digest: ContentHash::from_bytes(self.identity.digest),
                simulated: self.simulated,
            },
            simulated: self.simulated,
            complete: stop
                .as_ref()
                .map_or_else(|| counts.complete(), |stop| stop.complete),
            result_hash: ContentHash::from_bytes([0; 32]),
            tree: folded.tree,
            coverage: counts,
            coverage_by_reason: count_reasons(self.facts.iter()),
            claims,
            selections: match trip {
                Some(_) => Vec::new(),
                None => selections(self.plan, self.facts.iter()),
            },
            stop,
            audit,
            quarantine: trip.map(Quarantine::of),
        };
        answer.result_hash = answer.hash_result();
        Ok(answer)
    }

    /// Cites a unit that no model read by the first lines that one would have read.
    fn first_line(&self, unit: &Unit) -> Vec<crate::fact::Evidence> {
        if self.plan.input.evidence == EvidenceMode::None {
            return Vec::new();
        }
        match text::render(self.plan, unit) {
            Ok(shown) => map::first_lines(self.plan, unit, &shown, None),
            Err(_) => Vec::new(),
        }
    }
}

/// One refused claim per reduction: nothing that an open breaker left is stated as a fact.
fn quarantine(plan: &Plan, trip: &Trip) -> Vec<Claim> {
    let refused = trip.to_string();
    let claim = |reduce: &crate::plan::Reduce| Claim {
        name: reduce.name.clone(),
        text: format!("{} is not answered: {refused}", reduce.name),
        value: serde_json::Value::Null,
        refused: Some(refused.clone()),
        cites: Vec::new(),
        cites_total: 0,
    };
    plan.reduces.iter().map(claim).collect()
}

fn unreadable(bad: &BadUnit) -> Fact {
    let reason = failure(
        FailReason::Malformed,
        &format!("{}: {}", bad.place, bad.reason),
    );
    Fact::bare(
        bad.id.clone(),
        bad.ordinal,
        bad.source_hash,
        Status::Errored,
        "partition",
        Some(reason),
    )
}

fn filter_stage(name: &str) -> String {
    format!("prefilter:{name}")
}

fn failure(reason: FailReason, message: &str) -> String {
    format!("{}: {message}", reason.as_str())
}

/// Writes an error with its causes on one line.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}
