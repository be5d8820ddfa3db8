//! The other seam: a text to be written by a model, where [`crate::infer`] asks for labels.
//!
//! What is written is prose over facts that were settled before; nothing here may become a fact
//! or enter a fold. This file must not know tokens, KV, models or prompts.

use serde::{Deserialize, Serialize};

use crate::infer::{BackendIdentity, CancelFlag, InferError, UnitUsage};

/// One text to be written by a model from typed facts.
#[derive(Debug, Clone, Copy)]
pub struct ComposeJob<'a> {
    /// What to write and how: the system message. Texts of one kind share it word for word, since
    /// a backend may keep the work that it did on it.
    pub instruction: &'a str,
    /// What to write from: the user message. All of it is plain text, the spelling of a special
    /// token too.
    pub material: &'a str,
    /// Most tokens to generate, the one that ends the text included; at least 1.
    pub tokens_max: u32,
    /// Set when the caller wants no more text.
    pub cancel: &'a CancelFlag,
}

/// A text, and what it cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Composed {
    /// What was written, as it came; a text that was cut may break off inside a character, which
    /// then shows as U+FFFD.
    pub text: String,
    /// Whether the model ended the text itself; false where it was cut, at `tokens_max` or because
    /// the job was cancelled.
    pub finished: bool,
    /// Work spent on the prompt; `prompt_tokens` is the part of it that was reached before a
    /// cancel.
    pub usage: UnitUsage,
    /// Tokens generated, the one that ended the text included; not part of `usage`.
    pub generated_tokens: u64,
}

/// Writes texts.
pub trait Compose {
    /// Which backend this is; constant for its life.
    fn identity(&self) -> &BackendIdentity;

    /// Writes one text. The same job gives the same text: nothing is drawn at random, and earlier
    /// jobs have no say.
    ///
    /// # Errors
    /// [`InferError::RubricTooLong`] and [`InferError::Refused`] where the job cannot be done as
    /// asked, such as a prompt that does not fit; [`InferError::Failed`] where the backend broke.
    fn compose(&mut self, job: ComposeJob<'_>) -> Result<Composed, InferError>;
}

/// Work spent on all texts of a run; a remembered text costs nothing and is counted as such.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComposeUsage {
    /// Texts that were written, those included that were refused afterwards.
    pub texts: u64,
    /// Texts that were looked up.
    pub remembered: u64,
    /// Logical prompt tokens: `computed_tokens + cached_tokens`.
    pub prompt_tokens: u64,
    /// Prompt tokens that a forward computed.
    pub computed_tokens: u64,
    /// Prompt tokens whose keys and values were reused.
    pub cached_tokens: u64,
    /// Tokens generated.
    pub generated_tokens: u64,
}

impl ComposeUsage {
    /// Counts one text that was written.
    pub fn add(&mut self, composed: &Composed) {
        self.texts += 1;
        self.prompt_tokens += composed.usage.prompt_tokens;
        self.computed_tokens += composed.usage.computed_tokens;
        self.cached_tokens += composed.usage.cached_tokens;
        self.generated_tokens += composed.generated_tokens;
    }
}
