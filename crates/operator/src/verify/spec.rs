//! The name of what is folded: the plan's reducers, as every node of the tree carries it.

use crate::canonical::Canonical;
use crate::id::ContentHash;
use crate::plan::{Filter, JoinSide, KeySource, Measure, Operation, Order, Plan, Reduce};

/// Names the plan's reducers with their versions and parameters.
pub(super) fn hash(plan: &Plan) -> ContentHash {
    let folded = || {
        plan.reduces
            .iter()
            .filter(|reduce| !matches!(reduce.op, Operation::Summary { .. }))
    };
    let mut text = Canonical::new("operator 2026 fold spec v1");
    text.list(folded().count());
    for reduce in folded() {
        reducer(&mut text, plan, reduce);
    }
    ContentHash::of(&text)
}

fn reducer(text: &mut Canonical, plan: &Plan, reduce: &Reduce) {
    let name = match &reduce.op {
        Operation::Min(_) | Operation::Max(_) => "extreme",
        Operation::Mean(_) => "sum",
        op => op.as_str(),
    };
    text.text(name).u32(1);
    if let Operation::Join { left, right, kind } = &reduce.op {
        for JoinSide { filter, key } in [left, right] {
            terms(text, filter);
            source(text, key);
        }
        text.text(kind.as_str()).u32(reduce.cite_max);
        return;
    }
    terms(text, &reduce.filter);
    match &reduce.op {
        Operation::CountBy {
            key,
            labels,
            keys_max,
        } => {
            source(text, key);
            texts(text, labels);
            text.u32(*keys_max);
        }
        Operation::Set { key, keys_max } => {
            match key {
                None => {
                    text.none();
                }
                Some(key) => source(text.some(), key),
            }
            text.u32(*keys_max);
        }
        Operation::TopK { by, k, order } => {
            measure(text, by);
            text.bool(*order == Order::Largest).u32(*k);
        }
        Operation::TopKeys { key, k, keys_max } => {
            source(text, key);
            // Of the keys none is declared; the number of keys named comes last.
            text.list(0).u32(*keys_max).u32(reduce.cite_max).u32(*k);
            return;
        }
        Operation::Histogram { by, edges } => {
            measure(text, by);
            text.list(edges.len());
            for edge in edges {
                text.i64(*edge);
            }
        }
        Operation::Min(named) | Operation::Max(named) => {
            measure(text, &Measure::Column(named.clone()));
            text.bool(matches!(reduce.op, Operation::Max(_)));
        }
        Operation::Sum(named) | Operation::Mean(named) => {
            measure(text, &Measure::Column(named.clone()));
            text.bool(matches!(reduce.op, Operation::Mean(_)));
        }
        Operation::Quantiles { column, at } => {
            measure(text, &Measure::Column(column.clone()));
            text.list(at.len());
            for percent in at {
                text.u32(u32::from(*percent));
            }
        }
        Operation::HeavyHitters { key, k } => {
            source(text, key);
            text.u32(*k);
        }
        Operation::Distinct(named) => source(text, &KeySource::Column(named.clone())),
        Operation::Clusters {
            field,
            labels,
            taxonomy,
            exemplars,
            unclustered,
            dissent,
        } => {
            text.text(field).text(taxonomy);
            texts(text, labels);
            texts(text, dissent);
            text.optional_text(unclustered.as_deref())
                .u32(*exemplars)
                .u32(plan.fold.outliers_max);
        }
        Operation::Components {
            field,
            label,
            keys_max,
        } => {
            text.text(field).text(label).u32(*keys_max);
        }
        Operation::Count | Operation::Join { .. } | Operation::Summary { .. } => {}
    }
    text.u32(reduce.cite_max);
}

/// The terms of a selection; a column in one is always compared as text.
fn terms(text: &mut Canonical, filter: &Filter) {
    text.list(filter.labels.len() + filter.columns.len());
    for (field, label) in &filter.labels {
        text.text("label").text(field).text(label);
    }
    for (column, wanted) in &filter.columns {
        text.text("column").text(column).text("text").text(wanted);
    }
}

fn source(text: &mut Canonical, key: &KeySource) {
    match key {
        KeySource::Label(field) => text.text("label").text(field),
        KeySource::Column(column) => text
            .text("column")
            .text(&column.name)
            .text(column.kind.as_str()),
        KeySource::Id => text.text("id"),
    };
}

fn measure(text: &mut Canonical, by: &Measure) {
    match by {
        Measure::Probability { field, label } => text
            .text("probability")
            .text(field)
            .optional_text(label.as_deref()),
        Measure::Column(column) => text
            .text("column")
            .text(&column.name)
            .text(column.kind.as_str()),
    };
}

fn texts(text: &mut Canonical, items: &[String]) {
    text.list(items.len());
    for item in items {
        text.text(item);
    }
}
