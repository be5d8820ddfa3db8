//! What a number format or a device costs in answers: asks the same records in f32 on the CPU and in
//! another tier, and compares logits, probabilities and decisions.
//!
//! `cargo run --release -p engine --example numerics -- --plan fixtures/plans/auth-blockers.toml
//! --model smollm2-135m --numerics int16,int8,auto --limit 60`
//!
//! With `--device`, where everything is f32 as well, it fails where a clear decision differs.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use engine::infer::LocalInfer;
use engine::local::{self, Device};
use engine::model::linear::Numerics;
use engine::model::{Batch, ModelFiles};
use engine::models::{self, Environment, TerminalReporter};
use engine::runner::{Runner, RunnerOptions};
use kvcache::KvCache;
use operator::Plan;
use operator::infer::{
    Answer, BackendIdentity, CancelFlag, Completion, Infer, InferError, InferJob, JobUsage,
    UnitOutcome,
};
use operator::ops::partition;
use operator::record::read_source;
use operator::run::{RunOptions, run};

/// Margin above which a decision counts as clear, in parts per million.
const CLEAR_PPM: u32 = 50_000;

/// Every so many tokens of the rubric all logits are compared.
const POSITION_STEP: usize = 8;

#[derive(Debug, Parser)]
struct Arguments {
    /// The plan whose questions are asked.
    #[arg(long, value_name = "FILE")]
    plan: PathBuf,
    /// Records [default: the plan's own input].
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// A name from `engine models` or a GGUF file.
    #[arg(long, value_name = "NAME|PATH")]
    model: String,
    /// The tiers that are compared with f32.
    #[arg(long, default_value = "int16,int8,auto", value_delimiter = ',', value_parser = numerics)]
    numerics: Vec<Numerics>,
    /// The device whose portable path is compared instead.
    #[arg(long, value_name = "cpu-portable|cuda|metal", value_parser = device)]
    device: Option<Device>,
    /// Records to ask.
    #[arg(long, default_value_t = 60)]
    limit: u32,
}

/// What one tier said.
struct Said {
    tier: String,
    repeated: u64,
    vocab: usize,
    logits: Vec<f32>, // [positions of the rubric][vocab]
    answers: HashMap<String, Vec<Answer>>,
}

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let arguments = Arguments::parse();
    let environment = Environment::from_process()?;
    let mut reporter = TerminalReporter::stderr();
    let model = models::resolve(&arguments.model, &environment, false, &mut reporter)?;
    // One after the other, so that only one set of weights is in memory.
    let exact = ask(&arguments, &model.path, Device::Cpu, Numerics::F32)?;
    let others: Vec<(Device, Numerics)> = match arguments.device {
        Some(device) => vec![(device, Numerics::F32)],
        None => arguments
            .numerics
            .iter()
            .map(|numerics| (Device::Cpu, *numerics))
            .collect(),
    };
    let mut clear_flips = 0;
    for (device, numerics) in others {
        let other = ask(&arguments, &model.path, device, numerics)?;
        println!("\n{} against {}", other.tier, exact.tier);
        report_logits(&exact, &other);
        clear_flips += report_answers(&exact.answers, &other.answers);
        println!("asked again                {}", other.repeated);
    }
    Ok(match arguments.device {
        Some(_) if clear_flips > 0 => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    })
}

fn ask(
    arguments: &Arguments,
    model: &Path,
    device: Device,
    numerics: Numerics,
) -> Result<Said, Box<dyn std::error::Error>> {
    let plan = Plan::load(&arguments.plan)?;
    let input = arguments
        .input
        .clone()
        .or_else(|| plan.input_path())
        .ok_or("the plan names no input; pass --input")?;
    let (artifact, records, bad) = read_source(&input, plan.input.format)?;
    let parts = partition(&plan, artifact, records, bad)?;
    let files = ModelFiles::open(model)?;
    let (tokenizer, template) = local::open_text(&files)?;
    let mut forward = local::open_forward(&files, device, numerics)?;
    let rubric = template.split(&tokenizer, &plan.rubric().system)?.prefix;
    let mut batch = Batch::default();
    batch.push(&rubric, None, None);
    // As coarse as a record's rows may be.
    batch.coarse = true;
    batch.asked = (0..rubric.len()).step_by(POSITION_STEP).collect();
    let vocab = forward.config().vocab;
    let mut cache = KvCache::new(forward.config().kv_layout()?, 1)?;
    let hidden = forward.forward(&batch, &mut cache)?;
    let logits = forward.logits(&hidden)?;
    let tier = forward.tier();
    let runner = Runner::new(forward, RunnerOptions::default())?;
    let mut recorder = Recorder {
        infer: LocalInfer::new(runner, tokenizer, template, "compared", [0; 32]),
        answers: HashMap::new(),
    };
    let options = RunOptions {
        limit: Some(arguments.limit),
        redact: false,
        clock: &|| 0,
        cancel: &CancelFlag::new(),
        larger: None,
        tools: None,
    };
    let outcome = run(&plan, parts, &mut recorder, None, options, &mut (), None)?;
    Ok(Said {
        repeated: outcome.usage.job.repeated_units,
        tier,
        vocab,
        logits,
        answers: recorder.answers,
    })
}

fn report_logits(exact: &Said, rounded: &Said) {
    let (mut largest, mut divergence, mut same, mut positions) = (0.0f32, 0.0, 0, 0);
    let pairs = exact.logits.chunks_exact(exact.vocab);
    for (a, b) in pairs.zip(rounded.logits.chunks_exact(exact.vocab)) {
        let differences = a.iter().zip(b).map(|(a, b)| (a - b).abs());
        largest = differences.fold(largest, f32::max);
        divergence += kl_divergence(a, b);
        same += usize::from(argmax(a) == argmax(b));
        positions += 1;
    }
    println!(
        "logits of the rubric       {positions} positions: largest difference {largest:.5}, mean KL \
         divergence {:.6}, most probable token equal at {same}",
        divergence / positions as f64
    );
}

/// How much the second distribution loses on the first, in nats.
fn kl_divergence(a: &[f32], b: &[f32]) -> f64 {
    let log_sum = |logits: &[f32]| {
        let max = f64::from(logits.iter().copied().fold(f32::MIN, f32::max));
        let terms = logits.iter().map(|&logit| (f64::from(logit) - max).exp());
        max + terms.sum::<f64>().ln()
    };
    let (total_a, total_b) = (log_sum(a), log_sum(b));
    a.iter()
        .zip(b)
        .map(|(&a, &b)| {
            let (a, b) = (f64::from(a) - total_a, f64::from(b) - total_b);
            a.exp() * (a - b)
        })
        .sum()
}

fn argmax(logits: &[f32]) -> Option<usize> {
    (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b]))
}

/// Returns how many clear decisions differ.
fn report_answers(
    exact: &HashMap<String, Vec<Answer>>,
    rounded: &HashMap<String, Vec<Answer>>,
) -> usize {
    let (mut decisions, mut flips, mut clear_flips) = (0, 0, 0);
    let (mut largest, mut sum, mut shares) = (0, 0, 0);
    let mut ids: Vec<&String> = exact.keys().collect();
    ids.sort();
    for id in ids {
        for (index, (a, b)) in exact[id].iter().zip(&rounded[id]).enumerate() {
            decisions += 1;
            if a.chosen != b.chosen {
                flips += 1;
                clear_flips += usize::from(a.margin_ppm > CLEAR_PPM);
                println!(
                    "flip: record {id}, question {index}: label {} by {:.4} became {} by {:.4}",
                    a.chosen,
                    share(a.margin_ppm),
                    b.chosen,
                    share(b.margin_ppm)
                );
            }
            for (a, b) in a.probabilities.iter().zip(&b.probabilities) {
                largest = largest.max(a.abs_diff(*b));
                sum += u64::from(a.abs_diff(*b));
                shares += 1;
            }
        }
    }
    let mean = sum as f64 / 1e6 / f64::from(shares.max(1));
    println!("records                    {}", exact.len());
    println!(
        "probabilities              largest difference {:.4}, mean {mean:.5}",
        share(largest)
    );
    println!(
        "decisions                  {decisions}, {flips} differ, {clear_flips} of them by more than {} in f32",
        share(CLEAR_PPM)
    );
    clear_flips
}

fn share(ppm: u32) -> f64 {
    f64::from(ppm) / 1e6
}

fn numerics(name: &str) -> Result<Numerics, String> {
    Numerics::ALL
        .into_iter()
        .find(|numerics| numerics.name() == name)
        .ok_or_else(|| format!("{name} is not a tier; use f32, int16 or int8"))
}

fn device(name: &str) -> Result<Device, String> {
    match name {
        "cpu-portable" => Ok(Device::CpuPortable),
        "cuda" => Ok(Device::Cuda),
        "metal" => Ok(Device::Metal),
        _ => Err(format!(
            "{name} has no portable path; use cpu-portable, cuda or metal"
        )),
    }
}

/// Passes questions on and keeps the full distributions of the answers.
struct Recorder {
    infer: LocalInfer,
    answers: HashMap<String, Vec<Answer>>,
}

impl Infer for Recorder {
    fn identity(&self) -> &BackendIdentity {
        self.infer.identity()
    }

    fn infer(
        &mut self,
        job: InferJob<'_>,
        sink: &mut dyn FnMut(Completion),
    ) -> Result<JobUsage, InferError> {
        let answers = &mut self.answers;
        self.infer.infer(job, &mut |completion| {
            if let UnitOutcome::Answered(given) = &completion.outcome {
                answers.insert(completion.unit_id.to_string(), given.clone());
            }
            sink(completion);
        })
    }
}
