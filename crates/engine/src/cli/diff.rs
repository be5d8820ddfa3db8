//! `engine diff`: what changed between two runs, and what changed it.

mod claims;
mod page;
mod units;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use operator::diff::diff;
use operator::recorded::RecordedRun;

use super::EXIT_DIFFERS;

/// Arguments of `engine diff`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example: engine diff runs/monday runs/tuesday

Exit codes: 0 the runs could be compared, 1 one of them cannot be read; with --exit-code also 4
where the results differ.")]
pub struct DiffArguments {
    /// Directory of the run before.
    #[arg(value_name = "RUN_A")]
    before: PathBuf,
    /// Directory of the run after.
    #[arg(value_name = "RUN_B")]
    after: PathBuf,
    /// Exit with 4 where the results differ.
    #[arg(long)]
    exit_code: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Compares two runs.
pub fn run(arguments: &DiffArguments) -> anyhow::Result<ExitCode> {
    let before = RecordedRun::open(&arguments.before)?;
    let after = RecordedRun::open(&arguments.after)?;
    let difference = diff(&before, &after);
    if arguments.json {
        super::print(&serde_json::to_string_pretty(&difference)?)?;
    } else {
        let page = page::render(&difference, &before.path, &after.path);
        super::print(page.trim_end())?;
    }
    Ok(if arguments.exit_code && !difference.same_result {
        ExitCode::from(EXIT_DIFFERS)
    } else {
        ExitCode::SUCCESS
    })
}
