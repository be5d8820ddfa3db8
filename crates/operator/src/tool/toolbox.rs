//! What a run may call, and by which clock.

use super::{Clock, Kernel, OpenTool, ToolBudget};
use crate::error::OperatorError;
use crate::id::ContentHash;
use crate::plan::{Plan, StageOp, ToolSpec};

/// The tools that a run may call.
pub struct Toolbox<'a> {
    /// Each with its permission.
    pub open: Vec<OpenTool>,
    /// The caller's clocks.
    pub clock: &'a dyn Clock,
}

impl<'a> Toolbox<'a> {
    /// The kernel of one run; the plan bounds it, and the source's hash spreads its retries.
    pub(crate) fn kernel(self, plan: &Plan, source_hash: ContentHash) -> Kernel<'a> {
        let now_us = self.clock.now_us();
        let budget = ToolBudget {
            calls_max: plan.budget.tool_calls_max,
            until_us: plan
                .budget
                .seconds_max
                .map(|seconds| now_us.saturating_add(seconds.saturating_mul(1_000_000))),
            ..ToolBudget::default()
        };
        let (seed, _) = source_hash
            .as_bytes()
            .split_first_chunk()
            .unwrap_or((&[0; 8], &[]));
        Kernel::new(self.open, budget, u64::from_le_bytes(*seed), self.clock)
    }
}

/// Refuses a plan that calls a tool which is not open.
///
/// # Errors
/// `ToolNotAllowed`, naming the stage and the flag.
pub(crate) fn suffice(plan: &Plan, toolbox: Option<&Toolbox<'_>>) -> Result<(), OperatorError> {
    for stage in &plan.stages {
        let StageOp::Tool(call) = &stage.op else {
            continue;
        };
        let is_open = |toolbox: &Toolbox<'_>| {
            let mut open = toolbox.open.iter();
            open.any(|open| open.spec.name == call.tool)
        };
        if !toolbox.is_some_and(is_open) {
            let spec = plan.tool(&call.tool);
            return Err(OperatorError::ToolNotAllowed {
                stage: stage.name.clone(),
                tool: call.tool.clone(),
                reach: spec.map(ToolSpec::reach).unwrap_or_default(),
            });
        }
    }
    Ok(())
}
