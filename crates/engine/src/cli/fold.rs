//! `engine fold`: the fold's own check, without a model, and the verification of what it wrote.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{ArgGroup, Args};
use operator::run_directory::replace;
use operator::selfcheck::{self, Artifact, Corpus, Witness};
use operator::verify::verify_artifact;

use super::{EXIT_FAILED, verify};

/// The corpus of the check travels with the program, so that it needs nothing else.
const CORPUS: Corpus<'static> = Corpus {
    plan: include_str!("../../../../fixtures/plans/fold-selfcheck.toml"),
    records: include_bytes!("../../../../fixtures/issues-1000.json"),
    oracle: include_str!("../../../../fixtures/oracle/issues-1000.oracle.jsonl"),
};

/// Arguments of `engine fold`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("check").required(true).args(["selfcheck", "verify"])))]
pub struct FoldArguments {
    /// Fold 1,000 records whose answers are known, in many orders and shapes, with one of them
    /// changed, and say what holds.
    #[arg(long)]
    selfcheck: bool,
    /// Verify what `--selfcheck --out FILE` wrote, without any code that made it.
    #[arg(long, value_name = "FILE")]
    verify: Option<PathBuf>,
    /// Write facts, tree, answer and witness as JSON.
    #[arg(long, value_name = "FILE", conflicts_with = "verify")]
    out: Option<PathBuf>,
}

/// Runs the check, or verifies an earlier one.
pub fn fold(arguments: &FoldArguments) -> anyhow::Result<ExitCode> {
    if let Some(path) = &arguments.verify {
        let report = verify_artifact(&read(path)?, CORPUS)?;
        return verify::conclude(&path.display().to_string(), &report);
    }
    let artifact = selfcheck::check(CORPUS)?;
    let problems = artifact.witness.problems();
    if let Some(path) = &arguments.out {
        write(path, &artifact)?;
    }
    let mut page = render(&artifact.witness);
    for problem in &problems {
        let _ = writeln!(page, "FAILED: {problem}");
    }
    if problems.is_empty() {
        page.push_str("\nAll of it holds.");
    }
    if let Some(path) = &arguments.out {
        let _ = write!(page, "\nwritten          {}", path.display());
    }
    super::print(&page)?;
    Ok(match problems.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(EXIT_FAILED),
    })
}

fn read(path: &Path) -> anyhow::Result<Artifact> {
    let shown = path.display();
    let bytes = std::fs::read(path).with_context(|| format!("{shown}: cannot read"))?;
    serde_json::from_slice(&bytes)
        .with_context(|| format!("{shown}: is no artifact of `engine fold --selfcheck --out`"))
}

fn write(path: &Path, artifact: &Artifact) -> anyhow::Result<()> {
    let mut bytes = serde_json::to_vec_pretty(artifact)
        .with_context(|| format!("{}: the artifact as JSON", path.display()))?;
    bytes.push(b'\n');
    Ok(replace(path, &bytes)?)
}

fn render(witness: &Witness) -> String {
    let mut page = String::from(
        "SIMULATED: answers are made from the fixture's oracle, no model was asked.\n\n",
    );
    let out = &mut page;
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "tree             {} leaves, {} inner nodes on {} levels, at most {} inputs a node",
        witness.leaves, witness.nodes, witness.levels, witness.inputs_max
    );
    let _ = writeln!(
        out,
        "citations        at most {} a node, {} allowed; {} units cited by the answer",
        witness.citations_max,
        witness.citations_cap,
        witness.cited.len()
    );
    let same = witness
        .variants
        .iter()
        .filter(|(_, hash)| *hash == witness.result_hash)
        .count();
    let _ = writeln!(
        out,
        "same result      {same} of {} other orders and widths: reversed, {} shuffles, {}",
        witness.variants.len(),
        witness
            .variants
            .iter()
            .filter(|(name, _)| name.starts_with("shuffled"))
            .count(),
        witness
            .variants
            .iter()
            .filter_map(|(name, _)| name.strip_prefix("fan-in ").map(|n| format!("fan-in {n}")))
            .collect::<Vec<_>>()
            .join(", ")
    );
    let names = |units: &[operator::id::UnitId]| {
        let names: Vec<&str> = units.iter().map(|unit| unit.as_str()).collect();
        names.join(", ")
    };
    let _ = writeln!(
        out,
        "outliers         dissent {}, abstention {}",
        names(&witness.dissent),
        names(&witness.abstained)
    );
    for (what, mutation) in [
        ("one decision", &witness.mutation),
        ("one source", &witness.edit),
    ] {
        let work = &mutation.work;
        let _ = writeln!(
            out,
            "{what:<16} changed in record {}: {} leaf and {} nodes computed, {} leaves and {} \
             nodes reused",
            mutation.unit,
            work.leaves_computed,
            work.nodes_computed,
            work.leaves_reused,
            work.nodes_reused
        );
    }
    let audit = &witness.audit;
    let _ = writeln!(
        out,
        "negative audit   {} of {} excluded records read back, {} misses; with {} % confidence at \
         most {} are missed ({}.{} %)",
        audit.audited.len(),
        audit.population,
        audit.misses.len(),
        audit.confidence_ppm / 10_000,
        audit.misses_upper,
        audit.rate_upper_ppm / 10_000,
        audit.rate_upper_ppm % 10_000 / 1_000
    );
    let _ = writeln!(out, "result           {}", witness.result_hash);
    page
}
