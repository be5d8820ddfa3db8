//! Names of fields, labels and columns in prefilters and reductions.

use std::ops::Range;

use toml::Spanned;

use super::Fault;
use crate::column::{Column, ColumnType};
use crate::nearest::suggest;
use crate::plan::file::{FilterFile, LabelText};
use crate::plan::{ColumnRef, Field, Filter, UnitPlan};

/// What a reduction may name.
#[derive(Clone, Copy)]
pub(super) struct Names<'a> {
    pub(super) fields: &'a [Field],
    pub(super) columns: &'a [Column],
    pub(super) unit: &'a UnitPlan,
}

/// What a name stands for.
pub(super) enum Named<'a> {
    Field(&'a Field),
    Column(&'a Column),
}

impl<'a> Names<'a> {
    /// The field or column of that name.
    pub(super) fn find(
        &self,
        name: &str,
        what: &str,
        span: Range<usize>,
    ) -> Result<Named<'a>, Fault> {
        if let Some(column) = self.columns.iter().find(|column| column.name == name) {
            return Ok(Named::Column(column));
        }
        if self.columns.is_empty() {
            return known_field(name, self.fields, what, span).map(Named::Field);
        }
        if let Some(field) = self.fields.iter().find(|field| field.name == name) {
            return Ok(Named::Field(field));
        }
        let fields = self.fields.iter().map(|field| field.name.as_str());
        let columns = self.columns.iter().map(|column| column.name.as_str());
        let known: Vec<&str> = fields.chain(columns).collect();
        let near = suggest(name, &known);
        Err((
            span,
            format!("{what}: unknown field or column {name:?}{near}"),
        ))
    }

    /// Checks a `where`: labels of fields, and exact texts of text columns.
    pub(super) fn filter(&self, given: &FilterFile, what: &str) -> Result<Filter, Fault> {
        let mut filter = Filter::default();
        for (name, wanted) in given {
            match self.find(name, what, wanted.span())? {
                Named::Field(field) => {
                    let label = known_label(wanted, field, what)?;
                    filter.labels.insert(name.clone(), label);
                }
                Named::Column(column) if column.kind == ColumnType::Text => {
                    let text = wanted.get_ref().0.clone();
                    filter.columns.insert(name.clone(), text);
                }
                Named::Column(column) => {
                    let problem = format!(
                        "{what}: {} has no text to compare; name a field or a text column",
                        described(column)
                    );
                    return Err((wanted.span(), problem));
                }
            }
        }
        Ok(filter)
    }
}

/// A column as a reducer sees it.
pub(super) fn reference(column: &Column) -> ColumnRef {
    ColumnRef {
        name: column.name.clone(),
        kind: column.kind,
    }
}

/// A column with its type, for a message.
pub(super) fn described(column: &Column) -> String {
    format!(
        "column {:?} of type {:?}",
        column.name,
        column.kind.as_str()
    )
}

pub(super) fn known_field<'a>(
    name: &str,
    fields: &'a [Field],
    what: &str,
    span: Range<usize>,
) -> Result<&'a Field, Fault> {
    fields
        .iter()
        .find(|field| field.name == name)
        .ok_or_else(|| {
            let known: Vec<&str> = fields.iter().map(|field| field.name.as_str()).collect();
            (
                span,
                format!("{what}: unknown field {name:?}{}", suggest(name, &known)),
            )
        })
}

pub(super) fn known_label(
    label: &Spanned<LabelText>,
    field: &Field,
    what: &str,
) -> Result<String, Fault> {
    let name = &label.get_ref().0;
    if field.label_index(name).is_some() {
        return Ok(name.clone());
    }
    let known: Vec<&str> = field
        .labels
        .iter()
        .map(|label| label.name.as_str())
        .collect();
    let near = suggest(name, &known);
    Err((
        label.span(),
        format!("{what}: field {:?} has no label {name:?}{near}", field.name),
    ))
}
