//! How many units of each stratum are read.
//!
//! It follows from sizes alone and is fixed before anything is read. Near strata get three times their
//! share; every stratum that can be given something gets a unit, for without one all of it counts as
//! missed. Integers throughout.

/// How often a near unit is read against a far one.
const NEAR: u64 = 3;

/// A stratum as far as it matters for what is read of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allotment {
    /// Units in it.
    pub population: u64,
    /// Whether it lies near a boundary.
    pub near: bool,
    /// Whether it is of units without an answer.
    pub unknown: bool,
}

/// Divides `budget` units among strata; units without an answer come first, or are left out.
pub fn allot(strata: &[Allotment], budget: u64, inspect_unknown: bool) -> Vec<u64> {
    let mut left = budget;
    let mut given = vec![0; strata.len()];
    for (given, stratum) in given.iter_mut().zip(strata) {
        if stratum.unknown && inspect_unknown {
            *given = stratum.population.min(left);
            left -= *given;
        }
    }
    for (given, stratum) in given.iter_mut().zip(strata) {
        if !stratum.unknown && left > 0 && stratum.population > 0 {
            *given = 1;
            left -= 1;
        }
    }
    // Whoever is full leaves its share to the others: a round gives all or fills some stratum.
    while left > 0 {
        let room = |given: u64, stratum: &Allotment| match stratum.unknown {
            true => 0,
            false => stratum.population - given,
        };
        let weight = |stratum: &Allotment| stratum.population * if stratum.near { NEAR } else { 1 };
        let open: Vec<usize> = (0..strata.len())
            .filter(|&place| room(given[place], &strata[place]) > 0)
            .collect();
        let total: u128 = open
            .iter()
            .map(|&place| u128::from(weight(&strata[place])))
            .sum();
        if total == 0 {
            break;
        }
        let share = |place: usize| {
            let parts = u128::from(left) * u128::from(weight(&strata[place]));
            ((parts / total) as u64, parts % total)
        };
        let mut shares: Vec<(usize, u64, u128)> = open
            .iter()
            .map(|&place| (place, share(place).0, share(place).1))
            .collect();
        shares.sort_by(|a, b| b.2.cmp(&a.2).then(a.0.cmp(&b.0)));
        let whole: u64 = shares.iter().map(|(_, share, _)| share).sum();
        for (_, share, _) in shares.iter_mut().take((left - whole) as usize) {
            *share += 1;
        }
        for (place, share, _) in shares {
            let taken = share.min(room(given[place], &strata[place]));
            given[place] += taken;
            left -= taken;
        }
    }
    given
}
