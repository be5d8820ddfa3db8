//! What a plan allows a tool to use.

use serde::Deserialize;

/// What happens to a reply that is too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Over {
    /// The unit is errored as too large.
    Error,
    /// The first part is kept, and marked as cut.
    Cut,
}

/// Limits of a tool. Those of load (`concurrency`, rate) hold for a resource: where two tools share
/// one, the stricter limit holds for both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// Most calls under way at once.
    pub concurrency: u32,
    /// Calls started per 1,000 seconds, on average; no limit where absent.
    pub per_kilosecond: Option<u64>,
    /// Calls that may start at once after a pause; only with a rate.
    pub burst: u32,
    /// Most bytes of a reply.
    pub bytes_max: u64,
    /// What happens to a longer one.
    pub over: Over,
    /// Most calls in a run, retries included.
    pub calls_max: u64,
    /// Most calls for one request.
    pub attempts_max: u32,
    /// Milliseconds until a call is given up.
    pub timeout_ms: u64,
    /// Milliseconds before the second call for a request; doubled for each further one.
    pub backoff_ms: u64,
    /// Most milliseconds that a request waits because the resource asked for it.
    pub wait_max_ms: u64,
    /// What a call costs, in millionths of the plan's unit of money.
    pub price_micros: u64,
}

impl Default for Quota {
    fn default() -> Self {
        Self {
            concurrency: 4,
            per_kilosecond: None,
            burst: 1,
            bytes_max: 64 * 1_024,
            over: Over::Error,
            calls_max: 10_000,
            attempts_max: 3,
            timeout_ms: 10_000,
            backoff_ms: 250,
            wait_max_ms: 60_000,
            price_micros: 0,
        }
    }
}
