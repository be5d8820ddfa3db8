//! Runs one arm in this process and counts what it did.
//!
//! Counts come from layer 0 and are taken as differences around the arm; they must add up to the
//! tokens of all prompts, or there is no sample. At most `concurrency` records are in flight: a
//! record enters when an earlier one leaves, and the runner packs those that are in.

use std::cell::Cell;
use std::time::Instant;

use kvcache::{Namespace, Prefix};
use serde::{Deserialize, Serialize};

use super::work::Work;
use super::{Arm, BenchError, machine};
use crate::model::Model;
use crate::runner::{
    Ending, GenerateRequest, Progress, Reuse, Runner, RunnerOptions, ScoreRequest, ScoreResult,
};

/// What one process is asked to measure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// The way.
    pub arm: Arm,
    /// The work.
    pub work: Work,
    /// Tokens to generate per record; 0 scores the questions instead.
    pub output_len: usize,
    /// Records in flight at most.
    pub concurrency: usize,
    /// Tokens that one forward aims for.
    pub batch_tokens: usize,
}

/// Answers to one record's questions, or the text that was generated instead.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordAnswer {
    /// Parts per million of each label of each question.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels_ppm: Vec<Vec<u32>>,
    /// Tokens generated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tokens: Vec<u32>,
    /// What a server wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// Tokens of an arm; the first two add up to the third.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tokens {
    /// Rows that entered layer 0.
    pub computed: u64,
    /// Rows that a record found in a prefix and that were not computed for it.
    pub cached: u64,
    /// Rows of all prompts, each with its prefix.
    pub logical: u64,
    /// Of the computed ones, rows of prefixes that were sealed.
    pub sealed: u64,
}

/// One arm in one process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The way.
    pub arm: Arm,
    /// Microseconds until the model was loaded; set by whoever loads it.
    pub load_us: u64,
    /// Microseconds spent on sealing prefixes.
    pub prefix_us: u64,
    /// Microseconds of all the rest, from the first record to the last answer.
    pub records_us: u64,
    /// For each record, microseconds from its entry to its answer.
    pub latency_us: Vec<u64>,
    /// For each answer in order of completion, microseconds since the first record entered.
    pub done_us: Vec<u64>,
    /// Tokens; none where a server does not tell.
    pub tokens: Option<Tokens>,
    /// Forwards of the model.
    pub forwards: u64,
    /// Largest resident memory of the process.
    pub peak_bytes: Option<u64>,
    /// Operations per second that the projections alone reach in this process.
    pub gemm_flops_per_s: Option<f64>,
    /// Per record.
    pub answers: Vec<RecordAnswer>,
}

/// The running arm.
struct Course<'a> {
    task: &'a Task,
    runner: Runner,
    requests: Vec<ScoreRequest>,
    prefix_us: u64,
    sealed: u64,
    ledger: Ledger<'a>,
}

/// What the records took and said.
struct Ledger<'a> {
    started: Instant,
    latency_us: Vec<u64>,
    done_us: Vec<u64>,
    cached: u64,
    logical: u64,
    answers: Vec<Option<RecordAnswer>>,
    tick: &'a mut dyn FnMut(usize),
}

/// Runs an arm on a loaded model; `tick` is told how many records are done.
///
/// # Errors
/// What stops the engine, an answer that is missing or not finite, counters that do not add up.
pub fn run(
    model: Box<dyn Model>,
    task: &Task,
    tick: &mut dyn FnMut(usize),
) -> Result<Sample, BenchError> {
    for (what, amount) in [
        ("the number of records in flight", task.concurrency),
        ("the number of tokens per forward", task.batch_tokens),
    ] {
        if amount == 0 {
            return Err(BenchError::Nothing { what });
        }
    }
    let work = &task.work;
    work.check_room(model.config().context, task.output_len)?;
    let options = RunnerOptions {
        batch_tokens: task.batch_tokens,
        reuse: match task.arm {
            Arm::Unshared => Reuse::Off,
            _ => Reuse::Shared,
        },
        ..RunnerOptions::default()
    };
    let mut runner = Runner::new(model, options)?;
    // Buffers grow and pages are touched before the clock starts, in every arm alike.
    let warm_up = work.prefix.len().min(task.batch_tokens);
    runner.prompt_logits(&work.prefix[..warm_up], 1)?;
    let count = work.records.len();
    let mut course = Course {
        requests: work.requests()?,
        task,
        runner,
        prefix_us: 0,
        sealed: 0,
        ledger: Ledger {
            started: Instant::now(),
            latency_us: vec![0; count],
            done_us: Vec::with_capacity(count),
            cached: 0,
            logical: 0,
            answers: vec![None; count],
            tick,
        },
    };
    let (rows, forwards) = match task.arm {
        Arm::Shared | Arm::Unshared | Arm::Serial | Arm::Api => course.one_prefix()?,
        Arm::Salted | Arm::Nonce => course.own_prefixes()?,
    };
    course.finish(rows, forwards)
}

impl Course<'_> {
    fn counters(&self) -> (u64, u64) {
        let model = self.runner.model();
        (model.rows_forwarded(), model.forwards())
    }

    /// All records on one prefix. Returns the counters as they were before.
    fn one_prefix(&mut self) -> Result<(u64, u64), BenchError> {
        let namespace = salt(0);
        let tokens = &self.task.work.prefix;
        let before = self.counters();
        let clock = Instant::now();
        let (prefix, sealed) = self.runner.seal(&namespace, tokens)?;
        let counters = if self.task.arm == Arm::Unshared {
            // The packer takes the prompt's tokens from a prefix; this arm never reads its rows.
            self.counters()
        } else {
            self.prefix_us = clock.elapsed().as_micros() as u64;
            self.sealed = sealed as u64;
            before
        };
        self.ledger.started = Instant::now();
        let concurrency = match self.task.arm {
            Arm::Serial => 1,
            _ => self.task.concurrency,
        };
        if self.task.output_len > 0 {
            let shared = self.task.arm.shares().then_some(&prefix);
            self.generate(&prefix, shared, 0..self.requests.len(), concurrency)?;
        } else {
            self.score_all(&prefix, concurrency)?;
        }
        Ok(counters)
    }

    /// Each record on a prefix of its own, sealed for it and given back after it.
    fn own_prefixes(&mut self) -> Result<(u64, u64), BenchError> {
        let before = self.counters();
        self.ledger.started = Instant::now();
        for record in 0..self.requests.len() {
            let nonce;
            let tokens = match self.task.arm {
                Arm::Nonce => {
                    nonce = self.task.work.nonce_prefix(record);
                    &nonce
                }
                _ => &self.task.work.prefix,
            };
            let namespace = match self.task.arm {
                Arm::Salted => salt(1 + record as u64),
                _ => salt(0),
            };
            let clock = Instant::now();
            let (prefix, sealed) = self.runner.seal(&namespace, tokens)?;
            self.prefix_us += clock.elapsed().as_micros() as u64;
            self.sealed += sealed as u64;
            if self.task.output_len > 0 {
                self.generate(&prefix, Some(&prefix), record..record + 1, 1)?;
            } else {
                self.score_forward(&prefix, record..record + 1)?;
            }
            self.ledger.latency_us[record] = clock.elapsed().as_micros() as u64;
            self.runner.evict(&prefix)?;
        }
        Ok(before)
    }

    /// Scores all records, with a window of those in flight moving over them.
    fn score_all(&mut self, prefix: &Prefix, concurrency: usize) -> Result<(), BenchError> {
        let count = self.requests.len();
        let mut entered: Vec<Instant> = vec![self.ledger.started; concurrency.min(count)];
        let mut next = 0;
        while next < count {
            let window = next..entered.len();
            let done = self.score_forward(prefix, window)?;
            let now = Instant::now();
            for (record, since) in entered.iter().enumerate().skip(next).take(done) {
                self.ledger.latency_us[record] = now.duration_since(*since).as_micros() as u64;
            }
            next += done;
            entered.resize((next + concurrency).min(count), now);
        }
        Ok(())
    }

    /// One forward over as many records of the window as the packer takes; returns how many.
    fn score_forward(
        &mut self,
        prefix: &Prefix,
        window: std::ops::Range<usize>,
    ) -> Result<usize, BenchError> {
        let first = window.start;
        let arm = self.task.arm;
        let begun = Cell::new(false);
        let mut results: Vec<(usize, ScoreResult)> = Vec::new();
        self.runner.score(
            prefix,
            &self.requests[window],
            &|| !begun.replace(true),
            &mut |index, result| results.push((first + index, result)),
        )?;
        let done = results.len();
        if done == 0 {
            return Err(no_answer(arm, first));
        }
        for (record, result) in results {
            let labels_ppm = result.scores.iter().map(|score| {
                let ppm = |share: &f64| share.is_finite().then(|| (share * 1e6).round() as u32);
                score.probabilities.iter().map(ppm).collect()
            });
            let labels_ppm: Option<Vec<Vec<u32>>> = labels_ppm.collect();
            let labels_ppm = labels_ppm.ok_or_else(|| no_answer(arm, record))?;
            self.ledger.cached += result.cached_tokens as u64;
            let branches: usize = self.requests[record]
                .trees
                .iter()
                .map(|tree| tree.tokens())
                .sum();
            let prompt = prefix.len() as usize + self.requests[record].tokens.len() + branches;
            let answer = RecordAnswer {
                labels_ppm,
                ..RecordAnswer::default()
            };
            self.ledger.leave(record, prompt, answer);
        }
        Ok(done)
    }

    /// Continues the records of a range, at most `slots` of them at a time.
    fn generate(
        &mut self,
        prefix: &Prefix,
        shared: Option<&Prefix>,
        range: std::ops::Range<usize>,
        slots: usize,
    ) -> Result<(), BenchError> {
        let own = &self.task.work.records[range.clone()];
        let before: &[u32] = shared.map_or(prefix.tokens(), |_| &[]);
        let prompts: Vec<Vec<u32>> = own.iter().map(|own| [before, own].concat()).collect();
        let requests: Vec<GenerateRequest<'_>> = prompts
            .iter()
            .map(|tokens| GenerateRequest {
                tokens,
                tokens_max: self.task.output_len as u32,
                stop: &[],
            })
            .collect();
        // A record enters in its order, at the start or when an earlier one leaves.
        let mut entered = vec![Instant::now(); slots];
        let mut texts: Vec<Vec<u32>> = vec![Vec::new(); requests.len()];
        let ledger = &mut self.ledger;
        let mut told = |at: usize, progress| match progress {
            Progress::Token(token) => texts[at].push(token),
            Progress::Ended(done) if done.ending == Ending::NotFinite => {}
            Progress::Ended(done) => {
                let record = range.start + at;
                ledger.latency_us[record] = entered[at].elapsed().as_micros() as u64;
                entered.push(Instant::now());
                ledger.cached += done.cached_tokens as u64;
                let prompt = prefix.len() as usize + own[at].len() + done.generated_tokens - 1;
                let answer = RecordAnswer {
                    tokens: std::mem::take(&mut texts[at]),
                    ..RecordAnswer::default()
                };
                ledger.leave(record, prompt, answer);
            }
        };
        self.runner
            .generate_many(shared, &requests, slots, &|| true, &mut told)?;
        let missing = |record: &usize| self.ledger.answers[*record].is_none();
        match range.clone().find(missing) {
            Some(record) => Err(no_answer(self.task.arm, record)),
            None => Ok(()),
        }
    }

    fn finish(self, rows: u64, forwards: u64) -> Result<Sample, BenchError> {
        let arm = self.task.arm;
        let (rows_now, forwards_now) = self.counters();
        let ledger = self.ledger;
        let whole_us = ledger.done_us.last().copied().unwrap_or(0);
        let tokens = Tokens {
            computed: rows_now - rows,
            // The record for which a prefix was sealed did not find its rows: it computed them.
            cached: ledger.cached - self.sealed,
            logical: ledger.logical,
            sealed: self.sealed,
        };
        if tokens.computed + tokens.cached != tokens.logical {
            return Err(BenchError::Counters {
                arm: arm.name(),
                computed: tokens.computed,
                cached: tokens.cached,
                logical: tokens.logical,
            });
        }
        let answers = ledger.answers.into_iter().enumerate();
        let answers = answers
            .map(|(record, answer)| answer.ok_or_else(|| no_answer(arm, record)))
            .collect::<Result<_, _>>()?;
        Ok(Sample {
            arm,
            load_us: 0,
            prefix_us: self.prefix_us,
            records_us: match arm {
                // Here the clock of the records runs while their prefixes are sealed.
                Arm::Salted | Arm::Nonce => whole_us.saturating_sub(self.prefix_us),
                _ => whole_us,
            },
            latency_us: ledger.latency_us,
            done_us: ledger.done_us,
            tokens: Some(tokens),
            forwards: forwards_now - forwards,
            peak_bytes: machine::peak_bytes(),
            gemm_flops_per_s: None,
            answers,
        })
    }
}

impl Ledger<'_> {
    fn leave(&mut self, record: usize, prompt: usize, answer: RecordAnswer) {
        self.logical += prompt as u64;
        self.answers[record] = Some(answer);
        self.done_us.push(self.started.elapsed().as_micros() as u64);
        (self.tick)(self.done_us.len());
    }
}

fn salt(number: u64) -> Namespace {
    let mut bytes = [0xB5; 32];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    Namespace(bytes)
}

fn no_answer(arm: Arm, record: usize) -> BenchError {
    BenchError::NoAnswer {
        arm: arm.name(),
        record,
    }
}
