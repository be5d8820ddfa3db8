//! Every claim, computed from all facts at once and compared with the one that was recorded.
//!
//! A summary is no claim of the fold: of it only numbers and citations are checked, which must
//! come from the claims that it summarises.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::difference::difference;
use super::nodes::tally;
use super::shape::Leaf;
use super::states::{
    Counted, JOIN_KEYS_MAX, REGISTERS, grouped, hitters, in_turn, listed, named, state,
};
use super::{Place, Report, Subject, read, wording};
use crate::answer::Claim;
use crate::coverage::Counts;
use crate::fact::Cite;
use crate::fold::UnitRef;
use crate::infer::PPM;
use crate::plan::{JoinKind, Measure, Operation, Order, Plan, Reduce};
use crate::reducers::{AggregateState, ClusterState, DistinctState, Groups, JoinState, Ranked};

/// What a claim says, before it is worded.
pub(super) struct Stated {
    pub(super) value: Value,
    /// What the plan's `{count}` stands for.
    pub(super) count: u64,
    /// The units that back it, the first to be cited first.
    units: Vec<UnitRef>,
    /// How many could be cited.
    total: u64,
}

/// The claims that facts in key order give, in plan order; summaries are left out.
pub(super) fn derive(plan: &Plan, leaves: &[Leaf<'_>]) -> Vec<Claim> {
    let counts = tally(leaves.iter().map(|leaf| leaf.fact));
    plan.reduces
        .iter()
        .filter_map(|reduce| {
            let stated = match conclude(plan, reduce, leaves, counts)? {
                Ok(stated) => stated,
                Err(refusal) => {
                    return Some(Claim {
                        name: reduce.name.clone(),
                        text: format!("{} is not answered: {refusal}", reduce.name),
                        value: Value::Null,
                        refused: Some(refusal),
                        cites: Vec::new(),
                        cites_total: 0,
                    });
                }
            };
            let most = reduce.cite_max as usize;
            let cites: Vec<Cite> = stated
                .units
                .iter()
                .take(most)
                .filter_map(|unit| cite(unit, leaves))
                .collect();
            // The units that share an extreme are known only as far as they are named.
            let capped = matches!(reduce.op, Operation::Min(_) | Operation::Max(_));
            Some(Claim {
                name: reduce.name.clone(),
                text: wording::word(reduce, &stated, counts),
                value: stated.value,
                refused: None,
                cites_total: if capped {
                    cites.len() as u64
                } else {
                    stated.total
                },
                cites,
            })
        })
        .collect()
}

fn cite(unit: &UnitRef, leaves: &[Leaf<'_>]) -> Option<Cite> {
    let place = leaves
        .binary_search_by_key(&unit.key, |leaf| leaf.unit.key)
        .ok()?;
    let fact = leaves[place].fact;
    Some(Cite {
        unit_id: fact.unit_id.clone(),
        source_hash: fact.source_hash,
        span: fact.evidence.first().cloned(),
    })
}

fn owned(units: Vec<&UnitRef>) -> Vec<UnitRef> {
    units.into_iter().cloned().collect()
}

/// What a reduction concludes, or why it refuses to; none for a summary.
fn conclude(
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
        (Operation::Min(_), AggregateState::Extreme(units)) => Ok(extreme(units, false)),
        (Operation::Max(_), AggregateState::Extreme(units)) => Ok(extreme(units, true)),
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
        _ => return None,
    })
}

const FEWER_KEYS: &str =
    "count by something with fewer values, use heavy_hitters, or raise keys_max";
const FEWER_VALUES: &str = "narrow its where, use distinct, or raise keys_max";
const NARROWER_SIDE: &str = "narrow the side's where";
const MORE_OUTLIERS: &str =
    "raise outliers_max under [fold]: outliers are named or nothing is answered";

fn overflow(what: &str, most: u32, cure: &str) -> String {
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

fn extreme(units: &Ranked, largest: bool) -> Stated {
    let best = units.best.first().map(|(rank, _)| *rank);
    let sharing = units.best.iter().filter(|(rank, _)| Some(*rank) == best);
    Stated {
        value: best.map_or(Value::Null, |rank| {
            Value::from(if largest { !rank } else { rank })
        }),
        count: units.total,
        units: sharing.map(|(_, unit)| unit.clone()).collect(),
        total: 0,
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

fn join(kind: JoinKind, sides: &JoinState, counts: Counts, most: usize) -> Result<Stated, String> {
    let missing = counts.errored + counts.cancelled + counts.not_run;
    if kind != JoinKind::Inner && missing > 0 {
        return Err(format!(
            "a join that names keys without a partner needs every unit, and {missing} of {} have \
             no answer; run them, or ask for an inner join",
            counts.units
        ));
    }
    let units = |side: &Groups, key: &str| side.groups.get(key).map_or(0, |units| units.total);
    let keys: BTreeSet<&String> = match kind {
        JoinKind::Outer | JoinKind::Inner => sides
            .left
            .groups
            .keys()
            .chain(sides.right.groups.keys())
            .collect(),
        JoinKind::Anti => sides.left.groups.keys().collect(),
    };
    let keys: Vec<&String> = keys
        .into_iter()
        .filter(|key| {
            let both = units(&sides.left, key) > 0 && units(&sides.right, key) > 0;
            match kind {
                JoinKind::Inner => both,
                JoinKind::Outer => true,
                JoinKind::Anti => !both,
            }
        })
        .collect();
    let rows: Vec<Value> = keys
        .iter()
        .map(|key| {
            let (left, right) = (units(&sides.left, key), units(&sides.right, key));
            let pairs = left.saturating_mul(right);
            json!({ "label": key, "left": left, "right": right, "pairs": pairs })
        })
        .collect();
    let of = |side: &Groups| -> Vec<UnitRef> {
        let mut units = owned(in_turn(keys.iter().filter_map(|key| side.groups.get(*key))));
        units.truncate(most);
        units
    };
    let total = |side: &Groups| -> u64 { keys.iter().map(|key| units(side, key)).sum() };
    Ok(Stated {
        count: rows.len() as u64,
        value: Value::Array(rows),
        units: [of(&sides.left), of(&sides.right)].concat(),
        total: total(&sides.left) + total(&sides.right),
    })
}

struct Taxonomy<'a> {
    field: &'a str,
    labels: &'a [String],
    version: &'a str,
    unclustered: Option<&'a str>,
    outliers_max: u32,
}

fn clusters(
    taxonomy: &Taxonomy<'_>,
    held: &ClusterState,
    cited: Vec<&UnitRef>,
) -> Result<Stated, String> {
    let ids = |units: &Ranked| -> Vec<String> {
        listed(units)
            .into_iter()
            .map(|unit| unit.id.to_string())
            .collect()
    };
    for (what, units) in [
        ("dissenting", &held.dissent),
        ("abstaining", &held.abstained),
    ] {
        if units.total > u64::from(taxonomy.outliers_max) {
            let what = format!("{what} units of {}", taxonomy.field);
            return Err(overflow(&what, taxonomy.outliers_max, MORE_OUTLIERS));
        }
    }
    let none = Ranked::default();
    let of = |label: &str| held.clusters.groups.get(label).unwrap_or(&none);
    let rows: Vec<Value> = taxonomy
        .labels
        .iter()
        .filter(|label| Some(label.as_str()) != taxonomy.unclustered)
        .map(|label| {
            let units = of(label);
            json!({ "label": label, "count": units.total, "exemplars": ids(units) })
        })
        .collect();
    Ok(Stated {
        value: json!({
            "taxonomy": taxonomy.version,
            "clusters": rows,
            "unclustered": taxonomy.unclustered.map_or(0, |label| of(label).total),
            "dissent": ids(&held.dissent),
            "abstained": ids(&held.abstained),
        }),
        count: held.clusters.total,
        units: owned(cited),
        total: held.clusters.total + held.abstained.total,
    })
}

/// Compares the recorded claims with the derived ones, in plan order.
pub(super) fn check(subject: Subject<'_>, right: &[Claim], report: &mut Report) {
    let is_summary = |claim: &Claim| {
        let mut reduces = subject.plan.reduces.iter();
        reduces.any(|reduce| {
            reduce.name == claim.name && matches!(reduce.op, Operation::Summary { .. })
        })
    };
    let found: Vec<&Claim> = subject.answer.claims.iter().collect();
    let (summaries, found): (Vec<&Claim>, Vec<&Claim>) =
        found.into_iter().partition(|claim| is_summary(claim));
    for summary in summaries {
        check_summary(subject, summary, report);
    }
    for (place, right) in right.iter().enumerate() {
        let named = found.iter().position(|claim| claim.name == right.name);
        let at = Place::Claim(right.name.clone());
        let Some(row) = named else {
            report.content(at, "is not made");
            continue;
        };
        if row != place {
            report.content(at, format!("is made at place {row}, {place} is right"));
        }
        compare(found[row], right, report);
    }
    for (row, claim) in found.iter().enumerate() {
        let mut before = found[..row].iter();
        let place = Place::Claim(claim.name.clone());
        if before.any(|other| other.name == claim.name) {
            report.content(place, "is made twice");
        } else if right.iter().all(|right| right.name != claim.name) {
            report.content(place, "is made, and the plan asks for no such claim");
        }
    }
}

fn compare(found: &Claim, right: &Claim, report: &mut Report) {
    report.checked.claims += 1;
    report.checked.cites += found.cites.len() as u64;
    let parts = [
        ("its value", difference(&found.value, &right.value)),
        ("its text", difference(&found.text, &right.text)),
        ("refused", difference(&found.refused, &right.refused)),
        ("cites:", difference(&found.cites, &right.cites)),
        (
            "cites_total",
            difference(&found.cites_total, &right.cites_total),
        ),
    ];
    for (what, differs) in parts {
        if let Some(differs) = differs {
            report.content(
                Place::Claim(found.name.clone()),
                format!("{what} {differs}"),
            );
        }
    }
}

/// A summary may name only numbers and units that the claims it summarises name.
fn check_summary(subject: Subject<'_>, summary: &Claim, report: &mut Report) {
    let mut reduces = subject.plan.reduces.iter();
    let Some(Operation::Summary { of, .. }) = reduces
        .find(|reduce| reduce.name == summary.name)
        .map(|reduce| &reduce.op)
    else {
        return;
    };
    let sources: Vec<&Claim> = subject
        .answer
        .claims
        .iter()
        .filter(|claim| of.contains(&claim.name))
        .collect();
    let known: BTreeSet<String> = sources
        .iter()
        .flat_map(|claim| [numbers(&claim.text), numbers(&claim.value.to_string())])
        .flatten()
        .collect();
    let place = || Place::Claim(summary.name.clone());
    for number in numbers(&summary.text) {
        if !known.contains(&number) {
            let problem = format!("its text says {number}, no claim that it summarises does");
            report.content(place(), problem);
        }
    }
    for cite in &summary.cites {
        if !sources.iter().any(|claim| claim.cites.contains(cite)) {
            let problem = format!(
                "cites unit {}, no claim that it summarises does",
                cite.unit_id
            );
            report.content(place(), problem);
        }
    }
    report.checked.claims += 1;
    report.checked.cites += summary.cites.len() as u64;
}

/// Runs of digits in a text.
fn numbers(text: &str) -> Vec<String> {
    text.split(|char: char| !char.is_ascii_digit())
        .filter(|run| !run.is_empty())
        .map(str::to_owned)
        .collect()
}
