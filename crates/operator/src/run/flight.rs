//! A unit between two stages: what is known of it so far, and whether a stage takes it.
//!
//! Must not know how a stage is carried out.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::error::OperatorError;
use crate::fact::{Fact, Status, Step};
use crate::id::ContentHash;
use crate::infer::UnitUsage;
use crate::ops::{Kept, Unit, Units, map};
use crate::plan::{Condition, Plan, Stage, TextField, Then};
use crate::record::Record;

/// A unit on its way, without its record.
#[derive(Debug, Clone)]
pub(super) struct Flight {
    pub(super) kept: Kept,
    /// What earlier stages made of it; none before the first, and none in a plan with one stage.
    state: Option<Box<State>>,
    /// When a model or a tool was first about to be asked about it.
    begun: OnceLock<Instant>,
}

#[derive(Debug, Clone, Default)]
struct State {
    path: Vec<Step>,
    /// The unit's fact as it stands, once a map stage has answered.
    draft: Option<Fact>,
    /// Stages that a selector chose.
    chosen: Vec<String>,
    /// What tools and neighbourhoods showed, for later stages to read.
    shown: Vec<Shown>,
    /// The pass that it was last admitted to.
    pass: usize,
    /// Whether its neighbours are shown beside it.
    widened: bool,
}

/// A text that a stage showed.
#[derive(Debug, Clone)]
pub(super) struct Shown {
    /// Under which name, and how it is clipped.
    pub(super) field: TextField,
    pub(super) text: Arc<str>,
}

impl Shown {
    /// Hash of the text, as a step carries it.
    pub(super) fn hash(&self) -> ContentHash {
        ContentHash::of_bytes(self.text.as_bytes())
    }
}

impl Flight {
    pub(super) fn new(kept: Kept) -> Self {
        Self {
            kept,
            state: None,
            begun: OnceLock::new(),
        }
    }

    /// Starts the unit's own time, where it has not begun; false once it is over, so that nothing more is
    /// asked about it.
    pub(super) fn is_in_time(&self, plan: &Plan) -> bool {
        let Some(most) = plan.control.unit_ms_max else {
            return true;
        };
        let begun = self.begun.get_or_init(Instant::now);
        begun.elapsed() <= Duration::from_millis(u64::from(most))
    }

    pub(super) fn ordinal(&self) -> u32 {
        self.kept.place.ordinal
    }

    /// Names of the texts that were shown, as fields that follow the record's own.
    pub(super) fn shown_fields(&self) -> Vec<TextField> {
        let shown = self.state.iter().flat_map(|state| &state.shown);
        shown.map(|shown| shown.field.clone()).collect()
    }

    /// Reads the unit; its record has the texts that were shown beside its own fields.
    pub(super) fn read(&self, units: &dyn Units) -> Result<Unit, OperatorError> {
        let mut unit = self.kept.read(units)?;
        if self.state.as_ref().is_some_and(|state| state.widened) {
            unit = units.widen(&unit)?.unwrap_or(unit);
        }
        if let Some(state) = &self.state
            && !state.shown.is_empty()
        {
            let mut record = Record::clone(&unit.record);
            for shown in &state.shown {
                let text = serde_json::Value::from(&*shown.text);
                record.fields.insert(shown.field.field.clone(), text);
            }
            unit.record = Arc::new(record);
        }
        Ok(unit)
    }

    fn state(&mut self) -> &mut State {
        self.state.get_or_insert_default()
    }

    /// Notes what a stage made of the unit.
    pub(super) fn step(&mut self, step: Step) {
        self.state().path.push(step);
    }

    /// Takes what a tool or a neighbourhood showed.
    pub(super) fn show(&mut self, shown: Shown) {
        self.state().shown.push(shown);
    }

    /// Shows its neighbours beside it from now on.
    pub(super) fn widen(&mut self) {
        self.state().widened = true;
    }

    /// Takes the stages that a selector chose.
    pub(super) fn choose(&mut self, then: &Then) {
        if let Then::Run(stages) = then {
            self.state().chosen.extend(stages.iter().cloned());
        }
    }

    /// Lets the unit into a further pass.
    pub(super) fn admit(&mut self, pass: usize) {
        self.state().pass = pass;
    }

    /// Takes the values of a map stage's fact; later ones replace earlier ones of the same field.
    pub(super) fn answer(&mut self, plan: &Plan, fact: Fact) {
        let state = self.state();
        let Some(draft) = &mut state.draft else {
            state.draft = Some(fact);
            return;
        };
        draft.stage = fact.stage;
        draft.source_hash = fact.source_hash;
        draft.members = fact.members;
        draft.values.extend(fact.values);
        if !fact.evidence.is_empty() {
            draft.evidence = fact.evidence;
        }
        draft.clipped_bytes = fact.clipped_bytes;
        draft.backend = fact.backend;
        let doubt = map::doubt(&plan.fields, &draft.values);
        draft.status = match doubt {
            Some(_) => Status::Abstained,
            None => Status::Decided,
        };
        draft.reason = doubt;
    }

    /// Whether a stage takes the unit as it stands.
    pub(super) fn is_due(&self, plan: &Plan, stage: &Stage) -> bool {
        let state = self.state.as_deref();
        let pass = state.map_or(0, |state| state.pass);
        let gone = state.is_some_and(|state| state.path.iter().any(|s| s.stage == stage.name));
        let chosen = state.is_some_and(|state| state.chosen.contains(&stage.name));
        pass == stage.pass
            && !gone
            && (chosen || !plan.is_chosen(&stage.name))
            && self.meets(&stage.when)
    }

    /// Whether some stage from `from` on takes the unit, were it admitted to that stage's pass.
    pub(super) fn goes_on(&self, plan: &Plan, from: usize) -> bool {
        plan.stages[from..].iter().any(|stage| {
            let mut there = self.clone();
            if stage.pass > 0 {
                there.admit(stage.pass);
            }
            there.is_due(plan, stage)
        })
    }

    fn meets(&self, when: &Condition) -> bool {
        let draft = self.state.as_ref().and_then(|state| state.draft.as_ref());
        let value = |field: &String| draft.and_then(|draft| draft.values.get(field));
        let labels = when
            .labels
            .iter()
            .all(|(field, label)| value(field).is_some_and(|value| value.label == *label));
        let margins = when.margin_below_ppm.iter().all(|(field, most)| {
            let margin = value(field).map_or(Some(0), |value| value.margin_ppm);
            margin.is_some_and(|margin| margin < *most)
        });
        let abstains = draft.is_none_or(|draft| draft.status == Status::Abstained);
        labels && margins && when.abstained.is_none_or(|wanted| wanted == abstains)
    }

    /// The fact of a unit that no further stage takes.
    ///
    /// A field that no stage asked about leaves the unit abstaining: it was never decided.
    pub(super) fn finish(mut self, plan: &Plan, units: &dyn Units) -> Fact {
        let path = std::mem::take(&mut self.state().path);
        let draft = self.state().draft.take();
        let last = path
            .last()
            .map_or(crate::plan::MAP_STAGE, |step| &step.stage);
        let mut fact = match draft {
            Some(draft) => draft,
            None => self.bare(plan, units, Status::Abstained, last, None),
        };
        let missing = plan
            .fields
            .iter()
            .find(|field| !fact.values.contains_key(&field.name));
        if let Some(field) = missing {
            fact.status = Status::Abstained;
            fact.reason = Some(format!(
                "not asked: no stage that it took asks {}",
                field.name
            ));
        }
        Self::complete(fact, path)
    }

    /// The fact of a unit that lacks a relation on which an answer of a stage depends: it abstains, and
    /// what it was asked before stands beside it.
    pub(super) fn lack(
        mut self,
        plan: &Plan,
        units: &dyn Units,
        stage: &str,
        reason: String,
    ) -> Fact {
        let path = std::mem::take(&mut self.state().path);
        let mut fact = match self.state().draft.take() {
            Some(draft) => draft,
            None => self.bare(plan, units, Status::Abstained, stage, None),
        };
        fact.status = Status::Abstained;
        fact.stage = stage.to_owned();
        fact.reason = Some(reason);
        Self::complete(fact, path)
    }

    /// The fact of a unit that ends at a stage for a reason of its own.
    pub(super) fn end(
        mut self,
        plan: &Plan,
        units: &dyn Units,
        status: Status,
        stage: &str,
        reason: String,
    ) -> Fact {
        let path = std::mem::take(&mut self.state().path);
        let fact = self.bare(plan, units, status, stage, Some(reason));
        Self::complete(fact, path)
    }

    fn bare(
        &self,
        plan: &Plan,
        units: &dyn Units,
        status: Status,
        stage: &str,
        reason: Option<String>,
    ) -> Fact {
        // Without columns where the record cannot be read again.
        match self.kept.read(units) {
            Ok(unit) => map::unanswered(plan, &unit, status, stage, reason),
            Err(_) => Fact::bare(
                self.kept.id.clone(),
                self.kept.place.ordinal,
                self.kept.source_hash,
                status,
                stage,
                reason,
            ),
        }
    }

    /// Puts the path into a fact, with what all its steps cost together.
    fn complete(mut fact: Fact, path: Vec<Step>) -> Fact {
        let mut asked = path.iter().filter(|step| step.backend.is_some()).peekable();
        if asked.peek().is_some() {
            fact.remembered = true;
            (fact.usage, fact.cost) = (UnitUsage::default(), UnitUsage::default());
        }
        for step in asked {
            fact.remembered &= step.remembered;
            fact.cost += step.cost;
            if !step.remembered {
                fact.usage += step.cost;
            }
            fact.backend.clone_from(&step.backend);
        }
        fact.path = path;
        fact
    }
}
