//! Sequences that are decoded together: one is admitted when it can finish, forwarded beside the
//! others, and let go as soon as it ends, so that the next one takes its place.
//!
//! A prompt is cut at the same places whatever its company, and no row sees another sequence's, so
//! that a continuation does not depend on what is decoded beside it. Knows token ids, no text.

use kvcache::{CacheError, KvCache, Prefix, SequenceKv, SlotId};
use rayon::prelude::*;

use super::generate::{Ending, GenerateRequest, Generated, Progress};
use crate::error::EngineError;
use crate::model::{Batch, Model};

/// Requests on their way: those in flight, and those that wait for a place.
pub(super) struct Flight<'r> {
    prefix: Option<&'r Prefix>,
    requests: &'r [GenerateRequest<'r>],
    next: usize,
    seats: usize,
    batch_tokens: usize,
    lanes: Vec<Lane<'r>>,
}

/// One sequence in flight.
struct Lane<'r> {
    index: usize,
    request: GenerateRequest<'r>,
    sequence: SequenceKv,
    computed: usize,
    generated: usize,
    chosen: u32, // the last token chosen, not yet forwarded; of no meaning before the first
    rows: usize, // of the forward at hand
    asks: bool,  // whether that forward lets a token be chosen
    ending: Option<Ending>,
}

impl<'r> Flight<'r> {
    /// At most `seats` sequences in flight, in forwards that aim for `batch_tokens` rows.
    pub(super) fn new(
        prefix: Option<&'r Prefix>,
        requests: &'r [GenerateRequest<'r>],
        seats: usize,
        batch_tokens: usize,
    ) -> Self {
        Self {
            prefix,
            requests,
            next: 0,
            seats,
            batch_tokens,
            lanes: Vec::new(),
        }
    }

    /// Brings every request to its end; see [`super::Runner::generate_many`]. After an error,
    /// [`Flight::release`] gives back what was in flight.
    pub(super) fn run(
        &mut self,
        model: &mut dyn Model,
        cache: &mut KvCache,
        keep_going: &dyn Fn() -> bool,
        sink: &mut dyn FnMut(usize, Progress),
    ) -> Result<(), EngineError> {
        loop {
            self.admit(cache)?;
            // An empty pool admits any request, so that none waits either.
            if self.lanes.is_empty() {
                return Ok(());
            }
            if !keep_going() {
                self.cancel(cache, sink);
                return Ok(());
            }
            self.forward(model, cache, sink)?;
            self.let_go(cache, sink);
        }
    }

    /// Takes every sequence back, ended or not.
    pub(super) fn release(self, cache: &mut KvCache) {
        for lane in self.lanes {
            cache.release(lane.sequence);
        }
    }

    /// Admits in the order of the requests, so that a long one is not passed over for ever.
    fn admit(&mut self, cache: &mut KvCache) -> Result<(), EngineError> {
        while self.lanes.len() < self.seats
            && let Some(&request) = self.requests.get(self.next)
        {
            // The last token chosen is not forwarded and needs no slot.
            let slots = request.tokens.len() as u32 + request.tokens_max - 1;
            let sequence = match cache.admit(self.prefix, slots) {
                Err(CacheError::PoolExhausted { .. }) if !self.lanes.is_empty() => return Ok(()),
                admitted => admitted?,
            };
            self.lanes.push(Lane {
                index: self.next,
                request,
                sequence,
                computed: 0,
                generated: 0,
                chosen: 0,
                rows: 0,
                asks: false,
                ending: None,
            });
            self.next += 1;
        }
        Ok(())
    }

    /// One row of every sequence that is being decoded, and prompts beside them while the budget
    /// lasts: at least one, so that none is put off for ever.
    fn pick(&mut self) {
        let decoded = |lane: &&Lane<'_>| lane.prompt_left() == 0;
        let mut rows = self.lanes.iter().filter(decoded).count();
        let mut prompts = 0;
        for lane in &mut self.lanes {
            let left = lane.prompt_left();
            if left == 0 {
                (lane.rows, lane.asks) = (1, true);
                continue;
            }
            let chunk = left.min(self.batch_tokens);
            let taken = prompts == 0 || rows + chunk <= self.batch_tokens;
            lane.rows = if taken { chunk } else { 0 };
            lane.asks = lane.rows == left;
            rows += lane.rows;
            prompts += usize::from(taken);
        }
    }

    fn forward(
        &mut self,
        model: &mut dyn Model,
        cache: &mut KvCache,
        sink: &mut dyn FnMut(usize, Progress),
    ) -> Result<(), EngineError> {
        self.pick();
        let mut slots = Vec::new();
        for lane in self.lanes.iter_mut().filter(|lane| lane.rows > 0) {
            let reservation = cache.reserve(&mut lane.sequence, lane.rows as u32)?;
            slots.extend(reservation.slots);
        }
        // Sequences are only read from here to the end of the forward.
        let hidden = model.forward(&self.batch(slots), cache)?;
        for lane in self.lanes.iter_mut().filter(|lane| lane.rows > 0) {
            cache.commit(&mut lane.sequence, lane.rows as u32);
            lane.computed += lane.rows.min(lane.prompt_left());
        }
        if hidden.is_empty() {
            return Ok(());
        }
        let logits = model.logits(&hidden)?;
        let chosen: Vec<Option<u32>> = logits
            .par_chunks_exact(model.config().vocab)
            .map(most_probable)
            .collect();
        let asked = self.lanes.iter_mut().filter(|lane| lane.asks);
        for (lane, token) in asked.zip(chosen) {
            lane.choose(token, sink);
        }
        Ok(())
    }

    fn batch(&self, slots: Vec<SlotId>) -> Batch<'_> {
        let mut batch = Batch {
            prefix: self.prefix.cloned(),
            slots,
            ..Batch::default()
        };
        for lane in self.lanes.iter().filter(|lane| lane.rows > 0) {
            let past = batch.sequences.len();
            batch.sequences.push(&lane.sequence);
            let segment = batch.push(lane.next_tokens(), None, Some(past));
            if lane.asks {
                batch.ask_last(segment);
            }
        }
        batch
    }

    /// Hands out what has ended and frees its slots.
    fn let_go(&mut self, cache: &mut KvCache, sink: &mut dyn FnMut(usize, Progress)) {
        let cached = self.cached();
        for lane in self.lanes.extract_if(.., |lane| lane.ending.is_some()) {
            let ended = lane.ending.map(|ending| lane.cost(ending, cached));
            cache.release(lane.sequence);
            if let Some(ended) = ended {
                sink(lane.index, Progress::Ended(ended));
            }
        }
    }

    /// Ends all that is in flight and all that waits.
    fn cancel(&mut self, cache: &mut KvCache, sink: &mut dyn FnMut(usize, Progress)) {
        for lane in &mut self.lanes {
            lane.ending = Some(Ending::Cancelled);
        }
        self.let_go(cache, sink);
        let never_begun = Generated {
            ending: Ending::Cancelled,
            computed_tokens: 0,
            cached_tokens: self.cached(),
            generated_tokens: 0,
        };
        for index in self.next..self.requests.len() {
            sink(index, Progress::Ended(never_begun));
        }
        self.next = self.requests.len();
    }

    fn cached(&self) -> usize {
        self.prefix.map_or(0, |prefix| prefix.len() as usize)
    }
}

impl Lane<'_> {
    fn prompt_left(&self) -> usize {
        self.request.tokens.len() - self.computed
    }

    /// Tokens of the forward at hand.
    fn next_tokens(&self) -> &[u32] {
        match self.prompt_left() {
            0 => std::slice::from_ref(&self.chosen),
            _ => &self.request.tokens[self.computed..][..self.rows],
        }
    }

    /// Takes the token that the model finds most probable; none where its logits are not finite.
    fn choose(&mut self, token: Option<u32>, sink: &mut dyn FnMut(usize, Progress)) {
        let Some(token) = token else {
            self.ending = Some(Ending::NotFinite);
            return;
        };
        self.chosen = token;
        self.generated += 1;
        if self.request.stop.contains(&token) {
            self.ending = Some(Ending::Stopped);
            return;
        }
        sink(self.index, Progress::Token(token));
        if self.generated == self.request.tokens_max as usize {
            self.ending = Some(Ending::TokensMax);
        }
    }

    /// What it cost on a prefix of so many rows.
    fn cost(&self, ending: Ending, cached_tokens: usize) -> Generated {
        Generated {
            ending,
            computed_tokens: self.computed,
            cached_tokens,
            generated_tokens: self.generated,
        }
    }
}

/// Logits that are compared at once.
const STRIDE: usize = 64;

/// Index of the highest logit, the lowest of equals; none where one is not finite or there is none.
fn most_probable(logits: &[f32]) -> Option<u32> {
    let (mut best, mut highest) = (None, f32::NEG_INFINITY);
    for (stride, part) in logits.chunks(STRIDE).enumerate() {
        let mut finite = true;
        let mut largest = f32::NEG_INFINITY;
        for &logit in part {
            finite &= logit.is_finite();
            largest = if logit > largest { logit } else { largest };
        }
        if !finite {
            return None;
        }
        if largest > highest {
            highest = largest;
            let at = part.iter().position(|&logit| logit == largest)?;
            best = Some((stride * STRIDE + at) as u32);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::most_probable;

    #[test]
    fn the_lowest_of_equal_logits_is_chosen() {
        assert_eq!(most_probable(&[-3.0, 2.0, 1.0, 2.0]), Some(1));
        assert_eq!(most_probable(&[0.0, -0.0]), Some(0));
        assert_eq!(most_probable(&[-4.0, -3.5]), Some(1));
        // Equals on both sides of a stride, and one in a last stride that is not full.
        let mut logits = vec![-1.0; 150];
        (logits[63], logits[64]) = (5.0, 5.0);
        assert_eq!(most_probable(&logits), Some(63));
        logits[149] = 6.0;
        assert_eq!(most_probable(&logits), Some(149));
    }

    #[test]
    fn logits_that_are_not_finite_choose_nothing() {
        assert_eq!(most_probable(&[1.0, f32::NAN, 3.0]), None);
        assert_eq!(most_probable(&[1.0, f32::INFINITY]), None);
        assert_eq!(most_probable(&[]), None);
        let mut logits = vec![1.0; 150];
        logits[149] = f32::NEG_INFINITY;
        assert_eq!(most_probable(&logits), None);
    }
}
