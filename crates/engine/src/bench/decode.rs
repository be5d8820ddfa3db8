//! The decoding benchmark: the same prompts continued with few and with many of them in flight.
//!
//! All runs share one process, one model and one sealed prefix, and take turns. The clock runs from
//! the first prompt to the last token; only sealing the prefix is left out. Rows are counted at
//! layer 0 and must add up, and every number of slots must write the same texts.

use std::time::Instant;

use kvcache::{Namespace, Prefix};
use serde::{Deserialize, Serialize};

use super::BenchError;
use super::figures::Spread;
use super::machine::Machine;
use super::report::ModelNote;
use super::work::Work;
use crate::model::Model;
use crate::runner::{GenerateRequest, Progress, Runner, RunnerOptions};

/// Version of the file's form.
const SCHEMA: u32 = 1;

/// What is to be measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodeTask {
    /// Prefix and prompts; the questions are not asked.
    pub work: Work,
    /// Tokens to generate for each prompt.
    pub output_len: usize,
    /// Sequences in flight at most, one run for each in every round.
    pub slots: Vec<usize>,
    /// Rounds.
    pub rounds: usize,
    /// Tokens that one forward aims for.
    pub batch_tokens: usize,
}

/// One run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecodeSample {
    /// Sequences in flight at most.
    pub slots: usize,
    /// Microseconds from the first prompt to the last token.
    pub whole_us: u64,
    /// For each prompt, microseconds from the start of the run to its last token.
    pub done_us: Vec<u64>,
    /// Tokens generated.
    pub generated: u64,
    /// Rows that entered layer 0.
    pub rows: u64,
    /// Forwards of the model.
    pub forwards: u64,
    /// Texts that are not those of the first run.
    pub texts_differing: u64,
}

/// The runs with one number of slots.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DecodeFigures {
    /// Sequences in flight at most.
    pub slots: usize,
    /// Tokens generated per second, prompts included in the time.
    pub tokens_per_s: Spread,
    /// Ratio of the medians to that of one slot, where one slot was measured.
    pub times_one_slot: Option<f64>,
    /// Milliseconds of one forward with all that belongs to it, on average over a run.
    pub forward_ms: Spread,
    /// Forwards of one run.
    pub forwards: u64,
    /// Rows of one run.
    pub rows: u64,
    /// Over all runs, texts that are not those of the first run.
    pub texts_differing: u64,
}

/// The work as the report tells it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DecodeWorkNote {
    /// Tokens of the sealed prefix behind which every prompt stands.
    pub prefix_tokens: usize,
    /// Tokens of a prompt after it.
    pub prompt_tokens: Option<Spread>,
    /// Tokens generated for each prompt.
    pub output_tokens: usize,
    /// Prompts.
    pub requests: usize,
    /// Tokens that one forward aims for.
    pub batch_tokens: usize,
}

/// One finished benchmark.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DecodeReport {
    /// `decode`.
    pub benchmark: String,
    /// Version of this form.
    pub schema: u32,
    /// Version of the engine.
    pub engine: String,
    /// Where it ran.
    pub machine: Machine,
    /// The model.
    pub model: ModelNote,
    /// The work.
    pub work: DecodeWorkNote,
    /// Rounds.
    pub rounds: usize,
    /// Per number of slots, in the order asked for.
    pub figures: Vec<DecodeFigures>,
    /// One per run, in the order in which they ran.
    pub samples: Vec<DecodeSample>,
}

/// Runs every number of slots in every round; `tick` is told of each run.
///
/// # Errors
/// `Nothing` where an amount is 0, `NoRoom` for a prompt that does not fit, `NoAnswer` for a text
/// that breaks off, `Counters` where rows do not add up, and what stops the engine.
pub fn run(
    model: Box<dyn Model>,
    task: &DecodeTask,
    tick: &mut dyn FnMut(usize, &DecodeSample),
) -> Result<Vec<DecodeSample>, BenchError> {
    for (what, amount) in [
        ("the number of tokens to generate", task.output_len),
        ("the number of rounds", task.rounds),
        ("the number of numbers of slots", task.slots.len()),
        (
            "a number of slots",
            task.slots.iter().copied().min().unwrap_or(1),
        ),
        ("the number of tokens per forward", task.batch_tokens),
    ] {
        if amount == 0 {
            return Err(BenchError::Nothing { what });
        }
    }
    task.work
        .check_room(model.config().context, task.output_len)?;
    let options = RunnerOptions {
        batch_tokens: task.batch_tokens,
        ..RunnerOptions::default()
    };
    let mut runner = Runner::new(model, options)?;
    let (prefix, _) = runner.seal(&Namespace([0xD0; 32]), &task.work.prefix)?;
    let most = task.slots.iter().copied().max().unwrap_or(1);
    // Buffers grow and pages are touched before the clock starts; what is written is the yardstick.
    let (_, texts) = one_run(&mut runner, &prefix, task, most)?;
    let mut samples = Vec::with_capacity(task.rounds * task.slots.len());
    for round in 1..=task.rounds {
        for &slots in &task.slots {
            let (mut sample, written) = one_run(&mut runner, &prefix, task, slots)?;
            let pairs = texts.iter().zip(&written);
            sample.texts_differing = pairs.filter(|(a, b)| a != b).count() as u64;
            tick(round, &sample);
            samples.push(sample);
        }
    }
    Ok(samples)
}

/// Continues every prompt once; returns the texts as well.
fn one_run(
    runner: &mut Runner,
    prefix: &Prefix,
    task: &DecodeTask,
    slots: usize,
) -> Result<(DecodeSample, Vec<Vec<u32>>), BenchError> {
    let prompts = &task.work.records;
    let requests: Vec<GenerateRequest<'_>> = prompts
        .iter()
        .map(|tokens| GenerateRequest {
            tokens,
            tokens_max: task.output_len as u32,
            stop: &[],
        })
        .collect();
    let mut texts = vec![Vec::with_capacity(task.output_len); prompts.len()];
    let mut done_us = vec![0; prompts.len()];
    let (rows, forwards) = (runner.model().rows_forwarded(), runner.model().forwards());
    let started = Instant::now();
    let prefix = Some(prefix);
    runner.generate_many(
        prefix,
        &requests,
        slots,
        &|| true,
        &mut |at, progress| match progress {
            Progress::Token(token) => texts[at].push(token),
            Progress::Ended(_) => done_us[at] = started.elapsed().as_micros() as u64,
        },
    )?;
    if let Some(record) = texts.iter().position(|text| text.len() != task.output_len) {
        return Err(BenchError::NoAnswer {
            arm: "decode",
            record,
        });
    }
    let sample = DecodeSample {
        slots,
        whole_us: done_us.iter().copied().max().unwrap_or(0),
        done_us,
        generated: texts.iter().map(|text| text.len() as u64).sum(),
        rows: runner.model().rows_forwarded() - rows,
        forwards: runner.model().forwards() - forwards,
        texts_differing: 0,
    };
    // The last token of each text enters no layer.
    let own: usize = prompts.iter().map(|prompt| prompt.len()).sum();
    let logical = (own + prompts.len() * (task.output_len - 1)) as u64;
    if sample.rows != logical {
        return Err(BenchError::Counters {
            arm: "decode",
            computed: sample.rows,
            cached: 0,
            logical,
        });
    }
    Ok((sample, texts))
}

impl DecodeReport {
    /// Draws the figures from the samples.
    pub fn of(task: &DecodeTask, model: ModelNote, samples: Vec<DecodeSample>) -> Self {
        let mut figures: Vec<DecodeFigures> = task
            .slots
            .iter()
            .filter_map(|&slots| DecodeFigures::of(slots, &samples))
            .collect();
        let one = figures.iter().find(|figures| figures.slots == 1);
        if let Some(one) = one.map(|figures| figures.tokens_per_s.median) {
            for figures in &mut figures {
                figures.times_one_slot = Some(figures.tokens_per_s.median / one);
            }
        }
        let work = &task.work;
        Self {
            benchmark: "decode".into(),
            schema: SCHEMA,
            engine: env!("CARGO_PKG_VERSION").into(),
            machine: Machine::this(),
            model,
            work: DecodeWorkNote {
                prefix_tokens: work.prefix.len(),
                prompt_tokens: Spread::of(work.records.iter().map(|tokens| tokens.len() as f64)),
                output_tokens: task.output_len,
                requests: work.records.len(),
                batch_tokens: task.batch_tokens,
            },
            rounds: task.rounds,
            figures,
            samples,
        }
    }

    /// Texts that are not those of the first run, over all runs.
    pub fn texts_differing(&self) -> u64 {
        let differing = self.figures.iter().map(|figures| figures.texts_differing);
        differing.sum()
    }
}

impl DecodeFigures {
    fn of(slots: usize, samples: &[DecodeSample]) -> Option<Self> {
        let runs = || samples.iter().filter(|sample| sample.slots == slots);
        // A clock of microseconds may see no time pass over a few tiny prompts.
        let us = |sample: &DecodeSample| sample.whole_us.max(1) as f64;
        Some(Self {
            slots,
            tokens_per_s: Spread::of(runs().map(|run| run.generated as f64 * 1e6 / us(run)))?,
            times_one_slot: None,
            forward_ms: Spread::of(runs().map(|run| us(run) / 1e3 / run.forwards as f64))?,
            forwards: runs().next()?.forwards,
            rows: runs().next()?.rows,
            texts_differing: runs().map(|run| run.texts_differing).sum(),
        })
    }
}
