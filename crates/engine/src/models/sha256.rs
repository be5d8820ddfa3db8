//! SHA-256, for files whose publisher states that hash and no other.
//!
//! Only checks downloads: everything of our own is named by BLAKE3. Source: FIPS 180-4.

/// The first 32 bits of the fractional parts of the cube roots of the first 64 primes
/// (FIPS 180-4, 4.2.2).
#[rustfmt::skip]
const K: [u32; 64] = [
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
];

const START: [u32; 8] = [
    0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
];

/// A SHA-256 under way.
pub(super) struct Sha256 {
    state: [u32; 8],
    /// Bytes not yet compressed: fewer than a block of 64.
    tail: Vec<u8>,
    /// Bytes taken so far.
    bytes: u64,
}

impl Sha256 {
    /// Nothing hashed yet.
    pub(super) fn new() -> Self {
        Self {
            state: START,
            tail: Vec::with_capacity(64),
            bytes: 0,
        }
    }

    /// Takes the next bytes.
    pub(super) fn update(&mut self, mut data: &[u8]) {
        self.bytes += data.len() as u64;
        if !self.tail.is_empty() {
            let (fill, rest) = data.split_at(data.len().min(64 - self.tail.len()));
            self.tail.extend_from_slice(fill);
            data = rest;
            if self.tail.len() < 64 {
                return;
            }
            compress(&mut self.state, &self.tail);
            self.tail.clear();
        }
        let blocks = data.chunks_exact(64);
        self.tail.extend_from_slice(blocks.remainder());
        for block in blocks {
            compress(&mut self.state, block);
        }
    }

    /// The hash of all bytes taken, 64 lower-case hex digits.
    pub(super) fn finish(mut self) -> String {
        let bits = self.bytes.wrapping_mul(8);
        let zeros = (64 + 56 - (self.tail.len() + 1)) % 64;
        let mut padding = vec![0x80];
        padding.resize(1 + zeros, 0);
        padding.extend_from_slice(&bits.to_be_bytes());
        self.update(&padding);
        self.state
            .iter()
            .map(|word| format!("{word:08x}"))
            .collect()
    }
}

/// One round over a block of 64 bytes (FIPS 180-4, 6.2.2).
fn compress(state: &mut [u32; 8], block: &[u8]) {
    let mut w = [0u32; 64];
    for (word, bytes) in w.iter_mut().zip(block.chunks_exact(4)) {
        *word = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    }
    for t in 16..64 {
        let s0 = w[t - 15].rotate_right(7) ^ w[t - 15].rotate_right(18) ^ (w[t - 15] >> 3);
        let s1 = w[t - 2].rotate_right(17) ^ w[t - 2].rotate_right(19) ^ (w[t - 2] >> 10);
        w[t] = w[t - 16]
            .wrapping_add(s0)
            .wrapping_add(w[t - 7])
            .wrapping_add(s1);
    }
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
    for t in 0..64 {
        let s1 = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
        let choose = (e & f) ^ (!e & g);
        let t1 = h
            .wrapping_add(s1)
            .wrapping_add(choose)
            .wrapping_add(K[t])
            .wrapping_add(w[t]);
        let s0 = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
        let majority = (a & b) ^ (a & c) ^ (b & c);
        let t2 = s0.wrapping_add(majority);
        (h, g, f, e) = (g, f, e, d.wrapping_add(t1));
        (d, c, b, a) = (c, b, a, t1.wrapping_add(t2));
    }
    for (word, add) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
        *word = word.wrapping_add(add);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(data: &[u8], step: usize) -> String {
        let mut hasher = Sha256::new();
        data.chunks(step).for_each(|chunk| hasher.update(chunk));
        hasher.finish()
    }

    /// The examples published with the standard.
    #[test]
    fn standard_examples() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(hash(b"", 1), empty);
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hash(b"abc", 3), abc);
        let two_blocks = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
        let want = "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1";
        assert_eq!(hash(two_blocks, 56), want);
        let million = vec![b'a'; 1_000_000];
        let want = "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0";
        assert_eq!(hash(&million, 4096), want);
    }

    #[test]
    fn the_steps_in_which_bytes_come_do_not_matter() {
        for length in [0, 1, 55, 56, 63, 64, 65, 127, 128, 200] {
            let data: Vec<u8> = (0..length).map(|i| i as u8).collect();
            let whole = hash(&data, length.max(1));
            for step in [1, 7, 63, 64, 65] {
                assert_eq!(hash(&data, step), whole, "length {length}, step {step}");
            }
        }
    }
}
