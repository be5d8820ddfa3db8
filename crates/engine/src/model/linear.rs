//! A dense projection on the CPU: `[rows, inputs]` to `[rows, outputs]`, in one of the numerics
//! tiers.

use gemm::Parallelism;

use super::math;

/// A projection in f32, weights contiguous `[outputs, inputs]` as model files store them.
#[derive(Debug)]
pub struct Linear {
    inputs: usize,
    outputs: usize,
    weight: Vec<f32>,       // [outputs, inputs]
    bias: Option<Vec<f32>>, // [outputs]
}

impl Linear {
    /// Takes the weights.
    ///
    /// # Panics
    /// If the sizes do not agree.
    pub fn new(inputs: usize, outputs: usize, weight: Vec<f32>, bias: Option<Vec<f32>>) -> Self {
        assert_eq!(weight.len(), inputs * outputs);
        assert!(bias.as_ref().is_none_or(|bias| bias.len() == outputs));
        Self {
            inputs,
            outputs,
            weight,
            bias,
        }
    }

    /// Outputs per row.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// One row of the weights, `[inputs]`.
    pub fn row(&self, index: usize) -> &[f32] {
        &self.weight[index * self.inputs..(index + 1) * self.inputs]
    }

    /// out = x * weight^T + bias. `x` is `[rows, inputs]`, `out` is `[rows, outputs]`.
    #[allow(unsafe_code)]
    pub fn forward(&self, x: &[f32], out: &mut [f32]) {
        let rows = x.len() / self.inputs;
        assert_eq!(x.len(), rows * self.inputs);
        assert_eq!(out.len(), rows * self.outputs);
        if rows == 0 {
            return;
        }
        // SAFETY: the asserted sizes are those of the three row-major matrices; none overlap.
        unsafe {
            gemm::gemm(
                rows,
                self.outputs,
                self.inputs,
                out.as_mut_ptr(),
                1,
                self.outputs as isize,
                false,
                x.as_ptr(),
                1,
                self.inputs as isize,
                self.weight.as_ptr(),
                self.inputs as isize,
                1,
                0.0,
                1.0,
                false,
                false,
                false,
                Parallelism::Rayon(0),
            );
        }
        if let Some(bias) = &self.bias {
            out.chunks_exact_mut(self.outputs)
                .for_each(|row| math::add(row, bias));
        }
    }
}
