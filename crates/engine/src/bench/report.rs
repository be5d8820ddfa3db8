//! All of one benchmark: machine, model, work, figures, equality, and every raw sample.

use serde::{Deserialize, Serialize};

use super::Arm;
use super::arms::{Sample, Task};
use super::equality::{self, Equality, Margins};
use super::figures::{Figures, Spread};
use super::flops::Bound;
use super::machine::Machine;
use super::work::Shape;
use crate::model::ModelConfig;

/// Version of the file's form.
const SCHEMA: u32 = 1;

/// The model of all arms.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelNote {
    /// What the user called it.
    pub name: String,
    /// BLAKE3 of its bytes.
    pub blake3: String,
    /// Family.
    pub architecture: String,
    /// Transformer layers.
    pub layers: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Where the forward ran.
    pub device: String,
    /// Number format asked for.
    pub numerics: String,
}

/// What all arms computed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkNote {
    /// `synthetic`, or what the texts were taken from.
    pub source: String,
    /// Lengths asked for, of synthetic work.
    pub shape: Option<Shape>,
    /// Records.
    pub records: usize,
    /// Tokens of the shared prefix (P).
    pub prefix_tokens: usize,
    /// Tokens of a record (S).
    pub record_tokens: Option<Spread>,
    /// Tokens that the questions add to each record (B); 0 where text is generated instead.
    pub branch_tokens: usize,
    /// Tokens generated for each record (D); 0 where questions are scored.
    pub output_tokens: usize,
    /// Fields and their labels.
    pub questions: Vec<(String, Vec<String>)>,
    /// Records in flight at most.
    pub concurrency: usize,
    /// Tokens that one forward aims for.
    pub batch_tokens: usize,
}

/// Speed-up of one arm over `unshared`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SpeedUp {
    /// The way.
    pub arm: Arm,
    /// Ratio of the median rates.
    pub times: f64,
    /// Share of the ratio of operations that it reaches; only where the prefix is shared.
    pub bound_share: Option<f64>,
}

/// One finished benchmark.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// `prefix`.
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
    pub work: WorkNote,
    /// Rounds.
    pub rounds: usize,
    /// Operations and their ratio.
    pub bound: Bound,
    /// Per arm.
    pub figures: Vec<Figures>,
    /// Per arm, over `unshared`.
    pub speed_ups: Vec<SpeedUp>,
    /// Per arm with the same prompts, against the first round of `unshared`.
    pub equality: Vec<Equality>,
    /// Of the decisions of `unshared`.
    pub margins: Option<Margins>,
    /// What a reader must know besides.
    pub notes: Vec<String>,
    /// One per arm and round, in the order in which they ran.
    pub samples: Vec<Sample>,
}

impl Report {
    /// Draws the figures from the samples. `task` is that of any arm; `source` names the texts.
    pub fn of(
        task: &Task,
        source: &str,
        model: ModelNote,
        bound: Bound,
        samples: Vec<Sample>,
    ) -> Self {
        let mut arms: Vec<Arm> = Vec::new();
        for sample in &samples {
            if !arms.contains(&sample.arm) {
                arms.push(sample.arm);
            }
        }
        let of_arm = |arm: Arm| -> Vec<&Sample> {
            samples.iter().filter(|sample| sample.arm == arm).collect()
        };
        let figures: Vec<Figures> = arms
            .iter()
            .filter_map(|&arm| Figures::of(&of_arm(arm), &bound))
            .collect();
        Self {
            benchmark: "prefix".into(),
            schema: SCHEMA,
            engine: env!("CARGO_PKG_VERSION").into(),
            machine: Machine::this(),
            model,
            work: WorkNote::of(task, source),
            rounds: arms.first().map_or(0, |&arm| of_arm(arm).len()),
            bound,
            speed_ups: speed_ups(&figures, bound.flop_ratio),
            figures,
            equality: equality::compare(&samples),
            margins: equality::margins(&samples),
            notes: notes(&arms),
            samples,
        }
    }

    /// Decisions with a margin that flipped, in any arm and round.
    pub fn flips_above_margin(&self) -> u64 {
        self.equality.iter().map(|arm| arm.flips_above_margin).sum()
    }

    /// The figures of an arm, if it ran.
    pub fn figures_of(&self, arm: Arm) -> Option<&Figures> {
        self.figures.iter().find(|figures| figures.arm == arm)
    }
}

impl ModelNote {
    /// Of a model whose shape is known.
    pub fn new(name: &str, blake3: &str, config: &ModelConfig) -> Self {
        Self {
            name: name.into(),
            blake3: blake3.into(),
            architecture: config.architecture.name().into(),
            layers: config.layers,
            hidden: config.hidden,
            device: String::new(),
            numerics: String::new(),
        }
    }
}

impl WorkNote {
    fn of(task: &Task, source: &str) -> Self {
        let work = &task.work;
        let branches = |trees: Vec<_>| {
            trees
                .iter()
                .map(|tree: &std::sync::Arc<crate::label_tree::LabelTree>| tree.tokens())
                .sum()
        };
        Self {
            source: source.into(),
            shape: work.shape,
            records: work.records.len(),
            prefix_tokens: work.prefix.len(),
            record_tokens: Spread::of(work.records.iter().map(|record| record.len() as f64)),
            branch_tokens: match task.output_len {
                0 => work.trees().map_or(0, branches),
                _ => 0,
            },
            output_tokens: task.output_len,
            questions: work
                .questions
                .iter()
                .map(|question| (question.field.clone(), question.labels.clone()))
                .collect(),
            concurrency: task.concurrency,
            batch_tokens: task.batch_tokens,
        }
    }
}

fn speed_ups(figures: &[Figures], flop_ratio: f64) -> Vec<SpeedUp> {
    let Some(base) = figures.iter().find(|figures| figures.arm == Arm::Unshared) else {
        return Vec::new();
    };
    figures
        .iter()
        .filter(|figures| figures.arm != Arm::Unshared)
        .map(|figures| {
            let times = figures.records_per_s.median / base.records_per_s.median;
            SpeedUp {
                arm: figures.arm,
                times,
                bound_share: figures.arm.shares().then(|| times / flop_ratio),
            }
        })
        .collect()
}

fn notes(arms: &[Arm]) -> Vec<String> {
    let mut notes = Vec::new();
    if !arms.contains(&Arm::Unshared) {
        notes.push(
            "the arm unshared did not run: no speed-up and no equality of answers is claimed"
                .to_owned(),
        );
    }
    if arms.contains(&Arm::Nonce) {
        notes.push(
            "the prompts of the arm nonce differ by its nonces: its answers are not compared"
                .to_owned(),
        );
    }
    notes
}
