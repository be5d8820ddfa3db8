//! From decided facts and their records to requests; nothing is done here.
//!
//! Texts are filled by the plan's templates only: ids, labels, reason codes and values of the record.
//! What cannot be filled, or comes from a recording, is refused, and told. Must not know trackers.

use std::collections::BTreeMap;

use serde_json::Value;

use super::report::{EffectStatus, Outcome};
use super::request::EffectRequest;
use crate::column;
use crate::error::OperatorError;
use crate::fact::Fact;
use crate::id::ContentHash;
use crate::ops::{Placed, Unit, Units};
use crate::plan::Plan;
use crate::plan::effect::{Action, EffectSpec, Part, Target, Template};

/// Longest text of an effect, in bytes.
const TEXT_BYTES_MAX: usize = 16 << 10;
/// Longest name of an issue, label or version, in bytes.
const NAME_BYTES_MAX: usize = 256;

/// All that one declared effect comes to in a run.
#[derive(Debug, Clone)]
pub struct Batch<'p> {
    /// The plan's effect.
    pub spec: &'p EffectSpec,
    /// What is due, in source order.
    pub requests: Vec<EffectRequest>,
    /// What is not, though the plan's condition holds.
    pub refused: Vec<Outcome>,
}

/// Finds what every effect of a plan comes to, in plan order.
///
/// The facts are those of a verified run over these units. With more requests than the plan allows
/// an effect, all of them are refused: no part of too many is the right part.
///
/// # Errors
/// `Io` and `SourceChanged` where the units cannot be read again.
pub fn intend<'p>(
    plan: &'p Plan,
    facts: &[Fact],
    units: &dyn Units,
) -> Result<Vec<Batch<'p>>, OperatorError> {
    let plan_hash = plan.hash();
    let mut batches: Vec<Batch<'p>> = plan
        .effects
        .iter()
        .map(|spec| Batch {
            spec,
            requests: Vec::new(),
            refused: Vec::new(),
        })
        .collect();
    let facts: BTreeMap<u32, &Fact> = facts.iter().map(|fact| (fact.ordinal, fact)).collect();
    units.visit(&mut |placed| {
        let Placed::Unit(unit, _) = placed else {
            return Ok(());
        };
        let Some(fact) = facts.get(&unit.ordinal) else {
            return Ok(());
        };
        for batch in &mut batches {
            if batch.spec.when.holds(fact) {
                match request(batch.spec, fact, &unit, plan_hash) {
                    Ok(request) => batch.requests.push(request),
                    Err(reason) => batch.refused.push(refusal(batch.spec, fact, reason)),
                }
            }
        }
        Ok(())
    })?;
    for batch in &mut batches {
        let (due, most) = (batch.requests.len(), batch.spec.effects_max);
        if due as u64 > u64::from(most) {
            let reason = format!(
                "{due} effects are due and the plan allows {most}; narrow `when`, or raise effects_max"
            );
            for request in std::mem::take(&mut batch.requests) {
                let status = EffectStatus::Refused;
                let refused = Outcome::without(&request, status, reason.clone());
                batch.refused.push(refused);
            }
        }
    }
    Ok(batches)
}

fn refusal(spec: &EffectSpec, fact: &Fact, reason: String) -> Outcome {
    Outcome {
        key: None,
        unit_id: fact.unit_id.clone(),
        resource: None,
        action: spec.action,
        status: EffectStatus::Refused,
        reason: Some(reason),
        receipt: None,
    }
}

fn request(
    spec: &EffectSpec,
    fact: &Fact,
    unit: &Unit,
    plan_hash: ContentHash,
) -> Result<EffectRequest, String> {
    if fact.simulated {
        return Err("its answer comes from a recording, not from a model".to_owned());
    }
    if fact.source_hash != unit.source_hash || fact.unit_id != unit.id {
        return Err("its record is not the one that was judged".to_owned());
    }
    let filled = |template: &Template| fill(template, fact, unit);
    let name = |what: &str, template: &Template| {
        let name = filled(template)?;
        let blank = name.trim().is_empty() || name.chars().any(char::is_control);
        if blank || name.len() > NAME_BYTES_MAX {
            return Err(format!(
                "{what} {name:?} is empty, has control characters or more than {NAME_BYTES_MAX} bytes"
            ));
        }
        Ok(name)
    };
    let text = match (&spec.text, spec.action) {
        (None, _) => None,
        (Some(template), Action::Label) => Some(name("label", template)?),
        (Some(template), _) => Some(filled(template)?),
    };
    if let Some(text) = text.as_ref().filter(|text| text.len() > TEXT_BYTES_MAX) {
        let bytes = text.len();
        return Err(format!(
            "its text has {bytes} bytes; at most {TEXT_BYTES_MAX} are sent"
        ));
    }
    let expects = spec.version.as_ref();
    Ok(EffectRequest {
        effect: spec.name.clone(),
        tracker: match &spec.target {
            Target::Files(directory) => format!("{}:{}", spec.target.as_str(), directory.display()),
            Target::Http(service) => format!("{}:{}", spec.target.as_str(), service.url),
        },
        resource: name("issue", &spec.resource)?,
        action: spec.action,
        set: spec.set.clone(),
        text,
        expects: expects
            .map(|template| name("version", template))
            .transpose()?,
        unit_id: fact.unit_id.clone(),
        source_hash: fact.source_hash,
        plan_hash,
    })
}

fn fill(template: &Template, fact: &Fact, unit: &Unit) -> Result<String, String> {
    let mut filled = String::new();
    for part in &template.0 {
        match part {
            Part::Text(text) => filled.push_str(text),
            Part::Id => filled.push_str(fact.unit_id.as_str()),
            Part::Label(field) => match fact.values.get(field) {
                Some(value) => filled.push_str(&value.label),
                None => return Err(format!("field {field:?} was not decided for it")),
            },
            Part::Reason(field) => {
                let value = fact.values.get(field);
                match value.and_then(|value| value.reason_code.as_ref()) {
                    Some(code) => filled.push_str(code),
                    None => return Err(format!("field {field:?} has no reason code for it")),
                }
            }
            Part::Record(path) => match column::at(&unit.record.fields, path) {
                Some(Value::String(text)) => filled.push_str(text),
                Some(value @ (Value::Number(_) | Value::Bool(_))) => {
                    filled.push_str(&value.to_string());
                }
                _ => {
                    return Err(format!(
                        "its record has no text, number or truth value at {path:?}"
                    ));
                }
            },
        }
    }
    Ok(filled)
}
