//! The whole job as a library: a plan over its records on a local model, in about 30 lines.
//! `cargo run --release -p engine --example triage -- fixtures/plans/auth-blockers.toml`

use std::path::PathBuf;

use engine::local::{self, Device};
use engine::model::linear::Numerics;
use engine::models::{self, Environment, TerminalReporter};
use engine::runner::RunnerOptions;
use operator::infer::CancelFlag;
use operator::run::{RunOptions, run};
use operator::{Plan, ops, record};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: triage PLAN.toml")?;
    let plan = Plan::load(&PathBuf::from(path))?;
    let input = plan.input_path().ok_or("the plan names no input")?;
    let (source, records, bad) = record::read_source(&input, plan.input.format)?;
    let units = ops::partition(&plan, source, records, bad)?;
    let environment = Environment::from_process()?;
    let mut reporter = TerminalReporter::stderr();
    let model = models::resolve("smollm2-135m", &environment, false, &mut reporter)?;
    let mut infer = local::open(
        &model,
        Device::Cpu,
        Numerics::Int16,
        RunnerOptions::default(),
    )?;
    let cancel = CancelFlag::new();
    let options = RunOptions {
        limit: Some(20),
        redact: false,
        clock: &|| 0,
        cancel: &cancel,
        larger: None,
        tools: None,
    };
    let outcome = run(&plan, units, &mut infer, None, options, &mut (), None)?;
    for claim in &outcome.answer.claims {
        println!("{} ({} citations)", claim.text, claim.cites_total);
    }
    let usage = outcome.usage.job;
    println!(
        "computed {} tokens, reused {}",
        usage.computed_tokens, usage.cached_tokens
    );
    Ok(())
}
