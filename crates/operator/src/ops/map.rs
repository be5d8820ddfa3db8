//! map: a unit's answers become its fact.
//!
//! Law: `map(a ++ b) = map(a) ++ map(b)` given the same answers; a fact never depends on its
//! neighbours. Answers are checked against the questions before they are believed. Must not know
//! who answered, nor whether the answer was remembered.

use std::collections::BTreeMap;

use crate::column::project;
use crate::fact::{Evidence, Fact, FieldValue, Status};
use crate::group;
use crate::id::UnitId;
use crate::infer::{Answer, Labels, PPM, Question};
use crate::ops::{Unit, UnitKind};
use crate::plan::{EVIDENCE_FIELD, EvidenceMode, Field, MAP_STAGE, Plan, Turn};
use crate::text::{self, Line, UnitText};

/// Name of this stage in facts, where the plan names none.
pub const STAGE: &str = MAP_STAGE;

/// Makes a fact without decided values for a unit that ended in `status`; its columns are read.
pub fn unanswered(
    plan: &Plan,
    unit: &Unit,
    status: Status,
    stage: &str,
    reason: Option<String>,
) -> Fact {
    let (id, hash) = (unit.id.clone(), unit.source_hash);
    let mut fact = Fact::bare(id, unit.ordinal, hash, status, stage, reason);
    fact.members.clone_from(&unit.neighbourhood);
    fact.columns = plan
        .columns
        .iter()
        .filter_map(|column| Some((column.name.clone(), project(column, &unit.record)?)))
        .collect();
    fact
}

/// Checks that answers have the shape that the questions ask for.
///
/// # Errors
/// A sentence naming the question and both sides of the first mismatch.
pub fn check(questions: &[Question], unit: &UnitText, answers: &[Answer]) -> Result<(), String> {
    if answers.len() != questions.len() {
        return Err(format!(
            "{} answers to {} questions",
            answers.len(),
            questions.len()
        ));
    }
    for (question, answer) in questions.iter().zip(answers) {
        let field = &question.field;
        let labels = match &question.labels {
            Labels::Fixed(labels) => labels.len(),
            Labels::Lines => unit.lines.len(),
        };
        let found = answer.probabilities.len();
        if found != labels {
            return Err(format!(
                "{field}: {found} probabilities for {labels} labels"
            ));
        }
        match Answer::from_ppm(answer.probabilities.clone(), answer.label_mass_ppm) {
            None => {
                return Err(format!(
                    "{field}: probabilities or mass do not sum to {PPM} ppm"
                ));
            }
            Some(derived) if derived != *answer => {
                return Err(format!(
                    "{field}: label {} with margin {} ppm is claimed, the probabilities say {} with {}",
                    answer.chosen, answer.margin_ppm, derived.chosen, derived.margin_ppm
                ));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// Derives a unit's fact from the checked answers of a stage: decided, or abstained with the values
/// kept.
///
/// # Panics
/// If the answers were not accepted by `check`.
pub fn derive(
    plan: &Plan,
    stage: &str,
    turn: &Turn,
    unit: &Unit,
    shown: &UnitText,
    answers: &[Answer],
) -> Fact {
    let questions = &turn.questions;
    assert_eq!(
        answers.len(),
        questions.len(),
        "answers must be checked before they are believed"
    );
    let mut fact = unanswered(plan, unit, Status::Decided, stage, None);
    fact.clipped_bytes = shown.clipped_bytes;
    let asked = |name: &str| {
        let place = questions
            .iter()
            .position(|question| question.field == name)?;
        Some((questions[place].labels.of(shown), &answers[place]))
    };
    for field in &turn.fields {
        let Some((labels, answer)) = asked(&field.name) else {
            continue;
        };
        let mut value = weigh(&labels, answer);
        value.reason_code = field
            .reason_question()
            .and_then(|name| asked(&name))
            .map(|(codes, answer)| codes[answer.chosen as usize].clone());
        fact.values.insert(field.name.clone(), value);
    }
    if let Some(doubt) = doubt(&turn.fields, &fact.values) {
        fact.status = Status::Abstained;
        fact.reason = Some(doubt);
    }
    let named = match turn.evidence {
        EvidenceMode::Model => {
            asked(EVIDENCE_FIELD).and_then(|(_, answer)| shown.lines.get(answer.chosen as usize))
        }
        EvidenceMode::FirstLine => None,
        EvidenceMode::None => return fact,
    };
    let pointed = named.and_then(|line| quote(unit, line, Some(line.number)));
    fact.evidence.extend(pointed);
    let rest = first_lines(plan, unit, shown, named);
    fact.evidence.extend(rest);
    fact
}

/// The value that an answer to a field's own question comes to.
pub(crate) fn value_of(field: &Field, answer: &Answer) -> FieldValue {
    let labels: Vec<String> = field
        .labels
        .iter()
        .map(|label| label.name.clone())
        .collect();
    weigh(&labels, answer)
}

/// The first line that was shown of each record in a unit, but for the one that a line was named of.
pub fn first_lines(
    plan: &Plan,
    unit: &Unit,
    shown: &UnitText,
    named: Option<&Line>,
) -> Vec<Evidence> {
    let member = |line: &Line| group::member_of(plan, unit, &line.field);
    let mut cited: Vec<Option<&UnitId>> = named.map(member).into_iter().collect();
    let mut evidence = Vec::new();
    for line in &shown.lines {
        let of = member(line);
        // What stands beside a record is not what is judged; a record by itself is cited once.
        let judged = match unit.kind {
            UnitKind::Group => true,
            UnitKind::Record | UnitKind::Field | UnitKind::Widened => {
                of.is_none() && named.is_none()
            }
        };
        if judged && !cited.contains(&of) {
            cited.push(of);
            evidence.extend(quote(unit, line, None));
        }
    }
    evidence
}

/// Why values are too uncertain to count, by the thresholds of their fields; none where they count.
pub fn doubt(fields: &[Field], values: &BTreeMap<String, FieldValue>) -> Option<String> {
    fields.iter().find_map(|field| {
        let value = values.get(&field.name)?;
        let (mass, margin) = (value.label_mass_ppm?, value.margin_ppm?);
        let (what, found, wanted) = if mass < field.label_mass_min_ppm {
            ("label mass", mass, field.label_mass_min_ppm)
        } else if margin < field.abstain_below_margin_ppm {
            ("margin", margin, field.abstain_below_margin_ppm)
        } else {
            return None;
        };
        let name = &field.name;
        Some(format!(
            "{what} of {name}: {found} ppm, the plan wants {wanted}"
        ))
    })
}

/// Reads a line back from the record; none when the span does not lie in it.
pub fn quote(unit: &Unit, line: &Line, number: Option<u32>) -> Option<Evidence> {
    let quote = text::quote(&unit.record, &line.field, line.start, line.end)?;
    Some(Evidence::new(
        &line.field,
        line.start,
        line.end,
        quote,
        number,
    ))
}

fn weigh(labels: &[String], answer: &Answer) -> FieldValue {
    let chosen = answer.chosen as usize;
    let mut alternatives: Vec<(String, u32)> = labels
        .iter()
        .zip(&answer.probabilities)
        .enumerate()
        .filter(|(index, _)| *index != chosen)
        .map(|(_, (label, ppm))| (label.clone(), *ppm))
        .collect();
    alternatives.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    FieldValue {
        label: labels[chosen].clone(),
        probability_ppm: Some(answer.probabilities[chosen]),
        margin_ppm: Some(answer.margin_ppm),
        label_mass_ppm: Some(answer.label_mass_ppm),
        alternatives,
        reason_code: None,
    }
}
