//! Prompts that are decoded together continue as each does alone, and share every forward.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use engine::error::EngineError;
use engine::model::cpu::CpuModel;
use engine::model::linear::Numerics;
use engine::model::{Batch, Model, ModelConfig, States};
use engine::runner::{DECODE_SLOTS, Ending, GenerateRequest, Generated, Progress, Runner};
use kvcache::{KvCache, Namespace, Prefix};

use super::{Failing, MODELS, assert_free, open, runner, runner_of};
use crate::tiny::{self, BOTH, Random, Route};

/// A request that owns its tokens.
#[derive(Clone)]
struct Asked {
    tokens: Vec<u32>,
    tokens_max: u32,
    stop: Vec<u32>,
}

impl Asked {
    fn new(seed: u64, len: usize, tokens_max: u32) -> Self {
        Self {
            tokens: Random(seed).tokens(len),
            tokens_max,
            stop: Vec::new(),
        }
    }

    fn request(&self) -> GenerateRequest<'_> {
        GenerateRequest {
            tokens: &self.tokens,
            tokens_max: self.tokens_max,
            stop: &self.stop,
        }
    }
}

/// What one request was told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Told {
    tokens: Vec<u32>,
    end: Option<Generated>,
}

/// Continues all and checks what holds of every call: the end is told once and last, the rows are
/// those of the prompts and of every token but the last, no slot is held afterwards.
fn together(
    runner: &mut Runner,
    prefix: Option<&Prefix>,
    asked: &[Asked],
    slots: usize,
    keep_going: &dyn Fn() -> bool,
) -> (Vec<Told>, Result<(), EngineError>) {
    let requests: Vec<GenerateRequest<'_>> = asked.iter().map(Asked::request).collect();
    let mut told = vec![Told::default(); asked.len()];
    let before = runner.model().rows_forwarded();
    let outcome =
        runner.generate_many(prefix, &requests, slots, keep_going, &mut |at, progress| {
            assert_eq!(told[at].end, None, "nothing comes after the end of {at}");
            match progress {
                Progress::Token(token) => told[at].tokens.push(token),
                Progress::Ended(end) => told[at].end = Some(end),
            }
        });
    assert_free(runner, usize::from(prefix.is_some()));
    if outcome.is_ok() {
        let rows: usize = told
            .iter()
            .map(|told| told.end.expect("every request is told its end"))
            .map(|end| match end.ending {
                // No token followed the last one that was forwarded.
                Ending::NotFinite => end.computed_tokens + end.generated_tokens,
                _ => end.computed_tokens + end.generated_tokens.saturating_sub(1),
            })
            .sum();
        assert_eq!(runner.model().rows_forwarded() - before, rows as u64);
    }
    (told, outcome)
}

/// Each request in a call of its own.
fn alone(runner: &mut Runner, prefix: Option<&Prefix>, asked: &[Asked]) -> Vec<Told> {
    asked
        .iter()
        .map(|asked| {
            let mut tokens = Vec::new();
            let end = runner
                .generate(prefix, asked.request(), &|| true, &mut |token| {
                    tokens.push(token)
                })
                .unwrap();
            let end = Some(end);
            Told { tokens, end }
        })
        .collect()
}

/// Prompts of one token to several chunks, texts of one token to 24, and every third one ends at a
/// token of its own.
fn mixed(runner: &mut Runner, prefix: Option<&Prefix>) -> Vec<Asked> {
    let lens = [1, 40, 2, 15, 16, 17, 33, 8, 50, 1, 16, 21];
    let mut asked: Vec<Asked> = (0..)
        .zip(lens)
        .map(|(seed, len)| Asked::new(seed, len, 1 + (seed as u32 * 7 + 5) % 24))
        .collect();
    let texts = alone(runner, prefix, &asked);
    for (asked, text) in asked.iter_mut().zip(texts).step_by(3) {
        let at = text.tokens.len() / 2;
        asked.stop = vec![u32::MAX, text.tokens[at]];
    }
    asked
}

fn shared(runner: &mut Runner, len: usize) -> Option<Prefix> {
    let tokens = Random(77).tokens(len);
    (len > 0).then(|| runner.seal(&Namespace([5; 32]), &tokens).unwrap().0)
}

fn int16(name: &str) -> Runner {
    runner_of(Box::new(
        CpuModel::load(&open(name), Numerics::Int16).unwrap(),
    ))
}

#[test]
fn a_text_does_not_depend_on_what_is_decoded_beside_it() {
    for name in MODELS {
        let routes = BOTH.map(|route| runner(name, route));
        for mut runner in routes.into_iter().chain([int16(name)]) {
            for prefix_len in [0, 20] {
                let prefix = shared(&mut runner, prefix_len);
                let prefix = prefix.as_ref();
                let asked = mixed(&mut runner, prefix);
                let want = alone(&mut runner, prefix, &asked);
                let stopped = |told: &&Told| told.end.unwrap().ending == Ending::Stopped;
                assert!((2..12).contains(&want.iter().filter(stopped).count()));
                for slots in [1, 2, 5, DECODE_SLOTS] {
                    let (got, outcome) = together(&mut runner, prefix, &asked, slots, &|| true);
                    outcome.unwrap();
                    assert_eq!(got, want, "{name} {} {slots}", runner.model().tier());
                }
                // Another order is other company from the first forward on.
                let mut order: Vec<usize> = (0..asked.len()).collect();
                let mut random = Random(prefix_len as u64);
                for _ in 0..3 {
                    order.sort_by_cached_key(|_| random.next());
                    let asked: Vec<Asked> = order.iter().map(|&at| asked[at].clone()).collect();
                    let (got, _) = together(&mut runner, prefix, &asked, 4, &|| true);
                    for (got, &at) in got.iter().zip(&order) {
                        assert_eq!(*got, want[at], "{name} {order:?}");
                    }
                }
            }
        }
    }
}

/// What a watched model saw.
#[derive(Default)]
struct Seen {
    forwards: Vec<Vec<usize>>,  // lengths of the segments
    logits: BTreeSet<Vec<u32>>, // rows, as bits
}

/// Can spoil one row of logits in one forward.
struct Watched {
    inner: Box<dyn Model>,
    seen: Arc<Mutex<Seen>>,
    spoil: Option<(usize, usize)>, // forward, row
}

impl Model for Watched {
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
        let lens = batch.segments.iter().map(|segment| segment.len).collect();
        self.seen.lock().unwrap().forwards.push(lens);
        self.inner.forward_tapped(batch, cache)
    }

    fn logits(&mut self, hidden: &[f32]) -> Result<Vec<f32>, EngineError> {
        let mut logits = self.inner.logits(hidden)?;
        let vocab = self.inner.config().vocab;
        if let Some((forward, row)) = self.spoil
            && self.inner.forwards() as usize == forward
        {
            logits[row * vocab + 7] = f32::INFINITY;
        }
        let rows = logits.chunks_exact(vocab);
        let bits = rows.map(|row| row.iter().map(|logit| logit.to_bits()).collect());
        self.seen.lock().unwrap().logits.extend(bits);
        Ok(logits)
    }

    fn rows_forwarded(&self) -> u64 {
        self.inner.rows_forwarded()
    }

    fn forwards(&self) -> u64 {
        self.inner.forwards()
    }
}

fn watch(inner: Box<dyn Model>, spoil: Option<(usize, usize)>) -> (Runner, Arc<Mutex<Seen>>) {
    let seen = Arc::<Mutex<Seen>>::default();
    let model = Watched {
        inner,
        seen: seen.clone(),
        spoil,
    };
    (runner_of(Box::new(model)), seen)
}

fn watched(context: usize) -> (Runner, Arc<Mutex<Seen>>) {
    let mut files = open("tiny-llama");
    files.config.context = context;
    watch(tiny::load(&files, Route::Cpu), None)
}

/// Stronger than equal tokens: the logits behind them, where sums are exact.
#[test]
fn no_bit_of_a_row_depends_on_what_is_decoded_beside_it() {
    let files = open("tiny-llama");
    let model = CpuModel::load(&files, Numerics::Int16).unwrap();
    let (mut runner, seen) = watch(Box::new(model), None);
    let prefix = shared(&mut runner, 20);
    let asked = mixed(&mut runner, prefix.as_ref());
    seen.lock().unwrap().logits.clear();
    alone(&mut runner, prefix.as_ref(), &asked);
    let want = std::mem::take(&mut seen.lock().unwrap().logits);
    assert!(want.len() > 60);
    for slots in [2, 5, DECODE_SLOTS] {
        let (_, outcome) = together(&mut runner, prefix.as_ref(), &asked, slots, &|| true);
        outcome.unwrap();
        let got = std::mem::take(&mut seen.lock().unwrap().logits);
        assert!(got == want, "{slots} slots");
    }
}

/// Forwards aim for 16 rows. The third prompt, of 20 tokens, has to wait for the first two and then
/// takes two forwards; the last two enter beside its decoding when the first two have ended.
#[test]
fn a_prompt_is_forwarded_beside_the_next_tokens_of_the_others() {
    let (mut runner, seen) = watched(512);
    let asked: Vec<Asked> = (0..)
        .zip([10, 4, 20, 7, 7])
        .map(|(seed, len)| Asked::new(seed, len, 4))
        .collect();
    let (_, outcome) = together(&mut runner, None, &asked, 3, &|| true);
    outcome.unwrap();
    let want: [&[usize]; 8] = [
        &[10, 4],
        &[1, 1, 16],
        &[1, 1, 4],
        &[1, 1, 1],
        &[1, 7, 7],
        &[1, 1, 1],
        &[1, 1],
        &[1, 1],
    ];
    assert_eq!(seen.lock().unwrap().forwards, want);
}

#[test]
fn a_text_is_handed_out_while_longer_ones_are_still_decoded() {
    let mut runner = runner("tiny-qwen2", Route::Cpu);
    let asked = [12, 3, 5, 2].map(|tokens_max| Asked::new(9, 6, tokens_max));
    let requests = asked.each_ref().map(Asked::request);
    let mut ended = Vec::new();
    runner
        .generate_many(None, &requests, 2, &|| true, &mut |at, progress| {
            if matches!(progress, Progress::Ended(_)) {
                ended.push(at);
            }
        })
        .unwrap();
    assert_eq!(ended, [1, 2, 3, 0]);
}

/// The pool holds 1,048,576 tokens: one worst case of 600,000 beside a small one, but not two.
#[test]
fn only_what_can_finish_is_admitted_and_in_order() {
    let (mut runner, seen) = watched(1 << 21);
    let mut asked: Vec<Asked> = (0..4).map(|seed| Asked::new(seed, 5, 24)).collect();
    let texts = alone(&mut runner, None, &asked);
    for at in [0, 1] {
        asked[at].tokens_max = 600_000;
        asked[at].stop = vec![texts[at].tokens[6]];
    }
    let want = alone(&mut runner, None, &asked);
    seen.lock().unwrap().forwards.clear();
    let (got, outcome) = together(&mut runner, None, &asked, 3, &|| true);
    outcome.unwrap();
    assert_eq!(got, want);
    let forwards = &seen.lock().unwrap().forwards;
    let first = want[0].end.unwrap().generated_tokens;
    assert!(first > 1, "the first one is in flight for a while");
    for lens in &forwards[..first] {
        assert_eq!(lens.len(), 1, "the second does not fit, the third waits");
    }
    assert_eq!(forwards[first], [5, 5, 5]);
}

#[test]
fn a_cancel_at_any_step_ends_every_text_once_and_frees_all_slots() {
    for (route, prefix_len) in [(Route::Cpu, 20), (Route::Portable, 0)] {
        let mut runner = runner("tiny-llama", route);
        let prefix = shared(&mut runner, prefix_len);
        let prefix = prefix.as_ref();
        let asked = mixed(&mut runner, prefix);
        let whole = alone(&mut runner, prefix, &asked);
        let mut cancelled_before = asked.len() + 1;
        for forwards in 0.. {
            let left = Cell::new(forwards);
            let keep_going = || left.replace(left.get() - 1) > 0;
            let (got, outcome) = together(&mut runner, prefix, &asked, 4, &keep_going);
            outcome.unwrap();
            let mut cancelled = 0;
            for (got, whole) in got.iter().zip(&whole) {
                match got.end.unwrap().ending {
                    Ending::Cancelled => {
                        cancelled += 1;
                        assert!(whole.tokens.starts_with(&got.tokens));
                        assert_eq!(got.end.unwrap().generated_tokens, got.tokens.len());
                        assert_eq!(got.end.unwrap().cached_tokens, prefix_len);
                    }
                    _ => assert_eq!(got, whole),
                }
            }
            assert!(cancelled <= cancelled_before, "{forwards}");
            cancelled_before = cancelled;
            if forwards == 0 {
                assert_eq!(cancelled, asked.len());
            }
            if cancelled == 0 {
                assert!(forwards > 20);
                break;
            }
        }
    }
}

#[test]
fn a_failure_frees_all_slots_and_leaves_what_had_ended() {
    let files = open("tiny-llama");
    let mut sound = runner("tiny-llama", Route::Cpu);
    let asked = mixed(&mut sound, None);
    let whole = alone(&mut sound, None, &asked);
    let mut most_ended = 0;
    for forwards_left in [0, 1, 2, 5, 9, 20, 30] {
        let mut runner = runner_of(Box::new(Failing {
            inner: tiny::load(&files, Route::Cpu),
            forwards_left,
            spoil: false,
        }));
        let (got, outcome) = together(&mut runner, None, &asked, 4, &|| true);
        assert!(
            matches!(outcome, Err(EngineError::Tensor(_))),
            "{outcome:?}"
        );
        let ended = got.iter().filter(|told| told.end.is_some()).count();
        assert!(most_ended <= ended && ended < asked.len());
        most_ended = ended;
        for (got, whole) in got.iter().zip(&whole) {
            assert!(whole.tokens.starts_with(&got.tokens));
            assert!(got.end.is_none() || got == whole);
        }
    }
    assert!(most_ended > 2);
}

#[test]
fn logits_that_are_not_finite_end_their_own_text_only() {
    let asked: Vec<Asked> = (0..4).map(|seed| Asked::new(seed, 5, 8)).collect();
    let whole = alone(&mut runner("tiny-llama", Route::Cpu), None, &asked);
    let model = tiny::load(&open("tiny-llama"), Route::Cpu);
    let (mut runner, _) = watch(model, Some((4, 1)));
    let (got, outcome) = together(&mut runner, None, &asked, 3, &|| true);
    outcome.unwrap();
    for (at, (got, whole)) in got.iter().zip(&whole).enumerate() {
        if at != 1 {
            assert_eq!(got, whole);
            continue;
        }
        assert_eq!(got.end.unwrap().ending, Ending::NotFinite);
        assert_eq!(got.end.unwrap().generated_tokens, 3);
        assert_eq!(got.tokens, whole.tokens[..3]);
    }
}

#[test]
fn one_request_that_cannot_fit_refuses_all_before_anything_is_computed() {
    let mut runner = runner("tiny-llama", Route::Cpu);
    let asked = [Asked::new(1, 5, 8), Asked::new(2, 505, 8)];
    let (got, outcome) = together(&mut runner, None, &asked, 2, &|| true);
    let message = outcome.unwrap_err().to_string();
    assert!(message.contains("505"), "{message}");
    assert_eq!(got, vec![Told::default(); 2]);
    assert_eq!(runner.model().rows_forwarded(), 0);
    let (_, outcome) = together(&mut runner, None, &[], 2, &|| true);
    outcome.unwrap();
    assert_eq!(runner.model().forwards(), 0);
}
