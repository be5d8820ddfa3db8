//! What reading a sample of the units that were excluded, or decided negative, proves about the
//! rest.
//!
//! A sample of `audited` out of `population` units is drawn without regard to what is in them;
//! somebody reads it and finds `found` units that are not what they were taken for. The bounds here
//! say how many there can be in all. Both are exact and one-sided: over all samples they are too
//! low with a probability of at most `alpha`. Must not know how units were decided.

use crate::canonical::Canonical;
use crate::id::{ContentHash, UnitId};
use crate::infer::PPM;

/// How far a probability may fall short of `alpha` by rounding; makes bounds larger, never smaller.
const ROUNDING: f64 = 1e-9;

/// Draws `size` units, or all where there are fewer.
///
/// Those with the smallest hash of seed and id are drawn: the order of the units does not matter,
/// another unit's arrival displaces at most one, and a smaller sample under the same seed is the
/// start of a larger one. The seed is to be chosen before the units are known.
pub fn sample<'a>(
    seed: &str,
    units: impl Iterator<Item = &'a UnitId>,
    size: usize,
) -> Vec<&'a UnitId> {
    let mut drawn: Vec<(ContentHash, &UnitId)> = units
        .map(|unit| {
            let mut canonical = Canonical::new("operator 2026 audit sample v1");
            canonical.text(seed).text(unit.as_str());
            (ContentHash::of(&canonical), unit)
        })
        .collect();
    drawn.sort_unstable();
    drawn.truncate(size);
    drawn.into_iter().map(|(_, unit)| unit).collect()
}

/// Upper bound of the number of misses among `population` units of which `audited` were read.
///
/// The largest number `M` of misses under which finding `found` or fewer still has a probability of
/// at least `alpha`; `alpha` in parts per million, 50,000 for 95 % confidence. Source: the exact
/// one-sided confidence limit of the hypergeometric distribution, by inversion of its test.
///
/// # Panics
/// If `found > audited` or `audited > population`.
pub fn misses_upper(population: u64, audited: u64, found: u64, alpha_ppm: u32) -> u64 {
    assert!(found <= audited, "found {found} of {audited} audited units");
    assert!(
        audited <= population,
        "audited {audited} of {population} units"
    );
    let holds = |misses| {
        let log = log_hypergeometric(population, misses, audited, found);
        let step = |i| {
            let (drawn, sound) = (i as f64, (population - misses + i - audited) as f64);
            drawn * sound / ((misses - i + 1) as f64 * (audited - i + 1) as f64)
        };
        // Fewer misses drawn than the sound units leave room for cannot happen.
        let least = (audited + misses).saturating_sub(population);
        at_most(log, least, found, step) >= threshold(alpha_ppm)
    };
    let (mut low, mut high) = (found, population - (audited - found));
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if holds(middle) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    low
}

/// Upper bound of the share of misses, in parts per million, in a population without end.
///
/// The exact bound rounded up to a whole part per million. Source: Clopper and Pearson, "The use of
/// confidence or fiducial limits illustrated in the case of the binomial", Biometrika 26 (1934),
/// one-sided.
///
/// # Panics
/// If `found > audited`.
pub fn rate_upper_ppm(audited: u64, found: u64, alpha_ppm: u32) -> u32 {
    assert!(found <= audited, "found {found} of {audited} audited units");
    let holds = |ppm: u32| {
        let share = f64::from(ppm) / f64::from(PPM);
        let log = log_binomial(share, audited, found);
        let odds = (1.0 - share) / share;
        let step = |i| odds * i as f64 / (audited - i + 1) as f64;
        at_most(log, 0, found, step) >= threshold(alpha_ppm)
    };
    if found == audited {
        return PPM;
    }
    // `low` holds or is 0, where nothing can be found that is not there; `high` does not hold.
    let (mut low, mut high) = (0, PPM);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if holds(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

fn threshold(alpha_ppm: u32) -> f64 {
    f64::from(alpha_ppm) / f64::from(PPM) * (1.0 - ROUNDING)
}

/// Probability of `least..=found`, from the logarithm of that of `found` downwards; `step(i)` is
/// the ratio of the probability of `i - 1` to that of `i`.
fn at_most(log_found: f64, least: u64, found: u64, step: impl Fn(u64) -> f64) -> f64 {
    let mut log = log_found;
    let mut sum = log.exp();
    for i in (least + 1..=found).rev() {
        log += step(i).ln();
        sum += log.exp();
    }
    sum
}

/// Logarithm of the probability of `found` misses among `audited` of `population` units.
///
/// A product of ratios: no factorial, whose logarithm would lose digits for large populations.
fn log_hypergeometric(population: u64, misses: u64, audited: u64, found: u64) -> f64 {
    let ratio = |over: u64, under: u64| (over as f64 / under as f64).ln();
    let sound = population - misses;
    let of_misses: f64 = (0..found)
        .map(|i| ratio(misses - i, population - i) + ratio(audited - i, found - i))
        .sum();
    let of_sound: f64 = (0..audited - found)
        .map(|i| ratio(sound - i, population - found - i))
        .sum();
    of_misses + of_sound
}

/// Logarithm of the probability of `found` misses among `audited` units at a share of `share`.
fn log_binomial(share: f64, audited: u64, found: u64) -> f64 {
    let ways: f64 = (0..found)
        .map(|i| ((audited - i) as f64 / (found - i) as f64).ln())
        .sum();
    ways + found as f64 * share.ln() + (audited - found) as f64 * (-share).ln_1p()
}
