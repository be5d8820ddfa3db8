//! What asking would take, counted with a model's own tokenizer and template and none of its weights.
//!
//! Counts are those of the forward: a unit's tokens, what closes it, and the branches of its label
//! trees. Must not load a weight.

use operator::infer::{BackendIdentity, InferError, Question};
use operator::plan::Turn;
use operator::survey::{Gauge, Ruler};
use operator::text::{TextProblem, UnitText};

use super::{Heads, Questions, refusal};
use crate::error::EngineError;
use crate::head::Head;
use crate::prompt::PromptTemplate;
use crate::runner::Runner;
use crate::tokenizer::Tokenizer;

use super::prepare::prepare;

/// Measures what the model of a tokenizer and a template would compute.
pub struct LocalGauge {
    tokenizer: Tokenizer,
    template: PromptTemplate,
    identity: BackendIdentity,
    context: usize,
}

impl LocalGauge {
    /// Joins the pieces of a model that measuring needs; `identity` is that of its backend.
    pub(crate) fn new(
        tokenizer: Tokenizer,
        template: PromptTemplate,
        identity: BackendIdentity,
        context: usize,
    ) -> Self {
        Self {
            tokenizer,
            template,
            identity,
            context,
        }
    }

    /// The same gauge for a backend with trained heads.
    ///
    /// # Errors
    /// `HeadMismatch` as for the backend itself.
    pub fn with_heads(mut self, heads: Vec<Head>) -> Result<Self, EngineError> {
        self.identity = Heads::new(heads, &self.identity)?.identify(&self.identity);
        Ok(self)
    }

    fn ruler<'t>(
        &'t self,
        rubric: &str,
        questions: &'t [Question],
    ) -> Result<LocalRuler<'t>, EngineError> {
        let split = self.template.split(&self.tokenizer, rubric)?;
        let (tokens, tokens_max) = (split.prefix.len(), Runner::prefix_tokens_max(self.context));
        if tokens > tokens_max {
            return Err(EngineError::RubricTooLong { tokens, tokens_max });
        }
        let no_heads = vec![None; questions.len()];
        Ok(LocalRuler {
            tokenizer: &self.tokenizer,
            questions: Questions::compile(&self.tokenizer, questions, &no_heads, false)?,
            close: split.close,
            shared: tokens,
            room: self.context - tokens,
        })
    }
}

impl Gauge for LocalGauge {
    fn identity(&self) -> &BackendIdentity {
        &self.identity
    }

    fn open<'t>(&'t self, turn: &'t Turn) -> Result<Box<dyn Ruler + 't>, InferError> {
        match self.ruler(&turn.rubric.system, &turn.questions) {
            Ok(ruler) => Ok(Box::new(ruler)),
            Err(error) => Err(refusal(error)),
        }
    }
}

struct LocalRuler<'t> {
    tokenizer: &'t Tokenizer,
    questions: Questions<'t>,
    close: Vec<u32>,
    shared: usize,
    room: usize,
}

impl Ruler for LocalRuler<'_> {
    fn shared_tokens(&self) -> u64 {
        self.shared as u64
    }

    fn tokens(&mut self, unit: &UnitText) -> Result<u64, TextProblem> {
        self.questions
            .compile_lines(self.tokenizer, std::iter::once(unit))
            .map_err(|error| TextProblem {
                reason: operator::infer::FailReason::Backend,
                message: error.to_string(),
            })?;
        let request = prepare(
            self.tokenizer,
            &self.questions,
            unit,
            &self.close,
            self.room,
        )?;
        Ok(request.rows() as u64)
    }
}
