//! `engine plan`: a plan is checked, and what a run of it would do is said before any model is asked.

mod page;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context;
use clap::Args;
use engine::infer::LocalGauge;
use engine::local;
use engine::models::{self, Environment, LocalModel, SilentReporter};
use engine::runner::RunnerOptions;
use operator::index::UnitRows;
use operator::index::classifier::classifier_of;
use operator::ops::{FileUnits, Place};
use operator::plan::Budget;
use operator::run_directory::{self, replace};
use operator::store::{RedbStore, Store, StoreOptions};
use operator::survey::{Gauge, Sample, Survey, SurveyOptions, measure, survey};
use operator::{OperatorError, Plan};
use serde::Serialize;

use super::run::{DeviceArgument, NumericsArgument, default_directory, find_model, load_heads};
use super::{EXIT_USAGE, store};

/// Arguments of `engine plan`.
#[derive(Debug, Args)]
pub struct PlanArguments {
    /// The plan, as TOML.
    plan: PathBuf,
    /// Records as a JSON array, JSONL or CSV [default: the plan's own input].
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// A name from `engine models`, a GGUF file, or a safetensors directory; it is not fetched.
    #[arg(
        long,
        value_name = "NAME|PATH",
        default_value = "qwen2.5-coder-0.5b",
        env = "ENGINE_MODEL"
    )]
    model: String,
    /// Ask about at most this many records, as `engine run --limit`.
    #[arg(long, value_name = "N")]
    limit: Option<u32>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Really ask the model about so many records, to tell how long all will take.
    #[arg(long, value_name = "N")]
    measure: Option<usize>,
    /// An earlier run, whose speed is taken where nothing is measured [default: runs/PLAN-INPUT].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Where the forward would run.
    #[arg(long, value_enum, default_value = "cpu")]
    device: DeviceArgument,
    /// A trained head's file, as `engine run --head` [repeatable].
    #[arg(long, value_name = "FILE")]
    head: Vec<PathBuf>,
    /// Number format of the fast CPU path.
    #[arg(long, value_enum, default_value = "auto")]
    numerics: NumericsArgument,
    /// Database of remembered answers [default: in the user's cache directory].
    #[arg(long, value_name = "FILE", env = "ENGINE_STORE")]
    store: Option<PathBuf>,
    /// Look no remembered answer up.
    #[arg(long)]
    no_store: bool,
    /// Train the plan's classifier of that name and write it, for an index with `model = "FILE"`.
    #[arg(long, value_name = "NAME=FILE", value_parser = named_file)]
    save_classifier: Vec<(String, PathBuf)>,
}

/// What is said; also the JSON.
#[derive(Debug, Serialize)]
struct Outlook {
    plan: String,
    plan_hash: String,
    question: String,
    input: String,
    source_hash: String,
    /// Absent where the model is not here.
    model: Option<ModelOutlook>,
    /// Why tokens and remembered answers are unknown, where they are.
    without_model: Option<String>,
    budget: BudgetOutlook,
    #[serde(flatten)]
    survey: Survey,
    expected: Option<Expected>,
}

#[derive(Debug, Serialize)]
struct ModelOutlook {
    name: String,
    describe: String,
}

#[derive(Debug, Serialize)]
struct BudgetOutlook {
    units_max: Option<u64>,
    tokens_max: Option<u64>,
    seconds_max: Option<u64>,
}

impl From<Budget> for BudgetOutlook {
    fn from(budget: Budget) -> Self {
        Self {
            units_max: budget.units_max,
            tokens_max: budget.tokens_max,
            seconds_max: budget.seconds_max,
        }
    }
}

/// What a run is expected to compute.
#[derive(Debug, Serialize)]
struct Expected {
    /// Whether earlier answers decide how much of it is needed.
    at_most: bool,
    computed_tokens: u64,
    millis: Option<u64>,
    /// What the time was told from.
    time_from: Option<String>,
}

/// Checks the plan and says what a run would do.
pub fn plan(arguments: &PlanArguments) -> anyhow::Result<ExitCode> {
    let plan = match Plan::load(&arguments.plan) {
        Err(error @ OperatorError::Plan { .. }) => {
            eprintln!("error: {error}");
            return Ok(ExitCode::from(EXIT_USAGE));
        }
        loaded => loaded?,
    };
    let input = arguments.input.clone().or_else(|| plan.input_path());
    let input = input.with_context(|| {
        format!(
            "{}: the plan is valid; it names no input, pass --input FILE to see what a run would do",
            arguments.plan.display()
        )
    })?;
    let units = FileUnits::open(&plan, &input, &mut |_| {})?;
    let rows = UnitRows(&units);
    for (name, path) in &arguments.save_classifier {
        replace(path, &classifier_of(&plan, name, &rows)?.to_json()?)?;
        eprintln!("wrote {}", path.display());
    }
    let model = local_model(&arguments.model);
    let (model, without_model) = match model {
        Ok(model) => (Some(model), None),
        Err(reason) => (None, Some(reason)),
    };
    let (device, numerics) = (arguments.device.into(), arguments.numerics.into());
    let gauge = match &model {
        Some(model) => {
            let heads = load_heads(&plan, &arguments.head)?;
            Some(local::open_gauge(model, device, numerics)?.with_heads(heads)?)
        }
        None => None,
    };
    let memory = open_store(arguments)?;
    let started = Instant::now();
    let clock = || started.elapsed().as_micros() as u64;
    let options = SurveyOptions {
        limit: arguments.limit,
        clock: &clock,
        gauge: gauge.as_ref().map(|gauge| gauge as &dyn Gauge),
        larger: None,
        store: memory.as_ref().map(|store| store as &dyn Store),
    };
    let (found, asked) = match survey(&plan, &units, &options) {
        Err(error @ OperatorError::Plan { .. }) => {
            eprintln!("error: {error}");
            return Ok(ExitCode::from(EXIT_USAGE));
        }
        found => found?,
    };
    let sample = match (arguments.measure, &model) {
        (Some(count), _) => {
            let fetched;
            let model = match &model {
                Some(model) => model,
                None => {
                    fetched = find_model(&arguments.model, false)?;
                    &fetched
                }
            };
            take_sample(&plan, &units, model, arguments, &asked, count)?
        }
        (None, _) => None,
    };
    let directory = arguments
        .out
        .clone()
        .unwrap_or_else(|| default_directory(&arguments.plan, &input));
    let expected = gauge
        .as_ref()
        .and_then(|gauge| expect(&found, sample, &directory, gauge));
    let outlook = Outlook {
        plan: plan.path.clone(),
        plan_hash: plan.hash().to_string(),
        question: plan.question.clone(),
        input: input.display().to_string(),
        source_hash: operator::ops::Units::source(&units).hash.to_string(),
        model: gauge.as_ref().map(|gauge| ModelOutlook {
            name: gauge.identity().name.clone(),
            describe: gauge.identity().describe.clone(),
        }),
        without_model,
        budget: plan.budget.into(),
        survey: found,
        expected,
    };
    if arguments.json {
        super::print(&serde_json::to_string_pretty(&outlook)?)?;
    } else {
        super::print(page::render(&outlook).trim_end())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The model, if it is here; else why not.
fn local_model(reference: &str) -> Result<LocalModel, String> {
    let path = Path::new(reference);
    let found = if path.is_dir() {
        local::directory_model(path).map_err(anyhow::Error::from)
    } else {
        Environment::from_process()
            .map_err(anyhow::Error::from)
            .and_then(|environment| {
                let mut quiet = SilentReporter;
                Ok(models::resolve(reference, &environment, true, &mut quiet)?)
            })
    };
    found.map_err(|error| super::chain(&error))
}

/// The store, where there is one: looking makes none.
fn open_store(arguments: &PlanArguments) -> anyhow::Result<Option<RedbStore>> {
    if arguments.no_store {
        return Ok(None);
    }
    let path = store::locate(arguments.store.as_deref())?;
    if !path.exists() {
        return Ok(None);
    }
    let options = StoreOptions {
        today: store::today,
        retention_days: None,
    };
    Ok(Some(RedbStore::open(&path, options)?))
}

/// Asks the model about some of the records that the first stage would ask.
fn take_sample(
    plan: &Plan,
    units: &FileUnits<'_>,
    model: &LocalModel,
    arguments: &PlanArguments,
    asked: &[Place],
    count: usize,
) -> anyhow::Result<Option<Sample>> {
    let Some(turn) = plan.stages.first().and_then(|stage| plan.turn(stage)) else {
        return Ok(None);
    };
    let (device, numerics) = (arguments.device.into(), arguments.numerics.into());
    let mut infer = local::open(model, device, numerics, RunnerOptions::default())?;
    let started = Instant::now();
    let clock = || started.elapsed().as_micros() as u64;
    let sample = measure(plan, units, &turn, asked, count, &mut infer, &clock)?;
    Ok((sample.units > 0).then_some(sample))
}

/// What all stages are expected to compute, and how long that takes.
fn expect(
    found: &Survey,
    sample: Option<Sample>,
    directory: &Path,
    gauge: &LocalGauge,
) -> Option<Expected> {
    let (mut tokens, mut at_most) = (0, false);
    for stage in &found.stages {
        tokens += stage.shared_tokens.unwrap_or(0) + stage.unit_tokens.unwrap_or(0);
        at_most |= stage.at_most;
    }
    let (millis, time_from) = match sample {
        Some(sample) => {
            // The rubric was measured with the first unit; what follows it is scaled.
            let rest = tokens.saturating_sub(sample.first_tokens);
            let micros = sample.micros(rest).map(|rest| rest + sample.first_micros);
            let from = format!("{} records that were asked now", sample.units);
            (micros.map(|micros| micros / 1_000), Some(from))
        }
        None => match earlier_speed(directory, gauge) {
            Some((micros, computed)) => {
                let scaled = u128::from(tokens) * u128::from(micros) / u128::from(computed);
                let from = format!("the run in {}", directory.display());
                (u64::try_from(scaled / 1_000).ok(), Some(from))
            }
            None => (None, None),
        },
    };
    Some(Expected {
        at_most,
        computed_tokens: tokens,
        millis,
        time_from,
    })
}

/// Microseconds and tokens of an earlier run's stages, if the same backend answered.
fn earlier_speed(directory: &Path, gauge: &LocalGauge) -> Option<(u64, u64)> {
    let answer = run_directory::read_answer(directory).ok()?;
    let usage = run_directory::read_usage(directory).ok()?;
    if answer.backend.digest.as_bytes() != &gauge.identity().digest {
        return None;
    }
    let asked = usage.ladder.iter().filter(|rung| rung.computed_tokens > 0);
    let (micros, tokens) = asked.fold((0, 0), |(micros, tokens), rung| {
        (micros + rung.micros, tokens + rung.computed_tokens)
    });
    (tokens > 0).then_some((micros, tokens))
}

/// `NAME=FILE`.
fn named_file(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, path)) if !name.is_empty() && !path.is_empty() => {
            Ok((name.to_owned(), PathBuf::from(path)))
        }
        _ => Err(format!("{text:?} is not NAME=FILE")),
    }
}
