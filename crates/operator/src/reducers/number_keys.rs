//! Maps under whole numbers, stored as JSON.
//!
//! A JSON object's keys are text. Inside a tagged enum or a flattened field they come back as that
//! text, which serde does not take for a number; so the keys are written and parsed here. Every
//! map of a state whose keys are not text is stored `with` this module.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Writes the map as an object whose keys are the numbers' digits.
pub fn serialize<K, V, S>(map: &BTreeMap<K, V>, serializer: S) -> Result<S::Ok, S::Error>
where
    K: Display,
    V: Serialize,
    S: Serializer,
{
    serializer.collect_map(map.iter().map(|(key, value)| (key.to_string(), value)))
}

/// Reads what [`serialize`] writes, and nothing else: a key has one spelling.
pub fn deserialize<'de, K, V, D>(deserializer: D) -> Result<BTreeMap<K, V>, D::Error>
where
    K: Display + FromStr + Ord,
    V: Deserialize<'de>,
    D: Deserializer<'de>,
{
    let stored = BTreeMap::<String, V>::deserialize(deserializer)?;
    let number = |text: String| match text.parse::<K>() {
        Ok(key) if key.to_string() == text => Ok(key),
        _ => Err(D::Error::custom(format!("{text:?} is no whole number"))),
    };
    let entries = stored
        .into_iter()
        .map(|(key, value)| Ok((number(key)?, value)));
    entries.collect()
}
