//! Units on their way to the model: read and tokenised in parallel, ahead of the forwards.
//!
//! A thread of its own prepares units in their order, a batch of them side by side, and waits where
//! the forwards do not keep up: what waits is token lists, never more than a fixed number. Must not
//! know the model.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use operator::infer::{FailReason, Labels, Question, UnitTexts};
use operator::text::{TextProblem, UnitText};
use rayon::prelude::*;

use crate::error::EngineError;
use crate::head::{Head, TextScores};
use crate::label_tree::LabelTree;
use crate::runner::ScoreRequest;
use crate::tokenizer::Tokenizer;

/// Prepared units that wait at most.
pub(super) const AHEAD_UNITS: usize = 128;
/// Units whose texts are in memory at once.
const BATCH_UNITS: usize = 32;

/// The trees of a job's questions: fixed ones once, those over a unit's lines per line count.
pub(super) struct Questions<'a> {
    questions: &'a [Question],
    /// The head that answers each question, where one does.
    heads: Vec<Option<Arc<Head>>>,
    /// Whether coarse answers are final.
    coarse: bool,
    fixed: Vec<Option<Arc<LabelTree>>>,
    lines: HashMap<(usize, usize), Arc<LabelTree>>,
}

/// A unit ready to be scored, or why it cannot be.
pub(super) struct Prepared {
    pub(super) place: usize,
    /// How each question is answered.
    pub(super) answered: Vec<Answered>,
    pub(super) request: Result<ScoreRequest, TextProblem>,
}

/// How a question about a unit is answered, and what its head makes of the unit's text.
#[derive(Debug, Clone)]
pub(super) struct Answered {
    pub(super) choice: Choice,
    pub(super) text: Option<TextScores>,
}

/// Where the answer to a question comes from.
#[derive(Debug, Clone, Copy)]
pub(super) enum Choice {
    /// By the next score.
    Scored,
    /// One line is no choice.
    Single,
    /// No line leaves nothing to point at.
    Nothing,
}

/// Prepares all units in order; ends early when nobody receives any more.
pub(super) fn prepare_all(
    tokenizer: &Tokenizer,
    mut questions: Questions<'_>,
    units: &dyn UnitTexts,
    close: &[u32],
    room: usize,
    to: &SyncSender<Result<Prepared, EngineError>>,
) {
    for start in (0..units.len()).step_by(BATCH_UNITS) {
        let end = units.len().min(start + BATCH_UNITS);
        let texts: Vec<_> = (start..end)
            .into_par_iter()
            .map(|place| units.text(place))
            .collect();
        if let Err(error) = questions.compile_lines(tokenizer, texts.iter().flatten()) {
            let _ = to.send(Err(error));
            return;
        }
        let prepared: Vec<Prepared> = (start..end)
            .into_par_iter()
            .zip(texts)
            .map(|(place, text)| match text {
                Ok(unit) => Prepared {
                    place,
                    answered: questions.answered(&unit),
                    request: prepare(tokenizer, &questions, &unit, close, room),
                },
                Err(problem) => Prepared {
                    place,
                    answered: Vec::new(),
                    request: Err(problem),
                },
            })
            .collect();
        for prepared in prepared {
            if to.send(Ok(prepared)).is_err() {
                return;
            }
        }
    }
}

impl<'a> Questions<'a> {
    pub(super) fn compile(
        tokenizer: &Tokenizer,
        questions: &'a [Question],
        heads: &[Option<Arc<Head>>],
        coarse: bool,
    ) -> Result<Self, EngineError> {
        let fixed = questions
            .iter()
            .map(|question| match &question.labels {
                Labels::Fixed(labels) => tree(tokenizer, question, labels).map(Some),
                Labels::Lines => Ok(None),
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            questions,
            heads: heads.to_vec(),
            coarse,
            fixed,
            lines: HashMap::new(),
        })
    }

    /// Makes the trees over line numbers that a window of units needs.
    pub(super) fn compile_lines<'t>(
        &mut self,
        tokenizer: &Tokenizer,
        units: impl Iterator<Item = &'t UnitText> + Clone,
    ) -> Result<(), EngineError> {
        for (index, question) in self.questions.iter().enumerate() {
            if question.labels != Labels::Lines {
                continue;
            }
            for unit in units.clone().filter(|unit| unit.lines.len() > 1) {
                if let Entry::Vacant(place) = self.lines.entry((index, unit.lines.len())) {
                    place.insert(tree(tokenizer, question, &question.labels.of(unit))?);
                }
            }
        }
        Ok(())
    }

    fn answered(&self, unit: &UnitText) -> Vec<Answered> {
        (0..self.questions.len())
            .map(|index| Answered {
                choice: match (self.tree(index, unit), unit.lines.len()) {
                    (Some(_), _) => Choice::Scored,
                    (None, 1) => Choice::Single,
                    (None, _) => Choice::Nothing,
                },
                text: self.heads[index]
                    .as_ref()
                    .map(|head| head.read_text(&unit.text)),
            })
            .collect()
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

/// Tokenises one unit under compiled questions.
pub(super) fn prepare(
    tokenizer: &Tokenizer,
    questions: &Questions<'_>,
    unit: &UnitText,
    close: &[u32],
    room: usize,
) -> Result<ScoreRequest, TextProblem> {
    let too_large = |message| TextProblem {
        reason: FailReason::TooLarge,
        message,
    };
    let mut tokens = tokenizer
        .encode_text(&unit.text)
        .map_err(|error| too_large(error.to_string()))?;
    tokens.extend_from_slice(close);
    let (trees, decisive): (Vec<Arc<LabelTree>>, Vec<bool>) = (0..questions.questions.len())
        .filter_map(|index| {
            // Which line is pointed at decides nothing that is counted.
            let points = questions.questions[index].labels == Labels::Lines;
            // A head was trained on coarse states.
            let decisive = !points && !questions.coarse && questions.heads[index].is_none();
            Some((questions.tree(index, unit)?, decisive))
        })
        .unzip();
    let request = ScoreRequest {
        tokens,
        trees,
        decisive,
    };
    let needed = request.rows();
    if needed > room {
        return Err(too_large(format!(
            "the record needs {needed} tokens, {room} are left after the rubric; clip the fields \
             that the plan reads (max_chars)"
        )));
    }
    Ok(request)
}
