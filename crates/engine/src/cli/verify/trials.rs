//! `engine verify --selfcheck`: how often breakers and audits keep what they promise.

use std::fmt::Write as _;
use std::process::ExitCode;

use operator::breaker::EProcessSpec;
use operator::trials::{AuditTrials, CanaryTrials, Rubric, audit_trials, canary_trials};

use crate::cli::EXIT_DIFFERS;

/// Runs under each rubric.
const RUNS: u64 = 100;
/// Audited populations.
const AUDITS: u64 = 2_000;
/// Most strata of a population.
const STRATA_MAX: u64 = 5;
/// Canaries within which a defective rubric is to be noticed.
const SOON: u64 = 12;
/// Least runs under a defective rubric that are stopped so soon, of `RUNS`.
const NOTICED_MIN: u64 = 95;
/// Most runs under a sound rubric that are stopped, of `RUNS`.
const ALARMS_MAX: u64 = 2;

/// Runs the trials and prints what came of them.
pub fn selfcheck() -> anyhow::Result<ExitCode> {
    // A sound rubric errs as often as is tolerated: nothing milder is asked of the breaker.
    let noise = EProcessSpec::default().p0_ppm;
    let inverted = canary_trials(RUNS, Rubric::Inverted, noise)?;
    let sound = canary_trials(RUNS, Rubric::Sound, noise)?;
    let audits = [1, STRATA_MAX].map(|strata| audit_trials(AUDITS, strata));
    let holds = inverted.opened_within(SOON) >= NOTICED_MIN
        && sound.opened <= ALARMS_MAX
        && audits
            .iter()
            .all(|audits| audits.held * 20 >= audits.runs * 19);
    crate::cli::print(&render(noise, &inverted, &sound, &audits, holds))?;
    Ok(match holds {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(EXIT_DIFFERS),
    })
}

fn render(
    noise_ppm: u32,
    inverted: &CanaryTrials,
    sound: &CanaryTrials,
    audits: &[AuditTrials; 2],
    holds: bool,
) -> String {
    let mut page = String::new();
    let out = &mut page;
    let noise = f64::from(noise_ppm) / 10_000.0;
    let last = inverted.judged.iter().max().copied().unwrap_or(0);
    let tenth = |ppm: u64| ppm as f64 / 10_000.0;
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "canaries         whole runs of 400 records with 40 canaries; each answer wrong with {noise} %\n\
         inverted rubric  {} of {} runs stopped, {} within {SOON} canaries (at least {NOTICED_MIN}), the \
         latest after {last}\n\
         sound rubric     {} of {} runs stopped (at most {ALARMS_MAX})",
        inverted.opened,
        inverted.runs,
        inverted.opened_within(SOON),
        sound.opened,
        sound.runs,
    );
    let strata = ["one stratum", "up to five strata"];
    for (strata, audits) in strata.iter().zip(audits) {
        let _ = writeln!(
            out,
            "audits           {strata}: the bound of 95 % held in {} of {} audits, {:.1} % (at least 95 \
             %);\n                 mean recall {:.1} % in truth, {:.1} % by the bound",
            audits.held,
            audits.runs,
            audits.held as f64 * 100.0 / audits.runs as f64,
            tenth(audits.mean_recall_ppm()),
            tenth(audits.mean_bound_ppm()),
        );
    }
    page.push_str(match holds {
        true => "\nAll of it holds.",
        false => "\nNOT all of it holds.",
    });
    page
}
