//! The likelihood-ratio e-process over hits and misses.
//!
//! Its value is the product of `p1/p0` for each miss and `(1-p1)/(1-p0)` for each hit. While every
//! trial is missed with a probability of at most `p0`, whatever came before it, the product is a
//! non-negative supermartingale that starts at 1, so that it ever reaches `1/alpha` with a
//! probability of at most `alpha`, however often one looks. Source: Ville's inequality, as in
//! Ramdas et al., "Game-theoretic statistics and safe anytime-valid inference" (2023).

use super::logarithm::{ln_ceil, ln_floor};
use crate::infer::PPM;

/// The declared rates and the allowed probability of a false alarm, in parts per million.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EProcessSpec {
    /// The tolerated miss rate.
    pub p0_ppm: u32,
    /// The bad miss rate that is to be noticed; more than `p0_ppm`.
    pub p1_ppm: u32,
    /// Most probable false alarm over a whole run.
    pub alpha_ppm: u32,
}

impl Default for EProcessSpec {
    fn default() -> Self {
        Self {
            p0_ppm: 50_000,
            p1_ppm: 300_000,
            alpha_ppm: 10_000,
        }
    }
}

/// Accumulates evidence in nano-nats, each step rounded against opening.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EProcess {
    miss: i64,
    hit: i64,
    threshold: i64,
    evidence: i64,
    judged: u64,
    misses: u64,
    open: bool,
}

impl EProcess {
    /// Starts at no evidence; `shares` processes divide `alpha` between them.
    ///
    /// # Panics
    /// If not `0 < p0 < p1 < 1` and `0 < alpha < 1`, or `shares` is 0.
    pub fn new(spec: EProcessSpec, shares: u32) -> Self {
        let EProcessSpec {
            p0_ppm,
            p1_ppm,
            alpha_ppm,
        } = spec;
        assert!(
            0 < p0_ppm && p0_ppm < p1_ppm && p1_ppm < PPM,
            "rates {p0_ppm} and {p1_ppm} ppm are not in order between none and all"
        );
        assert!(
            0 < alpha_ppm && alpha_ppm < PPM && shares > 0,
            "alpha {alpha_ppm} ppm for {shares} processes"
        );
        let ppm = u64::from(PPM);
        Self {
            miss: ln_floor(p1_ppm.into(), p0_ppm.into()),
            hit: ln_floor(ppm - u64::from(p1_ppm), ppm - u64::from(p0_ppm)),
            threshold: ln_ceil(ppm * u64::from(shares), alpha_ppm.into()),
            evidence: 0,
            judged: 0,
            misses: 0,
            open: false,
        }
    }

    /// Takes one trial; true when the breaker is open, which it then stays.
    pub fn observe(&mut self, missed: bool) -> bool {
        self.judged += 1;
        self.misses += u64::from(missed);
        let step = if missed { self.miss } else { self.hit };
        self.evidence = self.evidence.saturating_add(step);
        self.open |= self.evidence >= self.threshold;
        self.open
    }

    /// Whether it has opened.
    pub const fn is_open(&self) -> bool {
        self.open
    }

    /// The logarithm of its value, in nano-nats.
    pub const fn evidence_nano(&self) -> i64 {
        self.evidence
    }

    /// The evidence at which it opens, in nano-nats.
    pub const fn threshold_nano(&self) -> i64 {
        self.threshold
    }

    /// Trials so far.
    pub const fn judged(&self) -> u64 {
        self.judged
    }

    /// Misses so far.
    pub const fn misses(&self) -> u64 {
        self.misses
    }

    /// Fewest trials after which it can be open: with fewer it never opens.
    pub fn least(&self) -> u64 {
        (self.threshold.max(1) as u64).div_ceil(self.miss.max(1) as u64)
    }
}
