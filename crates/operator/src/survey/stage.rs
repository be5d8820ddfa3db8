//! What one stage of a plan would ask: how many units, how many tokens, and which do not fit.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::{Ruler, SurveyOptions, name};
use crate::error::OperatorError;
use crate::id::FactKey;
use crate::infer::{BackendIdentity, FailReason};
use crate::ops::{Place, Unit, map};
use crate::plan::{Condition, Plan, Stage, StageOp, Turn};
use crate::store::{Store, fact_key};
use crate::text::render_for;

/// What a stage would ask.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageSurvey {
    /// Its name.
    pub name: String,
    /// Its operator, as the plan spells it.
    pub op: String,
    /// Whether all numbers are upper bounds: earlier answers decide which units come here.
    pub at_most: bool,
    /// Whether an earlier stage shows it more text than could be measured.
    pub text_grows: bool,
    /// Units that come here.
    pub units: u64,
    /// Units whose text cannot be made: a field is no text, or all are empty.
    pub malformed: Vec<TooLong>,
    /// Units that do not fit the model, or that the plan does not clip.
    pub too_long: Vec<TooLong>,
    /// Units of which the model would not see all.
    pub clipped: Vec<Clipped>,
    /// Units whose answers are remembered; none known without a store and a model.
    pub remembered: Option<u64>,
    /// Units whose text equals that of one which would be asked.
    pub duplicates: Option<u64>,
    /// Units that would be asked.
    pub asked: Option<u64>,
    /// Tokens that all of them share.
    pub shared_tokens: Option<u64>,
    /// Tokens that they add: with the shared ones once, what would be computed.
    pub unit_tokens: Option<u64>,
}

/// A unit that would be errored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TooLong {
    /// The unit.
    pub unit: String,
    /// Why.
    pub reason: String,
}

/// A unit that is clipped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clipped {
    /// The unit.
    pub unit: String,
    /// Bytes that the model would not see.
    pub bytes: u64,
}

/// Where the answer of a text would come from.
#[derive(Clone, Copy)]
enum Met {
    Asked,
    Remembered,
}

/// One stage while it is looked at.
pub(super) struct Look<'t> {
    survey: StageSurvey,
    turn: Option<&'t Turn>,
    identity: Option<BackendIdentity>,
    ruler: Option<Box<dyn Ruler + 't>>,
    met: HashMap<FactKey, Met>,
    asked: Vec<Place>,
    units_max: u64,
}

impl<'t> Look<'t> {
    /// Prepares to look at every stage of a plan.
    pub(super) fn of_all(
        plan: &Plan,
        turns: &'t [Option<Turn>],
        options: &SurveyOptions<'t>,
    ) -> Result<Vec<Self>, OperatorError> {
        let stages = plan.stages.iter().zip(turns).enumerate();
        stages
            .map(|(place, (stage, turn))| Self::of(plan, place, stage, turn.as_ref(), options))
            .collect()
    }

    fn of(
        plan: &Plan,
        place: usize,
        stage: &Stage,
        turn: Option<&'t Turn>,
        options: &SurveyOptions<'t>,
    ) -> Result<Self, OperatorError> {
        let gauge = options.gauge_of(stage);
        let ruler = match (gauge, turn) {
            (Some(gauge), Some(turn)) => Some(gauge.open(turn)?),
            _ => None,
        };
        let measured = ruler.is_some().then_some(0);
        let earlier = &plan.stages[..place];
        let decides = |stage: &Stage| matches!(stage.op, StageOp::Select(_));
        let shows = |stage: &Stage| matches!(stage.op, StageOp::Tool(_));
        let conditional = stage.when != Condition::default()
            || plan.is_chosen(&stage.name)
            || earlier.iter().any(decides);
        Ok(Self {
            survey: StageSurvey {
                name: stage.name.clone(),
                op: stage.op.as_str().to_owned(),
                at_most: conditional,
                text_grows: earlier.iter().any(shows),
                units: 0,
                malformed: Vec::new(),
                too_long: Vec::new(),
                clipped: Vec::new(),
                remembered: measured.filter(|_| options.store.is_some()),
                duplicates: measured,
                asked: measured,
                shared_tokens: ruler.as_ref().map(|ruler| ruler.shared_tokens()),
                unit_tokens: measured,
            },
            turn,
            identity: gauge.map(|gauge| gauge.identity().clone()),
            ruler,
            met: HashMap::new(),
            asked: Vec::new(),
            units_max: match stage.pass {
                0 => u64::MAX,
                pass => plan.passes[pass - 1].units_max,
            },
        })
    }

    /// Looks at a unit that may come to the stage.
    pub(super) fn take(
        &mut self,
        plan: &Plan,
        unit: &Unit,
        place: Place,
        store: Option<&dyn Store>,
    ) {
        if self.survey.units == self.units_max {
            return;
        }
        self.survey.units += 1;
        let Some(turn) = self.turn else { return };
        let failed = |reason: String| TooLong {
            unit: name(&unit.id),
            reason,
        };
        let shown = match render_for(plan, unit, &[], turn.evidence) {
            Ok(shown) => shown,
            Err(problem) => {
                let list = match problem.reason {
                    FailReason::TooLarge => &mut self.survey.too_long,
                    _ => &mut self.survey.malformed,
                };
                list.push(failed(problem.message));
                return;
            }
        };
        if shown.clipped_bytes > 0 {
            self.survey.clipped.push(Clipped {
                unit: name(&unit.id),
                bytes: shown.clipped_bytes,
            });
        }
        let (Some(ruler), Some(identity)) = (&mut self.ruler, &self.identity) else {
            return;
        };
        let key = fact_key(identity, &turn.rubric, &turn.questions, &shown);
        // A recording answers units, not texts.
        let known = self.met.get(&key).filter(|_| !identity.simulated);
        let stored = || {
            let stored = store.filter(|_| !identity.simulated)?.get(&key)?;
            map::check(&turn.questions, &shown, &stored.answers).ok()
        };
        let count = match known {
            Some(Met::Asked) => &mut self.survey.duplicates,
            Some(Met::Remembered) => &mut self.survey.remembered,
            None if stored().is_some() => {
                self.met.insert(key, Met::Remembered);
                &mut self.survey.remembered
            }
            None => match ruler.tokens(&shown) {
                Ok(tokens) => {
                    self.met.insert(key, Met::Asked);
                    self.asked.push(place);
                    *self.survey.unit_tokens.get_or_insert(0) += tokens;
                    &mut self.survey.asked
                }
                Err(problem) => {
                    self.survey.too_long.push(failed(problem.message));
                    return;
                }
            },
        };
        *count.get_or_insert(0) += 1;
    }

    /// The units that would be asked.
    pub(super) fn take_asked(&mut self) -> Vec<Place> {
        std::mem::take(&mut self.asked)
    }

    pub(super) fn finish(self) -> StageSurvey {
        let mut survey = self.survey;
        if survey.asked == Some(0) && !survey.at_most {
            survey.shared_tokens = Some(0);
        }
        survey
    }
}
