//! A small measured sample: some units are really asked, and their answers thrown away.
//!
//! One unit goes first, with the rubric; the others then show what a unit alone takes.

use serde::{Deserialize, Serialize};

use crate::error::OperatorError;
use crate::infer::{CancelFlag, Infer, InferJob, JobUsage};
use crate::ops::{Place, Units};
use crate::plan::{Plan, Turn};
use crate::text::{UnitText, render_for};

/// What a sample took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// Units that were asked.
    pub units: u64,
    /// Microseconds of the first, with the rubric.
    pub first_micros: u64,
    /// Tokens computed for it and the rubric.
    pub first_tokens: u64,
    /// Microseconds of the others together.
    pub rest_micros: u64,
    /// Tokens computed for them.
    pub rest_tokens: u64,
}

impl Sample {
    /// Microseconds that so many tokens after the rubric take; none where nothing was measured.
    pub fn micros(&self, tokens: u64) -> Option<u64> {
        let (micros, measured) = match self.rest_tokens {
            0 => (self.first_micros, self.first_tokens),
            some => (self.rest_micros, some),
        };
        let scaled = u128::from(tokens) * u128::from(micros);
        u64::try_from(scaled.checked_div(u128::from(measured))?).ok()
    }
}

/// Asks some of these units, evenly spread, under a turn; `clock` is the caller's, in microseconds.
///
/// # Errors
/// Reading the units, and the backend's own.
pub fn measure(
    plan: &Plan,
    units: &dyn Units,
    turn: &Turn,
    asked: &[Place],
    count: usize,
    infer: &mut dyn Infer,
    clock: &dyn Fn() -> u64,
) -> Result<Sample, OperatorError> {
    let count = count.min(asked.len());
    let mut texts: Vec<UnitText> = Vec::new();
    for index in 0..count {
        let unit = units.read(asked[index * asked.len() / count])?;
        texts.extend(render_for(plan, &unit, &[], turn.evidence));
    }
    let rest = texts.split_off(texts.len().min(1));
    let mut ask = |texts: &Vec<UnitText>| -> Result<(u64, JobUsage), OperatorError> {
        if texts.is_empty() {
            return Ok((0, JobUsage::default()));
        }
        let started = clock();
        let job = InferJob {
            rubric: &turn.rubric,
            questions: &turn.questions,
            units: texts,
            cancel: &CancelFlag::new(),
        };
        let usage = infer.infer(job, &mut |_| {})?;
        Ok((clock().saturating_sub(started), usage))
    };
    let (first_micros, first) = ask(&texts)?;
    let (rest_micros, others) = ask(&rest)?;
    Ok(Sample {
        units: (texts.len() + rest.len()) as u64,
        first_micros,
        first_tokens: first.computed_tokens,
        rest_micros,
        rest_tokens: others.computed_tokens,
    })
}
