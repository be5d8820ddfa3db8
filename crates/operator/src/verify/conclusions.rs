//! What each operation concludes from its state over all facts: value, count and citations, or a
//! refusal.

use serde_json::{Map, Value, json};

use super::components;
use super::compound::{Taxonomy, clusters, join};
use super::read;
use super::shape::Leaf;
use super::states::{
    Counted, JOIN_KEYS_MAX, REGISTERS, grouped, hitters, in_turn, listed, named, state,
};
use crate::coverage::Counts;
use crate::fold::UnitRef;
use crate::infer::PPM;
use crate::plan::{Measure, Operation, Order, Plan, Reduce};
use crate::reducers::{AggregateState, DistinctState, ExtremeState, Groups, Ranked};

/// What a claim says, before it is worded.
pub(super) struct Stated {
    pub(super) value: Value,
    /// What the plan's `{count}` stands for.
    pub(super) count: u64,
    /// The units that back it, the first to be cited first.
    pub(super) units: Vec<UnitRef>,
    /// How many could be cited.
    pub(super) total: u64,
}

/// What a reduction concludes, or why it refuses to; none for a summary.
pub(super) fn conclude(
    plan: &Plan,
    reduce: &Reduce,
    leaves: &[Leaf<'_>],
    counts: Counts,
) -> Option<Result<Stated, String>> {
    let all = state(plan, reduce, leaves, || {
        hitters(std::iter::empty::<Counted<'_>>(), 0)
    })?;
    let most = reduce.cite_max as usize;
    Some(match (&reduce.op, &all) {
        (Operation::Count, AggregateState::Count(units)) => Ok(Stated {
            value: Value::from(units.total),
            count: units.total,
            units: owned(listed(units)),
            total: units.total,
        }),
        (
            Operation::CountBy {
                key,
                labels,
                keys_max,
            },
            AggregateState::CountBy(keys),
        ) => bounded(
            keys,
            &format!("keys of {}", key.name()),
            *keys_max,
            FEWER_KEYS,
        )
        .map(|()| {
            let order = by_count(keys);
            let mut value: Map<String, Value> = order
                .iter()
                .map(|(key, units)| ((*key).clone(), Value::from(units.total)))
                .collect();
            for label in labels
                .iter()
                .filter(|label| !keys.groups.contains_key(*label))
            {
                value.insert(label.clone(), Value::from(0));
            }
            Stated {
                value: Value::Object(value),
                count: keys.total,
                units: owned(in_turn(order.into_iter().map(|(_, units)| units))),
                total: keys.total,
            }
        }),
        (Operation::Set { key, keys_max }, AggregateState::Set(held)) => {
            let what = format!("values of {}", key.as_ref().map_or("", |key| key.name()));
            bounded(held, &what, *keys_max, FEWER_VALUES).map(|()| set(key.is_none(), held))
        }
        (Operation::TopK { by, order, .. }, AggregateState::TopK(units)) => {
            Ok(top_k(by, *order, units))
        }
        (Operation::TopKeys { key, k, keys_max }, AggregateState::TopKeys(keys)) => bounded(
            keys,
            &format!("keys of {}", key.name()),
            *keys_max,
            FEWER_KEYS,
        )
        .map(|()| frequent(by_count(keys).into_iter().take(*k as usize).collect())),
        (Operation::Histogram { by, edges }, AggregateState::Histogram(bins)) => {
            Ok(histogram(by, edges, bins))
        }
        (Operation::Min(_), AggregateState::Extreme(held)) => Ok(extreme(held, false)),
        (Operation::Max(_), AggregateState::Extreme(held)) => Ok(extreme(held, true)),
        (Operation::Sum(_), AggregateState::Sum(sum)) => Ok(Stated {
            value: number(sum.sum),
            count: sum.units.total,
            units: owned(listed(&sum.units)),
            total: sum.units.total,
        }),
        (Operation::Mean(_), AggregateState::Sum(sum)) => Ok(Stated {
            value: match sum.units.total {
                0 => Value::Null,
                units => json!({
                    "mean_milli": number((sum.sum * 1_000).div_euclid(i128::from(units))),
                    "sum": number(sum.sum),
                    "units": units,
                }),
            },
            count: sum.units.total,
            units: owned(listed(&sum.units)),
            total: sum.units.total,
        }),
        (Operation::Quantiles { at, .. }, AggregateState::Quantiles(numbers)) => {
            let sorted = || numbers.counts.iter();
            let rows = at.iter().map(|percent| {
                let wanted = (numbers.units.total * u64::from(*percent))
                    .div_ceil(100)
                    .max(1);
                let mut below = 0;
                let value = sorted().find(|(_, count)| {
                    below += **count;
                    below >= wanted
                });
                json!({ "percent": percent, "value": value.map(|(number, _)| *number) })
            });
            let error = if numbers.bucketed { PPM / 128 } else { 0 };
            Ok(Stated {
                value: json!({ "quantiles": rows.collect::<Vec<_>>(), "error_max_ppm": error }),
                count: numbers.units.total,
                units: owned(listed(&numbers.units)),
                total: numbers.units.total,
            })
        }
        (Operation::HeavyHitters { key, k }, AggregateState::HeavyHitters(_)) => {
            let keyed = leaves
                .iter()
                .filter(|leaf| read::backs(reduce, leaf.fact))
                .filter_map(|leaf| Some((read::key(key, leaf.fact)?, 0, &leaf.unit)));
            let keys = grouped(keyed, most, usize::MAX);
            let over = |units: &Ranked| units.total * (u64::from(*k) + 1) > keys.total;
            let order = by_count(&keys).into_iter();
            Ok(frequent(order.filter(|(_, units)| over(units)).collect()))
        }
        (Operation::Distinct(_), AggregateState::Distinct(values)) => Ok(distinct(values)),
        (Operation::Join { left, right, kind }, AggregateState::Join(sides)) => {
            let what = |key: &str| format!("keys of {key} in a join");
            bounded(
                &sides.left,
                &what(left.key.name()),
                JOIN_KEYS_MAX,
                NARROWER_SIDE,
            )
            .and_then(|()| {
                let what = what(right.key.name());
                bounded(&sides.right, &what, JOIN_KEYS_MAX, NARROWER_SIDE)
            })
            .and_then(|()| join(*kind, sides, counts, most))
        }
        (
            Operation::Clusters {
                field,
                labels,
                taxonomy,
                unclustered,
                ..
            },
            AggregateState::Clusters(held),
        ) => clusters(
            &Taxonomy {
                field,
                labels,
                version: taxonomy,
                unclustered: unclustered.as_deref(),
                outliers_max: plan.fold.outliers_max,
            },
            held,
            named(&all, most),
        ),
        (
            Operation::Components {
                field, keys_max, ..
            },
            AggregateState::Components(held),
        ) => components::conclude(field, *keys_max, held),
        _ => return None,
    })
}

const FEWER_KEYS: &str =
    "count by something with fewer values, use heavy_hitters, or raise keys_max";
const FEWER_VALUES: &str = "narrow its where, use distinct, or raise keys_max";
const NARROWER_SIDE: &str = "narrow the side's where";
pub(super) fn overflow(what: &str, most: u32, cure: &str) -> String {
    format!("more than {most} {what}; {cure}")
}

fn bounded(groups: &Groups, what: &str, most: u32, cure: &str) -> Result<(), String> {
    match groups.overflowed {
        true => Err(overflow(what, most, cure)),
        false => Ok(()),
    }
}

/// Keys with their units, most frequent first; a stable sort keeps equals in key order.
fn by_count(keys: &Groups) -> Vec<(&String, &Ranked)> {
    let mut order: Vec<(&String, &Ranked)> = keys.groups.iter().collect();
    order.sort_by_key(|(_, units)| std::cmp::Reverse(units.total));
    order
}

fn frequent(keys: Vec<(&String, &Ranked)>) -> Stated {
    let rows: Vec<Value> = keys
        .iter()
        .map(|(key, units)| json!({ "label": key, "count": units.total }))
        .collect();
    Stated {
        count: rows.len() as u64,
        value: Value::Array(rows),
        total: keys.iter().map(|(_, units)| units.total).sum(),
        units: owned(in_turn(keys.into_iter().map(|(_, units)| units))),
    }
}

fn set(of_units: bool, held: &Groups) -> Stated {
    let units = in_turn(held.groups.values());
    let members: Vec<&str> = match of_units {
        true => units.iter().map(|unit| unit.id.as_str()).collect(),
        false => held.groups.keys().map(String::as_str).collect(),
    };
    Stated {
        value: json!(members),
        count: if of_units {
            held.total
        } else {
            members.len() as u64
        },
        units: owned(units),
        total: held.total,
    }
}

fn top_k(by: &Measure, order: Order, units: &Ranked) -> Stated {
    let name = match by {
        Measure::Probability { .. } => "probability_ppm",
        Measure::Column(_) => "value",
    };
    let rows: Vec<Value> = units
        .best
        .iter()
        .map(|(rank, unit)| {
            let number = if order == Order::Largest {
                !rank
            } else {
                *rank
            };
            json!({ "unit_id": unit.id, name: number })
        })
        .collect();
    let total = rows.len() as u64;
    Stated {
        value: Value::Array(rows),
        count: total,
        units: owned(listed(units)),
        total,
    }
}

fn histogram(by: &Measure, edges: &[i64], bins: &Groups) -> Stated {
    let (suffix, low, high) = match by {
        Measure::Probability { .. } => ("_ppm", Some(0), Some(i64::from(PPM))),
        Measure::Column(_) => ("", None, None),
    };
    let ends: Vec<Option<i64>> = std::iter::once(low)
        .chain(edges.iter().map(|edge| Some(*edge)))
        .chain([high])
        .collect();
    let rows: Vec<Value> = ends
        .windows(2)
        .enumerate()
        .map(|(bin, ends)| {
            let units = bins.groups.get(&format!("{bin:02}"));
            json!({
                (format!("from{suffix}")): ends[0],
                (format!("to{suffix}")): ends[1],
                "count": units.map_or(0, |units| units.total),
            })
        })
        .collect();
    Stated {
        value: Value::Array(rows),
        count: bins.total,
        units: owned(in_turn(bins.groups.values())),
        total: bins.total,
    }
}

fn extreme(held: &ExtremeState, largest: bool) -> Stated {
    let units = &held.units;
    let best = units.best.first().map(|(rank, _)| *rank);
    let sharing = units.best.iter().filter(|(rank, _)| Some(*rank) == best);
    Stated {
        value: best.map_or(Value::Null, |rank| {
            Value::from(if largest { !rank } else { rank })
        }),
        count: units.total,
        units: sharing.map(|(_, unit)| unit.clone()).collect(),
        total: held.sharing,
    }
}

/// A number, as text where it needs more than 64 bits.
fn number(value: i128) -> Value {
    match i64::try_from(value) {
        Ok(number) => Value::from(number),
        Err(_) => Value::from(value.to_string()),
    }
}

/// The number of different values: as counted, or by the estimate of Flajolet et al. (2007),
/// `alpha m^2 / sum(2^-register)` with `alpha = 0.7213 / (1 + 1.079 / m)`, in whole numbers.
fn distinct(values: &DistinctState) -> Stated {
    let units = &values.units;
    let (value, count) = if values.registers.is_empty() {
        let count = values.hashes.len() as u64;
        (Value::from(count), count)
    } else {
        let m = REGISTERS as u128;
        let sum: u128 = values.registers.iter().map(|run| 1_u128 << 64 >> run).sum();
        let scaled = 7_213_000 * m.pow(3) / (10_000 * (1_000 * m + 1_079));
        let count = u64::try_from((scaled << 64) / sum.max(1)).unwrap_or(u64::MAX);
        let value = json!({ "estimate": count, "standard_error_ppm": 16_250 });
        (value, count)
    };
    Stated {
        value,
        count,
        units: owned(listed(units)),
        total: units.total,
    }
}

pub(super) fn owned(units: Vec<&UnitRef>) -> Vec<UnitRef> {
    units.into_iter().cloned().collect()
}
