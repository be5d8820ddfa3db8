//! How long a fold takes, what it holds, and what one changed record then costs.
//!
//! ```text
//! cargo run --release -p benches --bin fold_scale              # time, 10^4 to 10^6 leaves
//! cargo run --release -p benches --bin fold_scale -- memory 1000000
//! ```
//!
//! `time` folds facts that lie in memory, alternating with hash-map group-bys of the same facts into
//! the same counts and first units, and prints medians and ratios: against a plain one, and against
//! one that refuses a unit delivered twice, as the fold does. Leaves are sealed (hashed) when facts
//! are made; what that costs is shown apart.
//! `memory` folds facts that are made as they are read, so that what the process holds is what the
//! fold holds.

use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

use benches::facts::{fact, group_by, group_by_units, plan};
use operator::fact::{Fact, Status};
use operator::fold::{FactRef, FactRows, Leaves, SealedFacts, Tree, UnitRef, fold};
use operator::{OperatorError, Plan, ops};

const ROUNDS: usize = 7;

/// Facts that exist only while they are read.
struct Made(usize);

impl FactRows for Made {
    fn len(&self) -> usize {
        self.0
    }

    fn read(&self, position: usize) -> Result<FactRef<'_>, OperatorError> {
        Ok(FactRef::Made(Box::new(fact(position as u32))))
    }
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn time(plan: &Plan, leaves: usize) -> Result<(), Box<dyn Error>> {
    let facts: Vec<Fact> = (0..leaves as u32).map(fact).collect();
    let spec = ops::reduce::spec(plan);
    let (mut folds, mut groups, mut strict, mut seals) = (vec![], vec![], vec![], vec![]);
    let mut held = Some(facts);
    for _ in 0..ROUNDS {
        let facts = held.take().unwrap_or_default();
        let started = Instant::now();
        black_box(group_by(&facts));
        groups.push(started.elapsed().as_secs_f64());
        let started = Instant::now();
        black_box(group_by_units(&facts));
        strict.push(started.elapsed().as_secs_f64());
        let started = Instant::now();
        let sealed = SealedFacts::seal(facts);
        seals.push(started.elapsed().as_secs_f64());
        let started = Instant::now();
        let arranged = Leaves::arrange(&spec, &sealed)?;
        black_box(fold(&arranged, &(), &|_, _| {})?);
        folds.push(started.elapsed().as_secs_f64());
        held = Some(sealed.into_facts());
    }
    let facts = held.unwrap_or_default();
    let mut tree = Tree::fold(&Leaves::arrange(&spec, &facts)?)?;
    let mut changes = Vec::new();
    for round in 0..101_usize {
        let place = (round * 7_919) % leaves;
        let mut changed = facts[place].clone();
        changed.status = Status::Abstained;
        let siblings = |unit: &UnitRef| {
            let place: usize = unit.id.as_str().parse().unwrap_or(0);
            Ok(facts[place].clone())
        };
        let started = Instant::now();
        tree.put(&changed, &siblings)?;
        changes.push(started.elapsed().as_secs_f64());
    }
    let most = changes.iter().copied().fold(0.0, f64::max);
    let (fold, group, strict) = (median(folds), median(groups), median(strict));
    println!(
        "{leaves:>8} leaves  fold {:7.2} ms ({:3.0} ns a leaf), group-by {:6.2} ms: {:4.2} times; \
         refusing repeats {:6.2} ms: {:4.2} times; sealing {:7.2} ms; {} nodes; one change {:.3} ms \
         (at most {:.3})",
        fold * 1e3,
        fold * 1e9 / leaves as f64,
        group * 1e3,
        fold / group,
        strict * 1e3,
        fold / strict,
        median(seals) * 1e3,
        tree.nodes().len(),
        median(changes) * 1e3,
        most * 1e3,
    );
    Ok(())
}

/// Peak resident memory of this process in KiB, where the system tells.
fn peak_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

fn memory(plan: &Plan, leaves: usize) -> Result<(), Box<dyn Error>> {
    let before = peak_kib();
    let spec = ops::reduce::spec(plan);
    let rows = Made(leaves);
    let arranged = Leaves::arrange(&spec, &rows)?;
    let (root, work) = fold(&arranged, &(), &|_, _| {})?;
    let after = peak_kib();
    let units = root.map_or(0, |root| root.coverage.counts.units);
    println!("{units} leaves, {} nodes", work.nodes_computed);
    match (before, after) {
        (Some(before), Some(after)) => println!(
            "peak {after} KiB, {before} KiB of it before the fold: {} bytes a leaf",
            (after - before) * 1024 / units.max(1)
        ),
        _ => println!("this system does not tell peak memory"),
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let plan = plan()?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [mode, leaves] if mode == "memory" => memory(&plan, leaves.parse()?),
        [] => [10_000, 100_000, 1_000_000]
            .into_iter()
            .try_for_each(|leaves| time(&plan, leaves)),
        _ => Err("usage: fold_scale [memory LEAVES]".into()),
    }
}
