//! What is asked of the kernel, and what it tells of each job, token by token.
//!
//! This is the whole seam between the HTTP front and the thread that owns the model: ids, tokens and
//! counts, no text and no JSON. Must not know HTTP, nor how a forward is made.

use std::sync::Arc;

use crate::label_tree::LabelTree;
use crate::runner::Score;

/// Names a job of a kernel; never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId(pub u64);

/// The part of a prompt that other jobs may share: its keys and values are computed once and sealed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shared {
    /// Leading tokens of the prompt that are shared, such as a system message; fewer than all.
    pub tokens: usize,
    /// Jobs share only within a name space (`cache_salt`).
    pub salt: String,
}

/// How the next token is drawn.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampling {
    /// 0 takes the most probable token.
    pub temperature: f32,
    /// Smallest set of tokens whose probability reaches this; 1 takes all.
    pub top_p: f32,
    /// Most probable tokens that are considered; 0 takes all.
    pub top_k: u32,
    /// Least probability relative to the best token's; 0 takes all.
    pub min_p: f32,
    /// Subtracted once from the logit of every token that was generated.
    pub presence_penalty: f32,
    /// Subtracted for every time that a token was generated.
    pub frequency_penalty: f32,
    /// Divides positive and multiplies negative logits of tokens seen in prompt or output; 1 does nothing.
    pub repetition_penalty: f32,
    /// Added to logits of tokens, ascending by token.
    pub logit_bias: Vec<(u32, f32)>,
    /// Equal jobs with equal seeds draw equal tokens, whatever their company.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            repetition_penalty: 1.0,
            logit_bias: Vec::new(),
            seed: 0,
        }
    }
}

/// Keeps generated tokens to a language; one per job, told every token in order.
pub trait Constraint: Send {
    /// Clears the bits of tokens that may not come next (bit `t % 32` of word `t / 32`); all bits are
    /// set before. An end-of-turn token is allowed where the output may end.
    ///
    /// # Errors
    /// A sentence, where the constraint itself fails.
    fn mask(&mut self, allowed: &mut [u32]) -> Result<(), String>;

    /// Takes a token that was chosen.
    ///
    /// # Errors
    /// A sentence, where it is none that the mask allowed.
    fn commit(&mut self, token: u32) -> Result<(), String>;

    /// Tokens that must come next, in order; they are forwarded together and not drawn.
    fn forced(&mut self) -> Vec<u32>;

    /// Whether the output is whole and nothing may follow.
    fn is_finished(&self) -> bool;
}

/// One continuation that is wanted.
pub struct GenerateJob {
    /// All tokens of the prompt; at least one beyond the shared part.
    pub prompt: Vec<u32>,
    /// What of it is shared.
    pub shared: Option<Shared>,
    /// Most tokens to generate, the stop token included; at least 1.
    pub tokens_max: u32,
    /// Tokens that end the continuation and are not part of it.
    pub stop: Vec<u32>,
    /// How tokens are drawn.
    pub sampling: Sampling,
    /// What the output has to be.
    pub constraint: Option<Box<dyn Constraint>>,
    /// How many of the most probable tokens are told beside each; none tells no probability.
    pub top_logprobs: Option<usize>,
}

/// Records that are scored under one rubric: the decisions of a run, or of `states[]`.
pub struct ScoreJob {
    /// Tokens of the rubric, shared by all.
    pub prefix: Vec<u32>,
    /// Name space of the rubric.
    pub salt: String,
    /// Per record, tokens after the rubric up to where the answer begins.
    pub records: Vec<Vec<u32>>,
    /// Per record, its questions.
    pub trees: Vec<Vec<Arc<LabelTree>>>,
}

/// Texts whose embedding is wanted.
pub struct EmbedJob {
    /// Tokens of each text; never empty.
    pub texts: Vec<Vec<u32>>,
    /// Whether the last token's state is taken; otherwise the mean of all.
    pub last: bool,
}

/// What the kernel can be asked.
pub enum Job {
    /// A continuation.
    Generate(GenerateJob),
    /// Decisions.
    Score(ScoreJob),
    /// Embeddings.
    Embed(EmbedJob),
}

/// A token with its probability, before any constraint, bias or temperature.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TokenLogprob {
    /// The token.
    pub token: u32,
    /// Natural logarithm of its probability.
    pub logprob: f32,
}

/// Why a continuation ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// The model chose a stop token, or the constraint is satisfied.
    Stop,
    /// As many tokens were generated as were asked for.
    Length,
    /// The client went away, or the server stops.
    Cancelled,
    /// It could not go on: a sentence.
    Failed(String),
}

/// What a job came to, counted where rows enter the model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JobCount {
    /// Logical prompt tokens.
    pub prompt_tokens: u64,
    /// Of these, rows of a sealed prefix that this job did not have to compute. The job that had the
    /// prefix computed counts its rows as computed.
    pub cached_tokens: u64,
    /// Tokens generated, the stop token included.
    pub generated_tokens: u64,
    /// Of these, forced by a constraint.
    pub forced_tokens: u64,
    /// Places at which label probabilities were read.
    pub scored_positions: u64,
}

/// What is told of a job; `Ended` comes last, exactly once.
#[derive(Debug, Clone)]
pub enum JobEvent {
    /// It has a place: its prompt is being forwarded.
    Started,
    /// The next token of a continuation; never a stop token.
    Token {
        /// The token.
        token: u32,
        /// Its probability and the best tokens', where asked for.
        logprob: Option<(f32, Vec<TokenLogprob>)>,
        /// Whether a constraint forced it.
        forced: bool,
    },
    /// A record was decided.
    Scored {
        /// Its place in the job.
        record: usize,
        /// One per question.
        scores: Vec<Score>,
        /// What it cost.
        count: JobCount,
    },
    /// A text was embedded.
    Embedded {
        /// Its place in the job.
        text: usize,
        /// The vector, of length 1.
        vector: Vec<f32>,
    },
    /// There is no more of it, and its slots are free.
    Ended {
        /// Why.
        ended: Ended,
        /// What it came to.
        count: JobCount,
    },
}

/// Why a job is not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// It can never fit: a sentence that names the limit.
    TooLong(String),
    /// The queue is full; try again after so many seconds.
    Busy {
        /// Seconds.
        retry_after: u64,
    },
    /// The server is stopping.
    Stopping,
}

/// Takes what is told of a job; false once nobody listens any more, which cancels the job.
pub type Listener = Box<dyn FnMut(JobEvent) -> bool + Send>;
