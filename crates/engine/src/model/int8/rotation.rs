//! Turns rows by a Hadamard matrix, in blocks of 64: one large value is spread over its block.
//!
//! Both sides of a product are turned, so that it stays what it was (times 64). Every instruction
//! set adds the same pairs in the same order and gives the same bits.

/// Values that are turned together.
pub(super) const BLOCK: usize = 64;

/// Turns every block of `values` in place; the length is a multiple of 64.
#[inline(always)]
pub(super) fn rotate(values: &mut [f32]) {
    for block in values.as_chunks_mut::<BLOCK>().0 {
        let mut half = 1;
        while half < BLOCK {
            for pair in block.chunks_exact_mut(2 * half) {
                let (low, high) = pair.split_at_mut(half);
                for (low, high) in low.iter_mut().zip(high) {
                    (*low, *high) = (*low + *high, *low - *high);
                }
            }
            half *= 2;
        }
    }
}

/// One block in four vectors.
#[cfg(target_arch = "x86_64")]
pub(super) type Vectors = [std::arch::x86_64::__m512; BLOCK / 16];

/// [`rotate`] of one block in registers.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
pub(super) fn rotate_avx512(block: Vectors) -> Vectors {
    use std::arch::x86_64::*;
    // Sign bits of the lanes that hold the higher of each pair.
    let signs = |lanes: u16| _mm512_castsi512_ps(_mm512_maskz_set1_epi32(lanes, i32::MIN));
    let [one, two, four, eight] = [0xaaaa, 0xcccc, 0xf0f0, 0xff00].map(signs);
    let within = block.map(|x| {
        let x = _mm512_add_ps(_mm512_permute_ps::<0b10_11_00_01>(x), _mm512_xor_ps(x, one));
        let x = _mm512_add_ps(_mm512_permute_ps::<0b01_00_11_10>(x), _mm512_xor_ps(x, two));
        let swapped = _mm512_shuffle_f32x4::<0b10_11_00_01>(x, x);
        let x = _mm512_add_ps(swapped, _mm512_xor_ps(x, four));
        let swapped = _mm512_shuffle_f32x4::<0b01_00_11_10>(x, x);
        _mm512_add_ps(swapped, _mm512_xor_ps(x, eight))
    });
    let [a, b, c, d] = within;
    let (a, b) = (_mm512_add_ps(a, b), _mm512_sub_ps(a, b));
    let (c, d) = (_mm512_add_ps(c, d), _mm512_sub_ps(c, d));
    [
        _mm512_add_ps(a, c),
        _mm512_add_ps(b, d),
        _mm512_sub_ps(a, c),
        _mm512_sub_ps(b, d),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rotation_is_the_hadamard_matrix() {
        for at in 0..2 * BLOCK {
            let mut unit = vec![0.0; 2 * BLOCK];
            unit[at] = 1.0;
            rotate(&mut unit);
            for (row, got) in unit.iter().enumerate() {
                let same = row / BLOCK == at / BLOCK;
                let sign = 1.0 - 2.0 * ((row & at & (BLOCK - 1)).count_ones() % 2) as f32;
                assert_eq!(*got, if same { sign } else { 0.0 }, "{row} {at}");
            }
        }
    }
}
