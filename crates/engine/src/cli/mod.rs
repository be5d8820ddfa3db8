//! The commands. Each file is one command; this one holds what they share.

mod bench;
mod calibrate;
mod diff;
mod effects;
mod eval;
mod explain;
mod fold;
mod grid;
mod ladder;
mod models;
mod plan;
mod progress;
mod run;
mod store;
mod terminal;
mod units;
mod verify;
mod words;

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use engine::model::isa::Isa;

/// The command could not do its work.
pub const EXIT_FAILED: u8 = 1;
/// The command line or the plan is wrong.
pub const EXIT_USAGE: u8 = 2;
/// The work was done but some units have no answer: errored, cancelled or not run.
pub const EXIT_INCOMPLETE: u8 = 3;
/// Verification found something that does not hold; or two results differ, where it was asked that
/// this be told by the exit code.
pub const EXIT_DIFFERS: u8 = 4;
/// Verification found nothing wrong, but the records were not there to be compared with.
pub const EXIT_UNCHECKED: u8 = 5;

/// A breaker opened: the run was stopped, and nothing of it may be taken for a fact.
pub const EXIT_BREAKER: u8 = 6;

/// A question over a thousand records, answered by a local model, with every claim cited.
#[derive(Debug, Parser)]
#[command(name = "engine", version, about, after_help = AFTER_HELP)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const AFTER_HELP: &str = "\
Example: engine run fixtures/plans/auth-blockers.toml

Exit codes: 0 complete, 1 failed, 2 wrong usage, 3 finished but some units have no answer,
4 verification failed or results differ (engine diff --exit-code), 5 nothing wrong was found but the
records were not there to be checked, 6 a breaker opened and the run's facts are quarantined. Ctrl-C
ends a run cleanly with 3 (engine run --resume goes on), pressed twice at once with 130.

ENGINE_ISA=avx2 (or scalar, avxvnni) keeps to plainer vector instructions than the machine has, for
comparisons.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Answer a plan's question over its records.
    Run(run::RunArguments),
    /// Check a plan and say what a run of it would do, before any model is asked.
    Plan(plan::PlanArguments),
    /// Say what a run knows of a unit, a node or a claim, and what that rests on.
    Explain(explain::ExplainArguments),
    /// Say what changed between two runs, and what changed it.
    Diff(diff::DiffArguments),
    /// Show what a plan makes of its records, without asking a model.
    Units(units::UnitsArguments),
    /// Show what a run changed outside, finish what a crash left, or read it back.
    Effects(effects::EffectsArguments),
    /// Train a head that answers a field, from a few labelled records.
    Calibrate(calibrate::CalibrateArguments),
    /// Compare a run's decisions with known labels or pairs.
    Eval(eval::EvalArguments),
    /// Check the fold itself on records whose answers are known.
    Fold(fold::FoldArguments),
    /// Derive a run's answer again from its facts and records, and say what does not hold.
    Verify(verify::VerifyArguments),
    /// List the models of the manifest and which are here.
    Models,
    /// Fetch a model and verify its bytes.
    Pull(models::PullArguments),
    /// Measure what sharing a prefix, or decoding together, is worth here.
    Bench(bench::BenchArguments),
    /// Look at, check and tidy the file of remembered answers.
    Store(store::StoreArguments),
}

impl Arguments {
    /// Runs the chosen command.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        limit_instructions()?;
        match self.command {
            Command::Run(arguments) => run::run(arguments),
            Command::Plan(arguments) => plan::plan(&arguments),
            Command::Explain(arguments) => explain::run(&arguments),
            Command::Diff(arguments) => diff::run(&arguments),
            Command::Units(arguments) => units::units(&arguments),
            Command::Effects(arguments) => effects::effects(&arguments),
            Command::Calibrate(arguments) => calibrate::calibrate(&arguments),
            Command::Eval(arguments) => eval::eval(&arguments),
            Command::Fold(arguments) => fold::fold(&arguments),
            Command::Verify(arguments) => verify::verify(&arguments),
            Command::Models => models::list(),
            Command::Pull(arguments) => models::pull(&arguments),
            Command::Bench(arguments) => bench::bench(arguments),
            Command::Store(arguments) => store::store(&arguments),
        }
    }
}

/// Lets `ENGINE_ISA` keep the process from wider instructions than it names.
fn limit_instructions() -> anyhow::Result<()> {
    let Some(name) = std::env::var_os("ENGINE_ISA") else {
        return Ok(());
    };
    let isa = Isa::ALL.into_iter().find(|isa| name == isa.name());
    let Some(isa) = isa else {
        let names = Isa::ALL.map(Isa::name).join(", ");
        anyhow::bail!("ENGINE_ISA is {name:?}, which names no instructions; use one of {names}");
    };
    isa.limit();
    Ok(())
}

/// Writes a command's result to standard output. A reader that has gone (`engine ... | head`) is no
/// error: it has what it wanted.
fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match out
        .write_all(text.as_bytes())
        .and_then(|()| out.write_all(b"\n"))
    {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        result => Ok(result?),
    }
}

/// An error and its causes in one line, without repeating what the outer one already says.
pub fn chain(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1) {
        let cause = cause.to_string();
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}
