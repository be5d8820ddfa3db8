//! Reads what a program writes: fixed arguments, no shell, an empty environment but for a declared
//! list, and an end to it and all its children when its time is over.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use operator::plan::ProcessTool;
use operator::tool::{Arguments, Call, Reply, Template, Tool, ToolError};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

/// How often a wait looks whether it was cancelled.
const LOOK: Duration = Duration::from_millis(10);
/// Bytes of the error output that a refusal quotes.
const QUOTED_MAX: usize = 500;

/// A program with the templates of its arguments.
pub(super) struct ProcessReader {
    program: PathBuf,
    scope: String,
    args: Vec<Template>,
    env: Vec<(String, String)>,
    directory: PathBuf,
}

impl ProcessReader {
    pub(super) fn open(tool: &ProcessTool, directory: &Path) -> Result<Self, String> {
        let directory = directory
            .canonicalize()
            .map_err(|error| format!("directory {}: {error}", directory.display()))?;
        let program = find(&tool.program, &directory)?;
        let value = |name: &String| Some((name.clone(), std::env::var(name).ok()?));
        Ok(Self {
            scope: format!("{} in {}", program.display(), directory.display()),
            program,
            args: tool.args.clone(),
            env: tool.env.iter().filter_map(value).collect(),
            directory,
        })
    }

    /// The arguments; a value of the record must not pass for an option.
    fn args(&self, arguments: &Arguments) -> Result<Vec<String>, ToolError> {
        let mut ended = false;
        let mut filled = Vec::new();
        for template in &self.args {
            let arg = template.render(arguments, str::to_owned);
            if arg.contains('\0') {
                return Err(ToolError::Malformed(
                    "an argument contains a zero byte".to_owned(),
                ));
            }
            if !ended && template.head().is_empty() && arg.starts_with('-') {
                return Err(ToolError::Denied(format!(
                    "the argument {arg:?} would pass for an option; put \"--\" before it in args"
                )));
            }
            ended |= template.text() == "--";
            filled.push(arg);
        }
        Ok(filled)
    }

    fn start(&self, args: &[String]) -> Result<Child, ToolError> {
        Command::new(&self.program)
            .args(args)
            .env_clear()
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .current_dir(&self.directory)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| ToolError::Refused(format!("{}: {error}", self.program.display())))
    }
}

impl Tool for ProcessReader {
    fn scope(&self) -> &str {
        &self.scope
    }

    fn resource(&self, arguments: &Arguments) -> Result<String, ToolError> {
        self.args(arguments)?;
        Ok(format!("program:{}", self.program.display()))
    }

    fn call(&self, arguments: &Arguments, call: &Call) -> Result<Reply, ToolError> {
        let args = self.args(arguments)?;
        let until = Instant::now() + call.timeout;
        let mut group = Group(self.start(&args)?);
        let most = call.bytes_max.saturating_add(1);
        let output = read(group.0.stdout.take(), most);
        let errors = read(group.0.stderr.take(), QUOTED_MAX as u64);
        let mut body = wait_for(&output, until, call)?;
        let truncated = call.fit(&mut body)?;
        // A program whose output is cut has said enough, however it ends.
        if !truncated {
            group.wait_exit(until, call)?;
        }
        let status = group.end();
        if !truncated && !status.is_some_and(|status| status.success()) {
            let errors = errors.recv_timeout(LOOK).unwrap_or_default();
            let status = status.map_or_else(|| "no status".to_owned(), |s| s.to_string());
            let said = String::from_utf8_lossy(&errors).trim().to_owned();
            return Err(ToolError::Refused(format!("{status}: {said}")));
        }
        let text = std::str::from_utf8(&body).is_ok();
        let media = if text {
            "text/plain"
        } else {
            "application/octet-stream"
        };
        Ok(Reply {
            body,
            media: media.to_owned(),
            truncated,
            from: self.program.display().to_string(),
        })
    }
}

/// A process and its children, which end with it.
struct Group(Child);

impl Group {
    /// Waits until the process has exited, without collecting it, so that its group keeps its number.
    fn wait_exit(&self, until: Instant, call: &Call) -> Result<(), ToolError> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        loop {
            match waitid(WaitId::Pid(Pid::from_child(&self.0)), options) {
                Ok(None) => {}
                Ok(Some(_)) | Err(_) => return Ok(()),
            }
            stop_if_over(until, call)?;
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Ends the whole group and collects the process.
    fn end(&mut self) -> Option<std::process::ExitStatus> {
        // It fails where all have ended already.
        let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        self.0.wait().ok()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            self.end();
        }
    }
}

/// Reads a pipe on a thread of its own, so much of it, and drains the rest while it can.
fn read(pipe: Option<impl Read + Send + 'static>, most: u64) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let Some(pipe) = pipe else { return };
        let mut bytes = Vec::new();
        let mut limited = pipe.take(most);
        // What was read before an error is all there is.
        let _ = limited.read_to_end(&mut bytes);
        let full = bytes.len() as u64 == most;
        // Nobody listens where the call is over.
        let _ = sender.send(bytes);
        if full {
            let _ = std::io::copy(&mut limited.into_inner(), &mut std::io::sink());
        }
    });
    receiver
}

fn wait_for(output: &Receiver<Vec<u8>>, until: Instant, call: &Call) -> Result<Vec<u8>, ToolError> {
    loop {
        match output.recv_timeout(LOOK) {
            Ok(bytes) => return Ok(bytes),
            Err(RecvTimeoutError::Disconnected) => return Ok(Vec::new()),
            Err(RecvTimeoutError::Timeout) => stop_if_over(until, call)?,
        }
    }
}

fn stop_if_over(until: Instant, call: &Call) -> Result<(), ToolError> {
    if call.cancel.is_cancelled() {
        return Err(ToolError::Cancelled);
    }
    if Instant::now() >= until {
        return Err(ToolError::TimedOut {
            after_ms: u64::try_from(call.timeout.as_millis()).unwrap_or(u64::MAX),
        });
    }
    Ok(())
}

/// The file that a program's name means now; later changes of the search path do not matter.
pub(super) fn find(program: &str, directory: &Path) -> Result<PathBuf, String> {
    if program.contains('/') {
        // Not resolved further: some programs are many, by the name of the link to them.
        let path = directory.join(program);
        let problem = format!("program {program:?}: there is no file {}", path.display());
        return path.is_file().then_some(path).ok_or(problem);
    }
    let search = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&search)
        .map(|place| place.join(program))
        .find(|path| path.is_file())
        .ok_or_else(|| format!("no program {program:?} is in the search path; write its full path"))
}
