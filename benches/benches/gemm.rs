//! The projections of two models in every numerics tier: one element is one operation.

use std::time::Duration;

use benches::Result;
use benches::model::{qwen2, smollm2};
use benches::random::Random;
use criterion::{BenchmarkId, Criterion, Throughput};
use engine::model::linear::{Linear, Numerics, Rounded};

const TIERS: [Numerics; 3] = [Numerics::F32, Numerics::Int16, Numerics::Int8];
/// Rows of a full forward, and of one short record.
const ROWS: [usize; 2] = [512, 64];

fn main() -> Result<()> {
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(1))
        .configure_from_args();
    let mut random = Random(1);
    let mut group = criterion.benchmark_group("gemm");
    for (name, model) in [("smollm2-135m", smollm2()), ("qwen2.5-0.5b", qwen2())] {
        let (hidden, wide) = (model.hidden, model.feed_forward);
        let shapes = [
            ("qkv", hidden, model.qkv_width()),
            ("gate and up", hidden, 2 * wide),
            ("down", wide, hidden),
        ];
        for (part, inputs, outputs) in shapes {
            let weight = random.floats(inputs * outputs);
            for numerics in TIERS {
                let linear = Linear::new(inputs, outputs, weight.clone(), None, numerics);
                for rows in ROWS {
                    let x = random.floats(rows * inputs);
                    let mut out = vec![0.0; rows * outputs];
                    let mut rounded = Rounded::default();
                    let operations = 2 * rows * inputs * outputs;
                    group.throughput(Throughput::Elements(operations as u64));
                    let tier = format!("{numerics:?}").to_lowercase();
                    let shape = format!("{rows}x{inputs}x{outputs}");
                    let id = BenchmarkId::new(format!("{name} {part} {tier}"), shape);
                    group.bench_function(id, |bench| {
                        bench.iter(|| linear.forward(&x, true, &mut rounded, &mut out));
                    });
                }
            }
        }
    }
    group.finish();
    criterion.final_summary();
    Ok(())
}
