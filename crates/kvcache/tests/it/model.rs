//! Random steps on the cache and on a naive model of it, compared after every step.
//!
//! The model keeps each sequence's rows in a vector and its blocks as reference-counted tokens, so
//! that sharing, copies, promises and byte counts are predicted and not read from the cache.

use std::collections::BTreeMap;
use std::rc::Rc;

use kvcache::{CacheError, CacheStats, KvCache, KvLayout, Namespace, Prefix, SequenceKv, SlotId};

use crate::support::{Random, Row, read_prefix, read_rows, row, write_row};

const STEPS: u32 = 13_000;
const SEQUENCES_MAX: usize = 12;
const PREFIXES_MAX: usize = 5;

struct Live {
    seq: SequenceKv,
    prefix: Option<usize>, // serial of the sealed prefix
    rows: Vec<Row>,        // committed
    open: Vec<(SlotId, Row)>,
    blocks: Vec<Rc<()>>, // the model's own blocks; a shared one is the same token
    slots_max: u32,
}

struct Sealed {
    serial: usize,
    prefix: Prefix,
    rows: Vec<Row>,
    checksum: [u8; 32],
    forks: u64,
}

struct Model {
    cache: KvCache,
    layout: KvLayout,
    capacity: u32,
    random: Random,
    live: Vec<Live>,
    sealed: Vec<Sealed>,
    stamp: u32,
    expected: CacheStats, // only the counters that grow
    refused: BTreeMap<&'static str, u32>,
}

#[test]
fn every_visible_slot_and_every_count_equal_the_model() {
    let mut refused = BTreeMap::<_, u32>::new();
    let (mut copies, mut evictions) = (0, 0);
    for (seed, block_slots) in (1_u64..).zip([1, 2, 3, 4, 4, 5, 8, 16, 4]) {
        let outcome = std::panic::catch_unwind(|| run(seed, block_slots));
        let Ok((stats, seen)) = outcome else {
            panic!("seed {seed} with {block_slots} slots a block")
        };
        copies += stats.copies;
        evictions += stats.prefix_evictions;
        for (what, count) in seen {
            *refused.entry(what).or_default() += count;
        }
    }
    // A run that never met these cases would prove nothing about them.
    assert!(
        copies > 1_000 && evictions > 100,
        "{copies} copies, {evictions} evictions"
    );
    for what in [
        "admit", "fork", "reserve", "open", "small", "evict", "again",
    ] {
        assert!(
            refused.get(what).is_some_and(|count| *count > 50),
            "{what}: {refused:?}"
        );
    }
}

fn run(seed: u64, block_slots: u32) -> (CacheStats, BTreeMap<&'static str, u32>) {
    let layout = KvLayout::new(2, 2, 2, block_slots).unwrap();
    // Scarce blocks meet refusals, ample ones meet deep sharing.
    let capacity = if seed.is_multiple_of(3) { 14 } else { 60 };
    let mut model = Model {
        cache: KvCache::new(layout, capacity).unwrap(),
        layout,
        capacity,
        random: Random(seed),
        live: Vec::new(),
        sealed: Vec::new(),
        stamp: 0,
        expected: CacheStats::default(),
        refused: BTreeMap::new(),
    };
    for step in 0..STEPS {
        let touched = model.step();
        model.compare_counts();
        for index in 0..model.live.len() {
            if step % 8 == 0 || touched == Some(index) {
                model.compare_rows(index);
            }
        }
        if step % 64 == 0 {
            model.compare_prefixes();
        }
    }
    while !model.live.is_empty() {
        model.release(0);
        model.compare_counts();
    }
    model.compare_prefixes();
    let stats = model.cache.stats();
    assert_eq!(
        (stats.blocks_used, stats.blocks_promised, stats.forks_live),
        (0, 0, 0)
    );
    (stats, model.refused)
}

impl Model {
    /// Takes one random step and names the sequence that it touched.
    fn step(&mut self) -> Option<usize> {
        let choice = self.random.below(100);
        if self.live.is_empty() || (choice < 14 && self.live.len() < SEQUENCES_MAX) {
            return self.admit();
        }
        let index = self.random.below(self.live.len() as u32) as usize;
        match choice {
            0..46 => self.reserve(index),
            46..70 => self.commit(index),
            70..88 if self.live.len() < SEQUENCES_MAX => self.fork(index),
            88..93 => self.seal(index),
            93..95 => self.evict(),
            _ => self.release(index),
        }
    }

    fn edge_length(&mut self) -> u32 {
        let block = self.layout.block_slots;
        let edges = [0, 1, block - 1, block, block + 1, 2 * block, 2 * block + 1];
        edges[self.random.below(7) as usize]
    }

    fn used(&self) -> BTreeMap<*const (), (u32, u32)> {
        // Block -> (owners, committed slots), from the model's own tokens.
        let mut used = BTreeMap::new();
        for live in &self.live {
            for (index, block) in (0..).zip(&live.blocks) {
                let start = index * self.layout.block_slots;
                let committed = (live.rows.len() as u32).saturating_sub(start);
                let entry = used.entry(Rc::as_ptr(block)).or_insert((0, 0));
                entry.0 += 1;
                entry.1 = committed.min(self.layout.block_slots);
            }
        }
        used
    }

    fn promised(&self) -> u32 {
        let mut promised = 0;
        let mut tails = BTreeMap::new();
        for live in &self.live {
            promised += self.layout.blocks_for(live.slots_max) - live.blocks.len() as u32;
            let reserved = (live.rows.len() + live.open.len()) as u32;
            if !reserved.is_multiple_of(self.layout.block_slots) {
                *tails
                    .entry(Rc::as_ptr(live.blocks.last().unwrap()))
                    .or_insert(0) += 1;
            }
        }
        promised + tails.values().map(|owners| owners - 1).sum::<u32>()
    }

    fn refuse(&mut self, what: &'static str) -> Option<usize> {
        *self.refused.entry(what).or_default() += 1;
        None
    }

    fn exhausted(&self, requested: u32) -> Option<CacheError> {
        let free = self.capacity - self.used().len() as u32 - self.promised();
        let capacity = self.capacity;
        (requested > free).then_some(CacheError::PoolExhausted {
            requested,
            free,
            capacity,
        })
    }

    fn admit(&mut self) -> Option<usize> {
        let slots_max = self.edge_length() + self.edge_length();
        let choice = self.random.below(self.sealed.len() as u32 + 1) as usize;
        let prefix = self.sealed.get(choice).map(|sealed| sealed.prefix.clone());
        let exhausted = self.exhausted(self.layout.blocks_for(slots_max));
        match self.cache.admit(prefix.as_ref(), slots_max) {
            Err(error) => {
                assert_eq!(Some(error), exhausted);
                self.refuse("admit")
            }
            Ok(seq) => {
                assert_eq!(exhausted, None);
                if let Some(sealed) = self.sealed.get_mut(choice) {
                    sealed.forks += 1;
                    self.expected.forks_total += 1;
                }
                let prefix = self.sealed.get(choice).map(|sealed| sealed.serial);
                let (rows, open, blocks) = (Vec::new(), Vec::new(), Vec::new());
                self.live.push(Live {
                    seq,
                    prefix,
                    rows,
                    open,
                    blocks,
                    slots_max,
                });
                Some(self.live.len() - 1)
            }
        }
    }

    fn reserve(&mut self, index: usize) -> Option<usize> {
        let slots = self.edge_length();
        let live = &mut self.live[index];
        let reserved = (live.rows.len() + live.open.len()) as u32;
        let found = self.cache.reserve(&mut live.seq, slots);
        if reserved + slots > live.slots_max {
            let slots_max = live.slots_max;
            let error = CacheError::PromiseExceeded {
                requested: slots,
                reserved,
                slots_max,
            };
            assert_eq!(found, Err(error));
            return self.refuse("reserve");
        }
        let reservation = found.unwrap();
        let overhang = reserved % self.layout.block_slots;
        let mut copies = 0;
        if slots > 0 && overhang > 0 && Rc::strong_count(live.blocks.last().unwrap()) > 1 {
            *live.blocks.last_mut().unwrap() = Rc::new(());
            copies = 1;
            assert_eq!(reservation.copies[0].slots, overhang);
            self.expected.copied_slots += u64::from(overhang);
        }
        assert_eq!(reservation.copies.len() as u64, copies);
        self.expected.copies += copies;
        let blocks = self.layout.blocks_for(reserved + slots) as usize;
        live.blocks.resize_with(blocks, || Rc::new(()));
        assert_eq!(reservation.slots.len() as u32, slots);
        for slot in reservation.slots {
            self.stamp += 1;
            let row = row(&self.layout, self.stamp);
            write_row(&mut self.cache, slot, &row);
            live.open.push((slot, row));
        }
        Some(index)
    }

    fn commit(&mut self, index: usize) -> Option<usize> {
        let open = self.live[index].open.len() as u32;
        // Half of the commits take all, so that sequences often stand ready to be forked.
        let slots = if self.random.below(2) == 0 {
            open
        } else {
            self.random.below(open + 1)
        };
        self.commit_open(index, slots);
        Some(index)
    }

    fn commit_open(&mut self, index: usize, slots: u32) {
        let live = &mut self.live[index];
        for (slot, row) in live.open.drain(..slots as usize) {
            // Writing an open slot again, just before the commit, must be harmless.
            write_row(&mut self.cache, slot, &row);
            live.rows.push(row);
        }
        self.cache.commit(&mut live.seq, slots);
    }

    fn fork(&mut self, index: usize) -> Option<usize> {
        if self.random.below(4) > 0 {
            self.commit_open(index, self.live[index].open.len() as u32);
        }
        let slots_max = match self.random.below(8) {
            0 => self.edge_length(),
            _ => self.live[index].rows.len() as u32 + self.edge_length(),
        };
        let parent = &self.live[index];
        let (committed, open) = (parent.rows.len() as u32, parent.open.len() as u32);
        let reserved = committed + open;
        let found = self.cache.fork(&parent.seq, slots_max);
        if open > 0 {
            let error = CacheError::ReservationOpen {
                reserved,
                committed,
            };
            assert_eq!(found.err(), Some(error));
            return self.refuse("open");
        }
        if slots_max < committed {
            let error = CacheError::PromiseTooSmall {
                inherited: committed,
                slots_max,
            };
            assert_eq!(found.err(), Some(error));
            return self.refuse("small");
        }
        let own = self.layout.blocks_for(slots_max) - parent.blocks.len() as u32;
        let copy = u32::from(!committed.is_multiple_of(self.layout.block_slots));
        let exhausted = self.exhausted(own + copy);
        let seq = match found {
            Err(error) => {
                assert_eq!(Some(error), exhausted);
                return self.refuse("fork");
            }
            Ok(seq) => seq,
        };
        assert_eq!(exhausted, None);
        let (prefix, rows, blocks) = (parent.prefix, parent.rows.clone(), parent.blocks.clone());
        self.expected.running_forks_total += 1;
        if let Some(sealed) = self.sealed.iter_mut().find(|s| Some(s.serial) == prefix) {
            sealed.forks += 1;
            self.expected.forks_total += 1;
        }
        self.live.push(Live {
            seq,
            prefix,
            rows,
            open: Vec::new(),
            blocks,
            slots_max,
        });
        Some(self.live.len() - 1)
    }

    fn release(&mut self, index: usize) -> Option<usize> {
        let live = self.live.swap_remove(index);
        if let Some(sealed) = self
            .sealed
            .iter_mut()
            .find(|s| Some(s.serial) == live.prefix)
        {
            sealed.forks -= 1;
        }
        self.cache.release(live.seq);
        None
    }

    fn seal(&mut self, index: usize) -> Option<usize> {
        if self.live[index].prefix.is_some() {
            return None;
        }
        let length = self.live[index].rows.len() as u32;
        let again = self
            .sealed
            .iter()
            .position(|sealed| sealed.prefix.len() == length);
        if again.is_none() && self.sealed.len() == PREFIXES_MAX {
            return None;
        }
        let live = self.live.swap_remove(index);
        let tokens = match again {
            // The same tokens under other rows: the prefix sealed first must stand.
            Some(held) => self.sealed[held].prefix.tokens().to_vec(),
            None => (0..length).map(|n| self.stamp + n).collect(),
        };
        let prefix = self
            .cache
            .seal(&Namespace([9; 32]), live.seq, &tokens)
            .unwrap();
        assert_eq!(prefix.tokens(), tokens);
        assert_eq!(
            self.cache.lookup(&prefix.key()).unwrap().key(),
            prefix.key()
        );
        if let Some(held) = again {
            assert_eq!(read_prefix(&prefix), self.sealed[held].rows);
            return self.refuse("again");
        }
        assert_eq!(read_prefix(&prefix), live.rows);
        self.stamp += 1;
        let (serial, checksum) = (self.stamp as usize, prefix.checksum());
        self.sealed.push(Sealed {
            serial,
            prefix,
            rows: live.rows,
            checksum,
            forks: 0,
        });
        None
    }

    fn evict(&mut self) -> Option<usize> {
        if self.sealed.is_empty() {
            return None;
        }
        let index = self.random.below(self.sealed.len() as u32) as usize;
        let (key, forks) = (self.sealed[index].prefix.key(), self.sealed[index].forks);
        let found = self.cache.evict(&key);
        if forks > 0 {
            assert_eq!(found, Err(CacheError::PrefixInUse { key, forks }));
            return self.refuse("evict");
        }
        assert_eq!(found, Ok(()));
        let evicted = self.sealed.swap_remove(index);
        self.expected.prefix_evictions += 1;
        let refused = self.cache.admit(Some(&evicted.prefix), 0).err();
        assert_eq!(refused, Some(CacheError::PrefixUnknown { key }));
        assert_eq!(
            read_prefix(&evicted.prefix),
            evicted.rows,
            "the caller's clone stays"
        );
        None
    }

    fn compare_counts(&mut self) {
        self.cache
            .check_sequences(self.live.iter().map(|live| &live.seq));
        let used = self.used();
        let bytes = |s: &Sealed| s.rows.len() as u64 * self.layout.slot_bytes();
        let slots: u32 = used.values().map(|(_, committed)| committed).sum();
        let stats = self.cache.stats();
        assert!(stats.arena_bytes <= u64::from(self.capacity) * self.layout.block_bytes());
        self.expected.blocks_used_peak = self.expected.blocks_used_peak.max(used.len() as u32);
        let expected = CacheStats {
            prefixes: self.sealed.len() as u32,
            prefix_bytes: self.sealed.iter().map(bytes).sum(),
            live_bytes: u64::from(slots) * self.layout.slot_bytes(),
            saved_bytes: self
                .sealed
                .iter()
                .map(|s| s.forks.max(1).abs_diff(1) * bytes(s))
                .sum(),
            block_bytes: self.layout.block_bytes(),
            blocks_capacity: self.capacity,
            blocks_used: used.len() as u32,
            blocks_shared: used.values().filter(|(owners, _)| *owners > 1).count() as u32,
            blocks_free: self.capacity - used.len() as u32,
            blocks_promised: self.promised(),
            forks_live: self.sealed.iter().map(|s| s.forks).sum(),
            // Lowest free id first: memory is exactly the most blocks ever used at once.
            arena_bytes: u64::from(self.expected.blocks_used_peak) * self.layout.block_bytes(),
            ..self.expected
        };
        assert_eq!(stats, expected);
    }

    fn compare_rows(&self, index: usize) {
        let live = &self.live[index];
        let lengths = (live.seq.len() as usize, live.seq.reserved() as usize);
        assert_eq!(
            lengths,
            (live.rows.len(), live.rows.len() + live.open.len())
        );
        assert_eq!(live.seq.slots_max(), live.slots_max);
        assert_eq!(live.seq.is_empty(), live.rows.is_empty());
        assert_eq!(
            read_rows(&self.cache, &live.seq),
            live.rows,
            "sequence {index}"
        );
        let sealed = self.sealed.iter().find(|s| Some(s.serial) == live.prefix);
        assert_eq!(
            live.seq.prefix().map(Prefix::key),
            sealed.map(|s| s.prefix.key())
        );
    }

    fn compare_prefixes(&self) {
        for sealed in &self.sealed {
            assert_eq!(read_prefix(&sealed.prefix), sealed.rows);
            assert_eq!(sealed.prefix.checksum(), sealed.checksum);
            assert_eq!(sealed.prefix.forks(), sealed.forks);
            sealed.prefix.verify().unwrap();
        }
    }
}
