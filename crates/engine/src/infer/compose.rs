//! Writes texts with the local model, under the same prompt layout as scoring.

use std::time::Instant;

use operator::compose::{Compose, ComposeJob, Composed};
use operator::infer::{BackendIdentity, InferError, UnitUsage};

use super::LocalInfer;
use crate::error::EngineError;
use crate::runner::{Ending, GenerateRequest, Reuse};
use crate::tokenizer::TokenizerError;

impl LocalInfer {
    fn write(&mut self, job: ComposeJob<'_>) -> Result<Composed, EngineError> {
        let start = Instant::now();
        let split = self.template.split(&self.tokenizer, job.instruction)?;
        let mut tokens = self.tokenizer.encode_text(job.material)?;
        tokens.extend_from_slice(&split.close);
        // Asked before the instruction is sealed, so that what cannot fit costs no forward.
        self.runner
            .check_room(split.prefix.len() + tokens.len(), job.tokens_max)?;
        let (prefix, sealed) = match self.runner.options().reuse {
            Reuse::Shared => {
                let (prefix, sealed) = self.runner.seal(&self.namespace, &split.prefix)?;
                (Some(prefix), sealed)
            }
            Reuse::Off => {
                tokens.splice(0..0, split.prefix);
                (None, 0)
            }
        };
        let request = GenerateRequest {
            tokens: &tokens,
            tokens_max: job.tokens_max,
            stop: self.tokenizer.eos_ids(),
        };
        let mut written = Vec::new();
        let done = self.runner.generate(
            prefix.as_ref(),
            request,
            &|| !job.cancel.is_cancelled(),
            &mut |token| written.push(token),
        )?;
        // Rows sealed just now were computed for this text; only the next one reuses them.
        let computed = (done.computed_tokens + sealed) as u64;
        let cached = (done.cached_tokens - sealed) as u64;
        Ok(Composed {
            text: self.tokenizer.decode(&written),
            finished: done.ending == Ending::Stopped,
            usage: UnitUsage {
                prompt_tokens: computed + cached,
                computed_tokens: computed,
                cached_tokens: cached,
                micros: start.elapsed().as_micros() as u64,
            },
            generated_tokens: done.generated_tokens as u64,
        })
    }
}

impl Compose for LocalInfer {
    fn identity(&self) -> &BackendIdentity {
        &self.identity
    }

    fn compose(&mut self, job: ComposeJob<'_>) -> Result<Composed, InferError> {
        if job.tokens_max == 0 {
            return Err(InferError::Refused(
                "tokens_max is 0; a text needs at least 1 token".into(),
            ));
        }
        if job.cancel.is_cancelled() {
            return Ok(Composed {
                text: String::new(),
                finished: false,
                usage: UnitUsage::default(),
                generated_tokens: 0,
            });
        }
        self.write(job).map_err(|error| match error {
            EngineError::RubricTooLong { tokens, tokens_max } => InferError::RubricTooLong {
                tokens: tokens as u64,
                tokens_max: tokens_max as u64,
            },
            EngineError::GenerationTooLong { .. }
            | EngineError::Tokenizer(TokenizerError::TooLong { .. }) => {
                InferError::Refused(error.to_string())
            }
            other => InferError::Failed(Box::new(other)),
        })
    }
}
