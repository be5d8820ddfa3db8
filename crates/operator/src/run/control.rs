//! Runs that may stop early: units are asked in their turns, some at a time, until the plan's rules are
//! met.
//!
//! A rule is judged over facts in the order of turns: a fact waits for those before it, and what came
//! for a unit whose turn was after the stop is dropped, so that what a run decides does not depend on
//! the backend's pace. The units at hand when the rules are met are cancelled, later ones not run. Must
//! not know what the rules are, nor how a unit is asked.

use std::collections::HashMap;

use super::Pass;
use super::backends::Backends;
use super::flight::Flight;
use crate::error::OperatorError;
use crate::fact::{Fact, Status};
use crate::infer::{CancelFlag, InferError};
use crate::ops::{Unit, map};
use crate::plan::Plan;
use crate::run_directory::ObservationRow;
use crate::stopping::{Rules, Turn, reason};
use crate::store::{MemoryStore, Store};

/// Most units that are on their way at once. Small enough that little is thrown away, large enough to
/// fill forwards.
const WAVE_UNITS: usize = 256;

/// The rules of a run, and the units that are on their way.
pub(super) struct Control<'p> {
    rules: Rules<'p>,
    /// Turns of the units that the predicates leave; in source order until they are asked.
    turns: Vec<Turn>,
    stage: Stage,
}

enum Stage {
    /// Predicates settle units.
    Before,
    /// Units have their turns.
    Asking,
    /// Some are on their way.
    Under(Wave),
}

struct Wave {
    /// Place of the first among all turns.
    from: usize,
    /// Place in the wave, by ordinal.
    places: HashMap<u32, usize>,
    landed: Vec<Option<Fact>>,
    /// What tools showed of units, by ordinal.
    shown: Vec<(u32, ObservationRow)>,
    /// How many from the start have landed and were observed.
    observed: usize,
    /// The first that the rules leave out.
    met: Option<usize>,
    /// Stops the wave alone.
    cancel: CancelFlag,
}

impl<'p> Control<'p> {
    /// The control of a plan; none where it asks every unit.
    pub(super) fn of(plan: &'p Plan) -> Option<Self> {
        Some(Self {
            rules: Rules::of(plan)?,
            turns: Vec::new(),
            stage: Stage::Before,
        })
    }

    /// Takes a fact; gives it back where nothing has to be waited for.
    fn take(&mut self, fact: Fact) -> Option<Fact> {
        let seen = self.rules.see(&fact);
        let wave = match &mut self.stage {
            Stage::Before => {
                self.rules.settled(&seen);
                return Some(fact);
            }
            Stage::Asking => return Some(fact),
            Stage::Under(wave) => wave,
        };
        let place = wave.places.get(&fact.ordinal).copied();
        // A unit's second fact is refused where it is recorded.
        let Some(place) = place.filter(|place| wave.landed[*place].is_none()) else {
            return Some(fact);
        };
        wave.landed[place] = Some(fact);
        while wave.met.is_none()
            && let Some(Some(fact)) = wave.landed.get(wave.observed)
        {
            self.rules.observe(&self.rules.see(fact));
            wave.observed += 1;
            let next = self.turns.get(wave.from + wave.observed);
            if next.is_some_and(|next| self.rules.met(next)) {
                wave.met = Some(wave.observed);
                wave.cancel.cancel();
            }
        }
        None
    }
}

impl Pass<'_, '_> {
    /// Most units that may be asked, and what says so.
    pub(super) fn units_most(&self) -> (u64, &'static str) {
        let limit = self.options.limit.map_or(u64::MAX, u64::from);
        let budget = self.plan.budget.units_max.unwrap_or(u64::MAX);
        match limit <= budget {
            true => (limit, "limit"),
            false => (budget, "budget units_max"),
        }
    }

    /// Gives a unit its turn where the plan may stop early; false where it asks every unit.
    pub(super) fn take_turn(&mut self, unit: &Unit) -> bool {
        let plan = self.plan;
        let Some(control) = &mut self.control else {
            return false;
        };
        let bare = map::unanswered(plan, unit, Status::NotRun, map::STAGE, None);
        control.turns.push(control.rules.ordering.turn(&bare));
        true
    }

    /// Takes a fact that has to wait for others; gives back any other.
    pub(super) fn hold(&mut self, fact: Fact) -> Option<Fact> {
        match &mut self.control {
            Some(control) => control.take(fact),
            None => Some(fact),
        }
    }

    /// Writes what a tool showed of a unit, once it is known that the unit counts.
    pub(super) fn keep_observation(
        &mut self,
        ordinal: u32,
        row: ObservationRow,
    ) -> Result<(), OperatorError> {
        let stage = self.control.as_mut().map(|control| &mut control.stage);
        match (stage, &mut self.journal.directory) {
            (Some(Stage::Under(wave)), _) => wave.shown.push((ordinal, row)),
            (_, Some(directory)) => directory.append_observation(row)?,
            (_, None) => {}
        }
        Ok(())
    }

    /// What stops the job at hand, alone where the rules are met.
    pub(super) fn job_cancel(&self) -> CancelFlag {
        match self.control.as_ref().map(|control| &control.stage) {
            Some(Stage::Under(wave)) => wave.cancel.clone(),
            _ => self.options.cancel.part(),
        }
    }

    /// Puts units into the order in which they are asked.
    pub(super) fn sort(&self, flights: &mut [Flight]) {
        match self.control.as_ref().map(|control| &control.stage) {
            Some(Stage::Under(wave)) => {
                flights.sort_unstable_by_key(|flight| wave.places.get(&flight.ordinal()));
            }
            _ => flights.sort_unstable_by_key(Flight::ordinal),
        }
    }

    /// Takes units through all stages and settles every one of them, or those that matter.
    pub(super) fn ask_all(
        &mut self,
        flights: Vec<Flight>,
        backends: &mut Backends<'_>,
        store: Option<&dyn Store>,
    ) -> Result<Option<InferError>, OperatorError> {
        let Some(control) = &mut self.control else {
            return self.go(flights, backends, store);
        };
        let turns = std::mem::take(&mut control.turns);
        let mut order: Vec<(Turn, Flight)> = turns.into_iter().zip(flights).collect();
        order.sort_unstable_by_key(|(turn, _)| *turn);
        control.turns = order.iter().map(|(turn, _)| *turn).collect();
        control.rules.begin(order.len() as u64);
        control.stage = Stage::Asking;
        let first = control.turns.first();
        let mut met = first.is_some_and(|first| control.rules.met(first));
        // Equal texts of different waves are asked once, with or without a store.
        let memory = MemoryStore::new();
        let store = store.unwrap_or(&memory);
        let (most, over) = self.units_most();
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let mut failure = None;
        let mut from = 0;
        while from < order.len() {
            let to = self.wave_end(from, order.len(), most);
            let wave: Vec<Flight> = order[from..to].iter().map(|(_, f)| f.clone()).collect();
            let stopped = failure.is_some() || self.options.cancel.is_cancelled();
            let reason = match (met, stopped) {
                (true, _) => Some(reason(self.plan)),
                (false, true) => Some(self.why_stopped(failure.as_ref(), backends)),
                (false, false) => (from >= most).then(|| over.to_owned()),
            };
            if !met {
                self.open(from, &wave);
            }
            let asked = reason.is_none();
            match reason {
                Some(reason) if met => {
                    for flight in &wave {
                        let fact = self.left_out(flight, Status::NotRun, reason.clone());
                        self.settle(fact)?;
                    }
                }
                Some(reason) => {
                    for flight in wave.clone() {
                        self.never_begin(flight, &reason)?;
                    }
                }
                None => failure = self.go(wave.clone(), backends, Some(store))?,
            }
            met |= self.close(&wave, asked)?;
            from = to;
        }
        Ok(failure)
    }

    /// Settles a unit that no stage has taken yet.
    fn never_begin(&mut self, flight: Flight, reason: &str) -> Result<(), OperatorError> {
        let plan = self.plan;
        match plan.stages.iter().find(|stage| flight.is_due(plan, stage)) {
            Some(stage) => self.leave(flight, stage, Status::NotRun, reason.to_owned()),
            None => {
                let fact = flight.finish(plan, self.units);
                self.settle(fact)
            }
        }
    }

    /// Where a wave ends: at its size, at a look, and where no more may be asked.
    fn wave_end(&self, from: usize, len: usize, most: usize) -> usize {
        let control = self.control.as_ref();
        let look = control.and_then(|control| control.rules.look_after(from as u64));
        let look = look.and_then(|look| usize::try_from(look).ok());
        let most = (most > from).then_some(most);
        let ends = [Some(from + WAVE_UNITS), Some(len), look, most];
        ends.into_iter().flatten().min().unwrap_or(len)
    }

    fn open(&mut self, from: usize, flights: &[Flight]) {
        let cancel = self.options.cancel.part();
        let Some(control) = &mut self.control else {
            return;
        };
        let places = flights.iter().enumerate();
        control.stage = Stage::Under(Wave {
            from,
            places: places.map(|(place, f)| (f.ordinal(), place)).collect(),
            landed: vec![None; flights.len()],
            shown: Vec::new(),
            observed: 0,
            met: None,
            cancel,
        });
    }

    /// Records the facts of a wave; tells whether the rules are met.
    fn close(&mut self, flights: &[Flight], asked: bool) -> Result<bool, OperatorError> {
        let Some(control) = &mut self.control else {
            return Ok(false);
        };
        let Stage::Under(wave) = std::mem::replace(&mut control.stage, Stage::Asking) else {
            return Ok(false);
        };
        let met = wave.met;
        if let Some(directory) = &mut self.journal.directory {
            let counts = |ordinal: &u32| {
                let place = wave.places.get(ordinal);
                met.is_none_or(|met| place.is_some_and(|place| *place < met))
            };
            let rows = wave.shown.into_iter();
            for (_, row) in rows.filter(|(ordinal, _)| counts(ordinal)) {
                directory.append_observation(row)?;
            }
        }
        for (place, (flight, landed)) in flights.iter().zip(wave.landed).enumerate() {
            if met.is_none_or(|met| place < met) {
                if let Some(fact) = landed {
                    self.record(fact)?;
                }
                continue;
            }
            if let Some(fact) = landed {
                self.ladder.call_off(&fact);
            }
            // Whatever came for it, so that what is left out does not depend on the backend's pace.
            let status = match asked {
                true => Status::Cancelled,
                false => Status::NotRun,
            };
            let fact = self.left_out(flight, status, reason(self.plan));
            self.record(fact)?;
        }
        Ok(met.is_some())
    }

    /// The fact of a unit that the rules leave out.
    fn left_out(&self, flight: &Flight, status: Status, reason: String) -> Fact {
        let first = self.plan.stages.first();
        let stage = first.map_or(map::STAGE, |stage| &stage.name);
        flight
            .clone()
            .end(self.plan, self.units, status, stage, reason)
    }
}
