//! Natural logarithms of ratios in whole nano-nats, with a known direction of rounding.
//!
//! Integers throughout: the same on every machine, so that two runs open a breaker at the same unit.

/// Fixed point of the series: 18 decimals.
const ONE: i128 = 1_000_000_000_000_000_000;
/// ln 2 in that fixed point.
const LN_2: i128 = 693_147_180_559_945_309;
/// More than all truncations of the series together can amount to.
const ERROR: i128 = 10_000;
/// Units of the fixed point in a nano-nat.
const NANO: i128 = 1_000_000_000;

/// `ln(numerator / denominator)`, rounded down to a nano-nat.
///
/// # Panics
/// If either is zero.
pub(super) fn ln_floor(numerator: u64, denominator: u64) -> i64 {
    (ln(numerator, denominator) - ERROR).div_euclid(NANO) as i64
}

/// `ln(numerator / denominator)`, rounded up to a nano-nat.
///
/// # Panics
/// If either is zero.
pub(super) fn ln_ceil(numerator: u64, denominator: u64) -> i64 {
    -ln_floor(denominator, numerator)
}

/// By `ln x = 2 artanh((x - 1) / (x + 1))` after halving or doubling into `1/2..2`.
fn ln(numerator: u64, denominator: u64) -> i128 {
    assert!(
        numerator > 0 && denominator > 0,
        "the logarithm of {numerator}/{denominator} is not finite"
    );
    let (mut over, mut under) = (i128::from(numerator), i128::from(denominator));
    let mut twos = 0;
    while over > 2 * under {
        under *= 2;
        twos += 1;
    }
    while under > 2 * over {
        over *= 2;
        twos -= 1;
    }
    // Both are under 2^66 here, so that the product fits.
    let z = (over - under) * ONE / (over + under);
    let square = z * z / ONE;
    let (mut power, mut sum, mut odd) = (z, 0, 1);
    while power != 0 {
        sum += power / odd;
        power = power * square / ONE;
        odd += 2;
    }
    2 * sum + twos * LN_2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_logarithms_are_right_to_the_last_digit() {
        assert_eq!(ln_floor(6, 1), 1_791_759_469);
        assert_eq!(ln_ceil(100, 1), 4_605_170_186);
        assert_eq!(ln_floor(14, 19), -305_381_650);
        assert_eq!((ln_floor(1, 1), ln_ceil(1, 1)), (-1, 1));
        assert_eq!(ln_floor(u64::MAX, 1), 44_361_419_555);
    }

    #[test]
    fn rounding_keeps_its_direction_and_stays_within_a_nano_nat() {
        for numerator in (1..1_000_000_u64).step_by(9_973) {
            for denominator in (1..1_000_000_u64).step_by(7_919) {
                let exact = (numerator as f64 / denominator as f64).ln() * 1e9;
                let (low, high) = (
                    ln_floor(numerator, denominator),
                    ln_ceil(numerator, denominator),
                );
                assert!(low <= high && high - low <= 2);
                assert!((low as f64 - exact).abs() < 1.01);
                assert!((high as f64 - exact).abs() < 1.01);
            }
        }
    }
}
