//! Heads of fields that name examples: trained before the run, kept for the next one.
//!
//! Equal examples, texts and models give equal heads to the bit, so that what is kept only saves time.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context;
use blake3::Hasher;
use engine::calibrate::{Source, gather, judgements, recipe, turn_of};
use engine::head::{Bond, Head, train};
use engine::infer::{LocalInfer, bond};
use operator::Plan;
use operator::eval::{Labels, evaluate_judgements, read_labels};
use operator::infer::{CancelFlag, Infer};
use operator::ops::Units;
use operator::plan::{LabelledExamples, Turn};
use operator::record::read_source;
use operator::run_directory::replace;

/// The only seed: a run has no say in lots.
const SEED: u64 = 1;

/// Trains the heads that the plan's fields want, or takes those that were kept under `kept`.
///
/// # Errors
/// What is wrong with the examples, or the machine; a head that cannot be kept.
pub(super) fn heads(
    plan: &Plan,
    units: &dyn Units,
    infer: &mut LocalInfer,
    kept: Option<&Path>,
    quiet: bool,
) -> anyhow::Result<Vec<Head>> {
    let mut heads = Vec::new();
    for field in &plan.fields {
        let Some(examples) = &field.examples else {
            continue;
        };
        let turn = turn_of(plan, &field.name)?;
        let (bytes, labels) = read(plan, examples)?;
        let mut questions = turn.questions.iter();
        let question = questions
            .find(|question| question.field == field.name)
            .context("the turn asks for the field")?;
        let bond = bond(infer.identity(), &turn.rubric, question, None)
            .context("the field's labels are not fixed")?;
        let file = match kept {
            Some(kept) => Some(kept.join(name_of(&bond, examples, &bytes, units)?)),
            None => None,
        };
        // One that cannot be read, or belongs to something else, is trained again.
        let known = file.as_ref().and_then(|file| Head::load(file).ok());
        if let Some(head) = known.filter(|head| *head.bond() == bond) {
            heads.push(head);
            continue;
        }
        let head = learn(plan, units, infer, (&turn, bond), &labels, quiet)?;
        if let Some(file) = file {
            if let Some(folder) = file.parent() {
                std::fs::create_dir_all(folder).with_context(|| format!("{}", folder.display()))?;
            }
            replace(&file, &head.to_bytes()?)?;
        }
        heads.push(head);
    }
    Ok(heads)
}

/// The file of the examples, and their labels.
fn read(plan: &Plan, examples: &LabelledExamples) -> anyhow::Result<(Vec<u8>, Labels)> {
    let path = plan.beside(&examples.path);
    let bytes = std::fs::read(&path).with_context(|| format!("{}", path.display()))?;
    let (artifact, records, _) = read_source(&path, None)?;
    let id = examples.id.as_ref().unwrap_or(&plan.input.id);
    let labels = read_labels(&artifact.path, &records, id, &examples.label, &examples.map)?;
    Ok((bytes, labels))
}

/// The name under which a head is kept: all that it follows from.
fn name_of(
    bond: &Bond,
    examples: &LabelledExamples,
    bytes: &[u8],
    units: &dyn Units,
) -> anyhow::Result<PathBuf> {
    let mut hasher = Hasher::new_derive_key("engine kept head v1");
    let columns = (&examples.id, &examples.label, &examples.map);
    let source = units.source().hash;
    let parts = [
        &recipe::VERSION.to_le_bytes()[..],
        &serde_json::to_vec(bond)?,
        &serde_json::to_vec(&columns)?,
        source.as_bytes(),
        bytes,
    ];
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    Ok(PathBuf::from(format!(
        "{}.safetensors",
        hasher.finalize().to_hex()
    )))
}

fn learn(
    plan: &Plan,
    units: &dyn Units,
    infer: &mut LocalInfer,
    (turn, bond): (&Turn, Bond),
    labels: &Labels,
    quiet: bool,
) -> anyhow::Result<Head> {
    let started = Instant::now();
    let field = bond.field.clone();
    if !quiet {
        eprintln!(
            "{field}: training a head on {} labelled records",
            labels.len()
        );
    }
    let layers = recipe::layers(infer.runner().model().config().layers);
    let source = Source {
        plan,
        units,
        labels,
        turn,
        field: &field,
        group_by: None,
        layers: &layers,
    };
    let gathered = gather(source, infer, &CancelFlag::new())?;
    let options = recipe::options(recipe::readings(&layers), &[0.0], SEED, None);
    let trained = train(&gathered.examples, bond.clone(), &options)
        .with_context(|| format!("examples of field {field}"))?;
    if !quiet {
        let claims = judgements(&gathered, &bond.labels, &trained.held_out);
        let report = evaluate_judgements(&claims, &field);
        let seconds = started.elapsed().as_secs_f64();
        eprintln!(
            "{field}: trained in {seconds:.1} s; cross-validated {} of {} right",
            report.correct, report.labelled
        );
        if !trained.not_learned.is_empty() {
            let rare = trained.not_learned.join(", ");
            eprintln!("{field}: never chosen, for too few are labelled so: {rare}");
        }
    }
    Ok(trained.head)
}
