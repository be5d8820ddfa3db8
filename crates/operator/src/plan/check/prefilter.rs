//! Prefilters: their predicates and the labels that they set.

use std::collections::BTreeMap;

use toml::Spanned;

use super::Fault;
use super::names::{known_field, known_label};
use crate::plan::file::{LabelText, PrefilterFile};
use crate::plan::{Action, Field, Index, Prefilter};
use crate::predicate;

pub(super) fn prefilter(
    spanned: &Spanned<PrefilterFile>,
    fields: &[Field],
    indexes: &[Index],
) -> Result<Prefilter, Fault> {
    let file = spanned.get_ref();
    let name = &file.name;
    let fault = |problem: String| (spanned.span(), problem);
    if name.is_empty() || name.chars().any(char::is_control) {
        return Err(fault("a prefilter needs a name on one line".to_owned()));
    }
    let when = predicate::compile(&file.when, indexes)
        .map_err(|fault| (fault.span, format!("prefilter {name:?}: {}", fault.problem)))?;
    let set = assignments(&file.set, fields, &format!("set of prefilter {name:?}"))?;
    match (file.action, set.is_empty()) {
        (Action::Exclude | Action::Keep, false) => {
            return Err(fault(format!(
                "prefilter {name:?} has a set, which only action = \"decide\" may have"
            )));
        }
        (Action::Decide, _) => {
            let missing: Vec<&str> = fields
                .iter()
                .map(|field| field.name.as_str())
                .filter(|field| !set.contains_key(*field))
                .collect();
            if !missing.is_empty() {
                return Err(fault(format!(
                    "prefilter {name:?} decides, but its set leaves out {}; set every field, or \
                     use action = \"keep\"",
                    missing.join(", ")
                )));
            }
        }
        _ => {}
    }
    let reason = file
        .reason
        .as_deref()
        .map_or(name.as_str(), str::trim)
        .to_owned();
    let near = match &file.near {
        Some(_) if file.action == Action::Keep => {
            let problem = "has a near, which only filters that settle units may have";
            return Err(fault(format!("prefilter {name:?} {problem}")));
        }
        Some(near) => Some(predicate::compile(near, indexes).map_err(|fault| {
            let problem = format!("near of prefilter {name:?}: {}", fault.problem);
            (fault.span, problem)
        })?),
        None => None,
    };
    Ok(Prefilter {
        name: name.clone(),
        when,
        action: file.action,
        reason,
        set,
        near,
    })
}

fn assignments(
    given: &BTreeMap<String, Spanned<LabelText>>,
    fields: &[Field],
    what: &str,
) -> Result<BTreeMap<String, String>, Fault> {
    let mut checked = BTreeMap::new();
    for (name, label) in given {
        let field = known_field(name, fields, what, label.span())?;
        checked.insert(name.clone(), known_label(label, field, what)?);
    }
    Ok(checked)
}
