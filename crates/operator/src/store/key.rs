//! The name of a question as it was asked.

use crate::canonical::Canonical;
use crate::id::FactKey;
use crate::infer::{BackendIdentity, Labels, Question, Rubric};
use crate::text::UnitText;

/// Names what is asked of one unit: everything that can change the answer, and nothing else.
///
/// Covered: backend (model file, tokenizer, template, numerics), rubric, questions with scaffolds
/// and labels, and the bytes shown. Left out: paths, limits, thresholds, order, neighbours.
pub fn fact_key(
    backend: &BackendIdentity,
    rubric: &Rubric,
    questions: &[Question],
    unit: &UnitText,
) -> FactKey {
    let mut canonical = Canonical::new("operator 2026 fact key v1");
    canonical
        .bytes(&backend.digest)
        .bytes(rubric.hash.as_bytes())
        .list(questions.len());
    for question in questions {
        canonical
            .text(&question.field)
            .text(&question.scaffold)
            .bool(question.line_count);
        match &question.labels {
            Labels::Fixed(labels) => {
                canonical.some().list(labels.len());
                for label in labels {
                    canonical.text(label);
                }
            }
            // The text hash covers the lines themselves; their number may depend on the plan.
            Labels::Lines => {
                canonical.none().u64(unit.lines.len() as u64);
            }
        }
    }
    canonical.bytes(unit.text_hash.as_bytes());
    FactKey::of(&canonical)
}
