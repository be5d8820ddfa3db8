//! Says where two values of one type differ, in words that a reader can look up.

use serde::Serialize;
use serde_json::Value;

/// Longest value that is shown, in characters.
const SHOWN_CHARS: usize = 120;

/// The first place where two values differ, as `at PLACE it is A, B is right`; none where they are
/// equal as data.
pub(super) fn difference<A, B>(found: &A, right: &B) -> Option<String>
where
    A: Serialize + ?Sized,
    B: Serialize + ?Sized,
{
    let found = serde_json::to_value(found).unwrap_or_default();
    let right = serde_json::to_value(right).unwrap_or_default();
    let mut path = Vec::new();
    let (found, right) = first(Some(&found), Some(&right), &mut path)?;
    let at = match path.is_empty() {
        true => String::new(),
        false => format!("at {} it ", path.join(".")),
    };
    let is = match found {
        None => String::from("is missing"),
        Some(value) => format!("is {}", shown(value)),
    };
    Some(match right {
        None => format!("{at}{is}, nothing is right"),
        Some(value) => format!("{at}{is}, {} is right", shown(value)),
    })
}

type Sides<'a> = (Option<&'a Value>, Option<&'a Value>);

fn first<'a>(
    found: Option<&'a Value>,
    right: Option<&'a Value>,
    path: &mut Vec<String>,
) -> Option<Sides<'a>> {
    match (found, right) {
        (Some(found), Some(right)) if found == right => None,
        (Some(Value::Object(a)), Some(Value::Object(b))) => {
            let keys = b.keys().chain(a.keys().filter(|key| !b.contains_key(*key)));
            keys.into_iter()
                .find_map(|key| below(a.get(key), b.get(key), key.clone(), path))
        }
        (Some(Value::Array(a)), Some(Value::Array(b))) => (0..a.len().max(b.len()))
            .find_map(|place| below(a.get(place), b.get(place), place.to_string(), path)),
        (found, right) => Some((found, right)),
    }
}

fn below<'a>(
    found: Option<&'a Value>,
    right: Option<&'a Value>,
    step: String,
    path: &mut Vec<String>,
) -> Option<Sides<'a>> {
    path.push(step);
    let differs = first(found, right, path);
    if differs.is_none() {
        path.pop();
    }
    differs
}

/// A value as JSON, cut where it is long.
pub(super) fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(SHOWN_CHARS) {
        None => text,
        Some((end, _)) => format!("{}...", &text[..end]),
    }
}
