//! Tests of what an index says of a record.
//!
//! A record of which an index says nothing passes no test, neither `at_least` nor `below`. Values are
//! integers throughout: those of a statement, thousandths of a score, millionths of a probability.

use serde_json::Value;
use toml::Spanned;

use super::compile::{Fault, PredicateSpec};
use crate::canonical::Canonical;
use crate::index::Indexes;
use crate::nearest::suggest;
use crate::plan::{Index, IndexKind};

const OPS: [&str; 6] = [
    "member",
    "at_least",
    "below",
    "top",
    "margin_at_least",
    "margin_below",
];

/// Where a record stands in the plan's indexes.
#[derive(Debug, Clone, Copy)]
pub struct Standing<'a> {
    /// The indexes of the plan, computed.
    pub indexes: &'a Indexes,
    /// The record's position.
    pub ordinal: u32,
}

/// One test of an index.
#[derive(Debug, Clone)]
pub(super) struct IndexTest {
    /// Place of the index in the plan.
    place: usize,
    name: String,
    /// Place and name of the class of a classifier.
    class: Option<(usize, String)>,
    op: &'static str,
    value: i64,
    /// How many parts a whole has: 1, a thousand, or a million.
    parts: u32,
}

impl IndexTest {
    pub(super) fn holds(&self, standing: Standing<'_>) -> bool {
        let table = standing.indexes.table(self.place);
        let class = self.class.as_ref().map_or(0, |(place, _)| *place);
        let ordinal = standing.ordinal;
        let compared = |value: Option<i64>, at_least: bool| {
            value.is_some_and(|value| (value >= self.value) == at_least)
        };
        match self.op {
            "member" => table.is_member(class, ordinal),
            "at_least" => compared(table.value(class, ordinal), true),
            "below" => compared(table.value(class, ordinal), false),
            "margin_at_least" => compared(table.margin(ordinal), true),
            "margin_below" => compared(table.margin(ordinal), false),
            _ => table
                .rank(class, ordinal)
                .is_some_and(|rank| i64::from(rank) < self.value),
        }
    }

    /// What the index says, as a reason writes it.
    pub(super) fn describe(&self, standing: Standing<'_>) -> String {
        let table = standing.indexes.table(self.place);
        let class = self.class.as_ref().map_or(0, |(place, _)| *place);
        let (what, value) = match (&self.class, self.op) {
            (_, "margin_at_least" | "margin_below") => (
                format!("{} margin", self.name),
                table.margin(standing.ordinal),
            ),
            (Some((_, class_name)), _) => (
                format!("{} {class_name}", self.name),
                table.value(class, standing.ordinal),
            ),
            (None, _) => (self.name.clone(), table.value(class, standing.ordinal)),
        };
        match (value, self.parts) {
            (Some(value), 1) => format!("{what} {value}"),
            (Some(value), parts) => format!("{what} {}", decimal(value, parts)),
            (None, _) if table.is_member(class, standing.ordinal) => format!("{what} member"),
            (None, _) => format!("{what} none"),
        }
    }

    pub(super) fn encode(&self, canonical: &mut Canonical) {
        canonical
            .text("index")
            .text(&self.name)
            .optional_text(self.class.as_ref().map(|(_, name)| name.as_str()))
            .text(self.op)
            .i64(self.value);
    }
}

/// Writes an integer count of parts as the decimal number that it is.
fn decimal(value: i64, parts: u32) -> String {
    let (sign, value) = (if value < 0 { "-" } else { "" }, value.unsigned_abs());
    let parts = u64::from(parts);
    let digits = parts.ilog10() as usize;
    format!("{sign}{}.{:0digits$}", value / parts, value % parts)
}

/// Compiles a test of an index.
pub(super) fn test(
    spanned: &Spanned<PredicateSpec>,
    indexes: &[Index],
) -> Result<IndexTest, Fault> {
    let spec = spanned.get_ref();
    let fault = |span, problem: String| Fault { span, problem };
    let Some(named) = &spec.index else {
        let problem = "a label is of an index; add index = \"...\"";
        return Err(fault(spanned.span(), problem.to_owned()));
    };
    if spec.field.is_some() || spec.case.is_some() {
        let problem = "a predicate tests a field or an index, not both; an index has no case";
        return Err(fault(spanned.span(), problem.to_owned()));
    }
    let name = named.get_ref();
    let Some(place) = indexes.iter().position(|index| index.name == *name) else {
        let known: Vec<&str> = indexes.iter().map(|index| index.name.as_str()).collect();
        let near = match known.is_empty() {
            true => "; the plan declares no [[index]]".to_owned(),
            false => suggest(name, &known),
        };
        return Err(fault(named.span(), format!("unknown index {name:?}{near}")));
    };
    let kind = &indexes[place].kind;
    let Some(op) = &spec.op else {
        let problem = "the predicate has no \"op\"; add op = \"member\" or another";
        return Err(fault(spanned.span(), problem.to_owned()));
    };
    let (spelled, op_span) = (op.get_ref(), op.span());
    let Some(&op) = OPS.iter().find(|known| *known == spelled) else {
        let near = suggest(spelled, &OPS);
        return Err(fault(
            op_span,
            format!("unknown op {spelled:?} of an index{near}"),
        ));
    };
    let is_margin = op.starts_with("margin");
    let class = match (kind, &spec.label) {
        (IndexKind::Classifier(classifier), Some(label)) if !is_margin => {
            let wanted = label.get_ref();
            let place = classifier.classes.iter().position(|class| class == wanted);
            let known: Vec<&str> = classifier.classes.iter().map(String::as_str).collect();
            let place = place.ok_or_else(|| {
                let near = suggest(wanted, &known);
                fault(
                    label.span(),
                    format!("index {name:?} has no label {wanted:?}{near}"),
                )
            })?;
            Some((place, wanted.clone()))
        }
        (IndexKind::Classifier(_), None) if !is_margin => {
            let problem = format!("index {name:?} is a classifier; say which label = \"...\"");
            return Err(fault(spanned.span(), problem));
        }
        (IndexKind::Classifier(_), None) => None,
        (_, Some(label)) => {
            let problem = format!("op {op:?} of index {name:?} has no label; remove it");
            return Err(fault(label.span(), problem));
        }
        (other, None) if is_margin => {
            let kind = other.as_str();
            let problem = format!("op {op:?} is of classifiers; index {name:?} is of kind {kind}");
            return Err(fault(op_span, problem));
        }
        (_, None) => None,
    };
    let parts = match kind {
        IndexKind::Sql(_) => 1,
        IndexKind::Search(_) => 1_000,
        IndexKind::Classifier(_) => 1_000_000,
    };
    let value = match (op, &spec.value) {
        ("member", None) => 0,
        ("member", Some(value)) => {
            let problem = "op \"member\" takes no value; remove it".to_owned();
            return Err(fault(value.span(), problem));
        }
        (_, None) => {
            let problem = format!("op {op:?} needs a value; add value = ...");
            return Err(fault(spanned.span(), problem));
        }
        (_, Some(value)) => {
            let parts = if op == "top" { 1 } else { parts };
            read(op, value.get_ref(), parts).map_err(|problem| fault(value.span(), problem))?
        }
    };
    Ok(IndexTest {
        place,
        name: name.clone(),
        class,
        op,
        value,
        parts,
    })
}

/// Reads a value in parts of a whole.
fn read(op: &str, value: &toml::Value, parts: u32) -> Result<i64, String> {
    let number = match value {
        toml::Value::Integer(integer) => integer.checked_mul(i64::from(parts)),
        toml::Value::Float(float) if parts > 1 && (float.abs() < 1e9) => {
            Some((float * f64::from(parts)).round() as i64)
        }
        _ => None,
    };
    let shown = || serde_json::to_value(value).unwrap_or(Value::Null);
    match number {
        Some(number) if op == "top" && number < 1 => Err(format!(
            "op \"top\" needs how many, at least 1, not {number}"
        )),
        Some(number) if parts == 1_000_000 && !(0..=1_000_000).contains(&number) => Err(format!(
            "op {op:?} of a classifier needs a share from 0 to 1, not {}",
            shown()
        )),
        Some(number) => Ok(number),
        None if parts == 1 => Err(format!("op {op:?} needs an integer here, not {}", shown())),
        None => Err(format!("op {op:?} needs a number, not {}", shown())),
    }
}
