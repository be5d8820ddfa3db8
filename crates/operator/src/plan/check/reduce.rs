//! Reductions: which keys belong to which operation, and the parts that all share.

use std::ops::Range;

use toml::Spanned;

use super::names::Names;
use super::scope::Scope;
use super::{Fault, compound, operation, within};
use crate::nearest::suggest;
use crate::plan::file::ReduceFile;
use crate::plan::{Contract, Filter, Operation, Reduce};

const CITE_MAX_DEFAULT: u32 = 8;
const CITE_MAX: u32 = 64;

/// One operation: its name, the keys that it may have, and what makes it of them.
type Row = (
    &'static str,
    &'static [&'static str],
    fn(&Scope<'_>) -> Result<Operation, Fault>,
);

const OPERATIONS: [Row; 17] = [
    ("count", &["where"], |_| Ok(Operation::Count)),
    (
        "count_by",
        &["where", "field", "keys_max"],
        operation::count_by,
    ),
    ("set", &["where", "field", "keys_max"], operation::set),
    (
        "top_k",
        &["where", "field", "label", "k", "order"],
        operation::top_k,
    ),
    (
        "top_keys",
        &["where", "field", "k", "keys_max"],
        operation::top_keys,
    ),
    (
        "histogram",
        &["where", "field", "label", "edges"],
        operation::histogram,
    ),
    ("min", &["where", "field"], |scope| {
        scope.number().map(Operation::Min)
    }),
    ("max", &["where", "field"], |scope| {
        scope.number().map(Operation::Max)
    }),
    ("sum", &["where", "field"], |scope| {
        scope.integer().map(Operation::Sum)
    }),
    ("mean", &["where", "field"], |scope| {
        scope.integer().map(Operation::Mean)
    }),
    ("quantiles", &["where", "field", "at"], operation::quantiles),
    (
        "heavy_hitters",
        &["where", "field", "k"],
        operation::heavy_hitters,
    ),
    ("distinct", &["where", "field"], |scope| {
        scope.any_column().map(Operation::Distinct)
    }),
    ("join", &["left", "right", "kind"], compound::join),
    (
        "clusters",
        &[
            "where",
            "field",
            "taxonomy",
            "exemplars",
            "unclustered",
            "dissent",
        ],
        compound::clusters,
    ),
    (
        "components",
        &["where", "field", "label", "keys_max"],
        compound::components,
    ),
    (
        "summary",
        &["of", "instruction", "tokens_max"],
        compound::summary,
    ),
];

pub(super) fn reduce(
    spanned: &Spanned<ReduceFile>,
    names: Names<'_>,
    earlier: &[Reduce],
) -> Result<Reduce, Fault> {
    let file = spanned.get_ref();
    let name = &file.name;
    if name.is_empty() || name.chars().any(char::is_control) {
        let problem = "a reduce needs a name on one line".to_owned();
        return Err((spanned.span(), problem));
    }
    let what = format!("reduce {name:?}");
    let spelled = file.op.get_ref();
    let Some((op, keys, build)) = OPERATIONS.iter().find(|(op, ..)| op == spelled) else {
        let known: Vec<&str> = OPERATIONS.iter().map(|(op, ..)| *op).collect();
        let near = suggest(spelled, &known);
        return Err((
            file.op.span(),
            format!("{what}: unknown op {spelled:?}{near}"),
        ));
    };
    for (key, span) in given(file) {
        if !keys.contains(&key) {
            let cure = match (*op, key) {
                ("join", "where") => "put one into left or right",
                ("join", "field") => "name it as the key of left and right",
                _ => "remove it",
            };
            return Err((span, format!("{what}: op {op:?} has no {key:?}; {cure}")));
        }
    }
    let filter = match &file.filter {
        Some(filter) => names.filter(filter.get_ref(), &format!("where of {what}"))?,
        None => Filter::default(),
    };
    let cite_max = within(
        file.cite_max.as_ref(),
        &format!("{what}: cite_max"),
        0..=CITE_MAX,
    )?;
    let contract = match &file.contract {
        Some(contract) if *op == "summary" => {
            let problem = "a summary has no contract; give one to the claims that it is made of";
            return Err((contract.span(), format!("{what}: {problem}")));
        }
        Some(contract) => *contract.get_ref(),
        None => Contract::default(),
    };
    let claim = claim(file.claim.as_ref(), &what)?;
    let scope = Scope {
        file,
        span: spanned.span(),
        what,
        op,
        names,
        earlier,
        filter,
    };
    let op = build(&scope)?;
    Ok(Reduce {
        name: name.clone(),
        op,
        filter: scope.filter,
        contract,
        claim,
        cite_max: cite_max.unwrap_or(CITE_MAX_DEFAULT),
    })
}

/// The keys that are given and belong to some operations only.
fn given(file: &ReduceFile) -> impl Iterator<Item = (&'static str, Range<usize>)> {
    fn span<T>(key: &Option<Spanned<T>>) -> Option<Range<usize>> {
        key.as_ref().map(Spanned::span)
    }
    [
        ("where", span(&file.filter)),
        ("field", span(&file.field)),
        ("label", span(&file.label)),
        ("k", span(&file.k)),
        ("edges", span(&file.edges)),
        ("order", span(&file.order)),
        ("at", span(&file.at)),
        ("keys_max", span(&file.keys_max)),
        ("left", span(&file.left)),
        ("right", span(&file.right)),
        ("kind", span(&file.kind)),
        ("exemplars", span(&file.exemplars)),
        ("unclustered", span(&file.unclustered)),
        ("dissent", span(&file.dissent)),
        ("taxonomy", span(&file.taxonomy)),
        ("of", span(&file.of)),
        ("instruction", span(&file.instruction)),
        ("tokens_max", span(&file.tokens_max)),
    ]
    .into_iter()
    .filter_map(|(key, span)| span.map(|span| (key, span)))
}

fn claim(given: Option<&Spanned<String>>, what: &str) -> Result<Option<String>, Fault> {
    let Some(given) = given else { return Ok(None) };
    let text = given.get_ref().trim();
    for part in text.split('{').skip(1) {
        let name = part.split('}').next().unwrap_or(part);
        if !["value", "count"].contains(&name) {
            let problem = format!(
                "{what}: claim has the placeholder {{{name}}}{}",
                suggest(name, &["value", "count"])
            );
            return Err((given.span(), problem));
        }
    }
    Ok(Some(text.to_owned()))
}
