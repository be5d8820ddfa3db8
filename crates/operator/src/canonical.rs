//! The only byte encoding that is ever hashed.
//!
//! Every value is written as one tag byte and a payload. Unsigned numbers, and the lengths that
//! text, bytes, lists and maps carry, are LEB128: seven bits a byte, low ones first, in the fewest
//! bytes. Signed numbers are zigzagged (0, -1, 1, -2, ...) and then written likewise. The domain separates kinds of hashes: it is the context
//! of BLAKE3's key derivation, so no two domains share a hash even for equal bytes. There are no
//! floats here: a decimal number of a record is written as the text it prints as.

use std::cell::RefCell;

use blake3::hazmat::{ContextKey, HasherExt, hash_derive_key_context};
use serde_json::{Map, Value};

use crate::id::ContentHash;

const TAG_U64: u8 = 1;
const TAG_I64: u8 = 2;
const TAG_TEXT: u8 = 3;
const TAG_BYTES: u8 = 4;
const TAG_LIST: u8 = 5;
const TAG_MAP: u8 = 6;
const TAG_NONE: u8 = 7;
const TAG_SOME: u8 = 8;
const TAG_BOOL: u8 = 9;
const TAG_DECIMAL: u8 = 10;
const TAG_I128: u8 = 11;

/// Bytes that a buffer starts with; one that had to grow is not kept.
const SPARE_BYTES: usize = 2_048;
/// Buffers that a thread keeps.
const SPARE_MAX: usize = 4;

thread_local! {
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Writes values in the canonical encoding and hashes them under one domain.
///
/// Lists and options are prefixes: write [`Canonical::list`] and then that many values, or
/// [`Canonical::some`] and then the value. Source: BLAKE3 key derivation (`blake3::derive_key`).
#[derive(Debug, Clone)]
pub struct Canonical {
    domain: &'static str,
    // One buffer hashed once: a hasher fed tag by tag costs several times the hash itself.
    bytes: Vec<u8>,
}

impl Canonical {
    /// Starts an encoding in a domain, a fixed text such as `"operator 2026 record v1"`.
    pub fn new(domain: &'static str) -> Self {
        let bytes = SPARE.with_borrow_mut(Vec::pop);
        Self {
            domain,
            bytes: bytes.unwrap_or_else(|| Vec::with_capacity(SPARE_BYTES)),
        }
    }

    /// Writes an unsigned integer.
    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.put_number(TAG_U64, value)
    }

    /// Writes an unsigned integer of 32 bits, encoded as [`Canonical::u64`] encodes it.
    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.u64(u64::from(value))
    }

    /// Writes an unsigned integer of 128 bits, encoded as [`Canonical::u64`] encodes it.
    pub fn u128(&mut self, value: u128) -> &mut Self {
        self.put_wide(TAG_U64, value)
    }

    /// Writes a signed integer.
    pub fn i64(&mut self, value: i64) -> &mut Self {
        self.put_number(TAG_I64, (value << 1 ^ value >> 63) as u64)
    }

    /// Writes a signed integer of 128 bits.
    pub fn i128(&mut self, value: i128) -> &mut Self {
        self.put_wide(TAG_I128, (value << 1 ^ value >> 127) as u128)
    }

    /// Writes a truth value.
    pub fn bool(&mut self, value: bool) -> &mut Self {
        self.put(TAG_BOOL, &[u8::from(value)])
    }

    /// Writes UTF-8 text with its length in bytes.
    pub fn text(&mut self, value: &str) -> &mut Self {
        self.put_sized(TAG_TEXT, value.as_bytes())
    }

    /// Writes bytes with their length.
    pub fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.put_sized(TAG_BYTES, value)
    }

    /// Writes hashes as the bytes that they make up together.
    pub fn hashes<'h>(
        &mut self,
        hashes: impl ExactSizeIterator<Item = &'h ContentHash>,
    ) -> &mut Self {
        self.put_number(TAG_BYTES, hashes.len() as u64 * 32);
        for hash in hashes {
            self.bytes.extend_from_slice(hash.as_bytes());
        }
        self
    }

    /// Opens a list of `length` values; the caller writes exactly so many next.
    pub fn list(&mut self, length: usize) -> &mut Self {
        self.put_number(TAG_LIST, length as u64)
    }

    /// Opens a map of `length` entries; the caller writes key and value of each in key order.
    pub fn map(&mut self, length: usize) -> &mut Self {
        self.put_number(TAG_MAP, length as u64)
    }

    /// Writes an absent value (also JSON's null).
    pub fn none(&mut self) -> &mut Self {
        self.put(TAG_NONE, &[])
    }

    /// Opens a present value; the caller writes it next.
    pub fn some(&mut self) -> &mut Self {
        self.put(TAG_SOME, &[])
    }

    /// Writes an optional text.
    pub fn optional_text(&mut self, value: Option<&str>) -> &mut Self {
        match value {
            Some(text) => self.some().text(text),
            None => self.none(),
        }
    }

    /// Writes a decoded JSON value; the order of an object's keys does not matter.
    pub fn value(&mut self, value: &Value) -> &mut Self {
        match value {
            Value::Null => self.none(),
            Value::Bool(flag) => self.bool(*flag),
            Value::Number(number) => match (number.as_u64(), number.as_i64()) {
                (Some(unsigned), _) => self.u64(unsigned),
                (None, Some(signed)) => self.i64(signed),
                (None, None) => self.put_sized(TAG_DECIMAL, number.to_string().as_bytes()),
            },
            Value::String(text) => self.text(text),
            Value::Array(items) => {
                self.list(items.len());
                for item in items {
                    self.value(item);
                }
                self
            }
            Value::Object(fields) => self.fields(fields),
        }
    }

    /// Writes the fields of a JSON object, sorted by key.
    pub fn fields(&mut self, fields: &Map<String, Value>) -> &mut Self {
        let mut sorted: Vec<(&String, &Value)> = fields.iter().collect();
        sorted.sort_unstable_by_key(|(key, _)| *key);
        self.map(sorted.len());
        for (key, value) in sorted {
            self.text(key).value(value);
        }
        self
    }

    /// The hash of all that was written.
    pub fn digest(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_from_context_key(&context_key(self.domain));
        hasher.update(&self.bytes);
        *hasher.finalize().as_bytes()
    }

    fn put(&mut self, tag: u8, payload: &[u8]) -> &mut Self {
        self.bytes.push(tag);
        self.bytes.extend_from_slice(payload);
        self
    }

    fn put_sized(&mut self, tag: u8, payload: &[u8]) -> &mut Self {
        self.put_number(tag, payload.len() as u64);
        self.bytes.extend_from_slice(payload);
        self
    }

    fn put_number(&mut self, tag: u8, mut number: u64) -> &mut Self {
        self.bytes.push(tag);
        while number >= 0x80 {
            self.bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.bytes.push(number as u8);
        self
    }

    fn put_wide(&mut self, tag: u8, mut number: u128) -> &mut Self {
        self.bytes.push(tag);
        while number >= 0x80 {
            self.bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.bytes.push(number as u8);
        self
    }
}

impl Drop for Canonical {
    fn drop(&mut self) {
        // Buffers of a usual size are used again: a fold hashes every leaf and node twice.
        if self.bytes.capacity() == SPARE_BYTES {
            let mut bytes = std::mem::take(&mut self.bytes);
            bytes.clear();
            // Nothing to return it to where the thread is ending.
            let _ = SPARE.try_with(|spare| {
                let mut spare = spare.borrow_mut();
                if spare.len() < SPARE_MAX {
                    spare.push(bytes);
                }
            });
        }
    }
}

/// The key that BLAKE3 derives from a domain; kept, for it costs as much as hashing a small fact.
fn context_key(domain: &'static str) -> ContextKey {
    thread_local! {
        static KEYS: RefCell<Vec<(&'static str, ContextKey)>> = const { RefCell::new(Vec::new()) };
    }
    KEYS.with_borrow_mut(|keys| {
        let known = keys.iter().find(|(name, _)| std::ptr::eq(*name, domain));
        if let Some((_, key)) = known {
            return *key;
        }
        let key = hash_derive_key_context(domain);
        keys.push((domain, key));
        key
    })
}
