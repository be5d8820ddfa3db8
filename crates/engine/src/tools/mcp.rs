//! Calls a tool of a Model Context Protocol server that the plan starts as a program.
//!
//! The library speaks async; a session keeps a current-thread runtime on a thread of its own, and the
//! rest sees plain calls. A server that ends is started again by the next call. What the server says
//! of itself is checked against the plan, and not trusted beyond it.

use std::process::Stdio;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use operator::canonical::Canonical;
use operator::id::ContentHash;
use operator::plan::McpTool;
use operator::tool::{Argument, ArgumentKind, Arguments, Call, Reply, Tool, ToolError};
use rmcp::model::{CallToolRequestParams, CallToolResult, ContentBlock, Tool as Offer};
use rmcp::service::{Peer, RunningService};
use rmcp::transport::TokioChildProcess;
use rmcp::{RoleClient, ServiceError, ServiceExt};
use serde_json::{Map, Value};
use tokio::sync::{mpsc, oneshot};

use super::process::find;

/// How often a wait looks whether it was cancelled.
const LOOK: Duration = Duration::from_millis(10);
/// How often an idle session looks whether its server has ended.
const IDLE: Duration = Duration::from_millis(50);
/// How long a server may take to start and to say what it offers.
const START: Duration = Duration::from_secs(30);

/// A tool of a server.
pub(super) struct McpReader {
    tool: McpTool,
    arguments: Vec<Argument>,
    scope: String,
    session: Mutex<Option<Arc<Session>>>,
}

/// A running server.
struct Session {
    asks: mpsc::UnboundedSender<Ask>,
    /// What the server is, and what its tool takes.
    scope: String,
}

/// One call on its way to the session's thread.
struct Ask {
    params: CallToolRequestParams,
    answer: Sender<Result<CallToolResult, ServiceError>>,
    /// Ends the call when its other end is dropped.
    alive: oneshot::Receiver<()>,
}

impl McpReader {
    pub(super) fn open(tool: &McpTool, arguments: &[Argument]) -> Result<Self, String> {
        let reader = Self {
            tool: tool.clone(),
            arguments: arguments.to_vec(),
            scope: String::new(),
            session: Mutex::new(None),
        };
        let session = reader.start()?;
        Ok(Self {
            scope: session.scope.clone(),
            session: Mutex::new(Some(session)),
            ..reader
        })
    }

    fn start(&self) -> Result<Arc<Session>, String> {
        let (ready, started) = channel();
        let (asks, inbox) = mpsc::unbounded_channel();
        let (tool, arguments) = (self.tool.clone(), self.arguments.clone());
        std::thread::Builder::new()
            .name(format!("mcp {}", tool.call))
            .spawn(move || serve(&tool, &arguments, &ready, inbox))
            .map_err(|error| format!("no thread: {error}"))?;
        match started.recv_timeout(START) {
            Ok(scope) => Ok(Arc::new(Session {
                asks,
                scope: scope?,
            })),
            Err(_) => {
                let seconds = START.as_secs();
                Err(format!(
                    "the server did not say what it offers within {seconds} s"
                ))
            }
        }
    }

    /// The session, started again where it has ended.
    fn session(&self) -> Result<Arc<Session>, ToolError> {
        // A panic elsewhere leaves either a session or none.
        let mut held = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(session) = held.as_ref().filter(|session| !session.asks.is_closed()) {
            return Ok(Arc::clone(session));
        }
        let session = self.start().map_err(ToolError::unavailable)?;
        if session.scope != self.scope {
            return Err(ToolError::Refused(
                "the server is another one than when the run began".to_owned(),
            ));
        }
        *held = Some(Arc::clone(&session));
        Ok(session)
    }
}

impl Tool for McpReader {
    fn scope(&self) -> &str {
        &self.scope
    }

    fn resource(&self, _arguments: &Arguments) -> Result<String, ToolError> {
        Ok(format!("server:{}", self.tool.command.join(" ")))
    }

    fn call(&self, arguments: &Arguments, call: &Call) -> Result<Reply, ToolError> {
        let until = Instant::now() + call.timeout;
        let session = self.session()?;
        let params = CallToolRequestParams::new(self.tool.call.clone())
            .with_arguments(object(&self.tool.constants, arguments)?);
        let (answer, answered) = channel();
        // Held until this function returns: then the call has ended one way or another.
        let (_held, alive) = oneshot::channel();
        let ask = Ask {
            params,
            answer,
            alive,
        };
        let ended = || ToolError::unavailable("the server has ended");
        session.asks.send(ask).map_err(|_| ended())?;
        let result =
            wait_for(&answered, until, call)?.unwrap_or(Err(ServiceError::TransportClosed));
        let (mut body, media) = match result {
            Ok(result) => read(result)?,
            Err(ServiceError::McpError(error)) => {
                return Err(ToolError::Refused(error.to_string()));
            }
            Err(ServiceError::TransportClosed | ServiceError::TransportSend(_)) => {
                return Err(ended());
            }
            Err(error) => return Err(ToolError::Malformed(error.to_string())),
        };
        let truncated = call.fit(&mut body)?;
        Ok(Reply {
            body,
            media: media.to_owned(),
            truncated,
            from: self.tool.call.clone(),
        })
    }
}

/// Waits for an answer; none where the session has ended.
fn wait_for<T>(answers: &Receiver<T>, until: Instant, call: &Call) -> Result<Option<T>, ToolError> {
    loop {
        match answers.recv_timeout(LOOK) {
            Ok(answer) => return Ok(Some(answer)),
            Err(RecvTimeoutError::Disconnected) => return Ok(None),
            Err(RecvTimeoutError::Timeout) if call.cancel.is_cancelled() => {
                return Err(ToolError::Cancelled);
            }
            Err(RecvTimeoutError::Timeout) if Instant::now() >= until => {
                return Err(ToolError::TimedOut {
                    after_ms: u64::try_from(call.timeout.as_millis()).unwrap_or(u64::MAX),
                });
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// The arguments of a call as the protocol writes them.
fn object(
    constants: &Map<String, Value>,
    arguments: &Arguments,
) -> Result<Map<String, Value>, ToolError> {
    let mut object = constants.clone();
    for (name, value) in arguments.iter() {
        let value =
            serde_json::to_value(value).map_err(|error| ToolError::Malformed(error.to_string()))?;
        object.insert(name.to_owned(), value);
    }
    Ok(object)
}

/// What a result says: its structured content, or its texts.
fn read(result: CallToolResult) -> Result<(Vec<u8>, &'static str), ToolError> {
    let mut texts = Vec::new();
    for block in &result.content {
        match block {
            ContentBlock::Text(text) => texts.push(text.text.as_str()),
            _ if result.structured_content.is_some() => {}
            _ => {
                let problem = "the tool answers with something else than text";
                return Err(ToolError::Malformed(problem.to_owned()));
            }
        }
    }
    let text = texts.join("\n");
    if result.is_error == Some(true) {
        return Err(ToolError::Refused(text));
    }
    match &result.structured_content {
        Some(value) => match serde_json::to_vec(value) {
            Ok(body) => Ok((body, "application/json")),
            Err(error) => Err(ToolError::Malformed(error.to_string())),
        },
        None => Ok((text.into_bytes(), "text/plain")),
    }
}

/// The life of a session: start, check, answer, end.
fn serve(
    tool: &McpTool,
    arguments: &[Argument],
    ready: &Sender<Result<String, String>>,
    mut inbox: mpsc::UnboundedReceiver<Ask>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            // Nobody listens where the start has taken too long.
            let _ = ready.send(Err(format!("no runtime: {error}")));
            return;
        }
    };
    runtime.block_on(async {
        let started = tokio::time::timeout(START, connect(tool, arguments)).await;
        let late = || "the server did not start in time".to_owned();
        let (client, scope) = match started.map_err(|_| late()).and_then(|started| started) {
            Ok(started) => started,
            Err(problem) => {
                let _ = ready.send(Err(problem));
                return;
            }
        };
        if ready.send(Ok(scope)).is_ok() {
            // Looks from time to time, for a server may end while nobody asks.
            while !client.is_closed() {
                match tokio::time::timeout(IDLE, inbox.recv()).await {
                    Ok(Some(ask)) => drop(tokio::spawn(carry_out(client.peer().clone(), ask))),
                    Ok(None) => break,
                    Err(_) => {}
                }
            }
        }
        // The inbox closes first, so that a call which comes now starts another session.
        drop(inbox);
        // An error here is that the server has ended already.
        let _ = client.cancel().await;
    });
}

async fn carry_out(peer: Peer<RoleClient>, ask: Ask) {
    let Ask {
        params,
        answer,
        alive,
    } = ask;
    tokio::select! {
        result = peer.call_tool(params) => {
            // The caller may have just given up.
            let _ = answer.send(result);
        }
        _ = alive => {}
    }
}

async fn connect(
    tool: &McpTool,
    arguments: &[Argument],
) -> Result<(RunningService<RoleClient, ()>, String), String> {
    let (program, rest) = tool
        .command
        .split_first()
        .ok_or("the command is empty; name the server's program")?;
    let mut command = tokio::process::Command::new(find(program, ".".as_ref())?);
    let value = |name: &String| Some((name.clone(), std::env::var(name).ok()?));
    command
        .args(rest)
        .env_clear()
        .envs(tool.env.iter().filter_map(value))
        .process_group(0)
        .kill_on_drop(true);
    let (transport, _) = TokioChildProcess::builder(command)
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("server {program:?} cannot be started: {error}"))?;
    let problem = |error: &dyn std::fmt::Display| format!("server {program:?}: {error}");
    let client = ().serve(transport).await.map_err(|error| problem(&error))?;
    let offers = client
        .list_all_tools()
        .await
        .map_err(|error| problem(&error))?;
    let Some(offer) = offers.iter().find(|offer| offer.name == tool.call) else {
        let names: Vec<&str> = offers.iter().map(|offer| &*offer.name).collect();
        let names = names.join(", ");
        return Err(problem(&format!(
            "it has no tool {:?}; it has {names}",
            tool.call
        )));
    };
    check(offer, tool, arguments).map_err(|error| problem(&error))?;
    let mut canonical = Canonical::new("engine 2026 mcp tool v1");
    canonical.text(&offer.name).fields(&offer.input_schema);
    if let Some(info) = client.peer_info() {
        let implementation = serde_json::to_value(&info.server_info);
        canonical.value(&implementation.map_err(|error| problem(&error))?);
    }
    Ok((client, ContentHash::of(&canonical).to_string()))
}

/// Refuses a tool that says that it changes something, or that takes other arguments.
fn check(offer: &Offer, tool: &McpTool, arguments: &[Argument]) -> Result<(), String> {
    let name = &offer.name;
    if let Some(notes) = &offer.annotations
        && (notes.read_only_hint == Some(false)
            || (notes.destructive_hint == Some(true) && notes.read_only_hint != Some(true)))
    {
        return Err(format!(
            "its tool {name:?} says that it changes something; a tool only reads"
        ));
    }
    let schema = &offer.input_schema;
    let none = Map::new();
    let properties = schema
        .get("properties")
        .and_then(Value::as_object)
        .unwrap_or(&none);
    let open = matches!(
        schema.get("additionalProperties"),
        Some(Value::Bool(true) | Value::Object(_))
    );
    let given = arguments.iter().map(|a| a.name.as_str());
    let given: Vec<&str> = given
        .chain(tool.constants.keys().map(String::as_str))
        .collect();
    if let Some(unknown) = given.iter().find(|name| !properties.contains_key(**name))
        && !open
    {
        let known: Vec<&str> = properties.keys().map(String::as_str).collect();
        let known = known.join(", ");
        return Err(format!(
            "its tool {name:?} has no argument {unknown:?}; it has {known}"
        ));
    }
    let required = schema.get("required").and_then(Value::as_array);
    let missing = required.into_iter().flatten().filter_map(Value::as_str);
    if let Some(missing) = missing.into_iter().find(|name| !given.contains(name)) {
        return Err(format!(
            "its tool {name:?} needs the argument {missing:?}; declare it"
        ));
    }
    for argument in arguments {
        let kinds: &[&str] = match argument.kind {
            ArgumentKind::Text => &["string"],
            ArgumentKind::Integer => &["integer", "number"],
            ArgumentKind::Boolean => &["boolean"],
        };
        let wanted = properties
            .get(&argument.name)
            .and_then(|schema| schema.get("type"));
        let fits = match wanted {
            Some(Value::String(wanted)) => kinds.contains(&wanted.as_str()),
            Some(Value::Array(wanted)) => {
                let mut wanted = wanted.iter().filter_map(Value::as_str);
                wanted.any(|wanted| kinds.contains(&wanted))
            }
            _ => true,
        };
        if !fits {
            let (argument, kind) = (&argument.name, argument.kind.as_str());
            return Err(format!(
                "its tool {name:?} takes no {kind} as {argument:?}; set another type"
            ));
        }
    }
    Ok(())
}
