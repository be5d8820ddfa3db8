//! From labelled examples to a head: what to read and how strongly to hold it back is chosen by
//! cross-validation, how sure to be by what was held out.
//!
//! Equal examples, options and seed give equal heads to the bit, in whatever order the examples came and on
//! however many threads: sums run in fixed orders, and lots depend on ids alone.

use std::collections::BTreeMap;

use operator::infer::PPM;
use rayon::prelude::*;
use thiserror::Error;

use super::examples::{Block, Examples};
use super::folds::{deal, split};
use super::gram::{Factor, Gram, add_scaled};
use super::logistic::{Fit, Task, softmax};
use super::rare::Learnable;
use super::{Bond, Group, Head, Part, Reading, recall, temperature};
use crate::error::EngineError;

/// Fewest examples of a class: each fold's rest must hold some.
pub const CLASS_MIN: usize = 4;
/// Most examples: their products are held in memory, 8 bytes for each two of them.
pub const EXAMPLES_MAX: usize = 6_000;
/// Share of the examples that a recall target sets aside.
const SET_ASIDE: f64 = 1.0 / 3.0;
/// Log-odds by which a threshold is lowered, so that rounding probabilities loses none of those on it.
const ROUNDING: f64 = 1e-4;

/// Something that a head may read.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// What is read; all of equal weight.
    pub readings: Vec<Reading>,
    /// Weight of what groups do not share, against what they do; 0 where there are none.
    pub own: f64,
}

/// A share of a label that must be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecallTarget {
    /// The label, as a place.
    pub label: usize,
    /// Share of the records that have it, in parts per million.
    pub recall_ppm: u32,
    /// Chance that fewer are found, in parts per million.
    pub alpha_ppm: u32,
}

/// How a head is trained.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// What may be read.
    pub candidates: Vec<Candidate>,
    /// Penalties that are tried, the largest first.
    pub penalties: Vec<f64>,
    /// Folds of cross-validation, at least 2.
    pub folds: usize,
    /// Decides all lots.
    pub seed: u64,
    /// A share of a label that must be found.
    pub recall: Option<RecallTarget>,
}

/// Why no head can be trained.
#[derive(Debug, Error)]
pub enum TrainError {
    /// A class has too few examples.
    #[error(
        "label {label:?} has {found} labelled records of different text, {needed} or more are needed; label some, or remove it from the plan"
    )]
    TooFew {
        /// The label.
        label: String,
        /// Its examples.
        found: usize,
        /// How many are needed.
        needed: usize,
    },
    /// Too many examples for the memory that they take.
    #[error(
        "{found} labelled records are too many, a head learns from {EXAMPLES_MAX} at most; take a sample"
    )]
    TooMany {
        /// Examples.
        found: usize,
    },
    /// A recall target cannot be guaranteed.
    #[error(
        "finding {recall_percent} % of {label:?} cannot be guaranteed: {found} records of it were set aside to find the threshold, {needed} are needed; label about {more} more of it, or lower the target or the confidence"
    )]
    TooFewForRecall {
        /// The label.
        label: String,
        /// The target.
        recall_percent: f64,
        /// Positives set aside.
        found: usize,
        /// How many are needed.
        needed: usize,
        /// About how many more have to be labelled.
        more: usize,
    },
    /// The head cannot be written.
    #[error(transparent)]
    Head(#[from] EngineError),
}

/// What a head that had not seen an example said of it.
#[derive(Debug, Clone, PartialEq)]
pub struct HeldOut {
    /// The example's place.
    pub place: usize,
    /// Probability of each label.
    pub probabilities: Vec<f64>,
}

/// How one candidate did.
#[derive(Debug, Clone, PartialEq)]
pub struct Tried {
    /// The candidate.
    pub candidate: Candidate,
    /// Its best penalty.
    pub penalty: f64,
    /// Its mean held-out loss there, in nats.
    pub loss: f64,
}

/// A head, and what is known of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Trained {
    /// The head.
    pub head: Head,
    /// The candidates with their best penalties, the best first.
    pub tried: Vec<Tried>,
    /// Of every example of the folds, in order of places; calibrated by the other folds.
    pub held_out: Vec<HeldOut>,
    /// Places that were set aside for a recall target, with what the head says of them.
    pub set_aside: Vec<HeldOut>,
    /// Labels with too few examples: the head never chooses them.
    pub not_learned: Vec<String>,
}

/// Trains a head. Labels with fewer examples than folds are left out of it where two others have enough.
///
/// # Errors
/// [`TrainError`] where there are too few or too many examples.
///
/// # Panics
/// If there are no candidates, penalties or folds, or a candidate reads what the examples lack.
pub fn train(all: &Examples, bond: Bond, options: &Options) -> Result<Trained, TrainError> {
    let learnable = Learnable::of(all, bond.labels.len(), options.folds);
    let wanted = options
        .recall
        .map(|target| learnable.place_of(target.label));
    if learnable.is_all_or_nothing() || wanted == Some(None) {
        return train_all(all, bond, options);
    }
    let (narrow, narrow_bond, kept) = learnable.narrow(all, &bond);
    let recall = options.recall.zip(wanted.flatten());
    let options = Options {
        recall: recall.map(|(target, label)| RecallTarget { label, ..target }),
        ..options.clone()
    };
    let trained = train_all(&narrow, narrow_bond, &options)?;
    let widen = |held: &[HeldOut]| {
        let held = held.iter().map(|held| learnable.widen_held(held, &kept));
        held.collect()
    };
    Ok(Trained {
        held_out: widen(&trained.held_out),
        set_aside: widen(&trained.set_aside),
        tried: trained.tried,
        not_learned: (0..bond.labels.len())
            .filter(|&label| learnable.place_of(label).is_none())
            .map(|label| bond.labels[label].clone())
            .collect(),
        head: learnable.widen(trained.head, bond).sealed()?,
    })
}

/// Trains a head all of whose labels have examples enough.
fn train_all(all: &Examples, bond: Bond, options: &Options) -> Result<Trained, TrainError> {
    let labels = bond.labels.len();
    let kept_back = options.recall.map_or(0.0, |_| SET_ASIDE);
    let (learned, aside) = split(options.seed, &all.ids, &all.class_of, kept_back);
    let examples = all.take(&learned);
    check(&examples, &bond, options.folds)?;
    let place = match options.recall {
        None => None,
        Some(target) => Some(threshold_place(all, &aside, &bond, target)?),
    };
    let own_order: Vec<usize> = (0..examples.len()).collect();
    let fold_of = deal(&own_order, &examples.class_of, options.folds);
    let blocks = blocks_of(&examples, &options.candidates);
    let grams: BTreeMap<Reading, Gram> = blocks
        .iter()
        .map(|(reading, block)| (*reading, block.gram()))
        .collect();
    let mut results: Vec<Validated> = options
        .candidates
        .par_iter()
        .map(|candidate| {
            let factor = joined(&grams, &examples, candidate).factor();
            validate(&factor, &examples, &fold_of, labels, candidate, options)
        })
        .collect();
    results.sort_by(|a, b| a.tried.loss.total_cmp(&b.tried.loss));
    let best = &results[0];
    let temperature = temperature::fit(&best.scores, &examples.class_of);
    let factor = joined(&grams, &examples, &best.tried.candidate).factor();
    let fit = Fit::of(
        Task {
            factor: &factor,
            learned: &own_order,
            class_of: &examples.class_of,
            classes: labels,
            penalty: best.tried.penalty,
        },
        None,
    );
    let mut head = assemble(
        bond,
        &examples,
        &blocks,
        &best.tried.candidate,
        &factor,
        &fit,
    );
    head.temperature = temperature;
    let mut set_aside: Vec<HeldOut> = aside
        .iter()
        .map(|&place| HeldOut {
            place,
            probabilities: head.judge_example(all, place),
        })
        .collect();
    if let (Some(target), Some(place)) = (options.recall, place) {
        let positives = set_aside
            .iter()
            .filter(|held| all.class_of[held.place] == target.label);
        let mut leads: Vec<f64> = positives
            .map(|held| lead(&held.probabilities, target.label))
            .collect();
        leads.sort_by(f64::total_cmp);
        head.offset[target.label] = ROUNDING - leads[place];
        for held in &mut set_aside {
            held.probabilities = head.judge_example(all, held.place);
        }
    }
    let held_out = calibrated(&best.scores, &examples.class_of, &fold_of, options.folds)
        .into_iter()
        .enumerate()
        .map(|(at, probabilities)| HeldOut {
            place: learned[at],
            probabilities,
        });
    let mut held_out: Vec<HeldOut> = held_out.collect();
    held_out.sort_by_key(|held| held.place);
    Ok(Trained {
        head: head.sealed()?,
        held_out,
        set_aside,
        tried: results.into_iter().map(|result| result.tried).collect(),
        not_learned: Vec::new(),
    })
}

fn check(examples: &Examples, bond: &Bond, folds: usize) -> Result<(), TrainError> {
    if examples.len() > EXAMPLES_MAX {
        return Err(TrainError::TooMany {
            found: examples.len(),
        });
    }
    let needed = CLASS_MIN.max(folds);
    for (place, label) in bond.labels.iter().enumerate() {
        let found = examples.class_of.iter().filter(|&&of| of == place).count();
        if found < needed {
            return Err(TrainError::TooFew {
                label: label.clone(),
                found,
                needed,
            });
        }
    }
    Ok(())
}

fn threshold_place(
    all: &Examples,
    aside: &[usize],
    bond: &Bond,
    target: RecallTarget,
) -> Result<usize, TrainError> {
    let positives = aside
        .iter()
        .filter(|&&place| all.class_of[place] == target.label)
        .count();
    let (recall_ppm, alpha_ppm) = (target.recall_ppm, target.alpha_ppm);
    recall::place(positives, recall_ppm, alpha_ppm).ok_or_else(|| {
        let needed = recall::positives_needed(recall_ppm, alpha_ppm).unwrap_or(usize::MAX);
        let more = needed.saturating_sub(positives) as f64 / SET_ASIDE;
        TrainError::TooFewForRecall {
            label: bond.labels[target.label].clone(),
            recall_percent: f64::from(recall_ppm) * 100.0 / f64::from(PPM),
            found: positives,
            needed,
            more: more.ceil() as usize,
        }
    })
}

fn blocks_of(examples: &Examples, candidates: &[Candidate]) -> BTreeMap<Reading, Block> {
    let mut readings: Vec<Reading> = candidates
        .iter()
        .flat_map(|candidate| candidate.readings.iter().copied())
        .collect();
    readings.sort_unstable();
    readings.dedup();
    readings
        .into_par_iter()
        .map(|reading| (reading, Block::of(examples, reading)))
        .collect()
}

/// The products of all that a candidate reads, and of what its groups have to themselves.
fn joined(grams: &BTreeMap<Reading, Gram>, examples: &Examples, candidate: &Candidate) -> Gram {
    let mut gram = Gram::zero(examples.len());
    let share = 1.0 / candidate.readings.len() as f64;
    for reading in &candidate.readings {
        gram.add(&grams[reading], share);
    }
    if candidate.own > 0.0 {
        let of = &examples.group_of;
        gram.map(|a, b, product| match of[a] == of[b] {
            true => product + candidate.own * (product + 1.0),
            false => product,
        });
    }
    gram
}

/// Examples that a fit had not seen, each with its scores.
type Scored = Vec<(usize, Vec<f64>)>;

/// A candidate at its best penalty, with the scores of every example by a fit that had not seen it.
struct Validated {
    tried: Tried,
    scores: Vec<Vec<f64>>,
}

fn validate(
    factor: &Factor,
    examples: &Examples,
    fold_of: &[usize],
    labels: usize,
    candidate: &Candidate,
    options: &Options,
) -> Validated {
    let folds: Vec<Vec<Scored>> = (0..options.folds)
        .into_par_iter()
        .map(|fold| {
            let (held, learned): (Vec<usize>, Vec<usize>) =
                (0..examples.len()).partition(|&place| fold_of[place] == fold);
            let mut start = None;
            let mut of_penalties = Vec::new();
            for &penalty in &options.penalties {
                let task = Task {
                    factor,
                    learned: &learned,
                    class_of: &examples.class_of,
                    classes: labels,
                    penalty,
                };
                let fit = Fit::of(task, start.as_ref());
                let scores = held.iter().map(|&at| (at, fit.scores(factor.row(at))));
                of_penalties.push(scores.collect());
                start = Some(fit);
            }
            of_penalties
        })
        .collect();
    let mut best: Option<Validated> = None;
    for (place, &penalty) in options.penalties.iter().enumerate() {
        let mut scores = vec![Vec::new(); examples.len()];
        for fold in &folds {
            for (at, of) in &fold[place] {
                scores[*at].clone_from(of);
            }
        }
        let warm = temperature::fit(&scores, &examples.class_of);
        let loss = temperature::loss(&scores, &examples.class_of, warm);
        if best.as_ref().is_none_or(|best| loss < best.tried.loss) {
            best = Some(Validated {
                tried: Tried {
                    candidate: candidate.clone(),
                    penalty,
                    loss,
                },
                scores,
            });
        }
    }
    best.unwrap_or_else(|| unreachable!("options name penalties"))
}

/// Probabilities of held-out scores, each fold's at the temperature of the others.
fn calibrated(
    scores: &[Vec<f64>],
    class_of: &[usize],
    fold_of: &[usize],
    folds: usize,
) -> Vec<Vec<f64>> {
    let temperatures: Vec<f64> = (0..folds)
        .map(|fold| {
            let others = (0..scores.len()).filter(|&at| fold_of[at] != fold);
            let (scores, classes): (Vec<Vec<f64>>, Vec<usize>) =
                others.map(|at| (scores[at].clone(), class_of[at])).unzip();
            temperature::fit(&scores, &classes)
        })
        .collect();
    scores
        .iter()
        .zip(fold_of)
        .map(|(scores, &fold)| softmax(scores, temperatures[fold]))
        .collect()
}

/// The head that a fit comes to on features as the model gives them.
fn assemble(
    bond: Bond,
    examples: &Examples,
    blocks: &BTreeMap<Reading, Block>,
    candidate: &Candidate,
    factor: &Factor,
    fit: &Fit,
) -> Head {
    let weights_of: Vec<Vec<f64>> = fit
        .directions
        .iter()
        .map(|direction| factor.examples_of(direction))
        .collect();
    let share = 1.0 / candidate.readings.len() as f64;
    let mut names: Vec<&String> = match candidate.own > 0.0 {
        true => examples.group_of.iter().collect(),
        false => Vec::new(),
    };
    names.sort_unstable();
    names.dedup();
    let mut bias = fit.bias.clone();
    let mut parts = Vec::new();
    let mut groups: Vec<Group> = names
        .iter()
        .map(|name| Group {
            name: (*name).clone(),
            weights: Vec::new(),
            bias: weights_of
                .iter()
                .map(|of| candidate.own * sum_of(of, examples, name))
                .collect(),
        })
        .collect();
    for reading in &candidate.readings {
        let block = &blocks[reading];
        let learn = |bias: &mut [f64], scale: f64, within: &dyn Fn(usize) -> bool| {
            let mut weights = Vec::new();
            for (of, bias) in weights_of.iter().zip(bias) {
                let (row, shift) = block.weights(of, scale, within);
                *bias += shift;
                weights.extend(row);
            }
            weights
        };
        parts.push(Part {
            reading: *reading,
            weights: learn(&mut bias, share, &|_| true),
            vocabulary: block.vocabulary(),
        });
        for group in &mut groups {
            let name = group.name.clone();
            let within = |place: usize| examples.group_of[place] == name;
            let weights = learn(&mut group.bias, candidate.own * share, &within);
            group.weights.push(weights);
        }
    }
    let labels = bond.labels.len();
    Head {
        bond,
        parts,
        bias,
        groups,
        temperature: 1.0,
        offset: vec![0.0; labels],
        digest: [0; 32],
    }
}

fn sum_of(weights: &[f64], examples: &Examples, group: &str) -> f64 {
    let of_group = weights.iter().zip(&examples.group_of);
    of_group
        .filter(|(_, of)| *of == group)
        .map(|(weight, _)| weight)
        .sum()
}

impl Block {
    /// The weights of features as the model gives them, for weights of examples; and what that adds to
    /// the bias.
    fn weights(&self, of: &[f64], share: f64, within: &dyn Fn(usize) -> bool) -> (Vec<f32>, f64) {
        let examples = of.iter().enumerate().filter(|(place, _)| within(*place));
        match self {
            Self::Dense { rows, mean, scale } => {
                let mut sum = vec![0.0; mean.len()];
                for (place, weight) in examples {
                    add_scaled(&mut sum, &rows[place], share * weight);
                }
                let weights: Vec<f32> = sum
                    .iter()
                    .zip(scale)
                    .map(|(sum, scale)| (sum * scale) as f32)
                    .collect();
                let shift = weights.iter().zip(mean);
                let shift = shift.map(|(weight, mean)| -f64::from(*weight) * mean).sum();
                (weights, shift)
            }
            Self::Sparse { rows, vocabulary } => {
                let mut sum = vec![0.0; vocabulary.words().len()];
                for (place, weight) in examples {
                    for (word, value) in &rows[place] {
                        sum[*word as usize] += share * weight * value;
                    }
                }
                (sum.iter().map(|sum| *sum as f32).collect(), 0.0)
            }
        }
    }
}

/// By how much the log-odds of a label lead over the next best one.
fn lead(probabilities: &[f64], label: usize) -> f64 {
    let others = probabilities
        .iter()
        .enumerate()
        .filter(|(place, _)| *place != label);
    let next = others.fold(0.0_f64, |most, (_, share)| most.max(*share));
    probabilities[label].max(f64::MIN_POSITIVE).ln() - next.max(f64::MIN_POSITIVE).ln()
}
