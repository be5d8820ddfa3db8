//! Trained heads beside the labels' own logits: which question of a job each answers.
//!
//! A head is bound to backend, rubric and question. One of another backend is refused when it is given, and
//! one that fits no question of a job takes no part in it. Must not know how a head judges.

use std::sync::Arc;

use operator::infer::{BackendIdentity, InferJob, Labels, Question, Rubric};

use crate::error::EngineError;
use crate::head::{Bond, Head};

/// The heads of a backend.
#[derive(Debug, Clone, Default)]
pub struct Heads(Vec<Arc<Head>>);

impl Heads {
    /// Takes heads for a backend that has none yet.
    ///
    /// # Errors
    /// `HeadMismatch` where one was trained with another backend, or two answer the same question.
    pub fn new(heads: Vec<Head>, backend: &BackendIdentity) -> Result<Self, EngineError> {
        let mut taken: Vec<Arc<Head>> = Vec::new();
        for head in heads {
            let bond = head.bond();
            let mismatch = |problem: String| EngineError::HeadMismatch {
                field: bond.field.clone(),
                problem,
            };
            if bond.backend != hex(&backend.digest) {
                return Err(mismatch(format!(
                    "it was trained with {}, not with {}",
                    bond.describe, backend.describe
                )));
            }
            let same = |other: &Arc<Head>| {
                let other = other.bond();
                (&other.rubric, &other.field) == (&bond.rubric, &bond.field)
            };
            if taken.iter().any(same) {
                return Err(mismatch("two heads answer it; give one".to_owned()));
            }
            taken.push(Arc::new(head));
        }
        taken.sort_by_key(|head| head.digest());
        Ok(Self(taken))
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The identity of a backend that answers with these: heads are part of it, so that every remembered
    /// answer names them.
    pub fn identify(&self, backend: &BackendIdentity) -> BackendIdentity {
        if self.is_empty() {
            return backend.clone();
        }
        let mut hasher = blake3::Hasher::new_derive_key("engine backend with heads v1");
        hasher.update(&backend.digest);
        let mut describe = backend.describe.clone();
        for head in &self.0 {
            let digest = head.digest();
            hasher.update(&digest);
            let short = &hex(&digest)[..12];
            describe.push_str(&format!(", head {short} for {}", head.bond().field));
        }
        BackendIdentity {
            digest: *hasher.finalize().as_bytes(),
            describe,
            ..backend.clone()
        }
    }

    /// The head that answers each question of a job.
    pub(super) fn of_job(&self, job: &InferJob<'_>) -> Vec<Option<Arc<Head>>> {
        let rubric = rubric_of(job.rubric);
        job.questions
            .iter()
            .map(|question| {
                self.0
                    .iter()
                    .find(|head| answers(head.bond(), &rubric, question))
            })
            .map(|head| head.cloned())
            .collect()
    }

    /// Checks that every head answers a question of these turns.
    ///
    /// # Errors
    /// `HeadMismatch` naming one that does not, and why.
    pub fn check<'t>(
        &self,
        turns: impl Iterator<Item = (&'t Rubric, &'t [Question])> + Clone,
    ) -> Result<(), EngineError> {
        for head in &self.0 {
            let bond = head.bond();
            let fits = |(rubric, questions): (&Rubric, &[Question])| {
                let rubric = rubric_of(rubric);
                questions
                    .iter()
                    .any(|question| answers(bond, &rubric, question))
            };
            if turns.clone().any(fits) {
                continue;
            }
            let asked = turns
                .clone()
                .flat_map(|(_, questions)| questions)
                .any(|question| question.field == bond.field);
            let problem = match asked {
                true => {
                    "the plan's rubric, question or labels have changed since it was trained; \
                         calibrate again"
                }
                false => "the plan asks no such field",
            };
            return Err(EngineError::HeadMismatch {
                field: bond.field.clone(),
                problem: problem.to_owned(),
            });
        }
        Ok(())
    }
}

/// What a head for a question under a rubric belongs to; none where the labels are not the same for
/// every unit.
pub fn bond(
    backend: &BackendIdentity,
    rubric: &Rubric,
    question: &Question,
    group_by: Option<String>,
) -> Option<Bond> {
    let Labels::Fixed(labels) = &question.labels else {
        return None;
    };
    Some(Bond {
        backend: hex(&backend.digest),
        describe: backend.describe.clone(),
        rubric: rubric_of(rubric),
        field: question.field.clone(),
        scaffold: question.scaffold.clone(),
        labels: labels.clone(),
        group_by,
    })
}

fn answers(bond: &Bond, rubric: &str, question: &Question) -> bool {
    let labels = matches!(&question.labels, Labels::Fixed(labels) if *labels == bond.labels);
    let (field, scaffold) = (&question.field, &question.scaffold);
    labels && bond.rubric == rubric && bond.field == *field && bond.scaffold == *scaffold
}

fn rubric_of(rubric: &Rubric) -> String {
    hex(rubric.hash.as_bytes())
}

fn hex(digest: &[u8; 32]) -> String {
    blake3::Hash::from_bytes(*digest).to_hex().to_string()
}
