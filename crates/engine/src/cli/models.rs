//! `engine models` and `engine pull`.

use std::process::ExitCode;

use clap::Args;
use comfy_table::{ContentArrangement, Table, presets};
use engine::models::{self, Blake3Pin, Environment, Manifest, TerminalReporter};

/// Arguments of `engine pull`.
#[derive(Debug, Args)]
pub struct PullArguments {
    /// Name of the model, as `engine models` lists it.
    name: String,
    /// Hash a model that is already here again, whatever its record says.
    #[arg(long)]
    verify: bool,
}

/// Lists the manifest.
pub fn list() -> anyhow::Result<ExitCode> {
    let environment = Environment::from_process()?;
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header([
        "name",
        "model",
        "architecture",
        "size",
        "licence",
        "pinned",
        "here",
    ]);
    for entry in Manifest::builtin().models() {
        let here = match models::locate(&entry.name, &environment) {
            Ok(Some(_)) => "yes".to_owned(),
            Ok(None) => "no".to_owned(),
            Err(error) => format!("damaged: {error}"),
        };
        table.add_row([
            entry.name.clone(),
            format!("{} {}", entry.title, entry.quantization),
            entry.architecture.clone(),
            format!("{} MB", entry.bytes / 1_000_000),
            entry.licence.clone(),
            match entry.blake3 {
                Blake3Pin::Unpinned => "SHA-256",
                _ => "BLAKE3",
            }
            .to_owned(),
            here,
        ]);
    }
    super::print(&format!(
        "{table}\n`engine pull NAME` fetches one; `--model NAME|PATH` uses it."
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Fetches or verifies one model.
pub fn pull(arguments: &PullArguments) -> anyhow::Result<ExitCode> {
    let environment = Environment::from_process()?;
    let mut reporter = TerminalReporter::stderr();
    let model = if arguments.verify {
        models::verify(&arguments.name, &environment, &mut reporter)?
    } else {
        models::resolve(&arguments.name, &environment, false, &mut reporter)?
    };
    let check = if model.verified {
        "equals the manifest's pin"
    } else {
        "recorded on first use"
    };
    super::print(&format!(
        "{}: {} ({} bytes)\nBLAKE3 {} ({check})",
        model.name,
        model.path.display(),
        model.bytes,
        model.blake3
    ))?;
    Ok(ExitCode::SUCCESS)
}
