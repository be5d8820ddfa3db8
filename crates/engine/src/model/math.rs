//! Element-wise pieces of the CPU forward: exponential, RMS norm, SwiGLU, rotary embedding.
//!
//! Plain loops that the compiler vectorises; each is compiled for AVX-512, for AVX2 with FMA and plainly, chosen at run
//! time, so that a default build is fast and still runs anywhere.

use super::integer::{Columns, PANEL};
use super::isa::Isa;

/// Multiplies and adds, fused where the target has it.
#[inline(always)]
fn fused<const FMA: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FMA { a.mul_add(b, c) } else { a * b + c }
}

/// e^x for x <= 88 with a relative error under 1e-6 (Cephes polynomial, degree 6).
#[inline(always)]
fn exponential<const FMA: bool>(x: f32) -> f32 {
    // Adding and subtracting 1.5 * 2^23 rounds to the nearest integer without a library call.
    const ROUND: f32 = 12_582_912.0;
    let x = x.clamp(-87.0, 88.0);
    let shifted = fused::<FMA>(x, std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = fused::<FMA>(n, -0.693_359_4, x);
    let r = fused::<FMA>(n, 2.121_944_4e-4, r);
    let p = fused::<FMA>(1.987_569_1e-4, r, 1.398_199_9e-3);
    let p = fused::<FMA>(p, r, 8.333_452e-3);
    let p = fused::<FMA>(p, r, 4.166_579_6e-2);
    let p = fused::<FMA>(p, r, 1.666_666_5e-1);
    let p = fused::<FMA>(p, r, 0.5);
    let p = fused::<FMA>(p, r * r, r) + 1.0;
    // The integer already sits in the low bits of `shifted`: no conversion is needed.
    let exponent = shifted
        .to_bits()
        .wrapping_sub(ROUND.to_bits())
        .wrapping_add(127)
        << 23;
    p * f32::from_bits(exponent)
}

macro_rules! dispatched {
    ($(#[$doc:meta])* $name:ident, $body:ident, ($($arg:ident: $ty:ty),*) $(-> $ret:ty)?) => {
        $(#[$doc])*
        #[allow(unsafe_code)]
        pub fn $name($($arg: $ty),*) $(-> $ret)? {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f")]
                fn widest($($arg: $ty),*) $(-> $ret)? {
                    $body::<true>($($arg),*)
                }
                #[target_feature(enable = "avx2,fma")]
                fn wide($($arg: $ty),*) $(-> $ret)? {
                    $body::<true>($($arg),*)
                }
                if Isa::detect() >= Isa::Avx512Vnni {
                    // SAFETY: the features were just detected.
                    return unsafe { widest($($arg),*) };
                }
                if Isa::detect() >= Isa::Avx2 {
                    // SAFETY: the features were just detected.
                    return unsafe { wide($($arg),*) };
                }
            }
            $body::<{ cfg!(target_arch = "aarch64") }>($($arg),*)
        }
    };
}

const LANES: usize = 16;

#[inline(always)]
fn exponentials_body<const FMA: bool>(scores: &mut [f32], max: f32) -> f32 {
    let mut sums = [0.0f32; LANES];
    let mut chunks = scores.chunks_exact_mut(LANES);
    for chunk in &mut chunks {
        for (lane, score) in chunk.iter_mut().enumerate() {
            *score = exponential::<FMA>(*score - max);
            sums[lane] += *score;
        }
    }
    let mut sum: f32 = sums.iter().sum();
    for score in chunks.into_remainder() {
        *score = exponential::<FMA>(*score - max);
        sum += *score;
    }
    sum
}

dispatched!(
    /// Replaces each score by e^(score - max) and returns their sum.
    exponentials, exponentials_body, (scores: &mut [f32], max: f32) -> f32
);

#[inline(always)]
fn maximum_body<const FMA: bool>(values: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let mut chunks = values.chunks_exact(LANES);
    for chunk in &mut chunks {
        for (lane, &value) in lanes.iter_mut().zip(chunk) {
            *lane = if value > *lane { value } else { *lane };
        }
    }
    let mut max = f32::NEG_INFINITY;
    for &value in lanes.iter().chain(chunks.remainder()) {
        max = if value > max { value } else { max };
    }
    max
}

dispatched!(
    /// Largest value, or negative infinity for none.
    maximum, maximum_body, (values: &[f32]) -> f32
);

#[inline(always)]
fn dots_body<const FMA: bool>(query: &[f32], dim: usize, key: &[f32], scores: &mut [f32]) {
    for (row, score) in query.chunks_exact(dim).zip(scores) {
        let mut sums = [0.0f32; LANES];
        let (rows, keys) = (row.chunks_exact(LANES), key.chunks_exact(LANES));
        let rest = rows.remainder().iter().zip(keys.remainder());
        for (row, key) in rows.clone().zip(keys.clone()) {
            for (sum, (&a, &b)) in sums.iter_mut().zip(row.iter().zip(key)) {
                *sum = fused::<FMA>(a, b, *sum);
            }
        }
        let rest: f32 = rest.map(|(a, b)| a * b).sum();
        *score = sums.iter().sum::<f32>() + rest;
    }
}

dispatched!(
    /// The products of every query row, `[rows, dim]`, with one key, `[dim]`.
    dots, dots_body, (query: &[f32], dim: usize, key: &[f32], scores: &mut [f32])
);

#[inline(always)]
fn rms_norm_body<const FMA: bool>(row: &[f32], weight: &[f32], epsilon: f32, out: &mut [f32]) {
    let mut sums = [0.0f32; LANES];
    let mut chunks = row.chunks_exact(LANES);
    for chunk in &mut chunks {
        for (sum, &value) in sums.iter_mut().zip(chunk) {
            *sum = fused::<FMA>(value, value, *sum);
        }
    }
    let rest: f32 = chunks.remainder().iter().map(|value| value * value).sum();
    let mean = (sums.iter().sum::<f32>() + rest) / row.len() as f32;
    let scale = 1.0 / (mean + epsilon).sqrt();
    for ((out, &value), &weight) in out.iter_mut().zip(row).zip(weight) {
        *out = value * scale * weight;
    }
}

dispatched!(
    /// Root-mean-square norm of one row, times `weight`.
    rms_norm, rms_norm_body, (row: &[f32], weight: &[f32], epsilon: f32, out: &mut [f32])
);

#[inline(always)]
fn swiglu_body<const FMA: bool>(gate: &[f32], up: &[f32], out: &mut [f32]) {
    for ((out, &gate), &up) in out.iter_mut().zip(gate).zip(up) {
        *out = gate / (1.0 + exponential::<FMA>(-gate)) * up;
    }
}

dispatched!(
    /// silu(gate) * up, element by element.
    swiglu, swiglu_body, (gate: &[f32], up: &[f32], out: &mut [f32])
);

#[inline(always)]
fn gate_columns_body<const FMA: bool>(tile: &mut [Columns<f32>]) {
    for row in tile {
        let (gate, up) = row.0.split_at_mut(PANEL / 2);
        for (gate, up) in gate.iter_mut().zip(up) {
            *gate = *gate / (1.0 + exponential::<FMA>(-*gate)) * *up;
        }
    }
}

dispatched!(
    /// Puts silu(gate) * up into the first half of every row: gates lie there, ups in the second.
    gate_columns, gate_columns_body, (tile: &mut [Columns<f32>])
);

#[inline(always)]
fn add_body<const FMA: bool>(target: &mut [f32], source: &[f32]) {
    for (target, &source) in target.iter_mut().zip(source) {
        *target += source;
    }
}

dispatched!(
    /// target += source, element by element.
    add, add_body, (target: &mut [f32], source: &[f32])
);

#[inline(always)]
fn rotate_body<const FMA: bool>(head: &mut [f32], cos: &[f32], sin: &[f32]) {
    let (low, high) = head.split_at_mut(cos.len());
    for ((low, high), (&cos, &sin)) in low.iter_mut().zip(high).zip(cos.iter().zip(sin)) {
        let (a, b) = (*low, *high);
        *low = a * cos - b * sin;
        *high = b * cos + a * sin;
    }
}

dispatched!(
    /// Rotary embedding of one head in halves: pairs are (j, j + head_dim / 2).
    rotate, rotate_body, (head: &mut [f32], cos: &[f32], sin: &[f32])
);

/// Cosines and sines per position, grown as longer contexts come.
#[derive(Debug)]
pub struct RotaryTable {
    half: usize,
    base: f32,
    cos: Vec<f32>, // [positions, half]
    sin: Vec<f32>, // [positions, half]
}

impl RotaryTable {
    /// An empty table for heads of `head_dim`.
    pub fn new(head_dim: usize, base: f32) -> Self {
        Self {
            half: head_dim / 2,
            base,
            cos: Vec::new(),
            sin: Vec::new(),
        }
    }

    /// Makes every position below `positions` available.
    pub fn grow(&mut self, positions: usize) {
        for position in self.cos.len() / self.half..positions {
            for index in 0..self.half {
                let exponent = 2.0 * index as f64 / (2 * self.half) as f64;
                // The angle is rounded to f32 before its cosine is taken, as the reference does.
                let frequency = 1.0 / f64::from(self.base).powf(exponent) as f32;
                let angle = position as f32 * frequency;
                self.cos.push(angle.cos());
                self.sin.push(angle.sin());
            }
        }
    }

    /// Cosines and sines of one position, `[head_dim / 2]` each.
    pub fn at(&self, position: u32) -> (&[f32], &[f32]) {
        let range = position as usize * self.half..(position as usize + 1) * self.half;
        (&self.cos[range.clone()], &self.sin[range])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponential_is_close_over_its_whole_range() {
        for step in 0..=8_700 {
            let x = -(step as f32) / 100.0;
            let mut scores = [x];
            exponentials(&mut scores, 0.0);
            let want = x.exp();
            assert!(
                (scores[0] - want).abs() <= 2e-6 * want,
                "{x}: {} {want}",
                scores[0]
            );
            let scalar = exponential::<false>(x);
            assert!((scalar - want).abs() <= 2e-6 * want, "{x}: {scalar} {want}");
        }
    }

    #[test]
    fn exponentials_sum_what_they_wrote_at_every_length() {
        for len in 0..70 {
            let mut scores: Vec<f32> = (0..len).map(|i| (i * 7 % 11) as f32 * 0.3).collect();
            let max = maximum(&scores);
            let sum = exponentials(&mut scores, max);
            assert!((sum - scores.iter().sum::<f32>()).abs() < 1e-4);
            assert!(scores.iter().all(|&score| score <= 1.000_001));
        }
    }

    #[test]
    fn dots_equal_their_definition_at_every_width() {
        for dim in [1, 16, 20, 64] {
            let query: Vec<f32> = (0..3 * dim).map(|i| (i as f32 * 0.7).sin()).collect();
            let key: Vec<f32> = (0..dim).map(|i| (i as f32 * 0.3).cos()).collect();
            let mut scores = [7.0; 3];
            dots(&query, dim, &key, &mut scores);
            for (row, score) in query.chunks_exact(dim).zip(scores) {
                let want: f32 = row.iter().zip(&key).map(|(a, b)| a * b).sum();
                assert!((score - want).abs() < 1e-4, "{dim}");
            }
        }
    }

    #[test]
    fn norm_and_swiglu_equal_their_definitions() {
        let row: Vec<f32> = (0..37).map(|i| (i as f32 - 18.0) * 0.7).collect();
        let weight: Vec<f32> = (0..37).map(|i| 1.0 + i as f32 * 0.01).collect();
        let mut out = vec![0.0; 37];
        rms_norm(&row, &weight, 1e-5, &mut out);
        let mean = row.iter().map(|v| v * v).sum::<f32>() / 37.0;
        for i in 0..37 {
            assert!((out[i] - row[i] / (mean + 1e-5).sqrt() * weight[i]).abs() < 1e-5);
        }
        swiglu(&row, &weight, &mut out);
        for i in 0..37 {
            let want = row[i] / (1.0 + (-row[i]).exp()) * weight[i];
            assert!((out[i] - want).abs() < 1e-5);
        }
    }
}
