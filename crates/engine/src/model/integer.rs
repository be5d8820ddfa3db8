//! What the integer tiers share: rounding, groups of inputs, and where panels write.
//!
//! Knows no number format; each tier has its own file.

use super::math;

/// Columns of one weight panel.
pub const PANEL: usize = 32;

/// A value at the start of a cache line, so that no vector of it crosses one.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub struct Aligned<T>(pub(super) T);

/// One number for each column of a panel.
pub type Columns<T> = Aligned<[T; PANEL]>;

/// Adds the products of two neighbours of 16 bits to every sum of 32 bits.
///
/// Written as the instruction itself: from the intrinsic the compiler makes two, for a shorter
/// latency that full registers of sums do not need.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
#[inline]
#[target_feature(enable = "avx512f,avx512vnni")]
pub(super) fn multiply_add(
    mut sum: std::arch::x86_64::__m512i,
    a: std::arch::x86_64::__m512i,
    b: std::arch::x86_64::__m512i,
) -> std::arch::x86_64::__m512i {
    // SAFETY: the instruction reads and writes these registers only, and its features are there.
    unsafe {
        std::arch::asm!(
            "vpdpwssd {sum}, {a}, {b}",
            sum = inout(zmm_reg) sum,
            a = in(zmm_reg) a,
            b = in(zmm_reg) b,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    sum
}

/// Inputs that share a scale, for a given number of inputs; none when it cannot be split evenly.
pub fn group_of(inputs: usize) -> Option<usize> {
    [128, 96, 64]
        .into_iter()
        .find(|group| inputs.is_multiple_of(*group))
}

/// Largest magnitude of a group, whose length is a multiple of 16.
#[inline(always)]
pub(super) fn largest(part: &[f32]) -> f32 {
    let mut lanes = [0.0f32; 16];
    for chunk in part.chunks_exact(16) {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            let magnitude = value.abs();
            *lane = if magnitude > *lane { magnitude } else { *lane };
        }
    }
    lanes
        .iter()
        .fold(0.0f32, |max, &lane| if lane > max { lane } else { max })
}

/// Rounds to the nearest integer, ties to even; `value` is below 2^22 in magnitude.
#[inline(always)]
pub(super) fn nearest(value: f32) -> i32 {
    // Adding 1.5 * 2^23 leaves the rounded integer in the low bits of the mantissa.
    const ROUND: f32 = 12_582_912.0;
    ((value + ROUND).to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32)
}

/// The output matrix, of which every panel writes its own columns.
pub(super) struct Target {
    start: *mut f32,
    len: usize,
    stride: usize,
    finish: Finish,
}

/// What becomes of a panel's columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Finish {
    /// They are written as they are.
    Plain,
    /// The second half is up, the first its gate: half as many are written.
    Gated,
}

// SAFETY: panels write disjoint columns, and the matrix outlives the parallel loop.
#[allow(unsafe_code)]
unsafe impl Sync for Target {}

impl Target {
    /// Takes the matrix `[rows, outputs]`, or half as wide where columns are gated.
    ///
    /// # Panics
    /// If it has another size.
    pub(super) fn new(out: &mut [f32], rows: usize, outputs: usize, finish: Finish) -> Self {
        let stride = match finish {
            Finish::Plain => outputs,
            Finish::Gated => outputs / 2,
        };
        assert_eq!(out.len(), rows * stride);
        Self {
            start: out.as_mut_ptr(),
            len: out.len(),
            stride,
            finish,
        }
    }

    /// Writes what a panel has of some rows, from `first` on.
    pub(super) fn finish(&self, first: usize, panel: usize, tile: &mut [Columns<f32>]) {
        match self.finish {
            Finish::Plain => {
                for (offset, row) in tile.iter().enumerate() {
                    self.write(first + offset, panel, &row.0);
                }
            }
            Finish::Gated => {
                math::gate_columns(tile);
                for (offset, row) in tile.iter().enumerate() {
                    self.write_half(first + offset, panel, &row.0);
                }
            }
        }
    }

    /// Writes the columns of one row that a panel has; those beyond the last output are left out.
    #[allow(unsafe_code)]
    fn write(&self, row: usize, panel: usize, values: &[f32; PANEL]) {
        let columns = PANEL.min(self.stride - panel * PANEL);
        let at = row * self.stride + panel * PANEL;
        assert!(at + columns <= self.len);
        // SAFETY: the columns lie inside the matrix, as just asserted, and no other panel writes
        // them.
        unsafe {
            std::ptr::copy_nonoverlapping(values.as_ptr(), self.start.add(at), columns);
        }
    }

    /// Writes the first half of a row's columns, of a known length: one move.
    #[allow(unsafe_code)]
    fn write_half(&self, row: usize, panel: usize, values: &[f32; PANEL]) {
        const HALF: usize = PANEL / 2;
        let at = row * self.stride + panel * HALF;
        assert!(at + HALF <= self.len);
        if let Some(half) = values.first_chunk::<HALF>() {
            // SAFETY: inside the matrix, as just asserted, and written by this panel alone.
            unsafe {
                self.start
                    .add(at)
                    .cast::<[f32; HALF]>()
                    .write_unaligned(*half)
            };
        }
    }

    /// Where a whole panel's columns of `rows` rows may be written as they are; none where they may
    /// not.
    #[allow(unsafe_code)]
    pub(super) fn place(&self, row: usize, rows: usize, panel: usize) -> Option<Place> {
        let at = row * self.stride + panel * PANEL;
        if self.finish == Finish::Gated || (panel + 1) * PANEL > self.stride {
            return None;
        }
        assert!(rows > 0 && at + (rows - 1) * self.stride + PANEL <= self.len);
        Some(Place {
            // SAFETY: inside the matrix, as just asserted.
            start: unsafe { self.start.add(at) },
            stride: self.stride,
        })
    }
}

/// A panel's columns of some rows in the output matrix, for one writer.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) start: *mut f32,
    pub(super) stride: usize,
}

impl Place {
    /// The place some rows further down.
    pub(super) fn below(self, rows: usize) -> Self {
        Self {
            start: self.start.wrapping_add(rows * self.stride),
            ..self
        }
    }
}
