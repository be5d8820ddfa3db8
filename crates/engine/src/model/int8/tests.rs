//! The 8-bit kernels against plain sums, each other, and their own bounds.

use super::*;

/// A seeded stream of values in -1..1.
struct Random(u32);

impl Random {
    fn value(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.0 >> 8) as f32 / (1 << 23) as f32 - 1.0
    }

    fn values(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| self.value()).collect()
    }

    fn below(&mut self, end: usize) -> usize {
        (self.value().abs() * end as f32) as usize % end
    }
}

/// A weight `[outputs, inputs]` and rows `[rows, inputs]`.
struct Case {
    weight: Vec<f32>,
    x: Vec<f32>,
    inputs: usize,
    outputs: usize,
}

impl Case {
    fn random(random: &mut Random, rows: usize, inputs: usize, outputs: usize) -> Self {
        Self {
            weight: random.values(inputs * outputs),
            x: random.values(rows * inputs),
            inputs,
            outputs,
        }
    }

    fn forward(&self, isa: Isa) -> Vec<f32> {
        let panels = Panels::pack(&self.weight, self.inputs, self.outputs, isa).unwrap();
        let mut out = vec![f32::NAN; self.x.len() / self.inputs * self.outputs];
        panels.forward(
            &self.x,
            &mut RoundedRows::default(),
            Finish::Plain,
            &mut out,
        );
        out
    }

    fn exact(&self) -> Vec<f64> {
        let dot = |a: &[f32], b: &[f32]| -> f64 {
            let products = a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b));
            products.sum()
        };
        self.x
            .chunks_exact(self.inputs)
            .flat_map(|row| {
                self.weight
                    .chunks_exact(self.inputs)
                    .map(move |weight| dot(row, weight))
            })
            .collect()
    }

    fn assert_all_agree(&self, name: &str) {
        let want = self.forward(Isa::Scalar);
        for isa in Isa::available() {
            let got = self.forward(isa);
            assert!(got == want, "{isa:?} {name}: {got:?} is not {want:?}");
        }
    }
}

#[test]
fn instruction_sets_agree_to_the_bit_on_random_shapes() {
    let mut random = Random(5);
    for _ in 0..40 {
        let rows = 1 + random.below(3 * BLOCK_ROWS);
        let inputs = [64, 128, 192, 320, 576, 896][random.below(6)];
        let outputs = 1 + random.below(3 * PANEL);
        let case = Case::random(&mut random, rows, inputs, outputs);
        case.assert_all_agree(&format!("{rows} x {inputs} x {outputs}"));
    }
}

#[test]
fn extreme_values_neither_saturate_nor_wrap() {
    let (rows, inputs, outputs) = (5, 256, 40);
    // All at full scale, signs by column or position: every sum that the kernels form is at its
    // largest for one of them.
    let signs: [fn(usize) -> f32; 5] = [
        |_| 1.0,
        |_| -1.0,
        |k| if k % 2 == 0 { 1.0 } else { -1.0 },
        |k| if k % 4 < 2 { 1.0 } else { -1.0 },
        |k| if k % 8 < 4 { 1.0 } else { -1.0 },
    ];
    for weight_sign in signs {
        for row_sign in signs {
            let case = Case {
                weight: (0..inputs * outputs).map(weight_sign).collect(),
                x: (0..inputs * rows).map(row_sign).collect(),
                inputs,
                outputs,
            };
            case.assert_all_agree("full scale");
            // What is alike up to signs turns into few large values, which are exact.
            for (got, want) in case.forward(Isa::detect()).iter().zip(case.exact()) {
                let error = (f64::from(*got) - want).abs();
                assert!(error <= 0.017 * want.abs(), "{got} is not {want}");
            }
        }
    }
}

#[test]
fn products_are_close_to_exact_ones() {
    let case = Case::random(&mut Random(3), 7, 576, 40);
    let (got, exact) = (case.forward(Isa::detect()), case.exact());
    let error: f64 = got
        .iter()
        .zip(&exact)
        .map(|(got, want)| (f64::from(*got) - want).powi(2))
        .sum();
    let size: f64 = exact.iter().map(|want| want.powi(2)).sum();
    let relative = (error / size).sqrt();
    assert!(relative < 0.015, "{relative}");
    assert!(relative > 0.0, "nothing was rounded");
}

#[test]
fn a_row_does_not_depend_on_its_company_in_any_bit() {
    let (rows, inputs, outputs) = (BLOCK_ROWS + 11, 896, 64);
    let case = Case::random(&mut Random(9), rows, inputs, outputs);
    for isa in Isa::available() {
        let panels = Panels::pack(&case.weight, inputs, outputs, isa).unwrap();
        let together = case.forward(isa);
        let mut rounded = RoundedRows::default();
        for row in 0..rows {
            let mut alone = vec![0.0; outputs];
            panels.forward(
                &case.x[row * inputs..][..inputs],
                &mut rounded,
                Finish::Plain,
                &mut alone,
            );
            assert_eq!(alone, together[row * outputs..][..outputs], "{isa:?} {row}");
        }
    }
}

#[test]
fn scratch_grows_once_and_stays() {
    let case = Case::random(&mut Random(2), 40, 128, 32);
    let panels = Panels::pack(&case.weight, 128, 32, Isa::detect()).unwrap();
    let mut rounded = RoundedRows::default();
    let mut out = vec![0.0; 40 * 32];
    panels.forward(&case.x, &mut rounded, Finish::Plain, &mut out);
    let before = (rounded.values.as_ptr(), rounded.scales.as_ptr());
    panels.forward(
        &case.x[..3 * 128],
        &mut rounded,
        Finish::Plain,
        &mut out[..3 * 32],
    );
    panels.forward(&case.x, &mut rounded, Finish::Plain, &mut out);
    assert_eq!(before, (rounded.values.as_ptr(), rounded.scales.as_ptr()));
}

#[test]
fn groups_of_zeros_give_zeros() {
    let case = Case {
        weight: vec![0.0; 64 * 3],
        x: vec![0.0; 64 * 2],
        inputs: 64,
        outputs: 3,
    };
    for isa in Isa::available() {
        assert_eq!(case.forward(isa), [0.0; 6]);
    }
}

#[test]
fn widths_without_a_group_are_refused() {
    assert!(Panels::pack(&[0.0; 100], 50, 2, Isa::Scalar).is_none());
}
