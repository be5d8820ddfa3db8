//! The ladder: what each index, predicate and stage saw, decided and cost, the cheap ones first.
//!
//! Times are of the caller's clock. Nothing here changes what becomes of a unit.

use serde::{Deserialize, Serialize};

use super::Pass;
use crate::coverage::Counts;
use crate::fact::{Fact, Status};
use crate::index::Indexes;
use crate::ops::{Route, Unit, prefilter_watched};
use crate::plan::{Plan, Stage};

/// What a step of a plan is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RungKind {
    /// An index over all records; it decides nothing itself.
    Index,
    /// A predicate.
    Predicate,
    /// A stage.
    Stage,
}

impl RungKind {
    /// The kind in one word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Index => "index",
            Self::Predicate => "predicate",
            Self::Stage => "stage",
        }
    }
}

/// One step of a plan: how many units came in, what became of them there, and what it took.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rung {
    /// The name that the plan gives it.
    pub name: String,
    /// What it is.
    pub kind: RungKind,
    /// Units that came in.
    pub seen: u64,
    /// Units decided here.
    pub decided: u64,
    /// Units left out here.
    pub excluded: u64,
    /// Units that abstained here.
    pub abstained: u64,
    /// Units that errored here.
    pub errored: u64,
    /// Units that were cancelled or not run here.
    pub stopped: u64,
    /// Units that went on.
    pub onward: u64,
    /// Of an index: its members.
    pub members: u64,
    /// Microseconds.
    pub micros: u64,
    /// Tokens that a model computed.
    pub computed_tokens: u64,
}

impl Rung {
    /// A step that saw nothing yet.
    pub(crate) fn new(name: &str, kind: RungKind) -> Self {
        Self {
            name: name.to_owned(),
            kind,
            seen: 0,
            decided: 0,
            excluded: 0,
            abstained: 0,
            errored: 0,
            stopped: 0,
            onward: 0,
            members: 0,
            micros: 0,
            computed_tokens: 0,
        }
    }
}

/// The steps of a plan as they are taken.
#[derive(Debug, Clone, Default)]
pub struct Ladder {
    rungs: Vec<Rung>,
    /// How many of them are indexes; the predicates follow.
    indexes: usize,
}

impl Ladder {
    /// The indexes, done, and the predicates, yet to be asked.
    pub fn new(plan: &Plan, indexes: &Indexes) -> Self {
        let done = indexes.reports().iter().map(|report| Rung {
            seen: report.records,
            onward: report.records,
            members: report.members,
            micros: report.micros,
            ..Rung::new(&report.name, RungKind::Index)
        });
        let asked = plan
            .prefilters
            .iter()
            .map(|filter| Rung::new(&filter.name, RungKind::Predicate));
        Self {
            rungs: done.chain(asked).collect(),
            indexes: plan.indexes.len(),
        }
    }

    /// Routes a unit, and counts it at every predicate that it comes to.
    pub fn route<'p>(
        &mut self,
        plan: &'p Plan,
        unit: &Unit,
        indexes: &Indexes,
        clock: &dyn Fn() -> u64,
    ) -> Route<'p> {
        let mut last = None;
        let mut began = clock();
        let predicates = &mut self.rungs[self.indexes..];
        let route = prefilter_watched(plan, unit, indexes, &mut |place| {
            let now = clock();
            let rung = &mut predicates[place];
            rung.seen += 1;
            rung.onward += 1;
            rung.micros += now.saturating_sub(began);
            (last, began) = (Some(place), now);
        });
        if let Some(place) = last {
            let rung = &mut predicates[place];
            let settled = match route {
                Route::Exclude { .. } => &mut rung.excluded,
                Route::Decide { .. } => &mut rung.decided,
                Route::Malformed { .. } => &mut rung.errored,
                Route::Model { .. } => return route,
            };
            *settled += 1;
            rung.onward -= 1;
        }
        route
    }

    /// The step of a stage; a run that may stop early comes to it more than once.
    fn stage(&mut self, name: &str) -> &mut Rung {
        let known = |rung: &Rung| rung.kind == RungKind::Stage && rung.name == name;
        let place = match self.rungs.iter().position(known) {
            Some(place) => place,
            None => {
                self.rungs.push(Rung::new(name, RungKind::Stage));
                self.rungs.len() - 1
            }
        };
        &mut self.rungs[place]
    }

    /// Counts a unit as stopped whose outcome at a stage came too late to matter.
    pub(super) fn call_off(&mut self, fact: &Fact) {
        let rung = self.stage(&fact.stage);
        let counted = match fact.status {
            Status::Decided => &mut rung.decided,
            Status::Abstained => &mut rung.abstained,
            Status::Errored => &mut rung.errored,
            Status::Excluded => &mut rung.excluded,
            Status::Cancelled | Status::NotRun => return,
        };
        *counted -= 1;
        rung.stopped += 1;
    }

    /// All steps, in order.
    pub fn into_rungs(self) -> Vec<Rung> {
        self.rungs
    }
}

/// Where a run stood when a stage began.
pub(super) struct Began {
    settled: Counts,
    micros: u64,
    tokens: u64,
}

impl Pass<'_, '_> {
    pub(super) fn begin_rung(&self) -> Began {
        Began {
            settled: self.settled,
            micros: self.journal.elapsed_us(),
            tokens: self.usage.job.computed_tokens,
        }
    }

    /// Notes what became of the units that a stage took.
    pub(super) fn end_rung(&mut self, stage: &Stage, seen: u64, began: &Began) {
        let (now, then) = (self.settled, began.settled);
        let rung = self.ladder.stage(&stage.name);
        rung.seen += seen;
        rung.decided += now.decided - then.decided;
        rung.excluded += now.excluded - then.excluded;
        rung.abstained += now.abstained - then.abstained;
        rung.errored += now.errored - then.errored;
        rung.stopped += now.cancelled + now.not_run - then.cancelled - then.not_run;
        rung.onward += seen - (now.units - then.units);
        rung.micros += self.journal.elapsed_us().saturating_sub(began.micros);
        rung.computed_tokens += self.usage.job.computed_tokens - began.tokens;
    }
}
