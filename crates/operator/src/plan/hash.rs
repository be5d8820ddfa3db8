//! The plan's identity: a hash over what changes its meaning.
//!
//! White space, comments and key order of the file, the input's path, the budget and the fan-in do
//! not change what is asked or answered, so they are left out; everything else is in.

use regex::Regex;

use super::{
    Action, ColumnRef, Contract, EvidenceMode, Field, Filter, Input, KeySource, Label, Measure,
    Nearness, Operation, Plan, Prefilter, Reduce, Select, Split, Stage, StageOp, Then, effect,
};
use crate::canonical::Canonical;
use crate::id::ContentHash;

impl Plan {
    /// Hash of the plan's meaning.
    pub fn hash(&self) -> ContentHash {
        let mut canonical = Canonical::new("operator 2026 plan v2");
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
        canonical.list(self.columns.len());
        for column in &self.columns {
            canonical
                .text(&column.name)
                .text(&column.field)
                .text(column.kind.as_str());
        }
        canonical
            .text(self.fold.key.as_str())
            .u32(self.fold.outliers_max);
        canonical.list(self.reduces.len());
        for reduce in &self.reduces {
            encode_reduce(&mut canonical, reduce);
        }
        encode_unit(&mut canonical, self);
        if !self.indexes.is_empty() {
            canonical.text("indexes").list(self.indexes.len());
            for index in &self.indexes {
                index.encode(&mut canonical);
            }
        }
        if self.staged {
            encode_stages(&mut canonical, &self.stages);
        }
        if !self.tools.is_empty() {
            canonical.text("tools").list(self.tools.len());
            for tool in &self.tools {
                canonical.text(&tool.name);
                canonical.bytes(tool.declaration().as_bytes());
                canonical.list(tool.arguments.len());
                for argument in &tool.arguments {
                    canonical.text(&argument.name).text(&argument.field);
                }
            }
        }
        if let Some(canary) = &self.canary {
            canary.encode(&mut canonical);
        }
        if let Some(audit) = &self.audit {
            audit.encode(&mut canonical);
        }
        self.control.encode(&mut canonical);
        if !self.effects.is_empty() {
            effect::encode(&mut canonical, &self.effects);
        }
        ContentHash::of(&canonical)
    }
}

/// Nothing for a plan of plain records: such plans keep the hash that they had.
fn encode_unit(canonical: &mut Canonical, plan: &Plan) {
    for field in plan.fields.iter().filter(|f| !f.requires.is_empty()) {
        canonical.text("requires").text(&field.name);
        canonical.list(field.requires.len());
        for relation in &field.requires {
            canonical.text(relation.as_str());
        }
    }
    let unit = &plan.unit;
    if unit.is_plain() {
        return;
    }
    canonical.text("unit").text(unit.kind.as_str());
    canonical.bool(unit.widen).list(unit.fields.len());
    for field in &unit.fields {
        canonical.text(&field.field);
    }
    let Some(group) = &unit.group else { return };
    canonical.text("group").text(group.by.as_str());
    match &group.by {
        Nearness::Similarity {
            fields,
            at_least_ppm,
            within_seconds,
        } => {
            encode_texts(canonical, fields);
            canonical.u32(*at_least_ppm);
            match within_seconds {
                Some(seconds) => canonical.some().i64(*seconds),
                None => canonical.none(),
            };
        }
        Nearness::Key { field } => {
            canonical.text(field);
        }
        Nearness::Links { field, pattern } => {
            canonical
                .optional_text(field.as_deref())
                .optional_text(pattern.as_ref().map(Regex::as_str));
        }
        Nearness::Window { within_seconds } => {
            canonical.i64(*within_seconds);
        }
    }
    canonical
        .text(group.shape.as_str())
        .u32(group.most)
        .u32(group.members_max)
        .optional_text(group.order_by.as_deref());
}

/// Passes are part of a plan through their stages; how many units one takes is a limit.
fn encode_stages(canonical: &mut Canonical, stages: &[Stage]) {
    canonical.text("stages").list(stages.len());
    for stage in stages {
        canonical
            .text(&stage.name)
            .u64(stage.pass as u64)
            .text(stage.op.as_str());
        canonical.map(stage.when.labels.len());
        for (field, label) in &stage.when.labels {
            canonical.text(field).text(label);
        }
        canonical.map(stage.when.margin_below_ppm.len());
        for (field, ppm) in &stage.when.margin_below_ppm {
            canonical.text(field).u32(*ppm);
        }
        match stage.when.abstained {
            Some(abstained) => canonical.some().bool(abstained),
            None => canonical.none(),
        };
        canonical.bool(stage.larger());
        match &stage.op {
            StageOp::Select(select) => encode_select(canonical, select),
            StageOp::Map(map) => {
                canonical
                    .optional_text(map.rubric.as_deref())
                    .bool(map.widen);
                encode_texts(canonical, &map.fields);
            }
            StageOp::Tool(tool) => {
                canonical.text(&tool.tool).u32(tool.max_chars);
                canonical.text(tool.policy.as_str());
                encode_texts(canonical, &tool.fields);
                match &tool.split {
                    Some(split) => encode_split(canonical.some(), split),
                    None => {
                        canonical.none();
                    }
                }
            }
        }
    }
}

fn encode_split(canonical: &mut Canonical, split: &Split) {
    canonical
        .u32(split.over_chars)
        .u32(split.part_chars)
        .u32(split.parts_max)
        .u32(split.depth_max)
        .text(&split.rubric)
        .text(&split.question)
        .text(&split.keep);
    encode_labels(canonical, &split.labels);
}

fn encode_select(canonical: &mut Canonical, select: &Select) {
    canonical.text(&select.rubric).text(&select.question);
    canonical.list(select.options.len());
    for option in &select.options {
        let label = &option.label;
        canonical
            .text(&label.name)
            .optional_text(label.means.as_deref());
        match &option.then {
            Then::Exclude => {
                canonical.text("exclude");
            }
            Then::Abstain => {
                canonical.text("abstain");
            }
            Then::Run(stages) => encode_texts(canonical.text("run"), stages),
        }
    }
    match &select.unclear {
        Some(unclear) => canonical
            .some()
            .u32(unclear.margin_below_ppm)
            .text(&unclear.option),
        None => canonical.none(),
    };
}

fn encode_input(canonical: &mut Canonical, input: &Input) {
    canonical.text(&input.id).list(input.text.len());
    for text in &input.text {
        canonical
            .text(&text.field)
            .u32(text.max_chars)
            .text(text.policy.as_str());
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
    if let Some(near) = &prefilter.near {
        near.encode(canonical.text("near"));
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
    encode_operation(canonical, &reduce.op);
    encode_filter(canonical, &reduce.filter);
    canonical
        .optional_text(reduce.claim.as_deref())
        .u32(reduce.cite_max);
    if reduce.contract == Contract::Exhaustive {
        canonical.text("exhaustive");
    }
}

fn encode_operation(canonical: &mut Canonical, op: &Operation) {
    match op {
        Operation::Count => {}
        Operation::CountBy {
            key,
            labels,
            keys_max,
        } => {
            encode_key(canonical, key);
            encode_texts(canonical, labels);
            canonical.u32(*keys_max);
        }
        Operation::Set { key, keys_max } => {
            match key {
                Some(key) => encode_key(canonical.some(), key),
                None => {
                    canonical.none();
                }
            }
            canonical.u32(*keys_max);
        }
        Operation::TopK { by, k, order } => {
            encode_measure(canonical, by);
            canonical.u32(*k).text(order.as_str());
        }
        Operation::TopKeys { key, k, keys_max } => {
            encode_key(canonical, key);
            canonical.u32(*k).u32(*keys_max);
        }
        Operation::Histogram { by, edges } => {
            encode_measure(canonical, by);
            canonical.list(edges.len());
            for edge in edges {
                canonical.i64(*edge);
            }
        }
        Operation::Min(column)
        | Operation::Max(column)
        | Operation::Sum(column)
        | Operation::Mean(column)
        | Operation::Distinct(column) => encode_column(canonical, column),
        Operation::Quantiles { column, at } => {
            encode_column(canonical, column);
            canonical.list(at.len());
            for percent in at {
                canonical.u32(u32::from(*percent));
            }
        }
        Operation::HeavyHitters { key, k } => {
            encode_key(canonical, key);
            canonical.u32(*k);
        }
        Operation::Join { left, right, kind } => {
            for side in [left, right] {
                encode_key(canonical, &side.key);
                encode_filter(canonical, &side.filter);
            }
            canonical.text(kind.as_str());
        }
        Operation::Clusters {
            field,
            labels,
            taxonomy,
            exemplars,
            unclustered,
            dissent,
        } => {
            canonical.text(field);
            encode_texts(canonical, labels);
            canonical
                .text(taxonomy)
                .u32(*exemplars)
                .optional_text(unclustered.as_deref());
            encode_texts(canonical, dissent);
        }
        Operation::Components {
            field,
            label,
            keys_max,
        } => {
            canonical.text(field).text(label).u32(*keys_max);
        }
        Operation::Summary {
            of,
            instruction,
            tokens_max,
        } => {
            encode_texts(canonical, of);
            canonical.text(instruction).u32(*tokens_max);
        }
    }
}

fn encode_key(canonical: &mut Canonical, key: &KeySource) {
    match key {
        KeySource::Label(field) => {
            canonical.text("label").text(field);
        }
        KeySource::Column(column) => encode_column(canonical.text("column"), column),
        KeySource::Id => {
            canonical.text("id");
        }
    }
}

fn encode_measure(canonical: &mut Canonical, measure: &Measure) {
    match measure {
        Measure::Probability { field, label } => {
            canonical
                .text("probability")
                .text(field)
                .optional_text(label.as_deref());
        }
        Measure::Column(column) => encode_column(canonical.text("column"), column),
    }
}

fn encode_column(canonical: &mut Canonical, column: &ColumnRef) {
    canonical.text(&column.name).text(column.kind.as_str());
}

fn encode_filter(canonical: &mut Canonical, filter: &Filter) {
    for terms in [&filter.labels, &filter.columns] {
        canonical.map(terms.len());
        for (name, wanted) in terms {
            canonical.text(name).text(wanted);
        }
    }
}

fn encode_texts(canonical: &mut Canonical, texts: &[String]) {
    canonical.list(texts.len());
    for text in texts {
        canonical.text(text);
    }
}
