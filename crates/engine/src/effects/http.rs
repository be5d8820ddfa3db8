//! A tracker spoken to over HTTP.
//!
//! ```text
//! GET  URL/issues/NAME           the issue as JSON; its version as ETag, or as "version" in it
//! POST URL/issues/NAME/effects   {"action", "set", "text"} with Idempotency-Key and If-Match
//! ```
//!
//! The service does a key once and answers it again with success; 409 says that the key names
//! something else, 412 that the issue is at another version. Nothing is known of a write that timed
//! out, broke off or met a 5xx. Reading back is the GET. Redirects and proxies of the environment are
//! not followed: only the plan's host is reached. Must not know plans beyond that.

use std::time::Duration;

use operator::effect::{Dispatch, EffectRequest, Effector, Observation, Order, Unreadable};
use operator::id::EffectKey;
use serde_json::json;
use ureq::Body;
use ureq::http::{HeaderMap, Response, StatusCode};

use super::issue::{Issue, escape};

/// Largest issue that is read.
const ISSUE_BYTES_MAX: u64 = 16 << 20;
/// Longest part of a refusal's text that is told.
const TOLD_CHARS: usize = 200;

/// A service that keeps issues. Not `Debug`: its token must not reach a log.
pub struct HttpTracker {
    agent: ureq::Agent,
    url: String,
    authorization: Option<String>,
}

impl HttpTracker {
    /// A tracker at an address; the token goes to it alone.
    pub fn new(url: &str, token: Option<&str>, timeout: Duration) -> Self {
        Self {
            agent: ureq::Agent::config_builder()
                .timeout_global(Some(timeout))
                .http_status_as_error(false)
                .max_redirects(0)
                .max_redirects_will_error(false)
                .proxy(None)
                .build()
                .into(),
            url: url.trim_end_matches('/').to_owned(),
            authorization: token.map(|token| format!("Bearer {token}")),
        }
    }

    fn issue_url(&self, resource: &str) -> String {
        format!("{}/issues/{}", self.url, escape(resource))
    }

    fn observe(
        &self,
        mut response: Response<Body>,
        url: String,
        key: &EffectKey,
    ) -> Result<Observation, Unreadable> {
        let status = response.status();
        let after_ms = retry_after_ms(response.headers());
        let unreadable = |reason: String| Unreadable { after_ms, reason };
        if status == StatusCode::NOT_FOUND {
            return Ok(Observation {
                version: None,
                found: None,
                read_from: url,
            });
        }
        if status != StatusCode::OK {
            return Err(unreadable(format!("{url} answers {status}")));
        }
        let tag = etag(response.headers());
        let text = response
            .body_mut()
            .with_config()
            .limit(ISSUE_BYTES_MAX)
            .read_to_string()
            .map_err(|error| unreadable(format!("{url}: {error}")))?;
        let issue: Issue = serde_json::from_str(&text)
            .map_err(|error| unreadable(format!("{url} is no issue: {error}")))?;
        Ok(Observation {
            version: Some(tag.unwrap_or_else(|| issue.version.0.clone())),
            found: issue.find(key),
            read_from: url,
        })
    }
}

impl Effector for HttpTracker {
    fn repeatable(&self) -> bool {
        true
    }

    fn read_back(
        &self,
        request: &EffectRequest,
        key: &EffectKey,
    ) -> Result<Observation, Unreadable> {
        let url = self.issue_url(&request.resource);
        let mut get = self
            .agent
            .get(&url)
            .header("Accept", "application/json")
            .header("Cache-Control", "no-cache");
        if let Some(authorization) = &self.authorization {
            get = get.header("Authorization", authorization);
        }
        match get.call() {
            Ok(response) => self.observe(response, url, key),
            Err(error) => Err(Unreadable {
                after_ms: None,
                reason: format!("{url}: {error}"),
            }),
        }
    }

    fn dispatch(&self, order: Order<'_>) -> Dispatch {
        let request = order.request;
        let url = format!("{}/effects", self.issue_url(&request.resource));
        let mut post = self
            .agent
            .post(&url)
            .content_type("application/json")
            .header("Idempotency-Key", order.key.to_string())
            .header("If-Match", format!("\"{}\"", order.version));
        if let Some(authorization) = &self.authorization {
            post = post.header("Authorization", authorization);
        }
        let body = json!({
            "action": request.action,
            "set": request.set,
            "text": request.text,
        });
        match post.send(body.to_string()) {
            Ok(response) => answered(response, &url),
            Err(error) if never_sent(&error) => Dispatch::Later {
                after_ms: None,
                reason: format!("{url}: {error}"),
            },
            Err(error) => Dispatch::Unknown {
                after_ms: None,
                reason: format!("{url}: {error}"),
            },
        }
    }
}

/// What the answer to a write says about it.
fn answered(mut response: Response<Body>, url: &str) -> Dispatch {
    let status = response.status();
    let after_ms = retry_after_ms(response.headers());
    if status.is_success() {
        return Dispatch::Accepted;
    }
    let body = response.body_mut().with_config().limit(ISSUE_BYTES_MAX);
    let told: String = body
        .read_to_string()
        .unwrap_or_default()
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(TOLD_CHARS)
        .collect();
    let reason = format!("{url} answers {status} {told}")
        .trim_end()
        .to_owned();
    match status {
        StatusCode::CONFLICT => Dispatch::KeyTaken(reason),
        StatusCode::PRECONDITION_FAILED => Dispatch::Moved(reason),
        StatusCode::TOO_MANY_REQUESTS => Dispatch::Later { after_ms, reason },
        StatusCode::REQUEST_TIMEOUT => Dispatch::Unknown { after_ms, reason },
        _ if status.is_server_error() => Dispatch::Unknown { after_ms, reason },
        _ => Dispatch::Refused(reason),
    }
}

/// Whether an error came before the first byte of the request could be read by anybody.
fn never_sent(error: &ureq::Error) -> bool {
    match error {
        ureq::Error::HostNotFound | ureq::Error::ConnectionFailed => true,
        ureq::Error::Io(error) => error.kind() == std::io::ErrorKind::ConnectionRefused,
        _ => false,
    }
}

/// `Retry-After` in seconds; a date there is as good as none.
fn retry_after_ms(headers: &HeaderMap) -> Option<u64> {
    let seconds: u64 = headers
        .get("Retry-After")?
        .to_str()
        .ok()?
        .trim()
        .parse()
        .ok()?;
    seconds.checked_mul(1_000)
}

fn etag(headers: &HeaderMap) -> Option<String> {
    let tag = headers.get("ETag")?.to_str().ok()?.trim();
    let tag = tag.strip_prefix("W/").unwrap_or(tag);
    Some(tag.trim_matches('"').to_owned())
}
