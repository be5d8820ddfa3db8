//! Who is asked in a run: the model, the larger one, and the tools.
//!
//! Must not know units, or what is asked.

use crate::breaker::{Guard, Guarded};
use crate::error::OperatorError;
use crate::infer::Infer;
use crate::plan::{AUDIT_STAGE, AuditSpec, Auditor, Plan, Stage};
use crate::store::Withheld;
use crate::tool::Kernel;

/// Who is asked, and what stands between.
pub(super) struct Backends<'b> {
    pub(super) main: &'b mut dyn Infer,
    pub(super) larger: Option<&'b mut dyn Infer>,
    pub(super) guard: Guard<'b>,
    /// The store, where answers are not trusted before the canaries are.
    pub(super) withheld: Option<&'b Withheld<'b>>,
    /// What tool stages call.
    pub(super) kernel: Option<Kernel<'b>>,
}

impl<'b> Backends<'b> {
    /// The backend that a stage asks.
    fn of(&mut self, stage: &Stage) -> Result<&mut dyn Infer, OperatorError> {
        match (&mut self.larger, stage.larger()) {
            (_, false) => Ok(self.main),
            (Some(larger), true) => Ok(*larger),
            (None, true) => Err(OperatorError::NoLargerModel {
                stage: stage.name.clone(),
            }),
        }
    }

    /// The same backend behind the guard.
    pub(super) fn watch(&mut self, stage: &Stage) -> Result<Guarded<'_, 'b>, OperatorError> {
        let infer: &mut dyn Infer = match (&mut self.larger, stage.larger()) {
            (_, false) => self.main,
            (Some(larger), true) => *larger,
            (None, true) => {
                return Err(OperatorError::NoLargerModel {
                    stage: stage.name.clone(),
                });
            }
        };
        Ok(self.guard.watch(infer))
    }

    /// The backend that reads parts of what a tool answered, behind the guard; canaries are records, so
    /// none is planted.
    pub(super) fn watch_parts(&mut self) -> Guarded<'_, 'b> {
        self.guard.watch_plainly(self.main)
    }

    /// The backend that audits, behind the guard; no canaries are planted for it, since they are known to
    /// the plan's own rubric.
    pub(super) fn watch_auditor(
        &mut self,
        spec: &AuditSpec,
    ) -> Result<Guarded<'_, 'b>, OperatorError> {
        let infer: &mut dyn Infer = match (&mut self.larger, &spec.auditor) {
            (Some(larger), Auditor::Model { .. }) => *larger,
            (None, Auditor::Model { .. }) => {
                return Err(OperatorError::NoLargerModel {
                    stage: AUDIT_STAGE.to_owned(),
                });
            }
            _ => self.main,
        };
        Ok(self.guard.watch_plainly(infer))
    }

    /// Whether any of them replays or scripts its answers.
    pub(super) fn simulated(&self) -> bool {
        let larger = self.larger.as_ref();
        self.main.identity().simulated || larger.is_some_and(|larger| larger.identity().simulated)
    }

    /// Refuses a plan that asks for a larger model where there is none.
    pub(super) fn suffice(&mut self, plan: &Plan) -> Result<(), OperatorError> {
        plan.stages
            .iter()
            .try_for_each(|stage| self.of(stage).map(|_| ()))?;
        match &plan.audit {
            Some(spec) => self.watch_auditor(spec).map(|_| ()),
            None => Ok(()),
        }
    }
}
