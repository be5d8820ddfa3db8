//! Training as a whole, on examples whose right answers are known.

use operator::infer::PPM;

use super::train::train;
use super::*;

/// A xorshift generator: the same numbers everywhere.
struct Random(u64);

impl Random {
    fn uniform(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Roughly normal.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }
}

fn bond(labels: &[&str]) -> Bond {
    Bond {
        backend: "b".into(),
        describe: "a model".into(),
        rubric: "r".into(),
        field: "kind".into(),
        scaffold: "kind: ".into(),
        labels: labels.iter().map(|label| (*label).to_owned()).collect(),
        group_by: None,
    }
}

fn options(readings: &[Reading]) -> Options {
    Options {
        candidates: vec![Candidate {
            readings: readings.to_vec(),
            own: 0.0,
        }],
        penalties: vec![0.1, 0.01, 0.001],
        folds: 5,
        seed: 3,
        recall: None,
    }
}

/// Three classes around points of a plane, in a space of six features of very unlike size.
fn clouds(count: usize, spread: f64, seed: u64) -> Examples {
    let mut random = Random(seed);
    let mut examples = Examples::default();
    for place in 0..count {
        let class = place % 3;
        let angle = class as f64 * std::f64::consts::TAU / 3.0;
        let mut near = |at: f64| (at + spread * random.normal()) as f32;
        let row = vec![
            near(angle.cos()),
            1_000.0 + 300.0 * near(angle.sin()),
            near(0.0),
            0.01 * near(0.0),
            near(5.0),
            -7.0,
        ];
        examples.ids.push(format!("{seed}-{place}"));
        examples.class_of.push(class);
        let states = examples.states.entry(Reading::Mean(4)).or_default();
        states.push(row);
        examples.texts.push(format!("record {place}"));
    }
    examples
}

fn chosen(probabilities: &[f64]) -> usize {
    let places = 0..probabilities.len();
    places
        .max_by(|&a, &b| probabilities[a].total_cmp(&probabilities[b]))
        .unwrap()
}

#[test]
fn classes_that_can_be_parted_are_told_apart_without_an_error() {
    let examples = clouds(60, 0.1, 9);
    let trained = train(
        &examples,
        bond(&["a", "b", "c"]),
        &options(&[Reading::Mean(4)]),
    )
    .unwrap();
    for held in &trained.held_out {
        assert_eq!(chosen(&held.probabilities), examples.class_of[held.place]);
        assert!((held.probabilities.iter().sum::<f64>() - 1.0).abs() < 1e-9);
    }
    assert_eq!(trained.held_out.len(), 60);
    let fresh = clouds(90, 0.1, 77);
    for place in 0..90 {
        let judged = trained.head.judge_example(&fresh, place);
        assert_eq!(chosen(&judged), fresh.class_of[place]);
    }
}

#[test]
fn equal_examples_in_any_order_give_the_same_file_and_another_seed_may_not() {
    let examples = clouds(45, 0.6, 5);
    let options = options(&[Reading::Mean(4), Reading::Words]);
    let file = |examples: &Examples, options: &Options| {
        let trained = train(examples, bond(&["a", "b", "c"]), options).unwrap();
        trained.head.to_bytes().unwrap()
    };
    let first = file(&examples, &options);
    let backwards: Vec<usize> = (0..45).rev().collect();
    assert_eq!(first, file(&examples.take(&backwards), &options));
    let one_thread = rayon::ThreadPoolBuilder::new()
        .num_threads(1)
        .build()
        .unwrap();
    assert_eq!(first, one_thread.install(|| file(&examples, &options)));
    let mut other = examples.clone();
    other.class_of[0] = 1;
    assert_ne!(first, file(&other, &options));
}

#[test]
fn a_file_gives_the_head_back_and_one_changed_byte_is_another_head() {
    let mut examples = clouds(45, 0.6, 5);
    examples.group_of = (0..45).map(|place| format!("g{}", place % 2)).collect();
    let mut options = options(&[Reading::Mean(4), Reading::Words]);
    options.candidates[0].own = 0.5;
    let mut bond = bond(&["a", "b", "c"]);
    bond.group_by = Some("repository".into());
    let head = train(&examples, bond, &options).unwrap().head;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.safetensors");
    let mut bytes = head.to_bytes().unwrap();
    std::fs::write(&path, &bytes).unwrap();
    let read = Head::load(&path).unwrap();
    assert_eq!(read, head);
    for place in 0..45 {
        let (a, b) = (
            head.judge_example(&examples, place),
            read.judge_example(&examples, place),
        );
        assert_eq!(a, b);
    }
    let last = bytes.len() - 2;
    bytes[last] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    assert_ne!(Head::load(&path).unwrap().digest(), head.digest());
    for (spoilt, problem) in [
        (&b"no head"[..], "is no head"),
        (&bytes[..bytes.len() - 8], "is no head"),
    ] {
        std::fs::write(&path, spoilt).unwrap();
        let error = Head::load(&path).unwrap_err().to_string();
        assert!(
            error.contains(problem) && error.contains("a.safetensors"),
            "{error}"
        );
    }
}

/// The head's products on features as they are come to the scores of the fit on its own coordinates.
#[test]
fn a_head_says_what_a_fit_in_the_plane_of_the_features_says() {
    let examples = clouds(30, 0.5, 8);
    let options = Options {
        penalties: vec![0.01],
        ..options(&[Reading::Mean(4)])
    };
    let trained = train(&examples, bond(&["a", "b", "c"]), &options).unwrap();
    // Gradient descent on standardised features, with nothing in common but the objective.
    let rows = &examples.states[&Reading::Mean(4)];
    let (n, width) = (rows.len(), rows[0].len());
    let column = |at: usize| rows.iter().map(move |row| f64::from(row[at]));
    let mean: Vec<f64> = (0..width)
        .map(|at| column(at).sum::<f64>() / n as f64)
        .collect();
    let deviation: Vec<f64> = (0..width)
        .map(|at| (column(at).map(|x| (x - mean[at]).powi(2)).sum::<f64>() / n as f64).sqrt())
        .collect();
    let scaled: Vec<Vec<f64>> = rows
        .iter()
        .map(|row| {
            (0..width)
                .map(|at| match deviation[at] > 1e-9 {
                    true => (f64::from(row[at]) - mean[at]) / deviation[at] / (width as f64).sqrt(),
                    false => 0.0,
                })
                .collect()
        })
        .collect();
    let (mut weights, mut bias) = (vec![vec![0.0; width]; 3], vec![0.0; 3]);
    let scores = |weights: &[Vec<f64>], bias: &[f64], row: &[f64]| -> Vec<f64> {
        (0..3)
            .map(|class| bias[class] + gram::dot(&weights[class], row))
            .collect()
    };
    for _ in 0..20_000 {
        let (mut to_weights, mut to_bias) = (vec![vec![0.0; width]; 3], vec![0.0; 3]);
        for (row, &class) in scaled.iter().zip(&examples.class_of) {
            let shares = logistic::softmax(&scores(&weights, &bias, row), 1.0);
            for of in 0..3 {
                let error = (shares[of] - f64::from(u8::from(of == class))) / n as f64;
                gram::add_scaled(&mut to_weights[of], row, error);
                to_bias[of] += error;
            }
        }
        for of in 0..3 {
            let pull = weights[of].clone();
            gram::add_scaled(&mut to_weights[of], &pull, 0.01);
            gram::add_scaled(&mut weights[of], &to_weights[of], -0.5);
            bias[of] -= 0.5 * to_bias[of];
        }
    }
    for (place, row) in scaled.iter().enumerate() {
        let cool = trained.head.temperature;
        let want = logistic::softmax(&scores(&weights, &bias, row), cool);
        let got = trained.head.judge_example(&examples, place);
        for (got, want) in got.iter().zip(&want) {
            assert!((got - want).abs() < 1e-3, "{place}: {got} {want}");
        }
    }
}

#[test]
fn a_prior_takes_away_what_the_prompt_prefers_and_nothing_else() {
    // The prompt says "a" three times as often as it should; records lean by what they are.
    let lean = |odds: f64| {
        let shares = [3.0 * odds, 1.0];
        let sum: f64 = shares.iter().sum();
        shares.map(|share| share / sum).to_vec()
    };
    let neutral = vec![lean(1.0); 3];
    let head = Head::from_prior(bond(&["a", "b"]), &neutral).unwrap();
    let mut examples = Examples::default();
    for (place, odds) in [2.0, 0.5, 1.0].into_iter().enumerate() {
        let row: Vec<f32> = lean(odds).iter().map(|share| share.ln() as f32).collect();
        examples.ids.push(place.to_string());
        examples.class_of.push(0);
        examples
            .states
            .entry(Reading::Labels)
            .or_default()
            .push(row);
    }
    for (place, want) in [2.0 / 3.0, 1.0 / 3.0, 0.5].into_iter().enumerate() {
        let got = head.judge_example(&examples, place)[0];
        assert!((got - want).abs() < 1e-6, "{got} {want}");
    }
    assert!(Head::from_prior(bond(&["a", "b"]), &[]).is_err());
    assert!(Head::from_prior(bond(&["a", "b"]), &[vec![1.0]]).is_err());
}

#[test]
fn what_groups_have_to_themselves_is_learned_beside_what_they_share() {
    // In one group the sign of the only feature means the opposite.
    let mut random = Random(44);
    let mut examples = Examples::default();
    for place in 0..120 {
        let (class, group) = (place % 2, (place / 2) % 2);
        let sign = if class == group { 1.0 } else { -1.0 };
        examples.ids.push(place.to_string());
        examples.class_of.push(class);
        examples.group_of.push(format!("g{group}"));
        let row = vec![
            (sign + 0.2 * random.normal()) as f32,
            random.normal() as f32,
        ];
        examples.states.entry(Reading::Final).or_default().push(row);
    }
    let errors = |own: f64| {
        let mut options = options(&[Reading::Final]);
        options.candidates[0].own = own;
        let trained = train(&examples, bond(&["a", "b"]), &options).unwrap();
        let wrong = trained
            .held_out
            .iter()
            .filter(|held| chosen(&held.probabilities) != examples.class_of[held.place]);
        wrong.count()
    };
    assert_eq!(errors(1.0), 0);
    assert!(errors(0.0) > 30);
}

#[test]
fn the_best_reading_is_chosen_by_what_was_held_out() {
    let mut examples = clouds(60, 0.3, 21);
    let mut random = Random(4);
    let noise = (0..60).map(|_| (0..6).map(|_| random.normal() as f32).collect());
    examples.states.insert(Reading::Answer(2), noise.collect());
    let mut options = options(&[Reading::Answer(2)]);
    let candidate = |readings: &[Reading]| Candidate {
        readings: readings.to_vec(),
        own: 0.0,
    };
    options.candidates.push(candidate(&[Reading::Mean(4)]));
    let trained = train(&examples, bond(&["a", "b", "c"]), &options).unwrap();
    assert_eq!(trained.tried[0].candidate.readings, [Reading::Mean(4)]);
    assert_eq!(
        trained.head.readings().collect::<Vec<_>>(),
        [Reading::Mean(4)]
    );
    assert!(trained.tried[0].loss < 0.3 && trained.tried[1].loss > 0.9);
}

#[test]
fn too_few_labels_are_refused_with_the_number_that_is_needed() {
    let mut few = clouds(60, 0.3, 2);
    for class in &mut few.class_of[..57] {
        *class = 0;
    }
    let labels = bond(&["a", "b", "rare"]);
    let error = train(&few, labels, &options(&[Reading::Mean(4)])).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("\"b\" has 1 labelled"), "{error}");

    let target = RecallTarget {
        label: 0,
        recall_ppm: 900_000,
        alpha_ppm: 50_000,
    };
    let with_target = Options {
        recall: Some(target),
        ..options(&[Reading::Mean(4)])
    };
    let labels = ["yes", "no", "other"];
    let error = train(&clouds(60, 0.3, 2), bond(&labels), &with_target).unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("90 % of \"yes\" cannot be guaranteed"),
        "{error}"
    );
    assert!(error.contains("29 are needed"), "{error}");
    // A third of 90 positives is 30.
    assert!(train(&clouds(270, 0.3, 2), bond(&labels), &with_target).is_ok());
}

/// Trains on one draw after the other and looks at what each head misses of a large second draw.
#[test]
fn a_recall_target_is_met_as_often_as_it_says() {
    let target = RecallTarget {
        label: 0,
        recall_ppm: 900_000,
        alpha_ppm: 50_000,
    };
    let options = Options {
        recall: Some(target),
        penalties: vec![0.01],
        folds: 3,
        ..options(&[Reading::Mean(4)])
    };
    // Clouds that overlap: without a threshold about a third of each class is missed.
    let fresh = clouds(1_500, 0.9, 1_234_567);
    let positives = fresh.class_of.iter().filter(|&&class| class == 0).count();
    let (mut met, draws) = (0, 40);
    for draw in 0..draws {
        let examples = clouds(270, 0.9, 1_000 + draw * 7_919);
        let trained = train(&examples, bond(&["a", "b", "c"]), &options).unwrap();
        let found = (0..fresh.len())
            .filter(|&place| fresh.class_of[place] == 0)
            .filter(|&place| {
                let shares = trained.head.judge_example(&fresh, place);
                chosen(&shares) == 0
            })
            .count() as u64;
        met += u64::from(found * u64::from(PPM) >= positives as u64 * 900_000);
    }
    // 95 % are promised; fewer than 33 of 40 would have a probability of about 0.001.
    assert!(met >= 33, "{met} of {draws}");
}

#[test]
fn a_label_with_too_few_examples_is_never_chosen_and_the_others_are_learned_as_without_it() {
    let mut with = clouds(60, 0.3, 2);
    for class in &mut with.class_of[..57] {
        *class = (*class).min(1);
    }
    let rare: Vec<usize> = (0..60).filter(|&at| with.class_of[at] == 2).collect();
    assert_eq!(rare.len(), 1);
    let common: Vec<usize> = (0..60).filter(|at| !rare.contains(at)).collect();
    let without = with.take(&common);
    let options = options(&[Reading::Mean(4)]);
    let all = train(&with, bond(&["a", "b", "rare"]), &options).unwrap();
    let two = train(&without, bond(&["a", "b"]), &options).unwrap();
    assert_eq!(all.not_learned, ["rare"]);
    assert!(two.not_learned.is_empty());
    assert_eq!(all.held_out.len(), 59);
    for (wide, narrow) in all.held_out.iter().zip(&two.held_out) {
        assert_eq!(wide.place, common[narrow.place]);
        assert_eq!(wide.probabilities[..2], narrow.probabilities[..]);
    }
    for at in 0..60 {
        let probabilities = all.head.judge_example(&with, at);
        let expected = two.head.judge_example(&with, at);
        assert!(probabilities[2] < 1e-9, "{probabilities:?}");
        assert!((probabilities[0] - expected[0]).abs() < 1e-9);
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("head.safetensors");
    std::fs::write(&file, all.head.to_bytes().unwrap()).unwrap();
    assert_eq!(Head::load(&file).unwrap(), all.head);
}
