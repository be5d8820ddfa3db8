//! Tools that stages may call: what each reaches, what it is asked, and how much it may use.
//!
//! ```toml
//! [[tool]]
//! name = "issue_comments"
//! kind = "http"                  # or "file", "sql", "process", "mcp"
//! url = "https://api.example.org/issues/{number}/comments"
//! hosts = ["cdn.example.org"]    # where a redirect may lead, beside the host of url
//! private_hosts = []             # hosts whose address may be a private one
//! headers = { accept = "application/json" }
//! headers_env = { authorization = "EXAMPLE_AUTH" }   # values from the environment, never hashed
//! arguments = { number = { field = "number", type = "integer" } }
//! concurrency = 4                # per resource (here: per host), as is the rate
//! per_second = 10
//! burst = 5
//! calls_max = 1_000              # in a run, retries included
//! attempts_max = 3
//! timeout_ms = 10_000
//! backoff_ms = 250
//! wait_max_ms = 60_000           # most that a Retry-After is waited for
//! bytes_max = 65_536
//! over = "error"                 # or "cut"
//! max_age = 3_600                # seconds that an earlier run's observation is believed; 0 without
//! price_micros = 0
//!
//! [[tool]]
//! name = "source"
//! kind = "file"
//! root = "src"                   # beside the plan; nothing outside it is read
//! file = "{path}"
//! missing = "error"              # or "empty": a file that is not there is an empty answer
//! arguments = { path = { field = "path" } }   # text, where no type is written
//!
//! [[tool]]
//! name = "owner"
//! kind = "sql"
//! database = "owners.sqlite"     # opened for reading only
//! query = "SELECT team FROM owners WHERE component = :component"
//! rows_max = 100
//! arguments = { component = { field = "component" } }
//!
//! [[tool]]
//! name = "history"
//! kind = "process"
//! program = "git"                # never a shell
//! args = ["log", "-n", "5", "--", "{path}"]   # one entry is one argument, whatever it contains
//! env = ["PATH"]                 # all that the process sees of the environment
//! directory = "."
//! arguments = { path = { field = "path" } }
//!
//! [[tool]]
//! name = "docs"
//! kind = "mcp"
//! command = ["docs-server", "--stdio"]        # spoken to over its input and output
//! call = "search"                # the server's tool
//! read_only = true               # the plan's word that it changes nothing
//! constants = { limit = 5 }      # further arguments, the same for all units
//! arguments = { query = { field = "title" } }
//! ```

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::{Map, Value};

use crate::canonical::Canonical;
use crate::id::ContentHash;
use crate::tool::{Argument, Over, Quota, Template};

/// One declared tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolSpec {
    /// Name, unique among tools.
    pub name: String,
    /// What it reads, and how.
    pub kind: ToolKind,
    /// What it is asked, by name.
    pub arguments: Vec<Argument>,
    /// How much it may use.
    pub quota: Quota,
    /// Seconds that an earlier run's observation is believed.
    pub max_age_s: u64,
}

/// What a tool reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolKind {
    /// A file below a directory.
    File(FileTool),
    /// Rows of a SQLite database.
    Sql(SqlTool),
    /// A resource of an allowed host.
    Http(HttpTool),
    /// What a program writes.
    Process(ProcessTool),
    /// What a tool of a Model Context Protocol server answers.
    Mcp(McpTool),
}

/// A file below a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileTool {
    /// The directory, relative to the plan file.
    pub root: PathBuf,
    /// The file, relative to the directory.
    pub file: Template,
    /// Whether a file that is not there is an empty answer; otherwise it is an error.
    pub missing_is_empty: bool,
}

/// Rows of a SQLite database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqlTool {
    /// The database file, relative to the plan file.
    pub database: PathBuf,
    /// One statement with `:name` parameters.
    pub query: String,
    /// Most rows.
    pub rows_max: u32,
}

/// A resource of an allowed host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpTool {
    /// The address; arguments may stand after the host, and are percent-encoded.
    pub url: Template,
    /// The host of `url`.
    pub host: String,
    /// Hosts that a redirect may lead to, that of `url` included.
    pub hosts: Vec<String>,
    /// Hosts whose address may be a private one.
    pub private_hosts: Vec<String>,
    /// Headers that are sent.
    pub headers: BTreeMap<String, String>,
    /// Headers whose value is an environment variable's, sent to the host of `url` alone.
    pub headers_env: BTreeMap<String, String>,
}

/// What a program writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessTool {
    /// The program.
    pub program: String,
    /// Its arguments, one each.
    pub args: Vec<Template>,
    /// Environment variables that it sees.
    pub env: Vec<String>,
    /// Where it runs, relative to the plan file.
    pub directory: PathBuf,
}

/// What a tool of a Model Context Protocol server answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpTool {
    /// The server's program with its arguments, spoken to over its input and output.
    pub command: Vec<String>,
    /// Environment variables that the server sees.
    pub env: Vec<String>,
    /// The server's tool.
    pub call: String,
    /// Further arguments, the same for all units.
    pub constants: Map<String, Value>,
}

impl ToolKind {
    /// The kind as a plan spells it.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::File(_) => "file",
            Self::Sql(_) => "sql",
            Self::Http(_) => "http",
            Self::Process(_) => "process",
            Self::Mcp(_) => "mcp",
        }
    }
}

impl ToolSpec {
    /// What it reaches, as the rest of "which ...".
    pub fn reach(&self) -> String {
        match &self.kind {
            ToolKind::File(file) => format!("reads files below {}", file.root.display()),
            ToolKind::Sql(sql) => format!("reads the database {}", sql.database.display()),
            ToolKind::Http(http) => format!("reads from {}", http.hosts.join(", ")),
            ToolKind::Process(process) => format!("runs {}", process.program),
            ToolKind::Mcp(mcp) => {
                format!("calls {} of the server {}", mcp.call, mcp.command.join(" "))
            }
        }
    }

    /// Hash of all that can change what a call with given arguments reads; name, quotas of load, age
    /// and price are not in it.
    pub fn declaration(&self) -> ContentHash {
        let mut canonical = Canonical::new("operator 2026 tool v1");
        canonical.text(self.kind.as_str());
        match &self.kind {
            ToolKind::File(file) => {
                canonical.text(&file.root.to_string_lossy());
                file.file.encode(&mut canonical);
                canonical.bool(file.missing_is_empty);
            }
            ToolKind::Sql(sql) => {
                canonical.text(&sql.database.to_string_lossy());
                canonical.text(&sql.query).u32(sql.rows_max);
            }
            ToolKind::Http(http) => {
                http.url.encode(&mut canonical);
                texts(&mut canonical, &http.hosts);
                texts(&mut canonical, &http.private_hosts);
                pairs(&mut canonical, &http.headers);
                pairs(&mut canonical, &http.headers_env);
            }
            ToolKind::Process(process) => {
                canonical.text(&process.program).list(process.args.len());
                for arg in &process.args {
                    arg.encode(&mut canonical);
                }
                texts(&mut canonical, &process.env);
                canonical.text(&process.directory.to_string_lossy());
            }
            ToolKind::Mcp(mcp) => {
                texts(&mut canonical, &mcp.command);
                texts(&mut canonical, &mcp.env);
                canonical.text(&mcp.call).fields(&mcp.constants);
            }
        }
        canonical.list(self.arguments.len());
        for argument in &self.arguments {
            canonical.text(&argument.name).text(argument.kind.as_str());
        }
        canonical
            .u64(self.quota.bytes_max)
            .bool(self.quota.over == Over::Cut);
        ContentHash::of(&canonical)
    }
}

fn texts(canonical: &mut Canonical, texts: &[String]) {
    canonical.list(texts.len());
    for text in texts {
        canonical.text(text);
    }
}

fn pairs(canonical: &mut Canonical, pairs: &BTreeMap<String, String>) {
    canonical.map(pairs.len());
    for (name, value) in pairs {
        canonical.text(name).text(value);
    }
}
