//! The order of ids: whole numbers by size, before texts by their bytes.

use std::cmp::Ordering;

/// Compares two ids.
pub(crate) fn by_id(left: &str, right: &str) -> Ordering {
    let number = |id: &str| id.parse::<u64>().ok();
    match (number(left), number(right)) {
        // Different texts may spell one number.
        (Some(a), Some(b)) => a.cmp(&b).then_with(|| left.cmp(right)),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => left.cmp(right),
    }
}
