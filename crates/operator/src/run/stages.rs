//! The order of stages: which units go where, pass by pass, and what becomes of those that stop.
//!
//! Data goes forward; a stage never calls another. A further pass takes fewer units than the one
//! before and only those that its stages ask for. Must not know how a model or a tool is asked.

use super::backends::Backends;
use super::flight::Flight;
use super::{Pass, causes};
use crate::error::OperatorError;
use crate::fact::Status;
use crate::infer::InferError;
use crate::plan::StageOp;
use crate::store::Store;

impl Pass<'_, '_> {
    /// Takes units through all stages and settles every one of them.
    pub(super) fn go(
        &mut self,
        mut flights: Vec<Flight>,
        backends: &mut Backends<'_>,
        store: Option<&dyn Store>,
    ) -> Result<Option<InferError>, OperatorError> {
        let plan = self.plan;
        let mut failure = None;
        let mut pass = 0;
        for (place, stage) in plan.stages.iter().enumerate() {
            self.sort(&mut flights);
            if stage.pass != pass {
                pass = stage.pass;
                self.spent.begin_pass();
                flights = self.admit(flights, pass, place)?;
            }
            let (due, rest): (Vec<Flight>, Vec<Flight>) = flights
                .into_iter()
                .partition(|flight| flight.is_due(plan, stage));
            flights = rest;
            let began = self.begin_rung();
            let taken = due.len() as u64;
            match &stage.op {
                _ if failure.is_some() || self.job_cancel().is_cancelled() => {
                    let reason = self.why_stopped(failure.as_ref(), backends);
                    for flight in due {
                        self.leave(flight, stage, Status::NotRun, reason.clone())?;
                    }
                }
                StageOp::Select(_) | StageOp::Map(_) => {
                    let asked = self.ask_stage(place, due, backends, store)?;
                    flights.extend(asked.onward);
                    failure = asked.failure;
                }
                StageOp::Tool(tool) => {
                    let called = self.call_stage((place, tool), due, backends, store)?;
                    flights.extend(called.onward);
                    failure = called.failure;
                }
            }
            self.end_rung(stage, taken, &began);
        }
        self.sort(&mut flights);
        for flight in flights {
            self.settle(flight.finish(plan, self.units))?;
        }
        Ok(failure)
    }

    /// Why nothing more is asked.
    pub(super) fn why_stopped(
        &self,
        failure: Option<&InferError>,
        backends: &Backends<'_>,
    ) -> String {
        let over = self.spent.over.clone();
        match failure {
            Some(error) if backends.guard.trip().is_none() => causes(error),
            _ => over.unwrap_or_else(|| String::from("cancelled")),
        }
    }

    /// Lets the first units that a pass's stages take into it; of the others those wait that a later pass
    /// takes as they stand, and the rest is settled.
    fn admit(
        &mut self,
        flights: Vec<Flight>,
        pass: usize,
        place: usize,
    ) -> Result<Vec<Flight>, OperatorError> {
        let plan = self.plan;
        let mut room = plan.passes[pass - 1].units_max;
        let stages = &plan.stages;
        let later = stages.partition_point(|stage| stage.pass <= pass);
        let mut onward = Vec::new();
        for mut flight in flights {
            let mut there = flight.clone();
            there.admit(pass);
            let wanted = stages[place..later]
                .iter()
                .any(|stage| there.is_due(plan, stage));
            if wanted && room > 0 {
                room -= 1;
                flight.admit(pass);
                onward.push(flight);
            } else if flight.goes_on(plan, later) {
                onward.push(flight);
            } else {
                self.settle(flight.finish(plan, self.units))?;
            }
        }
        Ok(onward)
    }
}
