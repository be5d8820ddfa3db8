//! SQL over the records: one read-only SELECT in an in-memory database.
//!
//! The table `records` has a row per readable record: `_id`, `_ordinal`, `_json` (the whole record), then
//! the plan's columns, then every top-level field that is text, a number or a truth value in some record.
//! Names do not differ by case: the first one of a name has it, and others are reached through `_json`.
//! Only the columns that the statement reads are filled. A result row names its record, so that it is a
//! typed fact about it. What a statement may do is in `sql/sandbox.rs`.

mod sandbox;

use std::collections::{BTreeSet, HashMap};

use rusqlite::types::{Value as SqlValue, ValueRef};
use rusqlite::{Connection, params_from_iter};
use serde_json::Value;

use super::{Made, Row, Rows, Table};
use crate::column::{Column, ColumnValue, project_fields};
use crate::error::OperatorError;
use crate::plan::{Index, Plan, SqlIndex};
use sandbox::Sandbox;

/// Most columns of the table; fields beyond them are reached through `_json`.
const COLUMNS_MAX: usize = 1_000;
const ID: &str = "_id";
const ORDINAL: &str = "_ordinal";
const JSON: &str = "_json";

/// One column of the table and where its values come from.
struct Filled<'p> {
    name: String,
    source: Source<'p>,
}

enum Source<'p> {
    Id,
    Ordinal,
    Json,
    Column(&'p Column),
    Field(String),
}

pub(super) fn compute(
    plan: &Plan,
    index: &Index,
    spec: &SqlIndex,
    rows: &dyn Rows,
) -> Result<Made, OperatorError> {
    let statement = Statement { plan, index, spec };
    let columns = columns(plan, rows)?;
    let sandbox = Sandbox::open().map_err(|error| statement.refused(None, &error))?;
    let database = sandbox.connection();
    let read = statement.prepare_empty(&sandbox, &columns)?;
    let used: Vec<&Filled<'_>> = columns
        .iter()
        .filter(|column| read.contains(&column.name.to_lowercase()))
        .collect();
    let (ids, longest) = statement.fill(database, &used, rows)?;
    let found = statement.ask(&sandbox, &ids, longest)?;
    Ok(Made {
        table: Table::of_members(rows.len(), found, None),
        records: ids.len() as u64,
        unreadable: 0,
        learned: None,
    })
}

/// Compiles the statement over an empty table.
pub(super) fn check(
    plan: &Plan,
    index: &Index,
    spec: &SqlIndex,
    rows: &dyn Rows,
) -> Result<(), OperatorError> {
    let statement = Statement { plan, index, spec };
    let columns = columns(plan, rows)?;
    let sandbox = Sandbox::open().map_err(|error| statement.refused(None, &error))?;
    statement.prepare_empty(&sandbox, &columns).map(|_| ())
}

/// The columns of the table, from one look at all records.
fn columns<'p>(plan: &'p Plan, rows: &dyn Rows) -> Result<Vec<Filled<'p>>, OperatorError> {
    let mut columns = Vec::new();
    let mut names = BTreeSet::new();
    let mut add = |name: &str, source| {
        if columns.len() < COLUMNS_MAX && !name.contains('\0') && names.insert(name.to_lowercase())
        {
            let name = name.to_owned();
            columns.push(Filled { name, source });
        }
    };
    add(ID, Source::Id);
    add(ORDINAL, Source::Ordinal);
    add(JSON, Source::Json);
    for column in &plan.columns {
        add(&column.name, Source::Column(column));
    }
    rows.visit(&mut |row| {
        for (name, value) in row.fields {
            if matches!(value, Value::String(_) | Value::Number(_) | Value::Bool(_)) {
                add(name, Source::Field(name.clone()));
            }
        }
        Ok(())
    })?;
    Ok(columns)
}

/// The plan's statement, and how its mistakes are told.
struct Statement<'a> {
    plan: &'a Plan,
    index: &'a Index,
    spec: &'a SqlIndex,
}

impl Statement<'_> {
    /// Makes the table and compiles the statement over it; returns the columns that it reads.
    fn prepare_empty(
        &self,
        sandbox: &Sandbox,
        columns: &[Filled<'_>],
    ) -> Result<BTreeSet<String>, OperatorError> {
        let names: Vec<String> = columns.iter().map(|column| quoted(&column.name)).collect();
        let table = format!("CREATE TABLE records ({})", names.join(", "));
        let database = sandbox.connection();
        database
            .execute_batch(&table)
            .map_err(|error| self.refused(None, &error))?;
        let guard = sandbox.guard();
        let prepared = database
            .prepare(&self.spec.statement)
            .map_err(|error| self.refused(guard.denied(), &error));
        let checked = prepared.and_then(|prepared| self.check(&prepared, columns));
        let read = guard.read();
        drop(guard);
        checked.map(|()| read)
    }

    fn check(
        &self,
        prepared: &rusqlite::Statement<'_>,
        columns: &[Filled<'_>],
    ) -> Result<(), OperatorError> {
        let names = prepared.column_names();
        if names.first() != Some(&ID) || names.len() > 2 {
            let known: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
            let found = names.join(", ");
            return Err(self.fault(format!(
                "gives the columns ({found}); its first must be _id, which names the record, and a \
                 second may be an integer (columns of `records`: {})",
                known.join(", ")
            )));
        }
        if prepared.parameter_count() > 0 {
            return Err(self.fault("has parameters; write their values".to_owned()));
        }
        if !prepared.readonly() {
            return Err(self.fault("writes; only a SELECT is run".to_owned()));
        }
        Ok(())
    }

    /// Fills the columns that are read; returns the position of every id, and the bytes of the longest
    /// row.
    fn fill(
        &self,
        database: &Connection,
        columns: &[&Filled<'_>],
        rows: &dyn Rows,
    ) -> Result<(HashMap<String, u32>, usize), OperatorError> {
        let mut ids = HashMap::new();
        let mut longest = 0;
        let refused = |error: rusqlite::Error| self.refused(None, &error);
        let names: Vec<String> = columns.iter().map(|column| quoted(&column.name)).collect();
        // A statement that counts rows reads no column of them.
        let insert = match names.len() {
            0 => format!("INSERT INTO records ({ORDINAL}) VALUES (NULL)"),
            some => {
                let marks = vec!["?"; some].join(", ");
                format!(
                    "INSERT INTO records ({}) VALUES ({marks})",
                    names.join(", ")
                )
            }
        };
        database.execute_batch("BEGIN").map_err(refused)?;
        {
            let mut insert = database.prepare(&insert).map_err(refused)?;
            rows.visit(&mut |row| {
                ids.insert(row.id.to_owned(), row.ordinal);
                let values: Vec<SqlValue> = columns
                    .iter()
                    .map(|column| value(&column.source, row))
                    .collect();
                longest = longest.max(values.iter().map(bytes).sum());
                insert
                    .execute(params_from_iter(values))
                    .map_err(|error| self.refused(None, &error))?;
                Ok(())
            })?;
        }
        database.execute_batch("COMMIT").map_err(refused)?;
        Ok((ids, longest))
    }

    /// Runs the statement; every row is held against the records.
    fn ask(
        &self,
        sandbox: &Sandbox,
        ids: &HashMap<String, u32>,
        longest: usize,
    ) -> Result<Vec<(u32, Option<i64>, bool)>, OperatorError> {
        let guard = sandbox.guard();
        guard.limit_steps(self.spec.steps_max);
        guard
            .limit_values(longest)
            .map_err(|error| self.refused(None, &error))?;
        let told = |error: &rusqlite::Error| match guard.is_spent() {
            true => self.fault(format!(
                "was stopped after {} steps; make it simpler, or raise steps_max",
                self.spec.steps_max
            )),
            false => self.refused(guard.denied(), error),
        };
        let mut prepared = sandbox
            .connection()
            .prepare(&self.spec.statement)
            .map_err(|error| told(&error))?;
        let has_value = prepared.column_count() == 2;
        let mut found: HashMap<u32, Option<i64>> = HashMap::new();
        let mut rows = prepared.query([]).map_err(|error| told(&error))?;
        while let Some(row) = rows.next().map_err(|error| told(&error))? {
            let get = |place| {
                row.get_ref(place)
                    .map_err(|error| self.refused(None, &error))
            };
            let id = match get(0)? {
                ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
                ValueRef::Integer(integer) => integer.to_string(),
                other => {
                    let kind = other.data_type();
                    return Err(
                        self.fault(format!("gives an _id of type {kind}; select records._id"))
                    );
                }
            };
            let Some(&ordinal) = ids.get(&id) else {
                return Err(self.fault(format!(
                    "gives the _id {id:?}, which no record has; select records._id as it is"
                )));
            };
            let value = match has_value.then(|| get(1)).transpose()? {
                None | Some(ValueRef::Null) => None,
                Some(ValueRef::Integer(integer)) => Some(integer),
                Some(other) => {
                    let kind = other.data_type();
                    return Err(self.fault(format!(
                        "gives {id:?} a value of type {kind}; make it an integer, such as \
                         CAST(ROUND(1000 * x) AS INTEGER)"
                    )));
                }
            };
            if found.insert(ordinal, value).is_some() {
                return Err(self.fault(format!(
                    "gives {id:?} twice; add DISTINCT or GROUP BY _id, for a record has one value"
                )));
            }
        }
        Ok(found
            .into_iter()
            .map(|(ordinal, value)| (ordinal, value, true))
            .collect())
    }

    /// What the SQL engine says of the statement.
    fn refused(&self, denied: Option<String>, error: &rusqlite::Error) -> OperatorError {
        match (denied, error) {
            (Some(denied), _) => self.fault(format!(
                "is refused, since it {denied} (SQLite: {error}); a statement only reads the table \
                 `records`"
            )),
            (None, rusqlite::Error::MultipleStatement) => {
                self.fault("is more than one statement; write one SELECT".to_owned())
            }
            (None, error) => self.fault(format!("fails; SQLite: {error}")),
        }
    }

    fn fault(&self, problem: String) -> OperatorError {
        let mut statement = self
            .spec
            .statement
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        if statement.chars().count() > STATEMENT_CHARS {
            statement = statement.chars().take(STATEMENT_CHARS).collect();
            statement.push_str("...");
        }
        OperatorError::Plan {
            path: self.plan.path.clone(),
            line: self.index.line,
            column: self.index.column,
            problem: format!(
                "index {:?}: the statement {statement:?} {problem}",
                self.index.name
            ),
        }
    }
}

/// Characters of a statement that an error repeats.
const STATEMENT_CHARS: usize = 120;

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn bytes(value: &SqlValue) -> usize {
    match value {
        SqlValue::Text(text) => text.len(),
        _ => 8,
    }
}

fn value(source: &Source<'_>, row: Row<'_>) -> SqlValue {
    match source {
        Source::Id => SqlValue::Text(row.id.to_owned()),
        Source::Ordinal => SqlValue::Integer(i64::from(row.ordinal)),
        Source::Json => SqlValue::Text(serde_json::to_string(row.fields).unwrap_or_default()),
        Source::Column(column) => match project_fields(column, row.fields) {
            None => SqlValue::Null,
            Some(ColumnValue::Integer(integer)) => SqlValue::Integer(integer),
            Some(ColumnValue::Text(text)) => SqlValue::Text(text),
        },
        Source::Field(name) => match row.fields.get(name) {
            Some(Value::String(text)) => SqlValue::Text(text.clone()),
            Some(Value::Bool(flag)) => SqlValue::Integer(i64::from(*flag)),
            Some(Value::Number(number)) => match (number.as_i64(), number.as_u64()) {
                (Some(integer), _) => SqlValue::Integer(integer),
                // SQLite has no unsigned integers: rounding one would make two numbers equal.
                (None, Some(unsigned)) => SqlValue::Text(unsigned.to_string()),
                (None, None) => number.as_f64().map_or(SqlValue::Null, SqlValue::Real),
            },
            _ => SqlValue::Null,
        },
    }
}
