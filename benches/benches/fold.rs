//! The fold of facts in memory, against hash-map group-bys of the same facts, and one change.

use std::hint::black_box;
use std::time::Duration;

use benches::Result;
use benches::facts::{fact, group_by, group_by_units, plan};
use criterion::{BenchmarkId, Criterion, Throughput};
use operator::fact::{Fact, Status};
use operator::fold::{Leaves, SealedFacts, Tree, UnitRef, fold};
use operator::ops;

fn main() -> Result<()> {
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(4))
        .configure_from_args();
    let plan = plan()?;
    let spec = ops::reduce::spec(&plan);
    let mut group = criterion.benchmark_group("fold");
    for leaves in [10_000_u32, 100_000] {
        let facts: Vec<Fact> = (0..leaves).map(fact).collect();
        group.throughput(Throughput::Elements(leaves.into()));
        group.bench_function(BenchmarkId::new("group by", leaves), |bench| {
            bench.iter(|| group_by(black_box(&facts)));
        });
        group.bench_function(BenchmarkId::new("group by, no repeats", leaves), |bench| {
            bench.iter(|| group_by_units(black_box(&facts)));
        });
        let sealed = SealedFacts::seal(facts);
        // A refused fold would be a fast one: once where an error can be seen.
        fold(&Leaves::arrange(&spec, &sealed)?, &(), &|_, _| {})?;
        group.bench_function(BenchmarkId::new("fold", leaves), |bench| {
            bench.iter(|| {
                let leaves = Leaves::arrange(&spec, &sealed);
                leaves.and_then(|leaves| fold(&leaves, &(), &|_, _| {}))
            });
        });
        group.throughput(Throughput::Elements(1));
        let mut tree = Tree::fold(&Leaves::arrange(&spec, &sealed)?)?;
        let facts = sealed.into_facts();
        let siblings = |unit: &UnitRef| {
            let place: usize = unit.id.as_str().parse().unwrap_or(0);
            Ok(facts[place].clone())
        };
        let mut place = 0;
        group.bench_function(BenchmarkId::new("one change", leaves), |bench| {
            bench.iter(|| {
                place = (place + 7_919) % facts.len();
                let mut changed = facts[place].clone();
                changed.status = Status::Abstained;
                tree.put(&changed, &siblings).is_ok()
            });
        });
    }
    group.finish();
    criterion.final_summary();
    Ok(())
}
