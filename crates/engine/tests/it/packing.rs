//! Packed, forked and chunked forwards equal the straight computation of each prompt alone.

use std::sync::Arc;

use engine::label_tree::LabelTree;
use engine::model::config::Architecture;
use engine::runner::{Reuse, Runner, RunnerOptions, Score, ScoreRequest, ScoreResult};
use kvcache::Namespace;

use crate::tiny::{self, BOTH, Random};

const ARCHITECTURES: [Architecture; 2] = [Architecture::Llama, Architecture::Qwen2];
const TERMINATOR: u32 = 95;

fn trees() -> Vec<Arc<LabelTree>> {
    let kind = [vec![10, 11, 1], vec![10, 11, 2], vec![10, 11, 3]];
    let nested = [
        vec![12, 4],
        vec![12, 4, 5],
        vec![12, 6, 7, 8],
        vec![12, 6, 7, 9],
    ];
    vec![
        Arc::new(LabelTree::new("kind", &kind, TERMINATOR).unwrap()),
        Arc::new(LabelTree::new("nested", &nested, TERMINATOR).unwrap()),
    ]
}

fn score(runner: &mut Runner, prefix: &[u32], records: &[Vec<u32>]) -> Vec<ScoreResult> {
    let (prefix, _) = runner.seal(&Namespace([3; 32]), prefix).unwrap();
    let requests: Vec<ScoreRequest> = records
        .iter()
        .map(|tokens| ScoreRequest {
            tokens: tokens.clone(),
            trees: trees(),
            decisive: vec![true; trees().len()],
        })
        .collect();
    let mut out: Vec<Option<ScoreResult>> = vec![None; records.len()];
    runner
        .score(&prefix, &requests, &|| true, &mut |index, result| {
            assert!(
                out[index].replace(result).is_none(),
                "one result per record"
            );
        })
        .unwrap();
    out.into_iter()
        .map(|result| result.expect("every record has a result"))
        .collect()
}

/// Straight computation: each node's whole prompt forwarded alone, nothing shared or packed.
fn brute_force(runner: &mut Runner, prefix: &[u32], record: &[u32]) -> Vec<Vec<f64>> {
    trees()
        .iter()
        .map(|tree| {
            let rows: Vec<Vec<f32>> = (0..tree.nodes().len())
                .map(|index| {
                    let mut path = Vec::new();
                    let mut at = Some(index);
                    while let Some(node) = at {
                        path.splice(0..0, tree.nodes()[node].tokens.iter().copied());
                        at = tree.nodes()[node].parent;
                    }
                    let prompt = [prefix, record, &path].concat();
                    runner.prompt_logits(&prompt, 1).unwrap()
                })
                .collect();
            tree.probabilities(|index| &rows[index])
        })
        .collect()
}

fn assert_close(got: &ScoreResult, want: &[Vec<f64>], what: &str) {
    for (score, want) in got.scores.iter().zip(want) {
        for (got, want) in score.probabilities.iter().zip(want) {
            assert!((got - want).abs() < 1e-4, "{what}: {got} {want}");
        }
        assert!((score.probabilities.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        assert!(score.mass > 0.0 && score.mass <= 1.0);
    }
}

fn options(batch_tokens: usize, chunk_tokens: usize) -> RunnerOptions {
    RunnerOptions {
        batch_tokens,
        chunk_tokens,
        reuse: Reuse::Shared,
    }
}

#[test]
fn fork_and_suffix_equal_the_full_prefill() {
    for architecture in ARCHITECTURES {
        for path in BOTH {
            let (mut runner, _directory) = tiny::runner(architecture, path, options(64, 512));
            let mut random = Random(21);
            for prefix_len in [1, 15, 16, 17, 90] {
                let prefix = random.tokens(prefix_len);
                let records: Vec<Vec<u32>> = [1, 5, 33].map(|len| random.tokens(len)).to_vec();
                let got = score(&mut runner, &prefix, &records);
                for (record, got) in records.iter().zip(&got) {
                    let want = brute_force(&mut runner, &prefix, record);
                    assert_close(
                        got,
                        &want,
                        &format!("{architecture:?} {path:?} {prefix_len}"),
                    );
                    assert_eq!(got.cached_tokens, prefix_len);
                }
            }
        }
    }
}

#[test]
fn a_row_does_not_depend_on_its_company() {
    for architecture in ARCHITECTURES {
        for path in BOTH {
            let (mut runner, _directory) = tiny::runner(architecture, path, options(512, 2048));
            let mut random = Random(4);
            let prefix = random.tokens(40);
            let (a, b) = (random.tokens(30), random.tokens(47));
            let packed = score(&mut runner, &prefix, &[a.clone(), a.clone(), b.clone()]);
            let alone_a = score(&mut runner, &prefix, std::slice::from_ref(&a));
            let alone_b = score(&mut runner, &prefix, std::slice::from_ref(&b));
            for (packed, alone) in packed.iter().zip([&alone_a[0], &alone_a[0], &alone_b[0]]) {
                let want: Vec<Vec<f64>> = alone
                    .scores
                    .iter()
                    .map(|score| score.probabilities.clone())
                    .collect();
                assert_close(packed, &want, &format!("{architecture:?} {path:?}"));
            }
        }
    }
}

#[test]
fn long_records_go_through_slots_and_leave_none_behind() {
    for architecture in ARCHITECTURES {
        for path in BOTH {
            let (mut runner, _directory) = tiny::runner(architecture, path, options(24, 40));
            let mut random = Random(8);
            let prefix = random.tokens(50);
            let records: Vec<Vec<u32>> = [40, 41, 48, 49, 100, 3]
                .map(|len| random.tokens(len))
                .to_vec();
            let got = score(&mut runner, &prefix, &records);
            for (record, got) in records.iter().zip(&got) {
                let want = brute_force(&mut runner, &prefix, record);
                assert_close(
                    got,
                    &want,
                    &format!("{architecture:?} {path:?} {}", record.len()),
                );
            }
            let stats = runner.cache_stats();
            assert_eq!(stats.blocks_used, 0, "only the prefix is held");
            assert_eq!(stats.forks_live, 0);
            assert_eq!(stats.leaked_blocks, 0);
        }
    }
}

#[test]
fn a_long_record_that_one_forward_takes_is_not_cut() {
    for path in BOTH {
        let (mut runner, _directory) = tiny::runner(Architecture::Llama, path, options(64, 40));
        let mut random = Random(9);
        let (prefix, record) = (random.tokens(20), random.tokens(50));
        let got = score(&mut runner, &prefix, std::slice::from_ref(&record));
        assert_eq!(runner.model().forwards(), 2, "one of them for the prefix");
        let want = brute_force(&mut runner, &prefix, &record);
        assert_close(&got[0], &want, &format!("{path:?}"));
    }
}

/// Wherever `ENGINE_TEST_DEVICE` puts the portable path, it decides as the fast path on the CPU.
#[test]
fn both_paths_choose_the_same_labels_with_the_same_logits() {
    for architecture in ARCHITECTURES {
        let [mut cpu, mut portable] =
            BOTH.map(|path| tiny::runner(architecture, path, options(1024, 2048)).0);
        let mut random = Random(31);
        let prompt = random.tokens(200);
        let rows = [&mut cpu, &mut portable].map(|runner| runner.prompt_logits(&prompt, 200));
        let [want, got] = rows.map(Result::unwrap);
        let difference = tiny::largest_difference(&want, &got);
        assert!(difference < 1e-3, "{architecture:?}: {difference}");

        let prefix = random.tokens(70);
        // More than one piece of attention on the portable path, and a record that outgrows one.
        let mut records: Vec<Vec<u32>> = (0..40).map(|i| random.tokens(3 + i % 60)).collect();
        records.push(random.tokens(700));
        let (want, got) = (
            score(&mut cpu, &prefix, &records),
            score(&mut portable, &prefix, &records),
        );
        for (want, got) in want.iter().zip(&got) {
            let probabilities: Vec<Vec<f64>> = want
                .scores
                .iter()
                .map(|score| score.probabilities.clone())
                .collect();
            assert_close(got, &probabilities, &format!("{architecture:?}"));
            for (want, got) in want.scores.iter().zip(&got.scores) {
                let chosen = |score: &Score| {
                    let labels = 0..score.probabilities.len();
                    labels
                        .max_by(|&a, &b| score.probabilities[a].total_cmp(&score.probabilities[b]))
                };
                assert_eq!(chosen(want), chosen(got), "{want:?} {got:?}");
            }
        }
    }
}

#[test]
fn one_flipped_rubric_token_changes_the_answer() {
    for path in BOTH {
        let (mut runner, _directory) =
            tiny::runner(Architecture::Llama, path, RunnerOptions::default());
        let mut random = Random(13);
        let mut prefix = random.tokens(60);
        let record = [random.tokens(20)];
        let before = score(&mut runner, &prefix, &record);
        prefix[3] = (prefix[3] + 1) % tiny::VOCAB as u32;
        let after = score(&mut runner, &prefix, &record);
        assert_ne!(before[0].scores, after[0].scores);
    }
}

/// The rubric's rows are forwarded once, whatever the number of records, and the counters at layer
/// 0 agree with what each record was told.
#[test]
fn reuse_is_what_layer_zero_saw() {
    for path in BOTH {
        let mut random = Random(2);
        let prefix = random.tokens(70);
        let records: Vec<Vec<u32>> = (0..40).map(|i| random.tokens(5 + i % 17)).collect();
        let branches: usize = trees().iter().map(|tree| tree.tokens()).sum();
        let own: usize = records.iter().map(|record| record.len() + branches).sum();

        let (mut shared, _d) = tiny::runner(Architecture::Qwen2, path, options(128, 512));
        let with_reuse = score(&mut shared, &prefix, &records);
        assert_eq!(shared.model().rows_forwarded(), (prefix.len() + own) as u64);
        assert_eq!(
            with_reuse.iter().map(|r| r.computed_tokens).sum::<usize>(),
            own
        );
        assert!(with_reuse.iter().all(|r| r.cached_tokens == prefix.len()));
        score(&mut shared, &prefix, &records);
        assert_eq!(
            shared.model().rows_forwarded(),
            (prefix.len() + 2 * own) as u64,
            "a sealed prefix is found, not computed again"
        );

        let off = RunnerOptions {
            reuse: Reuse::Off,
            ..options(128, 512)
        };
        let (mut unshared, _d) = tiny::runner(Architecture::Qwen2, path, off);
        let without = score(&mut unshared, &prefix, &records);
        let sealed = prefix.len() as u64;
        assert_eq!(
            unshared.model().rows_forwarded() - sealed,
            (records.len() * prefix.len() + own) as u64
        );
        for (a, b) in with_reuse.iter().zip(&without) {
            assert_eq!(b.cached_tokens, 0);
            let want: Vec<Vec<f64>> = b.scores.iter().map(|s| s.probabilities.clone()).collect();
            assert_close(a, &want, "shared against unshared");
        }
    }
}

#[test]
fn stopping_early_leaves_the_rest_without_a_result() {
    let (mut runner, _directory) =
        tiny::runner(Architecture::Llama, tiny::Route::Cpu, options(32, 512));
    let mut random = Random(1);
    let (prefix, _) = runner.seal(&Namespace([0; 32]), &random.tokens(9)).unwrap();
    let requests: Vec<ScoreRequest> = (0..30)
        .map(|_| ScoreRequest {
            tokens: random.tokens(10),
            trees: trees(),
            decisive: vec![true; trees().len()],
        })
        .collect();
    let asked = std::cell::Cell::new(0);
    let mut seen = 0;
    runner
        .score(
            &prefix,
            &requests,
            &|| {
                asked.set(asked.get() + 1);
                asked.get() <= 2
            },
            &mut |_, _| seen += 1,
        )
        .unwrap();
    assert!(seen > 0 && seen < requests.len(), "{seen}");
    assert_eq!(runner.cache_stats().forks_live, 0);
}
