//! The seam: what the operator asks of a backend, and what it gets back.
//!
//! The trait lives with its caller. The signature is policy: one rubric, many units, answers pushed
//! forward and named by their unit; no session, no chat, no reply matched by position. This file
//! must not know tokens, KV, models or HTTP.

use std::error::Error;
use std::ops::AddAssign;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};

use crate::compose::Compose;
use crate::id::{ContentHash, UnitId};
use crate::text::{TextProblem, UnitText};

/// One million: the whole, in parts per million.
pub const PPM: u32 = 1_000_000;

/// The instruction that every unit of a job shares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rubric {
    /// The full instruction: task, fields, labels and their meanings, answer format.
    pub system: String,
    /// Hash of `system`.
    pub hash: ContentHash,
}

/// One label to be chosen for every unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// Name of the field that the label fills.
    pub field: String,
    /// What the assistant has already written before the label, such as `"kind: "`. The answer text
    /// up to a question is every earlier scaffold, its chosen label and a newline, in order.
    pub scaffold: String,
    /// The labels to choose from.
    pub labels: Labels,
    /// Whether the number of labels is the unit's own number of lines.
    pub line_count: bool,
}

/// The labels of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Labels {
    /// The same labels for every unit, at least two.
    Fixed(Vec<String>),
    /// The unit's own numbered lines, `"1"` to `"n"`; `n` is at least 1.
    Lines,
}

impl Labels {
    /// The labels for one unit, in the order in which probabilities are given.
    pub fn of(&self, unit: &UnitText) -> Vec<String> {
        match self {
            Self::Fixed(labels) => labels.clone(),
            Self::Lines => unit
                .lines
                .iter()
                .map(|line| line.number.to_string())
                .collect(),
        }
    }
}

/// Tells a running job to stop; may be set from another thread. A clone is the same flag.
#[derive(Debug, Clone, Default)]
pub struct CancelFlag(Arc<Flag>);

#[derive(Debug, Default)]
struct Flag {
    set: AtomicBool,
    /// Set where the whole is stopped of which this is a part.
    above: Option<Arc<Flag>>,
}

impl Flag {
    fn is_set(&self) -> bool {
        let above = self.above.as_ref();
        self.set.load(Ordering::Acquire) || above.is_some_and(|above| above.is_set())
    }
}

impl CancelFlag {
    /// A flag that is not set.
    pub fn new() -> Self {
        Self::default()
    }

    /// A flag for a part of the work: it is set with this one, and can be set alone.
    pub fn part(&self) -> Self {
        Self(Arc::new(Flag {
            set: AtomicBool::new(false),
            above: Some(Arc::clone(&self.0)),
        }))
    }

    /// Sets the flag for ever.
    pub fn cancel(&self) {
        self.0.set.store(true, Ordering::Release);
    }

    /// Whether the flag is set.
    pub fn is_cancelled(&self) -> bool {
        self.0.is_set()
    }
}

/// The units of a job, each read when it is wanted: a job of any length holds only what is under way.
pub trait UnitTexts: Sync {
    /// How many there are.
    fn len(&self) -> usize;

    /// Whether there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The id of the unit at a place, from 0.
    ///
    /// # Panics
    /// If there is no such place.
    fn id(&self, place: usize) -> &UnitId;

    /// Reads the text of the unit at a place; the same whenever it is read.
    ///
    /// # Errors
    /// [`TextProblem`] where its record cannot be read any more: the unit has failed so.
    ///
    /// # Panics
    /// If there is no such place.
    fn text(&self, place: usize) -> Result<UnitText, TextProblem>;
}

/// Texts that lie in memory.
impl UnitTexts for Vec<UnitText> {
    fn len(&self) -> usize {
        self.as_slice().len()
    }

    fn id(&self, place: usize) -> &UnitId {
        &self[place].unit_id
    }

    fn text(&self, place: usize) -> Result<UnitText, TextProblem> {
        Ok(self[place].clone())
    }
}

/// One rubric asked of many units.
#[derive(Clone, Copy)]
pub struct InferJob<'a> {
    /// The shared instruction.
    pub rubric: &'a Rubric,
    /// The questions, answered in order for every unit.
    pub questions: &'a [Question],
    /// The units; ids are unique.
    pub units: &'a dyn UnitTexts,
    /// Set when the caller wants no more answers.
    pub cancel: &'a CancelFlag,
}

/// The distribution over the labels of one question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// Parts per million per label, in label order; they sum to exactly one million.
    pub probabilities: Vec<u32>,
    /// Share of the model's whole probability that fell on any label, in parts per million.
    pub label_mass_ppm: u32,
    /// Index of the most probable label; the lowest of equals.
    pub chosen: u32,
    /// Best minus second best, in parts per million; one million when there is one label.
    pub margin_ppm: u32,
}

impl Answer {
    /// Completes an answer from probabilities in parts per million.
    ///
    /// `None` where there is no label, the sum is not one million, or the mass exceeds one million.
    pub fn from_ppm(probabilities: Vec<u32>, label_mass_ppm: u32) -> Option<Self> {
        let sum: u64 = probabilities.iter().copied().map(u64::from).sum();
        if sum != u64::from(PPM) || label_mass_ppm > PPM {
            return None;
        }
        let (mut chosen, mut best, mut second) = (0_u32, 0_u32, 0_u32);
        for (index, &share) in (0_u32..).zip(&probabilities) {
            if share > best || index == 0 {
                second = best;
                (chosen, best) = (index, share);
            } else if share > second {
                second = share;
            }
        }
        Some(Self {
            probabilities,
            label_mass_ppm,
            chosen,
            margin_ppm: best - second,
        })
    }

    /// Rounds weights to parts per million by largest remainder and completes the answer.
    ///
    /// Weights need not sum to one. `None` where there is no label, a weight is negative or not
    /// finite, or all are zero; `label_mass` is clamped to `0..=1`.
    pub fn from_weights(weights: &[f64], label_mass: f64) -> Option<Self> {
        let sum: f64 = weights.iter().sum();
        if weights.iter().any(|w| !w.is_finite() || *w < 0.0) || !sum.is_finite() || sum <= 0.0 {
            return None;
        }
        if label_mass.is_nan() {
            return None;
        }
        let scaled: Vec<f64> = weights.iter().map(|w| w / sum * f64::from(PPM)).collect();
        let mut shares: Vec<u32> = scaled.iter().map(|s| s.floor() as u32).collect();
        let given: u32 = shares.iter().sum();
        let mut order: Vec<usize> = (0..scaled.len()).collect();
        // A stable sort keeps the lower index first among equal remainders.
        order.sort_by(|&a, &b| scaled[b].fract().total_cmp(&scaled[a].fract()));
        if given > PPM {
            // Only rounding of the division itself can overshoot; the largest share pays for it.
            let largest = (0..shares.len()).max_by_key(|&index| shares[index])?;
            shares[largest] -= given - PPM;
        }
        let missing = PPM.saturating_sub(given) as usize;
        for &index in order.iter().cycle().take(missing) {
            shares[index] += 1;
        }
        let mass = (label_mass.clamp(0.0, 1.0) * f64::from(PPM)).round() as u32;
        Self::from_ppm(shares, mass)
    }
}

/// Why a unit has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailReason {
    /// The unit does not fit.
    TooLarge,
    /// The reply does not have the declared shape.
    Schema,
    /// The reply was cut off.
    Truncated,
    /// The backend failed on this unit.
    Backend,
    /// The record itself cannot be read.
    Malformed,
    /// The backend could not be reached, or said to try again later and was out of tries.
    Transport,
    /// The backend refuses to serve whatever is asked: no key, no credit, no permission.
    Denied,
    /// The unit's own time was over before it could be asked.
    Deadline,
}

impl FailReason {
    /// The reason as it is written in facts.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TooLarge => "too_large",
            Self::Schema => "schema",
            Self::Truncated => "truncated",
            Self::Backend => "backend",
            Self::Malformed => "malformed",
            Self::Transport => "transport",
            Self::Denied => "denied",
            Self::Deadline => "deadline",
        }
    }
}

/// What became of one unit of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnitOutcome {
    /// One answer per question, in question order.
    Answered(Vec<Answer>),
    /// No answer, and why.
    Failed {
        /// The kind of failure.
        reason: FailReason,
        /// What happened, for a person.
        message: String,
    },
    /// Stopped while it ran.
    Cancelled,
    /// Never started.
    NotRun,
}

impl From<TextProblem> for UnitOutcome {
    fn from(problem: TextProblem) -> Self {
        Self::Failed {
            reason: problem.reason,
            message: problem.message,
        }
    }
}

/// Work spent on one unit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitUsage {
    /// Logical prompt tokens: `computed_tokens + cached_tokens`.
    pub prompt_tokens: u64,
    /// Tokens that a forward computed.
    pub computed_tokens: u64,
    /// Tokens whose keys and values were reused.
    pub cached_tokens: u64,
    /// Microseconds from start to completion.
    pub micros: u64,
}

impl AddAssign for UnitUsage {
    fn add_assign(&mut self, other: Self) {
        self.prompt_tokens += other.prompt_tokens;
        self.computed_tokens += other.computed_tokens;
        self.cached_tokens += other.cached_tokens;
        self.micros += other.micros;
    }
}

/// The result of one unit, named by its id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completion {
    /// The unit.
    pub unit_id: UnitId,
    /// What became of it.
    pub outcome: UnitOutcome,
    /// What it cost.
    pub usage: UnitUsage,
}

/// Work spent on a whole job; counts of this job alone, never since the process started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobUsage {
    /// Logical prompt tokens: always `computed_tokens + cached_tokens`.
    pub prompt_tokens: u64,
    /// Prompt tokens that a forward computed, the rubric's first computation included.
    pub computed_tokens: u64,
    /// Prompt tokens whose keys and values were reused.
    pub cached_tokens: u64,
    /// Length of the shared prefix.
    pub prefix_tokens: u64,
    /// Prefix tokens computed in this job: `prefix_tokens` when cold, 0 when warm.
    pub prefix_computed_tokens: u64,
    /// Units forked from the prefix.
    pub forks: u64,
    /// Positions whose logits were read.
    pub scored_positions: u64,
    /// Tokens produced by decoding, scored labels not included.
    pub generated_tokens: u64,
    /// Forward passes.
    pub forwards: u64,
    /// Units that a backend computed a second time, more exactly, since the first answer was unclear.
    #[serde(default)]
    pub repeated_units: u64,
    /// Tokens that this forwarded again; no part of `computed_tokens`.
    #[serde(default)]
    pub repeated_tokens: u64,
}

impl AddAssign for JobUsage {
    fn add_assign(&mut self, other: Self) {
        self.prompt_tokens += other.prompt_tokens;
        self.computed_tokens += other.computed_tokens;
        self.cached_tokens += other.cached_tokens;
        self.prefix_tokens += other.prefix_tokens;
        self.prefix_computed_tokens += other.prefix_computed_tokens;
        self.forks += other.forks;
        self.scored_positions += other.scored_positions;
        self.generated_tokens += other.generated_tokens;
        self.forwards += other.forwards;
        self.repeated_units += other.repeated_units;
        self.repeated_tokens += other.repeated_tokens;
    }
}

/// Which backend answers; part of every fact's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendIdentity {
    /// Short name, such as `"qwen2.5-coder-0.5b"`.
    pub name: String,
    /// Hash over model file, tokenizer, template, numerics tier and prompt format version.
    pub digest: [u8; 32],
    /// Whether answers come from a recording or a script and not from a model.
    pub simulated: bool,
    /// One line for a person.
    pub describe: String,
}

/// Why a whole job stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InferError {
    /// The shared instruction does not fit.
    #[error("the rubric is {tokens} tokens, at most {tokens_max} fit; shorten it")]
    RubricTooLong {
        /// Tokens of the rubric.
        tokens: u64,
        /// Most that fit.
        tokens_max: u64,
    },
    /// The backend cannot do the job as asked; says why and what to change.
    #[error("the job was refused: {0}")]
    Refused(String),
    /// The backend broke while it ran.
    #[error("the backend failed")]
    Failed(#[source] Box<dyn Error + Send + Sync>),
}

/// Answers units under one rubric.
pub trait Infer {
    /// Which backend this is; constant for its life.
    fn identity(&self) -> &BackendIdentity;

    /// Answers every unit, pushing each result to `sink` as it completes, in any order.
    ///
    /// Each unit is completed at most once; units without a completion count as not run. A unit's
    /// answer must not depend on its neighbours in the job.
    ///
    /// # Errors
    /// [`InferError`] where the job as a whole cannot start or go on; what was pushed before
    /// stands.
    fn infer(
        &mut self,
        job: InferJob<'_>,
        sink: &mut dyn FnMut(Completion),
    ) -> Result<JobUsage, InferError>;

    /// The same backend as a writer of texts; none, unless it says otherwise, for one that only
    /// answers.
    fn as_compose(&mut self) -> Option<&mut dyn Compose> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::CancelFlag;

    #[test]
    fn a_part_is_cancelled_with_the_whole_and_the_whole_not_with_a_part() {
        let whole = CancelFlag::new();
        let (part, other) = (whole.part(), whole.part());
        part.cancel();
        assert!(part.is_cancelled() && part.part().is_cancelled());
        assert!(!whole.is_cancelled() && !other.is_cancelled());
        whole.clone().cancel();
        assert!(whole.is_cancelled() && other.is_cancelled());
    }
}
