//! From a plan and labelled records to a trained head: what `engine calibrate` does, as a library.
//!
//! The records that the plan's predicates leave to the model are asked as a run would ask them, once, and
//! their states are what the head learns from. Records of equal text are one example: else what is held
//! out would have been seen. Must not know files of labels, nor how a head is fitted.

pub mod recipe;

use std::collections::{BTreeMap, HashSet};

use operator::OperatorError;
use operator::Plan;
use operator::eval::{Judgement, Labels};
use operator::id::{ContentHash, UnitId};
use operator::infer::{Answer, CancelFlag, InferJob, Labels as Choices, UnitOutcome};
use operator::ops::Units;
use operator::plan::{Granularity, StageOp, Turn};
use operator::survey::past_predicates;
use operator::text::{UnitText, render_for};
use thiserror::Error;

use crate::error::EngineError;
use crate::head::{CONTENT_FREE, Examples, HeldOut, Reading, shuffle, state_of};
use crate::infer::LocalInfer;

/// Why a plan cannot be calibrated with these labels.
#[derive(Debug, Error)]
pub enum CalibrateError {
    /// The plan has no such field, or does not ask the model for it.
    #[error("{path}: {problem}")]
    Field {
        /// The plan's file.
        path: String,
        /// What is wrong.
        problem: String,
    },
    /// A label is none of the field's.
    #[error(
        "record {unit} is labelled {label:?}, which is none of the labels of {field} ({known}); correct it, or rename it with --map {label}=LABEL"
    )]
    UnknownLabel {
        /// The record.
        unit: UnitId,
        /// Its label.
        label: String,
        /// The field.
        field: String,
        /// The labels that there are.
        known: String,
    },
    /// No labelled record is left.
    #[error(
        "none of the {labels} labels belongs to a record that the model is asked about; compare the ids of both files"
    )]
    NoExample {
        /// Labels given.
        labels: usize,
    },
    /// Stopped by the caller.
    #[error("stopped; nothing was trained")]
    Cancelled,
    /// Reading the records failed.
    #[error(transparent)]
    Operator(#[from] OperatorError),
    /// The forward failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// Examples of one field, and what was left out.
#[derive(Debug, Clone, Default)]
pub struct Gathered {
    /// The examples.
    pub examples: Examples,
    /// The unit of each.
    pub units: Vec<UnitId>,
    /// What the labels' own logits say of each: probabilities per label.
    pub raw: Vec<Vec<f64>>,
    /// Labelled records that the plan settles without the model, or that are not in the input.
    pub not_asked: u64,
    /// Labelled records whose text another labelled record has as well.
    pub repeated: u64,
    /// Labelled records that could not be read or asked, with the reason.
    pub failed: Vec<(UnitId, String)>,
}

/// The first map stage's turn that asks for a field.
///
/// # Errors
/// `Field` where the plan has no such field, or no stage asks the model for it.
pub fn turn_of(plan: &Plan, field: &str) -> Result<Turn, CalibrateError> {
    let problem = |problem: String| CalibrateError::Field {
        path: plan.path.clone(),
        problem,
    };
    // Where records are widened, the first look at them is still a look at records.
    if !matches!(plan.unit.kind, Granularity::Record | Granularity::Adaptive) {
        let units =
            "heads are trained for plans whose units are records; this one has parts or groups";
        return Err(problem(units.to_owned()));
    }
    if plan.field(field).is_none() {
        let known: Vec<&str> = plan.fields.iter().map(|field| &*field.name).collect();
        let known = known.join(", ");
        return Err(problem(format!(
            "no field {field:?}; its fields are {known}"
        )));
    }
    let mut turns = plan
        .stages
        .iter()
        .filter(|stage| matches!(stage.op, StageOp::Map(_)))
        .filter_map(|stage| plan.turn(stage));
    let asks = |turn: &Turn| turn.questions.iter().any(|asked| asked.field == field);
    turns
        .find(asks)
        .ok_or_else(|| problem(format!("no stage asks the model for field {field:?}")))
}

/// Whose states are gathered.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// Its records.
    pub units: &'a dyn Units,
    /// The labels by record.
    pub labels: &'a Labels,
    /// The turn that asks for the field, of [`turn_of`].
    pub turn: &'a Turn,
    /// The field.
    pub field: &'a str,
    /// The field of the record by which heads differ; the first that the model is shown.
    pub group_by: Option<&'a str>,
    /// Layers whose states are read, ascending.
    pub layers: &'a [usize],
}

/// Reads the states of the labelled records that a run would ask about a field.
///
/// # Errors
/// [`CalibrateError`]; the machine, the records, or labels that do not fit the plan.
///
/// # Panics
/// If the turn does not ask for the field, or the model lacks a layer.
pub fn gather(
    source: Source<'_>,
    infer: &mut LocalInfer,
    cancel: &CancelFlag,
) -> Result<Gathered, CalibrateError> {
    let Source {
        plan,
        units,
        labels,
        turn,
        field,
        group_by,
        layers,
    } = source;
    let question = place_of(turn, field);
    let choices = match &turn.questions[question].labels {
        Choices::Fixed(labels) => labels.clone(),
        Choices::Lines => Vec::new(),
    };
    let classes = classes_of(labels, &choices, field)?;
    let mut gathered = Gathered::default();
    let texts = texts_of(plan, units, turn, &classes, &mut gathered)?;
    // Questions over a unit's lines come last: where a unit lacks them, the places of others stay.
    let mut found = vec![None; texts.len()];
    let job = InferJob {
        rubric: &turn.rubric,
        questions: &turn.questions,
        units: &texts,
        cancel,
    };
    let mut failed = Vec::new();
    infer.states(job, layers, &mut |place, read| match read {
        Ok(read) => found[place] = Some(read),
        Err(UnitOutcome::Failed { message, .. }) => {
            failed.push((texts[place].unit_id.clone(), message));
        }
        Err(_) => {}
    })?;
    if cancel.is_cancelled() {
        return Err(CalibrateError::Cancelled);
    }
    gathered.failed.extend(failed);
    for (text, read) in texts.into_iter().zip(found) {
        let Some(read) = read else { continue };
        let examples = &mut gathered.examples;
        let readings = readings_of(layers);
        for reading in readings {
            if let Some(row) = state_of(reading, &read.states, question, layers) {
                examples
                    .states
                    .entry(reading)
                    .or_default()
                    .push(row.to_vec());
            }
        }
        if let Some(field) = group_by {
            let group = crate::head::group_of(&text.text, field);
            examples.group_of.push(group.unwrap_or_default().to_owned());
        }
        examples.ids.push(text.text_hash.to_string());
        examples.class_of.push(classes[&text.unit_id]);
        examples.texts.push(text.text);
        gathered
            .raw
            .push(read.scores[question].probabilities.clone());
        gathered.units.push(text.unit_id);
    }
    match gathered.units.is_empty() {
        true => Err(CalibrateError::NoExample {
            labels: labels.len(),
        }),
        false => Ok(gathered),
    }
}

fn place_of(turn: &Turn, field: &str) -> usize {
    let found = turn.questions.iter().position(|asked| asked.field == field);
    found.unwrap_or_else(|| panic!("the turn asks for {field}"))
}

fn classes_of(
    labels: &Labels,
    choices: &[String],
    field: &str,
) -> Result<BTreeMap<UnitId, usize>, CalibrateError> {
    let mut classes = BTreeMap::new();
    for (unit, label) in labels {
        let Some(place) = choices.iter().position(|choice| choice == label) else {
            return Err(CalibrateError::UnknownLabel {
                unit: unit.clone(),
                label: label.clone(),
                field: field.to_owned(),
                known: choices.join(", "),
            });
        };
        classes.insert(unit.clone(), place);
    }
    Ok(classes)
}

/// The texts of the labelled records that go past the predicates, each once.
fn texts_of(
    plan: &Plan,
    units: &dyn Units,
    turn: &Turn,
    classes: &BTreeMap<UnitId, usize>,
    gathered: &mut Gathered,
) -> Result<Vec<UnitText>, CalibrateError> {
    let past = past_predicates(plan, units, &|| 0)?;
    let mut texts = Vec::new();
    let mut seen = HashSet::new();
    let mut met: u64 = 0;
    for place in past {
        let unit = units.read(place)?;
        if !classes.contains_key(&unit.id) {
            continue;
        }
        met += 1;
        match render_for(plan, &unit, &[], turn.evidence) {
            Ok(text) if seen.insert(text.text_hash) => texts.push(text),
            Ok(_) => gathered.repeated += 1,
            Err(problem) => gathered.failed.push((unit.id, problem.message)),
        }
    }
    gathered.not_asked = classes.len() as u64 - met;
    Ok(texts)
}

/// Everything that may be read of states in these layers.
fn readings_of(layers: &[usize]) -> Vec<Reading> {
    let answers = layers.iter().map(|&layer| Reading::Answer(layer));
    let means = layers.iter().map(|&layer| Reading::Mean(layer));
    let rest = [Reading::Final, Reading::Labels];
    answers.chain(means).chain(rest).collect()
}

/// What a prompt prefers, told without labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prior {
    /// By texts that say nothing.
    ContentFree,
    /// By the mean over so many of the records that the model is asked about, drawn by lot.
    Batch(usize),
}

/// The probabilities that the labels' own logits give to what a prior is told by.
///
/// `labels` and `layers` of the source are not looked at.
///
/// # Errors
/// [`CalibrateError`]; the machine or the records.
///
/// # Panics
/// If the turn does not ask for the field.
pub fn ask_prior(
    source: Source<'_>,
    prior: Prior,
    seed: u64,
    infer: &mut LocalInfer,
    cancel: &CancelFlag,
) -> Result<Vec<Vec<f64>>, CalibrateError> {
    let question = place_of(source.turn, source.field);
    let texts = match prior {
        Prior::ContentFree => CONTENT_FREE
            .map(|text| content_free(source.plan, text))
            .to_vec(),
        Prior::Batch(count) => drawn(source, count, seed)?,
    };
    let job = InferJob {
        rubric: &source.turn.rubric,
        questions: &source.turn.questions,
        units: &texts,
        cancel,
    };
    let mut answers = vec![None; texts.len()];
    infer.states(job, &[0], &mut |place, read| {
        answers[place] = read
            .ok()
            .map(|read| read.scores[question].probabilities.clone());
    })?;
    match cancel.is_cancelled() {
        true => Err(CalibrateError::Cancelled),
        false => Ok(answers.into_iter().flatten().collect()),
    }
}

/// A record all of whose shown fields say nothing.
fn content_free(plan: &Plan, text: &str) -> UnitText {
    let lines = plan
        .input
        .text
        .iter()
        .map(|shown| format!("{}: {text}", shown.field));
    let text = lines.collect::<Vec<_>>().join("\n");
    UnitText {
        unit_id: UnitId::new(&text),
        source_hash: ContentHash::of_bytes(text.as_bytes()),
        text_hash: ContentHash::of_bytes(text.as_bytes()),
        lines: Vec::new(),
        clipped_bytes: 0,
        text,
    }
}

/// Texts of some records that the model is asked about, which ids and a seed alone decide.
fn drawn(source: Source<'_>, count: usize, seed: u64) -> Result<Vec<UnitText>, CalibrateError> {
    let asked = past_predicates(source.plan, source.units, &|| 0)?;
    let mut texts = Vec::new();
    for place in asked {
        let unit = source.units.read(place)?;
        texts.extend(render_for(source.plan, &unit, &[], source.turn.evidence));
    }
    let ids: Vec<String> = texts.iter().map(|text| text.unit_id.to_string()).collect();
    let order = shuffle(seed, &ids);
    let taken = order.into_iter().take(count);
    Ok(taken.map(|place| texts[place].clone()).collect())
}

/// What held-out probabilities claim, in the form in which facts are evaluated.
pub fn judgements<'g>(
    gathered: &'g Gathered,
    labels: &'g [String],
    held_out: &[HeldOut],
) -> Vec<Judgement<'g>> {
    held_out
        .iter()
        .filter_map(|held| {
            let answer = Answer::from_weights(&held.probabilities, 1.0)?;
            let chosen = answer.chosen as usize;
            Some(Judgement {
                unit: &gathered.units[held.place],
                truth: &labels[gathered.examples.class_of[held.place]],
                label: &labels[chosen],
                probability_ppm: answer.probabilities[chosen],
            })
        })
        .collect()
}
