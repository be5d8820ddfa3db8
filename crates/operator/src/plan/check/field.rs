//! Fields: their names, labels and reason codes.

use std::collections::BTreeMap;
use std::ops::Range;

use toml::Spanned;

use super::{Fault, plain_name, unique};
use crate::nearest::suggest;
use crate::plan::file::{ExamplesFile, FieldFile, LabelFile, Share};
use crate::plan::{Field, Label, LabelledExamples, REASON_SUFFIX};

const LABELS_MAX: usize = 64;
const LABEL_BYTES_MAX: usize = 64;

pub(super) fn field(spanned: &Spanned<FieldFile>) -> Result<Field, Fault> {
    let file = spanned.get_ref();
    let fault = |problem: String| (spanned.span(), problem);
    let name = &file.name;
    plain_name("field", name).map_err(fault)?;
    if name.ends_with(REASON_SUFFIX) {
        return Err(fault(format!(
            "field name {name:?} is reserved; choose another"
        )));
    }
    if file.question.trim().is_empty() {
        return Err(fault(format!(
            "field {name:?} has an empty question; write it"
        )));
    }
    let labels = labels(
        &file.labels,
        &format!("labels of field {name:?}"),
        &spanned.span(),
    )?;
    let reasons = if file.reasons.is_empty() {
        Vec::new()
    } else {
        self::labels(
            &file.reasons,
            &format!("reasons of field {name:?}"),
            &spanned.span(),
        )?
    };
    let scaffold = file.scaffold.clone().unwrap_or_else(|| format!("{name}: "));
    if scaffold.trim().is_empty() || scaffold.chars().any(char::is_control) {
        return Err(fault(format!(
            "scaffold of field {name:?} must be one line of text"
        )));
    }
    let examples = match &file.examples {
        Some(given) if file.head.is_some() => {
            let problem = format!("field {name:?} has a head and examples for one; remove either");
            return Err((given.span(), problem));
        }
        Some(given) => Some(examples(given, name, &labels)?),
        None => None,
    };
    let share =
        |share: &Option<Spanned<Share>>| share.as_ref().map_or(0, |share| share.get_ref().0);
    Ok(Field {
        name: name.clone(),
        question: file.question.trim().to_owned(),
        labels,
        abstain_below_margin_ppm: share(&file.abstain_below_margin),
        label_mass_min_ppm: share(&file.label_mass_min),
        reasons,
        scaffold,
        requires: super::unit::requires(file)?,
        head: file.head.clone(),
        examples,
    })
}

/// What a head is to be trained on; its labels are the field's.
fn examples(
    file: &Spanned<ExamplesFile>,
    name: &str,
    labels: &[Label],
) -> Result<LabelledExamples, Fault> {
    let given = file.get_ref();
    let mut map = BTreeMap::new();
    for (from, to) in &given.map {
        let label = &to.get_ref().0;
        let known: Vec<&str> = labels.iter().map(|label| label.name.as_str()).collect();
        if !known.contains(&label.as_str()) {
            let near = suggest(label, &known);
            let problem = format!("examples of field {name:?}: map: unknown label {label:?}{near}");
            return Err((to.span(), problem));
        }
        map.insert(from.clone(), label.clone());
    }
    Ok(LabelledExamples {
        path: given.path.clone(),
        id: given.id.clone(),
        label: given.label.clone().unwrap_or_else(|| name.to_owned()),
        map,
    })
}

pub(super) fn labels(
    files: &[Spanned<LabelFile>],
    what: &str,
    span: &Range<usize>,
) -> Result<Vec<Label>, Fault> {
    if files.len() < 2 || files.len() > LABELS_MAX {
        let problem = format!(
            "{what}: {} given, from 2 to {LABELS_MAX} are needed",
            files.len()
        );
        return Err((span.clone(), problem));
    }
    for label in files {
        let name = &label.get_ref().0.name;
        let sound = !name.is_empty()
            && name.trim() == name
            && name.len() <= LABEL_BYTES_MAX
            && !name.chars().any(char::is_control);
        if !sound {
            let problem = format!(
                "{what}: {name:?} must be 1 to {LABEL_BYTES_MAX} bytes on one line, without space \
                 around it"
            );
            return Err((label.span(), problem));
        }
    }
    unique(
        &format!("of the {what}"),
        files
            .iter()
            .map(|label| (label.get_ref().0.name.as_str(), label.span())),
    )?;
    Ok(files
        .iter()
        .map(|label| label.get_ref().0.clone())
        .collect())
}
