//! The guard between a run and its backend.
//!
//! It plants canaries into every job, takes their completions out again, and shows every completion
//! to the breakers before the run makes a record of it. An open breaker sets the job's cancel flag and
//! lets nothing more be asked. The run sees neither canaries nor the units that were called off: those
//! are simply not completed. Must not know facts, stores or files.

use std::collections::BTreeMap;

use super::{EProcess, TransportBreaker, Trip};
use crate::canary::{self, Canaries, Draw, Planted, Verdict};
use crate::compose::Compose;
use crate::error::OperatorError;
use crate::event::Event;
use crate::id::ContentHash;
use crate::infer::{
    BackendIdentity, Completion, Infer, InferError, InferJob, JobUsage, Labels, UnitOutcome,
    UnitTexts, UnitUsage,
};
use crate::plan::{EvidenceMode, Plan};

/// What became of one canary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CanaryResult {
    /// Where the plan or its file has it.
    pub place: String,
    /// Hash of the rubric under which it was asked.
    pub rubric: ContentHash,
    /// What its answer counts as.
    pub verdict: Verdict,
    /// The labels that it got, by field.
    pub got: BTreeMap<String, String>,
    /// The labels that are right.
    pub expected: BTreeMap<String, String>,
    /// Canaries judged under the rubric so far.
    pub judged: u64,
    /// Of these, missed.
    pub misses: u64,
    /// Evidence against the rubric so far, in nano-nats.
    pub evidence_nano: i64,
}

impl From<CanaryResult> for Event {
    fn from(result: CanaryResult) -> Self {
        Self::Canary {
            place: result.place,
            rubric: result.rubric,
            verdict: result.verdict,
            got: result.got,
            expected: result.expected,
            judged: result.judged,
            misses: result.misses,
            evidence_nano: result.evidence_nano,
        }
    }
}

/// What is known under one rubric.
struct Watch {
    process: EProcess,
    /// Canaries not yet planted, the next one last.
    left: Vec<usize>,
    planted: usize,
}

/// Both breakers of a run.
pub struct Guard<'p> {
    plan: &'p Plan,
    source: ContentHash,
    canaries: Option<Canaries>,
    /// Rubrics that share the probability of a false alarm.
    shares: u32,
    watches: BTreeMap<ContentHash, Watch>,
    transport: TransportBreaker,
    trip: Option<Trip>,
    results: Vec<CanaryResult>,
    usage: UnitUsage,
}

impl<'p> Guard<'p> {
    /// A guard for a run of the plan over an input of that hash.
    ///
    /// # Errors
    /// What reading the plan's canaries may cause.
    pub fn new(plan: &'p Plan, source: ContentHash) -> Result<Self, OperatorError> {
        let canaries = canary::load(plan)?;
        let shares = canaries
            .as_ref()
            .map_or(0, |canaries| canary::watched(plan, &canaries.list).len());
        Ok(Self {
            plan,
            source,
            canaries,
            shares: u32::try_from(shares).unwrap_or(u32::MAX).max(1),
            watches: BTreeMap::new(),
            transport: TransportBreaker::new(),
            trip: None,
            results: Vec::new(),
            usage: UnitUsage::default(),
        })
    }

    /// The backend behind the guard.
    pub fn watch<'g>(&'g mut self, infer: &'g mut dyn Infer) -> Guarded<'g, 'p> {
        let plants = true;
        Guarded {
            guard: self,
            infer,
            plants,
        }
    }

    /// The backend behind the guard, without canaries.
    pub fn watch_plainly<'g>(&'g mut self, infer: &'g mut dyn Infer) -> Guarded<'g, 'p> {
        let plants = false;
        Guarded {
            guard: self,
            infer,
            plants,
        }
    }

    /// Why a breaker is open; none while both are closed.
    pub const fn trip(&self) -> Option<&Trip> {
        self.trip.as_ref()
    }

    /// Whether the plan has canaries.
    pub const fn has_canaries(&self) -> bool {
        self.canaries.is_some()
    }

    /// Whether some canary was judged under every rubric under which any was asked.
    pub fn vouches(&self) -> bool {
        let mut watches = self.watches.values();
        watches.all(|watch| watch.planted == 0 || watch.process.judged() > 0)
    }

    /// What canaries cost.
    pub const fn usage(&self) -> UnitUsage {
        self.usage
    }

    /// Takes what became of the canaries since this was last asked.
    pub fn take_results(&mut self) -> Vec<CanaryResult> {
        std::mem::take(&mut self.results)
    }

    fn draw(&self, rubric: ContentHash) -> Draw<'p> {
        Draw {
            seed: self.plan.canary.as_ref().map_or("", |spec| &spec.seed),
            source: self.source,
            rubric,
        }
    }

    fn unplanted<'j>(&self, job: &InferJob<'j>) -> Planted<'j> {
        Planted::new(job.units, Vec::new(), 1, self.draw(job.rubric.hash), 0)
    }

    /// Mixes the next canaries into a job; none where it asks nothing that they know.
    fn plant<'j>(&mut self, job: &InferJob<'j>) -> Planted<'j> {
        let rubric = job.rubric.hash;
        let (Some(canaries), Some(spec)) = (&self.canaries, &self.plan.canary) else {
            return self.unplanted(job);
        };
        let asked = |canary: &canary::Canary| {
            let mut questions = job.questions.iter();
            questions.any(|question| canary.expect.contains_key(&question.field))
        };
        if !self.watches.contains_key(&rubric) {
            let known = canaries.list.iter().enumerate();
            let known = known.filter(|(_, canary)| asked(canary));
            let mut left = self.draw(rubric).order(known.map(|(index, _)| index));
            left.reverse();
            let watch = Watch {
                process: EProcess::new(spec.process, self.shares),
                left,
                planted: 0,
            };
            self.watches.insert(rubric, watch);
        }
        let every = spec.every as usize;
        let evidence = match job.questions.iter().any(|q| q.labels == Labels::Lines) {
            true => EvidenceMode::Model,
            false => EvidenceMode::None,
        };
        let (mut texts, mut from) = (Vec::new(), 0);
        if let Some(watch) = self.watches.get_mut(&rubric) {
            from = watch.planted;
            for _ in 0..Planted::blocks(job.units.len(), every) {
                let Some(next) = watch.left.pop() else { break };
                // Each was shown once when it was read, so that this fails for none.
                if let Ok(text) = canaries.list[next].show(self.plan, evidence) {
                    texts.push((next, text));
                }
            }
            watch.planted += texts.len();
        }
        Planted::new(job.units, texts, every, self.draw(rubric), from)
    }

    /// Judges a canary's completion.
    fn judge(
        &mut self,
        index: usize,
        planted: &Planted<'_>,
        job: &InferJob<'_>,
        done: &Completion,
    ) {
        let Some(canaries) = &self.canaries else {
            return;
        };
        let canary = &canaries.list[index];
        let Some((_, shown)) = planted.canary(&done.unit_id) else {
            return;
        };
        self.usage += done.usage;
        let (verdict, got) = canary::judge(self.plan, canary, shown, job, &done.outcome);
        let rubric = job.rubric.hash;
        let Some(watch) = self.watches.get_mut(&rubric) else {
            return;
        };
        let process = &mut watch.process;
        if verdict != Verdict::Ignored && process.observe(verdict == Verdict::Miss) {
            self.trip.get_or_insert(Trip::Canary {
                rubric,
                judged: process.judged(),
                misses: process.misses(),
            });
        }
        self.results.push(CanaryResult {
            place: canary.place().to_owned(),
            rubric,
            verdict,
            got,
            expected: canary.expect.clone(),
            judged: process.judged(),
            misses: process.misses(),
            evidence_nano: process.evidence_nano(),
        });
    }

    /// Shows a completion to both breakers; hands it on unless it is a canary's, or was called off.
    fn see(
        &mut self,
        done: Completion,
        planted: &Planted<'_>,
        job: &InferJob<'_>,
        sink: &mut dyn FnMut(Completion),
    ) {
        let was_open = self.trip.is_some();
        if let Some(trip) = self.transport.observe(&done.outcome) {
            self.trip.get_or_insert(trip);
        }
        let canary = planted.canary(&done.unit_id).map(|(index, _)| index);
        let called_off = matches!(done.outcome, UnitOutcome::Cancelled | UnitOutcome::NotRun);
        if let Some(index) = canary
            && !called_off
        {
            self.judge(index, planted, job, &done);
        }
        if self.trip.is_some() {
            job.cancel.cancel();
        }
        if canary.is_none() && !(was_open && called_off) {
            sink(done);
        }
    }
}

/// A backend whose completions the guard sees first.
pub struct Guarded<'g, 'p> {
    guard: &'g mut Guard<'p>,
    infer: &'g mut dyn Infer,
    plants: bool,
}

impl Guarded<'_, '_> {
    /// Why a breaker is open; none while both are closed.
    pub fn trip(&self) -> Option<&Trip> {
        self.guard.trip()
    }

    /// Takes what became of the canaries since this was last asked.
    pub fn take_results(&mut self) -> Vec<CanaryResult> {
        self.guard.take_results()
    }
}

impl Infer for Guarded<'_, '_> {
    fn identity(&self) -> &BackendIdentity {
        self.infer.identity()
    }

    fn infer(
        &mut self,
        job: InferJob<'_>,
        sink: &mut dyn FnMut(Completion),
    ) -> Result<JobUsage, InferError> {
        if self.guard.trip.is_some() {
            return Ok(JobUsage::default());
        }
        let planted = match self.plants {
            true => self.guard.plant(&job),
            false => self.guard.unplanted(&job),
        };
        if planted.is_empty() {
            return Ok(JobUsage::default());
        }
        let guard = &mut *self.guard;
        let mixed = InferJob {
            units: &planted,
            ..job
        };
        self.infer
            .infer(mixed, &mut |done| guard.see(done, &planted, &job, sink))
    }

    fn as_compose(&mut self) -> Option<&mut dyn Compose> {
        self.infer.as_compose()
    }
}
