//! The laws between a cache's counts, recomputed from scratch.
//!
//! It reads pool, store, prefixes and sequences and changes none of them; the tests call it after
//! every step, and a caller may call it whenever a job ends.

use std::collections::BTreeMap;

use crate::cache::KvCache;
use crate::ids::BlockId;
use crate::sequence::SequenceKv;

impl KvCache {
    /// Recomputes every count that the cache keeps and asserts the laws between them.
    ///
    /// Cost: O(blocks ever used).
    ///
    /// # Panics
    /// If a law is broken, which is a bug of this crate.
    pub fn check(&self) {
        self.pool.check();
        for block in self.pool.used_blocks() {
            assert!(self.store.holds(block), "{block} is used and has no memory");
        }
        assert_eq!(
            self.store.held().count() as u64 * self.layout.block_bytes(),
            self.store.bytes()
        );
        for (key, prefix) in &self.prefixes {
            assert_eq!(*key, prefix.key(), "a prefix is held under another's key");
            assert_eq!(prefix.layout(), &self.layout, "a prefix has another layout");
        }
    }

    /// Asserts, beyond [`check`](Self::check), that exactly these sequences hold what is in use.
    ///
    /// Cost: O(blocks ever used + blocks of the sequences).
    ///
    /// # Panics
    /// If a law is broken, or if `live` is not every live sequence and nothing was leaked.
    pub fn check_sequences<'a>(&self, live: impl IntoIterator<Item = &'a SequenceKv>) {
        self.check();
        let mut references = BTreeMap::<BlockId, u32>::new();
        let mut partial_tails = BTreeMap::<BlockId, u32>::new();
        let (mut promised, mut forks) = (0, 0);
        for seq in live {
            self.assert_owns(seq);
            let blocks = seq.blocks();
            assert_eq!(
                blocks.len() as u32 + seq.blocks_promised(),
                self.layout.blocks_for(seq.slots_max()),
                "blocks held and promised cover what was admitted"
            );
            assert_eq!(blocks.len() as u32, self.layout.blocks_for(seq.reserved()));
            for block in blocks {
                *references.entry(*block).or_default() += 1;
            }
            if let (Some(tail), true) = (
                blocks.last(),
                !seq.reserved().is_multiple_of(self.layout.block_slots),
            ) {
                *partial_tails.entry(*tail).or_default() += 1;
            }
            promised += seq.blocks_promised();
            forks += u64::from(seq.prefix().is_some());
        }
        let counts = self.pool.counts();
        assert_eq!(promised, counts.promised_tables, "promises of the tables");
        assert_eq!(references.len() as u32, counts.used, "blocks of the tables");
        for (block, found) in &references {
            assert_eq!(*found, self.pool.references(*block), "owners of {block}");
            let copies = partial_tails.get(block).map_or(0, |owners| owners - 1);
            assert_eq!(
                copies,
                self.pool.copies_promised(*block),
                "copies promised for {block}"
            );
        }
        assert_eq!(forks, self.stats().forks_live, "holds on prefixes");
    }
}
