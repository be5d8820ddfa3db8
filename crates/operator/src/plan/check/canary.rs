//! Canaries: every expectation names a label that there is, and the rates leave something to notice.

use std::collections::BTreeMap;

use serde_json::Value;
use toml::Spanned;

use super::names::{known_field, known_label};
use super::{Fault, within};
use crate::breaker::EProcessSpec;
use crate::infer::PPM;
use crate::nearest::suggest;
use crate::plan::canary::{CanaryFile, CanaryRecordFile};
use crate::plan::file::{LabelText, Share};
use crate::plan::{Abstention, CanarySpec, Field, InlineCanary, Stage, StageOp};

const EVERY_DEFAULT: u32 = 20;
const EVERY_MAX: u32 = 100_000;

pub(super) fn canary(
    spanned: &Spanned<CanaryFile>,
    fields: &[Field],
    stages: &[Stage],
) -> Result<CanarySpec, Fault> {
    let file = spanned.get_ref();
    if file.path.is_none() && file.record.is_empty() {
        let problem = "canary: there are none; name a file by path, or add [[canary.record]]";
        return Err((spanned.span(), problem.to_owned()));
    }
    let seed = match &file.seed {
        Some(seed) => super::filled("canary: seed", seed)?,
        None => String::from("canary"),
    };
    let records = file.record.iter();
    let records = records.map(|record| inline(record, fields, stages));
    Ok(CanarySpec {
        path: file.path.clone(),
        records: records.collect::<Result<_, _>>()?,
        seed,
        every: within(file.every.as_ref(), "canary: every", 1..=EVERY_MAX)?
            .unwrap_or(EVERY_DEFAULT),
        abstention: file.abstention.unwrap_or(Abstention::Miss),
        process: process(file)?,
    })
}

fn process(file: &CanaryFile) -> Result<EProcessSpec, Fault> {
    let default = EProcessSpec::default();
    let p0_ppm = rate("p0", file.p0.as_ref(), default.p0_ppm)?;
    let p1_ppm = rate("p1", file.p1.as_ref(), default.p1_ppm)?;
    let alpha_ppm = rate("alpha", file.alpha.as_ref(), default.alpha_ppm)?;
    if p0_ppm >= p1_ppm {
        let span = file.p1.as_ref().or(file.p0.as_ref());
        let problem = format!(
            "canary: p1 is {p1_ppm} ppm; it must be more than the {p0_ppm} ppm of p0 that are tolerated"
        );
        return Err((span.map_or(0..0, Spanned::span), problem));
    }
    Ok(EProcessSpec {
        p0_ppm,
        p1_ppm,
        alpha_ppm,
    })
}

fn rate(key: &str, given: Option<&Spanned<Share>>, default: u32) -> Result<u32, Fault> {
    let Some(given) = given else {
        return Ok(default);
    };
    match given.get_ref().0 {
        0 | PPM => {
            let problem = format!("canary: {key} must be between 0 and 1, and neither");
            Err((given.span(), problem))
        }
        ppm => Ok(ppm),
    }
}

fn inline(
    spanned: &Spanned<CanaryRecordFile>,
    fields: &[Field],
    stages: &[Stage],
) -> Result<InlineCanary, Fault> {
    let file = spanned.get_ref();
    if file.expect.is_empty() {
        let problem = "canary: a record expects nothing; add expect = { FIELD = \"LABEL\" }";
        return Err((spanned.span(), problem.to_owned()));
    }
    let mut expect = BTreeMap::new();
    for (name, label) in &file.expect {
        expect.insert(name.clone(), expected(name, label, fields, stages)?);
    }
    Ok(InlineCanary {
        fields: file.record.clone(),
        expect,
    })
}

/// A label of a field, or an option of a selector.
fn expected(
    name: &str,
    label: &Spanned<LabelText>,
    fields: &[Field],
    stages: &[Stage],
) -> Result<String, Fault> {
    let what = "expect of a canary";
    match selector_options(name, stages) {
        Some(options) => {
            let option = &label.get_ref().0;
            if options.contains(&option.as_str()) {
                return Ok(option.clone());
            }
            let near = suggest(option, &options);
            let problem = format!("{what}: selector {name:?} has no option {option:?}{near}");
            Err((label.span(), problem))
        }
        None => known_label(label, known_field(name, fields, what, label.span())?, what),
    }
}

/// The options of the selector of that name.
fn selector_options<'a>(name: &str, stages: &'a [Stage]) -> Option<Vec<&'a str>> {
    let stage = stages.iter().find(|stage| stage.name == name)?;
    let StageOp::Select(select) = &stage.op else {
        return None;
    };
    let options = select.options.iter();
    Some(options.map(|option| option.label.name.as_str()).collect())
}

/// Checks what a file says that a canary must get: the labels by field or selector.
///
/// # Errors
/// What is wrong, for a person.
pub(in crate::plan) fn check_expected(
    given: &Value,
    fields: &[Field],
    stages: &[Stage],
) -> Result<BTreeMap<String, String>, String> {
    let Value::Object(given) = given else {
        return Err("its expect is no object of field and label".to_owned());
    };
    let mut expect = BTreeMap::new();
    for (name, label) in given {
        let label = match label {
            Value::String(text) => text.clone(),
            Value::Bool(flag) => flag.to_string(),
            Value::Number(number) if number.is_i64() || number.is_u64() => number.to_string(),
            Value::Null => continue,
            other => return Err(format!("it expects {other} of {name:?}, which is no label")),
        };
        let spanned = Spanned::new(0..0, LabelText(label));
        let label = expected(name, &spanned, fields, stages).map_err(|(_, problem)| problem)?;
        expect.insert(name.clone(), label);
    }
    if expect.is_empty() {
        return Err("it expects nothing; add \"expect\": { \"FIELD\": \"LABEL\" }".to_owned());
    }
    Ok(expect)
}
