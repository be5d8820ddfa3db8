//! Label trees: building one, and reading probabilities and mass from rows of logits.

use std::hint::black_box;
use std::time::Duration;

use benches::Result;
use benches::model::{qwen2, smollm2};
use benches::random::Random;
use criterion::{Criterion, Throughput};
use engine::label_tree::LabelTree;

const TERMINATOR: u32 = 2;

/// `count` labels behind one scaffold, five tokens each, that part at three places.
fn labels(count: u32) -> Vec<Vec<u32>> {
    (0..count)
        .map(|label| vec![10, 11, 20 + label / 16, 40 + label / 4 % 4, 60 + label % 4])
        .collect()
}

fn main() -> Result<()> {
    let mut criterion = Criterion::default()
        .sample_size(30)
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    let mut random = Random(4);
    let mut group = criterion.benchmark_group("scoring");
    group.throughput(Throughput::Elements(1));
    for count in [3, 64] {
        let labels = labels(count);
        let tree = LabelTree::new("field", &labels, TERMINATOR)?;
        group.bench_function(format!("build {count} labels"), |bench| {
            bench.iter(|| LabelTree::new("field", black_box(&labels), TERMINATOR));
        });
        let vocab = smollm2().vocab;
        let rows = random.floats(tree.nodes().len() * vocab);
        group.bench_function(format!("probabilities of {count} labels"), |bench| {
            bench.iter(|| tree.probabilities(|node| &rows[node * vocab..][..vocab]));
        });
    }
    let tree = LabelTree::new("field", &labels(3), TERMINATOR)?;
    for vocab in [smollm2().vocab, qwen2().vocab] {
        let row = random.floats(vocab);
        group.bench_function(format!("mass over {vocab} tokens"), |bench| {
            bench.iter(|| tree.mass(black_box(&row)));
        });
    }
    group.finish();
    criterion.final_summary();
    Ok(())
}
