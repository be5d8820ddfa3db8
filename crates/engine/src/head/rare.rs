//! Labels with too few examples to be learned: a head is trained without them and never chooses them, which
//! is told. The rest of the labels would be lost otherwise over one that hardly occurs.

use super::{Bond, Examples, Head};
use crate::head::train::{CLASS_MIN, HeldOut};

/// Score of a label that was not learned: its probability rounds to nothing.
const NEVER: f64 = -60.0;

/// Which labels have enough examples.
pub(super) struct Learnable {
    labels: usize,
    /// Places of the labels that have.
    places: Vec<usize>,
}

impl Learnable {
    /// Counts the examples of each label.
    pub(super) fn of(examples: &Examples, labels: usize, folds: usize) -> Self {
        let count = |label: usize| examples.class_of.iter().filter(|&&of| of == label).count();
        let needed = CLASS_MIN.max(folds);
        Self {
            labels,
            places: (0..labels)
                .filter(|&label| count(label) >= needed)
                .collect(),
        }
    }

    /// Whether every label has, or so few that no head could be trained without the others.
    pub(super) fn is_all_or_nothing(&self) -> bool {
        self.places.len() == self.labels || self.places.len() < 2
    }

    /// Where a label stands among those that are learned.
    pub(super) fn place_of(&self, label: usize) -> Option<usize> {
        self.places.iter().position(|&place| place == label)
    }

    /// Examples and labels of those that are learned, and where each example was.
    pub(super) fn narrow(&self, examples: &Examples, bond: &Bond) -> (Examples, Bond, Vec<usize>) {
        let kept: Vec<usize> = (0..examples.len())
            .filter(|&at| self.place_of(examples.class_of[at]).is_some())
            .collect();
        let mut narrow = examples.take(&kept);
        for class in &mut narrow.class_of {
            *class = self.place_of(*class).unwrap_or(0);
        }
        let labels = self.places.iter().map(|&place| bond.labels[place].clone());
        let bond = Bond {
            labels: labels.collect(),
            ..bond.clone()
        };
        (narrow, bond, kept)
    }

    /// A head over all labels that judges as the narrow one does.
    pub(super) fn widen(&self, narrow: Head, bond: Bond) -> Head {
        let learned = self.places.len();
        let mut head = Head {
            bond,
            bias: self.spread(&narrow.bias, NEVER),
            offset: self.spread(&narrow.offset, 0.0),
            ..narrow
        };
        for part in &mut head.parts {
            part.weights = self.rows(&part.weights, learned);
        }
        for group in &mut head.groups {
            group.bias = self.spread(&group.bias, 0.0);
            for weights in &mut group.weights {
                *weights = self.rows(weights, learned);
            }
        }
        head
    }

    /// What a narrow head said of an example, over all labels and under its own place.
    pub(super) fn widen_held(&self, held: &HeldOut, kept: &[usize]) -> HeldOut {
        HeldOut {
            place: kept[held.place],
            probabilities: self.spread(&held.probabilities, 0.0),
        }
    }

    /// One number per label.
    fn spread(&self, of: &[f64], otherwise: f64) -> Vec<f64> {
        let mut all = vec![otherwise; self.labels];
        for (&place, &value) in self.places.iter().zip(of) {
            all[place] = value;
        }
        all
    }

    /// One row per label, of so many learned ones.
    fn rows(&self, of: &[f32], learned: usize) -> Vec<f32> {
        let width = of.len() / learned.max(1);
        let mut all = vec![0.0; self.labels * width];
        for (&place, row) in self.places.iter().zip(of.chunks_exact(width.max(1))) {
            all[place * width..][..width].copy_from_slice(row);
        }
        all
    }
}
