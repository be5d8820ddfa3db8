//! What the answer to a canary counts as.
//!
//! A reply without the declared shape is a miss, for a sound rubric gets none; a backend that gave no
//! reply says nothing about the rubric. Must not know where canaries come from.

use std::collections::BTreeMap;

use super::Canary;
use crate::infer::FailReason::{Schema, Truncated};
use crate::infer::{Answer, InferJob, Labels, UnitOutcome};
use crate::ops::map;
use crate::plan::{Abstention, Plan, StageOp};
use crate::text::UnitText;

/// What a canary's answer counts as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Right.
    Hit,
    /// Wrong.
    Miss,
    /// Neither: it abstained and the plan ignores that, or there was no answer to judge.
    Ignored,
}

/// Judges what became of a canary in a job; also the labels that it got, by field.
pub(crate) fn judge(
    plan: &Plan,
    canary: &Canary,
    shown: &UnitText,
    job: &InferJob<'_>,
    outcome: &UnitOutcome,
) -> (Verdict, BTreeMap<String, String>) {
    let mut got = BTreeMap::new();
    let answers = match outcome {
        UnitOutcome::Answered(answers) => answers,
        UnitOutcome::Failed { reason, .. } if [Schema, Truncated].contains(reason) => {
            return (Verdict::Miss, got);
        }
        _ => return (Verdict::Ignored, got),
    };
    if map::check(job.questions, shown, answers).is_err() {
        return (Verdict::Miss, got);
    }
    let rule = plan
        .canary
        .as_ref()
        .map_or(Abstention::Miss, |spec| spec.abstention);
    let (mut wrong, mut doubtful) = (false, false);
    for (question, answer) in job.questions.iter().zip(answers) {
        let Some(expected) = canary.expect.get(&question.field) else {
            continue;
        };
        let label = chosen(plan, &question.field, &question.labels, answer);
        wrong |= label.as_ref().is_some_and(|label| label != expected);
        doubtful |= label.is_none();
        let label = label.unwrap_or_else(|| String::from("abstained"));
        got.insert(question.field.clone(), label);
    }
    let verdict = match (wrong, doubtful, rule) {
        (true, ..) | (_, true, Abstention::Miss) => Verdict::Miss,
        (false, true, Abstention::Ignore) => Verdict::Ignored,
        _ => Verdict::Hit,
    };
    (verdict, got)
}

/// The label that an answer comes to under the plan's thresholds; none where it abstains.
fn chosen(plan: &Plan, name: &str, labels: &Labels, answer: &Answer) -> Option<String> {
    let Labels::Fixed(labels) = labels else {
        return None;
    };
    let best = labels.get(answer.chosen as usize).cloned();
    if let Some(field) = plan.field(name) {
        let sure = answer.margin_ppm >= field.abstain_below_margin_ppm
            && answer.label_mass_ppm >= field.label_mass_min_ppm;
        return best.filter(|_| sure);
    }
    match plan.stage(name).map(|stage| &stage.op) {
        Some(StageOp::Select(select)) => match &select.unclear {
            Some(unclear) if answer.margin_ppm < unclear.margin_below_ppm => {
                Some(unclear.option.clone())
            }
            _ => best,
        },
        _ => best,
    }
}
