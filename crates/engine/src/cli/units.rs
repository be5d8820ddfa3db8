//! `engine units`: what a plan makes of its records, one descriptor a line; no model is asked.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use operator::group::{self, Descriptor};
use operator::ops::{FileUnits, Placed, Units};
use operator::{Plan, text};
use serde_json::json;

/// Arguments of `engine units`.
#[derive(Debug, Args)]
pub struct UnitsArguments {
    /// The plan.
    plan: PathBuf,
    /// Records as a JSON array, JSONL or CSV [default: the plan's own input].
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Also print what the model would read of each unit, and its record's fields.
    #[arg(long)]
    text: bool,
}

/// Prints every unit's descriptor.
pub fn units(arguments: &UnitsArguments) -> anyhow::Result<ExitCode> {
    let plan = Plan::load(&arguments.plan)?;
    let input = arguments
        .input
        .clone()
        .or_else(|| plan.input_path())
        .with_context(|| {
            format!(
                "{}: the plan names no input; add `path` under [input] or pass --input FILE",
                arguments.plan.display()
            )
        })?;
    let records = FileUnits::open(&plan, &input, &mut |_| {})?;
    let arranged = group::arrange(&plan, &records)?;
    let units: &dyn Units = arranged.as_deref().unwrap_or(&records);
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let (mut skipped, mut unreadable) = (0_u32, 0_u32);
    let mut broken = None;
    units.visit(&mut |placed| {
        if broken.is_some() {
            return Ok(());
        }
        let line = match &placed {
            Placed::Bad(bad) => {
                unreadable += 1;
                json!({ "unit_id": bad.id, "source_hash": bad.source_hash, "unreadable": bad.reason })
            }
            Placed::Unit(unit, _) => {
                skipped += u32::from(unit.skip.is_some());
                let mut line = json!(Descriptor::of(&plan, unit));
                if arguments.text {
                    let shown = text::render(&plan, unit);
                    line["text"] = match shown {
                        Ok(shown) => json!(shown.text),
                        Err(problem) => json!({ "problem": problem.message }),
                    };
                    line["fields"] = json!(unit.record.fields);
                }
                line
            }
        };
        broken = writeln!(out, "{line}").err();
        Ok(())
    })?;
    let flushed = broken.map_or_else(|| out.flush(), Err);
    match flushed {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
        other => other?,
    }
    eprintln!(
        "{} records, {} units: {skipped} with nothing to ask about, {unreadable} unreadable",
        records.len(),
        units.len()
    );
    Ok(ExitCode::SUCCESS)
}
