//! What is known of a trained head, for a person or as JSON.

use std::fmt;
use std::path::Path;

use engine::calibrate::judgements;
use engine::head::Trained;
use operator::eval::{self, Quality, evaluate_judgements};
use serde::Serialize;

use super::Ground;

/// Candidates that are shown beside the chosen one.
const SHOWN: usize = 5;

/// The report of one calibration.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    file: String,
    hash: String,
    backend: String,
    examples: usize,
    not_asked: u64,
    repeated: u64,
    failed: Vec<(String, String)>,
    folds: usize,
    /// Labels with too few examples, which the head never chooses.
    not_learned: Vec<String>,
    tried: Vec<Tried>,
    cross_validated: Measured,
    /// On the records set aside, with the threshold: optimistic, for it was set on them.
    set_aside: Option<Measured>,
    recall: Option<Recall>,
}

#[derive(Debug, Serialize)]
struct Tried {
    reads: String,
    own: f64,
    penalty: f64,
    loss: f64,
}

#[derive(Debug, Serialize)]
struct Measured {
    #[serde(flatten)]
    report: eval::Report,
    quality: Quality,
}

#[derive(Debug, Serialize)]
struct Recall {
    label: String,
    recall_ppm: u32,
    confidence_ppm: u32,
}

impl Report {
    pub(super) fn of(ground: &Ground, trained: &Trained, file: &Path) -> Self {
        let (gathered, bond) = (&ground.gathered, &ground.bond);
        let measure = |held_out| {
            let claims = judgements(gathered, &bond.labels, held_out);
            Measured {
                report: evaluate_judgements(&claims, &bond.field),
                quality: Quality::of(claims),
            }
        };
        let recall = ground.options.recall;
        Self {
            file: file.display().to_string(),
            hash: blake3::Hash::from_bytes(trained.head.digest())
                .to_hex()
                .to_string(),
            backend: bond.describe.clone(),
            examples: gathered.units.len(),
            not_asked: gathered.not_asked,
            repeated: gathered.repeated,
            failed: gathered
                .failed
                .iter()
                .map(|(unit, problem)| (unit.to_string(), problem.clone()))
                .collect(),
            folds: ground.options.folds,
            not_learned: trained.not_learned.clone(),
            tried: trained
                .tried
                .iter()
                .map(|tried| Tried {
                    reads: reads(&tried.candidate.readings),
                    own: tried.candidate.own,
                    penalty: tried.penalty,
                    loss: tried.loss,
                })
                .collect(),
            cross_validated: measure(&trained.held_out),
            set_aside: recall.map(|_| measure(&trained.set_aside)),
            recall: recall.map(|target| Recall {
                label: bond.labels[target.label].clone(),
                recall_ppm: target.recall_ppm,
                confidence_ppm: operator::infer::PPM - target.alpha_ppm,
            }),
        }
    }
}

/// What a calibration without labels found: how probable each label is on average.
pub(super) fn prior(
    labels: &[String],
    answers: &[Vec<f64>],
    file: &Path,
    json: bool,
) -> anyhow::Result<String> {
    let mean = |label: usize| {
        let sum: f64 = answers.iter().map(|shares| shares[label]).sum();
        sum / answers.len().max(1) as f64
    };
    let means = labels
        .iter()
        .enumerate()
        .map(|(at, label)| (label, mean(at)));
    if json {
        let means: std::collections::BTreeMap<_, _> = means.collect();
        let report = serde_json::json!({ "file": file, "texts": answers.len(), "means": means });
        return Ok(serde_json::to_string_pretty(&report)?);
    }
    let means: Vec<String> = means
        .map(|(label, share)| format!("{label} {:.1} %", share * 100.0))
        .collect();
    Ok(format!(
        "the prompt prefers, over {} texts: {}\nhead {}",
        answers.len(),
        means.join(", "),
        file.display()
    ))
}

fn reads(readings: &[engine::head::Reading]) -> String {
    let names: Vec<String> = readings.iter().map(ToString::to_string).collect();
    names.join(" + ")
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} examples; {}", self.examples, self.backend)?;
        if self.not_asked + self.repeated > 0 {
            writeln!(
                f,
                "left out: {} labels of records that the model is not asked about, {} of a text that \
                 another has",
                self.not_asked, self.repeated
            )?;
        }
        for (unit, problem) in &self.failed {
            writeln!(f, "left out: {unit}: {problem}")?;
        }
        if !self.not_learned.is_empty() {
            writeln!(
                f,
                "too few examples to learn: {}; the head never chooses these, and the figures below leave \
                 their records out",
                self.not_learned.join(", ")
            )?;
        }
        writeln!(f, "\nheld-out loss, best first:")?;
        for tried in self.tried.iter().take(SHOWN) {
            let own = match tried.own > 0.0 {
                true => format!(", own {}", tried.own),
                false => String::new(),
            };
            writeln!(
                f,
                "  {:.4}  {}{own}, penalty {}",
                tried.loss, tried.reads, tried.penalty
            )?;
        }
        writeln!(f, "\ncross-validated over {} folds:", self.folds)?;
        let measured = &self.cross_validated;
        writeln!(f, "{}{}", measured.report.figures(), measured.quality)?;
        if let (Some(recall), Some(measured)) = (&self.recall, &self.set_aside) {
            writeln!(
                f,
                "\nat least {} % of {:?} are found at {} % confidence, of records drawn as the labelled \
                 ones; on those set aside:",
                f64::from(recall.recall_ppm) / 1e4,
                recall.label,
                f64::from(recall.confidence_ppm) / 1e4,
            )?;
            writeln!(f, "{}", measured.report.figures().trim_end())?;
        }
        write!(
            f,
            "\nhead {}\nuse it with --head, or head = \"...\" in the plan's [[field]]",
            self.file
        )
    }
}
