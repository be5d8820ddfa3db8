//! The state of a reduction over some leaves, in one flat pass with ordinary maps and sorts.
//!
//! The bounds named here are part of what an operation means; they are written out again, so that
//! a change of the operation does not silently change what is verified.

use std::collections::{BTreeMap, BTreeSet};

use super::components;
use super::read::{backs, key, number, selects};
use super::shape::Leaf;
use crate::canonical::Canonical;
use crate::fact::Status;
use crate::fold::UnitRef;
use crate::plan::{ColumnRef, KeySource, Measure, Operation, Order, Plan, Reduce};
use crate::reducers::{
    AggregateState, ClusterState, DistinctState, ExtremeState, Groups, HitterState, JoinState,
    QuantileState, Ranked, SumState,
};

/// Units that a set without a key lists.
const SET_UNITS_MAX: usize = 65_536;
/// Keys of one side of a join.
pub(super) const JOIN_KEYS_MAX: u32 = 65_536;
/// Numbers up to which quantiles are exact.
const QUANTILES_EXACT_MAX: usize = 100_000;
/// Significant bits of a bucket's lower end, the leading one included.
const BUCKET_BITS: u32 = 8;
/// Registers of a distinct count.
pub(super) const REGISTERS: usize = 4_096;
/// Different values up to which they are counted exactly.
const DISTINCT_EXACT_MAX: usize = 5 * REGISTERS;

/// The state of a reduction over leaves in key order; none for a summary.
///
/// `hitters` are the counters of `heavy_hitters`, the only state that is not a function of the
/// leaves alone.
pub(super) fn state(
    plan: &Plan,
    reduce: &Reduce,
    leaves: &[Leaf<'_>],
    hitters: impl FnOnce() -> HitterState,
) -> Option<AggregateState> {
    let cites = reduce.cite_max as usize;
    let backing = || leaves.iter().filter(|leaf| backs(reduce, leaf.fact));
    let first = || ranked(backing().map(|leaf| (0, &leaf.unit)), cites);
    let by_key = |source: &KeySource, keys_max: u32| {
        let keyed = backing().filter_map(|leaf| Some((key(source, leaf.fact)?, 0, &leaf.unit)));
        grouped(keyed, cites, keys_max as usize)
    };
    let by_number = |measure: &Measure, largest: bool, most: usize| {
        let turned = backing().filter_map(|leaf| {
            let number = number(measure, leaf.fact)?;
            Some((if largest { !number } else { number }, &leaf.unit))
        });
        ranked(turned, most)
    };
    let numbers = |column: &ColumnRef| -> Vec<i64> {
        let measure = Measure::Column(column.clone());
        backing()
            .filter_map(|leaf| number(&measure, leaf.fact))
            .collect()
    };
    let extreme = |column: &ColumnRef, largest| {
        let found = numbers(column);
        let best = if largest {
            found.iter().max()
        } else {
            found.iter().min()
        };
        AggregateState::Extreme(ExtremeState {
            units: by_number(&Measure::Column(column.clone()), largest, cites.max(1)),
            sharing: found.iter().filter(|number| Some(*number) == best).count() as u64,
        })
    };
    Some(match &reduce.op {
        Operation::Count => AggregateState::Count(first()),
        Operation::CountBy { key, keys_max, .. } => AggregateState::CountBy(by_key(key, *keys_max)),
        Operation::Set {
            key: Some(key),
            keys_max,
        } => AggregateState::Set(by_key(key, *keys_max)),
        Operation::Set { key: None, .. } => {
            let units = backing().map(|leaf| (String::new(), 0, &leaf.unit));
            AggregateState::Set(grouped(units, SET_UNITS_MAX, 1))
        }
        Operation::TopK { by, k, order } => {
            AggregateState::TopK(by_number(by, *order == Order::Largest, *k as usize))
        }
        Operation::TopKeys { key, keys_max, .. } => AggregateState::TopKeys(by_key(key, *keys_max)),
        Operation::Histogram { by, edges } => {
            let binned = backing().filter_map(|leaf| {
                let number = number(by, leaf.fact)?;
                let bin = edges.iter().filter(|edge| **edge <= number).count();
                Some((format!("{bin:02}"), 0, &leaf.unit))
            });
            AggregateState::Histogram(grouped(binned, cites, edges.len() + 1))
        }
        Operation::Min(column) => extreme(column, false),
        Operation::Max(column) => extreme(column, true),
        Operation::Sum(column) | Operation::Mean(column) => AggregateState::Sum(SumState {
            sum: numbers(column).into_iter().map(i128::from).sum(),
            units: first(),
        }),
        Operation::Quantiles { column, .. } => {
            let numbers = numbers(column);
            let bucketed = numbers.len() > QUANTILES_EXACT_MAX;
            let mut counts = BTreeMap::new();
            for number in numbers {
                let number = if bucketed { bucket(number) } else { number };
                *counts.entry(number).or_insert(0) += 1;
            }
            AggregateState::Quantiles(QuantileState {
                units: first(),
                bucketed,
                counts,
            })
        }
        Operation::HeavyHitters { .. } => AggregateState::HeavyHitters(hitters()),
        Operation::Distinct(column) => {
            let source = KeySource::Column(column.clone());
            let values = backing().filter_map(|leaf| key(&source, leaf.fact));
            let mut hashes: BTreeSet<u64> = values.map(|value| hash_value(&value)).collect();
            let mut registers = Vec::new();
            if hashes.len() > DISTINCT_EXACT_MAX {
                registers = register(&hashes);
                hashes.clear();
            }
            AggregateState::Distinct(DistinctState {
                units: first(),
                hashes,
                registers,
            })
        }
        Operation::Join { left, right, .. } => {
            let [left, right] = [left, right].map(|side| {
                let keyed = leaves
                    .iter()
                    .filter(|leaf| selects(&side.filter, leaf.fact))
                    .filter_map(|leaf| Some((key(&side.key, leaf.fact)?, 0, &leaf.unit)));
                grouped(keyed, cites, JOIN_KEYS_MAX as usize)
            });
            AggregateState::Join(JoinState { left, right })
        }
        Operation::Clusters {
            field,
            exemplars,
            dissent,
            ..
        } => {
            let label = KeySource::Label(field.clone());
            let sure = Measure::Probability {
                field: field.clone(),
                label: None,
            };
            let labelled: Vec<(String, i64, &UnitRef)> = backing()
                .filter(|leaf| leaf.fact.status == Status::Decided)
                .filter_map(|leaf| {
                    let rank = !number(&sure, leaf.fact).unwrap_or(0);
                    Some((key(&label, leaf.fact)?, rank, &leaf.unit))
                })
                .collect();
            let outliers = plan.fold.outliers_max as usize + 1;
            let dissenting = labelled
                .iter()
                .filter(|(label, ..)| dissent.contains(label))
                .map(|(.., unit)| (0, *unit));
            let abstained = backing()
                .filter(|leaf| leaf.fact.status == Status::Abstained)
                .map(|leaf| (0, &leaf.unit));
            AggregateState::Clusters(ClusterState {
                dissent: ranked(dissenting, outliers),
                abstained: ranked(abstained, outliers),
                clusters: grouped(labelled, *exemplars as usize, usize::MAX),
            })
        }
        Operation::Components {
            label,
            keys_max,
            field,
            ..
        } => AggregateState::Components(components::state(
            backing().map(|leaf| (leaf, key(&KeySource::Label(field.clone()), leaf.fact))),
            label,
            *keys_max,
            cites,
        )),
        Operation::Summary { .. } => return None,
    })
}

/// The units of a rank order, at most `most` of them named, all of them counted.
pub(super) fn ranked<'a>(
    units: impl IntoIterator<Item = (i64, &'a UnitRef)>,
    most: usize,
) -> Ranked {
    let mut best: Vec<(i64, UnitRef)> = units
        .into_iter()
        .map(|(rank, unit)| (rank, unit.clone()))
        .collect();
    best.sort_by_key(|(rank, unit)| (*rank, unit.key));
    let total = best.len() as u64;
    best.truncate(most);
    Ranked { total, best }
}

/// Units by key; with more keys than allowed only their number is left.
pub(super) fn grouped<'a>(
    units: impl IntoIterator<Item = (String, i64, &'a UnitRef)>,
    most: usize,
    keys_max: usize,
) -> Groups {
    let mut by_key: BTreeMap<String, Vec<(i64, &UnitRef)>> = BTreeMap::new();
    for (key, rank, unit) in units {
        by_key.entry(key).or_default().push((rank, unit));
    }
    let total = by_key.values().map(|units| units.len() as u64).sum();
    let overflowed = by_key.len() > keys_max;
    if overflowed {
        by_key.clear();
    }
    let groups = by_key
        .into_iter()
        .map(|(key, units)| (key, ranked(units, most)))
        .collect();
    Groups {
        total,
        overflowed,
        groups,
    }
}

/// The number with all but its leading bits zero; towards zero, so that the size never grows.
fn bucket(number: i64) -> i64 {
    let size = number.unsigned_abs();
    let length = u64::BITS - size.leading_zeros();
    let dropped = length.saturating_sub(BUCKET_BITS);
    let kept = size - size % (1 << dropped);
    if number < 0 {
        0_i64.saturating_sub_unsigned(kept)
    } else {
        kept as i64
    }
}

fn hash_value(value: &str) -> u64 {
    let mut text = Canonical::new("operator 2026 distinct v1");
    text.text(value);
    let digest = text.digest();
    let low = digest[..8].iter().rev();
    low.fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// The longest run of zero bits after the twelve that choose a register, plus one.
fn register(hashes: &BTreeSet<u64>) -> Vec<u8> {
    let mut registers = vec![0; REGISTERS];
    for hash in hashes {
        let place = (hash >> 52) as usize;
        let rest = hash << 12;
        let run = rest.leading_zeros().min(52) as u8 + 1;
        registers[place] = registers[place].max(run);
    }
    registers
}

/// One more input of a node on its way through the counters of `heavy_hitters`.
pub(super) enum Counted<'a> {
    /// A fact that carries this key.
    Key(String),
    /// The counters of a node below.
    Node(&'a HitterState),
}

/// Replays the counters over a node's inputs: each is added, and past `k` keys the size of the
/// largest counter without a place is taken off all.
pub(super) fn hitters<'a>(inputs: impl IntoIterator<Item = Counted<'a>>, k: usize) -> HitterState {
    let mut held = HitterState::default();
    for input in inputs {
        let one;
        let added = match input {
            Counted::Node(state) => state,
            Counted::Key(key) => {
                one = HitterState {
                    total: 1,
                    error_max: 0,
                    counters: BTreeMap::from([(key, 1)]),
                };
                &one
            }
        };
        held.total += added.total;
        held.error_max += added.error_max;
        for (key, count) in &added.counters {
            *held.counters.entry(key.clone()).or_default() += count;
        }
        let mut sizes: Vec<u64> = held.counters.values().copied().collect();
        sizes.sort_unstable();
        let taken = sizes
            .len()
            .checked_sub(k + 1)
            .map_or(0, |place| sizes[place]);
        held.error_max += taken;
        let counters = std::mem::take(&mut held.counters);
        held.counters = counters
            .into_iter()
            .filter(|(_, count)| *count > taken)
            .map(|(key, count)| (key, count - taken))
            .collect();
    }
    held
}

/// The units that a state names, those that matter most first.
pub(super) fn named(state: &AggregateState, most: usize) -> Vec<&UnitRef> {
    let mut units: Vec<&UnitRef> = match state {
        AggregateState::Count(units) | AggregateState::TopK(units) => listed(units),
        AggregateState::Extreme(held) => listed(&held.units),
        AggregateState::CountBy(groups)
        | AggregateState::Set(groups)
        | AggregateState::TopKeys(groups)
        | AggregateState::Histogram(groups) => in_turn(groups.groups.values()),
        AggregateState::Sum(sum) => listed(&sum.units),
        AggregateState::Quantiles(numbers) => listed(&numbers.units),
        AggregateState::HeavyHitters(_) => Vec::new(),
        AggregateState::Distinct(values) => listed(&values.units),
        AggregateState::Join(sides) => {
            let mut left = in_turn(sides.left.groups.values());
            left.truncate(most);
            left.extend(in_turn(sides.right.groups.values()));
            left
        }
        AggregateState::Components(held) => listed(&held.joining),
        AggregateState::Clusters(held) => {
            let mut units = listed(&held.dissent);
            units.extend(listed(&held.abstained));
            let mut exemplars = in_turn(held.clusters.groups.values());
            exemplars.truncate(most);
            units.extend(exemplars);
            let mut seen = BTreeSet::new();
            units.retain(|unit| seen.insert(unit.key));
            units
        }
    };
    units.truncate(most);
    units
}

/// Everything that is named, in order.
pub(super) fn listed(units: &Ranked) -> Vec<&UnitRef> {
    units.best.iter().map(|(_, unit)| unit).collect()
}

/// The first of each group, then the second of each, and so on.
pub(super) fn in_turn<'a>(groups: impl IntoIterator<Item = &'a Ranked>) -> Vec<&'a UnitRef> {
    let mut turns: BTreeMap<usize, Vec<&UnitRef>> = BTreeMap::new();
    for group in groups {
        for (turn, (_, unit)) in group.best.iter().enumerate() {
            turns.entry(turn).or_default().push(unit);
        }
    }
    turns.into_values().flatten().collect()
}
