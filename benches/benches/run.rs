//! A whole run over a tiny random model: texts, tokens, packed forwards, scores, facts, fold and
//! answer. What the model's arithmetic costs is measured by `gemm` and `attention`; here it is small.
//!
//! The rubric is sealed before the clock starts, nothing is remembered and nothing is written.

use std::time::Duration;

use benches::Result;
use benches::{model, text};
use criterion::{BatchSize, Criterion, Throughput};
use engine::infer::LocalInfer;
use engine::model::ModelFiles;
use engine::model::cpu::CpuModel;
use engine::model::linear::Numerics;
use engine::prompt::PromptTemplate;
use engine::runner::{Runner, RunnerOptions};
use engine::tokenizer::Tokenizer;
use operator::infer::CancelFlag;
use operator::run::{RunOptions, run};

const RECORDS: u32 = 100;

fn open() -> Result<LocalInfer> {
    let folder = tempfile::tempdir()?;
    model::write(folder.path(), &model::tiny(), 7)?;
    let files = ModelFiles::open(folder.path())?;
    let forward = Box::new(CpuModel::load(&files, Numerics::Int16)?);
    let runner = Runner::new(forward, RunnerOptions::default())?;
    let metadata = text::metadata("smollm2")?;
    let tokenizer = Tokenizer::from_gguf(&metadata)?;
    let template = PromptTemplate::from_gguf(&metadata)?;
    Ok(LocalInfer::new(
        runner, tokenizer, template, "tiny", [7; 32],
    ))
}

fn main() -> Result<()> {
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(5))
        .configure_from_args();
    let (plan, parts) = text::corpus()?;
    let mut infer = open()?;
    let cancel = CancelFlag::new();
    let options = || RunOptions {
        limit: Some(RECORDS),
        redact: false,
        clock: &|| 0,
        cancel: &cancel,
        larger: None,
        tools: None,
    };
    let first = run(
        &plan,
        parts.clone(),
        &mut infer,
        None,
        options(),
        &mut (),
        None,
    )?;
    assert_eq!(first.usage.job.forks, u64::from(RECORDS));
    let mut group = criterion.benchmark_group("run");
    group.throughput(Throughput::Elements(RECORDS.into()));
    group.bench_function("records on a tiny model", |bench| {
        bench.iter_batched(
            || parts.clone(),
            |parts| run(&plan, parts, &mut infer, None, options(), &mut (), None),
            BatchSize::PerIteration,
        );
    });
    group.finish();
    criterion.final_summary();
    Ok(())
}
