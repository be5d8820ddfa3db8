//! What each index and stage of a plan may do: what it reads, chooses, calls, and within which limits.

use serde::{Deserialize, Serialize};

use crate::plan::{ClassifierSource, Index, IndexKind, Plan, Stage, StageOp};

/// What a step of a plan may do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct May {
    /// The step: its kind or operator, and its name.
    pub step: String,
    /// What it may do, one phrase each.
    pub may: Vec<String>,
}

/// What the steps of a plan may do, in order.
pub(super) fn may(plan: &Plan) -> Vec<May> {
    let indexes = plan.indexes.iter().map(|index| May {
        step: format!("index {}", index.name),
        may: of_index(index),
    });
    let stages = plan.stages.iter().map(|stage| May {
        step: format!("{} stage {}", stage.op.as_str(), stage.name),
        may: of_stage(plan, stage),
    });
    indexes.chain(stages).collect()
}

fn of_index(index: &Index) -> Vec<String> {
    match &index.kind {
        IndexKind::Sql(sql) => vec![
            String::from("reads the records by one SELECT"),
            format!("takes {} steps", sql.steps_max),
        ],
        IndexKind::Search(search) => vec![format!("reads {}", search.fields.join(", "))],
        IndexKind::Classifier(classifier) => {
            let source = match &classifier.source {
                ClassifierSource::Labels { path, .. } => format!("learns from {}", path.display()),
                ClassifierSource::Model { path } => {
                    format!("reads the classifier {}", path.display())
                }
            };
            vec![format!("reads {}", classifier.fields.join(", ")), source]
        }
    }
}

fn of_stage(plan: &Plan, stage: &Stage) -> Vec<String> {
    let mut may = Vec::new();
    let fields = plan.input.text.iter();
    let fields: Vec<String> = fields
        .map(|text| format!("{} ({} characters)", text.field, text.max_chars))
        .collect();
    let reads = format!("reads {}", fields.join(", "));
    match &stage.op {
        StageOp::Select(select) => {
            let options: Vec<&str> = select
                .options
                .iter()
                .map(|option| option.label.name.as_str())
                .collect();
            may.push(reads);
            may.push(format!("chooses one of {}", options.join(", ")));
        }
        StageOp::Map(map) => {
            may.push(reads);
            may.push(format!("decides {}", map.fields.join(", ")));
        }
        StageOp::Tool(tool) => {
            if let Some(spec) = plan.tool(&tool.tool) {
                let (name, calls) = (&spec.name, spec.quota.calls_max);
                may.push(format!("calls {name}, which {}", spec.reach()));
                may.push(format!("needs --allow {name}, and at most {calls} calls"));
            }
            may.push(format!("shows {} characters of its answer", tool.max_chars));
            if let Some(split) = &tool.split {
                may.push(format!(
                    "cuts an answer of over {} characters into at most {} parts, and asks of each whether \
                     it is {}",
                    split.over_chars, split.parts_max, split.keep
                ));
            }
        }
    }
    if stage.larger() {
        may.push(String::from("asks the larger model"));
    }
    if stage.pass > 0 {
        let pass = &plan.passes[stage.pass - 1];
        may.push(format!(
            "takes {} units in pass {}",
            pass.units_max, pass.name
        ));
        if let Some(tokens) = pass.tokens_max {
            may.push(format!("computes {tokens} tokens"));
        }
    }
    may
}
