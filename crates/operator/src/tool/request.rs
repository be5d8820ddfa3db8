//! What a tool is asked: declared arguments with typed values, and the name that they make up.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::canonical::Canonical;
use crate::column;
use crate::id::ContentHash;
use crate::record::Record;

/// One declared argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Argument {
    /// Name, unique in its tool.
    pub name: String,
    /// Path in the record that its value comes from.
    pub field: String,
    /// What the value has to be.
    pub kind: ArgumentKind,
}

/// What an argument's value has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArgumentKind {
    /// Text without control characters.
    Text,
    /// A whole number that fits 64 bits, also where text spells it.
    Integer,
    /// True or false, also where text spells it.
    Boolean,
}

impl ArgumentKind {
    /// The kind as a plan spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Integer => "integer",
            Self::Boolean => "boolean",
        }
    }
}

/// An argument's value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(untagged)]
pub enum ArgumentValue {
    /// Of a text argument.
    Text(String),
    /// Of an integer argument.
    Integer(i64),
    /// Of a boolean argument.
    Boolean(bool),
}

impl ArgumentValue {
    const fn kind(&self) -> ArgumentKind {
        match self {
            Self::Text(_) => ArgumentKind::Text,
            Self::Integer(_) => ArgumentKind::Integer,
            Self::Boolean(_) => ArgumentKind::Boolean,
        }
    }
}

/// The values of all arguments of one call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Arguments(BTreeMap<String, ArgumentValue>);

impl FromIterator<(String, ArgumentValue)> for Arguments {
    fn from_iter<I: IntoIterator<Item = (String, ArgumentValue)>>(values: I) -> Self {
        Self(values.into_iter().collect())
    }
}

impl Arguments {
    /// Reads declared arguments from a record.
    ///
    /// # Errors
    /// Which value is missing or of another type.
    pub fn read(declared: &[Argument], record: &Record) -> Result<Self, String> {
        let read = |argument: &Argument| {
            let value = column::at(&record.fields, &argument.field)
                .filter(|value| !value.is_null())
                .ok_or_else(|| format!("the record has no {:?}", argument.field))?;
            let typed = typed(argument.kind, value).ok_or_else(|| {
                let (field, kind) = (&argument.field, argument.kind.as_str());
                format!("{field:?} of the record is not of type {kind}")
            })?;
            Ok((argument.name.clone(), typed))
        };
        declared.iter().map(read).collect()
    }

    /// Whether these are exactly the declared arguments.
    ///
    /// # Errors
    /// What differs.
    pub(super) fn check(&self, declared: &[Argument]) -> Result<(), String> {
        for argument in declared {
            match self.0.get(&argument.name) {
                Some(value) if value.kind() == argument.kind => {}
                Some(_) => {
                    let (name, kind) = (&argument.name, argument.kind.as_str());
                    return Err(format!("argument {name:?} is not of type {kind}"));
                }
                None => return Err(format!("argument {:?} is missing", argument.name)),
            }
        }
        if self.0.len() == declared.len() {
            return Ok(());
        }
        Err("there are arguments that the tool does not declare".to_owned())
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &ArgumentValue)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// A value as text; empty where there is none of that name.
    pub fn text(&self, name: &str) -> Cow<'_, str> {
        match self.0.get(name) {
            Some(ArgumentValue::Text(text)) => Cow::Borrowed(text),
            Some(ArgumentValue::Integer(number)) => Cow::Owned(number.to_string()),
            Some(ArgumentValue::Boolean(flag)) => Cow::Owned(flag.to_string()),
            None => Cow::Borrowed(""),
        }
    }
}

fn typed(kind: ArgumentKind, value: &Value) -> Option<ArgumentValue> {
    match (kind, value) {
        (ArgumentKind::Text, Value::String(text)) => {
            let plain = !text.chars().any(char::is_control);
            plain.then(|| ArgumentValue::Text(text.clone()))
        }
        (ArgumentKind::Integer, Value::Number(number)) => {
            number.as_i64().map(ArgumentValue::Integer)
        }
        (ArgumentKind::Integer, Value::String(text)) => {
            text.trim().parse().ok().map(ArgumentValue::Integer)
        }
        (ArgumentKind::Boolean, Value::Bool(flag)) => Some(ArgumentValue::Boolean(*flag)),
        (ArgumentKind::Boolean, Value::String(text)) => {
            text.trim().parse().ok().map(ArgumentValue::Boolean)
        }
        _ => None,
    }
}

/// One call that is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolRequest {
    /// Name of the tool.
    pub tool: String,
    /// What it is asked.
    pub arguments: Arguments,
}

impl ToolRequest {
    /// Names what is read: the declaration, what it leaves open, and the arguments.
    ///
    /// Two requests of one key read the same; limits that cannot change what is read are left out.
    pub(super) fn key(&self, declaration: &ContentHash, scope: &str) -> ContentHash {
        let mut canonical = Canonical::new("operator 2026 tool request v1");
        canonical.bytes(declaration.as_bytes()).text(scope);
        canonical.map(self.arguments.0.len());
        for (name, value) in &self.arguments.0 {
            canonical.text(name);
            match value {
                ArgumentValue::Text(text) => canonical.text(text),
                ArgumentValue::Integer(number) => canonical.i64(*number),
                ArgumentValue::Boolean(flag) => canonical.bool(*flag),
            };
        }
        ContentHash::of(&canonical)
    }
}
