//! Indexes: which keys a kind has, and what they may say.

use std::ops::Range;

use toml::Spanned;

use super::{Fault, filled, plain_name, unique, within};
use crate::nearest::suggest;
use crate::plan::index_file::IndexFile;
use crate::plan::locate::place;
use crate::plan::{ClassifierIndex, ClassifierSource, Index, IndexKind, SearchIndex, SqlIndex};
use crate::words::words;

/// Steps that a statement has where the plan says nothing.
const STEPS_DEFAULT: u64 = 100_000_000;
const STEPS_MAX: u64 = 100_000_000_000;
const STATEMENT_BYTES_MAX: usize = 64 * 1024;
const CLASSES_MAX: usize = 64;
const QUERY_WORDS_MAX: usize = 64;
/// BM25 as most engines set it.
const K1_DEFAULT: u32 = 1_200;
const B_DEFAULT: u32 = 750;

/// The keys that each kind may have beside `name` and `kind`.
const KINDS: [(&str, &[&str]); 3] = [
    ("sql", &["statement", "steps_max"]),
    ("search", &["fields", "query", "k1", "b", "top"]),
    (
        "classifier",
        &["fields", "classes", "labels", "id", "field", "model"],
    ),
];

/// Checks an index; `text` is the plan's, in which it is placed.
pub(super) fn index(spanned: &Spanned<IndexFile>, text: &str) -> Result<Index, Fault> {
    let file = spanned.get_ref();
    let span = spanned.span();
    plain_name("index", &file.name).map_err(|problem| (span.clone(), problem))?;
    let what = format!("index {:?}", file.name);
    let kind = file.kind.get_ref();
    let keys = KINDS
        .iter()
        .find(|(known, _)| known == kind)
        .map(|(_, keys)| *keys)
        .ok_or_else(|| {
            let known: Vec<&str> = KINDS.iter().map(|(kind, _)| *kind).collect();
            let near = suggest(kind, &known);
            (
                file.kind.span(),
                format!("{what}: unknown kind {kind:?}{near}"),
            )
        })?;
    if let Some((key, span)) = given(file).into_iter().find(|(key, _)| !keys.contains(key)) {
        let keys = keys.join(", ");
        let problem = format!("{what}: a {kind} index has no {key}; its keys are {keys}");
        return Err((span, problem));
    }
    let scope = Scope { file, span, what };
    let mut at = scope.span.clone();
    let kind = match kind.as_str() {
        "sql" => {
            at = file.statement.as_ref().map_or(at, Spanned::span);
            IndexKind::Sql(scope.sql()?)
        }
        "search" => IndexKind::Search(scope.search()?),
        _ => IndexKind::Classifier(scope.classifier()?),
    };
    let (line, column) = place(text, &at);
    Ok(Index {
        name: file.name.clone(),
        kind,
        line,
        column,
    })
}

/// The keys that are given, beside those that every index has.
fn given(file: &IndexFile) -> Vec<(&'static str, Range<usize>)> {
    let keys = [
        ("statement", file.statement.as_ref().map(Spanned::span)),
        ("steps_max", file.steps_max.as_ref().map(Spanned::span)),
        ("fields", file.fields.as_ref().map(Spanned::span)),
        ("query", file.query.as_ref().map(Spanned::span)),
        ("k1", file.k1.as_ref().map(Spanned::span)),
        ("b", file.b.as_ref().map(Spanned::span)),
        ("top", file.top.as_ref().map(Spanned::span)),
        ("classes", file.classes.as_ref().map(Spanned::span)),
        ("labels", file.labels.as_ref().map(Spanned::span)),
        ("id", file.id.as_ref().map(Spanned::span)),
        ("field", file.field.as_ref().map(Spanned::span)),
        ("model", file.model.as_ref().map(Spanned::span)),
    ];
    keys.into_iter()
        .filter_map(|(key, span)| Some((key, span?)))
        .collect()
}

/// One index while it is checked.
struct Scope<'a> {
    file: &'a IndexFile,
    span: Range<usize>,
    what: String,
}

impl Scope<'_> {
    fn need<'f, T>(
        &self,
        key: &str,
        given: &'f Option<Spanned<T>>,
    ) -> Result<&'f Spanned<T>, Fault> {
        let (what, kind) = (&self.what, self.file.kind.get_ref());
        given.as_ref().ok_or_else(|| {
            let problem = format!("{what}: a {kind} index needs {key}; add {key} = ...");
            (self.span.clone(), problem)
        })
    }

    fn sql(&self) -> Result<SqlIndex, Fault> {
        let given = self.need("statement", &self.file.statement)?;
        let statement = filled(&format!("{}: statement", self.what), given)?;
        if statement.len() > STATEMENT_BYTES_MAX {
            let problem = format!(
                "{}: statement has {} bytes; at most {STATEMENT_BYTES_MAX} are read",
                self.what,
                statement.len()
            );
            return Err((given.span(), problem));
        }
        let steps_max = match &self.file.steps_max {
            None => STEPS_DEFAULT,
            Some(steps) if (1..=STEPS_MAX).contains(steps.get_ref()) => *steps.get_ref(),
            Some(steps) => {
                let problem = format!(
                    "{}: steps_max is {}; it must be from 1 to {STEPS_MAX}",
                    self.what,
                    steps.get_ref()
                );
                return Err((steps.span(), problem));
            }
        };
        Ok(SqlIndex {
            statement,
            steps_max,
        })
    }

    fn search(&self) -> Result<SearchIndex, Fault> {
        let given = self.need("query", &self.file.query)?;
        let query = filled(&format!("{}: query", self.what), given)?;
        let count = words(&query).count();
        if count == 0 || count > QUERY_WORDS_MAX {
            let problem = format!(
                "{}: query has {count} words; write from 1 to {QUERY_WORDS_MAX}",
                self.what
            );
            return Err((given.span(), problem));
        }
        let most = u32::MAX;
        let top = within(
            self.file.top.as_ref(),
            &format!("{}: top", self.what),
            1..=most,
        )?;
        Ok(SearchIndex {
            fields: self.fields()?,
            query,
            k1_thousandths: self.thousandths("k1", &self.file.k1, K1_DEFAULT, 10_000)?,
            b_thousandths: self.thousandths("b", &self.file.b, B_DEFAULT, 1_000)?,
            top,
        })
    }

    fn thousandths(
        &self,
        key: &str,
        given: &Option<Spanned<f64>>,
        default: u32,
        most: u32,
    ) -> Result<u32, Fault> {
        let Some(given) = given else {
            return Ok(default);
        };
        let scaled = *given.get_ref() * 1_000.0;
        if !(0.0..=f64::from(most)).contains(&scaled) {
            let problem = format!(
                "{}: {key} is {}; it must be from 0 to {}",
                self.what,
                given.get_ref(),
                most / 1_000
            );
            return Err((given.span(), problem));
        }
        Ok(scaled.round() as u32)
    }

    fn fields(&self) -> Result<Vec<String>, Fault> {
        let given = self.need("fields", &self.file.fields)?;
        let fields = given.get_ref();
        let fault = |problem: String| (given.span(), format!("{}: {problem}", self.what));
        if fields.is_empty() {
            return Err(fault("fields is empty; name at least one".to_owned()));
        }
        if let Some(field) = fields
            .iter()
            .find(|field| field.is_empty() || field.chars().any(char::is_control))
        {
            return Err(fault(format!("{field:?} is no field path; name a field")));
        }
        let spans = fields.iter().map(|field| (field.as_str(), given.span()));
        unique(&format!("fields of {}", self.what), spans)?;
        Ok(fields.clone())
    }

    fn classifier(&self) -> Result<ClassifierIndex, Fault> {
        let file = self.file;
        let fields = self.fields()?;
        let given = self.need("classes", &file.classes)?;
        let classes = given.get_ref();
        let plain = |class: &String| {
            !class.is_empty() && class.trim() == class && !class.chars().any(char::is_control)
        };
        if !(2..=CLASSES_MAX).contains(&classes.len()) || !classes.iter().all(plain) {
            let problem = format!(
                "{}: classes must be 2 to {CLASSES_MAX} names on one line each, without space around \
                 them",
                self.what
            );
            return Err((given.span(), problem));
        }
        let spans = classes.iter().map(|class| (class.as_str(), given.span()));
        unique(&format!("classes of {}", self.what), spans)?;
        let source = match (&file.labels, &file.model) {
            (Some(labels), None) => ClassifierSource::Labels {
                path: labels.get_ref().clone(),
                id: filled(&format!("{}: id", self.what), self.need("id", &file.id)?)?,
                field: filled(
                    &format!("{}: field", self.what),
                    self.need("field", &file.field)?,
                )?,
            },
            (None, Some(model)) => {
                if let Some(key) = file.id.as_ref().or(file.field.as_ref()) {
                    let problem = format!(
                        "{}: id and field are of labels; a classifier with a model has neither",
                        self.what
                    );
                    return Err((key.span(), problem));
                }
                ClassifierSource::Model {
                    path: model.get_ref().clone(),
                }
            }
            _ => {
                let problem = format!(
                    "{}: name either labels to train it from, or a model that was trained before",
                    self.what
                );
                return Err((self.span.clone(), problem));
            }
        };
        Ok(ClassifierIndex {
            fields,
            classes: classes.clone(),
            source,
        })
    }
}
