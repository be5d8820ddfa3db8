//! Columns: their names and where their values stand in a record.

use toml::Spanned;

use super::{Fault, plain_name};
use crate::column::Column;
use crate::plan::Field;
use crate::plan::file::ColumnFile;

pub(super) fn column(spanned: &Spanned<ColumnFile>, fields: &[Field]) -> Result<Column, Fault> {
    let file = spanned.get_ref();
    let fault = |problem: String| (spanned.span(), problem);
    let name = &file.name;
    plain_name("column", name).map_err(fault)?;
    if fields.iter().any(|field| field.name == *name) {
        return Err(fault(format!(
            "column {name:?} has the name of a [[field]]; rename one"
        )));
    }
    let field = file.field.as_ref().unwrap_or(name);
    if field.is_empty() || field.chars().any(char::is_control) {
        return Err(fault(format!(
            "column {name:?} has an empty field or one with control characters; write the path in \
             the record, or leave it out for {name:?}"
        )));
    }
    Ok(Column {
        name: name.clone(),
        field: field.clone(),
        kind: file.kind,
    })
}
