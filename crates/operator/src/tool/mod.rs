//! Tools: declared reads of the world outside the record, made by a kernel and never by a model.
//!
//! A model may choose that a tool is called; it cannot say with what. Arguments come from the record's
//! fields, what may be reached from the plan, and the permission from the command line. The kernel
//! holds every quota, sends identical requests once, and ends each request in exactly one outcome.
//! Only reads go through here: what changes the world is an effect, which is never looked up or
//! collapsed. Must not know how a tool is carried out (HTTP, SQL, processes) nor what a unit is.

mod cache;
mod capability;
mod error;
mod kernel;
mod observation;
mod quota;
mod reading;
mod request;
mod resource;
mod schedule;
mod template;
#[cfg(test)]
mod tests;
mod toolbox;

use std::sync::Arc;
use std::time::Duration;

use crate::infer::CancelFlag;

pub use cache::{ObservationCache, StoredObservations};
pub use capability::{Capability, OpenTool};
pub use error::ToolError;
pub use kernel::{Clock, Kernel, ToolBudget, ToolOutcome, ToolUsage};
pub use observation::{Observation, ObservationHead};
pub use quota::{Over, Quota};
pub use reading::Reading;
pub use request::{Argument, ArgumentKind, ArgumentValue, Arguments, ToolRequest};
pub use template::Template;
pub use toolbox::Toolbox;
pub(crate) use toolbox::suffice;

/// One way to read the world; its calls run on threads of their own.
pub trait Tool: Send + Sync {
    /// What the declaration leaves open but names what is read: a resolved root, a server's version.
    fn scope(&self) -> &str;

    /// What a call puts load on, such as a host; calls on one resource share its quotas.
    ///
    /// # Errors
    /// Where the arguments make no call that this tool could be allowed to do.
    fn resource(&self, arguments: &Arguments) -> Result<String, ToolError>;

    /// Reads once, without retries, within the call's limits.
    ///
    /// # Errors
    /// Why nothing was read; the kind decides whether it is tried again.
    fn call(&self, arguments: &Arguments, call: &Call) -> Result<Reply, ToolError>;
}

/// The limits of one call.
#[derive(Debug, Clone)]
pub struct Call {
    /// When it has to have returned, from its start.
    pub timeout: Duration,
    /// Most bytes of the reply.
    pub bytes_max: u64,
    /// Whether a longer reply is cut there; otherwise it is an error.
    pub cut: bool,
    /// Set when nobody waits for the reply any more.
    pub cancel: Arc<CancelFlag>,
}

/// What a call read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The bytes.
    pub body: Vec<u8>,
    /// Their media type, such as `"application/json"`.
    pub media: String,
    /// Whether the rest was left out.
    pub truncated: bool,
    /// What was read, for a person: an address, a path.
    pub from: String,
}

impl Call {
    /// Cuts a body to the limit where that is allowed; says whether something was left out.
    ///
    /// # Errors
    /// [`ToolError::TooLarge`] where it is longer and must not be cut.
    pub fn fit(&self, body: &mut Vec<u8>) -> Result<bool, ToolError> {
        let most = usize::try_from(self.bytes_max).unwrap_or(usize::MAX);
        if body.len() <= most {
            return Ok(false);
        }
        if !self.cut {
            let bytes_max = self.bytes_max;
            return Err(ToolError::TooLarge { bytes_max });
        }
        body.truncate(most);
        // A character that was cut in two would make a text of bytes.
        if let Err(error) = std::str::from_utf8(body)
            && error.error_len().is_none()
        {
            body.truncate(error.valid_up_to());
        }
        Ok(true)
    }
}
