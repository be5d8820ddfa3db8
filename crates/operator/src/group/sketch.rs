//! A text as its heaviest terms, so that two texts are compared without reading them again.
//!
//! A term weighs `(1 + log2 f) * log2(n / d)`: `f` times in the text, in `d` of `n` texts. The
//! `TERMS_MAX` heaviest are kept by hash, about 1 KiB a text. All of it is computed in whole numbers, logarithms
//! to 16 binary places, so that the same texts are as similar on every machine. Must not know records.

use std::collections::HashMap;

/// Terms that are kept of a text.
const TERMS_MAX: usize = 64;
/// Longest term in bytes; a longer run of letters is no word.
const TERM_BYTES_MAX: usize = 64;
/// Binary places of logarithms and weights.
const PLACES: u32 = 16;

/// A term by its hash.
pub(super) type Term = u64;

/// How often each term occurs in some texts of one record.
#[derive(Debug, Default)]
pub(super) struct Terms(HashMap<Term, u32>);

impl Terms {
    /// Counts the terms of a text: runs of letters and digits in lower case, two characters at least.
    pub(super) fn add(&mut self, text: &str) {
        let words = text.split(|c: char| !c.is_alphanumeric());
        for word in words.filter(|word| word.len() <= TERM_BYTES_MAX) {
            if word.chars().nth(1).is_none() {
                continue;
            }
            let digest = blake3::hash(word.to_lowercase().as_bytes());
            let mut term = [0; 8];
            term.copy_from_slice(&digest.as_bytes()[..8]);
            let count = self.0.entry(u64::from_le_bytes(term)).or_default();
            *count = count.saturating_add(1);
        }
    }
}

/// In how many texts each term occurs.
#[derive(Debug, Default)]
pub(super) struct Census {
    texts: u64,
    texts_of: HashMap<Term, u32>,
}

impl Census {
    /// Counts the terms of one more text.
    pub(super) fn add(&mut self, terms: &Terms) {
        self.texts += 1;
        for term in terms.0.keys() {
            let texts = self.texts_of.entry(*term).or_default();
            *texts = texts.saturating_add(1);
        }
    }

    /// Keeps the heaviest terms of a text that was counted.
    pub(super) fn sketch(&self, terms: &Terms) -> Sketch {
        let mut weighed: Vec<(Term, u32)> = terms
            .0
            .iter()
            .filter_map(|(term, count)| {
                let texts = self.texts_of.get(term).copied().unwrap_or(1);
                let often = (1 << PLACES) + log2(u64::from(*count));
                let rare = log2(self.texts).saturating_sub(log2(u64::from(texts)));
                let weight = u32::try_from((often * rare) >> PLACES).ok()?;
                (weight > 0).then_some((*term, weight))
            })
            .collect();
        weighed.sort_unstable_by_key(|(term, weight)| (std::cmp::Reverse(*weight), *term));
        weighed.truncate(TERMS_MAX);
        weighed.sort_unstable();
        let norm = weighed.iter().map(|(_, w)| u64::from(*w).pow(2)).sum();
        Sketch {
            terms: weighed,
            norm,
        }
    }
}

/// The heaviest terms of a text with their weights, by term.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Sketch {
    terms: Vec<(Term, u32)>,
    /// Sum of the squared weights.
    norm: u64,
}

impl Sketch {
    pub(super) fn terms(&self) -> impl Iterator<Item = (Term, u32)> {
        self.terms.iter().copied()
    }

    /// The cosine of two sketches in parts per million; 0 where one has no term.
    pub(super) fn similarity(&self, other: &Self) -> u32 {
        let (mut dot, mut at) = (0_u64, 0);
        for (term, weight) in &self.terms {
            while other.terms.get(at).is_some_and(|(held, _)| held < term) {
                at += 1;
            }
            if let Some((held, theirs)) = other.terms.get(at)
                && held == term
            {
                dot += u64::from(*weight) * u64::from(*theirs);
            }
        }
        let length = (u128::from(self.norm) * u128::from(other.norm)).isqrt();
        let cosine = (u128::from(dot) * 1_000_000)
            .checked_div(length)
            .unwrap_or(0);
        // The root is rounded down, so that equal texts could exceed the whole.
        u32::try_from(cosine.min(1_000_000)).unwrap_or(1_000_000)
    }
}

/// The binary logarithm to `PLACES` places, rounded down; 0 for 0.
fn log2(number: u64) -> u64 {
    let Some(whole) = number.checked_ilog2() else {
        return 0;
    };
    // The number over 2^whole, from 1 to 2, to 31 places; each squaring yields one more place.
    let mut rest = u128::from(number) << 31 >> whole;
    let mut log = u64::from(whole);
    for _ in 0..PLACES {
        rest = (rest * rest) >> 31;
        log <<= 1;
        if rest >= 1 << 32 {
            rest >>= 1;
            log |= 1;
        }
    }
    log
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sketches(texts: &[&str]) -> Vec<Sketch> {
        let terms: Vec<Terms> = texts
            .iter()
            .map(|text| {
                let mut terms = Terms::default();
                terms.add(text);
                terms
            })
            .collect();
        let mut census = Census::default();
        terms.iter().for_each(|terms| census.add(terms));
        terms.iter().map(|terms| census.sketch(terms)).collect()
    }

    #[test]
    fn logarithms_are_right_to_their_last_place() {
        for number in [1_u64, 2, 3, 7, 10, 1_000, 65_535, 65_536, u64::MAX] {
            let right = (number as f64).log2() * f64::from(1 << PLACES);
            assert!((log2(number) as f64 - right).abs() <= 1.5, "{number}");
        }
        assert_eq!(log2(0), 0);
    }

    #[test]
    fn equal_texts_are_whole_and_strange_ones_nothing_to_each_other() {
        let all = sketches(&[
            "Token refresh fails",
            "token, refresh: FAILS!",
            "disk is full",
            "…",
        ]);
        assert_eq!(all[0].similarity(&all[1]), 1_000_000);
        assert_eq!(all[0].similarity(&all[2]), 0);
        assert_eq!(all[3].similarity(&all[3]), 0, "a text without words");
        let some = sketches(&["token refresh fails", "token refresh hangs", "disk is full"]);
        let ppm = some[0].similarity(&some[1]);
        assert!((1..1_000_000).contains(&ppm) && ppm == some[1].similarity(&some[0]));
    }

    #[test]
    fn a_rare_word_in_common_weighs_more_than_a_frequent_one() {
        let all = sketches(&[
            "build heisenbug",
            "release heisenbug",
            "build failed",
            "build slow",
            "build red",
        ]);
        assert!(all[0].similarity(&all[1]) > all[0].similarity(&all[2]));
    }
}
