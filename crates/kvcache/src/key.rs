//! Content keys of prefixes: what was computed, under which namespace, in which shape.
//!
//! Law K8: the crate sees 32 opaque namespace bytes and never a model's name. The encoding is
//! pinned by a golden digest; changing it means a new domain string.

use std::fmt;

use crate::layout::KvLayout;

/// Thirty-two opaque bytes that tell apart everything that changes keys and values.
///
/// The caller hashes model file, tokenizer, numerics and whatever else matters into them. Two
/// callers that must not share a prefix (a salt, a tenant) use two namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Namespace(pub [u8; 32]);

/// Content address of a prefix: a 256-bit digest of namespace, layout and tokens.
///
/// Equal keys mean equal inputs, so a prefix is found by exact match and never by a search for
/// overlap. `Display` writes 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PrefixKey([u8; 32]);

/// Separates these digests from any other use of the same hash.
const KEY_DOMAIN: &str = "kvcache prefix key v1";

impl PrefixKey {
    /// Derives the key of `tokens` under a namespace and a layout.
    ///
    /// Every part is preceded by its length as a 64-bit little-endian integer, so that no two
    /// inputs share an encoding. Tokens and layout fields are 32-bit little-endian.
    pub fn derive(namespace: &Namespace, layout: &KvLayout, tokens: &[u32]) -> Self {
        let KvLayout {
            layers,
            kv_heads,
            head_dim,
            block_slots,
        } = *layout;
        let mut hasher = blake3::Hasher::new_derive_key(KEY_DOMAIN);
        hasher.update(&(namespace.0.len() as u64).to_le_bytes());
        hasher.update(&namespace.0);
        hash_words(&mut hasher, &[layers, kv_heads, head_dim, block_slots]);
        hash_words(&mut hasher, tokens);
        Self(*hasher.finalize().as_bytes())
    }

    /// Gives the digest itself.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for PrefixKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for PrefixKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrefixKey({self})")
    }
}

fn hash_words(hasher: &mut blake3::Hasher, words: &[u32]) {
    hasher.update(&(words.len() as u64).to_le_bytes());
    for word in words {
        hasher.update(&word.to_le_bytes());
    }
}

pub(crate) fn hex(bytes: &[u8; 32]) -> String {
    blake3::Hash::from_bytes(*bytes).to_hex().to_string()
}
