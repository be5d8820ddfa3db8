//! Operations over one field or column: from the keys of a reduction to what a reducer needs.

use toml::Spanned;

use super::Fault;
use super::names::{Named, known_label};
use super::scope::Scope;
use crate::column::ColumnType;
use crate::infer::PPM;
use crate::plan::{KeySource, Measure, Operation, Order};

const EDGES_MAX: usize = 64;
const QUANTILES_MAX: usize = 16;
const COUNTERS_MAX: u32 = 4_096;

pub(super) fn count_by(scope: &Scope<'_>) -> Result<Operation, Fault> {
    let key = scope.key()?;
    let fixed = match &key {
        KeySource::Label(field) => scope.filter.labels.contains_key(field),
        _ => scope.filter.columns.contains_key(key.name()),
    };
    if fixed {
        let problem = "counts by the field that its where fixes; use op = \"count\"";
        return Err(scope.fault(scope.span.clone(), problem));
    }
    let labels = match scope.named()? {
        (Named::Field(field), _) => field
            .labels
            .iter()
            .map(|label| label.name.clone())
            .collect(),
        (Named::Column(_), _) => Vec::new(),
    };
    Ok(Operation::CountBy {
        keys_max: scope.keys_max(&key)?,
        key,
        labels,
    })
}

pub(super) fn set(scope: &Scope<'_>) -> Result<Operation, Fault> {
    let key = match scope.file.field {
        Some(_) => Some(scope.key()?),
        None => None,
    };
    let keys_max = match (&key, &scope.file.keys_max) {
        (Some(key), _) => scope.keys_max(key)?,
        (None, Some(given)) => {
            let problem = "keys_max limits the keys of a column, and no field is named; name a text \
                           column as field, or remove keys_max";
            return Err(scope.fault(given.span(), problem));
        }
        (None, None) => scope.keys_max(&KeySource::Id)?,
    };
    Ok(Operation::Set { key, keys_max })
}

pub(super) fn top_k(scope: &Scope<'_>) -> Result<Operation, Fault> {
    let by = measure(scope)?;
    let order = match (&by, &scope.file.order) {
        (Measure::Probability { field, .. }, Some(order)) => {
            let problem =
                format!("order belongs to a column, and {field:?} is a field; remove order");
            return Err(scope.fault(order.span(), &problem));
        }
        (Measure::Probability { .. }, None) => {
            scope.need("label", &scope.file.label)?;
            Order::Largest
        }
        (Measure::Column(_), order) => order
            .as_ref()
            .map_or(Order::Largest, |order| *order.get_ref()),
    };
    let k = scope.k(u32::MAX)?;
    Ok(Operation::TopK { by, k, order })
}

pub(super) fn top_keys(scope: &Scope<'_>) -> Result<Operation, Fault> {
    let key = scope.key()?;
    Ok(Operation::TopKeys {
        keys_max: scope.keys_max(&key)?,
        key,
        k: scope.k(u32::MAX)?,
    })
}

pub(super) fn histogram(scope: &Scope<'_>) -> Result<Operation, Fault> {
    let by = measure(scope)?;
    let given = scope.need("edges", &scope.file.edges)?;
    let edges = match by {
        Measure::Probability { .. } => shares(scope, given)?,
        Measure::Column(_) => {
            ascending(scope, given, "edges", EDGES_MAX)?;
            given.get_ref().clone()
        }
    };
    Ok(Operation::Histogram { by, edges })
}

pub(super) fn quantiles(scope: &Scope<'_>) -> Result<Operation, Fault> {
    let column = scope.number()?;
    let given = scope.need("at", &scope.file.at)?;
    ascending(scope, given, "at", QUANTILES_MAX)?;
    let percent = |at: &i64| u8::try_from(*at).ok().filter(|at| *at <= 100);
    let at = given.get_ref().iter().map(percent).collect::<Option<_>>();
    let at = at
        .ok_or_else(|| scope.fault(given.span(), "at must be whole percent, each from 0 to 100"))?;
    Ok(Operation::Quantiles { column, at })
}

pub(super) fn heavy_hitters(scope: &Scope<'_>) -> Result<Operation, Fault> {
    Ok(Operation::HeavyHitters {
        key: scope.key()?,
        k: scope.k(COUNTERS_MAX)?,
    })
}

/// What is measured: the probability of a label, or an integer or time column.
fn measure(scope: &Scope<'_>) -> Result<Measure, Fault> {
    match (scope.named()?, &scope.file.label) {
        ((Named::Field(field), _), label) => {
            let label = match label {
                Some(label) => Some(known_label(label, field, &scope.what)?),
                None => None,
            };
            let field = field.name.clone();
            Ok(Measure::Probability { field, label })
        }
        ((Named::Column(column), _), Some(label)) => {
            let problem = format!(
                "label belongs to a field, and {:?} is a column; remove label",
                column.name
            );
            Err(scope.fault(label.span(), &problem))
        }
        ((Named::Column(column), span), None) => {
            let kinds = [ColumnType::Integer, ColumnType::Time];
            let expected = "a field, or an integer or time column";
            scope
                .typed(column, &kinds, expected, span)
                .map(Measure::Column)
        }
    }
}

/// Edges up to 100 are percent, larger ones parts per million.
fn shares(scope: &Scope<'_>, given: &Spanned<Vec<i64>>) -> Result<Vec<i64>, Fault> {
    let edges = given.get_ref();
    let ascending = edges.windows(2).all(|pair| pair[0] < pair[1]);
    let ppm = i64::from(PPM);
    match (edges.first(), edges.last()) {
        (Some(0..), Some(&largest)) if ascending && largest <= ppm => {
            let scale = if largest <= 100 { ppm / 100 } else { 1 };
            Ok(edges.iter().map(|edge| edge * scale).collect())
        }
        _ => {
            let problem = format!(
                "edges must ascend and be percent (to 100) or parts per million (to {PPM})"
            );
            Err(scope.fault(given.span(), &problem))
        }
    }
}

fn ascending(
    scope: &Scope<'_>,
    given: &Spanned<Vec<i64>>,
    key: &str,
    max: usize,
) -> Result<(), Fault> {
    let numbers = given.get_ref();
    let ascends = numbers.windows(2).all(|pair| pair[0] < pair[1]);
    if ascends && (1..=max).contains(&numbers.len()) {
        return Ok(());
    }
    let problem = format!("{key} must be 1 to {max} integers that ascend");
    Err(scope.fault(given.span(), &problem))
}
