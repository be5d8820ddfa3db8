//! The plan's identity: a hash over what changes its meaning.
//!
//! White space, comments and key order of the file, the input's path and the budget do not change
//! what is asked, so they are left out; everything else is in.

use super::{Action, ClipPolicy, EvidenceMode, Field, Input, Label, Plan, Prefilter, Reduce};
use crate::canonical::Canonical;
use crate::id::ContentHash;

impl Plan {
    /// Hash of the plan's meaning.
    pub fn hash(&self) -> ContentHash {
        let mut canonical = Canonical::new("operator 2026 plan v1");
        canonical
            .u32(self.version)
            .text(&self.question)
            .text(&self.task);
        encode_input(&mut canonical, &self.input);
        canonical.list(self.prefilters.len());
        for prefilter in &self.prefilters {
            encode_prefilter(&mut canonical, prefilter);
        }
        canonical.list(self.fields.len());
        for field in &self.fields {
            encode_field(&mut canonical, field);
        }
        canonical.list(self.reduces.len());
        for reduce in &self.reduces {
            encode_reduce(&mut canonical, reduce);
        }
        ContentHash::of(&canonical)
    }
}

fn encode_input(canonical: &mut Canonical, input: &Input) {
    canonical.text(&input.id).list(input.text.len());
    for text in &input.text {
        canonical
            .text(&text.field)
            .u32(text.max_chars)
            .text(match text.policy {
                ClipPolicy::HeadTail => "head_tail",
                ClipPolicy::Head => "head",
                ClipPolicy::Error => "error",
            });
    }
    canonical.text(match input.evidence {
        EvidenceMode::Model => "model",
        EvidenceMode::FirstLine => "first_line",
        EvidenceMode::None => "none",
    });
    canonical.u32(input.evidence_lines_max);
}

fn encode_prefilter(canonical: &mut Canonical, prefilter: &Prefilter) {
    canonical.text(&prefilter.name);
    prefilter.when.encode(canonical);
    canonical.text(match prefilter.action {
        Action::Exclude => "exclude",
        Action::Decide => "decide",
        Action::Keep => "keep",
    });
    canonical.text(&prefilter.reason).map(prefilter.set.len());
    for (field, label) in &prefilter.set {
        canonical.text(field).text(label);
    }
}

fn encode_field(canonical: &mut Canonical, field: &Field) {
    canonical.text(&field.name).text(&field.question);
    encode_labels(canonical, &field.labels);
    canonical
        .u32(field.abstain_below_margin_ppm)
        .u32(field.label_mass_min_ppm);
    encode_labels(canonical, &field.reasons);
    canonical.text(&field.scaffold);
}

fn encode_labels(canonical: &mut Canonical, labels: &[Label]) {
    canonical.list(labels.len());
    for label in labels {
        canonical
            .text(&label.name)
            .optional_text(label.means.as_deref());
    }
}

fn encode_reduce(canonical: &mut Canonical, reduce: &Reduce) {
    canonical.text(&reduce.name).text(reduce.op.as_str());
    canonical
        .optional_text(reduce.field.as_deref())
        .optional_text(reduce.label.as_deref());
    match reduce.k {
        Some(k) => canonical.some().u32(k),
        None => canonical.none(),
    };
    canonical.map(reduce.filter.len());
    for (field, label) in &reduce.filter {
        canonical.text(field).text(label);
    }
    canonical.list(reduce.edges_ppm.len());
    for edge in &reduce.edges_ppm {
        canonical.u32(*edge);
    }
    canonical
        .optional_text(reduce.claim.as_deref())
        .u32(reduce.cite_max);
}
