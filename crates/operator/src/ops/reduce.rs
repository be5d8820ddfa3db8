//! reduce: facts to claims, in any order and any tree shape.
//!
//! Turns the plan's reductions into reducers and the folded values into claims. Every number in a
//! claim's text is taken from the folded value. Must not know files, backends or how facts arose.

use serde_json::Value;

use crate::answer::Claim;
use crate::coverage::{Counts, Coverage};
use crate::error::OperatorError;
use crate::fact::Fact;
use crate::fold::{Reducer, fold};
use crate::plan::{Plan, Reduce, ReduceOp};
use crate::reducers::{
    Aggregate, Count, CountBy, Folded, Histogram, Selection, Set, TopK, TopKeys,
};

/// Folds facts into the plan's claims; also returns the coverage of the root.
///
/// # Errors
/// `CoverageOverlap` when two facts speak for one unit.
///
/// # Panics
/// If `fan_in < 2`.
pub fn reduce(
    plan: &Plan,
    facts: &[Fact],
    fan_in: usize,
) -> Result<(Vec<Claim>, Coverage), OperatorError> {
    let reducers: Vec<Aggregate> = plan
        .reduces
        .iter()
        .map(|reduce| aggregate(plan, reduce))
        .collect();
    let root = fold(&reducers, facts, fan_in)?;
    let counts = root.coverage.counts();
    let folded = reducers.finish(&root.state);
    let claims = plan
        .reduces
        .iter()
        .zip(folded)
        .map(|(reduce, folded)| state_claim(reduce, folded, counts))
        .collect();
    Ok((claims, root.coverage))
}

/// Builds the reducer that a plan's reduction names.
pub fn aggregate(plan: &Plan, reduce: &Reduce) -> Aggregate {
    let selection = Selection::new(reduce.filter.clone());
    let cite_max = reduce.cite_max;
    let field = reduce.field.clone().unwrap_or_default();
    let label = reduce.label.clone();
    let k = reduce.k.unwrap_or(0);
    let counts = || CountBy {
        selection: selection.clone(),
        field: field.clone(),
        labels: plan.field(&field).map_or_else(Vec::new, |known| {
            known
                .labels
                .iter()
                .map(|label| label.name.clone())
                .collect()
        }),
        cite_max,
    };
    match reduce.op {
        ReduceOp::Count => Aggregate::Count(Count {
            selection,
            cite_max,
        }),
        ReduceOp::CountBy => Aggregate::CountBy(counts()),
        ReduceOp::Set => Aggregate::Set(Set {
            selection,
            field: reduce.field.clone(),
            cite_max,
        }),
        ReduceOp::TopK => Aggregate::TopK(TopK {
            selection,
            field,
            label,
            k,
            cite_max,
        }),
        ReduceOp::TopKeys => Aggregate::TopKeys(TopKeys {
            counts: counts(),
            k,
        }),
        ReduceOp::Histogram => Aggregate::Histogram(Histogram {
            selection,
            field,
            label,
            edges: reduce.edges_ppm.clone(),
            cite_max,
        }),
    }
}

fn state_claim(reduce: &Reduce, folded: Folded, counts: Counts) -> Claim {
    let value = render(&folded.value);
    let text = match &reduce.claim {
        Some(wording) => fill(wording, &value, folded.count),
        None => default_wording(reduce, &value, folded.count),
    };
    Claim {
        name: reduce.name.clone(),
        text: text + &gap(counts),
        value: folded.value,
        cites: folded.cites,
        cites_total: folded.cites_total,
    }
}

/// Replaces both placeholders in one walk, so that a value holding braces is left alone.
fn fill(wording: &str, value: &str, count: u64) -> String {
    let mut text = String::new();
    let mut rest = wording;
    while let Some(open) = rest.find('{') {
        text.push_str(&rest[..open]);
        rest = &rest[open..];
        if let Some(after) = rest.strip_prefix("{value}") {
            text.push_str(value);
            rest = after;
        } else if let Some(after) = rest.strip_prefix("{count}") {
            text.push_str(&count.to_string());
            rest = after;
        } else {
            text.push('{');
            rest = &rest[1..];
        }
    }
    text + rest
}

fn default_wording(reduce: &Reduce, value: &str, count: u64) -> String {
    let selection = Selection::new(reduce.filter.clone()).to_string();
    let with = if selection.is_empty() {
        selection
    } else {
        format!(" with {selection}")
    };
    let field = reduce.field.as_deref().unwrap_or_default();
    match reduce.op {
        ReduceOp::Count => format!("{count} decided units{with}"),
        ReduceOp::CountBy => format!("{count} decided units{with}, by {field}: {value}"),
        ReduceOp::Set if reduce.field.is_some() => {
            format!("{count} labels of {field} among decided units{with}: {value}")
        }
        ReduceOp::Set => format!("{count} decided units{with}: {value}"),
        ReduceOp::TopK => {
            let label = reduce.label.as_deref().unwrap_or("its label");
            format!("the {count} decided units{with} most probably {field} = {label}: {value}")
        }
        ReduceOp::TopKeys => {
            format!("the {count} most frequent labels of {field}{with}: {value}")
        }
        ReduceOp::Histogram => {
            let label = reduce.label.as_deref().unwrap_or("its label");
            format!("{count} decided units{with}, by probability of {field} = {label}: {value}")
        }
    }
}

/// Says what a claim does not cover; empty when it covers everything.
fn gap(counts: Counts) -> String {
    let mut gaps = Vec::new();
    for (count, name) in [
        (counts.abstained, "abstained"),
        (counts.errored, "errored"),
        (counts.cancelled, "were cancelled"),
        (counts.not_run, "were not run"),
    ] {
        if count > 0 {
            gaps.push(format!("{count} {name}"));
        }
    }
    if gaps.is_empty() {
        return String::new();
    }
    let whole = if counts.complete() {
        ""
    } else {
        "incomplete: "
    };
    format!(
        " ({whole}of {} units {} and are not counted)",
        counts.units,
        gaps.join(", ")
    )
}

fn render(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) if items.is_empty() => String::from("none"),
        Value::Array(items) => items.iter().map(render_item).collect::<Vec<_>>().join(", "),
        Value::Object(entries) => {
            let pairs = entries
                .iter()
                .map(|(key, value)| format!("{key} {}", render(value)));
            pairs.collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    }
}

fn render_item(item: &Value) -> String {
    let number = |key: &str| item.get(key).and_then(Value::as_u64);
    let name = |key: &str| item.get(key).and_then(Value::as_str);
    match (
        name("label"),
        number("count"),
        name("unit_id"),
        number("probability_ppm"),
    ) {
        (Some(label), Some(count), _, _) => format!("{label} {count}"),
        (_, _, Some(unit), Some(ppm)) => format!("{unit} ({})", percent(ppm)),
        (_, Some(count), _, _) => match (number("from_ppm"), number("to_ppm")) {
            (Some(from), Some(to)) => format!("{} to {}: {count}", percent(from), percent(to)),
            _ => render(item),
        },
        _ => render(item),
    }
}

/// Parts per million as a percentage with one decimal, rounded to nearest.
fn percent(ppm: u64) -> String {
    let tenths = (ppm + 500) / 1_000;
    match tenths % 10 {
        0 => format!("{} %", tenths / 10),
        tenth => format!("{}.{tenth} %", tenths / 10),
    }
}
