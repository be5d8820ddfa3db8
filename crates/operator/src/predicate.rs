//! Plain predicates on the fields of one record.
//!
//! A path such as `labels.name` goes through lists: any element may match. A missing or null field
//! matches nothing but `missing`. A value of another type than the plan's is an error of the unit,
//! never a silent no. Regular expressions are linear-time and compiled once. What an index says of the
//! record is looked up, never computed here (`predicate/indexed.rs`). Must not know units.

mod compile;
pub(crate) mod date;
mod indexed;

use std::cmp::Ordering;

use jiff::Timestamp;
use regex::Regex;
use serde_json::{Map, Value};

use crate::canonical::Canonical;
use crate::record::kind_of;

pub(crate) use compile::{PredicateSpec, compile};
use indexed::IndexTest;
pub use indexed::Standing;

/// A compiled predicate.
#[derive(Debug, Clone)]
pub struct Predicate(Node);

#[derive(Debug, Clone)]
enum Node {
    All(Vec<Node>),
    Any(Vec<Node>),
    Not(Box<Node>),
    Test(Test),
    Index(IndexTest),
}

/// One comparison; `op`, `value` and `ignore_case` are kept as spelled because they are hashed.
#[derive(Debug, Clone)]
struct Test {
    field: String,
    op: &'static str,
    value: Value,
    ignore_case: bool,
    check: Check,
}

#[derive(Debug, Clone)]
enum Check {
    /// Any leaf equals any of the wanted scalars; negated for `ne` and `not_in`.
    OneOf {
        wanted: Vec<Scalar>,
        negated: bool,
    },
    /// Any leaf stands in one of these orders to the wanted number.
    Number {
        wanted: Number,
        orders: &'static [Ordering],
    },
    /// Any leaf is a date in this order to the wanted instant.
    Date {
        wanted: Timestamp,
        order: Ordering,
    },
    /// Any leaf contains any needle.
    Contains {
        needles: Vec<String>,
    },
    Matches(Regex),
    Exists,
    Missing,
}

#[derive(Debug, Clone, PartialEq)]
enum Scalar {
    Text(String),
    Number(Number),
    Bool(bool),
}

#[derive(Debug, Clone, Copy)]
enum Number {
    Integer(i128),
    Decimal(f64),
}

impl Number {
    #[expect(
        clippy::cast_precision_loss,
        reason = "only where one side is a decimal anyway"
    )]
    fn compare(self, other: Self) -> Option<Ordering> {
        let decimal = |number| match number {
            Self::Integer(integer) => integer as f64,
            Self::Decimal(decimal) => decimal,
        };
        match (self, other) {
            (Self::Integer(left), Self::Integer(right)) => Some(left.cmp(&right)),
            (left, right) => decimal(left).partial_cmp(&decimal(right)),
        }
    }
}

impl PartialEq for Number {
    fn eq(&self, other: &Self) -> bool {
        self.compare(*other) == Some(Ordering::Equal)
    }
}

/// A field holds a value of another type than the plan expects.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("field {field:?} is {found} ({value}), expected {expected}")]
pub struct FieldError {
    /// The field path.
    pub field: String,
    /// The type that is there.
    pub found: &'static str,
    /// The value that is there, shortened.
    pub value: String,
    /// What the plan expects.
    pub expected: String,
}

impl FieldError {
    pub(crate) fn new(field: &str, value: &Value, expected: &str) -> Self {
        let shown = value.to_string();
        let cut: String = shown.chars().take(60).collect();
        let value_shown = if cut.len() < shown.len() {
            format!("{cut}...")
        } else {
            shown
        };
        Self {
            field: field.to_owned(),
            found: kind_of(value),
            value: value_shown,
            expected: expected.to_owned(),
        }
    }
}

/// The values at a path, lists flattened and nulls left out; empty where the field is missing.
///
/// A key that itself contains dots is found before its parts are.
///
/// # Errors
/// [`FieldError`] where the path goes on below a value that has no fields.
pub fn leaves<'a>(
    fields: &'a Map<String, Value>,
    path: &str,
) -> Result<Vec<&'a Value>, FieldError> {
    let mut found = Vec::new();
    descend(fields, path, path, &mut found)?;
    Ok(found)
}

fn descend<'a>(
    fields: &'a Map<String, Value>,
    rest: &str,
    path: &str,
    found: &mut Vec<&'a Value>,
) -> Result<(), FieldError> {
    if let Some(value) = fields.get(rest) {
        return collect(value, None, path, found);
    }
    let Some((key, below)) = rest.split_once('.') else {
        return Ok(());
    };
    match fields.get(key) {
        Some(value) => collect(value, Some(below), path, found),
        None => Ok(()),
    }
}

fn collect<'a>(
    value: &'a Value,
    below: Option<&str>,
    path: &str,
    found: &mut Vec<&'a Value>,
) -> Result<(), FieldError> {
    match (value, below) {
        (Value::Null, _) => {}
        (Value::Array(items), _) => {
            for item in items {
                collect(item, below, path, found)?;
            }
        }
        (Value::Object(fields), Some(rest)) => descend(fields, rest, path, found)?,
        (other, Some(_)) => {
            return Err(FieldError::new(
                path,
                other,
                "an object or a list of objects on the way",
            ));
        }
        (leaf, None) => found.push(leaf),
    }
    Ok(())
}

impl Predicate {
    /// Whether the predicate holds for a record's fields and what the plan's indexes say of it.
    ///
    /// # Errors
    /// [`FieldError`] where a value that had to be looked at has the wrong type. `all` and `any`
    /// stop at the first member that settles them, in plan order.
    ///
    /// # Panics
    /// If it refers to an index that was not computed.
    pub fn matches(
        &self,
        fields: &Map<String, Value>,
        standing: Standing<'_>,
    ) -> Result<bool, FieldError> {
        self.0.matches(fields, standing)
    }

    /// What the indexes that it refers to say of a record, for a reason; none where it refers to none.
    pub fn looked_up(&self, standing: Standing<'_>) -> Option<String> {
        let mut parts = Vec::new();
        self.0.collect(standing, &mut parts);
        (!parts.is_empty()).then(|| parts.join(", "))
    }

    /// Whether it refers to an index.
    pub fn is_indexed(&self) -> bool {
        self.0.is_indexed()
    }

    /// Writes the predicate as it was spelled, for the plan's hash.
    pub(crate) fn encode(&self, canonical: &mut Canonical) {
        self.0.encode(canonical);
    }
}

impl Node {
    fn matches(
        &self,
        fields: &Map<String, Value>,
        standing: Standing<'_>,
    ) -> Result<bool, FieldError> {
        match self {
            Self::All(members) => {
                for member in members {
                    if !member.matches(fields, standing)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Self::Any(members) => {
                for member in members {
                    if member.matches(fields, standing)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Self::Not(member) => Ok(!member.matches(fields, standing)?),
            Self::Test(test) => test.matches(fields),
            Self::Index(test) => Ok(test.holds(standing)),
        }
    }

    fn collect(&self, standing: Standing<'_>, parts: &mut Vec<String>) {
        match self {
            Self::All(members) | Self::Any(members) => {
                for member in members {
                    member.collect(standing, parts);
                }
            }
            Self::Not(member) => member.collect(standing, parts),
            Self::Test(_) => {}
            Self::Index(test) => {
                let part = test.describe(standing);
                if !parts.contains(&part) {
                    parts.push(part);
                }
            }
        }
    }

    fn is_indexed(&self) -> bool {
        match self {
            Self::All(members) | Self::Any(members) => members.iter().any(Self::is_indexed),
            Self::Not(member) => member.is_indexed(),
            Self::Test(_) => false,
            Self::Index(_) => true,
        }
    }

    fn encode(&self, canonical: &mut Canonical) {
        match self {
            Self::All(members) | Self::Any(members) => {
                canonical.text(if matches!(self, Self::All(_)) {
                    "all"
                } else {
                    "any"
                });
                canonical.list(members.len());
                for member in members {
                    member.encode(canonical);
                }
            }
            Self::Not(member) => {
                canonical.text("not");
                member.encode(canonical);
            }
            Self::Test(test) => {
                canonical
                    .text("test")
                    .text(&test.field)
                    .text(test.op)
                    .value(&test.value);
                canonical.bool(test.ignore_case);
            }
            Self::Index(test) => test.encode(canonical),
        }
    }
}

impl Test {
    fn matches(&self, fields: &Map<String, Value>) -> Result<bool, FieldError> {
        let leaves = leaves(fields, &self.field)?;
        match &self.check {
            Check::Exists => return Ok(!leaves.is_empty()),
            Check::Missing => return Ok(leaves.is_empty()),
            _ if leaves.is_empty() => return Ok(false),
            _ => {}
        }
        let mut any = false;
        for leaf in leaves {
            any |= self.holds(leaf)?;
        }
        let negated = matches!(self.check, Check::OneOf { negated: true, .. });
        Ok(any != negated)
    }

    fn holds(&self, leaf: &Value) -> Result<bool, FieldError> {
        Ok(match &self.check {
            Check::OneOf { wanted, .. } => {
                let found = self.scalar(leaf, &wanted[0])?;
                wanted.contains(&found)
            }
            Check::Number { wanted, orders } => {
                let found = self.number(leaf)?;
                found
                    .compare(*wanted)
                    .is_some_and(|order| orders.contains(&order))
            }
            Check::Date { wanted, order } => {
                let found = leaf.as_str().and_then(date::parse);
                let found = found.ok_or_else(|| self.wrong(leaf, date::FORMS))?;
                found.cmp(wanted) == *order
            }
            Check::Contains { needles } => {
                let text = self.text(leaf)?;
                needles.iter().any(|needle| text.contains(needle.as_str()))
            }
            Check::Matches(regex) => {
                regex.is_match(leaf.as_str().ok_or_else(|| self.wrong(leaf, "text"))?)
            }
            Check::Exists | Check::Missing => true,
        })
    }

    /// Reads a leaf as the type of `like`. Digits and `true`/`false` in text count as what they
    /// spell, because CSV has only text.
    fn scalar(&self, leaf: &Value, like: &Scalar) -> Result<Scalar, FieldError> {
        Ok(match like {
            Scalar::Text(_) => Scalar::Text(self.text(leaf)?),
            Scalar::Number(_) => Scalar::Number(self.number(leaf)?),
            Scalar::Bool(_) => Scalar::Bool(match leaf {
                Value::Bool(flag) => *flag,
                Value::String(text) if text.eq_ignore_ascii_case("true") => true,
                Value::String(text) if text.eq_ignore_ascii_case("false") => false,
                other => return Err(self.wrong(other, "true or false")),
            }),
        })
    }

    fn text(&self, leaf: &Value) -> Result<String, FieldError> {
        let text = leaf.as_str().ok_or_else(|| self.wrong(leaf, "text"))?;
        Ok(if self.ignore_case {
            text.to_lowercase()
        } else {
            text.to_owned()
        })
    }

    fn number(&self, leaf: &Value) -> Result<Number, FieldError> {
        match leaf {
            Value::Number(number) => number_of(number),
            Value::String(text) => text.trim().parse().ok().map(Number::Integer),
            _ => None,
        }
        .ok_or_else(|| self.wrong(leaf, "a number"))
    }

    fn wrong(&self, leaf: &Value, expected: &str) -> FieldError {
        FieldError::new(&self.field, leaf, &format!("{expected} for {:?}", self.op))
    }
}

fn number_of(number: &serde_json::Number) -> Option<Number> {
    let integer = number
        .as_i64()
        .map(i128::from)
        .or_else(|| number.as_u64().map(i128::from));
    integer
        .map(Number::Integer)
        .or_else(|| number.as_f64().map(Number::Decimal))
}
