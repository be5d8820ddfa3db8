//! Where a unit's leaf sits in the fold's tree: under a key, never under a list position.
//!
//! An id that is a whole number is its own key, so that leaves sit in the order of their numbers and
//! dense numbers pack nodes full; any other id is spread evenly by a hash. Insertion and deletion
//! then move no other leaf. Ranges of keys are aligned to powers of the fan-in, which makes the
//! tree's shape a function of the set of keys alone. Must not know facts or reducers.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::canonical::Canonical;
use crate::id::UnitId;

/// Set in the key of an id that is no whole number, so that numbers and hashes never meet.
const HASHED: u128 = 1 << 127;

/// The place of a leaf: 128 bits, printed as a decimal number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeafKey(u128);

impl LeafKey {
    /// The key of an id: the number that it writes (0 to 2^64 - 1, no leading zero), else a hash.
    pub fn of_id(id: &UnitId) -> Self {
        let text = id.as_str();
        let plain = !text.is_empty()
            && text.bytes().all(|byte| byte.is_ascii_digit())
            && (text == "0" || !text.starts_with('0'));
        match text.parse::<u64>() {
            Ok(number) if plain => Self(u128::from(number)),
            _ => {
                let mut canonical = Canonical::new("operator 2026 leaf key v1");
                canonical.text(text);
                let digest = canonical.digest();
                let mut half = [0; 16];
                half.copy_from_slice(&digest[..16]);
                Self(u128::from_le_bytes(half) | HASHED)
            }
        }
    }

    /// The key of a position in an append-only source.
    pub const fn of_ordinal(ordinal: u32) -> Self {
        Self(ordinal as u128)
    }

    /// Wraps a number that is already a key.
    pub const fn from_number(number: u128) -> Self {
        Self(number)
    }

    /// The key as a number.
    pub const fn get(self) -> u128 {
        self.0
    }
}

impl fmt::Display for LeafKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for LeafKey {
    // As text: JSON readers lose digits of numbers past 2^53.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for LeafKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(serde::de::Error::custom)
    }
}

/// A unit with its place; ordered by place. Stored as the pair `[key, id]`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "(LeafKey, UnitId)", into = "(LeafKey, UnitId)")]
pub struct UnitRef {
    /// Its place.
    pub key: LeafKey,
    /// Its id.
    pub id: UnitId,
}

impl From<(LeafKey, UnitId)> for UnitRef {
    fn from((key, id): (LeafKey, UnitId)) -> Self {
        Self { key, id }
    }
}

impl From<UnitRef> for (LeafKey, UnitId) {
    fn from(unit: UnitRef) -> Self {
        (unit.key, unit.id)
    }
}

/// An aligned range of keys: `fan_in ^ height` keys from `start`, a multiple of that width.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRange {
    /// First key of the range.
    pub start: LeafKey,
    /// Width as a power of the fan-in; at least 1.
    pub height: u32,
}

impl KeyRange {
    /// The smallest aligned range that holds both keys.
    ///
    /// # Panics
    /// If `fan_in < 2`: no power of it would ever be wide enough.
    pub fn covering(first: LeafKey, last: LeafKey, fan_in: u32) -> Self {
        assert!(fan_in >= 2, "a range widens only with fan-in of 2 or more");
        let mut height = 1;
        while cut(first.0, fan_in, height) != cut(last.0, fan_in, height) {
            height += 1;
        }
        let start = match width(fan_in, height) {
            Some(width) => first.0 - first.0 % width,
            None => 0,
        };
        Self {
            start: LeafKey(start),
            height,
        }
    }

    /// Whether the key lies in the range.
    pub fn holds(&self, key: LeafKey, fan_in: u32) -> bool {
        cut(key.0, fan_in, self.height) == cut(self.start.0, fan_in, self.height)
    }

    /// Which of the range's `fan_in` equal parts holds the key.
    pub fn part(&self, key: LeafKey, fan_in: u32) -> u128 {
        cut(key.0, fan_in, self.height - 1)
    }
}

/// The key without its `height` lowest digits in base `fan_in`.
fn cut(key: u128, fan_in: u32, height: u32) -> u128 {
    width(fan_in, height).map_or(0, |width| key / width)
}

/// `fan_in ^ height`; none where that exceeds all keys.
fn width(fan_in: u32, height: u32) -> Option<u128> {
    u128::from(fan_in).checked_pow(height)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> LeafKey {
        LeafKey::of_id(&UnitId::new(text))
    }

    #[test]
    fn a_number_is_its_own_key_and_everything_else_is_hashed_past_all_numbers() {
        assert_eq!(key("0").get(), 0);
        assert_eq!(key("4821").get(), 4821);
        assert_eq!(key("18446744073709551615").get(), u128::from(u64::MAX));
        for text in [
            "",
            "007",
            "+7",
            "-7",
            "7 ",
            "#7",
            "18446744073709551616",
            "seven",
            "٧",
        ] {
            assert!(key(text).get() >= HASHED, "{text:?}");
        }
        assert_ne!(key("007"), key("07"));
    }

    #[test]
    fn a_range_is_the_smallest_aligned_one() {
        let at = |number: u128| LeafKey(number);
        let range = KeyRange::covering(at(8), at(15), 8);
        assert_eq!((range.start.get(), range.height), (8, 1));
        let range = KeyRange::covering(at(7), at(8), 8);
        assert_eq!((range.start.get(), range.height), (0, 2));
        assert!(range.holds(at(63), 8) && !range.holds(at(64), 8));
        assert_eq!((range.part(at(7), 8), range.part(at(8), 8)), (0, 1));
        let whole = KeyRange::covering(at(0), at(u128::MAX), 8);
        assert_eq!(whole.start.get(), 0);
        assert!(whole.holds(at(u128::MAX / 2), 8));
        assert_ne!(whole.part(at(0), 8), whole.part(at(u128::MAX), 8));
    }
}
