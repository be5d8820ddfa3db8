//! The gate and up projections of a feed-forward part, which share their input, and the activation
//! that joins them: silu(x * gate^T) * (x * up^T).
//!
//! In the integer tiers a panel holds gates and their ups, so that they are joined where they were
//! summed and never written apart.

use rayon::prelude::*;

use super::integer::PANEL;
use super::linear::{Linear, Numerics, Rounded};
use super::math;

/// Both projections.
#[derive(Debug)]
pub struct Gated {
    wide: usize,
    block: usize, // gates that lie side by side, followed by their ups
    weight: Linear,
}

impl Gated {
    /// Takes both weights, `[wide, inputs]` each.
    ///
    /// # Panics
    /// If the sizes do not agree.
    pub fn new(inputs: usize, gate: &[f32], up: &[f32], numerics: Numerics) -> Self {
        const HALF: usize = PANEL / 2;
        let wide = gate.len() / inputs;
        assert!(gate.len() == wide * inputs && up.len() == gate.len());
        let block = if wide.is_multiple_of(HALF) {
            HALF
        } else {
            wide
        };
        let mut weight = Vec::with_capacity(2 * gate.len());
        for (gate, up) in gate.chunks(block * inputs).zip(up.chunks(block * inputs)) {
            weight.extend_from_slice(gate);
            weight.extend_from_slice(up);
        }
        Self {
            wide,
            block,
            weight: Linear::new(inputs, 2 * wide, weight, None, numerics),
        }
    }

    /// `x` is `[rows, inputs]`, `out` is `[rows, wide]`; `coarse` as for [`Linear::forward`];
    /// `rounded` and `scratch` keep their memory.
    ///
    /// # Panics
    /// If the sizes do not agree.
    pub fn forward(
        &self,
        x: &[f32],
        coarse: bool,
        rounded: &mut Rounded,
        scratch: &mut Vec<f32>,
        out: &mut [f32],
    ) {
        if 2 * self.block == PANEL && self.weight.forward_gated(x, coarse, rounded, out) {
            return;
        }
        if scratch.len() < 2 * out.len() {
            scratch.resize(2 * out.len(), 0.0);
        }
        let both = &mut scratch[..2 * out.len()];
        self.weight.forward(x, coarse, rounded, both);
        out.par_chunks_mut(self.wide)
            .with_min_len(16)
            .zip(both.par_chunks(2 * self.wide))
            .for_each(|(out, both)| {
                let blocks = both.chunks_exact(2 * self.block);
                for (out, both) in out.chunks_exact_mut(self.block).zip(blocks) {
                    let (gate, up) = both.split_at(self.block);
                    math::swiglu(gate, up, out);
                }
            });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::samples::values;

    #[test]
    fn joined_projections_equal_separate_ones_in_every_tier_and_width() {
        // Whole panels, a last one that is not whole, and a width that cannot be cut into halves.
        for (rows, inputs, wide) in [(3, 64, 32), (37, 128, 48), (5, 64, 20)] {
            let (gate, up) = (values(wide * inputs, 1), values(wide * inputs, 2));
            let x = values(rows * inputs, 3);
            for numerics in Numerics::ALL {
                for coarse in [false, true] {
                    let mut rounded = Rounded::default();
                    let mut apart = [&gate, &up].map(|weight| {
                        let linear = Linear::new(inputs, wide, weight.clone(), None, numerics);
                        let mut out = vec![0.0; rows * wide];
                        linear.forward(&x, coarse, &mut rounded, &mut out);
                        out
                    });
                    let [gates, ups] = &mut apart;
                    let mut want = vec![0.0; rows * wide];
                    math::swiglu(gates, ups, &mut want);
                    let joined = Gated::new(inputs, &gate, &up, numerics);
                    let mut got = vec![f32::NAN; rows * wide];
                    joined.forward(&x, coarse, &mut rounded, &mut Vec::new(), &mut got);
                    for (got, want) in got.iter().zip(&want) {
                        let error = (got - want).abs();
                        assert!(error < 1e-4, "{numerics:?} {rows} {inputs} {wide}: {error}");
                    }
                }
            }
        }
    }
}
