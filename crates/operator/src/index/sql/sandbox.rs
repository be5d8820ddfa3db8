//! What a plan's statement may do: read one table with functions that give equal results for equal input.
//!
//! The statement is compiled under an authorizer that knows what is allowed, not what is forbidden;
//! writes, ATTACH, PRAGMA, the schema, files, extensions, the clock and randomness are all not on the
//! list. A step counter ends what would not end, and no value may be much longer than the longest that was read.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;
use rusqlite::config::DbConfig;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;

/// The one table that may be read.
const TABLE: &str = "records";
/// Table-valued functions over JSON, which are tables to the authorizer.
const JSON_TABLES: [&str; 2] = ["json_each", "json_tree"];
/// Steps between two looks at the counter.
const STRIDE: i32 = 1_000;
/// Bytes that a value may always have.
const VALUE_BYTES: usize = 16 << 20;

/// Functions without clock, randomness, files or state; sorted.
const FUNCTIONS: &[&str] = &[
    "->",
    "->>",
    "abs",
    "avg",
    "ceil",
    "ceiling",
    "char",
    "coalesce",
    "concat",
    "concat_ws",
    "count",
    "cume_dist",
    "dense_rank",
    "exp",
    "first_value",
    "floor",
    "format",
    "glob",
    "group_concat",
    "hex",
    "if",
    "ifnull",
    "iif",
    "instr",
    "json",
    "json_array",
    "json_array_length",
    "json_each",
    "json_extract",
    "json_group_array",
    "json_group_object",
    "json_object",
    "json_patch",
    "json_quote",
    "json_tree",
    "json_type",
    "json_valid",
    "lag",
    "last_value",
    "lead",
    "length",
    "like",
    "likelihood",
    "likely",
    "ln",
    "log",
    "log10",
    "log2",
    "lower",
    "ltrim",
    "max",
    "min",
    "mod",
    "nth_value",
    "ntile",
    "nullif",
    "octet_length",
    "percent_rank",
    "pow",
    "power",
    "printf",
    "quote",
    "rank",
    "replace",
    "round",
    "row_number",
    "rtrim",
    "sign",
    "sqrt",
    "string_agg",
    "substr",
    "substring",
    "sum",
    "total",
    "trim",
    "typeof",
    "unhex",
    "unicode",
    "unlikely",
    "upper",
];

/// An in-memory database that nothing but the table of records is in.
pub(super) struct Sandbox {
    connection: Connection,
}

/// What a guarded statement did.
#[derive(Default)]
struct Seen {
    read: BTreeSet<String>,
    denied: Option<String>,
}

/// Watches the statements that are compiled and run while it lives.
pub(super) struct Guard<'s> {
    connection: &'s Connection,
    seen: Arc<Mutex<Seen>>,
    spent: Arc<AtomicBool>,
}

impl Sandbox {
    pub(super) fn open() -> rusqlite::Result<Self> {
        let connection = Connection::open_in_memory()?;
        // Sorting must not write files either.
        connection.execute_batch("PRAGMA temp_store = MEMORY; PRAGMA trusted_schema = OFF")?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
        connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0)?;
        connection.set_limit(Limit::SQLITE_LIMIT_WORKER_THREADS, 0)?;
        Ok(Self { connection })
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// From here on, until the guard is dropped, only reading is possible.
    pub(super) fn guard(&self) -> Guard<'_> {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let watched = seen.clone();
        self.connection
            .authorizer(Some(move |context: AuthContext<'_>| {
                let mut seen = watched.lock().unwrap_or_else(PoisonError::into_inner);
                decide(context.action, &mut seen)
            }));
        Guard {
            connection: &self.connection,
            seen,
            spent: Arc::new(AtomicBool::new(false)),
        }
    }
}

impl Guard<'_> {
    /// Ends what takes more steps of SQLite's machine.
    pub(super) fn limit_steps(&self, steps_max: u64) {
        let (mut steps, spent) = (0_u64, self.spent.clone());
        let count = move || {
            steps += u64::from(STRIDE.unsigned_abs());
            let over = steps > steps_max;
            if over {
                spent.store(true, Ordering::Relaxed);
            }
            over
        };
        self.connection.progress_handler(STRIDE, Some(count));
    }

    /// Refuses values that are much longer than the longest of the table.
    pub(super) fn limit_values(&self, longest: usize) -> rusqlite::Result<()> {
        let bytes = longest.saturating_mul(2).max(VALUE_BYTES);
        let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
        self.connection
            .set_limit(Limit::SQLITE_LIMIT_LENGTH, bytes)
            .map(|_| ())
    }

    /// Whether the steps were used up.
    pub(super) fn is_spent(&self) -> bool {
        self.spent.load(Ordering::Relaxed)
    }

    /// Columns of the table that were read, in lower case.
    pub(super) fn read(&self) -> BTreeSet<String> {
        self.lock().read.clone()
    }

    /// What was tried and is not allowed, first of all.
    pub(super) fn denied(&self) -> Option<String> {
        self.lock().denied.clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.connection
            .authorizer(None::<fn(AuthContext<'_>) -> Authorization>);
        self.connection.progress_handler(0, None::<fn() -> bool>);
    }
}

fn decide(action: AuthAction<'_>, seen: &mut Seen) -> Authorization {
    let denied = match action {
        AuthAction::Select | AuthAction::Recursive => return Authorization::Allow,
        AuthAction::Read {
            table_name,
            column_name,
        } => {
            if table_name.eq_ignore_ascii_case(TABLE) {
                seen.read.insert(column_name.to_lowercase());
                return Authorization::Allow;
            }
            // To count the rows of a subquery is to read it, under its name or none, but no column.
            let name = table_name.to_lowercase();
            let built_in = name.starts_with("sqlite_") || name.starts_with("pragma_");
            if JSON_TABLES.contains(&name.as_str()) || (column_name.is_empty() && !built_in) {
                return Authorization::Allow;
            }
            format!("reads the table {table_name:?}")
        }
        AuthAction::Function { function_name } => {
            let name = function_name.to_lowercase();
            if FUNCTIONS.binary_search(&name.as_str()).is_ok() {
                return Authorization::Allow;
            }
            format!(
                "calls {name}(), which is not among the functions whose result depends on the records \
                 alone (dates: a [[column]] of type \"time\" holds Unix seconds)"
            )
        }
        AuthAction::Pragma { pragma_name, .. } => format!("asks for PRAGMA {pragma_name}"),
        AuthAction::Attach { .. } => "attaches a database".to_owned(),
        AuthAction::Detach { .. } => "detaches a database".to_owned(),
        AuthAction::Insert { table_name }
        | AuthAction::Delete { table_name }
        | AuthAction::Update { table_name, .. } => format!("writes the table {table_name:?}"),
        AuthAction::Transaction { .. } | AuthAction::Savepoint { .. } => {
            "begins or ends a transaction".to_owned()
        }
        _ => "changes the schema".to_owned(),
    };
    seen.denied.get_or_insert(denied);
    Authorization::Deny
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_functions_can_be_searched() {
        assert!(FUNCTIONS.is_sorted());
    }
}
