//! `engine verify`: a run directory, checked without any code that made it; or what a run's safeguards
//! promise, tried many times.

mod trials;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use operator::verify::{Report, verify_directory};

use super::{EXIT_DIFFERS, EXIT_UNCHECKED};

/// Findings that are shown.
const SHOWN: usize = 20;

/// Arguments of `engine verify`.
#[derive(Debug, Args)]
pub struct VerifyArguments {
    /// The directory that a run wrote.
    #[arg(required_unless_present = "selfcheck")]
    run: Option<PathBuf>,
    /// Try what breakers and audits promise: 200 runs with canaries and 2,000 audits of known truth.
    #[arg(long, conflicts_with_all = ["run", "input"])]
    selfcheck: bool,
    /// The records that the run read [default: the file that it names].
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
}

/// Verifies a run.
pub fn verify(arguments: &VerifyArguments) -> anyhow::Result<ExitCode> {
    let Some(run) = &arguments.run else {
        return trials::selfcheck();
    };
    let report = verify_directory(run, arguments.input.as_deref())?;
    conclude(&run.display().to_string(), &report)
}

/// Prints what was checked and what does not hold.
pub fn conclude(subject: &str, report: &Report) -> anyhow::Result<ExitCode> {
    super::print(&render(subject, report))?;
    Ok(match (report.holds(), is_whole(report)) {
        (false, _) => ExitCode::from(EXIT_DIFFERS),
        (true, false) => ExitCode::from(EXIT_UNCHECKED),
        (true, true) => ExitCode::SUCCESS,
    })
}

/// Whether all was there that is checked.
fn is_whole(report: &Report) -> bool {
    report.sources_absent.is_none() && report.indexes_absent.is_none()
}

fn render(subject: &str, report: &Report) -> String {
    let checked = &report.checked;
    let mut page = String::new();
    let out = &mut page;
    // Writing to a string cannot fail.
    let _ = writeln!(out, "subject          {subject}");
    let _ = writeln!(
        out,
        "derived again    {} facts, {} nodes with {} states, {} claims with {} citations",
        checked.facts, checked.nodes, checked.states, checked.claims, checked.cites
    );
    let _ = match &report.sources_absent {
        None => writeln!(
            out,
            "read again       {} records, {} spans of facts",
            checked.records, checked.spans
        ),
        Some(reason) => writeln!(
            out,
            "NOT CHECKED      the records, so that no hash of one, no quote and no predicate was \
             compared: {reason}; name them by --input FILE"
        ),
    };
    if let Some(reason) = &report.indexes_absent {
        let _ = writeln!(
            out,
            "NOT CHECKED      which predicate settled a record, since an index of the plan cannot be \
             computed again: {reason}"
        );
    }
    for finding in report.findings.iter().take(SHOWN) {
        let _ = writeln!(out, "FAILED: {finding}");
    }
    let findings = report.findings.len();
    if findings > SHOWN {
        let _ = writeln!(out, "... and {} more", findings - SHOWN);
    }
    let _ = match (findings, is_whole(report)) {
        (0, true) => write!(out, "\nVerified: all of it holds."),
        (0, false) => write!(out, "\nVerified in part: what was checked holds."),
        (1, _) => write!(out, "\nNot verified: 1 finding."),
        (findings, _) => write!(out, "\nNot verified: {findings} findings."),
    };
    page
}
