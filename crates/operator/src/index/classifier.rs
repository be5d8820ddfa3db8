//! A trained judgement of texts: which of some classes, and how probable each is.
//!
//! Trained where the plan names labels, read where it names a model. A record that it learned from is not
//! judged: its label would come back as if it were a judgement. Must not know routes.

mod model;
mod train;

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use super::{Learned, Made, Row, Rows, Table};
use crate::canonical::Canonical;
use crate::error::OperatorError;
use crate::eval::{Labels, read_labels};
use crate::id::{ContentHash, UnitId};
use crate::plan::{ClassifierIndex, ClassifierSource, Index, IndexKind, Plan};
use crate::record::read_bytes;
use crate::text::text_at;
use crate::words::words;

pub use model::Classifier;

/// Labelled ids without a record that are named.
const UNKNOWN_SHOWN: usize = 8;

pub(super) fn compute(
    plan: &Plan,
    spec: &ClassifierIndex,
    rows: &dyn Rows,
) -> Result<(Made, ContentHash), OperatorError> {
    let (classifier, file_hash, unknown) = obtain(plan, spec, rows)?;
    let learned_from: HashSet<&str> = classifier.trained_on().collect();
    let (mut judged, mut records, mut unreadable, mut not_judged) = (Vec::new(), 0, 0, 0);
    rows.visit(&mut |row| {
        records += 1;
        if learned_from.contains(row.id) {
            not_judged += 1;
            return Ok(());
        }
        let Some(text) = text_of(spec, row) else {
            unreadable += 1;
            return Ok(());
        };
        if let Some(answer) = classifier.judge(&text) {
            judged.push((
                row.ordinal,
                answer.chosen,
                answer.margin_ppm,
                answer.probabilities,
            ));
        }
        Ok(())
    })?;
    let made = Made {
        table: Table::of_classes(rows.len(), spec.classes.len(), &judged),
        records,
        unreadable,
        learned: Some(Learned {
            records: learned_from.len() as u64,
            not_judged,
            unknown: unknown.len() as u64,
            unknown_ids: unknown.into_iter().take(UNKNOWN_SHOWN).collect(),
        }),
    };
    Ok((made, file_hash))
}

/// Reads the file that a classifier comes from.
pub(super) fn check(plan: &Plan, spec: &ClassifierIndex) -> Result<(), OperatorError> {
    let (ClassifierSource::Labels { path, .. } | ClassifierSource::Model { path }) = &spec.source;
    read_file(&plan.beside(path)).map(|_| ())
}

/// Trains or reads the classifier of an index, for callers that want to keep it.
///
/// # Errors
/// As [`super::Indexes::compute`]; `NotRecorded` where the plan has no classifier of that name.
pub fn classifier_of(
    plan: &Plan,
    name: &str,
    rows: &dyn Rows,
) -> Result<Classifier, OperatorError> {
    let found = plan
        .indexes
        .iter()
        .find_map(|index: &Index| match &index.kind {
            IndexKind::Classifier(spec) if index.name == name => Some(spec),
            _ => None,
        });
    let Some(spec) = found else {
        return Err(OperatorError::NotRecorded {
            path: plan.path.clone(),
            wanted: name.to_owned(),
            problem: "no [[index]] of kind \"classifier\" of the plan".to_owned(),
        });
    };
    obtain(plan, spec, rows).map(|(classifier, ..)| classifier)
}

/// The classifier, the hash of the file that it comes from, and labelled ids without a record.
fn obtain(
    plan: &Plan,
    spec: &ClassifierIndex,
    rows: &dyn Rows,
) -> Result<(Classifier, ContentHash, Vec<String>), OperatorError> {
    match &spec.source {
        ClassifierSource::Model { path } => {
            let path = plan.beside(path);
            let (shown, bytes) = read_file(&path)?;
            let classifier = Classifier::parse(&shown, &bytes)?;
            classifier.check(&shown, spec)?;
            Ok((classifier, ContentHash::of_bytes(&bytes), Vec::new()))
        }
        ClassifierSource::Labels { path, id, field } => {
            let path = plan.beside(path);
            let (shown, bytes) = read_file(&path)?;
            let (_, records, bad) = read_bytes(&shown, &bytes, None)?;
            if let Some(bad) = bad.first() {
                let problem = format!(
                    "{}: {}; a labels file has to be whole",
                    bad.place, bad.problem
                );
                return Err(invalid(&shown, problem));
            }
            let labels = read_labels(&shown, &records, id, field, &BTreeMap::new())?;
            let (classifier, unknown) = train_on(&shown, spec, &labels, rows)?;
            Ok((classifier, ContentHash::of_bytes(&bytes), unknown))
        }
    }
}

/// Trains on the labelled records; also returns the labelled ids that no record has.
fn train_on(
    path: &str,
    spec: &ClassifierIndex,
    labels: &Labels,
    rows: &dyn Rows,
) -> Result<(Classifier, Vec<String>), OperatorError> {
    let mut classes = BTreeMap::new();
    for (id, label) in labels {
        let place = spec.classes.iter().position(|class| class == label);
        let Some(place) = place else {
            let known = spec.classes.join(", ");
            let problem = format!(
                "record {id} is labelled {label:?}, which is none of the plan's classes ({known}); \
                 correct it, or add the class"
            );
            return Err(invalid(path, problem));
        };
        classes.insert(id, place);
    }
    let mut examples = Vec::new();
    let mut met = HashSet::new();
    rows.visit(&mut |row| {
        let unit = UnitId::new(row.id);
        let Some(&class) = classes.get(&unit) else {
            return Ok(());
        };
        if let Some(text) = text_of(spec, row) {
            examples.push(train::Example {
                id: row.id.to_owned(),
                class,
                words: text,
            });
        }
        met.insert(unit);
        Ok(())
    })?;
    for (place, class) in spec.classes.iter().enumerate() {
        if !examples.iter().any(|example| example.class == place) {
            let problem = format!(
                "labels none of the input's records {class:?}; a class is learned from at least one, \
                 remove it or label some"
            );
            return Err(invalid(path, problem));
        }
    }
    let unknown = labels
        .keys()
        .filter(|id| !met.contains(*id))
        .map(ToString::to_string)
        .collect();
    Ok((Classifier::train(spec, examples), unknown))
}

/// The words of a record; none where a field is no text.
fn text_of(spec: &ClassifierIndex, row: Row<'_>) -> Option<Vec<String>> {
    let mut found = Vec::new();
    for field in &spec.fields {
        let text = text_at(row.fields, field).ok()?;
        found.extend(words(text.as_deref().unwrap_or_default()));
    }
    Some(found)
}

fn read_file(path: &Path) -> Result<(String, Vec<u8>), OperatorError> {
    let shown = path.display().to_string();
    match std::fs::read(path) {
        Ok(bytes) => Ok((shown, bytes)),
        Err(source) => Err(OperatorError::Io {
            path: shown,
            action: "read",
            source,
        }),
    }
}

fn invalid(path: &str, problem: String) -> OperatorError {
    OperatorError::FileInvalid {
        path: path.to_owned(),
        line: 0,
        problem,
    }
}

/// A place in the order of training that depends on an id alone, not on where its record stands.
fn shuffled(id: &str) -> ContentHash {
    let mut canonical = Canonical::new("operator 2026 training order v1");
    canonical.text(id);
    ContentHash::of(&canonical)
}
