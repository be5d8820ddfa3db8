//! Answers the operator's questions with the local model: the only file that knows both crates.
//!
//! Turns a rubric into a sealed prefix, each unit into a fork of it, each question into a label
//! tree, and probabilities into parts per million. Keeps no state between jobs but the model and
//! its sealed prefixes.

mod compose;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Instant;

use kvcache::Namespace;
use operator::compose::Compose;
use operator::infer::{
    Answer, BackendIdentity, Completion, FailReason, Infer, InferError, InferJob, JobUsage, Labels,
    PPM, Question, UnitOutcome, UnitUsage,
};
use operator::text::UnitText;
use rayon::prelude::*;

use crate::error::EngineError;
use crate::label_tree::LabelTree;
use crate::prompt::PromptTemplate;
use crate::runner::{Runner, ScoreRequest, ScoreResult};
use crate::tokenizer::Tokenizer;

/// Wording and layout of the prompt around rubric and unit; a new version is a new fact key.
const PROMPT_FORMAT: u32 = 1;
/// Units tokenised ahead of their forwards; bounds memory whatever the input's length.
const WINDOW_UNITS: usize = 256;

/// The in-process backend.
pub struct LocalInfer {
    runner: Runner,
    tokenizer: Tokenizer,
    template: PromptTemplate,
    identity: BackendIdentity,
    namespace: Namespace,
}

/// The trees of a job's questions: fixed ones once, those over a unit's lines per line count.
struct Questions<'a> {
    questions: &'a [Question],
    fixed: Vec<Option<Arc<LabelTree>>>,
    lines: HashMap<(usize, usize), Arc<LabelTree>>,
}

/// A unit ready to be scored, or why it cannot be.
struct Prepared {
    request: Result<ScoreRequest, String>,
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
        let tier = runner.model().tier();
        let mut hasher = blake3::Hasher::new_derive_key("engine backend identity v1");
        hasher.update(&model_digest);
        hasher.update(&tokenizer.digest());
        hasher.update(&template.digest());
        hasher.update(&PROMPT_FORMAT.to_le_bytes());
        hasher.update(&(tier.len() as u64).to_le_bytes());
        hasher.update(tier.as_bytes());
        let digest = *hasher.finalize().as_bytes();
        let identity = BackendIdentity {
            name: name.into(),
            digest,
            simulated: false,
            describe: format!(
                "{name}, {} architecture, {tier}",
                runner.model().config().architecture.name()
            ),
        };
        Self {
            runner,
            tokenizer,
            template,
            identity,
            namespace: Namespace(digest),
        }
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

    fn run(
        &mut self,
        job: InferJob<'_>,
        sink: &mut dyn FnMut(Completion),
    ) -> Result<JobUsage, EngineError> {
        let forwards = self.runner.model().forwards();
        let split = self.template.split(&self.tokenizer, &job.rubric.system)?;
        let mut questions = Questions::compile(&self.tokenizer, job.questions)?;
        let (prefix, prefix_computed) = self.runner.seal(&self.namespace, &split.prefix)?;
        let mut usage = JobUsage {
            prompt_tokens: prefix_computed as u64,
            computed_tokens: prefix_computed as u64,
            prefix_tokens: u64::from(prefix.len()),
            prefix_computed_tokens: prefix_computed as u64,
            ..JobUsage::default()
        };
        for window in job.units.chunks(WINDOW_UNITS) {
            questions.compile_lines(&self.tokenizer, window)?;
            let room = self.runner.model().config().context - prefix.len() as usize;
            let prepared: Vec<Prepared> = window
                .par_iter()
                .map(|unit| Prepared {
                    request: prepare(&self.tokenizer, &questions, unit, &split.close, room),
                })
                .collect();
            let mut requests = Vec::new();
            let mut owners = Vec::new();
            for (unit, prepared) in window.iter().zip(prepared) {
                match prepared.request {
                    Ok(request) => {
                        requests.push(request);
                        owners.push(unit);
                    }
                    Err(message) => sink(Completion {
                        unit_id: unit.unit_id.clone(),
                        outcome: UnitOutcome::Failed {
                            reason: FailReason::TooLarge,
                            message,
                        },
                        usage: UnitUsage::default(),
                    }),
                }
            }
            let mut done = vec![false; requests.len()];
            let mut clock = Instant::now();
            let cancel = job.cancel;
            self.runner.score(
                &prefix,
                &requests,
                &|| !cancel.is_cancelled(),
                &mut |index, result| {
                    done[index] = true;
                    let elapsed = clock.elapsed();
                    clock = Instant::now();
                    let completion = complete(
                        &questions,
                        owners[index],
                        &result,
                        elapsed.as_micros() as u64,
                    );
                    usage.prompt_tokens += completion.usage.prompt_tokens;
                    usage.computed_tokens += completion.usage.computed_tokens;
                    usage.cached_tokens += completion.usage.cached_tokens;
                    usage.forks += u64::from(result.cached_tokens > 0);
                    usage.scored_positions += result.scored_positions as u64;
                    usage.repeated_units += u64::from(result.repeated_tokens > 0);
                    usage.repeated_tokens += result.repeated_tokens as u64;
                    sink(completion);
                },
            )?;
            for (unit, _) in owners.iter().zip(done).filter(|(_, done)| !done) {
                sink(Completion {
                    unit_id: unit.unit_id.clone(),
                    outcome: UnitOutcome::Cancelled,
                    usage: UnitUsage::default(),
                });
            }
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
        self.run(job, sink).map_err(|error| match error {
            EngineError::RubricTooLong { tokens, tokens_max } => InferError::RubricTooLong {
                tokens: tokens as u64,
                tokens_max: tokens_max as u64,
            },
            EngineError::BadQuestion { .. } => InferError::Refused(error.to_string()),
            other => InferError::Failed(Box::new(other)),
        })
    }

    fn as_compose(&mut self) -> Option<&mut dyn Compose> {
        Some(self)
    }
}

impl<'a> Questions<'a> {
    fn compile(tokenizer: &Tokenizer, questions: &'a [Question]) -> Result<Self, EngineError> {
        let fixed = questions
            .iter()
            .map(|question| match &question.labels {
                Labels::Fixed(labels) => tree(tokenizer, question, labels).map(Some),
                Labels::Lines => Ok(None),
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            questions,
            fixed,
            lines: HashMap::new(),
        })
    }

    /// Makes the trees over line numbers that a window of units needs.
    fn compile_lines(
        &mut self,
        tokenizer: &Tokenizer,
        units: &[UnitText],
    ) -> Result<(), EngineError> {
        for (index, question) in self.questions.iter().enumerate() {
            if question.labels != Labels::Lines {
                continue;
            }
            for unit in units.iter().filter(|unit| unit.lines.len() > 1) {
                if let Entry::Vacant(place) = self.lines.entry((index, unit.lines.len())) {
                    place.insert(tree(tokenizer, question, &question.labels.of(unit))?);
                }
            }
        }
        Ok(())
    }

    /// The tree of a question for a unit; none when there is nothing to choose.
    fn tree(&self, index: usize, unit: &UnitText) -> Option<Arc<LabelTree>> {
        match &self.fixed[index] {
            Some(tree) => Some(tree.clone()),
            None => self.lines.get(&(index, unit.lines.len())).cloned(),
        }
    }
}

fn tree(
    tokenizer: &Tokenizer,
    question: &Question,
    labels: &[String],
) -> Result<Arc<LabelTree>, EngineError> {
    let tokens = labels
        .iter()
        .map(|label| tokenizer.encode_text(&format!("{}{label}", question.scaffold)))
        .collect::<Result<Vec<_>, _>>()?;
    let terminator = tokenizer.eos_ids().first().copied().unwrap_or(0);
    Ok(Arc::new(LabelTree::new(
        &question.field,
        &tokens,
        terminator,
    )?))
}

fn prepare(
    tokenizer: &Tokenizer,
    questions: &Questions<'_>,
    unit: &UnitText,
    close: &[u32],
    room: usize,
) -> Result<ScoreRequest, String> {
    let mut tokens = tokenizer
        .encode_text(&unit.text)
        .map_err(|error| error.to_string())?;
    tokens.extend_from_slice(close);
    let (trees, decisive): (Vec<Arc<LabelTree>>, Vec<bool>) = (0..questions.questions.len())
        .filter_map(|index| {
            // Which line is pointed at decides nothing that is counted.
            let decisive = questions.questions[index].labels != Labels::Lines;
            Some((questions.tree(index, unit)?, decisive))
        })
        .unzip();
    let branches: usize = trees.iter().map(|tree| tree.tokens()).sum();
    let needed = tokens.len() + branches;
    if needed > room {
        return Err(format!(
            "the record needs {needed} tokens, {room} are left after the rubric; clip the fields \
             that the plan reads (max_chars)"
        ));
    }
    Ok(ScoreRequest {
        tokens,
        trees,
        decisive,
    })
}

fn complete(
    questions: &Questions<'_>,
    unit: &UnitText,
    result: &ScoreResult,
    micros: u64,
) -> Completion {
    let mut scores = result.scores.iter();
    let answers: Option<Vec<Answer>> = (0..questions.questions.len())
        .map(
            |index| match (questions.tree(index, unit), unit.lines.len()) {
                (Some(_), _) => scores
                    .next()
                    .and_then(|score| Answer::from_weights(&score.probabilities, score.mass)),
                // One line is no choice; none leaves nothing to point at.
                (None, 1) => Answer::from_ppm(vec![PPM], PPM),
                (None, _) => Some(Answer {
                    probabilities: Vec::new(),
                    label_mass_ppm: 0,
                    chosen: 0,
                    margin_ppm: 0,
                }),
            },
        )
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
        unit_id: unit.unit_id.clone(),
        outcome,
        usage: UnitUsage {
            prompt_tokens: computed + cached,
            computed_tokens: computed,
            cached_tokens: cached,
            micros,
        },
    }
}
