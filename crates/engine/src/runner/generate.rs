//! Greedy decoding: a prompt's most probable continuation, one token at a time.
//!
//! Stands on the sealed prefix and the paged slots that scoring uses, and takes no other way
//! through the model. Knows token ids, no text.

use kvcache::{Prefix, SequenceKv};

use super::{POOL_TOKENS, Runner};
use crate::error::EngineError;

/// One prompt to continue.
#[derive(Debug, Clone, Copy)]
pub struct GenerateRequest<'a> {
    /// Tokens of the prompt after the shared prefix; never empty.
    pub tokens: &'a [u32],
    /// Most tokens to generate, the stop token included; at least 1.
    pub tokens_max: u32,
    /// Tokens that end the continuation and are not part of it.
    pub stop: &'a [u32],
}

/// Why a continuation ends where it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The model chose a stop token.
    Stopped,
    /// As many tokens were generated as were asked for.
    TokensMax,
    /// The caller wanted no more.
    Cancelled,
}

/// What a continuation cost, and how it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Generated {
    /// Why it ends.
    pub ending: Ending,
    /// Rows of the prompt that entered layer 0; fewer than its tokens only after a cancel.
    pub computed_tokens: usize,
    /// Rows of the sealed prefix that it did not have to compute.
    pub cached_tokens: usize,
    /// Tokens chosen, the stop token included. All but the last one entered layer 0 as well.
    pub generated_tokens: usize,
}

impl Runner {
    /// Says whether a prompt, prefix included, can be continued by `tokens_max` tokens.
    ///
    /// # Errors
    /// `GenerationTooLong` when the context or the pool of slots does not hold them all.
    pub fn check_room(&self, prompt_tokens: usize, tokens_max: u32) -> Result<(), EngineError> {
        // No sequence outlives a call, so the whole pool is free whenever this is asked.
        let room = self.model.config().context.min(POOL_TOKENS as usize);
        if prompt_tokens.saturating_add(tokens_max as usize) > room {
            return Err(EngineError::GenerationTooLong {
                tokens: prompt_tokens,
                tokens_max,
                room,
            });
        }
        Ok(())
    }

    /// Continues a prompt greedily and hands out each token as soon as it is chosen: the one with
    /// the highest logit of the whole vocabulary, the lowest id on ties.
    ///
    /// With no prefix, `request.tokens` is the whole prompt. `keep_going` is asked before every
    /// forward; false ends the continuation there. A stop token is not handed out. Afterwards every
    /// slot is free again, whatever the outcome.
    ///
    /// # Errors
    /// `GenerationTooLong` before anything is computed (see [`Runner::check_room`]); `NotFinite`
    /// when the model gives no usable logits; `Cache` or `Tensor` when the machine gives out.
    /// Tokens handed out before stay valid.
    ///
    /// # Panics
    /// If `request.tokens` is empty or `request.tokens_max` is 0.
    pub fn generate(
        &mut self,
        prefix: Option<&Prefix>,
        request: GenerateRequest<'_>,
        keep_going: &dyn Fn() -> bool,
        sink: &mut dyn FnMut(u32),
    ) -> Result<Generated, EngineError> {
        assert!(!request.tokens.is_empty(), "a prompt ends with a token");
        assert!(request.tokens_max > 0, "at least one token is asked for");
        let shared = prefix.map_or(0, |prefix| prefix.len() as usize);
        self.check_room(shared + request.tokens.len(), request.tokens_max)?;
        // The last token chosen is not forwarded and needs no slot.
        let slots = request.tokens.len() as u32 + request.tokens_max - 1;
        let mut sequence = self.cache.admit(prefix, slots)?;
        let outcome = self.decode(prefix, &mut sequence, request, keep_going, sink);
        self.cache.release(sequence);
        outcome
    }

    /// Prefills the prompt in chunks, then alternates between choosing a token and forwarding it.
    fn decode(
        &mut self,
        prefix: Option<&Prefix>,
        sequence: &mut SequenceKv,
        request: GenerateRequest<'_>,
        keep_going: &dyn Fn() -> bool,
        sink: &mut dyn FnMut(u32),
    ) -> Result<Generated, EngineError> {
        let mut done = Generated {
            ending: Ending::Cancelled,
            computed_tokens: 0,
            cached_tokens: prefix.map_or(0, |prefix| prefix.len() as usize),
            generated_tokens: 0,
        };
        let mut hidden = Vec::new();
        for chunk in request.tokens.chunks(self.options.batch_tokens) {
            if !keep_going() {
                return Ok(done);
            }
            hidden = self.append(prefix, sequence, chunk)?;
            done.computed_tokens += chunk.len();
        }
        loop {
            let logits = self.model.logits(&hidden)?;
            let token = argmax(&logits).ok_or(EngineError::NotFinite)?;
            done.generated_tokens += 1;
            if request.stop.contains(&token) {
                done.ending = Ending::Stopped;
                return Ok(done);
            }
            sink(token);
            if done.generated_tokens == request.tokens_max as usize {
                done.ending = Ending::TokensMax;
                return Ok(done);
            }
            if !keep_going() {
                return Ok(done);
            }
            hidden = self.append(prefix, sequence, &[token])?;
        }
    }
}

/// Index of the highest logit, the lowest of equals; none where one is not finite or there is none.
fn argmax(logits: &[f32]) -> Option<u32> {
    let mut best: Option<(u32, f32)> = None;
    for (token, &logit) in (0u32..).zip(logits) {
        if !logit.is_finite() {
            return None;
        }
        if best.is_none_or(|(_, highest)| logit > highest) {
            best = Some((token, logit));
        }
    }
    best.map(|(token, _)| token)
}

#[cfg(test)]
mod tests {
    use super::argmax;

    #[test]
    fn the_lowest_of_equal_logits_is_chosen() {
        assert_eq!(argmax(&[-3.0, 2.0, 1.0, 2.0]), Some(1));
        assert_eq!(argmax(&[0.0, -0.0]), Some(0));
        assert_eq!(argmax(&[-4.0, -3.5]), Some(1));
    }

    #[test]
    fn logits_that_are_not_finite_choose_nothing() {
        assert_eq!(argmax(&[1.0, f32::NAN, 3.0]), None);
        assert_eq!(argmax(&[1.0, f32::INFINITY]), None);
        assert_eq!(argmax(&[]), None);
    }
}
