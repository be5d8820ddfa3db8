//! Going on with a run that was stopped: only as it was begun, and what is left when one stops.

use std::path::Path;

use anyhow::bail;
use operator::Plan;
use operator::coverage::Counts;
use operator::record::SourceArtifact;
use operator::run_directory::{Manifest, read_manifest};
use serde_json::Value;

/// Options that say how far a run goes, not how; they may change.
const FREE: [&str; 2] = ["limit", "redact"];

/// Refuses to go on where the directory holds no run, or one that was begun otherwise.
///
/// # Errors
/// What is not there or differs, and what to do about it.
pub(super) fn check(
    out: &Path,
    plan: &Plan,
    source: &SourceArtifact,
    options: &Value,
) -> anyhow::Result<()> {
    let shown = out.display();
    if !out.join("manifest.json").exists() {
        bail!(
            "--resume: {shown} holds no run; leave --resume out to begin one, or name its directory with \
             --out"
        );
    }
    let manifest = read_manifest(out)?;
    let differences = differences(&manifest, plan, source, options);
    if differences.is_empty() {
        return Ok(());
    }
    bail!(
        "--resume: the run in {shown} was begun otherwise: {}; go on as it was begun, or leave --resume \
         out to begin anew",
        differences.join("; ")
    )
}

fn differences(
    manifest: &Manifest,
    plan: &Plan,
    source: &SourceArtifact,
    options: &Value,
) -> Vec<String> {
    let mut found = Vec::new();
    if manifest.plan_hash != plan.hash() {
        found.push(format!("plan {} meant something else", manifest.plan_path));
    }
    if manifest.input.hash != source.hash {
        let path = &manifest.input.path;
        found.push(format!("input {path} had other bytes"));
    }
    let empty = serde_json::Map::new();
    let now = options.as_object().unwrap_or(&empty);
    let then = manifest.options.as_object().unwrap_or(&empty);
    for (name, value) in now
        .iter()
        .filter(|(name, _)| !FREE.contains(&name.as_str()))
    {
        let before = then.get(name).unwrap_or(&Value::Null);
        if before != value {
            let flag = name.replace('_', "-");
            found.push(format!("--{flag} was {before}, now it is {value}"));
        }
    }
    found
}

/// What a stopped run leaves, and how it goes on.
pub(super) fn tell(counts: &Counts, kept: bool) -> String {
    let left = counts.cancelled + counts.not_run;
    let done = counts.units - left;
    let kept = match kept {
        true => format!("go on with:\n  {} --resume", command()),
        false => String::from("nothing was kept, for there is no store (--no-store)"),
    };
    format!(
        "stopped: {done} of {} records have an answer, {left} are left; {kept}",
        counts.units
    )
}

/// The command line as it was given, without `--resume`.
fn command() -> String {
    let quoted = std::env::args()
        .filter(|part| part != "--resume")
        .map(|part| {
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
            match !part.is_empty() && part.chars().all(plain) {
                true => part,
                false => format!("'{}'", part.replace('\'', "'\\''")),
            }
        });
    quoted.collect::<Vec<_>>().join(" ")
}
