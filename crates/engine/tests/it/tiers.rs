//! Number formats end to end, on models whose heads are as wide as the rounded attention needs.

use std::sync::Arc;

use engine::label_tree::LabelTree;
use engine::local::{self, Device};
use engine::model::ModelFiles;
use engine::model::config::Architecture;
use engine::model::linear::Numerics;
use engine::runner::{Runner, RunnerOptions, ScoreRequest, ScoreResult};
use kvcache::Namespace;

use crate::tiny::{self, Random};

const PREFIX_TOKENS: usize = 90;
const RECORDS: usize = 48;

struct Place {
    files: ModelFiles,
    _directory: tempfile::TempDir,
}

impl Place {
    fn new(architecture: Architecture) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let config = tiny::config(architecture, 256);
        let tensors = tiny::tensors(&config, 11);
        tiny::write_directory(directory.path(), &config, &tensors);
        Self {
            files: ModelFiles::open(directory.path()).unwrap(),
            _directory: directory,
        }
    }

    fn runner(&self, numerics: Numerics) -> Runner {
        let model = local::open_forward(&self.files, Device::Cpu, numerics).unwrap();
        Runner::new(model, RunnerOptions::default()).unwrap()
    }
}

fn requests() -> Vec<ScoreRequest> {
    let mut random = Random(5);
    let mut labels: Vec<Vec<u32>> = (10..40).map(|token| vec![token]).collect();
    labels.extend([vec![1, 2], vec![1, 3]]);
    let tree = Arc::new(LabelTree::new("kind", &labels, 95).unwrap());
    // From one token to more than one lane's rows, so that batches are cut in many ways.
    (0..RECORDS)
        .map(|index| ScoreRequest {
            tokens: random.tokens(1 + index * 7),
            trees: vec![tree.clone()],
            decisive: vec![true],
        })
        .collect()
}

fn score(runner: &mut Runner, requests: &[ScoreRequest]) -> Vec<ScoreResult> {
    let tokens = Random(3).tokens(PREFIX_TOKENS);
    let (prefix, _) = runner.seal(&Namespace([1; 32]), &tokens).unwrap();
    let mut results = vec![None; requests.len()];
    let before = runner.model().rows_forwarded();
    runner
        .score(&prefix, requests, &|| true, &mut |index, result| {
            assert!(results[index].replace(result).is_none(), "told once");
        })
        .unwrap();
    let results: Vec<ScoreResult> = results.into_iter().map(|result| result.unwrap()).collect();
    let rows: usize = results
        .iter()
        .map(|result| result.computed_tokens + result.repeated_tokens)
        .sum();
    let forwarded = runner.model().rows_forwarded() - before;
    assert_eq!(forwarded, rows as u64, "all rows are accounted for");
    results
}

fn margin(result: &ScoreResult) -> f64 {
    let mut shares = result.scores[0].probabilities.clone();
    shares.sort_by(|a, b| b.total_cmp(a));
    shares[0] - shares[1]
}

fn largest_difference(a: &[ScoreResult], b: &[ScoreResult]) -> f64 {
    let pairs = a.iter().zip(b);
    pairs
        .flat_map(|(a, b)| {
            let shares = &a.scores[0].probabilities;
            shares.iter().zip(&b.scores[0].probabilities)
        })
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f64::max)
}

#[test]
fn every_tier_is_within_its_bound_of_f32() {
    for architecture in [Architecture::Llama, Architecture::Qwen2] {
        let place = Place::new(architecture);
        let exact = score(&mut place.runner(Numerics::F32), &requests());
        for (numerics, bound) in [(Numerics::Int16, 0.02), (Numerics::Int8, 0.25)] {
            let got = score(&mut place.runner(numerics), &requests());
            let difference = largest_difference(&exact, &got);
            assert!(difference < bound, "{numerics:?}: {difference}");
            assert!(difference > 0.0, "{numerics:?} rounds nothing");
        }
    }
}

#[test]
fn an_answer_does_not_depend_on_its_company_in_any_bit() {
    let place = Place::new(Architecture::Qwen2);
    for numerics in [Numerics::Int16, Numerics::Int8] {
        let mut runner = place.runner(numerics);
        let together = score(&mut runner, &requests());
        for (index, request) in requests().into_iter().enumerate() {
            let alone = score(&mut runner, &[request]);
            let same = alone[0].scores == together[index].scores;
            assert!(same, "{numerics:?}, record {index}");
        }
    }
}

#[test]
fn answers_that_eight_bits_leave_unclear_are_those_of_sixteen() {
    let place = Place::new(Architecture::Llama);
    let fine = score(&mut place.runner(Numerics::Int16), &requests());
    let coarse = score(&mut place.runner(Numerics::Int8), &requests());
    let got = score(&mut place.runner(Numerics::Auto), &requests());
    let asks_again = Numerics::Auto.resolve() == Numerics::Auto;
    let mut repeated = 0;
    for (index, result) in got.iter().enumerate() {
        let is_clear = margin(&coarse[index]) >= 0.075;
        let (want, again) = match asks_again {
            true if is_clear => (&coarse[index], 0),
            true => (&fine[index], result.computed_tokens),
            // Machines that gain nothing from eight bits stay with sixteen.
            false => (&fine[index], 0),
        };
        assert_eq!(result.scores, want.scores, "record {index}");
        assert_eq!(result.repeated_tokens, again, "record {index}");
        repeated += usize::from(again > 0);
    }
    if asks_again {
        assert!(
            repeated > 0 && repeated < RECORDS,
            "{repeated} of {RECORDS} unclear"
        );
    }
}

#[test]
fn a_question_that_decides_nothing_is_not_asked_again() {
    let place = Place::new(Architecture::Llama);
    let mut requests = requests();
    requests
        .iter_mut()
        .for_each(|request| request.decisive = vec![false]);
    let got = score(&mut place.runner(Numerics::Auto), &requests);
    assert!(got.iter().all(|result| result.repeated_tokens == 0));
}
