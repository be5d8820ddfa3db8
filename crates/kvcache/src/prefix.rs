//! A sealed run of keys and values that many sequences read and nobody writes.
//!
//! Law K5: no `&mut` method exists, the key derives again from tokens and namespace, and the
//! checksum is the same at any later time. This file does not know where the floats came from.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::CacheError;
use crate::key::{Namespace, PrefixKey};
use crate::layout::{KvLayout, Side};

/// A sealed, contiguous run of keys and values, shared by every sequence forked from it.
///
/// Cloning copies a pointer. The floats live until the last clone goes; the cache that sealed the
/// prefix keeps one clone until it is evicted.
///
/// Shapes: f32 `[layers, 2, kv_heads, tokens, head_dim]`, so that one head of one layer is one
/// contiguous matrix whatever the length.
#[derive(Clone)]
pub struct Prefix(Arc<PrefixInner>);

struct PrefixInner {
    key: PrefixKey,
    namespace: Namespace,
    layout: KvLayout,
    tokens: Box<[u32]>,
    floats: Box<[f32]>, // [layers, 2, kv_heads, tokens, head_dim]
    checksum: [u8; 32],
    forks: AtomicU64,
}

/// Separates checksums of floats from keys over tokens.
const CHECKSUM_DOMAIN: &str = "kvcache prefix checksum v1";

impl Prefix {
    pub(crate) fn new(
        namespace: &Namespace,
        layout: KvLayout,
        tokens: &[u32],
        floats: Box<[f32]>,
    ) -> Self {
        assert_eq!(
            floats.len() as u64,
            layout.slot_floats() * tokens.len() as u64,
            "a prefix holds one slot a token"
        );
        let checksum = digest(&floats);
        Self(Arc::new(PrefixInner {
            key: PrefixKey::derive(namespace, &layout, tokens),
            namespace: *namespace,
            layout,
            tokens: tokens.into(),
            floats,
            checksum,
            forks: AtomicU64::new(0),
        }))
    }

    /// Gives the content key.
    pub fn key(&self) -> PrefixKey {
        self.0.key
    }

    /// Gives the length in tokens.
    pub fn len(&self) -> u32 {
        self.0.tokens.len() as u32
    }

    /// Says whether the prefix holds no token.
    pub fn is_empty(&self) -> bool {
        self.0.tokens.is_empty()
    }

    /// Gives the tokens that were computed, in order.
    pub fn tokens(&self) -> &[u32] {
        &self.0.tokens
    }

    /// Gives the shape that the floats were sealed in.
    pub fn layout(&self) -> &KvLayout {
        &self.0.layout
    }

    /// Gives one head's keys in one layer.
    ///
    /// Shapes: f32 `[tokens, head_dim]`, contiguous.
    ///
    /// # Panics
    /// If the layer or the head lies outside the layout.
    pub fn keys(&self, layer: u32, kv_head: u32) -> &[f32] {
        self.matrix(layer, Side::Key, kv_head)
    }

    /// Gives one head's values in one layer.
    ///
    /// Shapes: f32 `[tokens, head_dim]`, contiguous.
    ///
    /// # Panics
    /// If the layer or the head lies outside the layout.
    pub fn values(&self, layer: u32, kv_head: u32) -> &[f32] {
        self.matrix(layer, Side::Value, kv_head)
    }

    /// Gives the bytes of the floats: what all forks together save but one.
    pub fn bytes(&self) -> u64 {
        self.0.layout.slot_bytes() * u64::from(self.len())
    }

    /// Gives the checksum of the floats taken when the prefix was sealed.
    pub fn checksum(&self) -> [u8; 32] {
        self.0.checksum
    }

    /// Recomputes key and checksum and compares them with those of sealing.
    ///
    /// Cost: one pass over the floats, no allocation.
    ///
    /// # Errors
    /// [`CacheError::PrefixKeyMismatch`] or [`CacheError::PrefixChecksumMismatch`] when memory no
    /// longer holds what was sealed.
    pub fn verify(&self) -> Result<(), CacheError> {
        let inner = &self.0;
        let key = PrefixKey::derive(&inner.namespace, &inner.layout, &inner.tokens);
        if key != inner.key {
            return Err(CacheError::PrefixKeyMismatch {
                expected: inner.key,
                found: key,
            });
        }
        let checksum = digest(&inner.floats);
        if checksum != inner.checksum {
            return Err(CacheError::PrefixChecksumMismatch {
                key,
                expected: inner.checksum,
                found: checksum,
            });
        }
        Ok(())
    }

    /// Gives the number of live sequences that hold this prefix.
    pub fn forks(&self) -> u64 {
        self.0.forks.load(Ordering::Relaxed)
    }

    fn matrix(&self, layer: u32, side: Side, kv_head: u32) -> &[f32] {
        let layout = &self.0.layout;
        let start = layout.run_start(layer, side, kv_head, self.len());
        &self.0.floats[start..start + layout.run_floats(self.len())]
    }
}

impl fmt::Debug for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prefix")
            .field("key", &self.0.key)
            .field("len", &self.len())
            .field("layout", &self.0.layout)
            .field("forks", &self.forks())
            .finish_non_exhaustive()
    }
}

/// One sequence's hold on a prefix; the count of live forks is right however the hold ends.
#[derive(Debug)]
pub(crate) struct PrefixFork(Prefix);

impl PrefixFork {
    pub(crate) fn of(prefix: &Prefix) -> Self {
        prefix.0.forks.fetch_add(1, Ordering::Relaxed);
        Self(prefix.clone())
    }

    pub(crate) fn prefix(&self) -> &Prefix {
        &self.0
    }
}

impl Drop for PrefixFork {
    fn drop(&mut self) {
        self.0.0.forks.fetch_sub(1, Ordering::Relaxed);
    }
}

fn digest(floats: &[f32]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key(CHECKSUM_DOMAIN);
    hasher.update(&(floats.len() as u64).to_le_bytes());
    // Bit patterns, not values: two zeros or two NaNs that differ in bits must not pass as equal.
    let mut bytes = [0u8; 16 * 1024];
    for piece in floats.chunks(bytes.len() / 4) {
        let filled = &mut bytes[..piece.len() * 4];
        for (target, source) in filled.chunks_exact_mut(4).zip(piece) {
            target.copy_from_slice(&source.to_le_bytes());
        }
        hasher.update(filled);
    }
    *hasher.finalize().as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed() -> Prefix {
        let layout = KvLayout::new(2, 1, 2, 4).unwrap();
        let floats = (0..24).map(|n| n as f32).collect();
        Prefix::new(&Namespace([3; 32]), layout, &[5, 6, 7], floats)
    }

    fn altered(change: impl Fn(&mut PrefixInner)) -> Prefix {
        let mut prefix = sealed();
        change(Arc::get_mut(&mut prefix.0).unwrap());
        prefix
    }

    #[test]
    fn verify_finds_one_flipped_bit_of_a_float() {
        assert_eq!(sealed().verify(), Ok(()));
        for index in 0..24 {
            let prefix = altered(|inner| {
                let bits = inner.floats[index].to_bits() ^ 1;
                inner.floats[index] = f32::from_bits(bits);
            });
            let found = prefix.verify();
            assert!(
                matches!(found, Err(CacheError::PrefixChecksumMismatch { .. })),
                "{index}"
            );
        }
    }

    #[test]
    fn verify_finds_a_changed_token_and_namespace() {
        let token = altered(|inner| inner.tokens[1] = 60);
        assert!(matches!(
            token.verify(),
            Err(CacheError::PrefixKeyMismatch { .. })
        ));
        let namespace = altered(|inner| inner.namespace.0[31] ^= 1);
        assert!(matches!(
            namespace.verify(),
            Err(CacheError::PrefixKeyMismatch { .. })
        ));
    }

    #[test]
    fn checksum_tells_bit_patterns_apart_and_crosses_the_buffer() {
        assert_ne!(digest(&[0.0]), digest(&[-0.0]));
        let mut long: Vec<f32> = (0..10_000).map(|n| n as f32).collect();
        let before = digest(&long);
        long[9_999] = 0.5;
        assert_ne!(digest(&long), before);
    }

    #[test]
    fn prefixes_cross_threads() {
        fn crosses<T: Send + Sync>() {}
        crosses::<Prefix>();
    }
}
