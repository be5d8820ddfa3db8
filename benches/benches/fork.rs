//! Forks of a sealed prefix: taking and giving back, appending to them, sealing; and what a fork
//! would cost if it copied.

use std::hint::black_box;
use std::time::Duration;

use benches::Result;
use benches::model::{sealed, smollm2};
use criterion::{Criterion, Throughput};
use kvcache::Namespace;

const PREFIX_TOKENS: u32 = 700;
const RECORD_TOKENS: u32 = 64;
const FORKS: u32 = 10_000;

fn main() -> Result<()> {
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(4))
        .configure_from_args();
    let layout = smollm2().kv_layout()?;
    let blocks = FORKS * layout.blocks_for(RECORD_TOKENS);
    let (mut cache, prefix) = sealed(layout, blocks, PREFIX_TOKENS)?;
    let mut group = criterion.benchmark_group("fork");

    group.throughput(Throughput::Elements(FORKS.into()));
    group.bench_function("10000 forks, taken and released", |bench| {
        bench.iter(|| {
            let forks: Vec<_> = (0..FORKS)
                .map_while(|_| cache.admit(Some(&prefix), RECORD_TOKENS).ok())
                .collect();
            assert_eq!(forks.len(), FORKS as usize);
            forks.into_iter().for_each(|fork| cache.release(fork));
        });
    });

    group.throughput(Throughput::Elements(1));
    group.bench_function("one fork by copying the prefix", |bench| {
        let heads =
            (0..layout.layers).flat_map(|layer| (0..layout.kv_heads).map(move |h| (layer, h)));
        let heads: Vec<_> = heads.collect();
        bench.iter(|| {
            let copied = heads.iter().map(|&(layer, head)| {
                (
                    prefix.keys(layer, head).to_vec(),
                    prefix.values(layer, head).to_vec(),
                )
            });
            black_box(copied.collect::<Vec<_>>())
        });
    });

    let row = vec![0.5; (layout.kv_heads * layout.head_dim) as usize];
    group.throughput(Throughput::Elements(RECORD_TOKENS.into()));
    group.bench_function("tokens appended to a fork", |bench| {
        bench.iter(|| -> std::result::Result<(), kvcache::CacheError> {
            let mut fork = cache.admit(Some(&prefix), RECORD_TOKENS)?;
            for slot in cache.reserve(&mut fork, RECORD_TOKENS)?.slots {
                for layer in 0..layout.layers {
                    cache.write(layer, slot, &row, &row);
                }
            }
            cache.commit(&mut fork, RECORD_TOKENS);
            cache.release(fork);
            Ok(())
        });
    });

    let ids: Vec<u32> = (0..RECORD_TOKENS).collect();
    group.bench_function("tokens written and sealed", |bench| {
        bench.iter(|| -> std::result::Result<(), kvcache::CacheError> {
            let mut sequence = cache.admit(None, RECORD_TOKENS)?;
            for slot in cache.reserve(&mut sequence, RECORD_TOKENS)?.slots {
                for layer in 0..layout.layers {
                    cache.write(layer, slot, &row, &row);
                }
            }
            cache.commit(&mut sequence, RECORD_TOKENS);
            let short = cache.seal(&Namespace([2; 32]), sequence, &ids)?;
            cache.evict(&short.key())
        });
    });
    group.finish();
    criterion.final_summary();
    Ok(())
}
