//! Effects on the command line: what a run would do, what it did, and what a crash left.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use engine::effects::{self, Doing, EffectsError};
use engine::models::Environment;
use operator::effect::{
    Batch, Due, EffectStatus, EffectsReport, Limits, Recovered, State, read_journal, read_report,
    verify_effects,
};
use operator::infer::CancelFlag;
use operator::plan::Plan;

use super::{EXIT_DIFFERS, EXIT_INCOMPLETE};

/// Effects of one kind that are shown.
const SHOWN: usize = 10;
/// Longest text shown, in characters.
const TEXT_CHARS: usize = 60;

/// Arguments of `engine effects`.
#[derive(Debug, Args)]
pub struct EffectsArguments {
    /// The directory that a run wrote.
    run: PathBuf,
    /// Finish what a crash left: the effects that the cut-off process was allowed.
    #[arg(long)]
    recover: bool,
    /// Ask the trackers again for every receipt.
    #[arg(long)]
    read_back: bool,
    /// The records that the run read [default: the file that it names].
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
}

/// A run that has ended with a complete answer.
pub struct Finished<'a> {
    /// Its directory.
    pub run: &'a Path,
    /// Its records.
    pub input: &'a Path,
    /// Effects that the command line allows.
    pub allowed: &'a [String],
    /// Whether standard output belongs to the answer as JSON.
    pub json: bool,
}

/// Does the allowed effects of a run and shows the others.
pub fn after_run(
    plan: &Plan,
    finished: &Finished<'_>,
    cancel: &CancelFlag,
) -> anyhow::Result<ExitCode> {
    let tell = |page: &str| match finished.json {
        true => {
            eprint!("{page}");
            Ok(())
        }
        false => super::print(page.trim_end()),
    };
    let mut page = String::new();
    let shown = |batch: &Batch<'_>| !finished.allowed.contains(&batch.spec.name);
    if plan.effects.len() > finished.allowed.len() {
        effects::preview(finished.run, Some(finished.input), &mut |batch| {
            if shown(batch) {
                render_preview(&mut page, batch);
            }
        })?;
    }
    if !page.is_empty() {
        tell(&page)?;
    }
    if finished.allowed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    carry_out(
        finished.run,
        Some(finished.input),
        finished.allowed,
        cancel,
        &tell,
    )
}

/// Shows, recovers or reads back the effects of a run.
pub fn effects(arguments: &EffectsArguments) -> anyhow::Result<ExitCode> {
    let run = &arguments.run;
    let print = |page: &str| super::print(page.trim_end());
    if arguments.recover {
        let (_, recovered, _) = read_journal(run)?;
        let Some((_, _, allowed)) = recovered.begun else {
            anyhow::bail!(
                "{}: no effect was begun here; allow them by engine run --allow-effect NAME",
                run.display()
            );
        };
        let allowed: Vec<String> = allowed.into_iter().collect();
        let cancel = Arc::new(CancelFlag::new());
        let on_signal = cancel.clone();
        ctrlc::set_handler(move || on_signal.cancel())?;
        return carry_out(run, arguments.input.as_deref(), &allowed, &cancel, &print);
    }
    let (_, recovered, _) = read_journal(run)?;
    let check = verify_effects(run)?;
    let mut page = render_journal(&recovered);
    if let Some(report) = read_report(run)? {
        render_report(&mut page, &report);
    }
    let mut findings = check.findings;
    // Writing to a string cannot fail.
    let _ = writeln!(
        page,
        "checked          {} lines of the journal, {} receipts",
        check.lines, check.receipts
    );
    if arguments.read_back {
        let (read, lost) = effects::read_again(run, &leases()?)?;
        let _ = writeln!(page, "read back        {read} effects from their trackers");
        findings.extend(lost);
    }
    for finding in findings.iter().take(SHOWN) {
        let _ = writeln!(page, "FAILED: {finding}");
    }
    if findings.len() > SHOWN {
        let _ = writeln!(page, "... and {} more", findings.len() - SHOWN);
    }
    print(&page)?;
    let due = recovered
        .standings
        .values()
        .any(|standing| standing.due(true) != Due::Nothing);
    Ok(match (findings.is_empty(), due) {
        (false, _) => ExitCode::from(EXIT_DIFFERS),
        (true, true) => ExitCode::from(EXIT_INCOMPLETE),
        (true, false) => ExitCode::SUCCESS,
    })
}

fn carry_out(
    run: &Path,
    input: Option<&Path>,
    allowed: &[String],
    cancel: &CancelFlag,
    tell: &dyn Fn(&str) -> anyhow::Result<()>,
) -> anyhow::Result<ExitCode> {
    let done = effects::carry_out(&Doing {
        run,
        input,
        allowed,
        leases: &leases()?,
        cancel,
        limits: Limits::default(),
    });
    let report = match done {
        Ok(report) => report,
        Err(error @ EffectsError::NotVerified { .. }) => {
            eprintln!("error: {error}");
            return Ok(ExitCode::from(EXIT_DIFFERS));
        }
        Err(error) => return Err(error.into()),
    };
    let mut page = String::new();
    render_report(&mut page, &report);
    tell(&page)?;
    let settled = report
        .effects
        .iter()
        .all(|section| section.counts.settled());
    Ok(match settled {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(EXIT_INCOMPLETE),
    })
}

fn leases() -> anyhow::Result<PathBuf> {
    Ok(Environment::from_process()?.cache_dir.join("leases"))
}

fn render_preview(page: &mut String, batch: &Batch<'_>) {
    let (name, action) = (&batch.spec.name, batch.spec.action.as_str());
    let due = batch.requests.len();
    let _ = writeln!(
        page,
        "\neffect {name}: would {action} {due} issues, {} refused; allow it by --allow-effect {name}",
        batch.refused.len()
    );
    for request in batch.requests.iter().take(SHOWN) {
        let text = request.text.as_deref().unwrap_or_default();
        let _ = writeln!(
            page,
            "    [{}] {action} {}",
            request.resource,
            shorten(text)
        );
    }
    if due > SHOWN {
        let _ = writeln!(page, "    ... and {} more", due - SHOWN);
    }
    for refused in batch.refused.iter().take(SHOWN) {
        let reason = refused.reason.as_deref().unwrap_or_default();
        let _ = writeln!(page, "    [{}] refused: {reason}", refused.unit_id);
    }
}

fn render_report(page: &mut String, report: &EffectsReport) {
    for section in &report.effects {
        let counts = &section.counts;
        let _ = writeln!(
            page,
            "effect {}: {} due, {} done with a receipt, {} refused, {} conflict, {} unknown, {} not run",
            section.name,
            counts.due,
            counts.done,
            counts.refused,
            counts.conflict,
            counts.unknown,
            counts.not_run
        );
        let open = section
            .outcomes
            .iter()
            .filter(|outcome| outcome.status != EffectStatus::Done);
        for outcome in open.take(SHOWN) {
            let reason = outcome.reason.as_deref().unwrap_or_default();
            let status = outcome.status.as_str();
            let _ = writeln!(page, "    [{}] {status}: {reason}", outcome.unit_id);
        }
    }
}

/// How many effects of each name stand where, as the journal has it.
fn render_journal(recovered: &Recovered) -> String {
    let mut standing: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for one in recovered.standings.values() {
        let state = match &one.state {
            State::Intended => "intended, not sent",
            State::Dispatched => "sent, not read back",
            State::Confirmed => "confirmed, not read back",
            State::Failed(_) => "failed, nothing done",
            State::Unknown(_) => "unknown, to be read back",
            State::Absent => "read back: not done",
            State::Conflict(_) => "conflict",
            State::Done(_) => "done",
        };
        *standing.entry((&one.request.effect, state)).or_default() += 1;
    }
    let mut page = String::new();
    if standing.is_empty() {
        page.push_str("no effect was begun\n");
    }
    for ((effect, state), count) in standing {
        let _ = writeln!(page, "journal          {effect}: {count} {state}");
    }
    page
}

/// One line, control characters replaced.
fn shorten(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    let mut short: String = text.chars().map(plain).take(TEXT_CHARS).collect();
    if text.chars().nth(TEXT_CHARS).is_some() {
        short.push_str("...");
    }
    short
}
