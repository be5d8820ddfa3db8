//! `engine store`: what the file of remembered answers holds, whether it is sound, and removal.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};
use comfy_table::{ContentArrangement, Table, presets};
use engine::models::Environment;
use operator::store::{self, GcOptions, GcReport, StoreStats, VerifyReport};
use serde::Serialize;

use super::EXIT_FAILED;

const SECONDS_PER_DAY: u64 = 24 * 60 * 60;

/// Arguments of `engine store`.
#[derive(Debug, Args)]
pub struct StoreArguments {
    #[command(subcommand)]
    command: StoreCommand,
}

#[derive(Debug, Subcommand)]
enum StoreCommand {
    /// Count entries and bytes per table; may be asked while a run writes.
    Stats(Place),
    /// Read and hash every entry and name the damaged ones; may be asked while a run writes.
    Verify(Place),
    /// Remove damaged entries, and old ones if asked to, and give their space back.
    Gc(GcArguments),
}

#[derive(Debug, Args)]
struct Place {
    /// Database of remembered answers [default: in the user's cache directory].
    #[arg(long, value_name = "FILE", env = "ENGINE_STORE")]
    store: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct GcArguments {
    #[command(flatten)]
    place: Place,
    /// Remove entries that were written more than so many days ago.
    #[arg(long, value_name = "DAYS")]
    older_than: Option<u32>,
    /// Say what would be removed, and remove nothing.
    #[arg(long)]
    dry_run: bool,
}

/// The file of remembered answers: the one given, else the one in the user's cache directory.
pub fn locate(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    match given {
        Some(path) => Ok(path.to_owned()),
        None => Ok(Environment::from_process()?.cache_dir.join("answers.redb")),
    }
}

/// Days since the Unix epoch by the system's clock; 0 where that is set before it.
pub fn today() -> u32 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let days = since.map_or(0, |since| since.as_secs() / SECONDS_PER_DAY);
    u32::try_from(days).unwrap_or(u32::MAX)
}

/// Runs the chosen subcommand.
pub fn store(arguments: &StoreArguments) -> anyhow::Result<ExitCode> {
    match &arguments.command {
        StoreCommand::Stats(place) => {
            let path = locate(place.store.as_deref())?;
            let found = store::stats(&path)?;
            show(place, &path, &found, render_stats)?;
            Ok(ExitCode::SUCCESS)
        }
        StoreCommand::Verify(place) => {
            let path = locate(place.store.as_deref())?;
            let report = store::verify(&path)?;
            show(place, &path, &report, render_verify)?;
            Ok(if report.damaged.is_empty() {
                ExitCode::SUCCESS
            } else {
                ExitCode::from(EXIT_FAILED)
            })
        }
        StoreCommand::Gc(arguments) => {
            let path = locate(arguments.place.store.as_deref())?;
            let options = GcOptions {
                older_than_days: arguments.older_than,
                today: today(),
                damaged: true,
                dry_run: arguments.dry_run,
            };
            let report = store::gc(&path, options)?;
            show(&arguments.place, &path, &report, render_gc)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn show<T: Serialize>(
    place: &Place,
    path: &Path,
    report: &T,
    render: fn(&Path, &T) -> String,
) -> anyhow::Result<()> {
    if place.json {
        super::print(&serde_json::to_string_pretty(report)?)
    } else {
        super::print(&render(path, report))
    }
}

fn render_stats(path: &Path, found: &StoreStats) -> String {
    let today = today();
    let age = |day: Option<u32>| match day.map(|day| today.saturating_sub(day)) {
        None => String::from("-"),
        Some(0) => String::from("today"),
        Some(1) => String::from("1 day ago"),
        Some(days) => format!("{days} days ago"),
    };
    let mut table = new_table(["table", "entries", "bytes", "oldest", "newest"]);
    for row in &found.tables {
        table.add_row([
            row.table.to_owned(),
            row.entries.to_string(),
            row.payload_bytes.to_string(),
            age(row.oldest_day),
            age(row.newest_day),
        ]);
    }
    format!("{}: {} bytes\n{table}", path.display(), found.file_bytes)
}

fn render_verify(path: &Path, report: &VerifyReport) -> String {
    let mut text = format!(
        "{}: {} entries read, {} damaged",
        path.display(),
        report.entries,
        report.damaged.len()
    );
    for damage in &report.damaged {
        text.push_str(&format!(
            "\n{} {}: {}",
            damage.table, damage.key, damage.problem
        ));
    }
    if !report.damaged.is_empty() {
        text.push_str("\nA run computes them again; `engine store gc` removes them.");
    }
    text
}

fn render_gc(path: &Path, report: &GcReport) -> String {
    let mut table = new_table(["table", "too old", "damaged", "bytes"]);
    for row in &report.removed {
        table.add_row([
            row.table.to_owned(),
            row.expired.to_string(),
            row.damaged.to_string(),
            row.bytes.to_string(),
        ]);
    }
    let outcome = if report.dry_run {
        String::from("would be removed (--dry-run: nothing was changed)")
    } else {
        format!(
            "removed; the file is {} bytes smaller",
            report.bytes_freed()
        )
    };
    format!("{}: {outcome}\n{table}", path.display())
}

fn new_table<const COLUMNS: usize>(header: [&str; COLUMNS]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(header);
    table
}
