//! Reductions: which keys belong to which operation, and the parts that all of them share.

use std::ops::{Range, RangeInclusive};

use toml::Spanned;

use super::names::{Named, Names, described, reference};
use super::{Fault, operation, within};
use crate::column::{Column, ColumnType};
use crate::nearest::suggest;
use crate::plan::file::ReduceFile;
use crate::plan::{ColumnRef, Filter, KeySource, Operation, Reduce};

const CITE_MAX_DEFAULT: u32 = 8;
const CITE_MAX: u32 = 64;
const KEYS_MAX_DEFAULT: u32 = 4_096;
const KEYS_MAX: u32 = 65_536;

/// One operation: its name, the keys that it may have, and what makes it of them.
type Row = (
    &'static str,
    &'static [&'static str],
    fn(&Scope<'_>) -> Result<Operation, Fault>,
);

const OPERATIONS: [Row; 16] = [
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
    ("join", &["left", "right", "kind"], operation::join),
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
        operation::clusters,
    ),
    (
        "summary",
        &["of", "instruction", "tokens_max"],
        operation::summary,
    ),
];

/// A reduction that is being checked, and what it may name.
pub(super) struct Scope<'a> {
    pub(super) file: &'a ReduceFile,
    pub(super) span: Range<usize>,
    /// The reduction, for messages: `reduce "name"`.
    pub(super) what: String,
    pub(super) op: &'static str,
    pub(super) names: Names<'a>,
    /// The reductions before this one.
    pub(super) earlier: &'a [Reduce],
    pub(super) filter: Filter,
}

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

impl<'a> Scope<'a> {
    pub(super) fn fault(&self, span: Range<usize>, problem: &str) -> Fault {
        (span, format!("{}: {problem}", self.what))
    }

    /// A key that the operation cannot do without.
    pub(super) fn need<T>(
        &self,
        key: &str,
        given: &'a Option<Spanned<T>>,
    ) -> Result<&'a Spanned<T>, Fault> {
        given.as_ref().ok_or_else(|| {
            let problem = format!("op {:?} needs {key:?}; add it", self.op);
            self.fault(self.span.clone(), &problem)
        })
    }

    /// A number in range, where one is given.
    pub(super) fn within(
        &self,
        key: &str,
        given: Option<&Spanned<u32>>,
        range: RangeInclusive<u32>,
    ) -> Result<Option<u32>, Fault> {
        within(given, &format!("{}: {key}", self.what), range)
    }

    /// How many, which the operation cannot do without.
    pub(super) fn k(&self, max: u32) -> Result<u32, Fault> {
        let given = self.need("k", &self.file.k)?;
        Ok(self.within("k", Some(given), 1..=max)?.unwrap_or(max))
    }

    /// The field or column that the operation reads.
    pub(super) fn named(&self) -> Result<(Named<'a>, Range<usize>), Fault> {
        let field = self.need("field", &self.file.field)?;
        let named = self.names.find(field.get_ref(), &self.what, field.span())?;
        Ok((named, field.span()))
    }

    /// A field or text column as a key.
    pub(super) fn key(&self) -> Result<KeySource, Fault> {
        match self.named()? {
            (Named::Field(field), _) => Ok(KeySource::Label(field.name.clone())),
            (Named::Column(column), span) => {
                let kinds = [ColumnType::Text];
                self.typed(column, &kinds, "a field or a text column", span)
                    .map(KeySource::Column)
            }
        }
    }

    /// Most different keys; only a column has so many that a limit is needed.
    pub(super) fn keys_max(&self, key: &KeySource) -> Result<u32, Fault> {
        match (&self.file.keys_max, key) {
            (Some(given), KeySource::Label(field)) => {
                let problem = format!(
                    "keys_max limits the keys of a column, and {field:?} is a field with fixed \
                     labels; remove it"
                );
                Err(self.fault(given.span(), &problem))
            }
            (given, _) => Ok(self
                .within("keys_max", given.as_ref(), 1..=KEYS_MAX)?
                .unwrap_or(KEYS_MAX_DEFAULT)),
        }
    }

    /// An integer or time column.
    pub(super) fn number(&self) -> Result<ColumnRef, Fault> {
        let kinds = [ColumnType::Integer, ColumnType::Time];
        self.column(&kinds, "an integer or time column")
    }

    /// An integer column.
    pub(super) fn integer(&self) -> Result<ColumnRef, Fault> {
        self.column(&[ColumnType::Integer], "an integer column")
    }

    /// A column of any type.
    pub(super) fn any_column(&self) -> Result<ColumnRef, Fault> {
        let kinds = [ColumnType::Integer, ColumnType::Text, ColumnType::Time];
        self.column(&kinds, "a column")
    }

    /// A column of one of the types.
    pub(super) fn typed(
        &self,
        column: &Column,
        kinds: &[ColumnType],
        expected: &str,
        span: Range<usize>,
    ) -> Result<ColumnRef, Fault> {
        if kinds.contains(&column.kind) {
            return Ok(reference(column));
        }
        let problem = format!(
            "op {:?} needs {expected}, not {}",
            self.op,
            described(column)
        );
        Err(self.fault(span, &problem))
    }

    fn column(&self, kinds: &[ColumnType], expected: &str) -> Result<ColumnRef, Fault> {
        match self.named()? {
            (Named::Column(column), span) => self.typed(column, kinds, expected, span),
            (Named::Field(field), span) => {
                let problem = format!(
                    "op {:?} needs {expected}, and {:?} is a field; declare a [[column]] and name \
                     that",
                    self.op, field.name
                );
                Err(self.fault(span, &problem))
            }
        }
    }
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
