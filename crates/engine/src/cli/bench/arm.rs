//! One arm in a process of its own: this file is both ends, the one that starts the process and the
//! one that runs in it. They speak one JSON document each way.

use std::io::{IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use engine::bench::api::{self, Endpoint};
use engine::bench::arms::{self, Sample, Task};
use engine::bench::{Arm, rate};
use engine::local;
use engine::model::ModelFiles;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::Tier;
use crate::cli::run::DeviceArgument;

/// Time between two lines of progress when standard error is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(15);

/// Arguments of the hidden `engine bench arm`.
#[derive(Debug, Args)]
pub struct ArmArguments {
    /// Model file or directory, already verified.
    #[arg(long)]
    path: PathBuf,
    #[command(flatten)]
    tier: Tier,
    /// Server of the arm `api`.
    #[arg(long)]
    url: Option<String>,
    /// What the server calls the model.
    #[arg(long, default_value = "")]
    api_model: String,
    /// Environment variable that holds the server's key.
    #[arg(long)]
    api_key_env: Option<String>,
}

/// Runs the task on standard input.
pub fn serve(arguments: &ArmArguments) -> anyhow::Result<ExitCode> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    let task: Task = serde_json::from_str(&text).context("the task on standard input")?;
    let mut bar = Bar::new(task.arm, task.work.records.len());
    let sample = match (task.arm, &arguments.url) {
        (Arm::Api, None) => bail!("the arm api needs --url"),
        (Arm::Api, Some(url)) => {
            let key = match &arguments.api_key_env {
                Some(name) => Some(std::env::var(name).with_context(|| name.clone())?),
                None => None,
            };
            let endpoint = Endpoint {
                url: url.clone(),
                model: arguments.api_model.clone(),
                key,
            };
            api::run(&endpoint, &task, &mut |done| bar.advance(done))?
        }
        _ => local_arm(arguments, &task, &mut bar)?,
    };
    bar.finish();
    crate::cli::print(&serde_json::to_string(&sample)?)?;
    Ok(ExitCode::SUCCESS)
}

fn local_arm(arguments: &ArmArguments, task: &Task, bar: &mut Bar) -> anyhow::Result<Sample> {
    let started = Instant::now();
    let files = ModelFiles::open(&arguments.path)?;
    let numerics = arguments.tier.numerics.into();
    let model = local::open_forward(&files, arguments.tier.device.into(), numerics)?;
    let load_us = started.elapsed().as_micros() as u64;
    let mut sample = arms::run(model, task, &mut |done| bar.advance(done))?;
    sample.load_us = load_us;
    if arguments.tier.device == DeviceArgument::Cpu {
        let rate = rate::measure(&files.config, numerics, task.batch_tokens);
        sample.gemm_flops_per_s = Some(rate);
    }
    Ok(sample)
}

/// Starts a process for a task and waits for its sample.
pub fn start(model: &Path, tier: &Tier, server: &[String], task: &Task) -> anyhow::Result<Sample> {
    let name = |value: Option<clap::builder::PossibleValue>| {
        value.map_or(String::new(), |value| value.get_name().to_owned())
    };
    let program = std::env::current_exe().context("the path of this program")?;
    let mut child = Command::new(program)
        .args(["bench", "arm", "--path"])
        .arg(model)
        .args(["--device", &name(tier.device.to_possible_value())])
        .args(["--numerics", &name(tier.numerics.to_possible_value())])
        .args(server)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("a process for the arm")?;
    let text = serde_json::to_vec(task)?;
    let written = match child.stdin.take() {
        Some(mut stdin) => stdin.write_all(&text),
        None => Ok(()),
    };
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!("its process ended with {}", output.status);
    }
    written.context("the task could not be handed over")?;
    serde_json::from_slice(&output.stdout).context("its process printed no sample")
}

/// Progress of one arm on standard error: a bar on a terminal, a line now and then elsewhere.
struct Bar {
    arm: Arm,
    total: usize,
    bar: ProgressBar,
    last_line: Instant,
}

impl Bar {
    fn new(arm: Arm, total: usize) -> Self {
        let bar = match std::io::stderr().is_terminal() {
            true => ProgressBar::new(total as u64),
            false => ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()),
        };
        let template = "  {msg:9} [{bar:32}] {pos}/{len}  {per_sec}  {eta} left";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_message(arm.name());
        Self {
            arm,
            total,
            bar,
            last_line: Instant::now(),
        }
    }

    fn advance(&mut self, done: usize) {
        self.bar.set_position(done as u64);
        if self.bar.is_hidden() && self.last_line.elapsed() >= LINE_EVERY {
            self.last_line = Instant::now();
            eprintln!("  {:9} {done}/{}", self.arm.name(), self.total);
        }
    }

    fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
