//! `engine eval`: a run's decisions against known labels.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use operator::record::read_source;
use operator::{eval, run_directory};
use serde::Serialize;

/// Arguments of `engine eval`.
#[derive(Debug, Args)]
pub struct EvalArguments {
    /// Directory that `engine run` wrote.
    run: PathBuf,
    /// JSON, JSONL or CSV file with ids and labels; often the run's own input.
    #[arg(long, value_name = "FILE", required_unless_present = "pairs")]
    labels: Option<PathBuf>,
    /// JSON, JSONL or CSV file that names pairs of records, instead of labels.
    #[arg(long, value_name = "FILE", conflicts_with = "labels")]
    pairs: Option<PathBuf>,
    /// Field of the pairs file that names a record's partner, or a list of them.
    #[arg(
        long,
        value_name = "FIELD",
        default_value = "duplicateOf",
        requires = "pairs"
    )]
    pair_field: String,
    /// With --pairs the label which says that records belong together, with --claim the label that a named
    /// unit must have.
    #[arg(long, value_name = "LABEL", default_value = "yes")]
    label: String,
    /// The plan's field to judge.
    #[arg(long, value_name = "FIELD", required_unless_present = "claim")]
    field: Option<String>,
    /// Instead of a field, a claim of the answer: the units that it lists, or the labels that it counts.
    #[arg(
        long,
        value_name = "NAME",
        conflicts_with_all = ["field", "pairs"],
        requires_all = ["labels", "label_field"]
    )]
    claim: Option<String>,
    /// With --claim, a label that is none of those to be counted; may be repeated.
    #[arg(long, value_name = "LABEL", requires = "claim")]
    ignore: Vec<String>,
    /// Field of the labels file that holds the label [default: the same name].
    #[arg(long, value_name = "FIELD")]
    label_field: Option<String>,
    /// Field of the labels file that holds the id.
    #[arg(long, value_name = "FIELD", default_value = "number")]
    id: String,
    /// Leave out the records whose ids are in this file, such as those that a head was trained on.
    #[arg(long, value_name = "FILE", requires = "labels")]
    except: Option<PathBuf>,
    /// Turn a stored label into the plan's, such as `true=yes`; may be repeated.
    #[arg(long = "map", value_name = "STORED=LABEL", value_parser = parse_pair)]
    map: Vec<(String, String)>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn parse_pair(text: &str) -> Result<(String, String), String> {
    text.split_once('=')
        .map(|(stored, label)| (stored.to_owned(), label.to_owned()))
        .ok_or_else(|| format!("`{text}` has no `=`; write STORED=LABEL, such as true=yes"))
}

/// Prints accuracy, per-class figures, the confusion matrix, calibration and misses; of pairs, what was found of them.
pub fn eval(arguments: &EvalArguments) -> anyhow::Result<ExitCode> {
    let facts = run_directory::read_facts(&arguments.run.join("facts.jsonl"))?;
    let answer = run_directory::read_answer(&arguments.run)?;
    if let (Some(pairs), Some(field)) = (&arguments.pairs, &arguments.field) {
        let (artifact, records, _) = read_source(pairs, None)?;
        let (id, partner) = (&arguments.id, &arguments.pair_field);
        let pairs = eval::read_pairs(&artifact.path, &records, id, partner)?;
        let report = eval::evaluate_pairs(&facts, &pairs, field, &arguments.label);
        return tell(&report, arguments.json, answer.simulated);
    }
    let Some(labels) = &arguments.labels else {
        anyhow::bail!("eval: name --labels FILE or --pairs FILE");
    };
    let (artifact, records, _) = read_source(labels, None)?;
    let Some(label_field) = arguments.label_field.as_ref().or(arguments.field.as_ref()) else {
        anyhow::bail!("eval: name --field FIELD, or --claim NAME with --label-field FIELD");
    };
    let map: BTreeMap<String, String> = arguments.map.iter().cloned().collect();
    let mut labels = eval::read_labels(&artifact.path, &records, &arguments.id, label_field, &map)?;
    if let Some(path) = &arguments.except {
        let (artifact, records, _) = read_source(path, None)?;
        for unit in eval::read_ids(&artifact.path, &records, &arguments.id)? {
            labels.remove(&unit);
        }
    }
    if let Some(name) = &arguments.claim {
        let Some(claim) = answer.claims.iter().find(|claim| &claim.name == name) else {
            let names: Vec<&str> = answer.claims.iter().map(|claim| &*claim.name).collect();
            anyhow::bail!(
                "{}: the answer has no claim `{name}`; its claims are {}",
                arguments.run.display(),
                names.join(", ")
            );
        };
        let report = eval::evaluate_claim(claim, &labels, &arguments.label, &arguments.ignore)?;
        return tell(&report, arguments.json, answer.simulated);
    }
    let field = arguments.field.as_ref().unwrap_or(label_field);
    let known = facts.iter().any(|fact| fact.values.contains_key(field));
    if !known && answer.coverage.decided > 0 {
        let mut fields: Vec<&str> = facts
            .iter()
            .flat_map(|fact| fact.values.keys().map(String::as_str))
            .collect();
        fields.sort_unstable();
        fields.dedup();
        anyhow::bail!(
            "{}: no fact has field `{field}`; the run's fields are {}",
            arguments.run.display(),
            fields.join(", ")
        );
    }
    let selectors = answer.selections.iter().map(|selection| &*selection.stage);
    let report = Evaluation {
        report: eval::evaluate(&facts, &labels, field),
        quality: eval::evaluate_quality(&facts, &labels, field),
        choices: eval::evaluate_choices(&facts, &labels, selectors),
    };
    tell(&report, arguments.json, answer.simulated)
}

/// A field's figures, and where the run has selectors what they chose of each true label.
#[derive(Serialize)]
struct Evaluation {
    #[serde(flatten)]
    report: eval::Report,
    quality: eval::Quality,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    choices: Vec<eval::ChoiceReport>,
}

impl Display for Evaluation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.report, self.quality)?;
        self.choices
            .iter()
            .try_for_each(|choices| write!(f, "\n{choices}"))
    }
}

fn tell<R: Display + Serialize>(
    report: &R,
    json: bool,
    simulated: bool,
) -> anyhow::Result<ExitCode> {
    let text = if json {
        serde_json::to_string_pretty(report).context("the report as JSON")?
    } else if simulated {
        format!("SIMULATED: these answers were replayed, no model was asked.\n\n{report}")
    } else {
        report.to_string()
    };
    super::print(&text)?;
    Ok(ExitCode::SUCCESS)
}
