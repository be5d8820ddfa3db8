//! Examples parted by lot, the same lot whatever their order in a file.

use std::collections::BTreeMap;

use blake3::Hasher;

/// Places of examples in an order that a seed and their ids alone decide.
pub fn shuffle(seed: u64, ids: &[String]) -> Vec<usize> {
    let mut order: Vec<([u8; 32], usize)> = ids
        .iter()
        .enumerate()
        .map(|(place, id)| {
            let mut hasher = Hasher::new_derive_key("engine head order v1");
            hasher.update(&seed.to_le_bytes());
            hasher.update(id.as_bytes());
            (*hasher.finalize().as_bytes(), place)
        })
        .collect();
    order.sort_unstable();
    order.into_iter().map(|(_, place)| place).collect()
}

/// The fold of each example: every class is dealt out evenly.
///
/// `order` are places of all examples; `strata` is what is to be even among the folds.
pub fn deal(order: &[usize], strata: &[usize], folds: usize) -> Vec<usize> {
    let kinds = strata.iter().max().map_or(0, |most| most + 1);
    let mut fold_of = vec![0; strata.len()];
    let mut next = 0;
    for kind in 0..kinds {
        for &place in order.iter().filter(|&&place| strata[place] == kind) {
            fold_of[place] = next % folds;
            next += 1;
        }
    }
    fold_of
}

/// Places that are learned from and places that are not: of every stratum the same share, by lot.
pub fn split(
    seed: u64,
    ids: &[String],
    strata: &[usize],
    kept_back: f64,
) -> (Vec<usize>, Vec<usize>) {
    let (mut learned, mut back) = (Vec::new(), Vec::new());
    let mut seen: BTreeMap<usize, usize> = BTreeMap::new();
    for place in shuffle(seed, ids) {
        let count = seen.entry(strata[place]).or_default();
        let due = |count: usize| (count as f64 * kept_back).round() as usize;
        *count += 1;
        match due(*count) > due(*count - 1) {
            true => back.push(place),
            false => learned.push(place),
        }
    }
    (learned, back)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folds_depend_on_ids_and_seed_alone_and_hold_every_class_evenly() {
        let ids: Vec<String> = (0..60).map(|id| id.to_string()).collect();
        let strata: Vec<usize> = (0..60).map(|id| usize::from(id % 3 == 0)).collect();
        let folds = deal(&shuffle(7, &ids), &strata, 5);
        for fold in 0..5 {
            let of_kind = |kind: usize| {
                let both = folds.iter().zip(&strata);
                both.filter(|&(&at, &of)| at == fold && of == kind).count()
            };
            assert_eq!((of_kind(0), of_kind(1)), (8, 4));
        }
        let backwards: Vec<String> = ids.iter().rev().cloned().collect();
        let turned: Vec<usize> = strata.iter().rev().copied().collect();
        let mut again = deal(&shuffle(7, &backwards), &turned, 5);
        again.reverse();
        assert_eq!(folds, again);
        assert_ne!(folds, deal(&shuffle(8, &ids), &strata, 5));
    }
}
