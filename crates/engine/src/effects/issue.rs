//! An issue as both trackers keep it, and what it says about a key.
//!
//! Must not know where issues are kept.

use operator::effect::{EffectRequest, Found};
use operator::id::EffectKey;
use operator::plan::effect::Action;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

/// An issue; fields of other names are kept as they are.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Issue {
    /// Changes with every change.
    #[serde(default)]
    pub version: Version,
    /// `open` or `closed`.
    #[serde(default = "open")]
    pub state: String,
    /// Its labels.
    #[serde(default)]
    pub labels: Vec<String>,
    /// Its comments.
    #[serde(default)]
    pub comments: Vec<Post>,
    /// What was sent to those who follow it.
    #[serde(default)]
    pub messages: Vec<Post>,
    /// The effects that were done to it, oldest first.
    #[serde(default)]
    pub applied: Vec<Applied>,
    /// The highest fencing number of a lease under which it was changed.
    #[serde(default)]
    pub fence: u64,
    /// Everything else.
    #[serde(flatten)]
    pub fields: Map<String, Value>,
}

fn open() -> String {
    "open".to_owned()
}

/// A comment or a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Post {
    /// The effect that wrote it; none for a person's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<EffectKey>,
    /// What it says.
    pub text: String,
    /// Whatever else the tracker says of it.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// An effect that was done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Applied {
    /// Its key.
    pub key: EffectKey,
    /// What was done.
    pub action: Action,
    /// The field that was set.
    #[serde(default)]
    pub set: Option<String>,
    /// The value that was given.
    #[serde(default)]
    pub text: Option<String>,
    /// The version that it made.
    pub version: Version,
}

/// A version: a number in files, any text from a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version(pub String);

impl Default for Version {
    fn default() -> Self {
        Self("0".to_owned())
    }
}

impl Serialize for Version {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.parse::<u64>() {
            Ok(number) if number.to_string() == self.0 => serializer.serialize_u64(number),
            _ => serializer.serialize_str(&self.0),
        }
    }
}

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(text) => Ok(Self(text)),
            Value::Number(number) => Ok(Self(number.to_string())),
            _ => Err(serde::de::Error::custom("a version is a text or a number")),
        }
    }
}

impl Issue {
    /// What stands in the issue under a key: its content as it is, not what was once applied.
    pub fn find(&self, key: &EffectKey) -> Option<Found> {
        let written = |posts: &[Post]| {
            let post = posts.iter().find(|post| post.key.as_ref() == Some(key));
            post.map(|post| post.text.clone())
        };
        let Some(applied) = self.applied.iter().find(|applied| applied.key == *key) else {
            // A tracker that keeps no list of effects shows at least what carries the key.
            let comment = written(&self.comments).map(|text| (Action::Comment, text));
            let (action, text) =
                comment.or_else(|| written(&self.messages).map(|text| (Action::Send, text)))?;
            return Some(Found {
                action,
                set: None,
                text: Some(text),
                version: self.version.0.clone(),
            });
        };
        let text = match applied.action {
            Action::Comment => written(&self.comments),
            Action::Send => written(&self.messages),
            Action::Label => {
                let label = self
                    .labels
                    .iter()
                    .find(|label| Some(*label) == applied.text.as_ref());
                label.cloned()
            }
            Action::Edit => {
                let field = applied.set.as_ref().and_then(|set| self.fields.get(set));
                field.and_then(Value::as_str).map(str::to_owned)
            }
            Action::Close => (self.state != "closed").then(|| self.state.clone()),
        };
        Some(Found {
            action: applied.action,
            set: applied.set.clone(),
            text,
            version: applied.version.0.clone(),
        })
    }

    /// Does what a request says and makes the next version.
    pub fn apply(&mut self, request: &EffectRequest, key: EffectKey, version: Version) {
        let text = request.text.clone().unwrap_or_default();
        let post = |text: String| Post {
            key: Some(key),
            text,
            more: Map::new(),
        };
        match request.action {
            Action::Comment => self.comments.push(post(text)),
            Action::Send => self.messages.push(post(text)),
            Action::Label => {
                if !self.labels.contains(&text) {
                    self.labels.push(text);
                }
            }
            Action::Edit => {
                let set = request.set.clone().unwrap_or_default();
                self.fields.insert(set, Value::String(text));
            }
            Action::Close => self.state = "closed".to_owned(),
        }
        self.applied.push(Applied {
            key,
            action: request.action,
            set: request.set.clone(),
            text: request.text.clone(),
            version: version.clone(),
        });
        self.version = version;
    }
}

/// A name as one piece of a path: letters, digits, `-` and `_` as they are, all else as `%XX`.
pub fn escape(name: &str) -> String {
    let mut escaped = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' => escaped.push(byte.into()),
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_never_leaves_its_place_in_a_path() {
        assert_eq!(escape("../a b/%"), "%2E%2E%2Fa%20b%2F%25");
        assert_eq!(escape("ABC-1_x"), "ABC-1_x");
    }

    #[test]
    fn what_is_not_known_of_an_issue_is_kept() {
        let text =
            r#"{"version":7,"title":"t","custom":{"a":[1]},"comments":[{"text":"c","by":"x"}]}"#;
        let issue: Issue = serde_json::from_str(text).unwrap();
        let again: Value = serde_json::to_value(&issue).unwrap();
        assert_eq!(again["custom"]["a"][0], 1);
        assert_eq!(again["comments"][0]["by"], "x");
        assert_eq!(
            (&again["version"], &again["state"]),
            (&7.into(), &"open".into())
        );
    }
}
