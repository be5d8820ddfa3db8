//! `engine explain`: what a run knows of one unit, node or claim, and what that rests on.

mod claim;
mod node;
mod unit;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use operator::explain::{Explanation, Kind, explain};
use operator::recorded::RecordedRun;

/// Arguments of `engine explain`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples: engine explain runs/auth-blockers-issues 4824
          engine explain runs/auth-blockers-issues 4824/1
          engine explain runs/auth-blockers-issues blockers --json

Exit codes: 0 found, 1 not found, or the run cannot be read.")]
pub struct ExplainArguments {
    /// Directory of a finished run.
    #[arg(value_name = "RUNDIR")]
    run: PathBuf,
    /// The id of a unit, the name of a node (START/HEIGHT, or six hex digits or more of its
    /// provenance hash), or the name of a claim; tried in this order.
    #[arg(value_name = "UNIT|NODE|CLAIM")]
    what: String,
    /// Look only among these, where a name means several things.
    #[arg(long, value_enum, value_name = "KIND")]
    kind: Option<KindArgument>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum KindArgument {
    Unit,
    Node,
    Claim,
}

/// Explains what was asked for.
pub fn run(arguments: &ExplainArguments) -> anyhow::Result<ExitCode> {
    let run = RecordedRun::open(&arguments.run)?;
    let kind = arguments.kind.map(|kind| match kind {
        KindArgument::Unit => Kind::Unit,
        KindArgument::Node => Kind::Node,
        KindArgument::Claim => Kind::Claim,
    });
    let explanation = explain(&run, &arguments.what, kind)?;
    if arguments.json {
        super::print(&serde_json::to_string_pretty(&explanation)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut page = String::new();
    if run.answer.simulated {
        page.push_str("SIMULATED: answers come from a recording, no model was asked.\n\n");
    }
    match &explanation {
        Explanation::Unit(unit) => unit::render(&mut page, unit),
        Explanation::Node(node) => node::render(&mut page, node),
        Explanation::Claim(claim) => claim::render(&mut page, claim),
    }
    super::print(page.trim_end())?;
    Ok(ExitCode::SUCCESS)
}
