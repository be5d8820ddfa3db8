//! `engine bench decode`: what continuing many prompts together is worth.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use engine::bench::BenchError;
use engine::bench::decode::{DecodeReport, DecodeTask, run};
use engine::bench::work::{Shape, Work};
use engine::local;
use engine::model::ModelFiles;
use engine::runner::{DECODE_SLOTS, RunnerOptions};
use operator::run_directory::replace;

use super::{Tier, amount, note, page};
use crate::cli::EXIT_FAILED;
use crate::cli::run::find_model;

const AFTER_HELP: &str = "\
The same prompts are continued greedily with at most so many in flight as each number of --slots says.
The runs take turns (1 4 16, 1 4 16) in one process behind one sealed prefix. Tokens per second are
generated tokens over the time from the first prompt to the last token, so that prompts count as cost;
`steady` counts only the forwards with one row of as many sequences as there are slots and no prompt.
All runs must write the same texts. FILE: bench.json with every sample.

Examples:
  engine bench decode --model smollm2-135m
  engine bench decode --slots 1,16 --prompt-len 128 --output-len 32 --requests 48

Exit codes: 0 measured and the texts agree, 1 failed, or the texts differ between runs, 2 wrong usage.";

/// Arguments of `engine bench decode`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct DecodeArguments {
    /// Sequences in flight at most; each number is measured.
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = [1, 4, DECODE_SLOTS], value_parser = amount())]
    slots: Vec<usize>,
    /// Tokens of the prefix that all prompts share, chat markup included; sealed before the clock
    /// starts.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = amount())]
    prefix_len: usize,
    /// Tokens of a prompt after it, chat markup included.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = amount())]
    prompt_len: usize,
    /// Tokens to generate for each prompt.
    #[arg(long, value_name = "N", default_value_t = 48, value_parser = amount())]
    output_len: usize,
    /// Prompts.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = amount())]
    requests: usize,
    /// Times that every number of slots runs.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = amount())]
    rounds: usize,
    /// Tokens that one packed forward aims for.
    #[arg(long, value_name = "N", default_value_t = RunnerOptions::default().batch_tokens, value_parser = amount())]
    batch_tokens: usize,
    /// Where the words come from.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
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
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
    /// Directory for bench.json.
    #[arg(long, value_name = "DIR", default_value = "runs/bench-decode")]
    out: PathBuf,
    /// Use no network for the model: it must already be here.
    #[arg(long)]
    offline: bool,
}

/// Runs every number of slots in every round, and reports.
pub fn decode(arguments: &DecodeArguments) -> anyhow::Result<ExitCode> {
    let model = find_model(&arguments.model, arguments.offline)?;
    // What cannot be run is refused before the weights are read.
    let files = ModelFiles::open(&model.path)?;
    let work = make_work(arguments, &files)?;
    work.check_room(files.config.context, arguments.output_len)?;
    std::fs::create_dir_all(&arguments.out)
        .with_context(|| format!("{}", arguments.out.display()))?;
    let mut slots = Vec::new();
    for number in &arguments.slots {
        if !slots.contains(number) {
            slots.push(*number);
        }
    }
    let task = DecodeTask {
        work,
        output_len: arguments.output_len,
        slots,
        rounds: arguments.rounds,
        batch_tokens: arguments.batch_tokens,
    };
    let tier = &arguments.tier;
    let forward = local::open_forward(&files, tier.device.into(), tier.numerics.into())?;
    let samples = run(forward, &task, &mut |round, sample| {
        eprintln!(
            "round {round}/{}  {:3} slots {:8.2} tokens/s",
            task.rounds,
            sample.slots,
            sample.generated as f64 * 1e6 / sample.whole_us.max(1) as f64
        );
    })?;
    let report = DecodeReport::of(&task, note(tier, &model, &files.config), samples);
    finish(arguments, &report)
}

fn finish(arguments: &DecodeArguments, report: &DecodeReport) -> anyhow::Result<ExitCode> {
    let mut text = serde_json::to_string_pretty(report)?;
    replace(&arguments.out.join("bench.json"), text.as_bytes())?;
    if !arguments.json {
        text = format!(
            "{}files            {}",
            page::render_decode(report),
            arguments.out.display()
        );
    }
    crate::cli::print(&text)?;
    Ok(match report.texts_differing() {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::from(EXIT_FAILED),
    })
}

fn make_work(arguments: &DecodeArguments, files: &ModelFiles) -> anyhow::Result<Work> {
    let (tokenizer, template) = local::open_text(files)?;
    let shape = Shape {
        prefix_len: arguments.prefix_len,
        record_len: arguments.prompt_len,
        records: arguments.requests,
        seed: arguments.seed,
    };
    let work = Work::synthetic(&tokenizer, &template, shape);
    // The prompts are the records of that work, under another name on the command line.
    Ok(work.map_err(|error| match error {
        BenchError::TooShort {
            option: "--record-len",
            asked,
            least,
            why,
        } => BenchError::TooShort {
            option: "--prompt-len",
            asked,
            least,
            why,
        },
        other => other,
    })?)
}
