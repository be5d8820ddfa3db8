//! The main job on real weights: reuse, memory and unshared agreement, end to end.
//!
//! Uses SmolLM2-135M through the manifest, from the models directory or its sources. Where neither
//! has it, the test says that it was skipped and why.

use engine::infer::LocalInfer;
use engine::local::{self, Device};
use engine::model::linear::Numerics;
use engine::models::{self, Environment, LocalModel, SilentReporter};
use engine::runner::{Reuse, RunnerOptions};
use operator::Plan;
use operator::fact::{Fact, Status};
use operator::infer::CancelFlag;
use operator::ops::{Partition, partition};
use operator::record::read_source;
use operator::run::{RunOptions, RunOutcome};
use operator::store::{MemoryStore, Store};

use crate::tiny::fixture;

/// Records asked; the forwards dominate the test's time.
const LIMIT: u32 = 10;
/// Decisions closer than this may differ between numerics tiers.
const MARGIN_PPM: u32 = 50_000;

fn model() -> Option<LocalModel> {
    let environment = Environment::from_process().unwrap();
    match models::resolve("smollm2-135m", &environment, false, &mut SilentReporter) {
        Ok(model) => Some(model),
        Err(error) => {
            eprintln!("SKIPPED: the real model cannot be had here: {error}");
            None
        }
    }
}

fn open(model: &LocalModel, numerics: Numerics, reuse: Reuse) -> LocalInfer {
    let options = RunnerOptions {
        reuse,
        ..RunnerOptions::default()
    };
    local::open(model, Device::Cpu, numerics, options).unwrap()
}

fn load() -> (Plan, Partition) {
    let plan = Plan::load(&fixture("plans/auth-blockers.toml")).unwrap();
    let (artifact, records, bad) = read_source(&fixture("issues-1000.json"), None).unwrap();
    let parts = partition(&plan, artifact, records, bad).unwrap();
    (plan, parts)
}

fn run(infer: &mut LocalInfer, memo: Option<&dyn Store>) -> RunOutcome {
    let (plan, parts) = load();
    let cancel = CancelFlag::new();
    let options = RunOptions {
        redact: false,
        limit: Some(LIMIT),
        clock: &|| 0,
        cancel: &cancel,
        larger: None,
        tools: None,
    };
    operator::run::run(&plan, parts, infer, memo, options, &mut (), None).unwrap()
}

fn asked(facts: &[Fact]) -> impl Iterator<Item = &Fact> {
    facts
        .iter()
        .filter(|fact| fact.stage == "map" && fact.status != Status::NotRun)
}

#[test]
fn the_main_job_on_real_weights() {
    let Some(model) = model() else { return };
    let mut shared = open(&model, Numerics::Int16, Reuse::Shared);
    let memo = MemoryStore::new();
    let first = run(&mut shared, Some(&memo));
    let usage = first.usage.job;
    let asked_units = asked(&first.facts).count() as u64;
    assert_eq!(asked_units, u64::from(LIMIT));

    // The rubric's rows went through layer 0 once; every record was told the whole prefix.
    assert_eq!(usage.prefix_computed_tokens, usage.prefix_tokens);
    assert_eq!(usage.cached_tokens, asked_units * usage.prefix_tokens);
    assert_eq!(
        usage.computed_tokens + usage.cached_tokens,
        usage.prompt_tokens
    );
    assert_eq!(
        usage.computed_tokens,
        shared.runner().model().rows_forwarded()
    );
    let stats = shared.runner().cache_stats();
    assert_eq!(
        (stats.blocks_used, stats.forks_live, stats.prefixes),
        (0, 0, 1)
    );

    let (_, parts) = load();
    assert_eq!(
        first.answer.verify(&parts),
        Vec::<String>::new(),
        "every citation resolves"
    );

    let again = run(&mut shared, Some(&memo));
    assert_eq!(
        again.usage.job.computed_tokens, 0,
        "nothing is computed twice"
    );
    assert_eq!(again.answer.result_hash, first.answer.result_hash);

    for (numerics, reuse) in [
        (Numerics::Int16, Reuse::Off),
        (Numerics::F32, Reuse::Shared),
    ] {
        let other = run(&mut open(&model, numerics, reuse), None);
        for (a, b) in asked(&first.facts).zip(asked(&other.facts)) {
            assert_eq!(a.unit_id, b.unit_id);
            for (field, value) in &a.values {
                let same = b
                    .values
                    .get(field)
                    .is_some_and(|other| other.label == value.label);
                let clear = value.margin_ppm.is_some_and(|margin| margin > MARGIN_PPM);
                assert!(
                    same || !clear,
                    "{numerics:?} {reuse:?} {} {field}",
                    a.unit_id
                );
            }
        }
    }
}
