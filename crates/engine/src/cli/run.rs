//! `engine run`: a plan over its records, on the local model or a recording.

mod backend;
mod interrupt;
mod resume;
mod trained;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use clap::{Args, ValueEnum};
use engine::local::Device;
use engine::model::linear::Numerics;
use engine::runner::RunnerOptions;
use engine::tools::SystemClock;
use operator::Plan;
use operator::fact::Facts;
use operator::index::{self, UnitRows};
use operator::infer::CancelFlag;
use operator::ops::FileUnits;
use operator::run::{RunOptions, RunOutcome};
use operator::run_directory::RunDirectory;
use operator::store::{RedbStore, Store, StoreOptions};
use operator::tool::Toolbox;

use super::effects::{self, Finished};
use super::progress::RunProgress;
use super::{EXIT_BREAKER, EXIT_INCOMPLETE, store, terminal};

pub(super) use backend::{find_model, load_heads};

/// Arguments of `engine run`.
#[derive(Debug, Args)]
pub struct RunArguments {
    /// The plan: question, rubric, fields, predicates and reductions, as TOML.
    plan: PathBuf,
    /// Records as a JSON array, JSONL or CSV [default: the plan's own input].
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// A name from `engine models`, a GGUF file, or a safetensors directory.
    #[arg(
        long,
        value_name = "NAME|PATH",
        default_value = "qwen2.5-coder-0.5b",
        env = "ENGINE_MODEL"
    )]
    model: String,
    /// The model that stages and audits with `model = "larger"` ask; as --model.
    #[arg(long, value_name = "NAME|PATH", conflicts_with = "replay")]
    larger: Option<String>,
    /// Directory for the run's files [default: runs/PLAN-INPUT].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Ask about at most this many records; the rest counts as not run.
    #[arg(long, value_name = "N")]
    limit: Option<u32>,
    /// Go on with the run in the directory: plan, records, model and options must be those that it was
    /// begun with. What was answered is looked up, only the rest is asked.
    #[arg(long, conflicts_with_all = ["no_store", "replay"])]
    resume: bool,
    /// Tell no progress, only what stops or breaks the run.
    #[arg(long, short)]
    quiet: bool,
    /// Print the answer as JSON.
    #[arg(long)]
    json: bool,
    /// Where the forward runs.
    #[arg(long, value_enum, default_value = "cpu")]
    device: DeviceArgument,
    /// Number format of the fast CPU path; part of every remembered answer's key.
    #[arg(long, value_enum, default_value = "auto")]
    numerics: NumericsArgument,
    /// A trained head's file, beside those that the plan names; part of every remembered answer's key
    /// [repeatable].
    #[arg(long, value_name = "FILE", conflicts_with = "replay")]
    head: Vec<PathBuf>,
    /// Answer from a recording instead of a model; everything is marked as simulated.
    #[arg(long, value_name = "FILE")]
    replay: Option<PathBuf>,
    /// `off` computes the rubric again for every record: the control of every reuse claim.
    #[arg(long, value_enum, default_value = "shared")]
    reuse: ReuseArgument,
    /// Tokens that one packed forward aims for.
    #[arg(long, value_name = "N", default_value_t = RunnerOptions::default().batch_tokens)]
    batch_tokens: usize,
    /// Database of remembered answers [default: in the user's cache directory].
    #[arg(long, value_name = "FILE", env = "ENGINE_STORE")]
    store: Option<PathBuf>,
    /// Neither look answers up nor remember them.
    #[arg(long)]
    no_store: bool,
    /// Take no answer that was remembered more than so many days ago; it is asked again.
    #[arg(long, value_name = "DAYS")]
    retention_days: Option<u32>,
    /// Leave quotes out of everything written: citations keep the span and the hash of its bytes.
    #[arg(long)]
    redact: bool,
    /// Use no network: the model must already be here.
    #[arg(long)]
    offline: bool,
    /// Let stages call this tool of the plan [repeatable].
    #[arg(long, value_name = "NAME")]
    allow: Vec<String>,
    /// Do this effect of the plan once the answer is complete and verified [repeatable]. Without it
    /// effects are only shown.
    #[arg(long, value_name = "NAME")]
    allow_effect: Vec<String>,
}

/// `--device`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum DeviceArgument {
    Cpu,
    /// Candle tensor operations on the CPU: slow, the yardstick of the others.
    CpuPortable,
    Cuda,
    Metal,
}

/// `--numerics`.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum NumericsArgument {
    F32,
    Int16,
    Int8,
    Auto,
}

impl From<DeviceArgument> for Device {
    fn from(argument: DeviceArgument) -> Self {
        match argument {
            DeviceArgument::Cpu => Self::Cpu,
            DeviceArgument::CpuPortable => Self::CpuPortable,
            DeviceArgument::Cuda => Self::Cuda,
            DeviceArgument::Metal => Self::Metal,
        }
    }
}

impl From<NumericsArgument> for Numerics {
    fn from(argument: NumericsArgument) -> Self {
        match argument {
            NumericsArgument::F32 => Self::F32,
            NumericsArgument::Int16 => Self::Int16,
            NumericsArgument::Int8 => Self::Int8,
            NumericsArgument::Auto => Self::Auto,
        }
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ReuseArgument {
    Shared,
    Off,
}

/// Runs the plan.
pub fn run(arguments: RunArguments) -> anyhow::Result<ExitCode> {
    let plan = Plan::load(&arguments.plan)?;
    engine::effects::check_allowed(&plan, &arguments.allow_effect)?;
    let input = arguments
        .input
        .clone()
        .or_else(|| plan.input_path())
        .with_context(|| {
            format!(
                "{}: the plan names no input; add `path` under [input] or pass --input FILE",
                arguments.plan.display()
            )
        })?;
    let units = FileUnits::open(&plan, &input, &mut |unit| {
        eprintln!(
            "warning: {}: {}: {}",
            input.display(),
            unit.place,
            unit.reason
        );
    })?;
    let out = arguments
        .out
        .clone()
        .unwrap_or_else(|| default_directory(&arguments.plan, &input));
    // What needs no model is checked before a model is fetched or loaded.
    operator::run::check_files(&plan)?;
    let heads = match arguments.replay {
        Some(_) => Vec::new(),
        None => load_heads(&plan, &arguments.head)?,
    };
    let options = serde_json::json!({
        "limit": arguments.limit,
        "redact": arguments.redact,
        "reuse": format!("{:?}", arguments.reuse).to_lowercase(),
        "device": format!("{:?}", arguments.device).to_lowercase(),
        "numerics": format!("{:?}", arguments.numerics).to_lowercase(),
        "batch_tokens": arguments.batch_tokens,
        "model": arguments.model,
        "larger": arguments.larger,
        "replay": arguments.replay,
        "heads": heads.iter().map(|head| blake3::Hash::from_bytes(head.digest()).to_string()).collect::<Vec<_>>(),
    });
    if arguments.resume {
        resume::check(&out, &plan, operator::ops::Units::source(&units), &options)?;
    }
    index::check(&plan, &UnitRows(&units))?;
    let open = engine::tools::open(&plan, &arguments.allow)?;
    let tool_clock = SystemClock::default();
    let mut directory = RunDirectory::create(&out, env!("CARGO_PKG_VERSION"), options)?;
    let store = open_store(&arguments)?;
    let mut larger = backend::open_larger(&arguments, &plan)?;
    let mut backend = backend::open(&plan, &units, &arguments, heads)?;
    let memo = store.as_ref().map(|store| store as &dyn Store);
    let cancel = Arc::new(CancelFlag::new());
    interrupt::watch(&cancel)?;
    let started = Instant::now();
    let clock = || started.elapsed().as_micros() as u64;
    let run_options = RunOptions {
        limit: arguments.limit,
        redact: arguments.redact,
        clock: &clock,
        cancel: &cancel,
        larger: match &mut larger {
            Some(larger) => Some(larger.as_mut()),
            None => None,
        },
        tools: Some(Toolbox {
            open,
            clock: &tool_clock,
        }),
    };
    let mut progress = RunProgress::new(arguments.quiet);
    let outcome = operator::run::run_over(
        &plan,
        &units,
        backend.as_mut(),
        memo,
        run_options,
        &mut progress,
        Some(&mut directory),
    )?;
    report(&outcome, &arguments, &out)?;
    if let Some(failure) = &outcome.backend_failure {
        let error = anyhow::anyhow!("{}", failure);
        eprintln!("error: {}", super::chain(&error));
    }
    if let Some(trip) = &outcome.trip {
        eprintln!("error: {trip}; the run is under quarantine");
        return Ok(ExitCode::from(EXIT_BREAKER));
    }
    if !outcome.answer.complete {
        if !arguments.allow_effect.is_empty() {
            eprintln!("no effect is done: the answer is incomplete");
        }
        if cancel.is_cancelled() {
            eprintln!(
                "{}",
                resume::tell(&outcome.answer.coverage, store.is_some())
            );
        }
        return Ok(ExitCode::from(EXIT_INCOMPLETE));
    }
    effects::after_run(
        &plan,
        &Finished {
            run: &out,
            input: &input,
            allowed: &arguments.allow_effect,
            json: arguments.json,
        },
        &cancel,
    )
}

fn report(outcome: &RunOutcome<Facts>, arguments: &RunArguments, out: &Path) -> anyhow::Result<()> {
    if arguments.json {
        super::print(&serde_json::to_string_pretty(&outcome.answer)?)
    } else {
        let page = terminal::render(&outcome.answer, &outcome.usage);
        super::print(&format!("{page}files            {}", out.display()))
    }
}

fn open_store(arguments: &RunArguments) -> anyhow::Result<Option<RedbStore>> {
    if arguments.no_store || arguments.replay.is_some() {
        return Ok(None);
    }
    let path = store::locate(arguments.store.as_deref())?;
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).with_context(|| format!("{}", parent.display()))?;
    }
    let options = StoreOptions {
        today: store::today,
        retention_days: arguments.retention_days,
    };
    Ok(Some(RedbStore::open(&path, options)?))
}

/// `runs/PLAN-INPUT`, from the stems of both files.
pub(super) fn default_directory(plan: &Path, input: &Path) -> PathBuf {
    let stem = |path: &Path| {
        path.file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    };
    Path::new("runs").join(format!("{}-{}", stem(plan), stem(input)))
}
