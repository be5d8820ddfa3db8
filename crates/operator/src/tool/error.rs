//! Why a tool read nothing.

/// Why a call failed; the kind says whether trying again may help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolError {
    /// It is outside what the plan or the command line allows.
    #[error("denied: {0}")]
    Denied(String),
    /// The reply is longer than the plan allows.
    #[error("too_large: the reply is over the {bytes_max} bytes of bytes_max")]
    TooLarge {
        /// The limit.
        bytes_max: u64,
    },
    /// There was no reply in time.
    #[error("timed_out: no reply within {after_ms} ms")]
    TimedOut {
        /// The limit.
        after_ms: u64,
    },
    /// The resource asked for fewer calls.
    #[error("rate_limited: {message}")]
    RateLimited {
        /// What it said.
        message: String,
        /// How long it asked to be left alone.
        retry_after_ms: Option<u64>,
    },
    /// The resource does not answer now, and may later.
    #[error("unavailable: {message}")]
    Unavailable {
        /// What happened.
        message: String,
        /// How long it asked to be left alone.
        retry_after_ms: Option<u64>,
    },
    /// The resource answered that it will not do this, now or later.
    #[error("refused: {0}")]
    Refused(String),
    /// The request or the reply is not of the declared shape.
    #[error("malformed: {0}")]
    Malformed(String),
    /// Nobody waits for the reply any more.
    #[error("cancelled")]
    Cancelled,
}

impl ToolError {
    /// A resource that does not answer now, without a word on when it will.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::Unavailable {
            message: message.into(),
            retry_after_ms: None,
        }
    }

    /// The kind, as facts and reports spell it.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Denied(_) => "denied",
            Self::TooLarge { .. } => "too_large",
            Self::TimedOut { .. } => "timed_out",
            Self::RateLimited { .. } => "rate_limited",
            Self::Unavailable { .. } => "unavailable",
            Self::Refused(_) => "refused",
            Self::Malformed(_) => "malformed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether the same call may succeed later.
    pub const fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::TimedOut { .. } | Self::RateLimited { .. } | Self::Unavailable { .. }
        )
    }

    /// How long the resource asked to be left alone.
    pub const fn retry_after_ms(&self) -> Option<u64> {
        match self {
            Self::RateLimited { retry_after_ms, .. } | Self::Unavailable { retry_after_ms, .. } => {
                *retry_after_ms
            }
            _ => None,
        }
    }
}
