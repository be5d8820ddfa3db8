//! A dense projection on the CPU: `[rows, inputs]` to `[rows, outputs]`, in one of the numerics
//! tiers.

use gemm::Parallelism;

use super::integer::Finish;
use super::isa::Isa;
use super::{int8, int16, math};

/// Number format of the projections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Numerics {
    /// 32-bit floats throughout.
    F32,
    /// 12-bit weights and 13-bit activations in 16-bit integers, scales per group.
    Int16,
    /// 8-bit weights and activations, scales per group, for the rows of records; the rubric and
    /// decoded text as in [`Numerics::Int16`].
    Int8,
    /// As [`Numerics::Int8`], and records whose answer that leaves unclear again as in
    /// [`Numerics::Int16`]. On machines without 8-bit accumulation, where it would not pay,
    /// [`Numerics::Int16`] alone.
    #[default]
    Auto,
}

impl Numerics {
    /// Every tier.
    pub const ALL: [Self; 4] = [Self::F32, Self::Int16, Self::Int8, Self::Auto];

    /// What this machine makes of it.
    pub fn resolve(self) -> Self {
        match self {
            Self::Auto if !matches!(Isa::detect(), Isa::Avx512Vnni | Isa::AvxVnni) => Self::Int16,
            other => other,
        }
    }

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Int16 => "int16",
            Self::Int8 => "int8",
            Self::Auto => "auto",
        }
    }
}

/// Rounded activations of the integer tiers: scratch that keeps its memory.
#[derive(Debug, Default)]
pub struct Rounded {
    int16: int16::RoundedRows,
    int8: int8::RoundedRows,
}

/// Weights of one projection.
#[derive(Debug)]
enum Weight {
    /// Contiguous `[outputs, inputs]`, as model files store them.
    F32(Vec<f32>),
    Int16(int16::Panels),
}

/// One projection with its optional bias.
#[derive(Debug)]
pub struct Linear {
    inputs: usize,
    outputs: usize,
    weight: Weight,
    coarse: Option<int8::Panels>,
    bias: Option<Vec<f32>>, // [outputs]
}

impl Linear {
    /// Takes weights `[outputs, inputs]` and puts them into the tier's formats. Widths that an
    /// integer format cannot group stay in the next finer one.
    ///
    /// # Panics
    /// If the sizes do not agree.
    pub fn new(
        inputs: usize,
        outputs: usize,
        weight: Vec<f32>,
        bias: Option<Vec<f32>>,
        numerics: Numerics,
    ) -> Self {
        assert_eq!(weight.len(), inputs * outputs);
        assert!(bias.as_ref().is_none_or(|bias| bias.len() == outputs));
        let isa = Isa::detect();
        let coarse = match numerics {
            Numerics::Int8 | Numerics::Auto => int8::Panels::pack(&weight, inputs, outputs, isa),
            Numerics::F32 | Numerics::Int16 => None,
        };
        let packed = match numerics {
            Numerics::F32 => None,
            _ => int16::Panels::pack(&weight, inputs, outputs, isa).map(Weight::Int16),
        };
        Self {
            inputs,
            outputs,
            weight: packed.unwrap_or(Weight::F32(weight)),
            coarse,
            bias,
        }
    }

    /// out = x * weight^T + bias. `x` is `[rows, inputs]`, `out` is `[rows, outputs]`; `coarse`
    /// allows the tier's coarser format, where it has one; `rounded` is scratch that keeps its
    /// memory.
    ///
    /// # Panics
    /// If the sizes do not agree.
    pub fn forward(&self, x: &[f32], coarse: bool, rounded: &mut Rounded, out: &mut [f32]) {
        match (&self.coarse, &self.weight) {
            (Some(panels), _) if coarse => panels.forward(x, &mut rounded.int8, Finish::Plain, out),
            (_, Weight::F32(weight)) => self.multiply(weight, x, out),
            (_, Weight::Int16(panels)) => panels.forward(x, &mut rounded.int16, Finish::Plain, out),
        }
        if let Some(bias) = &self.bias {
            out.chunks_exact_mut(self.outputs)
                .for_each(|row| math::add(row, bias));
        }
    }

    /// As [`Linear::forward`] for weights whose outputs alternate: 16 gates, then their 16 ups; out is
    /// silu(gate) * up, half as wide. Returns whether the tier can do so; else nothing is written.
    pub(super) fn forward_gated(
        &self,
        x: &[f32],
        coarse: bool,
        rounded: &mut Rounded,
        out: &mut [f32],
    ) -> bool {
        match (&self.coarse, &self.weight) {
            (Some(panels), _) if coarse => {
                panels.forward(x, &mut rounded.int8, Finish::Gated, out);
            }
            (_, Weight::F32(_)) => return false,
            (_, Weight::Int16(panels)) => {
                panels.forward(x, &mut rounded.int16, Finish::Gated, out);
            }
        }
        true
    }

    #[allow(unsafe_code)]
    fn multiply(&self, weight: &[f32], x: &[f32], out: &mut [f32]) {
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
                weight.as_ptr(),
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
    }
}
