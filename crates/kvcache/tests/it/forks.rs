//! One sealed prefix under ten thousand forks: what is held, what is saved, what is left.

use kvcache::{CacheError, KvCache, KvLayout, Namespace, Prefix};

use crate::support::{append, read_prefix, read_rows, row};

const PREFIX_TOKENS: u32 = 700;
const RECORD_TOKENS: u32 = 60;
const RECORDS: u32 = 10_000;

fn sealed(cache: &mut KvCache, tokens: u32, first_stamp: u32) -> Prefix {
    let layout = *cache.layout();
    let mut seq = cache.admit(None, tokens).unwrap();
    let rows: Vec<_> = (0..tokens).map(|n| row(&layout, first_stamp + n)).collect();
    append(cache, &mut seq, &rows);
    let ids: Vec<u32> = (first_stamp..first_stamp + tokens).collect();
    let prefix = cache.seal(&Namespace([1; 32]), seq, &ids).unwrap();
    assert_eq!(read_prefix(&prefix), rows);
    prefix
}

#[test]
fn ten_thousand_forks_hold_one_prefix_and_their_own_slots() {
    let layout = KvLayout::new(1, 1, 2, 16).unwrap();
    let record_blocks = layout.blocks_for(RECORD_TOKENS);
    let mut cache = KvCache::new(layout, RECORDS * record_blocks).unwrap();
    let prefix = sealed(&mut cache, PREFIX_TOKENS, 0);
    let prefix_bytes = u64::from(PREFIX_TOKENS) * layout.slot_bytes();
    let checksum = prefix.checksum();
    cache.trim();
    assert_eq!(
        cache.stats().arena_bytes,
        0,
        "a sealed prefix needs no block"
    );

    let mut records = Vec::new();
    for index in 0..RECORDS {
        let seq = cache.admit(Some(&prefix), RECORD_TOKENS).unwrap();
        assert_eq!(
            seq.prefix().unwrap().keys(0, 0).as_ptr(),
            prefix.keys(0, 0).as_ptr()
        );
        records.push((index, seq));
    }
    let admitted = cache.stats();
    assert_eq!(admitted.arena_bytes, 0, "a fork copies nothing");
    assert_eq!(admitted.blocks_promised, admitted.blocks_capacity);
    assert_eq!(admitted.forks_live, u64::from(RECORDS));
    assert_eq!(admitted.saved_bytes, u64::from(RECORDS - 1) * prefix_bytes);
    let refused = cache.admit(Some(&prefix), 1).err();
    let capacity = admitted.blocks_capacity;
    let exhausted = CacheError::PoolExhausted {
        requested: 1,
        free: 0,
        capacity,
    };
    assert_eq!(refused, Some(exhausted));

    let stamp = |index: u32, slot: u32| PREFIX_TOKENS + index * RECORD_TOKENS + slot;
    for (index, seq) in &mut records {
        let rows: Vec<_> = (0..RECORD_TOKENS)
            .map(|slot| row(&layout, stamp(*index, slot)))
            .collect();
        append(&mut cache, seq, &rows);
        let written = u64::from(*index + 1);
        let stats = cache.stats();
        assert_eq!(
            stats.arena_bytes,
            written * u64::from(record_blocks) * layout.block_bytes()
        );
        assert_eq!(
            stats.live_bytes,
            written * u64::from(RECORD_TOKENS) * layout.slot_bytes()
        );
        assert_eq!(stats.prefix_bytes, prefix_bytes);
    }
    cache.check_sequences(records.iter().map(|(_, seq)| seq));
    for (index, seq) in &records {
        for (slot, found) in (0..).zip(read_rows(&cache, seq)) {
            assert_eq!(
                found,
                row(&layout, stamp(*index, slot)),
                "record {index} slot {slot}"
            );
        }
    }
    let full = cache.stats();
    assert_eq!(
        (full.copies, full.prefix_evictions, full.blocks_shared),
        (0, 0, 0)
    );
    let slack = u64::from(record_blocks * layout.block_slots - RECORD_TOKENS);
    assert_eq!(
        full.fragmented_bytes(),
        u64::from(RECORDS) * slack * layout.slot_bytes()
    );

    for (_, seq) in records {
        cache.release(seq);
    }
    cache.trim();
    let rest = cache.stats();
    assert_eq!(
        (rest.blocks_used, rest.blocks_promised, rest.live_bytes),
        (0, 0, 0)
    );
    assert_eq!((rest.arena_bytes, rest.prefix_bytes), (0, prefix_bytes));
    assert_eq!((rest.forks_live, rest.forks_total), (0, u64::from(RECORDS)));
    assert_eq!((rest.leaked_blocks, rest.leaked_promises), (0, 0));
    assert_eq!(prefix.checksum(), checksum);
    prefix.verify().unwrap();
    cache.check_sequences([]);
}

#[test]
fn arena_follows_the_most_blocks_used_at_once_not_the_records_seen() {
    let layout = KvLayout::new(2, 1, 2, 4).unwrap();
    let mut cache = KvCache::new(layout, 1_000_000).unwrap();
    let prefix = sealed(&mut cache, 7, 0);
    for _ in 0..2_000 {
        let mut seq = cache.admit(Some(&prefix), 9).unwrap();
        append(&mut cache, &mut seq, &vec![row(&layout, 5); 9]);
        cache.release(seq);
    }
    let stats = cache.stats();
    assert_eq!(stats.blocks_used_peak, 3);
    assert_eq!(stats.arena_bytes, 3 * layout.block_bytes());
}

#[test]
fn a_fork_that_only_scores_holds_its_prefix_and_nothing_else() {
    let mut cache = KvCache::new(KvLayout::new(1, 1, 2, 4).unwrap(), 4).unwrap();
    let prefix = sealed(&mut cache, 5, 0);
    let forks: Vec<_> = (0..100)
        .map(|_| cache.admit(Some(&prefix), 0).unwrap())
        .collect();
    let stats = cache.stats();
    assert_eq!((stats.blocks_used, stats.blocks_promised), (0, 0));
    assert_eq!((stats.forks_live, prefix.forks()), (100, 100));
    let key = prefix.key();
    assert_eq!(
        cache.evict(&key),
        Err(CacheError::PrefixInUse { key, forks: 100 })
    );
    for seq in forks {
        cache.release(seq);
    }
    assert_eq!(cache.evict(&key), Ok(()));
    assert_eq!(cache.stats().prefix_evictions, 1);
    assert_eq!(cache.evict(&key), Err(CacheError::PrefixUnknown { key }));
    assert!(cache.lookup(&key).is_none());
    assert_eq!(
        cache.admit(Some(&prefix), 0).err(),
        Some(CacheError::PrefixUnknown { key })
    );
    prefix.verify().unwrap();
}

#[test]
fn sealing_what_is_held_returns_it_and_still_releases() {
    let mut cache = KvCache::new(KvLayout::new(1, 2, 3, 4).unwrap(), 8).unwrap();
    let first = sealed(&mut cache, 6, 0);
    let second = sealed(&mut cache, 6, 0);
    assert_eq!(first.keys(0, 1).as_ptr(), second.keys(0, 1).as_ptr());
    let other = sealed(&mut cache, 6, 50);
    assert_ne!(first.key(), other.key());
    let stats = cache.stats();
    assert_eq!(
        (stats.prefixes, stats.blocks_used, stats.blocks_promised),
        (2, 0, 0)
    );
    assert_eq!(stats.prefix_bytes, first.bytes() + other.bytes());
    let found = cache.lookup(&other.key()).unwrap();
    assert_eq!(found.tokens(), &[50, 51, 52, 53, 54, 55]);
    cache.check_sequences([]);
}

#[test]
fn threads_read_a_prefix_while_its_owner_forks_it() {
    let mut cache = KvCache::new(KvLayout::new(1, 1, 2, 4).unwrap(), 8).unwrap();
    let prefix = sealed(&mut cache, 9, 0);
    let expected = read_prefix(&prefix);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| assert!((0..200).all(|_| read_prefix(&prefix) == expected)));
        }
        for _ in 0..200 {
            let mut seq = cache.admit(Some(&prefix), 5).unwrap();
            append(&mut cache, &mut seq, &vec![row(prefix.layout(), 77); 5]);
            cache.release(seq);
        }
    });
    prefix.verify().unwrap();
}
