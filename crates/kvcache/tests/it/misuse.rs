//! Uses that only a bug can produce: each is caught where it happens.

use kvcache::{KvCache, KvLayout, Namespace, SequenceKv, SlotId};

use crate::support::{append, panic_message, read_rows, row};

fn cache() -> KvCache {
    KvCache::new(KvLayout::new(1, 1, 2, 4).unwrap(), 8).unwrap()
}

fn filled(cache: &mut KvCache, slots: u32, slots_max: u32) -> SequenceKv {
    let mut seq = cache.admit(None, slots_max).unwrap();
    let rows: Vec<_> = (0..slots).map(|stamp| row(cache.layout(), stamp)).collect();
    append(cache, &mut seq, &rows);
    seq
}

#[test]
fn dropping_a_sequence_that_holds_blocks_or_promises_is_caught_and_counted() {
    let mut cache = cache();
    for (slots, slots_max) in [(5, 5), (1, 8), (0, 1)] {
        let seq = filled(&mut cache, slots, slots_max);
        if cfg!(debug_assertions) {
            let message = panic_message(|| drop(seq));
            assert!(message.contains("release it to its cache"), "{message}");
        } else {
            drop(seq);
        }
    }
    let stats = cache.stats();
    assert_eq!((stats.leaked_blocks, stats.leaked_promises), (3, 2));
    assert_eq!(
        (stats.blocks_used, stats.blocks_promised),
        (3, 2),
        "what is lost stays lost"
    );
    cache.check();
    assert!(panic_message(|| cache.check_sequences([])).contains("promises of the tables"));
}

#[test]
fn dropping_a_fork_that_holds_nothing_is_harmless() {
    let mut cache = cache();
    let rubric = filled(&mut cache, 3, 3);
    let prefix = cache.seal(&Namespace([0; 32]), rubric, &[1, 2, 3]).unwrap();
    drop(cache.admit(Some(&prefix), 0).unwrap());
    assert_eq!((prefix.forks(), cache.stats().leaked_blocks), (0, 0));
    cache.check_sequences([]);
    assert_eq!(cache.evict(&prefix.key()), Ok(()));
}

#[test]
fn a_slot_is_written_only_while_it_is_reserved_uncommitted_and_owned_alone() {
    let mut cache = cache();
    let mut seq = cache.admit(None, 8).unwrap();
    let slots = cache.reserve(&mut seq, 2).unwrap().slots;
    let write = |cache: &mut KvCache, slot| cache.write(0, slot, &[1.0, 2.0], &[3.0, 4.0]);
    write(&mut cache, slots[0]);
    write(&mut cache, slots[0]);
    write(&mut cache, slots[1]);
    cache.commit(&mut seq, 1);
    let not_open = "not open for writing";
    let committed = panic_message(|| write(&mut cache, slots[0]));
    assert!(committed.contains(not_open), "{committed}");
    write(&mut cache, slots[1]);
    let unreserved = panic_message(|| write(&mut cache, SlotId(slots[1].0 + 1)));
    assert!(unreserved.contains(not_open), "{unreserved}");
    let unused = panic_message(|| write(&mut cache, SlotId(31)));
    assert!(unused.contains(not_open), "{unused}");
    cache.commit(&mut seq, 1);
    let fork = cache.fork(&seq, 2).unwrap();
    let shared = panic_message(|| write(&mut cache, SlotId(slots[1].0 + 1)));
    assert!(shared.contains("has 2 owners"), "{shared}");
    assert_eq!(read_rows(&cache, &fork), vec![vec![1.0, 2.0, 3.0, 4.0]; 2]);
    cache.release(fork);
    cache.release(seq);
}

#[test]
fn a_row_of_another_shape_is_refused() {
    let mut cache = cache();
    let mut seq = cache.admit(None, 1).unwrap();
    let slot = cache.reserve(&mut seq, 1).unwrap().slots[0];
    let mut write =
        |layer, key: &[f32], value: &[f32]| panic_message(|| cache.write(layer, slot, key, value));
    assert!(write(0, &[1.0], &[1.0, 2.0]).contains("key is [kv_heads, head_dim]"));
    assert!(write(0, &[1.0, 2.0], &[1.0; 3]).contains("value is [kv_heads, head_dim]"));
    assert!(write(1, &[1.0, 2.0], &[1.0, 2.0]).contains("layer 1 of 1"));
    cache.release(seq);
}

#[test]
fn committing_more_than_reserved_is_caught() {
    let mut cache = cache();
    let mut seq = cache.admit(None, 8).unwrap();
    cache.reserve(&mut seq, 2).unwrap();
    let message = panic_message(|| cache.commit(&mut seq, 3));
    assert!(
        message.contains("3 slots committed, 2 reserved"),
        "{message}"
    );
    cache.check_sequences([&seq]);
    cache.release(seq);
}

#[test]
fn a_sequence_of_another_cache_is_refused() {
    let (mut first, mut second) = (cache(), cache());
    let mut seq = filled(&mut first, 2, 3);
    let message = panic_message(|| drop(second.reserve(&mut seq, 1)));
    assert!(message.contains("admitted by another cache"), "{message}");
    let message = panic_message(|| drop(second.fork(&seq, 3)));
    assert!(message.contains("admitted by another cache"), "{message}");
    first.release(seq);
    first.check_sequences([]);
}

#[test]
fn a_reserved_slot_that_was_never_written_reads_as_nan_in_debug_builds() {
    let mut cache = cache();
    let seq = filled(&mut cache, 4, 4);
    cache.release(seq);
    let mut seq = cache.admit(None, 4).unwrap();
    let slots = cache.reserve(&mut seq, 4).unwrap().slots;
    cache.write(0, slots[0], &[1.0, 2.0], &[3.0, 4.0]);
    cache.commit(&mut seq, 4);
    let (keys, values) = cache.run(seq.blocks()[0], 0, 0);
    assert_eq!(
        (&keys[..2], &values[..2]),
        (&[1.0, 2.0][..], &[3.0, 4.0][..])
    );
    if cfg!(debug_assertions) {
        assert!(
            keys[2..]
                .iter()
                .chain(&values[2..])
                .all(|float| float.is_nan())
        );
    }
    cache.release(seq);
}
