//! What the world or the caller can do wrong, as one enum.
//!
//! A broken law inside the crate, or a use that only a bug can produce (committing what was never
//! reserved, writing a committed slot), panics instead and is not listed here.

use crate::key::PrefixKey;

/// A cache operation that was refused; the cache is unchanged unless the operation says otherwise.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// A dimension of the layout is zero or the byte counts overflow.
    #[error(
        "layout of {layers} layers, {kv_heads} kv heads, head dim {head_dim}, {block_slots} slots \
         a block is unusable: every dimension must be non-zero and a block must fit in memory"
    )]
    LayoutInvalid {
        /// Layers asked for.
        layers: u32,
        /// Key/value heads asked for.
        kv_heads: u32,
        /// Floats per head asked for.
        head_dim: u32,
        /// Slots per block asked for.
        block_slots: u32,
    },
    /// The pool would hold no block, or more slots than a slot id can name.
    #[error(
        "a pool of {blocks} blocks of {block_slots} slots is unusable: the slots must number \
         from 1 to {slots_max}"
    )]
    CapacityInvalid {
        /// Blocks asked for.
        blocks: u32,
        /// Slots per block of the layout.
        block_slots: u32,
        /// Most slots that ids can name.
        slots_max: u32,
    },
    /// Admission or a fork needs more blocks than can be promised.
    #[error(
        "pool has {free} of {capacity} blocks neither used nor promised, {requested} requested; \
         release sequences or build the cache with more blocks"
    )]
    PoolExhausted {
        /// Blocks that the sequence needs in the worst case.
        requested: u32,
        /// Blocks neither used nor promised.
        free: u32,
        /// Blocks of the pool.
        capacity: u32,
    },
    /// A reservation would pass the number of slots promised at admission.
    #[error(
        "sequence was promised {slots_max} slots and has reserved {reserved}, {requested} more \
         requested; admit it with a larger maximum"
    )]
    PromiseExceeded {
        /// Slots requested now.
        requested: u32,
        /// Slots reserved before.
        reserved: u32,
        /// Slots promised at admission.
        slots_max: u32,
    },
    /// A fork asked for fewer slots in all than it inherits.
    #[error("fork inherits {inherited} slots but asks for {slots_max} in all")]
    PromiseTooSmall {
        /// Committed slots of the sequence being forked.
        inherited: u32,
        /// Slots that the fork may hold in all.
        slots_max: u32,
    },
    /// A sequence with reserved but uncommitted slots cannot be forked.
    #[error(
        "sequence has reserved {reserved} slots and committed {committed}; commit before forking, \
         since a shared tail must not be written"
    )]
    ReservationOpen {
        /// Slots reserved.
        reserved: u32,
        /// Slots committed.
        committed: u32,
    },
    /// The tokens given to `seal` do not number the committed slots.
    #[error("sequence has {committed} committed slots, {tokens} tokens given to seal")]
    SealLength {
        /// Committed slots of the sequence.
        committed: u32,
        /// Tokens given.
        tokens: u64,
    },
    /// A sequence that stands on a prefix cannot itself be sealed.
    #[error("sequence stands on prefix {prefix} and cannot be sealed; compute the whole run anew")]
    SealOnPrefix {
        /// The prefix that the sequence holds.
        prefix: PrefixKey,
    },
    /// The cache holds no prefix under this key.
    #[error("prefix {key} is not held by this cache; seal it first")]
    PrefixUnknown {
        /// The key asked for.
        key: PrefixKey,
    },
    /// A prefix with live forks cannot be evicted.
    #[error("prefix {key} has {forks} live forks; release them before evicting it")]
    PrefixInUse {
        /// The key asked for.
        key: PrefixKey,
        /// Sequences that hold the prefix.
        forks: u64,
    },
    /// A prefix's tokens no longer derive its key.
    #[error("prefix key is {expected}, its tokens derive {found}; discard it and seal anew")]
    PrefixKeyMismatch {
        /// Key given at sealing.
        expected: PrefixKey,
        /// Key derived now.
        found: PrefixKey,
    },
    /// A prefix's floats no longer have the checksum taken at sealing.
    #[error(
        "prefix {key} was sealed with checksum {}, now {}; discard it and seal anew",
        crate::key::hex(expected),
        crate::key::hex(found)
    )]
    PrefixChecksumMismatch {
        /// Key of the prefix.
        key: PrefixKey,
        /// Checksum taken at sealing.
        expected: [u8; 32],
        /// Checksum taken now.
        found: [u8; 32],
    },
}
