//! The built-in tools: a file below a root, rows of SQLite, HTTP from allowed hosts, a program's
//! output, and the tools of Model Context Protocol servers.
//!
//! Each reads once, within the limits that it is given, and says what kind of failure it met;
//! quotas, retries and permissions are the operator's. Nothing here may choose what is called or
//! with which arguments.

mod address;
mod file;
mod http;
mod mcp;
mod process;
mod retry_after;
mod sql;

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use operator::Plan;
use operator::plan::{StageOp, ToolKind, ToolSpec};
use operator::tool::{Capability, Clock, OpenTool, Tool, ToolError};

/// Why a plan's tools cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum ToolsError {
    /// A tool was not allowed on the command line.
    #[error("{0}")]
    NotAllowed(ToolError),
    /// The command line allows what the plan does not declare.
    #[error("--allow {name}: the plan declares no such tool; it declares {known}")]
    Unknown {
        /// The name given.
        name: String,
        /// Names of the plan's tools.
        known: String,
    },
    /// A tool cannot be used as it is declared.
    #[error("tool {name:?}: {problem}")]
    Unusable {
        /// The tool.
        name: String,
        /// What is wrong and what to do about it.
        problem: String,
    },
}

/// Opens the tools that the plan's stages call; each must be allowed by its name.
///
/// # Errors
/// [`ToolsError`] for the first tool that is not allowed or cannot be used; nothing is called before
/// all are open, but that servers are started and asked what they offer.
pub fn open(plan: &Plan, allowed: &[String]) -> Result<Vec<OpenTool>, ToolsError> {
    if let Some(name) = allowed.iter().find(|name| plan.tool(name).is_none()) {
        let known: Vec<&str> = plan.tools.iter().map(|tool| tool.name.as_str()).collect();
        return Err(ToolsError::Unknown {
            name: name.clone(),
            known: match known.is_empty() {
                true => "none".to_owned(),
                false => known.join(", "),
            },
        });
    }
    let called = |tool: &&ToolSpec| {
        let calls = |op: &StageOp| matches!(op, StageOp::Tool(stage) if stage.tool == tool.name);
        plan.stages.iter().any(|stage| calls(&stage.op))
    };
    let called: Vec<&ToolSpec> = plan.tools.iter().filter(called).collect();
    // All permissions before the first server is started.
    let granted: Vec<(&ToolSpec, Capability)> = called
        .into_iter()
        .map(|spec| Ok((spec, Capability::grant(spec, allowed)?)))
        .collect::<Result<_, ToolError>>()
        .map_err(ToolsError::NotAllowed)?;
    granted
        .into_iter()
        .map(|(spec, capability)| {
            let tool = open_one(plan, spec).map_err(|problem| ToolsError::Unusable {
                name: spec.name.clone(),
                problem,
            })?;
            Ok(OpenTool::new(spec.clone(), capability, tool))
        })
        .collect()
}

fn open_one(plan: &Plan, spec: &ToolSpec) -> Result<Arc<dyn Tool>, String> {
    Ok(match &spec.kind {
        ToolKind::File(file) => Arc::new(file::FileReader::open(file, &plan.beside(&file.root))?),
        ToolKind::Sql(sql) => Arc::new(sql::SqlReader::open(
            sql,
            &plan.beside(&sql.database),
            &spec.arguments,
        )?),
        ToolKind::Http(http) => Arc::new(http::HttpReader::open(
            http,
            spec.quota.concurrency as usize,
        )?),
        ToolKind::Process(process) => Arc::new(process::ProcessReader::open(
            process,
            &plan.beside(&process.directory),
        )?),
        ToolKind::Mcp(mcp) => Arc::new(mcp::McpReader::open(mcp, &spec.arguments)?),
    })
}

/// The clocks of this machine.
#[derive(Debug)]
pub struct SystemClock {
    started: Instant,
}

impl Default for SystemClock {
    fn default() -> Self {
        Self {
            started: Instant::now(),
        }
    }
}

impl Clock for SystemClock {
    fn now_us(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    fn unix_seconds(&self) -> u64 {
        // A clock set before 1970 makes every observation too old to be believed.
        SystemTime::UNIX_EPOCH
            .elapsed()
            .map_or(0, |since| since.as_secs())
    }
}
