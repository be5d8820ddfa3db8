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
use crate::plan::{KeySource, Measure, Operation, Plan, Reduce};
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
///
/// # Panics
/// If the operation has no reducer yet: those that are not over labels alone.
pub fn aggregate(plan: &Plan, reduce: &Reduce) -> Aggregate {
    let selection = Selection::new(reduce.filter.labels.clone());
    let cite_max = reduce.cite_max;
    let counts = |field: &String| CountBy {
        selection: selection.clone(),
        field: field.clone(),
        labels: plan.field(field).map_or_else(Vec::new, |known| {
            known
                .labels
                .iter()
                .map(|label| label.name.clone())
                .collect()
        }),
        cite_max,
    };
    match &reduce.op {
        _ if !reduce.filter.columns.is_empty() => {
            panic!(
                "reduce {:?} selects by column, which no reducer reads",
                reduce.name
            )
        }
        Operation::Count => Aggregate::Count(Count {
            selection,
            cite_max,
        }),
        Operation::CountBy {
            key: KeySource::Label(field),
            ..
        } => Aggregate::CountBy(counts(field)),
        Operation::Set { key: None, .. } => Aggregate::Set(Set {
            selection,
            field: None,
            cite_max,
        }),
        Operation::Set {
            key: Some(KeySource::Label(field)),
            ..
        } => Aggregate::Set(Set {
            selection,
            field: Some(field.clone()),
            cite_max,
        }),
        Operation::TopK {
            by: Measure::Probability { field, label },
            k,
            ..
        } => Aggregate::TopK(TopK {
            selection,
            field: field.clone(),
            label: label.clone(),
            k: *k,
            cite_max,
        }),
        Operation::TopKeys {
            key: KeySource::Label(field),
            k,
            ..
        } => Aggregate::TopKeys(TopKeys {
            counts: counts(field),
            k: *k,
        }),
        Operation::Histogram {
            by: Measure::Probability { field, label },
            edges,
        } => Aggregate::Histogram(Histogram {
            selection,
            field: field.clone(),
            label: label.clone(),
            edges: edges
                .iter()
                .filter_map(|edge| u32::try_from(*edge).ok())
                .collect(),
            cite_max,
        }),
        // A plan may name these, but their reducers are not written yet. Stopping is the only
        // honest answer: any other reducer would state a false number.
        op => panic!(
            "reduce {:?}: op {:?} has no reducer for this",
            reduce.name,
            op.as_str()
        ),
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
    let selection = Selection::new(reduce.filter.labels.clone()).to_string();
    let with = if selection.is_empty() {
        selection
    } else {
        format!(" with {selection}")
    };
    match &reduce.op {
        Operation::Count => format!("{count} decided units{with}"),
        Operation::CountBy { key, .. } => {
            format!("{count} decided units{with}, by {}: {value}", key.name())
        }
        Operation::Set { key: Some(key), .. } => {
            let field = key.name();
            format!("{count} labels of {field} among decided units{with}: {value}")
        }
        Operation::Set { key: None, .. } => format!("{count} decided units{with}: {value}"),
        Operation::TopK { by, .. } => {
            format!(
                "the {count} decided units{with} most probably {}: {value}",
                measured(by)
            )
        }
        Operation::TopKeys { key, .. } => {
            let field = key.name();
            format!("the {count} most frequent labels of {field}{with}: {value}")
        }
        Operation::Histogram { by, .. } => {
            let measured = measured(by);
            format!("{count} decided units{with}, by probability of {measured}: {value}")
        }
        op => format!("{} of {count} decided units{with}: {value}", op.as_str()),
    }
}

fn measured(by: &Measure) -> String {
    match by {
        Measure::Probability { field, label } => {
            format!("{field} = {}", label.as_deref().unwrap_or("its label"))
        }
        Measure::Column(column) => column.name.clone(),
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
