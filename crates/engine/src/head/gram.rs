//! Inner products of examples, and the coordinates in which few examples have few dimensions.
//!
//! A linear model of n examples under a squared penalty lies in their span, however many features they
//! have: it can be fitted on the rows of a Cholesky factor of their Gram matrix, which are n numbers
//! each. Gram matrices of joined features are sums, so that features are combined without being copied.
//! Sums run in a fixed order: equal inputs give equal bits on every machine and number of threads.

use rayon::prelude::*;

/// A symmetric matrix `[n, n]` of inner products.
#[derive(Debug, Clone, PartialEq)]
pub struct Gram {
    n: usize,
    values: Vec<f64>,
}

/// Relative to the mean of the diagonal; keeps the factor of linearly dependent examples real.
const JITTER: f64 = 1e-9;

impl Gram {
    /// All zero, of `n` examples.
    pub fn zero(n: usize) -> Self {
        Self {
            n,
            values: vec![0.0; n * n],
        }
    }

    /// Of examples given by a function of two of them, which must be symmetric.
    pub fn of(n: usize, product: impl Fn(usize, usize) -> f64 + Sync) -> Self {
        let mut values = vec![0.0; n * n];
        values
            .par_chunks_mut(n.max(1))
            .enumerate()
            .for_each(|(row, out)| {
                for (column, value) in out.iter_mut().enumerate().take(row + 1) {
                    *value = product(row, column);
                }
            });
        for row in 0..n {
            for column in row + 1..n {
                values[row * n + column] = values[column * n + row];
            }
        }
        Self { n, values }
    }

    /// The mean of the squared lengths; 0 of no example.
    fn mean_square(&self) -> f64 {
        let sum: f64 = (0..self.n).map(|at| self.values[at * self.n + at]).sum();
        sum / self.n.max(1) as f64
    }

    /// Adds another's products, scaled.
    ///
    /// # Panics
    /// If it is of another number of examples.
    pub fn add(&mut self, other: &Self, scale: f64) {
        assert_eq!(self.n, other.n, "products of the same examples");
        for (value, other) in self.values.iter_mut().zip(&other.values) {
            *value += scale * other;
        }
    }

    /// Changes each product by a function of its two examples, which must be symmetric.
    pub fn map(&mut self, change: impl Fn(usize, usize, f64) -> f64) {
        for row in 0..self.n {
            for column in 0..self.n {
                let value = &mut self.values[row * self.n + column];
                *value = change(row, column, *value);
            }
        }
    }

    /// The lower Cholesky factor: row `i` holds the coordinates of example `i`.
    pub fn factor(&self) -> Factor {
        let n = self.n;
        let floor = (JITTER * self.mean_square()).max(f64::MIN_POSITIVE);
        let mut rows = vec![0.0; n * n];
        for row in 0..n {
            let (done, rest) = rows.split_at_mut(row * n);
            let out = &mut rest[..n];
            for column in 0..row {
                let above = &done[column * n..column * n + column];
                let product = self.values[row * n + column] - dot(&out[..column], above);
                out[column] = product / done[column * n + column];
            }
            let square = self.values[row * n + row] + floor - dot(&out[..row], &out[..row]);
            out[row] = square.max(floor).sqrt();
        }
        Factor { n, rows }
    }
}

/// A lower triangular matrix `[n, n]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Factor {
    n: usize,
    rows: Vec<f64>,
}

impl Factor {
    /// Coordinates of an example; those past its own place are zero and left out.
    pub fn row(&self, at: usize) -> &[f64] {
        &self.rows[at * self.n..at * self.n + at + 1]
    }

    /// Coordinates, as many as there are examples.
    pub fn width(&self) -> usize {
        self.n
    }

    /// The weight of each example in a direction of the coordinates: solves `factor^T a = direction`.
    pub fn examples_of(&self, direction: &[f64]) -> Vec<f64> {
        let n = self.n;
        let mut left = direction.to_vec();
        for row in (0..n).rev() {
            left[row] /= self.rows[row * n + row];
            let weight = left[row];
            let (before, _) = left.split_at_mut(row);
            for (value, part) in before.iter_mut().zip(&self.rows[row * n..row * n + row]) {
                *value -= weight * part;
            }
        }
        left
    }
}

/// Numbers whose sums are carried side by side, so that they fill a vector register.
const LANES: usize = 8;

/// An inner product, summed in a fixed order.
pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0; LANES];
    let (chunks_a, chunks_b) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let rest: f64 = chunks_a
        .remainder()
        .iter()
        .zip(chunks_b.remainder())
        .map(|(a, b)| a * b)
        .sum();
    for (a, b) in chunks_a.zip(chunks_b) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum += a * b;
        }
    }
    sums.iter().sum::<f64>() + rest
}

/// Adds a scaled row to another.
pub fn add_scaled(to: &mut [f64], row: &[f64], scale: f64) {
    for (to, value) in to.iter_mut().zip(row) {
        *to += scale * value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_factor_gives_the_products_back_and_weighs_the_examples() {
        let points = [
            [1.0, 2.0, 0.5],
            [0.0, -1.0, 3.0],
            [2.0, 0.25, 1.0],
            [1.0, 1.0, 1.0],
        ];
        let gram = Gram::of(4, |a, b| dot(&points[a], &points[b]));
        let factor = gram.factor();
        for a in 0..4 {
            for b in 0..=a {
                let wide = factor.row(a);
                let product = dot(&wide[..=b], factor.row(b));
                assert!((product - dot(&points[a], &points[b])).abs() < 1e-6);
            }
        }
        // Three dimensions hold four points, so the direction is met by what its examples come to.
        let direction = [0.3, -0.7, 1.1, 0.0];
        let weights = factor.examples_of(&direction);
        let mut back = [0.0; 4];
        for (at, weight) in weights.iter().enumerate() {
            add_scaled(&mut back, factor.row(at), *weight);
        }
        for (back, wanted) in back.iter().zip(direction) {
            assert!((back - wanted).abs() < 1e-9, "{back} {wanted}");
        }
    }
}
