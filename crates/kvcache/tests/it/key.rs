//! Content keys: one pinned digest for ever, and no two inputs under one key.

use std::collections::BTreeSet;

use kvcache::{KvLayout, Namespace, PrefixKey};

use crate::support::Random;

#[test]
fn the_digest_of_a_fixed_input_is_pinned() {
    let layout = KvLayout::new(24, 2, 64, 16).unwrap();
    let namespace = Namespace(std::array::from_fn(|index| index as u8));
    let key = PrefixKey::derive(&namespace, &layout, &[1, 2, 3, 151_643]);
    assert_eq!(
        key.to_string(),
        "9b8e7b54fa25e7857ab2e83b50d3d5a4b794a3194bd32199af59c09884479225"
    );
}

#[test]
fn every_part_of_the_input_changes_the_key() {
    let mut random = Random(11);
    let layout = KvLayout::new(3, 2, 5, 7).unwrap();
    for tokens in [0, 1, 2, 33] {
        let tokens: Vec<u32> = (0..tokens).map(|_| random.next() as u32).collect();
        let namespace = Namespace(std::array::from_fn(|_| random.next() as u8));
        let mut seen = BTreeSet::new();
        let mut fresh = |namespace: &Namespace, layout: &KvLayout, tokens: &[u32]| {
            let key = PrefixKey::derive(namespace, layout, tokens);
            assert_eq!(
                key,
                PrefixKey::derive(namespace, layout, tokens),
                "a pure function"
            );
            assert!(seen.insert(key), "two inputs share {key}");
        };
        fresh(&namespace, &layout, &tokens);
        for bit in 0..256 {
            let mut other = namespace;
            other.0[bit / 8] ^= 1 << (bit % 8);
            fresh(&other, &layout, &tokens);
        }
        for index in 0..tokens.len() {
            for bit in [0, 7, 8, 31] {
                let mut other = tokens.clone();
                other[index] ^= 1 << bit;
                fresh(&namespace, &layout, &other);
            }
        }
        fresh(&namespace, &layout, &[&tokens[..], &[0]].concat());
        if !tokens.is_empty() {
            fresh(&namespace, &layout, &tokens[1..]);
        }
        for field in 0..4 {
            let mut sizes = [3, 2, 5, 7];
            sizes[field] += 10;
            let other = KvLayout::new(sizes[0], sizes[1], sizes[2], sizes[3]).unwrap();
            fresh(&namespace, &other, &tokens);
        }
        // The same numbers in other places.
        fresh(&namespace, &KvLayout::new(2, 3, 5, 7).unwrap(), &tokens);
        fresh(&namespace, &KvLayout::new(3, 2, 7, 5).unwrap(), &tokens);
    }
}
