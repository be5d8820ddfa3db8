//! `engine calibrate`: a head is trained on labelled records, and how good it is is told.

mod page;
mod trials;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use clap::{Args, ValueEnum};
use engine::calibrate::{Gathered, Prior, Source, ask_prior, gather, recipe, turn_of};
use engine::head::{Bond, Head, Options, Reading, RecallTarget, train};
use engine::infer::{LocalInfer, bond};
use engine::local;
use engine::runner::RunnerOptions;
use operator::Plan;
use operator::eval::{Labels, read_labels};
use operator::infer::{CancelFlag, Infer, PPM};
use operator::ops::FileUnits;
use operator::plan::Turn;
use operator::record::read_source;
use operator::run_directory::replace;

use super::run::{DeviceArgument, NumericsArgument, find_model};

/// Arguments of `engine calibrate`.
#[derive(Debug, Args)]
pub struct CalibrateArguments {
    /// The plan whose field is to be answered by a head.
    plan: PathBuf,
    /// JSON, JSONL or CSV file with ids and labels; may be the records themselves.
    #[arg(long, value_name = "FILE", required_unless_present = "prior")]
    labels: Option<PathBuf>,
    /// Use no labels: take away from the labels' own probabilities what the prompt prefers, told by texts
    /// that say nothing or by 200 records.
    #[arg(long, value_enum, conflicts_with_all = ["labels", "trials", "recall", "read"])]
    prior: Option<PriorArgument>,
    /// Records as a JSON array, JSONL or CSV [default: the plan's own input].
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// A name from `engine models`, a GGUF file, or a safetensors directory.
    #[arg(
        long,
        value_name = "NAME|PATH",
        default_value = "qwen2.5-coder-0.5b",
        env = "ENGINE_MODEL"
    )]
    model: String,
    /// The field to calibrate [default: the plan's only one].
    #[arg(long, value_name = "FIELD")]
    field: Option<String>,
    /// Field of the labels file that holds the label [default: the same name].
    #[arg(long, value_name = "FIELD")]
    label_field: Option<String>,
    /// Field of the labels file that holds the id [default: the plan's id].
    #[arg(long, value_name = "FIELD")]
    id: Option<String>,
    /// Turn a stored label into the plan's, such as `true=yes`; may be repeated.
    #[arg(long = "map", value_name = "STORED=LABEL", value_parser = super::eval::parse_pair)]
    map: Vec<(String, String)>,
    /// Learn as well what differs by this field; it must be the first that the plan shows.
    #[arg(long, value_name = "FIELD")]
    group_by: Option<String>,
    /// Find at least this share of a label, such as `yes=0.9`: a third of the labels is set aside to find
    /// the threshold, and too few are refused.
    #[arg(long, value_name = "LABEL=SHARE", value_parser = super::eval::parse_pair)]
    recall: Option<(String, String)>,
    /// How sure the recall has to be.
    #[arg(
        long,
        value_name = "SHARE",
        default_value_t = 0.95,
        requires = "recall"
    )]
    confidence: f64,
    /// Layers whose states may be read [default: seven, from a third to five sixths of the depth].
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    layers: Vec<usize>,
    /// What the head reads, joined by +, such as `mean@14+answer@14+words`; may be repeated, and the best
    /// is taken [default: some of each kind].
    #[arg(long, value_name = "READINGS", value_parser = parse_readings)]
    read: Vec<Readings>,
    /// Decides all lots: folds, what is set aside, trials.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The head's file [default: heads/PLAN-FIELD-HASH.safetensors].
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Train no head to keep, but so many on random parts of the labels, and measure each on the rest.
    #[arg(long, value_name = "N")]
    trials: Option<u64>,
    /// Share of every class that a trial is measured on.
    #[arg(long, value_name = "SHARE", default_value_t = 1.0 / 3.0, requires = "trials")]
    test: f64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Where the forward runs.
    #[arg(long, value_enum, default_value = "cpu")]
    device: DeviceArgument,
    /// Number format of the fast CPU path; the head belongs to it.
    #[arg(long, value_enum, default_value = "auto")]
    numerics: NumericsArgument,
    /// Use no network: the model must already be here.
    #[arg(long)]
    offline: bool,
}

/// `--prior`.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum PriorArgument {
    ContentFree,
    Batch,
}

/// Records whose mean tells what the prompt prefers.
const BATCH: usize = 200;

/// `--read`.
#[derive(Debug, Clone)]
struct Readings(Vec<Reading>);

fn parse_readings(text: &str) -> Result<Readings, String> {
    let parts = text.split('+').map(|part| part.trim().parse());
    parts.collect::<Result<_, _>>().map(Readings)
}

/// Everything that a head is trained from.
pub(super) struct Ground {
    pub(super) gathered: Gathered,
    pub(super) bond: Bond,
    pub(super) options: Options,
}

/// Trains a head and tells how good it is, or only tells how good heads are.
pub fn calibrate(arguments: &CalibrateArguments) -> anyhow::Result<ExitCode> {
    let plan = Plan::load(&arguments.plan)?;
    let field = field_of(&plan, arguments)?;
    let turn = turn_of(&plan, &field)?;
    check_group(&plan, arguments)?;
    let input = arguments
        .input
        .clone()
        .or_else(|| plan.input_path())
        .with_context(|| {
            format!(
                "{}: the plan names no input; pass --input FILE",
                arguments.plan.display()
            )
        })?;
    let units = FileUnits::open(&plan, &input, &mut |_| {})?;
    let labels = match &arguments.labels {
        Some(path) => {
            let (artifact, records, _) = read_source(path, None)?;
            let label_field = arguments.label_field.as_ref().unwrap_or(&field);
            let id = arguments.id.as_ref().unwrap_or(&plan.input.id);
            let map: BTreeMap<String, String> = arguments.map.iter().cloned().collect();
            read_labels(&artifact.path, &records, id, label_field, &map)?
        }
        None => Labels::new(),
    };
    let model = find_model(&arguments.model, arguments.offline)?;
    let (device, numerics) = (arguments.device.into(), arguments.numerics.into());
    let mut infer = local::open(&model, device, numerics, RunnerOptions::default())?;
    let layers = layers_of(arguments, &infer)?;
    let (bond, options) = options_of(arguments, &infer, &turn, &field, &layers)?;
    let cancel = Arc::new(CancelFlag::new());
    let on_signal = cancel.clone();
    ctrlc::set_handler(move || on_signal.cancel())?;
    let started = Instant::now();
    let source = Source {
        plan: &plan,
        units: &units,
        labels: &labels,
        turn: &turn,
        field: &field,
        group_by: arguments.group_by.as_deref(),
        layers: &layers,
    };
    if let Some(prior) = arguments.prior {
        let prior = match prior {
            PriorArgument::ContentFree => Prior::ContentFree,
            PriorArgument::Batch => Prior::Batch(BATCH),
        };
        let answers = ask_prior(source, prior, arguments.seed, &mut infer, &cancel)?;
        let labels = bond.labels.clone();
        let head = Head::from_prior(bond, &answers)?;
        let file = keep(arguments, &field, &head)?;
        let text = page::prior(&labels, &answers, &file, arguments.json)?;
        super::print(&text)?;
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("reading the states of {} labelled records", labels.len());
    let gathered = gather(source, &mut infer, &cancel)?;
    let seconds = started.elapsed().as_secs_f64();
    eprintln!("read {} in {seconds:.1} s", gathered.units.len());
    let ground = Ground {
        gathered,
        bond,
        options,
    };
    if let Some(count) = arguments.trials {
        let report = trials::run(&ground, count, arguments.seed, arguments.test)?;
        let text = match arguments.json {
            true => serde_json::to_string_pretty(&report)?,
            false => report.to_string(),
        };
        super::print(&text)?;
        return Ok(ExitCode::SUCCESS);
    }
    let started = Instant::now();
    let trained = train(
        &ground.gathered.examples,
        ground.bond.clone(),
        &ground.options,
    )?;
    let seconds = started.elapsed().as_secs_f64();
    eprintln!("trained in {seconds:.1} s");
    let file = keep(arguments, &field, &trained.head)?;
    let report = page::Report::of(&ground, &trained, &file);
    let text = match arguments.json {
        true => serde_json::to_string_pretty(&report)?,
        false => report.to_string(),
    };
    super::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes a head's file and returns its path.
fn keep(arguments: &CalibrateArguments, field: &str, head: &Head) -> anyhow::Result<PathBuf> {
    let bytes = head.to_bytes()?;
    let out = match &arguments.out {
        Some(out) => out.clone(),
        None => default_file(&arguments.plan, field, head),
    };
    if let Some(parent) = out.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        std::fs::create_dir_all(parent).with_context(|| format!("{}", parent.display()))?;
    }
    replace(&out, &bytes)?;
    Ok(out)
}

fn field_of(plan: &Plan, arguments: &CalibrateArguments) -> anyhow::Result<String> {
    match (&arguments.field, plan.fields.as_slice()) {
        (Some(field), _) => Ok(field.clone()),
        (None, [only]) => Ok(only.name.clone()),
        (None, several) => {
            let names: Vec<&str> = several.iter().map(|field| &*field.name).collect();
            anyhow::bail!(
                "{}: the plan has several fields ({}); say which with --field",
                arguments.plan.display(),
                names.join(", ")
            )
        }
    }
}

fn check_group(plan: &Plan, arguments: &CalibrateArguments) -> anyhow::Result<()> {
    let Some(field) = &arguments.group_by else {
        return Ok(());
    };
    let first = &plan.input.text[0].field;
    if first != field {
        anyhow::bail!(
            "--group-by {field}: a head can tell groups apart only by the first field that the plan shows, \
             which is {first}; put {{ field = {field:?} }} first in [input] text"
        );
    }
    Ok(())
}

fn layers_of(arguments: &CalibrateArguments, infer: &LocalInfer) -> anyhow::Result<Vec<usize>> {
    let depth = infer.runner().model().config().layers;
    let mut layers = match arguments.layers.is_empty() {
        false => arguments.layers.clone(),
        true => recipe::layers(depth),
    };
    let read = arguments.read.iter().flat_map(|readings| &readings.0);
    layers.extend(read.filter_map(|reading| reading.layer()));
    layers.sort_unstable();
    layers.dedup();
    match layers.last() {
        Some(last) if *last >= depth => {
            anyhow::bail!(
                "layer {last}: the model has {depth}, from 0 to {}",
                depth - 1
            )
        }
        _ => Ok(layers),
    }
}

fn options_of(
    arguments: &CalibrateArguments,
    infer: &LocalInfer,
    turn: &Turn,
    field: &str,
    layers: &[usize],
) -> anyhow::Result<(Bond, Options)> {
    let question = turn
        .questions
        .iter()
        .find(|question| question.field == field)
        .context("the turn asks for the field")?;
    let group_by = arguments.group_by.clone();
    let bond = bond(infer.identity(), &turn.rubric, question, group_by)
        .context("the field's labels are not fixed")?;
    let recall = match &arguments.recall {
        None => None,
        Some((label, share)) => Some(recall_of(&bond, label, share, arguments.confidence)?),
    };
    let readings = match arguments.read.is_empty() {
        false => arguments.read.iter().map(|of| of.0.clone()).collect(),
        true => recipe::readings(layers),
    };
    let own: &[f64] = match bond.group_by {
        Some(_) => &[0.0, 0.3, 1.0],
        None => &[0.0],
    };
    let options = recipe::options(readings, own, arguments.seed, recall);
    Ok((bond, options))
}

fn recall_of(
    bond: &Bond,
    label: &str,
    share: &str,
    confidence: f64,
) -> anyhow::Result<RecallTarget> {
    let place = bond.labels.iter().position(|known| known == label);
    let label = place.with_context(|| {
        format!(
            "--recall {label}: the labels of {} are {}",
            bond.field,
            bond.labels.join(", ")
        )
    })?;
    let ppm = |share: f64| (share * f64::from(PPM)).round() as u32;
    let inside = |share: f64| (0.0..1.0).contains(&share) && share > 0.0;
    let share: f64 = share
        .parse()
        .with_context(|| format!("--recall: {share:?} is no share, such as 0.9"))?;
    if !inside(share) || !inside(confidence) {
        anyhow::bail!("--recall {share} --confidence {confidence}: both lie between 0 and 1");
    }
    Ok(RecallTarget {
        label,
        recall_ppm: ppm(share),
        alpha_ppm: ppm(1.0 - confidence),
    })
}

/// `heads/PLAN-FIELD-HASH.safetensors`.
fn default_file(plan: &Path, field: &str, head: &Head) -> PathBuf {
    let stem = plan.file_stem().unwrap_or_default().to_string_lossy();
    let hash = blake3::Hash::from_bytes(head.digest()).to_hex();
    Path::new("heads").join(format!("{stem}-{field}-{}.safetensors", &hash[..12]))
}
