//! Writes the inner states of records to files, to choose what a trained head should read.
//!
//! `cargo run --release -p engine --example features -- --plan fixtures/plans/issue-kind.toml --input
//! issues.jsonl --model smollm2-135m --layers 10,14,18 --out features`
//!
//! `OUT/index.json` names layers, questions and ids; `OUT/states.f32` holds, for each id in that order,
//! little-endian f32: per scored question the states of every layer and the final one, then the means of
//! every layer, then per scored question the probabilities of its labels.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::time::Instant;

use clap::Parser;
use engine::local::{self, Device};
use engine::model::linear::Numerics;
use engine::models::{self, Environment, TerminalReporter};
use engine::runner::RunnerOptions;
use operator::Plan;
use operator::infer::{CancelFlag, InferJob, UnitTexts};
use operator::ops::partition;
use operator::record::read_source;
use operator::text::{UnitText, render_for};

#[derive(Debug, Parser)]
struct Arguments {
    /// The plan whose first stage is asked.
    #[arg(long, value_name = "FILE")]
    plan: PathBuf,
    /// Records [default: the plan's own input].
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// A name from `engine models` or a GGUF file.
    #[arg(long, value_name = "NAME|PATH")]
    model: String,
    /// Layers whose incoming residual is read.
    #[arg(long, value_delimiter = ',', required = true)]
    layers: Vec<usize>,
    /// Directory for the files.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Records to read, at most.
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = Arguments::parse();
    let plan = Plan::load(&arguments.plan)?;
    let input = arguments
        .input
        .clone()
        .or_else(|| plan.input_path())
        .ok_or("the plan names no input; pass --input")?;
    let (artifact, records, bad) = read_source(&input, plan.input.format)?;
    let units = partition(&plan, artifact, records, bad)?.units;
    let turn = plan
        .stages
        .first()
        .and_then(|stage| plan.turn(stage))
        .ok_or("the plan's first stage asks nothing")?;
    let texts: Vec<UnitText> = units
        .iter()
        .take(arguments.limit.unwrap_or(usize::MAX))
        .filter_map(|unit| render_for(&plan, unit, &[], turn.evidence).ok())
        .collect();
    let environment = Environment::from_process()?;
    let mut reporter = TerminalReporter::stderr();
    let model = models::resolve(&arguments.model, &environment, false, &mut reporter)?;
    let options = RunnerOptions::default();
    let mut infer = local::open(&model, Device::Cpu, Numerics::default(), options)?;
    let started = Instant::now();
    let mut found = vec![None; texts.len()];
    let job = InferJob {
        rubric: &turn.rubric,
        questions: &turn.questions,
        units: &texts,
        cancel: &CancelFlag::new(),
    };
    infer.states(job, &arguments.layers, &mut |place, read| match read {
        Ok(read) => found[place] = Some(read),
        Err(outcome) => eprintln!("{}: {outcome:?}", UnitTexts::id(&texts, place)),
    })?;
    let seconds = started.elapsed().as_secs_f64();
    std::fs::create_dir_all(&arguments.out)?;
    let mut out = BufWriter::new(File::create(arguments.out.join("states.f32"))?);
    let mut ids = Vec::new();
    for (text, read) in texts.iter().zip(&found) {
        let Some(read) = read else { continue };
        ids.push(text.unit_id.as_str());
        let answers = read.states.answers.iter().flatten();
        let scores = read.scores.iter().flat_map(|score| &score.probabilities);
        let scores = scores.map(|&share| share as f32).collect::<Vec<_>>();
        for value in answers.chain(&read.states.mean).chain(&scores) {
            out.write_all(&value.to_le_bytes())?;
        }
    }
    out.flush()?;
    let index = serde_json::json!({
        "hidden": infer.runner().model().config().hidden,
        "layers": arguments.layers,
        "questions": turn.questions.iter().map(|question| &question.field).collect::<Vec<_>>(),
        "ids": ids,
    });
    std::fs::write(
        arguments.out.join("index.json"),
        serde_json::to_vec(&index)?,
    )?;
    eprintln!("{} records in {seconds:.1} s", ids.len());
    Ok(())
}
