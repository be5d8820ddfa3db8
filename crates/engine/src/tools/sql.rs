//! Reads rows of a SQLite database: one statement, checked when it is opened, that can only read.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use operator::infer::CancelFlag;
use operator::plan::SqlTool;
use operator::tool::{Argument, ArgumentValue, Arguments, Call, Reply, Tool, ToolError};
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, OpenFlags, Row, Statement};
use serde_json::{Map, Value};

/// Virtual machine steps between two looks at the clock.
const STEPS: i32 = 1_000;
/// How long a check of the statement may take.
const CHECK: Duration = Duration::from_secs(10);

/// A database and the statement that is run on it.
pub(super) struct SqlReader {
    path: PathBuf,
    scope: String,
    query: String,
    rows_max: u32,
}

impl SqlReader {
    pub(super) fn open(
        tool: &SqlTool,
        path: &Path,
        arguments: &[Argument],
    ) -> Result<Self, String> {
        let shown = path.display();
        let path = path
            .canonicalize()
            .map_err(|error| format!("database {shown} cannot be opened: {error}"))?;
        let reader = Self {
            scope: path.display().to_string(),
            path,
            query: tool.query.clone(),
            rows_max: tool.rows_max,
        };
        let connection = reader
            .connect(CHECK, Arc::new(CancelFlag::new()))
            .map_err(|error| format!("database {shown} cannot be opened: {error}"))?;
        let statement = connection
            .prepare(&reader.query)
            .map_err(|error| format!("query: {error}; it must be one SELECT of {shown}"))?;
        if !statement.readonly() {
            return Err("query: it is not a SELECT; a tool only reads".to_owned());
        }
        let names = statement.column_names();
        for (place, name) in names.iter().enumerate() {
            if names[..place].contains(name) {
                return Err(format!("query: two columns are named {name:?}; use AS"));
            }
        }
        for argument in arguments {
            let parameter = format!(":{}", argument.name);
            let index = statement.parameter_index(&parameter);
            if !matches!(index, Ok(Some(_))) {
                return Err(format!("query: it has no parameter {parameter}"));
            }
        }
        if statement.parameter_count() != arguments.len() {
            return Err("query: write every parameter as :name of a declared argument".to_owned());
        }
        Ok(reader)
    }

    /// A connection that only reads, sees no other database, and stops in time.
    fn connect(&self, timeout: Duration, cancel: Arc<CancelFlag>) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.path, flags)?;
        connection.busy_timeout(Duration::ZERO)?;
        connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0)?;
        connection.authorizer(Some(|context: AuthContext<'_>| match context.action {
            AuthAction::Select | AuthAction::Read { .. } | AuthAction::Recursive => {
                Authorization::Allow
            }
            AuthAction::Function { function_name }
                if !function_name.eq_ignore_ascii_case("load_extension") =>
            {
                Authorization::Allow
            }
            _ => Authorization::Deny,
        }));
        let until = Instant::now() + timeout;
        let stop = move || cancel.is_cancelled() || Instant::now() >= until;
        connection.progress_handler(STEPS, Some(stop));
        Ok(connection)
    }

    fn read(&self, arguments: &Arguments, call: &Call) -> Result<(Vec<u8>, bool), Trouble> {
        let connection = self.connect(call.timeout, Arc::clone(&call.cancel))?;
        let mut statement = connection.prepare(&self.query)?;
        bind(&mut statement, arguments)?;
        let names: Vec<String> = statement
            .column_names()
            .into_iter()
            .map(str::to_owned)
            .collect();
        let mut rows = statement.raw_query();
        let (mut body, mut count) = (b"[".to_vec(), 0);
        let over = |error| match call.cut {
            true => Ok(()),
            false => Err(Trouble::Tool(error)),
        };
        let mut truncated = false;
        while let Some(row) = rows.next()? {
            let row = encode(row, &names)?;
            // Only whole rows, for half of one is no JSON.
            if body.len() + row.len() + 2 > usize::try_from(call.bytes_max).unwrap_or(usize::MAX) {
                let bytes_max = call.bytes_max;
                over(ToolError::TooLarge { bytes_max })?;
                truncated = true;
                break;
            }
            if count == self.rows_max {
                let most = self.rows_max;
                over(ToolError::Refused(format!(
                    "more than {most} rows; raise rows_max, add LIMIT, or set over = \"cut\""
                )))?;
                truncated = true;
                break;
            }
            if count > 0 {
                body.push(b',');
            }
            body.extend(row);
            count += 1;
        }
        body.push(b']');
        Ok((body, truncated))
    }
}

impl Tool for SqlReader {
    fn scope(&self) -> &str {
        &self.scope
    }

    fn resource(&self, _arguments: &Arguments) -> Result<String, ToolError> {
        Ok(format!("database:{}", self.scope))
    }

    fn call(&self, arguments: &Arguments, call: &Call) -> Result<Reply, ToolError> {
        let (body, truncated) = self
            .read(arguments, call)
            .map_err(|trouble| trouble.explain(call))?;
        Ok(Reply {
            body,
            media: "application/json".to_owned(),
            truncated,
            from: self.scope.clone(),
        })
    }
}

/// What went wrong while rows were read.
enum Trouble {
    Sql(rusqlite::Error),
    Tool(ToolError),
}

impl From<rusqlite::Error> for Trouble {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl Trouble {
    fn explain(self, call: &Call) -> ToolError {
        let error = match self {
            Self::Tool(error) => return error,
            Self::Sql(error) => error,
        };
        match error.sqlite_error_code() {
            Some(ErrorCode::OperationInterrupted) if call.cancel.is_cancelled() => {
                ToolError::Cancelled
            }
            Some(ErrorCode::OperationInterrupted) => ToolError::TimedOut {
                after_ms: u64::try_from(call.timeout.as_millis()).unwrap_or(u64::MAX),
            },
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                ToolError::unavailable(error.to_string())
            }
            _ => ToolError::Refused(error.to_string()),
        }
    }
}

fn bind(statement: &mut Statement<'_>, arguments: &Arguments) -> rusqlite::Result<()> {
    for (name, value) in arguments.iter() {
        let Some(index) = statement.parameter_index(&format!(":{name}"))? else {
            continue;
        };
        match value {
            ArgumentValue::Text(text) => statement.raw_bind_parameter(index, text)?,
            ArgumentValue::Integer(number) => statement.raw_bind_parameter(index, number)?,
            ArgumentValue::Boolean(flag) => statement.raw_bind_parameter(index, flag)?,
        }
    }
    Ok(())
}

/// A row as a JSON object.
fn encode(row: &Row<'_>, names: &[String]) -> Result<Vec<u8>, Trouble> {
    let malformed = |problem: String| Trouble::Tool(ToolError::Malformed(problem));
    let mut fields = Map::new();
    for (place, name) in names.iter().enumerate() {
        let value = match row.get_ref(place)? {
            ValueRef::Null => Value::Null,
            ValueRef::Integer(number) => Value::from(number),
            ValueRef::Real(number) => Value::from(number),
            ValueRef::Text(text) => match std::str::from_utf8(text) {
                Ok(text) => Value::from(text),
                Err(_) => return Err(malformed(format!("column {name:?} is not UTF-8"))),
            },
            ValueRef::Blob(_) => {
                return Err(malformed(format!(
                    "column {name:?} is a blob; use hex({name})"
                )));
            }
        };
        fields.insert(name.clone(), value);
    }
    serde_json::to_vec(&fields).map_err(|error| malformed(error.to_string()))
}
