//! What a run would do, found out before any model is asked.
//!
//! Records are read, indexes computed and predicates asked as a run does; texts are rendered, measured by
//! a [`Gauge`] and looked up in the store, and nothing is put. What depends on answers, such as a stage
//! after a selector, is bounded and not guessed. Must not know tokens: a gauge counts them.

mod may;
mod sample;
mod stage;

use serde::{Deserialize, Serialize};

use crate::error::OperatorError;
use crate::id::UnitId;
use crate::index::{IndexReport, Indexes, UnitRows};
use crate::infer::{BackendIdentity, InferError};
use crate::ops::{Place, Placed, Route, Units};
use crate::plan::{Plan, Stage, Turn};
use crate::run::{Ladder, Rung};
use crate::store::Store;
use crate::text::{TextProblem, UnitText};

pub use may::May;
pub use sample::{Sample, measure};
pub use stage::{Clipped, StageSurvey, TooLong};

/// Measures what asking would take, without asking.
pub trait Gauge {
    /// Which backend would answer.
    fn identity(&self) -> &BackendIdentity;

    /// Prepares to measure the units of a turn.
    ///
    /// # Errors
    /// [`InferError`] where the backend would refuse the job as a whole.
    fn open<'t>(&'t self, turn: &'t Turn) -> Result<Box<dyn Ruler + 't>, InferError>;
}

/// Measures units of one turn.
pub trait Ruler {
    /// Tokens that all units share, computed once.
    fn shared_tokens(&self) -> u64;

    /// Tokens that a unit adds.
    ///
    /// # Errors
    /// [`TextProblem`] as the backend would report it.
    fn tokens(&mut self, unit: &UnitText) -> Result<u64, TextProblem>;
}

/// What a survey found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Survey {
    /// Records in all.
    pub units: u64,
    /// Records that cannot be read: place and reason.
    pub unreadable: Vec<Unreadable>,
    /// What computing each index took and gave.
    pub indexes: Vec<IndexReport>,
    /// What each index and predicate saw and decided.
    pub ladder: Vec<Rung>,
    /// Units that go past the predicates.
    pub kept: u64,
    /// Units of them that a limit leaves out.
    pub over_limit: u64,
    /// What each stage would ask.
    pub stages: Vec<StageSurvey>,
    /// What each index and stage may do.
    pub may: Vec<May>,
}

/// A record that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unreadable {
    /// Where it stands in the input.
    pub place: String,
    /// What is wrong with it.
    pub reason: String,
}

/// What a survey is taken with.
pub struct SurveyOptions<'a> {
    /// Most units past the predicates, as in a run.
    pub limit: Option<u32>,
    /// The caller's clock in microseconds.
    pub clock: &'a dyn Fn() -> u64,
    /// Who would answer; without it, tokens and remembered answers are unknown.
    pub gauge: Option<&'a dyn Gauge>,
    /// Who would answer stages of the larger model.
    pub larger: Option<&'a dyn Gauge>,
    /// Where answers are remembered.
    pub store: Option<&'a dyn Store>,
}

impl<'a> SurveyOptions<'a> {
    /// The gauge of who would answer a stage.
    fn gauge_of(&self, stage: &Stage) -> Option<&'a dyn Gauge> {
        match stage.larger() {
            true => self.larger,
            false => self.gauge,
        }
    }
}

/// Finds out what a run of the plan over these units would do; also gives the units that the first
/// stage would ask, for a measured sample.
///
/// Memory: as a run, and 40 bytes per unit and stage.
///
/// # Errors
/// As a run before its first question: reading the records, computing indexes, and a rubric that does
/// not fit.
pub fn survey(
    plan: &Plan,
    units: &dyn Units,
    options: &SurveyOptions<'_>,
) -> Result<(Survey, Vec<Place>), OperatorError> {
    let indexes = Indexes::compute(plan, &UnitRows(units), options.clock)?;
    let mut ladder = Ladder::new(plan, &indexes);
    let limit = options.limit.map_or(u64::MAX, u64::from);
    let most = limit.min(plan.budget.units_max.unwrap_or(u64::MAX));
    let turns: Vec<Option<Turn>> = plan.stages.iter().map(|stage| plan.turn(stage)).collect();
    let mut looks = stage::Look::of_all(plan, &turns, options)?;
    let (mut unreadable, mut kept) = (Vec::new(), 0);
    units.visit(&mut |placed| {
        let (unit, place) = match placed {
            Placed::Unit(unit, place) => (unit, place),
            Placed::Bad(bad) => {
                unreadable.push(Unreadable {
                    place: bad.place,
                    reason: bad.reason,
                });
                return Ok(());
            }
        };
        if let Route::Model { .. } = ladder.route(plan, &unit, &indexes, options.clock) {
            kept += 1;
            if kept <= most {
                for look in &mut looks {
                    look.take(plan, &unit, place, options.store);
                }
            }
        }
        Ok(())
    })?;
    let asked = looks.first_mut().map(stage::Look::take_asked);
    let survey = Survey {
        units: u64::from(units.len()),
        unreadable,
        indexes: indexes.reports().to_vec(),
        ladder: ladder.into_rungs(),
        kept,
        over_limit: kept.saturating_sub(most),
        stages: looks.into_iter().map(stage::Look::finish).collect(),
        may: may::may(plan),
    };
    Ok((survey, asked.unwrap_or_default()))
}

/// The units that go past the predicates, in source order: those that a model may be asked about.
///
/// # Errors
/// As [`survey`], but for the rubric, which is not looked at.
pub fn past_predicates(
    plan: &Plan,
    units: &dyn Units,
    clock: &dyn Fn() -> u64,
) -> Result<Vec<Place>, OperatorError> {
    let indexes = Indexes::compute(plan, &UnitRows(units), clock)?;
    let mut ladder = Ladder::new(plan, &indexes);
    let mut past = Vec::new();
    units.visit(&mut |placed| {
        if let Placed::Unit(unit, place) = placed
            && unit.skip.is_none()
            && let Route::Model { .. } = ladder.route(plan, &unit, &indexes, clock)
        {
            past.push(place);
        }
        Ok(())
    })?;
    Ok(past)
}

/// Names a unit in a list.
fn name(id: &UnitId) -> String {
    id.to_string()
}
