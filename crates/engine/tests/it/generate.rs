//! Greedy decoding through prefix and slots equals the loop that computes everything anew.

mod ahead;
mod compose;
mod together;

use std::cell::Cell;
use std::collections::BTreeSet;

use engine::error::EngineError;
use engine::model::cpu::CpuModel;
use engine::model::linear::Numerics;
use engine::model::{Batch, Model, ModelConfig, ModelFiles, States};
use engine::runner::{Ending, GenerateRequest, Generated, Reuse, Runner, RunnerOptions};
use kvcache::{KvCache, Namespace};

use crate::tiny::{self, BOTH, Random, Route};

const MODELS: [&str; 2] = ["tiny-llama", "tiny-qwen2"];
const TOKENS: usize = 24;
/// Two paths compute the same logits to 1e-3; a choice that is clearer than this binds both.
const CLEAR: f32 = 4e-3;

fn open(name: &str) -> ModelFiles {
    ModelFiles::open(&tiny::fixture(&format!("reference/{name}"))).unwrap()
}

/// Small chunks, so that prompts of a few dozen tokens take several.
fn runner_of(model: Box<dyn Model>) -> Runner {
    let options = RunnerOptions {
        batch_tokens: 16,
        chunk_tokens: 64,
        reuse: Reuse::Shared,
    };
    Runner::new(model, options).unwrap()
}

fn runner(name: &str, route: Route) -> Runner {
    runner_of(tiny::load(&open(name), route))
}

/// The straight computation: the whole sequence forwarded anew for every token, nothing kept.
/// Returns the tokens and the smallest lead of a chosen token over the second best.
fn naive(runner: &mut Runner, prompt: &[u32], count: usize) -> (Vec<u32>, f32) {
    let mut sequence = prompt.to_vec();
    let mut smallest = f32::INFINITY;
    for _ in 0..count {
        let logits = runner.prompt_logits(&sequence, 1).unwrap();
        let mut order: Vec<usize> = (0..logits.len()).collect();
        order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
        smallest = smallest.min(logits[order[0]] - logits[order[1]]);
        sequence.push(order[0] as u32);
    }
    (sequence.split_off(prompt.len()), smallest)
}

/// Continues `prompt`, its first `shared` tokens being a sealed prefix.
fn generate(
    runner: &mut Runner,
    prompt: &[u32],
    shared: usize,
    tokens_max: usize,
    stop: &[u32],
    keep_going: &dyn Fn() -> bool,
) -> (Vec<u32>, Generated) {
    let (head, tokens) = prompt.split_at(shared);
    let prefix = (shared > 0).then(|| runner.seal(&Namespace([5; 32]), head).unwrap().0);
    let request = GenerateRequest {
        tokens,
        tokens_max: tokens_max as u32,
        stop,
    };
    let before = runner.model().rows_forwarded();
    let mut out = Vec::new();
    let done = runner
        .generate(prefix.as_ref(), request, keep_going, &mut |token| {
            out.push(token)
        })
        .unwrap();
    assert_eq!(done.cached_tokens, shared);
    let rows = (runner.model().rows_forwarded() - before) as usize;
    assert_eq!(
        rows,
        done.computed_tokens + done.generated_tokens.saturating_sub(1),
        "the last token chosen is not forwarded"
    );
    assert_free(runner, usize::from(shared > 0));
    (out, done)
}

/// All blocks are back, and nothing but sealed prefixes is held.
fn assert_free(runner: &Runner, prefixes_min: usize) {
    let stats = runner.cache_stats();
    assert_eq!((stats.blocks_used, stats.blocks_promised), (0, 0));
    assert_eq!((stats.forks_live, stats.live_bytes), (0, 0));
    assert_eq!((stats.leaked_blocks, stats.leaked_promises), (0, 0));
    assert!(stats.prefixes as usize >= prefixes_min);
}

/// The first seeded prompt of this length after which every choice is clear, and the tokens chosen.
fn clear_prompt(runner: &mut Runner, len: usize, clear: f32) -> (Vec<u32>, Vec<u32>) {
    (0..20)
        .map(|seed| Random(seed).tokens(len))
        .find_map(|prompt| {
            let (tokens, lead) = naive(runner, &prompt, TOKENS);
            (lead > clear).then_some((prompt, tokens))
        })
        .expect("one of 20 prompts is clear")
}

#[test]
fn tokens_equal_the_loop_without_a_cache() {
    for name in MODELS {
        let mut portable = runner(name, Route::Portable);
        let mut routes = BOTH.map(|route| runner(name, route));
        let mut seen = BTreeSet::new();
        for len in [1, 2, 15, 16, 17, 50] {
            let (prompt, want) = clear_prompt(&mut portable, len, CLEAR);
            for runner in &mut routes {
                let (got, done) = generate(runner, &prompt, 0, TOKENS, &[], &|| true);
                assert_eq!(got, want, "{name} {} {len}", runner.model().tier());
                assert_eq!(done.ending, Ending::TokensMax);
                assert_eq!(done.computed_tokens, len);
                assert_eq!(done.generated_tokens, TOKENS);
            }
            seen.extend(want);
        }
        assert!(seen.len() > TOKENS, "{name} repeats itself: {seen:?}");
    }
}

/// The integer tier differs from f32 by more than it differs from itself, so it is its own oracle.
#[test]
fn the_integer_tier_equals_its_own_loop_without_a_cache() {
    for name in MODELS {
        let files = open(name);
        let mut int16 = runner_of(Box::new(CpuModel::load(&files, Numerics::Int16).unwrap()));
        for len in [1, 17, 50] {
            let (prompt, want) = clear_prompt(&mut int16, len, CLEAR);
            for shared in [0, len / 2] {
                let (got, _) = generate(&mut int16, &prompt, shared, TOKENS, &[], &|| true);
                assert_eq!(got, want, "{name} {len} {shared}");
            }
        }
    }
}

#[test]
fn a_fork_of_a_prefix_continues_as_the_whole_prompt_does() {
    for name in MODELS {
        for route in BOTH {
            let mut runner = runner(name, route);
            let prompt = Random(5).tokens(50);
            let (want, _) = generate(&mut runner, &prompt, 0, TOKENS, &[], &|| true);
            for shared in [1, 15, 16, 17, 33, 49] {
                let (got, done) = generate(&mut runner, &prompt, shared, TOKENS, &[], &|| true);
                assert_eq!(got, want, "{name} {route:?} {shared}");
                assert_eq!(done.computed_tokens + done.cached_tokens, prompt.len());
            }
        }
    }
}

#[test]
fn a_stop_token_ends_the_text_and_is_no_part_of_it() {
    for name in MODELS {
        let mut runner = runner(name, Route::Cpu);
        let prompt = Random(5).tokens(50);
        let (all, _) = generate(&mut runner, &prompt, 20, TOKENS, &[], &|| true);
        let mut ends: Vec<usize> = (0..TOKENS)
            .filter(|&at| !all[..at].contains(&all[at]))
            .collect();
        assert!(ends.len() > 2, "{name}: {all:?}");
        ends.truncate(6);
        for at in ends {
            // A token that never comes up stands before it, so that the whole list is looked at.
            let stop = [u32::MAX, all[at]];
            let (got, done) = generate(&mut runner, &prompt, 20, TOKENS, &stop, &|| true);
            assert_eq!(got, all[..at], "{name}");
            assert_eq!(done.ending, Ending::Stopped);
            assert_eq!(done.generated_tokens, at + 1);
        }
    }
}

#[test]
fn no_more_tokens_come_than_were_asked_for() {
    let mut runner = runner("tiny-qwen2", Route::Cpu);
    let prompt = Random(6).tokens(50);
    let (all, _) = generate(&mut runner, &prompt, 0, TOKENS, &[], &|| true);
    for count in [1, 2, 15, 16, 17] {
        let (got, done) = generate(&mut runner, &prompt, 0, count, &[], &|| true);
        assert_eq!(got, all[..count]);
        assert_eq!(done.ending, Ending::TokensMax);
        assert_eq!(done.generated_tokens, count);
    }
}

/// 30 own tokens in chunks of 16 are two forwards; each token but the last is one more.
#[test]
fn a_cancelled_text_stops_before_the_next_forward() {
    let mut runner = runner("tiny-llama", Route::Cpu);
    let prompt = Random(3).tokens(50);
    let (all, _) = generate(&mut runner, &prompt, 20, TOKENS, &[], &|| true);
    for (forwards, computed, written) in [(0, 0, 0), (1, 16, 0), (2, 30, 1), (3, 30, 2), (9, 30, 8)]
    {
        let asked = Cell::new(0);
        let keep_going = || {
            asked.set(asked.get() + 1);
            asked.get() <= forwards
        };
        let (got, done) = generate(&mut runner, &prompt, 20, TOKENS, &[], &keep_going);
        assert_eq!(done.ending, Ending::Cancelled);
        assert_eq!(done.computed_tokens, computed);
        assert_eq!(got, all[..written]);
        assert_eq!(done.generated_tokens, written);
    }
}

#[test]
fn what_does_not_fit_is_refused_before_anything_is_computed() {
    let mut files = open("tiny-llama");
    let refusal = |files: &ModelFiles, len: usize, tokens_max: u32| -> String {
        let mut runner = runner_of(tiny::load(files, Route::Cpu));
        let tokens = Random(1).tokens(len);
        let request = GenerateRequest {
            tokens: &tokens,
            tokens_max,
            stop: &[],
        };
        let error = runner
            .generate(None, request, &|| true, &mut |_| panic!("a token came"))
            .unwrap_err();
        assert!(
            matches!(error, EngineError::GenerationTooLong { .. }),
            "{error}"
        );
        assert_eq!(runner.model().rows_forwarded(), 0);
        assert_free(&runner, 0);
        error.to_string()
    };
    for (len, tokens_max) in [(512, 1), (489, 24), (1, 512), (600, 1), (1, u32::MAX)] {
        let message = refusal(&files, len, tokens_max);
        for part in [len.to_string(), tokens_max.to_string(), "512".into()] {
            assert!(message.contains(&part), "{message}");
        }
    }
    // A context beyond the pool of slots leaves the pool as the bound.
    files.config.context = 1 << 21;
    assert!(refusal(&files, 10, 1 << 20).contains("1048576"));

    let mut runner = runner("tiny-llama", Route::Cpu);
    let fits = Random(1).tokens(488);
    let (got, _) = generate(&mut runner, &fits, 100, TOKENS, &[], &|| true);
    assert_eq!(got.len(), TOKENS, "a prompt that fits exactly is continued");
}

/// A model that gives out after so many forwards, or whose logits are spoilt from then on.
struct Failing {
    inner: Box<dyn Model>,
    forwards_left: usize,
    spoil: bool,
}

impl Model for Failing {
    fn config(&self) -> &ModelConfig {
        self.inner.config()
    }

    fn tier(&self) -> String {
        self.inner.tier()
    }

    fn forward_tapped(
        &mut self,
        batch: &Batch<'_>,
        cache: &mut KvCache,
    ) -> Result<States, EngineError> {
        if self.forwards_left == 0 && !self.spoil {
            return Err(candle_core::Error::msg("out of memory").into());
        }
        self.forwards_left = self.forwards_left.saturating_sub(1);
        self.inner.forward_tapped(batch, cache)
    }

    fn logits(&mut self, hidden: &[f32]) -> Result<Vec<f32>, EngineError> {
        let mut logits = self.inner.logits(hidden)?;
        if self.forwards_left == 0 && self.spoil {
            logits[7] = f32::NAN;
        }
        Ok(logits)
    }

    fn rows_forwarded(&self) -> u64 {
        self.inner.rows_forwarded()
    }

    fn forwards(&self) -> u64 {
        self.inner.forwards()
    }
}

#[test]
fn a_failure_on_the_way_leaves_no_slot_behind() {
    let files = open("tiny-llama");
    for spoil in [false, true] {
        for forwards_left in [1, 3, 4, 7] {
            let mut runner = runner_of(Box::new(Failing {
                inner: tiny::load(&files, Route::Cpu),
                forwards_left,
                spoil,
            }));
            let tokens = Random(9).tokens(40);
            let request = GenerateRequest {
                tokens: &tokens,
                tokens_max: 20,
                stop: &[],
            };
            let mut written = 0;
            let error = runner
                .generate(None, request, &|| true, &mut |_| written += 1)
                .unwrap_err();
            match error {
                EngineError::NotFinite => assert!(spoil),
                EngineError::Tensor(_) => assert!(!spoil),
                other => panic!("{other}"),
            }
            // Three forwards prefill; each later one follows a token that was handed out.
            let whole: usize = if spoil { 3 } else { 2 };
            assert_eq!(written, forwards_left.saturating_sub(whole), "{spoil}");
            assert_free(&runner, 0);
        }
    }
}
