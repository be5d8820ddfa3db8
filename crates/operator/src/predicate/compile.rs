//! From a predicate's TOML spelling to its compiled form, with every mistake named and placed.

use std::cmp::Ordering;
use std::ops::Range;

use regex::RegexBuilder;
use serde::Deserialize;
use serde_json::Value;
use toml::Spanned;

use super::{Check, Node, Predicate, Scalar, Test, date, indexed, number_of};
use crate::nearest::suggest;
use crate::plan::Index;

const OPS: [&str; 14] = [
    "eq",
    "ne",
    "in",
    "not_in",
    "lt",
    "le",
    "gt",
    "ge",
    "before",
    "after",
    "contains",
    "contains_any",
    "matches",
    "exists",
];
const MISSING: &str = "missing";

/// A predicate as TOML spells it: a test of a field or an index, or exactly one of `all`, `any`, `not`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PredicateSpec {
    pub(super) field: Option<String>,
    pub(super) index: Option<Spanned<String>>,
    pub(super) label: Option<Spanned<String>>,
    pub(super) op: Option<Spanned<String>>,
    pub(super) value: Option<Spanned<toml::Value>>,
    pub(super) case: Option<Spanned<String>>,
    all: Option<Vec<Spanned<PredicateSpec>>>,
    any: Option<Vec<Spanned<PredicateSpec>>>,
    not: Option<Box<Spanned<PredicateSpec>>>,
}

/// What is wrong with a predicate, and where in the plan's text.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) span: Range<usize>,
    pub(crate) problem: String,
}

/// Compiles a predicate.
pub(crate) fn compile(
    spec: &Spanned<PredicateSpec>,
    indexes: &[Index],
) -> Result<Predicate, Fault> {
    node(spec, indexes).map(Predicate)
}

fn node(spanned: &Spanned<PredicateSpec>, indexes: &[Index]) -> Result<Node, Fault> {
    let spec = spanned.get_ref();
    let fault = |problem: &str| Fault {
        span: spanned.span(),
        problem: problem.to_owned(),
    };
    let is_test = spec.field.is_some()
        || spec.index.is_some()
        || spec.label.is_some()
        || spec.op.is_some()
        || spec.value.is_some()
        || spec.case.is_some();
    let shapes = [
        is_test,
        spec.all.is_some(),
        spec.any.is_some(),
        spec.not.is_some(),
    ];
    if shapes.iter().filter(|shape| **shape).count() != 1 {
        return Err(fault(
            "a predicate is either {field, op, value}, {index, op, value}, or exactly one of {all}, \
             {any}, {not}",
        ));
    }
    if let Some(members) = spec.all.as_ref().or(spec.any.as_ref()) {
        if members.is_empty() {
            return Err(fault("\"all\" and \"any\" need at least one predicate"));
        }
        let members = members
            .iter()
            .map(|member| node(member, indexes))
            .collect::<Result<Vec<_>, _>>()?;
        return Ok(if spec.all.is_some() {
            Node::All(members)
        } else {
            Node::Any(members)
        });
    }
    if let Some(member) = &spec.not {
        return Ok(Node::Not(Box::new(node(member, indexes)?)));
    }
    if spec.index.is_some() || spec.label.is_some() {
        return indexed::test(spanned, indexes).map(Node::Index);
    }
    let Some(field) = spec.field.as_deref().filter(|field| !field.is_empty()) else {
        return Err(fault(
            "the predicate names no \"field\"; add field = \"...\"",
        ));
    };
    let Some(op) = &spec.op else {
        return Err(fault(
            "the predicate has no \"op\"; add op = \"eq\" or another",
        ));
    };
    test(spanned, field, op).map(Node::Test)
}

fn test(
    spanned: &Spanned<PredicateSpec>,
    field: &str,
    spelled: &Spanned<String>,
) -> Result<Test, Fault> {
    let spec = spanned.get_ref();
    let mut known = OPS.to_vec();
    known.push(MISSING);
    let Some(&op) = known
        .iter()
        .find(|name| **name == spelled.get_ref().as_str())
    else {
        let name = spelled.get_ref();
        let problem = format!("unknown op {name:?}{}", suggest(name, &known));
        return Err(Fault {
            span: spelled.span(),
            problem,
        });
    };
    let ignore_case = match spec
        .case
        .as_ref()
        .map(|case| (case.get_ref().as_str(), case.span()))
    {
        None | Some(("exact", _)) => false,
        Some(("ignore", _)) => true,
        Some((other, span)) => {
            let problem = format!("case is {other:?}; it is \"ignore\" or \"exact\"");
            return Err(Fault { span, problem });
        }
    };
    let value_span = spec
        .value
        .as_ref()
        .map_or_else(|| spanned.span(), Spanned::span);
    let fault = |problem: String| Fault {
        span: value_span.clone(),
        problem,
    };
    let value = match (&spec.value, op) {
        (Some(_), "exists" | MISSING) => {
            return Err(fault(format!("op {op:?} takes no value; remove it")));
        }
        (None, "exists" | MISSING) => Value::Null,
        (None, _) => return Err(fault(format!("op {op:?} needs a value; add value = ..."))),
        (Some(value), _) => json(value.get_ref()).map_err(fault)?,
    };
    let check = check(op, &value, ignore_case).map_err(|problem| {
        let span = value_span.clone();
        Fault { span, problem }
    })?;
    if ignore_case && !takes_case(&check) {
        return Err(fault(format!(
            "op {op:?} with this value has no case to ignore"
        )));
    }
    Ok(Test {
        field: field.to_owned(),
        op,
        value,
        ignore_case,
        check,
    })
}

fn takes_case(check: &Check) -> bool {
    match check {
        Check::Contains { .. } | Check::Matches(_) => true,
        Check::OneOf { wanted, .. } => matches!(wanted[0], Scalar::Text(_)),
        _ => false,
    }
}

fn check(op: &str, value: &Value, ignore_case: bool) -> Result<Check, String> {
    use Ordering::{Equal, Greater, Less};
    let number = |orders: &'static [Ordering]| match value {
        Value::Number(number) => number_of(number)
            .map(|wanted| Check::Number { wanted, orders })
            .ok_or_else(|| format!("op {op:?} cannot compare with {value}")),
        other => Err(format!(
            "op {op:?} needs a number, not {other}; use before/after for dates"
        )),
    };
    let instant = |order| {
        let parsed = value.as_str().and_then(date::parse);
        parsed
            .map(|wanted| Check::Date { wanted, order })
            .ok_or_else(|| format!("op {op:?} needs a date, not {value}; write {}", date::FORMS))
    };
    Ok(match op {
        "eq" | "ne" => Check::OneOf {
            wanted: vec![scalar(op, value, ignore_case)?],
            negated: op == "ne",
        },
        "in" | "not_in" => {
            let wanted = list(op, value)?
                .iter()
                .map(|item| scalar(op, item, ignore_case))
                .collect::<Result<Vec<_>, _>>()?;
            let kind = std::mem::discriminant(&wanted[0]);
            if wanted
                .iter()
                .any(|item| std::mem::discriminant(item) != kind)
            {
                return Err(format!("op {op:?} needs a list of one type, not {value}"));
            }
            Check::OneOf {
                wanted,
                negated: op == "not_in",
            }
        }
        "lt" => number(&[Less])?,
        "le" => number(&[Less, Equal])?,
        "gt" => number(&[Greater])?,
        "ge" => number(&[Greater, Equal])?,
        "before" => instant(Less)?,
        "after" => instant(Greater)?,
        "contains" => Check::Contains {
            needles: vec![needle(op, value, ignore_case)?],
        },
        "contains_any" => Check::Contains {
            needles: list(op, value)?
                .iter()
                .map(|item| needle(op, item, ignore_case))
                .collect::<Result<_, _>>()?,
        },
        "matches" => {
            let pattern = needle(op, value, false)?;
            let regex = RegexBuilder::new(&pattern)
                .case_insensitive(ignore_case)
                .build();
            Check::Matches(regex.map_err(|error| {
                format!(
                    "bad regular expression {pattern:?}: {}",
                    one_line(&error.to_string())
                )
            })?)
        }
        "exists" => Check::Exists,
        _ => Check::Missing,
    })
}

fn list<'a>(op: &str, value: &'a Value) -> Result<&'a [Value], String> {
    match value.as_array() {
        Some(items) if !items.is_empty() => Ok(items),
        _ => Err(format!(
            "op {op:?} needs a list that is not empty, not {value}"
        )),
    }
}

fn needle(op: &str, value: &Value, ignore_case: bool) -> Result<String, String> {
    match value.as_str() {
        Some(text) if !text.is_empty() => Ok(fold_case(text, ignore_case)),
        _ => Err(format!(
            "op {op:?} needs text that is not empty, not {value}"
        )),
    }
}

fn scalar(op: &str, value: &Value, ignore_case: bool) -> Result<Scalar, String> {
    match value {
        Value::String(text) => Ok(Scalar::Text(fold_case(text, ignore_case))),
        Value::Bool(flag) => Ok(Scalar::Bool(*flag)),
        Value::Number(number) => number_of(number)
            .map(Scalar::Number)
            .ok_or_else(|| format!("op {op:?} cannot compare with {value}")),
        other => Err(format!(
            "op {op:?} compares with text, a number or true/false, not {other}"
        )),
    }
}

fn fold_case(text: &str, ignore_case: bool) -> String {
    if ignore_case {
        text.to_lowercase()
    } else {
        text.to_owned()
    }
}

/// TOML to JSON; a TOML date becomes its text.
fn json(value: &toml::Value) -> Result<Value, String> {
    Ok(match value {
        toml::Value::String(text) => Value::from(text.as_str()),
        toml::Value::Integer(integer) => Value::from(*integer),
        toml::Value::Float(float) => serde_json::Number::from_f64(*float)
            .map(Value::Number)
            .ok_or_else(|| format!("{float} is not a finite number"))?,
        toml::Value::Boolean(flag) => Value::from(*flag),
        toml::Value::Datetime(datetime) => Value::from(datetime.to_string()),
        toml::Value::Array(items) => {
            Value::Array(items.iter().map(json).collect::<Result<_, _>>()?)
        }
        toml::Value::Table(_) => return Err("a value cannot be a table".to_owned()),
    })
}

/// The regex crate draws its errors over several lines; the last one says what is wrong.
fn one_line(message: &str) -> String {
    message
        .lines()
        .last()
        .unwrap_or(message)
        .trim()
        .trim_start_matches("error: ")
        .to_owned()
}
