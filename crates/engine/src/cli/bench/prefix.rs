//! `engine bench prefix`: what sharing a prefix is worth, with every control beside it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use engine::bench::Arm;
use engine::bench::arms::Task;
use engine::bench::figures::records_per_s;
use engine::bench::flops::Bound;
use engine::bench::plot;
use engine::bench::report::Report;
use engine::bench::work::{Asked, Shape, Texts, Work};
use engine::local;
use engine::model::ModelFiles;
use engine::runner::RunnerOptions;
use operator::Plan;
use operator::infer::Labels;
use operator::ops::partition;
use operator::record::read_source;
use operator::run_directory::replace;

use super::{Tier, amount, arm, note, page};
use crate::cli::EXIT_FAILED;
use crate::cli::run::find_model;

const AFTER_HELP: &str = "\
Each arm of each round runs in a process of its own, in turn (A B C, A B C), so that none profits from
what another left behind:

  shared    one sealed prefix, forked by every record; records packed
  unshared  the whole prompt per record; records packed
  salted    the code of `shared`, but every record has a salt and seals the prefix for itself
  nonce     as `salted`, and the prefix's first tokens differ in every record
  serial    `shared`, one record at a time
  api       chat completions of the server at --url, --concurrency at a time

Answers are compared with those of `unshared`. FILES: bench.json with every sample, bench.svg.

Examples:
  engine bench prefix --model smollm2-135m --records 60 --rounds 2
  engine bench prefix --prefix-len 1500 --record-len 60 --arms shared,unshared
  engine bench prefix --plan fixtures/plans/issue-kind.toml --records 40
  engine bench prefix --url http://127.0.0.1:8080/v1 --output-len 1

Exit codes: 0 measured and the answers agree, 1 failed, or a decision with a margin above 0.05
differs between arms, 2 wrong usage.";

/// Arguments of `engine bench prefix`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct PrefixArguments {
    /// Tokens of the shared prefix, chat markup included.
    #[arg(long, value_name = "N", default_value_t = 700, conflicts_with = "plan", value_parser = amount())]
    prefix_len: usize,
    /// Tokens of a record after it, chat markup included.
    #[arg(long, value_name = "N", default_value_t = 150, conflicts_with = "plan", value_parser = amount())]
    record_len: usize,
    /// Tokens to generate for each record; 0 scores labels instead.
    #[arg(long, value_name = "N", default_value_t = 0)]
    output_len: u32,
    /// Records; with a plan, at most so many of its own.
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = amount())]
    records: usize,
    /// Records in flight at most.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = amount())]
    concurrency: usize,
    /// Times that every arm runs.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = amount())]
    rounds: usize,
    /// Tokens that one packed forward aims for.
    #[arg(long, value_name = "N", default_value_t = RunnerOptions::default().batch_tokens, value_parser = amount())]
    batch_tokens: usize,
    /// Arms to run [default: all, `api` with --url].
    #[arg(long, value_name = "ARM,...", value_delimiter = ',', value_enum)]
    arms: Vec<ArmArgument>,
    /// Where synthetic words come from.
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "plan")]
    seed: u64,
    /// Take rubric, texts and labels from a plan instead of making words.
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    /// Records of the plan [default: the plan's own input].
    #[arg(long, value_name = "FILE", requires = "plan")]
    input: Option<PathBuf>,
    /// A name from `engine models`, a GGUF file, or a safetensors directory.
    #[arg(
        long,
        value_name = "NAME|PATH",
        default_value = "qwen2.5-coder-0.5b",
        env = "ENGINE_MODEL"
    )]
    model: String,
    #[command(flatten)]
    tier: Tier,
    /// An OpenAI-compatible server that is running already, up to and with the version in its path.
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// What the server calls the model [default: as --model].
    #[arg(long, value_name = "NAME", requires = "url")]
    api_model: Option<String>,
    /// Environment variable that holds the server's key; it is written nowhere.
    #[arg(long, value_name = "VARIABLE", requires = "url")]
    api_key_env: Option<String>,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
    /// Directory for bench.json and bench.svg.
    #[arg(long, value_name = "DIR", default_value = "runs/bench-prefix")]
    out: PathBuf,
    /// Use no network for the model: it must already be here.
    #[arg(long)]
    offline: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ArmArgument {
    Shared,
    Unshared,
    Salted,
    Nonce,
    Serial,
    Api,
}

impl From<ArmArgument> for Arm {
    fn from(argument: ArmArgument) -> Self {
        match argument {
            ArmArgument::Shared => Self::Shared,
            ArmArgument::Unshared => Self::Unshared,
            ArmArgument::Salted => Self::Salted,
            ArmArgument::Nonce => Self::Nonce,
            ArmArgument::Serial => Self::Serial,
            ArmArgument::Api => Self::Api,
        }
    }
}

/// Runs every arm in every round, and reports.
pub fn prefix(arguments: &PrefixArguments) -> anyhow::Result<ExitCode> {
    let arms = chosen_arms(arguments)?;
    let model = find_model(&arguments.model, arguments.offline)?;
    // What cannot be run is refused before the first arm loads anything.
    let files = ModelFiles::open(&model.path)?;
    let (work, source) = make_work(arguments, &files)?;
    let output = arguments.output_len as usize;
    work.check_room(files.config.context, output)?;
    let bound = Bound::of(&files.config, &work, output)?;
    std::fs::create_dir_all(&arguments.out)
        .with_context(|| format!("{}", arguments.out.display()))?;
    let mut task = Task {
        arm: Arm::Shared,
        work,
        output_len: output,
        concurrency: arguments.concurrency,
        batch_tokens: arguments.batch_tokens,
    };
    eprintln!(
        "{} records behind {} tokens, {} rounds of {} arms",
        task.work.records.len(),
        task.work.prefix.len(),
        arguments.rounds,
        arms.len()
    );
    let server = server_arguments(arguments);
    let mut samples = Vec::new();
    for round in 1..=arguments.rounds {
        for &arm in &arms {
            task.arm = arm;
            let sample = arm::start(&model.path, &arguments.tier, &server, &task)
                .with_context(|| format!("arm {}, round {round}", arm.name()))?;
            eprintln!(
                "round {round}/{}  {:9} {:8.2} records/s",
                arguments.rounds,
                arm.name(),
                records_per_s(&sample)
            );
            samples.push(sample);
        }
    }
    let note = note(&arguments.tier, &model, &files.config);
    let report = Report::of(&task, &source, note, bound, samples);
    finish(arguments, &report)
}

fn finish(arguments: &PrefixArguments, report: &Report) -> anyhow::Result<ExitCode> {
    let mut json = serde_json::to_string_pretty(report)?;
    replace(&arguments.out.join("bench.json"), json.as_bytes())?;
    replace(
        &arguments.out.join("bench.svg"),
        plot::draw(report)?.as_bytes(),
    )?;
    if !arguments.json {
        json = format!(
            "{}files            {}",
            page::render(report),
            arguments.out.display()
        );
    }
    crate::cli::print(&json)?;
    Ok(match report.flips_above_margin() {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::from(EXIT_FAILED),
    })
}

fn chosen_arms(arguments: &PrefixArguments) -> anyhow::Result<Vec<Arm>> {
    let mut arms: Vec<Arm> = Vec::new();
    for &arm in &arguments.arms {
        if !arms.contains(&arm.into()) {
            arms.push(arm.into());
        }
    }
    if arms.is_empty() {
        arms.extend(Arm::LOCAL);
        arms.extend(arguments.url.is_some().then_some(Arm::Api));
    }
    match (arms.contains(&Arm::Api), &arguments.url) {
        (true, None) => bail!("the arm api asks a server: name it with --url http://HOST:PORT/v1"),
        (false, Some(url)) => bail!("{url} would not be asked: add `api` to --arms"),
        _ => Ok(arms),
    }
}

/// The work, and what its texts were taken from.
fn make_work(arguments: &PrefixArguments, files: &ModelFiles) -> anyhow::Result<(Work, String)> {
    let (tokenizer, template) = local::open_text(files)?;
    let Some(path) = &arguments.plan else {
        let shape = Shape {
            prefix_len: arguments.prefix_len,
            record_len: arguments.record_len,
            records: arguments.records,
            seed: arguments.seed,
        };
        let work = Work::synthetic(&tokenizer, &template, shape)?;
        return Ok((work, "synthetic".into()));
    };
    let (texts, source) = read_texts(path, arguments)?;
    Ok((Work::of_texts(&tokenizer, &template, texts)?, source))
}

/// The plan's rubric, its records as it renders them, and its questions with fixed labels.
fn read_texts(path: &Path, arguments: &PrefixArguments) -> anyhow::Result<(Texts, String)> {
    let plan = Plan::load(path)?;
    let input = arguments.input.clone().or_else(|| plan.input_path());
    let input = input.with_context(|| {
        let path = path.display();
        format!("{path}: the plan names no input; add `path` under [input] or pass --input FILE")
    })?;
    let (artifact, records, bad) = read_source(&input, plan.input.format)?;
    let parts = partition(&plan, artifact, records, bad)?;
    let records: Vec<String> = parts
        .units
        .iter()
        .filter_map(|unit| operator::text::render(&plan, unit).ok())
        .map(|unit| unit.text)
        .take(arguments.records)
        .collect();
    if records.is_empty() {
        bail!("{}: no record has a text to ask about", input.display());
    }
    let mut questions = Vec::new();
    for question in plan.questions() {
        match question.labels {
            Labels::Fixed(labels) => questions.push(Asked {
                field: question.field,
                scaffold: question.scaffold,
                labels,
            }),
            Labels::Lines => eprintln!(
                "{} is left out: its labels are each record's own lines",
                question.field
            ),
        }
    }
    let texts = Texts {
        system: plan.rubric().system,
        records,
        questions,
    };
    Ok((
        texts,
        format!("{} with {}", input.display(), path.display()),
    ))
}

fn server_arguments(arguments: &PrefixArguments) -> Vec<String> {
    let Some(url) = &arguments.url else {
        return Vec::new();
    };
    let model = arguments.api_model.as_ref().unwrap_or(&arguments.model);
    let mut out = vec![
        "--url".into(),
        url.clone(),
        "--api-model".into(),
        model.clone(),
    ];
    if let Some(name) = &arguments.api_key_env {
        out.extend(["--api-key-env".into(), name.clone()]);
    }
    out
}
