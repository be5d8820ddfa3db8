//! reduce: facts to claims, in any order and any tree shape.
//!
//! Turns the plan's reductions into reducers and the folded values into claims. Every number in a
//! claim's text is taken from the folded value. A reduction whose declared bound is exceeded states
//! that instead of a value; the others stand. Must not know files, backends or how facts arose.

mod wording;

use serde_json::Value;

use crate::answer::{Claim, fill, gap, gap_by_rule};
use crate::coverage::Counts;
use crate::error::OperatorError;
use crate::fold::{FoldSpec, FoldWork, Leaves, Node, NodeCache, Reducer, fold};
use crate::plan::{Contract, Operation, Order, Plan, Reduce};
use crate::reducers::{
    Aggregate, Clusters, Components, Count, CountBy, Distinct, Extreme, Folded, HeavyHitters,
    Histogram, Join, Quantiles, Selection, Set, Side, Sum, TopK, TopKeys,
};
use crate::stopping::{self, Restated, StopReport, restate};

/// What folding the facts of a run gave.
#[derive(Debug)]
pub struct Reduction {
    /// One claim per reduction that code folds, in plan order; summaries are not among them.
    pub claims: Vec<Claim>,
    /// Facts or members that each of these claims speaks of; 0 where it is refused.
    pub counted: Vec<u64>,
    /// The root of the tree; none without facts.
    pub root: Option<Node>,
    /// Units per status.
    pub counts: Counts,
    /// How far the run went, where the plan lets it stop early.
    pub stop: Option<StopReport>,
    /// What was computed and what was looked up.
    pub work: FoldWork,
}

/// The reducers of a plan and the width of its tree.
pub fn spec(plan: &Plan) -> FoldSpec {
    let reducers = plan
        .reduces
        .iter()
        .filter_map(|reduce| aggregate(plan, reduce))
        .collect();
    // A plan's fan-in is 64 at most.
    FoldSpec::new(reducers, plan.fold.fan_in as u32, plan.fold.key)
}

/// Folds leaves, arranged under the plan's `spec`, into the plan's claims.
///
/// Every node is shown to the sink, with whether its states were looked up in the cache.
///
/// # Errors
/// What reading a fact may cause.
pub fn reduce(
    plan: &Plan,
    leaves: &Leaves<'_>,
    cache: &dyn NodeCache,
    sink: &(dyn Fn(&Node, bool) + Sync),
) -> Result<Reduction, OperatorError> {
    let (root, work) = fold(leaves, cache, sink)?;
    let counts = root
        .as_ref()
        .map_or_else(Counts::default, |root| root.coverage.counts);
    let spec = leaves.spec();
    let stop = stopping::conclude(plan, |see| leaves.visit(&mut |_, fact| see(fact)))?;
    let folded = plan
        .reduces
        .iter()
        .filter(|reduce| !matches!(reduce.op, Operation::Summary { .. }));
    let (mut claims, mut counted) = (Vec::new(), Vec::new());
    for (place, reduce) in folded.enumerate() {
        let reducer = &spec.reducers[place];
        let empty = reducer.empty();
        let state = root.as_ref().map_or(&empty, |root| &root.states[place]);
        let sealed = seal(reduce, counts);
        let (claim, count) = match sealed.and_then(|()| reducer.finish(state, leaves)) {
            Ok(folded) => state_claim(plan, reduce, folded, counts, stop.as_ref()),
            Err(
                refusal @ (OperatorError::FoldOverflow { .. }
                | OperatorError::NotSealed { .. }
                | OperatorError::NotExhaustive { .. }),
            ) => (refuse(reduce, &refusal), 0),
            Err(error) => return Err(error),
        };
        claims.push(claim);
        counted.push(count);
    }
    Ok(Reduction {
        claims,
        counted,
        root,
        counts,
        stop,
        work,
    })
}

/// Builds the reducer that a plan's reduction names; none for a summary, which no code folds.
pub fn aggregate(plan: &Plan, reduce: &Reduce) -> Option<Aggregate> {
    let selection = Selection::of(&reduce.filter);
    let cite_max = reduce.cite_max;
    let counts = |key: &crate::plan::KeySource, labels: &[String], keys_max| CountBy {
        selection: selection.clone(),
        key: key.clone(),
        declared: labels.to_vec(),
        keys_max,
        cite_max,
    };
    let column = |column: &crate::plan::ColumnRef| crate::plan::Measure::Column(column.clone());
    let extreme = |named, largest| {
        Aggregate::Extreme(Extreme {
            selection: selection.clone(),
            measure: column(named),
            largest,
            cite_max,
        })
    };
    let sum = |named, mean| {
        Aggregate::Sum(Sum {
            selection: selection.clone(),
            measure: column(named),
            mean,
            cite_max,
        })
    };
    Some(match &reduce.op {
        Operation::Count => Aggregate::Count(Count {
            selection,
            cite_max,
        }),
        Operation::CountBy {
            key,
            labels,
            keys_max,
        } => Aggregate::CountBy(counts(key, labels, *keys_max)),
        Operation::Set { key, keys_max } => Aggregate::Set(Set {
            selection,
            key: key.clone(),
            keys_max: *keys_max,
            cite_max,
        }),
        Operation::TopK { by, k, order } => Aggregate::TopK(TopK {
            selection,
            measure: by.clone(),
            largest: *order == Order::Largest,
            k: *k,
            cite_max,
        }),
        Operation::TopKeys { key, k, keys_max } => Aggregate::TopKeys(TopKeys {
            counts: counts(key, &[], *keys_max),
            k: *k,
        }),
        Operation::Histogram { by, edges } => Aggregate::Histogram(Histogram {
            selection,
            measure: by.clone(),
            edges: edges.clone(),
            cite_max,
        }),
        Operation::Min(named) => extreme(named, false),
        Operation::Max(named) => extreme(named, true),
        Operation::Sum(named) => sum(named, false),
        Operation::Mean(named) => sum(named, true),
        Operation::Quantiles { column: named, at } => Aggregate::Quantiles(Quantiles {
            selection,
            measure: column(named),
            at: at.clone(),
            cite_max,
        }),
        Operation::HeavyHitters { key, k } => Aggregate::HeavyHitters(HeavyHitters {
            selection,
            key: key.clone(),
            k: *k,
            cite_max,
        }),
        Operation::Distinct(named) => Aggregate::Distinct(Distinct {
            selection,
            key: crate::plan::KeySource::Column(named.clone()),
            cite_max,
        }),
        Operation::Join { left, right, kind } => {
            let side = |side: &crate::plan::JoinSide| Side {
                selection: Selection::of(&side.filter),
                key: side.key.clone(),
            };
            Aggregate::Join(Join {
                left: side(left),
                right: side(right),
                kind: *kind,
                cite_max,
            })
        }
        Operation::Clusters {
            field,
            labels,
            taxonomy,
            exemplars,
            unclustered,
            dissent,
        } => Aggregate::Clusters(Clusters {
            selection,
            field: field.clone(),
            taxonomy: taxonomy.clone(),
            labels: labels.clone(),
            unclustered: unclustered.clone(),
            dissent: dissent.clone(),
            exemplars: *exemplars,
            outliers_max: plan.fold.outliers_max,
            cite_max,
        }),
        Operation::Components {
            field,
            label,
            keys_max,
        } => Aggregate::Components(Components {
            selection,
            field: field.clone(),
            label: label.clone(),
            keys_max: *keys_max,
            cite_max,
        }),
        Operation::Summary { .. } => return None,
    })
}

/// Refuses to say "all" or "none" while some unit has no answer.
fn seal(reduce: &Reduce, counts: Counts) -> Result<(), OperatorError> {
    if reduce.contract == Contract::Decided || counts.complete() {
        return Ok(());
    }
    let missing: Vec<String> = [
        (counts.errored, "errored"),
        (counts.cancelled, "were cancelled"),
        (counts.not_run, "were not run"),
    ]
    .into_iter()
    .filter(|(count, _)| *count > 0)
    .map(|(count, how)| format!("{count} {how}"))
    .collect();
    Err(OperatorError::NotExhaustive {
        units: counts.units,
        missing: missing.join(", "),
    })
}

/// The claim that states a folded value, and how many facts it speaks of.
fn state_claim(
    plan: &Plan,
    reduce: &Reduce,
    mut folded: Folded,
    counts: Counts,
    stop: Option<&StopReport>,
) -> (Claim, u64) {
    let plainly = wording::state(reduce, &folded);
    let restated = match (plan.control.rule_of(&reduce.name), stop) {
        (Some(rule), Some(stop)) => restate(rule, stop, reduce, &mut folded),
        _ => Ok(Restated::Plainly),
    };
    let text = match restated {
        Ok(Restated::Plainly) => plainly,
        Ok(Restated::After(before)) => before.to_owned() + &wording::state(reduce, &folded),
        Ok(Restated::As { value, words, note }) => {
            let claim = reduce.claim.as_ref();
            claim.map_or(words, |claim| fill(claim, &value, folded.count)) + &note
        }
        Err(reason) => return (refuse(reduce, &reason), 0),
    };
    let gap = match stop {
        Some(stop) if stop.stopped_after.is_some() && stop.complete => gap_by_rule(counts),
        _ => gap(counts),
    };
    let claim = Claim {
        name: reduce.name.clone(),
        text: text + &gap,
        value: folded.value,
        refused: None,
        cites: folded.cites,
        cites_total: folded.cites_total,
    };
    (claim, folded.count)
}

fn refuse(reduce: &Reduce, refusal: &dyn std::fmt::Display) -> Claim {
    Claim {
        name: reduce.name.clone(),
        text: format!("{} is not answered: {refusal}", reduce.name),
        value: Value::Null,
        refused: Some(refusal.to_string()),
        cites: Vec::new(),
        cites_total: 0,
    }
}
