//! Numbers that follow from a seed.

/// SplitMix64. Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (2014).
pub(super) struct Numbers(u64);

impl Numbers {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number under `end`, which is at least 1; the bias of the remainder is under one in 2^32 here.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// True with so many parts per million.
    pub(super) fn happens(&mut self, ppm: u32) -> bool {
        self.below(u64::from(crate::infer::PPM)) < u64::from(ppm)
    }
}
