//! The summaries of a run: each written by the backend or looked up, re-read, and put among the
//! claims at its place in the plan.
//!
//! A remembered text is re-read like a new one, and only what passed is remembered. A summary that
//! fails is a refused claim; the rest of the answer stands. Must not know how a text is checked.

use serde::{Deserialize, Serialize};

use super::{Pass, causes};
use crate::answer::Claim;
use crate::compose::ComposeJob;
use crate::error::OperatorError;
use crate::event::Event;
use crate::fold::LeafKey;
use crate::id::UnitId;
use crate::infer::{Infer, UnitUsage};
use crate::ops::reduce::Reduction;
use crate::ops::summary::{self, Checked, INSTRUCTION, Material, Settled};
use crate::plan::{Operation, Reduce};
use crate::store::{Kind, Store};

/// What is remembered of a text.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredText {
    text: String,
    /// What the prompt cost when the text was written.
    cost: UnitUsage,
    generated_tokens: u64,
}

/// What one summary took.
#[derive(Default)]
struct Taken {
    remembered: bool,
    prompt_tokens: u64,
    generated_tokens: u64,
    refused_text: Option<String>,
}

impl Pass<'_, '_> {
    /// All claims in plan order: the folded ones, and each summary at its place.
    ///
    /// # Errors
    /// `Store` when a text cannot be remembered, `Io` when the log cannot be written.
    pub(super) fn summarise(
        &mut self,
        reduction: &Reduction,
        infer: &mut dyn Infer,
        broken: bool,
        store: Option<&dyn Store>,
    ) -> Result<Vec<Claim>, OperatorError> {
        let plan = self.plan;
        let is_summary = |reduce: &&Reduce| matches!(reduce.op, Operation::Summary { .. });
        if !plan.reduces.iter().any(|reduce| is_summary(&reduce)) {
            return Ok(reduction.claims.clone());
        }
        let mut claims = Vec::with_capacity(plan.reduces.len());
        let mut folded = reduction.claims.iter().cloned();
        for reduce in &plan.reduces {
            if let Operation::Summary { tokens_max, .. } = reduce.op {
                let claim = self.summary(reduce, tokens_max, reduction, infer, broken, store)?;
                claims.push(claim);
            } else {
                claims.extend(folded.next());
            }
        }
        Ok(claims)
    }

    fn summary(
        &mut self,
        reduce: &Reduce,
        tokens_max: u32,
        reduction: &Reduction,
        infer: &mut dyn Infer,
        broken: bool,
        store: Option<&dyn Store>,
    ) -> Result<Claim, OperatorError> {
        let gathered = self.gather(reduce, reduction);
        let mut taken = Taken::default();
        let claim = match &gathered {
            Err(reason) => summary::refuse(reduce, reason, &[]),
            Ok(material) => {
                match self.write(material, tokens_max, infer, broken, store, &mut taken)? {
                    Err(reason) => summary::refuse(reduce, &reason, &material.apart),
                    Ok((text, checked)) => {
                        let counts = reduction.counts;
                        summary::state(reduce, &text, &checked, material, counts, self.identity)
                    }
                }
            }
        };
        self.journal.log(Event::Summary {
            name: reduce.name.clone(),
            refused: claim.refused.clone(),
            refused_text: taken.refused_text,
            remembered: taken.remembered,
            prompt_tokens: taken.prompt_tokens,
            generated_tokens: taken.generated_tokens,
        })?;
        Ok(claim)
    }

    fn gather(&self, reduce: &Reduce, reduction: &Reduction) -> Result<Material, String> {
        let mut places: Vec<(LeafKey, u32)> = self
            .facts
            .iter()
            .map(|fact| (LeafKey::of_id(&fact.unit_id), fact.ordinal))
            .collect();
        places.sort_unstable();
        let source = |unit: &UnitId| {
            let key = LeafKey::of_id(unit);
            let place = places.binary_search_by_key(&key, |(key, _)| *key).ok()?;
            let fact = self.facts.get(places[place].1);
            fact.filter(|fact| fact.unit_id == *unit)
                .map(|fact| fact.cite())
        };
        summary::gather(
            reduce,
            &Settled {
                reduces: &self.plan.reduces,
                claims: &reduction.claims,
                counted: &reduction.counted,
                counts: reduction.counts,
                unsettled: reduction.root.as_ref().map(|root| &root.unsettled),
                source: &source,
            },
        )
    }

    /// A text that passed, looked up or written now; inside, why there is none.
    fn write(
        &mut self,
        material: &Material,
        tokens_max: u32,
        infer: &mut dyn Infer,
        broken: bool,
        store: Option<&dyn Store>,
        taken: &mut Taken,
    ) -> Result<Result<(String, Checked), String>, OperatorError> {
        let key = summary::text_key(self.identity, material, tokens_max);
        let held = store.and_then(|store| store.get_bytes(Kind::Text, key.as_bytes()));
        let held = held.and_then(|bytes| serde_json::from_slice::<StoredText>(&bytes).ok());
        if let Some(held) = held
            && let Ok(checked) = summary::check(&held.text, material)
        {
            taken.remembered = true;
            self.usage.composed.remembered += 1;
            return Ok(Ok((held.text, checked)));
        }
        let cancel = self.options.cancel;
        let Some(composer) = infer.as_compose() else {
            let reason = format!("the backend {} writes no texts", self.identity.name);
            return Ok(Err(reason));
        };
        if broken {
            return Ok(Err(String::from(
                "the backend had stopped before it was written",
            )));
        }
        if cancel.is_cancelled() {
            return Ok(Err(String::from("cancelled before it was written")));
        }
        let job = ComposeJob {
            instruction: INSTRUCTION,
            material: &material.text,
            tokens_max,
            cancel,
        };
        let composed = match composer.compose(job) {
            Ok(composed) => composed,
            Err(error) => return Ok(Err(causes(&error))),
        };
        self.usage.composed.add(&composed);
        taken.prompt_tokens = composed.usage.prompt_tokens;
        taken.generated_tokens = composed.generated_tokens;
        if !composed.finished {
            taken.refused_text = Some(composed.text);
            let reason = match cancel.is_cancelled() {
                true => String::from("cancelled while it was written"),
                false => format!(
                    "the text was cut after {} tokens, before its end; raise tokens_max, which is \
                     {tokens_max}",
                    composed.generated_tokens
                ),
            };
            return Ok(Err(reason));
        }
        let checked = match summary::check(&composed.text, material) {
            Ok(checked) => checked,
            Err(finding) => {
                taken.refused_text = Some(composed.text);
                return Ok(Err(finding));
            }
        };
        if let Some(store) = store {
            let stored = StoredText {
                text: composed.text.clone(),
                cost: composed.usage,
                generated_tokens: composed.generated_tokens,
            };
            let bytes = serde_json::to_vec(&stored).map_err(|error| OperatorError::Store {
                path: String::from("content"),
                problem: error.to_string(),
            })?;
            store.put_bytes(Kind::Text, &[(*key.as_bytes(), bytes)])?;
        }
        Ok(Ok((composed.text, checked)))
    }
}
