//! Effects: what a verified answer may change outside, and where.
//!
//! ```toml
//! [[effect]]
//! name = "tell_release"
//! kind = "http_tracker"                   # or "file_tracker", a directory of JSON issues
//! where = "https://tracker.example/api"   # for file_tracker a directory, relative to the plan file
//! hosts = ["tracker.example"]             # http_tracker only: the hosts that may be reached
//! token_env = "TRACKER_TOKEN"             # http_tracker only: the variable that holds the token
//! action = "comment"                      # or "label", "edit", "close", "send"
//! when = { label = { blocker = "yes" }, probability_min = { blocker = 0.9 } }
//! resource = "{id}"                       # the issue; the unit's id where left out
//! text = "Blocks the release because of {field.cause}: {record.title}"
//! version = "{record.version}"            # what the issue's version was when it was judged
//! effects_max = 50                        # with more, none is done
//! ```
//!
//! A template takes `{id}`, `{field.NAME}` (the decided label), `{reason.NAME}` (its reason code) and
//! `{record.PATH}` (a text, number or truth value of the record); `{{` and `}}` are braces. There is
//! no place for a model's free text. Only decided units have effects. `edit` names the issue's field
//! in `set`; `edit` and `close` overwrite, so they need `version`. Nothing is done unless the command
//! line allows the effect by name.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::Plan;
use crate::canonical::Canonical;
use crate::fact::{Fact, Status};

/// One declared effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EffectSpec {
    /// Name, unique among effects.
    pub name: String,
    /// The tracker that is changed.
    pub target: Target,
    /// What is done to an issue.
    pub action: Action,
    /// Which units have it.
    pub when: EffectCondition,
    /// The issue.
    pub resource: Template,
    /// The value that the action takes: a text, a label, or a field's new content.
    pub text: Option<Template>,
    /// The field that [`Action::Edit`] sets.
    pub set: Option<String>,
    /// The version of the issue that was judged.
    pub version: Option<Template>,
    /// Most effects of a run; with more, none is done. A limit, so no part of the plan's hash.
    pub effects_max: u32,
}

/// The tracker that an effect changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A directory of JSON files.
    Files(PathBuf),
    /// A service spoken to over HTTP.
    Http(Service),
}

impl Target {
    /// The kind as a plan spells it.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Files(_) => "file_tracker",
            Self::Http(_) => "http_tracker",
        }
    }
}

/// A service that an effect may reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// Its address, without a slash at the end.
    pub url: String,
    /// The environment variable that holds its token; which it is changes no effect.
    pub token_env: Option<String>,
}

/// What is done to an issue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// A comment is added.
    Comment,
    /// A label is added.
    Label,
    /// A field gets another content.
    Edit,
    /// It is closed.
    Close,
    /// A message is sent to those who follow it.
    Send,
}

impl Action {
    /// All five.
    pub const ALL: [Self; 5] = [
        Self::Comment,
        Self::Label,
        Self::Edit,
        Self::Close,
        Self::Send,
    ];

    /// The action as a plan spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Comment => "comment",
            Self::Label => "label",
            Self::Edit => "edit",
            Self::Close => "close",
            Self::Send => "send",
        }
    }

    /// Whether what was there before is lost.
    pub const fn overwrites(self) -> bool {
        matches!(self, Self::Edit | Self::Close)
    }
}

/// Which decided units have an effect; all parts must hold.
///
/// Units: parts per million. A label that a predicate set is certain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EffectCondition {
    /// The unit has this label of the field; at least one.
    pub labels: BTreeMap<String, String>,
    /// The label of the field is at least so probable.
    pub probability_min_ppm: BTreeMap<String, u32>,
    /// The margin of the field is at least this.
    pub margin_min_ppm: BTreeMap<String, u32>,
}

impl EffectCondition {
    /// Whether a fact meets it.
    pub fn holds(&self, fact: &Fact) -> bool {
        let value = |field: &String| fact.values.get(field);
        fact.status == Status::Decided
            && (self.labels.iter())
                .all(|(field, label)| value(field).is_some_and(|value| value.label == *label))
            && (self.probability_min_ppm.iter()).all(|(field, least)| {
                value(field).is_some_and(|value| value.probability_of(&value.label) >= *least)
            })
            && (self.margin_min_ppm.iter()).all(|(field, least)| {
                value(field).is_some_and(|value| value.margin_ppm.is_none_or(|ppm| ppm >= *least))
            })
    }
}

/// A text with places that are filled from a fact and its record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template(pub Vec<Part>);

/// A piece of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// Text as it stands.
    Text(String),
    /// The unit's id.
    Id,
    /// The decided label of a field.
    Label(String),
    /// The reason code of a field.
    Reason(String),
    /// A value of the record.
    Record(String),
}

impl Template {
    /// Reads a template.
    ///
    /// # Errors
    /// What is wrong and what to write instead.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parts: Vec<Part> = Vec::new();
        let mut plain = String::new();
        let mut rest = text.chars().peekable();
        while let Some(next) = rest.next() {
            match next {
                '{' | '}' if rest.next_if_eq(&next).is_some() => plain.push(next),
                '{' => {
                    let mut name = String::new();
                    loop {
                        match rest.next() {
                            Some('}') => break,
                            Some(c) => name.push(c),
                            None => return Err(format!("\"{{{name}\" lacks its }}")),
                        }
                    }
                    if !plain.is_empty() {
                        parts.push(Part::Text(std::mem::take(&mut plain)));
                    }
                    parts.push(Part::parse(&name)?);
                }
                '}' => return Err("a } stands alone; write }} for the character".to_owned()),
                plain_char => plain.push(plain_char),
            }
        }
        if !plain.is_empty() {
            parts.push(Part::Text(plain));
        }
        Ok(Self(parts))
    }

    fn encode(&self, canonical: &mut Canonical) {
        canonical.list(self.0.len());
        for part in &self.0 {
            match part {
                Part::Text(text) => canonical.text("text").text(text),
                Part::Id => canonical.text("id"),
                Part::Label(field) => canonical.text("field").text(field),
                Part::Reason(field) => canonical.text("reason").text(field),
                Part::Record(path) => canonical.text("record").text(path),
            };
        }
    }
}

impl Part {
    fn parse(name: &str) -> Result<Self, String> {
        match name.split_once('.') {
            _ if name == "id" => Ok(Self::Id),
            Some(("field", field)) if !field.is_empty() => Ok(Self::Label(field.to_owned())),
            Some(("reason", field)) if !field.is_empty() => Ok(Self::Reason(field.to_owned())),
            Some(("record", path)) if !path.is_empty() => Ok(Self::Record(path.to_owned())),
            _ => Err(format!(
                "{{{name}}} is no place; use {{id}}, {{field.NAME}}, {{reason.NAME}} or \
                 {{record.PATH}}, and {{{{ for the character {{"
            )),
        }
    }
}

impl Plan {
    /// The effect of that name.
    pub fn effect(&self, name: &str) -> Option<&EffectSpec> {
        self.effects.iter().find(|effect| effect.name == name)
    }
}

/// Writes effects into the plan's hash: what is done where and to which units.
pub(super) fn encode(canonical: &mut Canonical, effects: &[EffectSpec]) {
    canonical.text("effects").list(effects.len());
    for effect in effects {
        canonical.text(&effect.name).text(effect.target.as_str());
        match &effect.target {
            Target::Files(directory) => canonical.text(&directory.to_string_lossy()),
            Target::Http(service) => canonical.text(&service.url),
        };
        canonical.text(effect.action.as_str());
        canonical.map(effect.when.labels.len());
        for (field, label) in &effect.when.labels {
            canonical.text(field).text(label);
        }
        for bounds in [
            &effect.when.probability_min_ppm,
            &effect.when.margin_min_ppm,
        ] {
            canonical.map(bounds.len());
            for (field, ppm) in bounds {
                canonical.text(field).u32(*ppm);
            }
        }
        effect.resource.encode(canonical);
        for template in [&effect.text, &effect.version] {
            match template {
                Some(template) => template.encode(canonical.some()),
                None => {
                    canonical.none();
                }
            }
        }
        canonical.optional_text(effect.set.as_deref());
    }
}
