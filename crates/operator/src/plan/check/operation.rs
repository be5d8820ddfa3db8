//! Operations: from the keys of a reduction to what a reducer needs.

use toml::Spanned;

use super::Fault;
use super::names::{Named, known_label, reference};
use super::reduce::Scope;
use crate::column::ColumnType;
use crate::infer::PPM;
use crate::plan::file::JoinSideFile;
use crate::plan::{ID_KEY, JoinSide, KeySource, Measure, Operation, Order};

const EDGES_MAX: usize = 64;
const QUANTILES_MAX: usize = 16;
const COUNTERS_MAX: u32 = 4_096;
const EXEMPLARS_DEFAULT: u32 = 2;
const EXEMPLARS_MAX: u32 = 16;
const TOKENS_DEFAULT: u32 = 160;

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

pub(super) fn join(scope: &Scope<'_>) -> Result<Operation, Fault> {
    let (left_file, right_file) = (
        scope.need("left", &scope.file.left)?,
        scope.need("right", &scope.file.right)?,
    );
    let kind = *scope.need("kind", &scope.file.kind)?.get_ref();
    let left = side(scope, "left", left_file)?;
    let right = side(scope, "right", right_file)?;
    let (of_left, of_right) = (left.key.kind(), right.key.kind());
    if of_left != of_right {
        let problem = format!(
            "the key of left, {:?}, is of type {:?} and that of right, {:?}, of type {:?}; join \
             keys of one type",
            left.key.name(),
            of_left.as_str(),
            right.key.name(),
            of_right.as_str(),
        );
        return Err(scope.fault(right_file.get_ref().key.span(), &problem));
    }
    Ok(Operation::Join { left, right, kind })
}

fn side(scope: &Scope<'_>, name: &str, file: &Spanned<JoinSideFile>) -> Result<JoinSide, Fault> {
    let file = file.get_ref();
    let what = format!("{name} of {}", scope.what);
    let key = file.key.get_ref();
    let key = if key == ID_KEY {
        KeySource::Id
    } else {
        match scope.names.find(key, &what, file.key.span())? {
            Named::Field(field) => KeySource::Label(field.name.clone()),
            Named::Column(column) => KeySource::Column(reference(column)),
        }
    };
    let filter = scope
        .names
        .filter(&file.filter, &format!("where of {what}"))?;
    Ok(JoinSide { filter, key })
}

pub(super) fn clusters(scope: &Scope<'_>) -> Result<Operation, Fault> {
    let file = scope.file;
    let (Named::Field(field), _) = scope.named()? else {
        let span = scope.need("field", &file.field)?.span();
        let problem = "op \"clusters\" needs a field, whose labels are the taxonomy, not a column";
        return Err(scope.fault(span, problem));
    };
    let taxonomy = scope.need("taxonomy", &file.taxonomy)?;
    let taxonomy = super::filled(&format!("{}: taxonomy", scope.what), taxonomy)?;
    let unclustered = match &file.unclustered {
        Some(label) => Some(known_label(label, field, &scope.what)?),
        None => None,
    };
    let mut dissent: Vec<String> = Vec::new();
    for label in file.dissent.iter().flat_map(Spanned::get_ref) {
        let name = known_label(label, field, &scope.what)?;
        if dissent.contains(&name) {
            let problem = format!("dissent names {name:?} twice; remove one");
            return Err(scope.fault(label.span(), &problem));
        }
        if unclustered.as_ref() == Some(&name) {
            let problem = format!("{name:?} is both unclustered and dissent; keep one");
            return Err(scope.fault(label.span(), &problem));
        }
        dissent.push(name);
    }
    if dissent.len() + usize::from(unclustered.is_some()) == field.labels.len() {
        let problem = format!(
            "unclustered and dissent take every label of field {:?}; leave at least one as a \
             cluster",
            field.name
        );
        return Err(scope.fault(scope.span.clone(), &problem));
    }
    let exemplars = scope.within("exemplars", file.exemplars.as_ref(), 1..=EXEMPLARS_MAX)?;
    Ok(Operation::Clusters {
        field: field.name.clone(),
        labels: field
            .labels
            .iter()
            .map(|label| label.name.clone())
            .collect(),
        taxonomy,
        exemplars: exemplars.unwrap_or(EXEMPLARS_DEFAULT),
        unclustered,
        dissent,
    })
}

pub(super) fn summary(scope: &Scope<'_>) -> Result<Operation, Fault> {
    let file = scope.file;
    let given = scope.need("of", &file.of)?;
    let known: Vec<&str> = scope
        .earlier
        .iter()
        .filter(|reduce| !matches!(reduce.op, Operation::Summary { .. }))
        .map(|reduce| reduce.name.as_str())
        .collect();
    let mut of: Vec<String> = Vec::new();
    for name in given.get_ref() {
        let (name, span) = (name.get_ref(), name.span());
        if *name == file.name {
            return Err(scope.fault(
                span,
                "a summary cannot be of itself; name an earlier reduce",
            ));
        }
        if !known.contains(&name.as_str()) {
            let problem = format!(
                "no reduce before it that is not itself a summary is named {name:?}{}",
                crate::nearest::suggest(name, &known)
            );
            return Err(scope.fault(span, &problem));
        }
        if of.contains(name) {
            let problem = format!("of names {name:?} twice; remove one");
            return Err(scope.fault(span, &problem));
        }
        of.push(name.clone());
    }
    if of.is_empty() {
        return Err(scope.fault(
            given.span(),
            "of is empty; name at least one earlier reduce",
        ));
    }
    let instruction = scope.need("instruction", &file.instruction)?;
    let instruction = super::filled(&format!("{}: instruction", scope.what), instruction)?;
    let tokens_max = scope.within("tokens_max", file.tokens_max.as_ref(), 16..=1_024)?;
    Ok(Operation::Summary {
        of,
        instruction,
        tokens_max: tokens_max.unwrap_or(TOKENS_DEFAULT),
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
