//! The bytes of one value: checksum, day, payload.
//!
//! Layout: 32 bytes checksum, 4 bytes day (little-endian, days since the Unix epoch), payload. The
//! checksum covers the table's name, the key, the day and the payload, so a value that was torn or
//! moved elsewhere does not match.

use super::{Kind, StoredAnswers};
use crate::canonical::Canonical;

const SUM_BYTES: usize = 32;
const DAY_BYTES: usize = 4;
/// Bytes in front of the payload.
const HEAD_BYTES: usize = SUM_BYTES + DAY_BYTES;

/// One of the store's tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Table {
    Answers,
    Facts,
    Nodes,
    Texts,
    Observations,
}

impl Table {
    /// In the order of the discriminants, so that `table as usize` is the place in it.
    pub(super) const ALL: [Self; 5] = [
        Self::Answers,
        Self::Facts,
        Self::Nodes,
        Self::Texts,
        Self::Observations,
    ];

    /// The name in the file; a new layout or meaning of values takes a new name.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Answers => "answers v2",
            Self::Facts => "facts v1",
            Self::Nodes => "nodes v1",
            Self::Texts => "texts v1",
            Self::Observations => "observations v1",
        }
    }
}

impl From<Kind> for Table {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Fact => Self::Facts,
            Kind::Node => Self::Nodes,
            Kind::Text => Self::Texts,
            Kind::Observation => Self::Observations,
        }
    }
}

/// A value whose checksum matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry<'a> {
    pub(super) day: u32,
    pub(super) payload: &'a [u8],
}

/// What is wrong with a value.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Flaw {
    #[error("it is {0} bytes; a value has at least {HEAD_BYTES}")]
    Short(usize),
    #[error("its checksum does not match: it was torn, altered, or moved from another key")]
    Checksum,
    #[error("its checksum matches, but it holds no answers: {0}")]
    NoAnswers(String),
}

/// Encodes a value.
pub(super) fn seal(table: Table, key: &[u8; 32], day: u32, payload: &[u8]) -> Vec<u8> {
    let mut value = Vec::with_capacity(HEAD_BYTES + payload.len());
    value.extend(checksum(table, key, day, payload));
    value.extend(day.to_le_bytes());
    value.extend(payload);
    value
}

/// Decodes a value and checks that it belongs under this key.
pub(super) fn open<'a>(table: Table, key: &[u8; 32], value: &'a [u8]) -> Result<Entry<'a>, Flaw> {
    let (sum, day, payload) = split(value).ok_or(Flaw::Short(value.len()))?;
    if *sum != checksum(table, key, day, payload) {
        return Err(Flaw::Checksum);
    }
    Ok(Entry { day, payload })
}

/// As [`open`], and checks that a payload which the store itself encodes can be decoded.
pub(super) fn check<'a>(table: Table, key: &[u8; 32], value: &'a [u8]) -> Result<Entry<'a>, Flaw> {
    let entry = open(table, key, value)?;
    if table == Table::Answers {
        decode_answers(entry.payload)?;
    }
    Ok(entry)
}

/// Day and payload as they claim to be, without checking anything.
pub(super) fn peek(value: &[u8]) -> Option<Entry<'_>> {
    let (_, day, payload) = split(value)?;
    Some(Entry { day, payload })
}

pub(super) fn encode_answers(stored: &StoredAnswers) -> Result<Vec<u8>, serde_json::Error> {
    serde_json::to_vec(stored)
}

pub(super) fn decode_answers(payload: &[u8]) -> Result<StoredAnswers, Flaw> {
    serde_json::from_slice(payload).map_err(|error| Flaw::NoAnswers(error.to_string()))
}

/// Whether an entry is older than so many days; one from the future is not.
pub(super) fn is_expired(day: u32, today: u32, days: u32) -> bool {
    today.saturating_sub(day) > days
}

fn split(value: &[u8]) -> Option<(&[u8; SUM_BYTES], u32, &[u8])> {
    let (sum, rest) = value.split_first_chunk()?;
    let (day, payload) = rest.split_first_chunk::<DAY_BYTES>()?;
    Some((sum, u32::from_le_bytes(*day), payload))
}

fn checksum(table: Table, key: &[u8; 32], day: u32, payload: &[u8]) -> [u8; 32] {
    let mut canonical = Canonical::new("operator 2026 store entry v1");
    canonical
        .text(table.name())
        .bytes(key)
        .u32(day)
        .bytes(payload);
    canonical.digest()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_flipped_or_moved_value_does_not_open() {
        let key = [1; 32];
        for table in Table::ALL {
            let value = seal(table, &key, 20_000, b"payload");
            let entry = open(table, &key, &value).unwrap();
            assert_eq!((entry.day, entry.payload), (20_000, &b"payload"[..]));
            assert_eq!(open(table, &[2; 32], &value), Err(Flaw::Checksum));
            for other in Table::ALL.into_iter().filter(|other| *other != table) {
                assert_eq!(open(other, &key, &value), Err(Flaw::Checksum));
            }
            for cut in 0..value.len() {
                let flaw = if cut < HEAD_BYTES {
                    Flaw::Short(cut)
                } else {
                    Flaw::Checksum
                };
                assert_eq!(open(table, &key, &value[..cut]), Err(flaw), "cut at {cut}");
                let mut flipped = value.clone();
                flipped[cut] ^= 1;
                let opened = open(table, &key, &flipped);
                assert_eq!(opened, Err(Flaw::Checksum), "flipped at {cut}");
            }
        }
    }

    #[test]
    fn a_sound_value_of_another_shape_is_no_answer() {
        let key = [1; 32];
        let value = seal(Table::Answers, &key, 1, b"{\"answers\":[]}");
        assert!(open(Table::Answers, &key, &value).is_ok());
        assert!(matches!(
            check(Table::Answers, &key, &value),
            Err(Flaw::NoAnswers(_))
        ));
        let value = seal(Table::Facts, &key, 1, b"any bytes");
        assert!(check(Table::Facts, &key, &value).is_ok());
    }

    #[test]
    fn age_is_counted_in_whole_days_and_the_future_is_young() {
        assert!(!is_expired(100, 100, 0));
        assert!(is_expired(99, 100, 0));
        assert!(!is_expired(70, 100, 30));
        assert!(is_expired(69, 100, 30));
        assert!(!is_expired(101, 100, 0));
    }
}
