//! Greedy decoding: prompts' most probable continuations, many at once, one token of each at a time.
//!
//! Stands on the sealed prefix and the paged slots that scoring uses, and takes no other way
//! through the model. Knows token ids, no text.

use kvcache::Prefix;

use super::flight::Flight;
use super::{POOL_TOKENS, Runner};
use crate::error::EngineError;

/// Sequences that are decoded together where the caller has no reason for another number.
pub const DECODE_SLOTS: usize = 16;

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
    /// The model gave no usable logits, so that no token could be chosen.
    NotFinite,
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
    /// Tokens chosen, the stop token included. All but the last one entered layer 0 as well, and
    /// the last one too where no token could be chosen after it.
    pub generated_tokens: usize,
}

/// What is told of a request while it is continued: its tokens in order, then its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The next token; never a stop token.
    Token(u32),
    /// There is no more of it. Its slots are free.
    Ended(Generated),
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
        let mut end = None;
        let mut told = |_, progress| match progress {
            Progress::Token(token) => sink(token),
            Progress::Ended(generated) => end = Some(generated),
        };
        self.generate_many(prefix, &[request], 1, keep_going, &mut told)?;
        let Some(generated) = end else {
            unreachable!("every request is told its end")
        };
        match generated.ending {
            Ending::NotFinite => Err(EngineError::NotFinite),
            _ => Ok(generated),
        }
    }

    /// Continues many prompts behind one prefix, each as [`Runner::generate`] would alone, at most
    /// `slots` of them at a time.
    ///
    /// A request enters when an earlier one ends and its longest continuation fits the pool; its
    /// prompt is forwarded beside the next tokens of the others. `sink` is told of each request, by
    /// its index, its tokens as they are chosen and then its end, exactly once. `keep_going` is
    /// asked before every forward; false ends all that has not ended. A request whose logits are
    /// unusable ends as [`Ending::NotFinite`] and leaves the others alone.
    ///
    /// # Errors
    /// `GenerationTooLong` for the first request that cannot fit, before anything is computed;
    /// `Cache` or `Tensor` when the machine gives out, and then requests that had not ended are
    /// told no end. Every slot is free again, whatever the outcome.
    ///
    /// # Panics
    /// If `slots` is 0, or as for [`Runner::generate`].
    pub fn generate_many(
        &mut self,
        prefix: Option<&Prefix>,
        requests: &[GenerateRequest<'_>],
        slots: usize,
        keep_going: &dyn Fn() -> bool,
        sink: &mut dyn FnMut(usize, Progress),
    ) -> Result<(), EngineError> {
        assert!(slots > 0, "at least one sequence is decoded at a time");
        let shared = prefix.map_or(0, |prefix| prefix.len() as usize);
        for request in requests {
            assert!(!request.tokens.is_empty(), "a prompt ends with a token");
            assert!(request.tokens_max > 0, "at least one token is asked for");
            self.check_room(shared + request.tokens.len(), request.tokens_max)?;
        }
        let mut flight = Flight::new(prefix, requests, slots, self.options.batch_tokens);
        let outcome = flight.run(self.model.as_mut(), &mut self.cache, keep_going, sink);
        flight.release(&mut self.cache);
        outcome
    }
}
