//! A backend that answers from a recording: the whole algebra without a model.
//!
//! One JSON line per unit:
//!
//! ```text
//! {"unit_id":"4821","answers":{"kind":{"bug":900000,"feature":100000},"evidence":"2"}}
//! {"unit_id":"4822","failed":{"reason":"backend","message":"connection reset"}}
//! ```
//!
//! Probabilities are parts per million; a bare label is certain. Everything answered from here is
//! marked as simulated, in every fact and in the answer. A recording holds answers only: it writes no
//! texts, so that a plan's summaries are refused with that reason. Must not know plans or runs.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::canonical::Canonical;
use crate::error::OperatorError;
use crate::fact::{Fact, Status};
use crate::id::UnitId;
use crate::infer::{
    Answer, BackendIdentity, Completion, FailReason, Infer, InferError, InferJob, JobUsage, PPM,
    Question, UnitOutcome, UnitUsage,
};
use crate::plan::{EVIDENCE_FIELD, REASON_SUFFIX};
use crate::text::UnitText;

/// One line of a recording; exactly one of `answers` and `failed` is there.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    unit_id: UnitId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    answers: Option<BTreeMap<String, Choice>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failed: Option<Failure>,
}

/// The recorded answer to one question.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
enum Choice {
    /// A label, certain.
    Label(String),
    /// Parts per million by label; labels left out have none.
    Ppm(BTreeMap<String, u32>),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Failure {
    reason: FailReason,
    message: String,
}

/// Answers from a recording; always simulated.
#[derive(Debug, Clone)]
pub struct Replay {
    identity: BackendIdentity,
    rows: BTreeMap<UnitId, Row>,
}

impl Replay {
    /// Reads a recording from a file.
    ///
    /// # Errors
    /// `Io` when it cannot be read, otherwise as `parse`.
    pub fn load(path: &Path) -> Result<Self, OperatorError> {
        let shown = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|source| OperatorError::Io {
            path: shown.clone(),
            action: "read",
            source,
        })?;
        Self::parse(&text, &shown)
    }

    /// Reads a recording; `path` names it in errors.
    ///
    /// # Errors
    /// `FileInvalid` with the line when a line is no recorded answer, has both or neither of
    /// `answers` and `failed`, or repeats a unit.
    pub fn parse(text: &str, path: &str) -> Result<Self, OperatorError> {
        let mut rows: BTreeMap<UnitId, Row> = BTreeMap::new();
        for (number, line) in (1_u64..).zip(text.lines()) {
            if line.trim().is_empty() {
                continue;
            }
            let invalid = |problem: String| OperatorError::FileInvalid {
                path: path.to_owned(),
                line: number,
                problem,
            };
            let row: Row = serde_json::from_str(line)
                .map_err(|error| invalid(format!("is not a recorded answer: {error}")))?;
            if row.answers.is_some() == row.failed.is_some() {
                return Err(invalid(String::from("needs either `answers` or `failed`")));
            }
            if rows.contains_key(&row.unit_id) {
                return Err(invalid(format!("unit {} is recorded twice", row.unit_id)));
            }
            rows.insert(row.unit_id.clone(), row);
        }
        let mut canonical = Canonical::new("operator 2026 replay v1");
        canonical.text(text);
        let identity = BackendIdentity {
            name: String::from("replay"),
            digest: canonical.digest(),
            simulated: true,
            describe: format!("{} recorded answers from {path}", rows.len()),
        };
        Ok(Self { identity, rows })
    }

    fn answer(&self, unit: &UnitText, questions: &[Question]) -> UnitOutcome {
        let failed = |reason, message: String| UnitOutcome::Failed { reason, message };
        let Some(row) = self.rows.get(&unit.unit_id) else {
            return failed(FailReason::Backend, String::from("no recorded answer"));
        };
        if let Some(failure) = &row.failed {
            return failed(failure.reason, failure.message.clone());
        }
        let recorded = row.answers.iter().flatten();
        let choices: BTreeMap<&str, &Choice> = recorded
            .map(|(field, choice)| (field.as_str(), choice))
            .collect();
        let mut answers = Vec::with_capacity(questions.len());
        for question in questions {
            let field = question.field.as_str();
            let answer = match choices.get(field) {
                None => Err(String::from("no recorded answer")),
                Some(choice) => weigh(choice, &question.labels.of(unit)),
            };
            match answer {
                Ok(answer) => answers.push(answer),
                Err(problem) => return failed(FailReason::Schema, format!("{field}: {problem}")),
            }
        }
        UnitOutcome::Answered(answers)
    }
}

impl Infer for Replay {
    fn identity(&self) -> &BackendIdentity {
        &self.identity
    }

    fn infer(
        &mut self,
        job: InferJob<'_>,
        sink: &mut dyn FnMut(Completion),
    ) -> Result<JobUsage, InferError> {
        for place in 0..job.units.len() {
            if job.cancel.is_cancelled() {
                break;
            }
            let outcome = match job.units.text(place) {
                Ok(unit) => self.answer(&unit, job.questions),
                Err(problem) => problem.into(),
            };
            sink(Completion {
                unit_id: job.units.id(place).clone(),
                outcome,
                usage: UnitUsage::default(),
            });
        }
        // Nothing was computed, so nothing is counted.
        Ok(JobUsage::default())
    }
}

fn weigh(choice: &Choice, labels: &[String]) -> Result<Answer, String> {
    let mut probabilities = vec![0; labels.len()];
    let place = |label: &str| {
        labels
            .iter()
            .position(|known| known == label)
            .ok_or_else(|| format!("label {label:?} is none of {}", labels.join(", ")))
    };
    match choice {
        Choice::Label(label) => probabilities[place(label)?] = PPM,
        Choice::Ppm(shares) => {
            for (label, ppm) in shares {
                probabilities[place(label)?] = *ppm;
            }
        }
    }
    let sum: u64 = probabilities.iter().copied().map(u64::from).sum();
    Answer::from_ppm(probabilities, PPM)
        .ok_or_else(|| format!("probabilities sum to {sum} ppm, {PPM} wanted"))
}

/// Writes the answers that facts hold as a recording, one line per unit that a backend answered.
///
/// Probabilities of the fields and of selectors' choices are kept; of a reason and of a line only the
/// choice is, and of a field that several stages asked only the last answer. Units that a predicate
/// settled and units that were cancelled or not run are left out.
pub fn record(facts: &[Fact]) -> String {
    let mut lines = String::new();
    for fact in facts.iter().filter(|fact| fact.backend.is_some()) {
        let row = match fact.status {
            Status::Decided | Status::Abstained | Status::Excluded => answered(fact),
            Status::Errored => failed(fact),
            Status::Cancelled | Status::NotRun => continue,
        };
        lines.push_str(&Value::Object(row).to_string());
        lines.push('\n');
    }
    lines
}

fn answered(fact: &Fact) -> Map<String, Value> {
    let mut answers = Map::new();
    let choices = fact.path.iter().filter_map(|step| {
        let value = step.values.get(&step.stage)?;
        Some((&step.stage, value))
    });
    for (field, value) in fact.values.iter().chain(choices) {
        let chosen = (
            value.label.clone(),
            Value::from(value.probability_of(&value.label)),
        );
        let others = value
            .alternatives
            .iter()
            .map(|(label, ppm)| (label.clone(), Value::from(*ppm)));
        let shares: Map<String, Value> = std::iter::once(chosen).chain(others).collect();
        answers.insert(field.clone(), Value::Object(shares));
        if let Some(code) = &value.reason_code {
            answers.insert(
                format!("{field}{REASON_SUFFIX}"),
                Value::from(code.as_str()),
            );
        }
    }
    if let Some(line) = fact.evidence.first().and_then(|evidence| evidence.line) {
        answers.insert(EVIDENCE_FIELD.to_owned(), Value::from(line.to_string()));
    }
    row_of(fact, "answers", answers)
}

fn failed(fact: &Fact) -> Map<String, Value> {
    let reason = fact.reason.as_deref().unwrap_or_default();
    let (code, message) = reason.split_once(": ").unwrap_or(("backend", reason));
    let failure = [("reason", code), ("message", message)];
    let failure = failure.map(|(key, text)| (key.to_owned(), Value::from(text)));
    row_of(fact, "failed", failure.into_iter().collect())
}

fn row_of(fact: &Fact, key: &str, value: Map<String, Value>) -> Map<String, Value> {
    let mut row = Map::new();
    row.insert(String::from("unit_id"), Value::from(fact.unit_id.as_str()));
    row.insert(key.to_owned(), Value::Object(value));
    row
}
