//! Who answers a run: a local model, or a recording; and the larger model beside it.

use std::path::{Path, PathBuf};
use std::time::Instant;

use engine::head::Head;
use engine::infer::{Heads, LocalInfer};
use engine::local;
use engine::models::{self, Environment, LocalModel, TerminalReporter};
use engine::runner::{Reuse, RunnerOptions};
use operator::infer::Infer;
use operator::ops::Units;
use operator::plan::{AUDIT_STAGE, AuditSpec, Auditor};
use operator::replay::Replay;
use operator::{OperatorError, Plan};

use super::{ReuseArgument, RunArguments, trained};

/// The heads of the plan's fields and of the command line.
pub(in crate::cli) fn load_heads(plan: &Plan, named: &[PathBuf]) -> anyhow::Result<Vec<Head>> {
    let mut heads: Vec<Head> = Vec::new();
    for path in plan.heads().chain(named.iter().cloned()) {
        let head = Head::load(&path)?;
        // A plan may name what the command line repeats.
        if heads.iter().all(|other| other.digest() != head.digest()) {
            heads.push(head);
        }
    }
    Ok(heads)
}

/// Checks that every head answers a question of the plan's stages.
fn check_heads(plan: &Plan, heads: &Heads) -> anyhow::Result<()> {
    let turns: Vec<_> = plan
        .stages
        .iter()
        .filter_map(|stage| plan.turn(stage))
        .collect();
    let asked = turns.iter().map(|turn| (&turn.rubric, &*turn.questions));
    Ok(heads.check(asked)?)
}

/// The model with its heads, or a recording.
pub(super) fn open(
    plan: &Plan,
    units: &dyn Units,
    arguments: &RunArguments,
    heads: Vec<Head>,
) -> anyhow::Result<Box<dyn Infer>> {
    if let Some(path) = &arguments.replay {
        return Ok(Box::new(Replay::load(path)?));
    }
    if arguments.batch_tokens == 0 {
        anyhow::bail!("--batch-tokens 0: a forward holds at least one token");
    }
    let mut infer = load(&arguments.model, arguments)?;
    let kept = match arguments.no_store {
        true => None,
        false => Some(Environment::from_process()?.cache_dir.join("heads")),
    };
    let mut heads = heads;
    heads.extend(trained::heads(
        plan,
        units,
        &mut infer,
        kept.as_deref(),
        arguments.quiet,
    )?);
    let infer = infer.with_heads(heads)?;
    check_heads(plan, infer.heads())?;
    Ok(Box::new(infer))
}

/// The model of `--larger`, where the plan asks for one.
///
/// # Errors
/// `NoLargerModel` where the plan asks for one and none is named, before any model is loaded.
pub(super) fn open_larger(
    arguments: &RunArguments,
    plan: &Plan,
) -> anyhow::Result<Option<Box<dyn Infer>>> {
    let of_model = |audit: &&AuditSpec| matches!(audit.auditor, Auditor::Model { .. });
    let audits = plan.audit.as_ref().filter(of_model);
    let mut stages = plan.stages.iter().filter(|stage| stage.larger());
    let asks = stages
        .next()
        .map(|stage| stage.name.clone())
        .or(audits.map(|_| AUDIT_STAGE.to_owned()));
    match (&arguments.larger, asks) {
        (None, Some(stage)) if arguments.replay.is_none() => {
            Err(OperatorError::NoLargerModel { stage }.into())
        }
        (None, _) => Ok(None),
        (Some(reference), None) => {
            eprintln!("warning: --larger {reference}: nothing in the plan asks the larger model");
            Ok(None)
        }
        (Some(reference), Some(_)) => Ok(Some(Box::new(load(reference, arguments)?))),
    }
}

fn load(reference: &str, arguments: &RunArguments) -> anyhow::Result<LocalInfer> {
    let model = find_model(reference, arguments.offline)?;
    let reuse = match arguments.reuse {
        ReuseArgument::Shared => Reuse::Shared,
        ReuseArgument::Off => Reuse::Off,
    };
    let options = RunnerOptions {
        batch_tokens: arguments.batch_tokens,
        reuse,
        ..RunnerOptions::default()
    };
    let (device, numerics) = (arguments.device.into(), arguments.numerics.into());
    let started = Instant::now();
    let infer = local::open(&model, device, numerics, options)?;
    if !arguments.quiet {
        let seconds = started.elapsed().as_secs_f64();
        eprintln!("loaded {} in {seconds:.1} s", infer.identity().describe);
    }
    Ok(infer)
}

/// The model of a name, a file or a directory.
pub(in crate::cli) fn find_model(reference: &str, offline: bool) -> anyhow::Result<LocalModel> {
    let path = Path::new(reference);
    if path.is_dir() {
        return Ok(local::directory_model(path)?);
    }
    let environment = Environment::from_process()?;
    Ok(models::resolve(
        reference,
        &environment,
        offline,
        &mut TerminalReporter::stderr(),
    )?)
}
