//! Relations that an answer depends on: a unit that lacks one is read with its neighbours beside it, or
//! abstains without being asked; it is never guessed at.
//!
//! Must not know how neighbours are found or a model is asked.

use super::Pass;
use super::flight::Flight;
use crate::error::OperatorError;
use crate::fact::Step;
use crate::ops::UnitKind;
use crate::plan::{Relation, Stage, StageOp, Turn, required};

/// What a step says of a unit that was to be widened and has no neighbour.
const NO_NEIGHBOUR: &str = "no neighbour";

impl Pass<'_, '_> {
    /// Widens units as a stage wants it and settles those that lack a relation; returns what is to be
    /// asked. Units that need no neighbours, and have none, go onward as they stand.
    pub(super) fn relate(
        &mut self,
        flights: Vec<Flight>,
        stage: &Stage,
        turn: &Turn,
        onward: &mut Vec<Flight>,
    ) -> Result<Vec<Flight>, OperatorError> {
        let needed = required(&turn.fields);
        let wanted = matches!(&stage.op, StageOp::Map(map) if map.widen);
        if needed.is_empty() && !wanted {
            return Ok(flights);
        }
        let (plan, units) = (self.plan, self.units);
        let mut asked = Vec::with_capacity(flights.len());
        for mut flight in flights {
            // A unit that cannot be read again is told of where its text is wanted.
            let Ok(unit) = flight.read(units) else {
                asked.push(flight);
                continue;
            };
            let lacking = unit.lacks(plan, &needed);
            if lacking.is_empty() && !wanted {
                asked.push(flight);
                continue;
            }
            let again = unit.kind == UnitKind::Widened && asks_the_same(stage);
            let wider = match plan.unit.widen && !again {
                true => units.widen(&unit)?,
                false => None,
            };
            match wider {
                Some(wider) if wider.lacks(plan, &needed).is_empty() => {
                    flight.widen();
                    asked.push(flight);
                }
                wider => {
                    let neighbour = match wider {
                        None if plan.unit.widen => format!(": {NO_NEIGHBOUR}"),
                        _ => String::new(),
                    };
                    if plan.is_staged() {
                        flight.step(Step::bare(&stage.name, NO_NEIGHBOUR));
                    }
                    if lacking.is_empty() {
                        onward.push(flight);
                        continue;
                    }
                    let names: Vec<&str> = lacking.iter().copied().map(Relation::as_str).collect();
                    let reason = format!("lacks relation {}{neighbour}", names.join(" and "));
                    self.settle(flight.lack(plan, units, &stage.name, reason))?;
                }
            }
        }
        Ok(asked)
    }
}

/// Whether a stage asks of a widened unit what was asked of it before.
fn asks_the_same(stage: &Stage) -> bool {
    match &stage.op {
        StageOp::Map(map) => map.rubric.is_none() && !map.larger,
        StageOp::Select(_) | StageOp::Tool(_) => false,
    }
}
