//! Answers the operator's questions with the local model: the only file that knows both crates.
//!
//! Turns a rubric into a sealed prefix, each unit into a fork of it, each question into a label
//! tree, and probabilities into parts per million. Keeps no state between jobs but the model and
//! its sealed prefixes.

mod compose;
mod gauge;
mod heads;
mod prepare;

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Instant;

use kvcache::Namespace;
use operator::compose::Compose;
use operator::id::UnitId;
use operator::infer::{
    Answer, BackendIdentity, Completion, FailReason, Infer, InferError, InferJob, JobUsage, PPM,
    UnitOutcome, UnitTexts, UnitUsage,
};

use crate::error::EngineError;
use crate::head::{Head, Reading};
use crate::model::config::Architecture;
use crate::prompt::PromptTemplate;
use crate::runner::{RecordStates, Runner, Score, ScoreResult};
use crate::tokenizer::Tokenizer;

pub use gauge::LocalGauge;
pub use heads::{Heads, bond};

use prepare::{AHEAD_UNITS, Answered, Choice, Prepared, Questions, prepare_all};

/// Wording and layout of the prompt around rubric and unit; a new version is a new fact key.
const PROMPT_FORMAT: u32 = 1;

/// Forwards' worth of units that are scored in one go.
const FORWARDS: usize = 8;

/// The inner states of a unit, beside what the labels' own logits say.
#[derive(Debug, Clone, PartialEq)]
pub struct UnitStates {
    /// The states; answers are those of the questions that were scored.
    pub states: RecordStates,
    /// One score per scored question.
    pub scores: Vec<Score>,
}

/// What became of a unit while a job was scored.
enum Step<'a> {
    Scored {
        place: usize,
        answered: &'a [Answered],
        result: &'a ScoreResult,
        micros: u64,
    },
    Without {
        place: usize,
        outcome: UnitOutcome,
    },
}

/// The in-process backend.
pub struct LocalInfer {
    runner: Runner,
    tokenizer: Tokenizer,
    template: PromptTemplate,
    identity: BackendIdentity,
    heads: Heads,
    namespace: Namespace,
}

impl LocalInfer {
    /// Joins a runner with the tokenizer and template of the same model.
    ///
    /// `model_digest` is the BLAKE3 of the model's bytes, `name` what the user called it.
    pub fn new(
        runner: Runner,
        tokenizer: Tokenizer,
        template: PromptTemplate,
        name: &str,
        model_digest: [u8; 32],
    ) -> Self {
        let model = runner.model();
        let architecture = model.config().architecture;
        let tier = model.tier();
        let identity = identify(
            &tokenizer,
            &template,
            name,
            model_digest,
            architecture,
            &tier,
        );
        Self {
            runner,
            tokenizer,
            template,
            namespace: Namespace(identity.digest),
            heads: Heads::default(),
            identity,
        }
    }

    /// The same backend with trained heads, and with an identity that names them.
    ///
    /// # Errors
    /// `HeadMismatch` where one was trained with another backend, or two answer the same question.
    ///
    /// # Panics
    /// If the backend has heads already.
    pub fn with_heads(mut self, heads: Vec<Head>) -> Result<Self, EngineError> {
        assert!(self.heads.is_empty(), "heads are given once");
        let config = self.runner.model().config();
        for head in &heads {
            head.check_shape(config.layers, config.hidden)
                .map_err(|problem| EngineError::HeadMismatch {
                    field: head.bond().field.clone(),
                    problem,
                })?;
        }
        let heads = Heads::new(heads, &self.identity)?;
        self.identity = heads.identify(&self.identity);
        self.heads = heads;
        Ok(self)
    }

    /// Its trained heads.
    pub fn heads(&self) -> &Heads {
        &self.heads
    }

    /// The runner, for measurements.
    pub fn runner(&self) -> &Runner {
        &self.runner
    }

    /// Tokens of the prefix that a rubric becomes.
    ///
    /// # Errors
    /// Tokenizer or template trouble.
    pub fn prefix_tokens(&self, rubric: &str) -> Result<Vec<u32>, EngineError> {
        Ok(self.template.split(&self.tokenizer, rubric)?.prefix)
    }

    /// Reads the inner states of every unit instead of answering about it: of `layers`, ascending, as
    /// the residual enters each.
    ///
    /// Rows are computed as they are for a first answer, so that what is learned from these states is
    /// learned from what a run will see. `each` gets a place and either the states, with the scores that
    /// the labels' own logits give, or why there are none.
    /// Of a job that was cancelled, the rest is told as cancelled or not run.
    ///
    /// # Errors
    /// As for answering: a rubric or a question that does not fit, or a machine that gives out.
    ///
    /// # Panics
    /// If the model has no such layer.
    pub fn states(
        &mut self,
        job: InferJob<'_>,
        layers: &[usize],
        each: &mut dyn FnMut(usize, Result<UnitStates, UnitOutcome>),
    ) -> Result<JobUsage, EngineError> {
        self.runner.tap(layers);
        let heads = vec![None; job.questions.len()];
        let usage = self.score(job, &heads, true, &mut |step| match step {
            Step::Scored { place, result, .. } => {
                let scores = result.scores.clone();
                if let Some(states) = result.states.clone() {
                    each(place, Ok(UnitStates { states, scores }));
                }
            }
            Step::Without { place, outcome } => each(place, Err(outcome)),
        });
        self.runner.tap(&[]);
        usage
    }

    fn run(
        &mut self,
        job: InferJob<'_>,
        sink: &mut dyn FnMut(Completion),
    ) -> Result<JobUsage, EngineError> {
        let heads = self.heads.of_job(&job);
        let mut taps: Vec<usize> = heads
            .iter()
            .flatten()
            .flat_map(|head| head.readings().filter_map(Reading::layer))
            .collect();
        taps.sort_unstable();
        taps.dedup();
        if heads.iter().any(Option::is_some) && taps.is_empty() {
            // A head that reads no layer still wants the final states.
            taps.push(0);
        }
        self.runner.tap(&taps);
        let usage = self.score(job, &heads, false, &mut |step| match step {
            Step::Scored {
                place,
                answered,
                result,
                micros,
            } => {
                let judged = judge(&heads, answered, result, &taps);
                sink(complete(job.units.id(place), &judged, result, micros));
            }
            Step::Without { place, outcome } => sink(without_answer(job.units, place, outcome)),
        });
        self.runner.tap(&[]);
        usage
    }

    /// Scores every unit of a job; with `coarse` every coarse answer stands, else those to questions that
    /// a head answers.
    fn score(
        &mut self,
        job: InferJob<'_>,
        heads: &[Option<Arc<Head>>],
        coarse: bool,
        each: &mut dyn FnMut(Step<'_>),
    ) -> Result<JobUsage, EngineError> {
        let forwards = self.runner.model().forwards();
        let split = self.template.split(&self.tokenizer, &job.rubric.system)?;
        let questions = Questions::compile(&self.tokenizer, job.questions, heads, coarse)?;
        let (prefix, prefix_computed) = self.runner.seal(&self.namespace, &split.prefix)?;
        let mut usage = JobUsage {
            prompt_tokens: prefix_computed as u64,
            computed_tokens: prefix_computed as u64,
            prefix_tokens: u64::from(prefix.len()),
            prefix_computed_tokens: prefix_computed as u64,
            ..JobUsage::default()
        };
        let room = self.runner.model().config().context - prefix.len() as usize;
        let batch_tokens = self.runner.options().batch_tokens;
        let Self {
            runner, tokenizer, ..
        } = self;
        let mut done = vec![false; job.units.len()];
        let mut begun = vec![false; job.units.len()];
        std::thread::scope(|scope| {
            let (to, ready) = sync_channel(AHEAD_UNITS);
            let (close, units) = (&split.close, job.units);
            scope.spawn(move || prepare_all(tokenizer, questions, units, close, room, &to));
            let mut ready = ready.into_iter().peekable();
            while !job.cancel.is_cancelled() {
                let (mut requests, mut owners) = (Vec::new(), Vec::new());
                let mut total = 0;
                // As many as some forwards take, so that what has to be asked again fills one too.
                while let Some(next) = ready.peek() {
                    let cost = match next {
                        Ok(Prepared {
                            request: Ok(request),
                            ..
                        }) => runner.tokens_needed(&prefix, request),
                        _ => 0,
                    };
                    let is_full =
                        requests.len() == AHEAD_UNITS || total + cost > FORWARDS * batch_tokens;
                    if !requests.is_empty() && is_full {
                        break;
                    }
                    total += cost;
                    let Some(next) = ready.next() else { break };
                    let next = next?;
                    match next.request {
                        Ok(request) => {
                            begun[next.place] = true;
                            requests.push(request);
                            owners.push((next.place, next.answered));
                        }
                        Err(problem) => {
                            done[next.place] = true;
                            each(Step::Without {
                                place: next.place,
                                outcome: problem.into(),
                            });
                        }
                    }
                }
                if requests.is_empty() {
                    break;
                }
                let mut clock = Instant::now();
                runner.score(
                    &prefix,
                    &requests,
                    &|| !job.cancel.is_cancelled(),
                    &mut |index, result| {
                        let (place, answered) = &owners[index];
                        done[*place] = true;
                        let micros = clock.elapsed().as_micros() as u64;
                        clock = Instant::now();
                        let computed = result.computed_tokens as u64;
                        let cached = result.cached_tokens as u64;
                        usage.prompt_tokens += computed + cached;
                        usage.computed_tokens += computed;
                        usage.cached_tokens += cached;
                        usage.forks += u64::from(result.cached_tokens > 0);
                        usage.scored_positions += result.scored_positions as u64;
                        usage.repeated_units += u64::from(result.repeated_tokens > 0);
                        usage.repeated_tokens += result.repeated_tokens as u64;
                        each(Step::Scored {
                            place: *place,
                            answered,
                            result: &result,
                            micros,
                        });
                    },
                )?;
            }
            Ok::<_, EngineError>(())
        })?;
        for place in (0..done.len()).filter(|place| !done[*place]) {
            let outcome = match begun[place] {
                true => UnitOutcome::Cancelled,
                false => UnitOutcome::NotRun,
            };
            each(Step::Without { place, outcome });
        }
        usage.forwards = self.runner.model().forwards() - forwards;
        Ok(usage)
    }
}

impl Infer for LocalInfer {
    fn identity(&self) -> &BackendIdentity {
        &self.identity
    }

    fn infer(
        &mut self,
        job: InferJob<'_>,
        sink: &mut dyn FnMut(Completion),
    ) -> Result<JobUsage, InferError> {
        self.run(job, sink).map_err(refusal)
    }

    fn as_compose(&mut self) -> Option<&mut dyn Compose> {
        Some(self)
    }
}

/// The identity of a model's backend, which needs none of its weights.
pub(crate) fn identify(
    tokenizer: &Tokenizer,
    template: &PromptTemplate,
    name: &str,
    model_digest: [u8; 32],
    architecture: Architecture,
    tier: &str,
) -> BackendIdentity {
    let mut hasher = blake3::Hasher::new_derive_key("engine backend identity v1");
    hasher.update(&model_digest);
    hasher.update(&tokenizer.digest());
    hasher.update(&template.digest());
    hasher.update(&PROMPT_FORMAT.to_le_bytes());
    hasher.update(&(tier.len() as u64).to_le_bytes());
    hasher.update(tier.as_bytes());
    BackendIdentity {
        name: name.into(),
        digest: *hasher.finalize().as_bytes(),
        simulated: false,
        describe: format!("{name}, {} architecture, {tier}", architecture.name()),
    }
}

/// An error as the seam knows it.
fn refusal(error: EngineError) -> InferError {
    match error {
        EngineError::RubricTooLong { tokens, tokens_max } => InferError::RubricTooLong {
            tokens: tokens as u64,
            tokens_max: tokens_max as u64,
        },
        EngineError::BadQuestion { .. } => InferError::Refused(error.to_string()),
        other => InferError::Failed(Box::new(other)),
    }
}

fn without_answer(units: &dyn UnitTexts, place: usize, outcome: UnitOutcome) -> Completion {
    Completion {
        unit_id: units.id(place).clone(),
        outcome,
        usage: UnitUsage::default(),
    }
}

/// How a question about a unit was answered.
enum Judged {
    /// By probabilities, beside the mass of the labels.
    Weighed(Vec<f64>, f64),
    Single,
    Nothing,
}

/// Gives every question its probabilities: a head's where it has one, else those of its labels' logits.
fn judge(
    heads: &[Option<Arc<Head>>],
    answered: &[Answered],
    result: &ScoreResult,
    taps: &[usize],
) -> Vec<Judged> {
    let mut scores = result.scores.iter().enumerate();
    heads
        .iter()
        .zip(answered)
        .map(|(head, answered)| match answered.choice {
            Choice::Single => Judged::Single,
            Choice::Nothing => Judged::Nothing,
            Choice::Scored => match (scores.next(), head, &answered.text, &result.states) {
                (Some((place, score)), Some(head), Some(text), Some(states)) => {
                    Judged::Weighed(head.judge(text, states, place, taps), score.mass)
                }
                (Some((_, score)), ..) => Judged::Weighed(score.probabilities.clone(), score.mass),
                (None, ..) => Judged::Weighed(Vec::new(), 0.0),
            },
        })
        .collect()
}

fn complete(unit_id: &UnitId, judged: &[Judged], result: &ScoreResult, micros: u64) -> Completion {
    let answers: Option<Vec<Answer>> = judged
        .iter()
        .map(|judged| match judged {
            Judged::Weighed(shares, mass) => Answer::from_weights(shares, *mass),
            Judged::Single => Answer::from_ppm(vec![PPM], PPM),
            Judged::Nothing => Some(Answer {
                probabilities: Vec::new(),
                label_mass_ppm: 0,
                chosen: 0,
                margin_ppm: 0,
            }),
        })
        .collect();
    let outcome = match answers {
        Some(answers) => UnitOutcome::Answered(answers),
        None => UnitOutcome::Failed {
            reason: FailReason::Backend,
            message: "the model's logits are not finite".into(),
        },
    };
    let (computed, cached) = (result.computed_tokens as u64, result.cached_tokens as u64);
    Completion {
        unit_id: unit_id.clone(),
        outcome,
        usage: UnitUsage {
            prompt_tokens: computed + cached,
            computed_tokens: computed,
            cached_tokens: cached,
            micros,
        },
    }
}
