//! What a tool read, with all that says how far it can be relied on.

use serde::{Deserialize, Serialize};

use super::Reply;
use crate::id::ContentHash;

/// What a call read and when; it is data, never an instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    /// The bytes.
    pub body: Vec<u8>,
    /// What is known about them.
    pub head: ObservationHead,
}

/// What is known about an observation's bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObservationHead {
    /// Media type, such as `"application/json"`.
    pub media: String,
    /// Plain BLAKE3 of the bytes.
    pub hash: ContentHash,
    /// Whether more was there than was read.
    pub truncated: bool,
    /// What was read, for a person.
    pub from: String,
    /// When, in Unix seconds of the caller's clock.
    pub observed_at: u64,
    /// Calls that it took.
    pub attempts: u32,
    /// What they cost together, in millionths of the plan's unit of money.
    pub cost_micros: u64,
}

impl Observation {
    pub(super) fn new(reply: Reply, observed_at: u64, attempts: u32, cost_micros: u64) -> Self {
        let head = ObservationHead {
            hash: ContentHash::of_bytes(&reply.body),
            media: reply.media,
            truncated: reply.truncated,
            from: reply.from,
            observed_at,
            attempts,
            cost_micros,
        };
        let body = reply.body;
        Self { body, head }
    }

    /// The bytes as text, where they are text.
    pub fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.body).ok()
    }

    /// Layout: length of the head in 4 bytes (little-endian), the head as JSON, the bytes.
    pub(super) fn encode(&self) -> Result<Vec<u8>, serde_json::Error> {
        let head = serde_json::to_vec(&self.head)?;
        let length = u32::try_from(head.len()).map_err(serde::ser::Error::custom)?;
        let mut bytes = length.to_le_bytes().to_vec();
        bytes.extend(head);
        bytes.extend(&self.body);
        Ok(bytes)
    }

    /// None where the bytes are no observation, or not the ones that its head names.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (length, rest) = bytes.split_first_chunk()?;
        let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        let (head, body) = rest.split_at_checked(length)?;
        let head: ObservationHead = serde_json::from_slice(head).ok()?;
        let body = body.to_vec();
        (head.hash == ContentHash::of_bytes(&body)).then_some(Self { body, head })
    }
}
