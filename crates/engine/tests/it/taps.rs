//! Inner states handed out beside scores: the same however a record is computed, and at no cost.

use std::sync::Arc;

use engine::label_tree::LabelTree;
use engine::model::Batch;
use engine::model::config::Architecture;
use engine::runner::{RecordStates, Reuse, Runner, RunnerOptions, ScoreRequest, ScoreResult};
use kvcache::{KvCache, Namespace};

use crate::tiny::{self, BOTH, Random};

const LAYERS: [usize; 2] = [0, 2];
const HIDDEN: usize = 64;

fn score(runner: &mut Runner, prefix: &[u32], records: &[Vec<u32>]) -> Vec<ScoreResult> {
    let kind = LabelTree::new("kind", &[vec![10, 11, 1], vec![10, 11, 2]], 95).unwrap();
    let bare = LabelTree::new("bare", &[vec![3], vec![4]], 95).unwrap();
    let trees = vec![Arc::new(kind), Arc::new(bare)];
    let (prefix, _) = runner.seal(&Namespace([3; 32]), prefix).unwrap();
    let requests: Vec<ScoreRequest> = records
        .iter()
        .map(|tokens| ScoreRequest {
            tokens: tokens.clone(),
            decisive: vec![true; trees.len()],
            trees: trees.clone(),
        })
        .collect();
    let mut out = vec![None; records.len()];
    runner
        .score(&prefix, &requests, &|| true, &mut |index, result| {
            out[index] = Some(result);
        })
        .unwrap();
    out.into_iter().map(Option::unwrap).collect()
}

fn states(results: &[ScoreResult]) -> Vec<RecordStates> {
    results.iter().map(|r| r.states.clone().unwrap()).collect()
}

fn options(batch_tokens: usize, reuse: Reuse) -> RunnerOptions {
    RunnerOptions {
        batch_tokens,
        chunk_tokens: 40,
        reuse,
    }
}

fn assert_equal(got: &[RecordStates], want: &[RecordStates], what: &str) {
    for (got, want) in got.iter().zip(want) {
        assert_eq!(want.mean.len(), LAYERS.len() * HIDDEN);
        assert_eq!(want.answers.len(), 2);
        assert_eq!(want.answers[0].len(), (LAYERS.len() + 1) * HIDDEN);
        let pairs = got.answers.iter().zip(&want.answers);
        let far = pairs
            .map(|(got, want)| tiny::largest_difference(got, want))
            .fold(tiny::largest_difference(&got.mean, &want.mean), f32::max);
        assert!(far < 1e-3, "{what}: {far}");
    }
}

#[test]
fn tapped_states_are_those_of_each_prompt_computed_alone_on_both_paths() {
    for architecture in [Architecture::Llama, Architecture::Qwen2] {
        let mut of_both = Vec::new();
        for path in BOTH {
            let mut random = Random(21);
            let prefix = random.tokens(30);
            // The last two outgrow what one forward takes, and go through slots.
            let records = [1, 5, 33, 12, 90, 300].map(|len| random.tokens(len));
            let (mut runner, _directory) =
                tiny::runner(architecture, path, options(64, Reuse::Shared));
            runner.tap(&LAYERS);
            let packed = states(&score(&mut runner, &prefix, &records));
            let (mut alone, _directory) =
                tiny::runner(architecture, path, options(1 << 20, Reuse::Off));
            alone.tap(&LAYERS);
            for (record, packed) in records.iter().zip(&packed) {
                let want = states(&score(&mut alone, &prefix, std::slice::from_ref(record)));
                let what = format!("{architecture:?} {path:?} {}", record.len());
                assert_equal(std::slice::from_ref(packed), &want, &what);
            }
            of_both.push(packed);
        }
        assert_equal(&of_both[1], &of_both[0], "one path against the other");
    }
}

#[test]
fn what_enters_the_first_layer_is_the_mean_of_the_records_own_embeddings() {
    for path in BOTH {
        let mut random = Random(4);
        let (prefix, record) = (random.tokens(17), random.tokens(9));
        let (mut runner, directory) =
            tiny::runner(Architecture::Llama, path, options(64, Reuse::Shared));
        runner.tap(&LAYERS);
        let found = states(&score(&mut runner, &prefix, std::slice::from_ref(&record)));
        let files = engine::model::ModelFiles::open(directory.path()).unwrap();
        let table = files
            .tensor("token_embd.weight", &[tiny::VOCAB, HIDDEN])
            .unwrap();
        for column in 0..HIDDEN {
            let values = record
                .iter()
                .map(|&token| table[token as usize * HIDDEN + column]);
            let mean = values.sum::<f32>() / record.len() as f32;
            assert!((found[0].mean[column] - mean).abs() < 1e-5, "{path:?}");
        }
        // The answer's node is the last token of the scaffold, 11.
        assert_eq!(
            found[0].answers[0][..HIDDEN],
            table[11 * HIDDEN..12 * HIDDEN]
        );
    }
}

#[test]
fn taps_change_no_score_and_forward_no_row_more() {
    for path in BOTH {
        let mut random = Random(6);
        let prefix = random.tokens(40);
        let records: Vec<Vec<u32>> = (0..30).map(|i| random.tokens(3 + i * 4)).collect();
        let (mut plain, _d) = tiny::runner(Architecture::Qwen2, path, options(64, Reuse::Shared));
        let (mut tapped, _d) = tiny::runner(Architecture::Qwen2, path, options(64, Reuse::Shared));
        tapped.tap(&LAYERS);
        let without = score(&mut plain, &prefix, &records);
        let with = score(&mut tapped, &prefix, &records);
        for (without, with) in without.iter().zip(&with) {
            assert_eq!(without.scores, with.scores, "{path:?}");
            assert!(without.states.is_none() && with.states.is_some());
        }
        assert_eq!(
            plain.model().rows_forwarded(),
            tapped.model().rows_forwarded()
        );
        assert_eq!(plain.model().forwards(), tapped.model().forwards());
    }
}

#[test]
fn a_batch_cut_into_parts_taps_the_same_rows_in_the_same_order() {
    for path in BOTH {
        let (runner, directory) = tiny::runner(Architecture::Llama, path, RunnerOptions::default());
        drop(runner);
        let files = engine::model::ModelFiles::open(directory.path()).unwrap();
        let mut model = tiny::load(&files, path);
        let mut cache = KvCache::new(model.config().kv_layout().unwrap(), 1).unwrap();
        let mut random = Random(12);
        let mut batch = Batch {
            taps: LAYERS.to_vec(),
            ..Batch::default()
        };
        for len in [3, 40, 7, 90, 20] {
            let root = batch.push(&random.tokens(len), None, None);
            let start = batch.segments[root].start;
            batch.pooled.push(start..start + len);
            let branch = batch.push(&random.tokens(2), Some(root), None);
            batch.ask_last(branch);
        }
        let whole = model.forward_tapped(&batch, &mut cache).unwrap();
        let mut offset = 0;
        for part in batch.split(3) {
            let states = model.forward_tapped(&part, &mut cache).unwrap();
            for layer in 0..LAYERS.len() {
                let rows = offset * HIDDEN..(offset + part.asked.len()) * HIDDEN;
                let close = |a: &[f32], b: &[f32]| tiny::largest_difference(a, b) < 1e-4;
                assert!(close(&states.rows[layer], &whole.rows[layer][rows.clone()]));
                assert!(close(&states.means[layer], &whole.means[layer][rows]));
            }
            offset += part.asked.len();
        }
        assert_eq!(offset, 5);
    }
}
