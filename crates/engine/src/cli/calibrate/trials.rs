//! Heads trained on random parts of the labels and measured on the rest.
//!
//! Everything that a head chooses, it chooses on its own part: the rest has been seen by nothing.

use std::collections::BTreeMap;
use std::fmt;

use engine::calibrate::judgements;
use engine::head::{HeldOut, split, train};
use operator::eval::{Judgement, Quality, evaluate_judgements};
use operator::infer::PPM;
use serde::Serialize;

use super::Ground;

/// What the trials found.
#[derive(Debug, Serialize)]
pub(super) struct TrialsReport {
    backend: String,
    field: String,
    labels: Vec<String>,
    group_by: Option<String>,
    trials: Vec<Trial>,
}

/// One trial.
#[derive(Debug, Serialize)]
struct Trial {
    seed: u64,
    learned: usize,
    tested: usize,
    reads: String,
    own: f64,
    penalty: f64,
    head: Figures,
    /// The labels' own logits on the same records.
    raw: Figures,
    /// The same, divided by their mean over the records that were learned from, whose labels it ignores.
    batch: Figures,
    #[serde(skip_serializing_if = "Option::is_none")]
    recall: Option<Recall>,
}

/// Whether a recall target was met where nothing had been seen.
#[derive(Debug, Serialize)]
struct Recall {
    label: String,
    target_ppm: u32,
    positives: u64,
    found: u64,
    claimed: u64,
    met: bool,
}

/// Figures in parts per million.
#[derive(Debug, Clone, Serialize)]
struct Figures {
    accuracy: Option<u32>,
    macro_f1: Option<u32>,
    /// Macro F1 of each group.
    groups: BTreeMap<String, u32>,
    /// Their mean; of all records where there are no groups.
    mean_f1: Option<u32>,
    calibration_error: Option<u32>,
    /// Accuracy of the surest four fifths.
    at_80_percent: Option<u32>,
}

/// Trains and measures so many heads.
pub(super) fn run(
    ground: &Ground,
    count: u64,
    seed: u64,
    test: f64,
) -> anyhow::Result<TrialsReport> {
    if !(0.0..1.0).contains(&test) || test == 0.0 {
        anyhow::bail!("--test {test}: a share between 0 and 1");
    }
    let mut trials = Vec::new();
    for seed in seed..seed + count {
        let trial = try_once(ground, seed, test)?;
        eprintln!(
            "seed {seed}: {} ({} learned, {} tested)",
            percent(trial.head.mean_f1),
            trial.learned,
            trial.tested
        );
        trials.push(trial);
    }
    Ok(TrialsReport {
        backend: ground.bond.describe.clone(),
        field: ground.bond.field.clone(),
        labels: ground.bond.labels.clone(),
        group_by: ground.bond.group_by.clone(),
        trials,
    })
}

fn try_once(ground: &Ground, seed: u64, test: f64) -> anyhow::Result<Trial> {
    let examples = &ground.gathered.examples;
    let mut groups: Vec<&String> = examples.group_of.iter().collect();
    groups.sort_unstable();
    groups.dedup();
    let labels = ground.bond.labels.len();
    let strata: Vec<usize> = (0..examples.len())
        .map(|place| {
            let group = examples.group_of.get(place);
            let group = group.and_then(|group| groups.binary_search(&group).ok());
            group.unwrap_or(0) * labels + examples.class_of[place]
        })
        .collect();
    let (learned, tested) = split(seed, &examples.ids, &strata, test);
    let mut options = ground.options.clone();
    options.seed = seed;
    let trained = train(&examples.take(&learned), ground.bond.clone(), &options)?;
    let judged = tested.iter().map(|&place| HeldOut {
        place,
        probabilities: trained.head.judge_example(examples, place),
    });
    let judged: Vec<HeldOut> = judged.collect();
    let raw = &ground.gathered.raw;
    let unjudged = tested.iter().map(|&place| HeldOut {
        place,
        probabilities: raw[place].clone(),
    });
    let unjudged: Vec<HeldOut> = unjudged.collect();
    let prior: Vec<f64> = (0..labels)
        .map(|label| learned.iter().map(|&place| raw[place][label]).sum())
        .collect();
    let batch = tested.iter().map(|&place| HeldOut {
        place,
        probabilities: raw[place]
            .iter()
            .zip(&prior)
            .map(|(share, prior)| share / prior)
            .collect(),
    });
    let batch: Vec<HeldOut> = batch.collect();
    let best = &trained.tried[0];
    let reads = best.candidate.readings.iter().map(ToString::to_string);
    let recall = options.recall.map(|target| {
        let of_label = |held: &&HeldOut| examples.class_of[held.place] == target.label;
        let label = &ground.bond.labels[target.label];
        let claims = judgements(&ground.gathered, &ground.bond.labels, &judged);
        let claimed = claims.iter().filter(|claim| claim.label == label);
        let found = claimed.clone().filter(|claim| claim.truth == label).count() as u64;
        let positives = judged.iter().filter(of_label).count() as u64;
        Recall {
            label: label.clone(),
            target_ppm: target.recall_ppm,
            positives,
            found,
            claimed: claimed.count() as u64,
            met: found * u64::from(PPM) >= positives * u64::from(target.recall_ppm),
        }
    });
    Ok(Trial {
        seed,
        learned: learned.len(),
        tested: tested.len(),
        reads: reads.collect::<Vec<_>>().join("+"),
        own: best.candidate.own,
        penalty: best.penalty,
        head: figures(ground, &judged),
        raw: figures(ground, &unjudged),
        batch: figures(ground, &batch),
        recall,
    })
}

fn figures(ground: &Ground, judged: &[HeldOut]) -> Figures {
    let (field, labels) = (&ground.bond.field, &ground.bond.labels);
    let claims = judgements(&ground.gathered, labels, judged);
    let all = evaluate_judgements(&claims, field);
    let mut of_groups: BTreeMap<&str, Vec<Judgement<'_>>> = BTreeMap::new();
    for (held, claim) in judged.iter().zip(&claims) {
        if let Some(group) = ground.gathered.examples.group_of.get(held.place) {
            of_groups.entry(group).or_default().push(*claim);
        }
    }
    let groups: BTreeMap<String, u32> = of_groups
        .into_iter()
        .filter_map(|(group, claims)| {
            let report = evaluate_judgements(&claims, field);
            Some((group.to_owned(), report.macro_f1_ppm?))
        })
        .collect();
    let sum: u64 = groups.values().map(|&ppm| u64::from(ppm)).sum();
    let mean = sum.checked_div(groups.len() as u64).map(|ppm| ppm as u32);
    let quality = Quality::of(claims);
    let surest = quality.coverage.iter().find(|at| at.coverage_percent == 80);
    Figures {
        accuracy: all.accuracy_decided_ppm,
        macro_f1: all.macro_f1_ppm,
        mean_f1: mean.or(all.macro_f1_ppm),
        groups,
        calibration_error: quality.calibration_error_ppm,
        at_80_percent: surest.and_then(|at| at.right_ppm),
    }
}

impl fmt::Display for TrialsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let title = match &self.group_by {
            Some(field) => format!("mean macro F1 over {field}"),
            None => "macro F1".to_owned(),
        };
        writeln!(f, "{}: {title}, {}", self.field, self.backend)?;
        writeln!(
            f,
            "{:>5} {:>8} {:>8} {:>8} {:>9} {:>12} {:>8}  reads",
            "seed", "head", "raw", "batch", "accuracy", "80% surest", "ECE"
        )?;
        for trial in &self.trials {
            writeln!(
                f,
                "{:>5} {:>8} {:>8} {:>8} {:>9} {:>12} {:>8}  {}, own {}, penalty {}",
                trial.seed,
                percent(trial.head.mean_f1),
                percent(trial.raw.mean_f1),
                percent(trial.batch.mean_f1),
                percent(trial.head.accuracy),
                percent(trial.head.at_80_percent),
                percent(trial.head.calibration_error),
                trial.reads,
                trial.own,
                trial.penalty,
            )?;
        }
        let mean = |of: &dyn Fn(&Trial) -> Option<u32>| {
            let found: Vec<u64> = self.trials.iter().filter_map(of).map(u64::from).collect();
            let sum: u64 = found.iter().sum();
            sum.checked_div(found.len() as u64).map(|ppm| ppm as u32)
        };
        write!(
            f,
            "{:>5} {:>8} {:>8} {:>8} {:>9} {:>12} {:>8}",
            "mean",
            percent(mean(&|trial| trial.head.mean_f1)),
            percent(mean(&|trial| trial.raw.mean_f1)),
            percent(mean(&|trial| trial.batch.mean_f1)),
            percent(mean(&|trial| trial.head.accuracy)),
            percent(mean(&|trial| trial.head.at_80_percent)),
            percent(mean(&|trial| trial.head.calibration_error)),
        )?;
        let recalls: Vec<&Recall> = self
            .trials
            .iter()
            .filter_map(|t| t.recall.as_ref())
            .collect();
        if let Some(first) = recalls.first() {
            let met = recalls.iter().filter(|recall| recall.met).count();
            write!(
                f,
                "\n{} of {} trials found at least {} of {:?}",
                met,
                recalls.len(),
                percent(Some(first.target_ppm)),
                first.label
            )?;
        }
        Ok(())
    }
}

fn percent(ppm: Option<u32>) -> String {
    ppm.map_or("-".to_owned(), |ppm| {
        format!("{:.2}%", f64::from(ppm) / 1e4)
    })
}
