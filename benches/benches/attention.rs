//! One layer's attention over four records: under a shared prefix, and with the prefix written out
//! before each record. One element is one token of a record.

use std::time::Duration;

use benches::Result;
use benches::model::{PREFIX_TOKENS, qwen2, sealed, smollm2};
use benches::random::Random;
use criterion::{Criterion, Throughput};
use engine::model::attention::{Attention, Heads, OwnHeads, PackedPrefix};
use engine::model::{Batch, ModelConfig};
use kvcache::KvLayout;

const RECORDS: usize = 4;
const RECORD_TOKENS: usize = 128;

fn heads(config: &ModelConfig) -> Heads {
    Heads {
        query: config.heads,
        kv: config.kv_heads,
        dim: config.head_dim,
    }
}

fn main() -> Result<()> {
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(3))
        .configure_from_args();
    let mut random = Random(2);
    let mut group = criterion.benchmark_group("attention");
    group.throughput(Throughput::Elements((RECORDS * RECORD_TOKENS) as u64));
    for (name, config) in [("smollm2-135m", smollm2()), ("qwen2.5-0.5b", qwen2())] {
        let heads = heads(&config);
        let layout = KvLayout::new(1, heads.kv as u32, heads.dim as u32, 16)?;
        let blocks = layout.blocks_for(PREFIX_TOKENS);
        let (cache, prefix) = sealed(layout, blocks, PREFIX_TOKENS)?;
        let packed = PackedPrefix::new(&prefix, true);
        for shared in [true, false] {
            let len = RECORD_TOKENS + if shared { 0 } else { PREFIX_TOKENS as usize };
            let mut batch = Batch {
                prefix: shared.then(|| prefix.clone()),
                ..Batch::default()
            };
            for _ in 0..RECORDS {
                batch.push(&vec![0; len], None, None);
            }
            let qkv = random.floats(RECORDS * len * config.qkv_width());
            let mut out = vec![0.0; RECORDS * len * heads.query * heads.dim];
            let attention = Attention {
                batch: &batch,
                packed: shared.then_some(&packed),
                cache: &cache,
                layer: 0,
                heads,
                qkv: &qkv,
                integers: true,
                asked_only: false,
            };
            let mut own = OwnHeads::default();
            let how = if shared {
                "shared prefix"
            } else {
                "whole prompts"
            };
            group.bench_function(format!("{name} {how}"), |bench| {
                bench.iter(|| attention.attend(&mut own, &mut out));
            });
        }
    }
    group.finish();
    criterion.final_summary();
    Ok(())
}
