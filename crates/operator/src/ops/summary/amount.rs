//! Exact decimal numbers as texts write them, and how they compare with folded ones.
//!
//! Whole-number arithmetic throughout: no float decides whether a number is true. Must not know
//! texts or claims.

/// A decimal number: `digits / 10^scale`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Amount {
    digits: i128,
    scale: u32,
}

/// More decimals or digits than this are no number that a fold gives.
const DIGITS_MAX: usize = 30;

impl Amount {
    /// A whole number.
    pub(super) const fn whole(number: i128) -> Self {
        Self {
            digits: number,
            scale: 0,
        }
    }

    /// A number given in thousandths, as means are.
    pub(super) const fn milli(number: i128) -> Self {
        Self {
            digits: number,
            scale: 3,
        }
    }

    /// Reads the digits before and after the point; none where there are too many, or where a zero
    /// stands in front of more digits.
    pub(super) fn parse(whole: &str, decimals: &str, negative: bool) -> Option<Self> {
        if whole.len() + decimals.len() > DIGITS_MAX || (whole.len() > 1 && whole.starts_with('0'))
        {
            return None;
        }
        let size: i128 = format!("{whole}{decimals}").parse().ok()?;
        Some(Self {
            digits: if negative { -size } else { size },
            scale: decimals.len() as u32,
        })
    }

    /// The number times a whole one; none where it no longer fits.
    pub(super) fn times(self, factor: u64) -> Option<Self> {
        let digits = self.digits.checked_mul(i128::from(factor))?;
        Some(Self { digits, ..self })
    }

    /// Whether both are the same number; zeros at the end of the decimals do not matter.
    pub(super) fn equals(self, other: Self) -> bool {
        let (one, other) = (self.reduced(), other.reduced());
        (one.digits, one.scale) == (other.digits, other.scale)
    }

    /// Whether the number is `part / whole` in percent, rounded half up to its own decimals.
    pub(super) fn is_percent_of(self, part: u64, whole: u64) -> bool {
        if whole == 0 || part > whole {
            return false;
        }
        let Some(unit) = 10_i128.checked_pow(self.scale + 2) else {
            return false;
        };
        let (part, whole) = (i128::from(part), i128::from(whole));
        let doubled = part.checked_mul(unit).and_then(|n| n.checked_mul(2));
        doubled.is_some_and(|doubled| (doubled + whole).div_euclid(2 * whole) == self.digits)
    }

    fn reduced(mut self) -> Self {
        while self.scale > 0 && self.digits % 10 == 0 {
            self.digits /= 10;
            self.scale -= 1;
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Amount {
        let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
        Amount::parse(whole, decimals, false).unwrap()
    }

    #[test]
    fn zeros_behind_the_point_do_not_matter_and_in_front_are_refused() {
        assert!(read("1.500").equals(Amount::milli(1_500)));
        assert!(read("1.5").equals(Amount::milli(1_500)));
        assert!(!read("1.5").equals(Amount::milli(1_501)));
        assert!(read("0").equals(Amount::whole(0)));
        assert_eq!(Amount::parse("007", "", false), None);
        assert_eq!(Amount::parse(&"9".repeat(31), "", false), None);
    }

    #[test]
    fn a_percentage_is_a_ratio_rounded_to_what_is_printed() {
        for (text, part, whole, holds) in [
            ("33", 1, 3, true),
            ("33.3", 1, 3, true),
            ("33.33", 1, 3, true),
            ("33.4", 1, 3, false),
            ("34", 1, 3, false),
            ("13", 1, 8, true),
            ("12", 1, 8, false),
            ("12.5", 1, 8, true),
            ("12.50", 1, 8, true),
            ("100", 8, 8, true),
            ("0", 0, 8, true),
            ("150", 12, 8, false),
            ("0", 0, 0, false),
        ] {
            let found = read(text).is_percent_of(part, whole);
            assert_eq!(found, holds, "{text} % = {part} / {whole}");
        }
        assert!(!read("0.0000000000000000000000000001").is_percent_of(u64::MAX, u64::MAX));
    }
}
