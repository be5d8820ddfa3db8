//! Tokens of the corpus's texts, by the tokenizers of two models, on one thread.

use std::time::Duration;

use benches::Result;
use benches::text::{metadata, texts};
use criterion::{Criterion, Throughput};
use engine::tokenizer::Tokenizer;

const TEXTS: usize = 200;

fn main() -> Result<()> {
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(4))
        .configure_from_args();
    let texts = texts(TEXTS)?;
    let bytes = texts.iter().map(String::len).sum::<usize>();
    let mut group = criterion.benchmark_group("tokenise");
    group.throughput(Throughput::Bytes(bytes as u64));
    for model in ["smollm2", "qwen2"] {
        let tokenizer = Tokenizer::from_gguf(&metadata(model)?)?;
        for text in &texts {
            tokenizer.encode_text(text)?;
        }
        group.bench_function(format!("{model}, {TEXTS} texts"), |bench| {
            bench.iter(|| {
                let lens = texts
                    .iter()
                    .map(|text| tokenizer.encode_text(text).map(|ids| ids.len()));
                lens.map(|len| len.unwrap_or(0)).sum::<usize>()
            });
        });
    }
    group.finish();
    criterion.final_summary();
    Ok(())
}
