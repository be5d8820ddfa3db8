//! The model runner's seam: one packed forward over our own KV, whatever the device.
//!
//! [`portable`] runs candle tensor operations on CPU, CUDA and Metal; [`cpu`] is the fast CPU path.
//! Both are tested equal to candle-transformers and to each other.

pub mod attention;
pub mod attention16;
pub mod batch;
pub mod config;
pub mod cpu;
pub mod gated;
pub mod int16;
pub mod int8;
pub mod integer;
pub mod isa;
pub mod linear;
pub mod math;
pub mod portable;
pub mod states;

#[cfg(test)]
mod samples;
pub mod tiles;
pub mod weights;

use kvcache::{KvCache, PrefixKey};

pub use batch::{Batch, Segment};
pub use config::ModelConfig;
pub use states::States;
pub use weights::ModelFiles;

use crate::error::EngineError;

/// A decoder that forwards packed batches.
pub trait Model: Send {
    /// Its shape.
    fn config(&self) -> &ModelConfig;

    /// Names device, kernel and number format: part of every fact's key, since results may differ
    /// in the last bits between tiers.
    fn tier(&self) -> String;

    /// Forwards every row of the batch through all layers.
    ///
    /// Returns the normed final hidden state of each asked token, f32 `[asked, hidden]`. Keys and
    /// values go to `batch.slots` where these are given; nothing else of the cache changes.
    ///
    /// # Errors
    /// `Tensor` when the device fails.
    ///
    /// # Panics
    /// If a token id is not below the vocabulary size, or the batch breaks its own laws.
    fn forward(&mut self, batch: &Batch<'_>, cache: &mut KvCache) -> Result<Vec<f32>, EngineError> {
        Ok(self.forward_tapped(batch, cache)?.hidden)
    }

    /// Forwards as [`Model::forward`] and hands out, from the same pass, what the batch taps.
    ///
    /// # Errors
    /// As [`Model::forward`].
    ///
    /// # Panics
    /// As [`Model::forward`].
    fn forward_tapped(
        &mut self,
        batch: &Batch<'_>,
        cache: &mut KvCache,
    ) -> Result<States, EngineError>;

    /// Logits over the whole vocabulary: `hidden` f32 `[rows, hidden]` to `[rows, vocab]`.
    ///
    /// # Errors
    /// `Tensor` when the device fails.
    fn logits(&mut self, hidden: &[f32]) -> Result<Vec<f32>, EngineError>;

    /// Whether answers that a coarse batch leaves unclear should be asked again in a finer one.
    fn asks_again(&self) -> bool {
        false
    }

    /// Drops its own copy of a sealed prefix, where it keeps one for every prefix that it has seen.
    fn forget(&mut self, _key: &PrefixKey) {}

    /// Rows that entered layer 0 since the model was loaded: the ground truth of what was computed.
    fn rows_forwarded(&self) -> u64;

    /// Forwards since the model was loaded.
    fn forwards(&self) -> u64;
}
