//! Audits: drawing, and bounds checked against exact integer sums.

use operator::audit::{misses_upper, rate_upper_ppm, sample};
use operator::id::UnitId;
use proptest::prelude::*;

const ALPHA: u32 = 50_000;

fn units(count: u32) -> Vec<UnitId> {
    (0..count).map(|id| UnitId::new(&id.to_string())).collect()
}

/// Binomial coefficient; 0 where `k > n`.
fn choose(n: u64, k: u64) -> u128 {
    if k > n {
        return 0;
    }
    (0..k).fold(1, |ways, i| ways * u128::from(n - i) / u128::from(i + 1))
}

/// Samples of `audited` units in which exactly `found` of the `misses` are.
fn samples(population: u64, misses: u64, audited: u64, found: u64) -> u128 {
    if found > audited {
        return 0;
    }
    choose(misses, found) * choose(population - misses, audited - found)
}

#[test]
fn bounds_agree_with_the_published_ones() {
    for (audited, misses, hundredths_of_percent) in [
        (25, 95, 1130),
        (60, 40, 487),
        (100, 23, 295),
        (200, 11, 149),
        (300, 6, 99),
        (400, 4, 75),
    ] {
        assert_eq!(misses_upper(857, audited, 0, ALPHA), misses, "{audited}");
        let rate = rate_upper_ppm(audited, 0, ALPHA);
        let rounded = (rate + 50) / 100;
        assert!(
            rounded.abs_diff(hundredths_of_percent) <= 1,
            "{audited}: {rate}"
        );
    }
    // Clopper and Pearson's limits for some found, as beta quantiles: 1 - B(0.05; n - x, x + 1).
    assert_eq!(rate_upper_ppm(10, 1, ALPHA), 394_164);
    assert_eq!(rate_upper_ppm(20, 3, ALPHA), 343_664);
}

#[test]
fn the_bound_of_misses_is_the_exact_one_and_covers() {
    for population in 1..=22 {
        for audited in 0..=population {
            let all = choose(population, audited);
            let bounds: Vec<u64> = (0..=audited)
                .map(|found| misses_upper(population, audited, found, ALPHA))
                .collect();
            for misses in 0..=population {
                let mut at_most = 0;
                let mut covered = 0;
                for (found, bound) in (0..).zip(&bounds) {
                    let ways = samples(population, misses, audited, found);
                    at_most += ways;
                    if misses <= *bound {
                        covered += ways;
                    }
                    let possible = misses >= found && population - misses >= audited - found;
                    let plausible = possible && at_most * 20 >= all;
                    // A number of misses that cannot be is left out of the comparison, except
                    // that the bound is never one.
                    assert!(
                        !possible || plausible == (misses <= *bound),
                        "{population} {audited} {found} {misses}: {bound}"
                    );
                    assert!(misses != *bound || possible);
                }
                assert!(covered * 20 >= all * 19, "{population} {audited} {misses}");
            }
        }
    }
}

#[test]
fn the_bound_of_the_rate_covers() {
    for audited in 0..=15_u32 {
        let bounds: Vec<u32> = (0..=audited)
            .map(|found| rate_upper_ppm(audited.into(), found.into(), ALPHA))
            .collect();
        assert!(bounds.is_sorted());
        for percent in 0..=100_u32 {
            let covered: u128 = (0..=audited)
                .zip(&bounds)
                .filter(|(_, bound)| percent * 10_000 <= **bound)
                .map(|(found, _)| {
                    choose(audited.into(), found.into())
                        * u128::from(percent).pow(found)
                        * u128::from(100 - percent).pow(audited - found)
                })
                .sum();
            let all = 100_u128.pow(audited);
            assert!(covered * 20 >= all * 19, "{audited} {percent}");
        }
    }
}

#[test]
fn edges_are_what_they_must_be() {
    assert_eq!(misses_upper(0, 0, 0, ALPHA), 0);
    assert_eq!(
        misses_upper(50, 0, 0, ALPHA),
        50,
        "nothing read, nothing known"
    );
    assert_eq!(misses_upper(50, 50, 7, ALPHA), 7, "all read, all known");
    assert_eq!(misses_upper(50, 10, 10, ALPHA), 50);
    // 1 of 20 units read and sound: 19 misses leave it a chance of exactly 5 %.
    assert_eq!(misses_upper(20, 1, 0, ALPHA), 19);
    assert_eq!(rate_upper_ppm(0, 0, ALPHA), 1_000_000);
    assert_eq!(rate_upper_ppm(9, 9, ALPHA), 1_000_000);
    // The bound is 95 % to the digit; doubt about the last one may only make it larger.
    assert!((950_000..=950_001).contains(&rate_upper_ppm(1, 0, ALPHA)));
    // A large population is no different from one without end.
    let misses = misses_upper(1_000_000_000, 300, 2, ALPHA);
    let rate = u64::from(rate_upper_ppm(300, 2, ALPHA)) * 1_000;
    assert!(misses.abs_diff(rate) <= 2_000, "{misses} {rate}");
    // Many found: neither direction of the sum may overflow or vanish.
    let misses = misses_upper(1_000_000, 10_000, 5_000, ALPHA);
    assert!((500_000..510_000).contains(&misses), "{misses}");
}

#[test]
#[should_panic(expected = "found 3 of 2 audited units")]
fn more_found_than_audited_is_refused() {
    misses_upper(10, 2, 3, ALPHA);
}

#[test]
#[should_panic(expected = "audited 11 of 10 units")]
fn more_audited_than_there_are_is_refused() {
    misses_upper(10, 11, 3, ALPHA);
}

#[test]
fn a_draw_follows_the_seed_and_is_pinned() {
    let units = units(40);
    let draw = |seed| -> Vec<&str> {
        sample(seed, units.iter(), 5)
            .into_iter()
            .map(UnitId::as_str)
            .collect()
    };
    assert_eq!(draw("a"), ["12", "37", "34", "22", "24"]);
    assert_ne!(draw("a"), draw("b"));
    assert_eq!(sample("a", units.iter(), 100).len(), 40);
    assert!(sample("a", units.iter(), 0).is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_draw_depends_on_neither_order_nor_size(
        shuffled in (0..60_u32).prop_flat_map(|count| Just(units(count)).prop_shuffle()),
        seed in "[a-z]{0,4}", small in 0..30_usize, large in 30..60_usize,
    ) {
        let mut sorted = shuffled.clone();
        sorted.sort();
        let drawn = sample(&seed, shuffled.iter(), large);
        prop_assert_eq!(&drawn, &sample(&seed, sorted.iter(), large));
        let few = sample(&seed, sorted.iter(), small);
        prop_assert_eq!(&few[..], &drawn[..small.min(drawn.len())]);
    }
}
