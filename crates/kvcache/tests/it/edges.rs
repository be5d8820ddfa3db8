//! Lengths around a block's border, for every call that takes a length.

use kvcache::{BlockCopy, CacheError, KvCache, KvLayout, Namespace, Reservation};

use crate::support::{Row, append, read_prefix, read_rows, row};

fn cache(block_slots: u32) -> KvCache {
    KvCache::new(KvLayout::new(2, 2, 3, block_slots).unwrap(), 16).unwrap()
}

fn lengths(block_slots: u32) -> [u32; 6] {
    [
        0,
        1,
        block_slots - 1,
        block_slots,
        block_slots + 1,
        2 * block_slots,
    ]
}

fn rows(layout: &KvLayout, stamps: std::ops::Range<u32>) -> Vec<Row> {
    stamps.map(|stamp| row(layout, stamp)).collect()
}

#[test]
fn reserve_and_commit_in_two_steps_equal_one() {
    for block_slots in [1, 2, 5] {
        for first in lengths(block_slots) {
            for second in lengths(block_slots) {
                let mut cache = cache(block_slots);
                let layout = *cache.layout();
                let mut seq = cache.admit(None, first + second).unwrap();
                let expected = rows(&layout, 0..first + second);
                let (head, tail) = expected.split_at(first as usize);
                append(&mut cache, &mut seq, head);
                append(&mut cache, &mut seq, tail);
                assert_eq!(read_rows(&cache, &seq), expected);
                assert_eq!(seq.blocks().len() as u32, layout.blocks_for(first + second));
                assert_eq!(seq.blocks_promised(), 0);
                let refused = cache.reserve(&mut seq, 1);
                let total = first + second;
                let expected = CacheError::PromiseExceeded {
                    requested: 1,
                    reserved: total,
                    slots_max: total,
                };
                assert_eq!(refused, Err(expected));
                assert_eq!(cache.reserve(&mut seq, 0), Ok(Reservation::default()));
                cache.check_sequences([&seq]);
                cache.release(seq);
                cache.check_sequences([]);
            }
        }
    }
}

#[test]
fn fork_shares_all_and_the_first_to_append_copies_the_tail() {
    for block_slots in [1, 2, 5] {
        for length in lengths(block_slots) {
            for more in lengths(block_slots) {
                for child_first in [false, true] {
                    fork_case(block_slots, length, more, child_first);
                }
            }
        }
    }
}

fn fork_case(block_slots: u32, length: u32, more: u32, child_first: bool) {
    let mut cache = cache(block_slots);
    let layout = *cache.layout();
    let mut parent = cache.admit(None, length + more).unwrap();
    let shared = rows(&layout, 0..length);
    append(&mut cache, &mut parent, &shared);
    let before = cache.stats();
    let mut child = cache.fork(&parent, length + more).unwrap();
    let after = cache.stats();
    assert_eq!(
        (after.arena_bytes, after.copies),
        (before.arena_bytes, 0),
        "copies no slot"
    );
    assert_eq!(after.blocks_shared, layout.blocks_for(length));
    assert_eq!(after.live_bytes, before.live_bytes);
    assert_eq!(parent.blocks(), child.blocks());
    cache.check_sequences([&parent, &child]);

    let (first, second) = if child_first {
        (&mut child, &mut parent)
    } else {
        (&mut parent, &mut child)
    };
    let tail = first.blocks().last().copied();
    let overhang = length % block_slots;
    let reservation = cache.reserve(first, more).unwrap();
    let copied = more > 0 && overhang > 0;
    assert_eq!(reservation.copies.len(), usize::from(copied));
    if let (Some(copy), Some(source)) = (reservation.copies.first(), tail) {
        let target = first.blocks()[(length / block_slots) as usize];
        assert_eq!(
            *copy,
            BlockCopy {
                source,
                target,
                slots: overhang
            }
        );
        assert_ne!(source, target);
    }
    let firsts = rows(&layout, 100..100 + more);
    for (slot, row) in reservation.slots.iter().zip(&firsts) {
        crate::support::write_row(&mut cache, *slot, row);
    }
    cache.commit(first, more);
    assert_eq!(
        read_rows(&cache, second),
        shared,
        "the other owner sees nothing of it"
    );
    let seconds = rows(&layout, 200..200 + more);
    append(&mut cache, second, &seconds);
    assert_eq!(read_rows(&cache, first), [shared.clone(), firsts].concat());
    assert_eq!(
        read_rows(&cache, second),
        [shared.clone(), seconds].concat()
    );
    let stats = cache.stats();
    assert_eq!(
        stats.copies,
        u64::from(copied),
        "the last owner writes in place"
    );
    assert_eq!(
        stats.copied_slots,
        if copied { u64::from(overhang) } else { 0 }
    );
    cache.check_sequences([&parent, &child]);
    cache.release(parent);
    let left = read_rows(&cache, &child);
    assert_eq!(
        left[..length as usize],
        shared,
        "a released parent leaves its fork whole"
    );
    cache.release(child);
    cache.check_sequences([]);
    assert_eq!(cache.stats().blocks_promised, 0);
}

#[test]
fn seal_keeps_every_slot_at_every_length() {
    for block_slots in [1, 2, 5] {
        for length in lengths(block_slots) {
            let mut cache = cache(block_slots);
            let expected = rows(cache.layout(), 0..length);
            // Room reserved and never committed is not part of the prefix.
            let mut seq = cache.admit(None, length + 3).unwrap();
            append(&mut cache, &mut seq, &expected);
            cache.reserve(&mut seq, 3).unwrap();
            let tokens: Vec<u32> = (0..length).collect();
            let prefix = cache.seal(&Namespace([0; 32]), seq, &tokens).unwrap();
            assert_eq!(read_prefix(&prefix), expected);
            assert_eq!((prefix.len(), prefix.is_empty()), (length, length == 0));
            assert_eq!(
                prefix.bytes(),
                u64::from(length) * cache.layout().slot_bytes()
            );
            prefix.verify().unwrap();
            cache.check_sequences([]);
        }
    }
}

#[test]
fn seal_refuses_a_wrong_length_and_a_sequence_on_a_prefix_but_releases() {
    let mut cache = cache(2);
    let namespace = Namespace([0; 32]);
    let some = rows(cache.layout(), 0..3);
    let mut seq = cache.admit(None, 5).unwrap();
    append(&mut cache, &mut seq, &some);
    let refused = cache.seal(&namespace, seq, &[1, 2]).err();
    assert_eq!(
        refused,
        Some(CacheError::SealLength {
            committed: 3,
            tokens: 2
        })
    );
    cache.check_sequences([]);

    let mut seq = cache.admit(None, 3).unwrap();
    append(&mut cache, &mut seq, &some);
    let prefix = cache.seal(&namespace, seq, &[1, 2, 3]).unwrap();
    let mut fork = cache.admit(Some(&prefix), 3).unwrap();
    append(&mut cache, &mut fork, &some);
    let refused = cache.seal(&namespace, fork, &[1, 2, 3]).err();
    assert_eq!(
        refused,
        Some(CacheError::SealOnPrefix {
            prefix: prefix.key()
        })
    );
    assert_eq!(prefix.forks(), 0);
    cache.check_sequences([]);
}

#[test]
fn a_running_fork_is_refused_what_it_could_not_finish() {
    let mut cache = KvCache::new(KvLayout::new(1, 1, 1, 4).unwrap(), 4).unwrap();
    let mut parent = cache.admit(None, 6).unwrap();
    let some = rows(cache.layout(), 0..5);
    append(&mut cache, &mut parent, &some);
    let small = cache.fork(&parent, 4).err();
    assert_eq!(
        small,
        Some(CacheError::PromiseTooSmall {
            inherited: 5,
            slots_max: 4
        })
    );
    // Two blocks are free: one for the copy of the tail, one for slots 8 to 11, none for slot 12.
    let large = cache.fork(&parent, 13).err();
    let exhausted = CacheError::PoolExhausted {
        requested: 3,
        free: 2,
        capacity: 4,
    };
    assert_eq!(large, Some(exhausted));
    cache.check_sequences([&parent]);
    let mut child = cache.fork(&parent, 12).unwrap();
    cache.reserve(&mut child, 1).unwrap();
    let open = cache.fork(&child, 12).err();
    assert_eq!(
        open,
        Some(CacheError::ReservationOpen {
            reserved: 6,
            committed: 5
        })
    );
    cache.reserve(&mut child, 6).unwrap();
    cache.reserve(&mut parent, 1).unwrap();
    assert_eq!(cache.stats().blocks_free, 0);
    cache.check_sequences([&parent, &child]);
    cache.release(child);
    cache.release(parent);
    cache.check_sequences([]);
}

#[test]
fn a_tail_of_three_owners_is_copied_twice() {
    let mut cache = cache(4);
    let layout = *cache.layout();
    let mut owners = vec![cache.admit(None, 4).unwrap()];
    let shared = rows(&layout, 0..2);
    append(&mut cache, &mut owners[0], &shared);
    owners.push(cache.fork(&owners[0], 4).unwrap());
    owners.push(cache.fork(&owners[1], 4).unwrap());
    assert_eq!(cache.stats().blocks_promised, 2);
    for (stamp, seq) in (10..).zip(&mut owners) {
        append(&mut cache, seq, &[row(&layout, stamp)]);
    }
    assert_eq!((cache.stats().copies, cache.stats().copied_slots), (2, 4));
    for (stamp, seq) in (10..).zip(&owners) {
        let expected = [shared.clone(), vec![row(&layout, stamp)]].concat();
        assert_eq!(read_rows(&cache, seq), expected);
    }
    cache.check_sequences(&owners);
    for seq in owners {
        cache.release(seq);
    }
}

#[test]
fn sizes_that_no_cache_can_have_are_refused() {
    let layout = KvLayout::new(1, 1, 1, 4).unwrap();
    for blocks in [0, u32::MAX, u32::MAX / 4 + 1] {
        let refused = KvCache::new(layout, blocks).err();
        let slots_max = u32::MAX;
        let expected = CacheError::CapacityInvalid {
            blocks,
            block_slots: 4,
            slots_max,
        };
        assert_eq!(refused, Some(expected));
    }
    let largest = KvCache::new(layout, u32::MAX / 4).unwrap();
    assert_eq!(
        largest.stats().arena_bytes,
        0,
        "capacity alone allocates nothing"
    );
    let forged = KvLayout {
        layers: 0,
        ..layout
    };
    assert!(matches!(
        KvCache::new(forged, 1),
        Err(CacheError::LayoutInvalid { .. })
    ));
}
