//! Reads a file below a directory; no path, link or special file leads out of it.

use std::io::Read;
use std::path::{Component, Path};

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use operator::plan::FileTool;
use operator::tool::{Arguments, Call, Reply, Template, Tool, ToolError};

/// An open root.
pub(super) struct FileReader {
    root: Dir,
    scope: String,
    file: Template,
    missing_is_empty: bool,
}

impl FileReader {
    pub(super) fn open(tool: &FileTool, root: &Path) -> Result<Self, String> {
        let shown = root.display();
        let resolved = root
            .canonicalize()
            .map_err(|error| format!("root {shown} cannot be opened: {error}"))?;
        let root = Dir::open_ambient_dir(&resolved, ambient_authority())
            .map_err(|error| format!("root {shown} cannot be opened as a directory: {error}"))?;
        Ok(Self {
            root,
            scope: resolved.display().to_string(),
            file: tool.file.clone(),
            missing_is_empty: tool.missing_is_empty,
        })
    }

    fn path(&self, arguments: &Arguments) -> Result<String, ToolError> {
        let path = self.file.render(arguments, str::to_owned);
        let inside = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
        if path.is_empty() || path.contains('\0') || !Path::new(&path).components().all(inside) {
            return Err(ToolError::Denied(format!(
                "{path:?} is not a path below the root; it must be relative and without \"..\""
            )));
        }
        Ok(path)
    }
}

impl Tool for FileReader {
    fn scope(&self) -> &str {
        &self.scope
    }

    fn resource(&self, arguments: &Arguments) -> Result<String, ToolError> {
        self.path(arguments)?;
        Ok(format!("file:{}", self.scope))
    }

    fn call(&self, arguments: &Arguments, call: &Call) -> Result<Reply, ToolError> {
        let path = self.path(arguments)?;
        let problem = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::PermissionDenied => ToolError::Denied(format!(
                "{path:?} leads out of the root, or is not readable"
            )),
            _ => ToolError::Refused(format!("{path:?}: {error}")),
        };
        let metadata = match self.root.metadata(&path) {
            Err(error) if self.missing_is_empty && error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Reply {
                    media: String::from("text/plain"),
                    body: Vec::new(),
                    truncated: false,
                    from: format!("{path} (not there)"),
                });
            }
            metadata => metadata.map_err(problem)?,
        };
        // A pipe or a device would hold the call for ever.
        if !metadata.is_file() {
            return Err(ToolError::Refused(format!("{path:?} is no regular file")));
        }
        let file = self.root.open(&path).map_err(problem)?;
        let mut body = Vec::new();
        file.take(call.bytes_max.saturating_add(1))
            .read_to_end(&mut body)
            .map_err(problem)?;
        let truncated = call.fit(&mut body)?;
        Ok(Reply {
            media: media(&path, &body).to_owned(),
            body,
            truncated,
            from: path,
        })
    }
}

fn media(path: &str, body: &[u8]) -> &'static str {
    let extension = Path::new(path).extension().and_then(|name| name.to_str());
    match extension {
        _ if std::str::from_utf8(body).is_err() => "application/octet-stream",
        Some("json") => "application/json",
        Some("jsonl" | "ndjson") => "application/x-ndjson",
        _ => "text/plain",
    }
}
