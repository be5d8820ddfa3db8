//! Packs records into forwards and reads their answers: the only caller of the model.
//!
//! Seals a prefix once, forks it for every record, packs by token budget without padding, keeps
//! slots only where a record is too long for one forward or a prompt is continued. Knows tokens and
//! label trees, no text.

mod flight;
mod generate;
mod states;

use std::iter::Peekable;
use std::sync::Arc;

use kvcache::{CacheStats, KvCache, Namespace, Prefix, PrefixKey, SequenceKv};

pub use generate::{DECODE_SLOTS, Ending, GenerateRequest, Generated, Progress};
pub use states::RecordStates;

use crate::error::EngineError;
use crate::label_tree::LabelTree;
use crate::model::{Batch, Model, Segment, States};
use states::Pool;

/// Slots of the paged pool, in tokens; memory is taken only as it is used.
const POOL_TOKENS: u32 = 1 << 20;

/// Whether records fork the sealed prefix or compute it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reuse {
    /// Every record forks the sealed prefix.
    Shared,
    /// Every record forwards its whole prompt: the control arm of every reuse claim.
    Off,
}

/// How records are packed.
#[derive(Debug, Clone, Copy)]
pub struct RunnerOptions {
    /// Tokens that one forward aims for.
    pub batch_tokens: usize,
    /// Tokens of one record above which it is forwarded in chunks through paged slots, unless one
    /// forward takes it whole.
    pub chunk_tokens: usize,
    /// Prefix reuse.
    pub reuse: Reuse,
}

impl Default for RunnerOptions {
    fn default() -> Self {
        Self {
            batch_tokens: 1024,
            chunk_tokens: 2048,
            reuse: Reuse::Shared,
        }
    }
}

/// One record to score.
#[derive(Debug, Clone)]
pub struct ScoreRequest {
    /// Tokens after the shared prefix, up to where the answer begins; never empty.
    pub tokens: Vec<u32>,
    /// The questions.
    pub trees: Vec<Arc<LabelTree>>,
    /// One per question: whether an unclear coarse answer to it is asked again.
    pub decisive: Vec<bool>,
}

impl ScoreRequest {
    /// Rows that a forward computes for it behind its prefix.
    pub fn rows(&self) -> usize {
        let branches: usize = self.trees.iter().map(|tree| tree.tokens()).sum();
        self.tokens.len() + branches
    }
}

/// Lead of the best label over the next that a coarse answer must have to stand. It was chosen so
/// that no decision with a margin over 0.05 in f32 changes on 999 issues with SmolLM2-135M, the model
/// that 8 bits cost most.
const CLEAR_MARGIN: f64 = 0.075;

/// Answer to one question.
#[derive(Debug, Clone, PartialEq)]
pub struct Score {
    /// Probability of each label; sums to 1.
    pub probabilities: Vec<f64>,
    /// Share of the vocabulary's probability that the allowed first tokens hold.
    pub mass: f64,
}

impl Score {
    /// Lead of the most probable label over the next.
    fn margin(&self) -> f64 {
        let (mut first, mut second) = (0.0f64, 0.0f64);
        for &probability in &self.probabilities {
            if probability > first {
                (first, second) = (probability, first);
            } else {
                second = second.max(probability);
            }
        }
        first - second
    }
}

/// What one record cost and said.
#[derive(Debug, Clone)]
pub struct ScoreResult {
    /// One per question.
    pub scores: Vec<Score>,
    /// Rows of this record that entered layer 0, counted once where they did so twice.
    pub computed_tokens: usize,
    /// Rows of this record that entered layer 0 again, in a finer number format.
    pub repeated_tokens: usize,
    /// Rows of the sealed prefix that it did not have to compute.
    pub cached_tokens: usize,
    /// Nodes at which logits were read.
    pub scored_positions: usize,
    /// States of the tapped layers; none where no layer is tapped.
    pub states: Option<RecordStates>,
}

/// Owns model and cache; one thread, no lock.
pub struct Runner {
    model: Box<dyn Model>,
    cache: KvCache,
    options: RunnerOptions,
    taps: Vec<usize>,
}

/// Where a request's nodes sit in the batch.
struct Placed {
    request: usize,
    asked: Vec<Vec<usize>>, // [questions][nodes] token index
    computed: usize,
    fork: Option<SequenceKv>,
}

impl Runner {
    /// Takes a loaded model.
    ///
    /// # Errors
    /// `Cache` when the model's shape makes no valid layout.
    pub fn new(model: Box<dyn Model>, options: RunnerOptions) -> Result<Self, EngineError> {
        let layout = model.config().kv_layout()?;
        let blocks = POOL_TOKENS / layout.block_slots;
        Ok(Self {
            cache: KvCache::new(layout, blocks)?,
            model,
            options,
            taps: Vec::new(),
        })
    }

    /// Sets the layers whose states scores come with: of the residual as it enters each.
    ///
    /// # Panics
    /// If the layers are not ascending, or the model has no such layer.
    pub fn tap(&mut self, layers: &[usize]) {
        assert!(layers.is_sorted_by(|a, b| a < b), "layers ascend");
        let last = layers.last().copied().unwrap_or(0);
        assert!(last < self.model.config().layers, "the model has the layer");
        self.taps = layers.to_vec();
    }

    /// The model.
    pub fn model(&self) -> &dyn Model {
        self.model.as_ref()
    }

    /// How it packs.
    pub fn options(&self) -> RunnerOptions {
        self.options
    }

    /// Statistics of the KV cache.
    pub fn cache_stats(&self) -> CacheStats {
        self.cache.stats()
    }

    /// Computes a prefix once and seals it; finds it when it was sealed before.
    ///
    /// Returns the prefix and the rows that had to be forwarded for it (0 when found).
    ///
    /// # Errors
    /// `RubricTooLong` when it fills the context, `Cache` or `Tensor` when the machine gives out.
    pub fn seal(
        &mut self,
        namespace: &Namespace,
        tokens: &[u32],
    ) -> Result<(Prefix, usize), EngineError> {
        let tokens_max = Self::prefix_tokens_max(self.model.config().context);
        if tokens.len() > tokens_max {
            return Err(EngineError::RubricTooLong {
                tokens: tokens.len(),
                tokens_max,
            });
        }
        let key = PrefixKey::derive(namespace, &self.model.config().kv_layout()?, tokens);
        if let Some(prefix) = self.cache.lookup(&key) {
            return Ok((prefix, 0));
        }
        let before = self.model.rows_forwarded();
        let mut sequence = self.cache.admit(None, tokens.len() as u32)?;
        if let Err(error) = self.fill(None, &mut sequence, tokens, None) {
            self.cache.release(sequence);
            return Err(error);
        }
        let prefix = self.cache.seal(namespace, sequence, tokens)?;
        Ok((prefix, (self.model.rows_forwarded() - before) as usize))
    }

    /// Tokens that a prefix may have in a context, so that records still fit behind it.
    pub fn prefix_tokens_max(context: usize) -> usize {
        context.saturating_sub(64)
    }

    /// Gives a sealed prefix's memory back, once no clone of it is left.
    ///
    /// # Errors
    /// `Cache` when this runner does not hold it.
    pub fn evict(&mut self, prefix: &Prefix) -> Result<(), EngineError> {
        self.cache.evict(&prefix.key())?;
        self.model.forget(&prefix.key());
        Ok(())
    }

    /// Forwards tokens in chunks, keeping their keys and values in the sequence's slots, and adds their
    /// tapped states to the pool.
    fn fill(
        &mut self,
        prefix: Option<&Prefix>,
        sequence: &mut SequenceKv,
        tokens: &[u32],
        mut pool: Option<&mut Pool>,
    ) -> Result<(), EngineError> {
        for chunk in tokens.chunks(self.options.batch_tokens) {
            let reservation = self.cache.reserve(sequence, chunk.len() as u32)?;
            let mut batch = Batch {
                prefix: prefix.cloned(),
                slots: reservation.slots,
                ..Batch::default()
            };
            batch.sequences.push(sequence);
            batch.push(chunk, None, Some(0));
            match &mut pool {
                Some(pool) => {
                    batch.taps.clone_from(&self.taps);
                    batch.pooled.push(0..chunk.len());
                    let states = self.model.forward_tapped(&batch, &mut self.cache)?;
                    pool.add(states.means.concat(), chunk.len());
                }
                None => {
                    self.model.forward(&batch, &mut self.cache)?;
                }
            }
            self.cache.commit(sequence, chunk.len() as u32);
        }
        Ok(())
    }

    /// Scores requests under one prefix and hands each result out as soon as its forward is done.
    ///
    /// `keep_going` is asked before every forward; false stops early, and the rest of the requests
    /// get no result. Requests must fit the context (see [`Runner::tokens_needed`]).
    ///
    /// # Errors
    /// `Cache` or `Tensor` when the machine gives out; results handed out before stay valid.
    pub fn score(
        &mut self,
        prefix: &Prefix,
        requests: &[ScoreRequest],
        keep_going: &dyn Fn() -> bool,
        sink: &mut dyn FnMut(usize, ScoreResult),
    ) -> Result<(), EngineError> {
        let asks_again = self.model.asks_again();
        let mut waiting = (0..requests.len()).peekable();
        let mut unclear: Vec<usize> = Vec::new();
        while waiting.peek().is_some() && keep_going() {
            let packed = self.pack(prefix, requests, &mut waiting);
            self.score_packed(prefix, requests, &packed, true, &mut |index, result| {
                let mut scores = result.scores.iter().zip(&requests[index].decisive);
                let is_unclear =
                    |(score, decisive): (&Score, &bool)| *decisive && score.margin() < CLEAR_MARGIN;
                if asks_again && scores.any(is_unclear) {
                    unclear.push(index);
                } else {
                    sink(index, result);
                }
            })?;
        }
        let mut unclear = unclear.into_iter().peekable();
        while unclear.peek().is_some() && keep_going() {
            let packed = self.pack(prefix, requests, &mut unclear);
            self.score_packed(prefix, requests, &packed, false, &mut |index, result| {
                let repeated_tokens = result.computed_tokens;
                sink(
                    index,
                    ScoreResult {
                        repeated_tokens,
                        ..result
                    },
                );
            })?;
        }
        Ok(())
    }

    /// Takes as many waiting requests as one forward holds, at least one.
    fn pack(
        &self,
        prefix: &Prefix,
        requests: &[ScoreRequest],
        waiting: &mut Peekable<impl Iterator<Item = usize>>,
    ) -> Vec<usize> {
        let mut packed = Vec::new();
        let mut total = 0;
        while let Some(&index) = waiting.peek() {
            total += self.tokens_needed(prefix, &requests[index]);
            if !packed.is_empty() && total > self.options.batch_tokens {
                break;
            }
            packed.push(index);
            waiting.next();
        }
        packed
    }

    /// Rows that a request will forward.
    pub fn tokens_needed(&self, prefix: &Prefix, request: &ScoreRequest) -> usize {
        let prompt = match self.options.reuse {
            Reuse::Shared => 0,
            Reuse::Off => prefix.len() as usize,
        };
        prompt + request.rows()
    }

    fn score_packed(
        &mut self,
        prefix: &Prefix,
        requests: &[ScoreRequest],
        packed: &[usize],
        coarse: bool,
        sink: &mut dyn FnMut(usize, ScoreResult),
    ) -> Result<(), EngineError> {
        let shared = (self.options.reuse == Reuse::Shared).then_some(prefix);
        let mut long = None;
        let mut skipped = 0;
        let mut pool = Pool::default();
        if let [index] = *packed
            && let request = &requests[index]
            && shared.is_some()
            && request.tokens.len() > self.options.chunk_tokens.max(self.options.batch_tokens)
        {
            // All but the tail goes through slots, so that no forward outgrows the budget by much.
            skipped = request.tokens.len() - self.options.batch_tokens;
            let mut sequence = self.cache.admit(shared, skipped as u32)?;
            let head = &request.tokens[..skipped];
            let pooled = (!self.taps.is_empty()).then_some(&mut pool);
            if let Err(error) = self.fill(shared, &mut sequence, head, pooled) {
                self.cache.release(sequence);
                return Err(error);
            }
            long = Some(sequence);
        }
        let mut placed = Vec::with_capacity(packed.len());
        let mut batch = Batch {
            prefix: shared.cloned(),
            coarse,
            taps: self.taps.clone(),
            ..Batch::default()
        };
        batch.sequences.extend(long.as_ref());
        let outcome = self.forward_packed(prefix, requests, packed, batch, skipped, &mut placed);
        for item in &mut placed {
            if let Some(fork) = item.fork.take() {
                self.cache.release(fork);
            }
        }
        if let Some(sequence) = long {
            self.cache.release(sequence);
        }
        let (asked, states) = outcome?;
        let logits = self.model.logits(&states.hidden)?;
        let vocab = self.model.config().vocab;
        for (place, item) in placed.into_iter().enumerate() {
            let request = &requests[item.request];
            let at = |token: usize| {
                asked.binary_search(&token).unwrap_or_else(|_| {
                    unreachable!("every node's token was asked for when it was placed")
                })
            };
            let row = |token: usize| &logits[at(token) * vocab..(at(token) + 1) * vocab];
            let scores: Vec<Score> = request
                .trees
                .iter()
                .zip(&item.asked)
                .map(|(tree, nodes)| Score {
                    probabilities: tree.probabilities(|node| row(nodes[node])),
                    mass: tree.mass(row(nodes[0])),
                })
                .collect();
            let result = ScoreResult {
                computed_tokens: item.computed,
                repeated_tokens: 0,
                cached_tokens: shared.map_or(0, |prefix| prefix.len() as usize),
                scored_positions: item.asked.iter().map(Vec::len).sum(),
                states: (!self.taps.is_empty()).then(|| {
                    let answers = item.asked.iter().map(|nodes| at(nodes[0]));
                    let rows = request.tokens.len() - skipped;
                    let shape = (rows, self.model.config().hidden);
                    pool.read(&states, answers, place, shape, &scores)
                }),
                scores,
            };
            sink(item.request, result);
        }
        Ok(())
    }

    /// Fills the batch, forwards it, and says where every node ended up. A batch with a sequence
    /// holds the one request whose first `skipped` tokens are in its slots.
    fn forward_packed(
        &mut self,
        prefix: &Prefix,
        requests: &[ScoreRequest],
        packed: &[usize],
        mut batch: Batch<'_>,
        skipped: usize,
        placed: &mut Vec<Placed>,
    ) -> Result<(Vec<usize>, States), EngineError> {
        let long = (!batch.sequences.is_empty()).then_some(0);
        let mut unshared = Vec::new();
        for &index in packed {
            let request = &requests[index];
            let root = match self.options.reuse {
                Reuse::Shared => batch.push(&request.tokens[skipped..], None, long),
                Reuse::Off => {
                    unshared.clear();
                    unshared.extend_from_slice(prefix.tokens());
                    unshared.extend_from_slice(&request.tokens);
                    batch.push(&unshared, None, None)
                }
            };
            if !batch.taps.is_empty() {
                let Segment { start, len, .. } = batch.segments[root];
                let own = request.tokens.len() - skipped;
                batch.pooled.push(start + len - own..start + len);
            }
            let asked = request
                .trees
                .iter()
                .map(|tree| place_tree(&mut batch, root, tree))
                .collect();
            let fork = match (self.options.reuse, long) {
                (Reuse::Shared, None) => Some(self.cache.admit(Some(prefix), 0)?),
                _ => None,
            };
            let computed = self.tokens_needed(prefix, request);
            placed.push(Placed {
                request: index,
                asked,
                computed,
                fork,
            });
        }
        let states = self.model.forward_tapped(&batch, &mut self.cache)?;
        Ok((batch.asked, states))
    }

    /// Logits over the whole vocabulary after each of the last `count` tokens of a plain prompt:
    /// the straight, uncached computation that the tests compare everything with.
    ///
    /// # Errors
    /// `Tensor` when the device fails.
    pub fn prompt_logits(&mut self, tokens: &[u32], count: usize) -> Result<Vec<f32>, EngineError> {
        let mut batch = Batch::default();
        batch.push(tokens, None, None);
        batch.asked.extend(tokens.len() - count..tokens.len());
        let hidden = self.model.forward(&batch, &mut self.cache)?;
        self.model.logits(&hidden)
    }
}

/// Places a question's nodes below the record's root segment; returns each node's token index.
fn place_tree(batch: &mut Batch<'_>, root: usize, tree: &LabelTree) -> Vec<usize> {
    let mut segments = Vec::with_capacity(tree.nodes().len());
    tree.nodes()
        .iter()
        .map(|node| {
            let parent = node.parent.map_or(root, |parent| segments[parent]);
            let segment = if node.tokens.is_empty() {
                parent
            } else {
                batch.push(&node.tokens, Some(parent), None)
            };
            segments.push(segment);
            batch.ask_last(segment)
        })
        .collect()
}
