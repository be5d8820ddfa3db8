//! The permission to call a tool: only what the command line named can be opened.

use std::sync::Arc;

use super::{Tool, ToolError};
use crate::plan::ToolSpec;

/// The permission to call one tool; it cannot be made but by naming the tool.
#[derive(Debug)]
pub struct Capability(());

impl Capability {
    /// Grants a tool that is among the allowed names.
    ///
    /// # Errors
    /// [`ToolError::Denied`], naming the flag that would allow it.
    pub fn grant(spec: &ToolSpec, allowed: &[String]) -> Result<Self, ToolError> {
        if allowed.contains(&spec.name) {
            return Ok(Self(()));
        }
        let name = &spec.name;
        Err(ToolError::Denied(format!(
            "the plan wants to call the tool {name:?}, which {}; pass --allow {name} to allow it",
            spec.reach()
        )))
    }
}

/// A tool that may be called.
#[derive(Clone)]
pub struct OpenTool {
    /// Its declaration.
    pub spec: ToolSpec,
    pub(super) tool: Arc<dyn Tool>,
}

impl OpenTool {
    /// Takes a permission into use.
    pub fn new(spec: ToolSpec, _permission: Capability, tool: Arc<dyn Tool>) -> Self {
        Self { spec, tool }
    }
}

impl std::fmt::Debug for OpenTool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("OpenTool").field(&self.spec.name).finish()
    }
}
