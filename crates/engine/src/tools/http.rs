//! Reads a resource of an allowed host, by GET.
//!
//! Redirects are followed here, one by one, so that each is checked like the first request. Proxies
//! are not used: a proxy would resolve names itself, past the check of addresses.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use operator::plan::HttpTool;
use operator::tool::{Arguments, Call, Reply, Template, Tool, ToolError};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use ureq::http::{Response, StatusCode, header};
use ureq::unversioned::transport::DefaultConnector;
use ureq::{Agent, Body, Error};
use url::Url;

use super::address::{GuardedResolver, bare};
use super::retry_after;

const REDIRECTS_MAX: usize = 5;
/// All but what RFC 3986 calls unreserved.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// A client that reaches the declared hosts and no other.
pub(super) struct HttpReader {
    agent: Agent,
    url: Template,
    host: String,
    hosts: Vec<String>,
    headers: BTreeMap<String, String>,
    /// Headers for the host of `url` alone.
    secret: BTreeMap<String, String>,
}

impl HttpReader {
    pub(super) fn open(tool: &HttpTool, idle: usize) -> Result<Self, String> {
        let mut secret = BTreeMap::new();
        for (name, variable) in &tool.headers_env {
            let value = std::env::var(variable).map_err(|_| {
                format!("the environment variable {variable} for the header {name} is not set")
            })?;
            secret.insert(name.clone(), value);
        }
        for (name, value) in tool.headers.iter().chain(&secret) {
            let name_ok = header::HeaderName::try_from(name).is_ok();
            // The value may be secret.
            if !name_ok || header::HeaderValue::try_from(value).is_err() {
                return Err(format!(
                    "the header {name:?} has a name or value that no header can have"
                ));
            }
        }
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .max_idle_connections_per_host(idle)
            .build();
        let resolver = GuardedResolver::new(tool.private_hosts.clone());
        Ok(Self {
            agent: Agent::with_parts(config, DefaultConnector::default(), resolver),
            url: tool.url.clone(),
            host: tool.host.clone(),
            hosts: tool.hosts.clone(),
            headers: tool.headers.clone(),
            secret,
        })
    }

    fn address(&self, arguments: &Arguments) -> Result<Url, ToolError> {
        let filled = self.url.render(arguments, |text| {
            utf8_percent_encode(text, ESCAPED).to_string()
        });
        // A path would be shortened by a value of dots, and name another resource.
        let path = filled.split(['?', '#']).next().unwrap_or_default();
        if path.split('/').any(|part| part == "." || part == "..") {
            return Err(ToolError::Denied(format!(
                "{filled:?} has a part of dots in its path"
            )));
        }
        let url = Url::parse(&filled)
            .map_err(|error| ToolError::Malformed(format!("{filled:?}: {error}")))?;
        self.allow(&url)?;
        Ok(url)
    }

    fn allow(&self, url: &Url) -> Result<(), ToolError> {
        let host = bare(url.host_str().unwrap_or_default());
        if !matches!(url.scheme(), "http" | "https") || !self.hosts.contains(&host) {
            return Err(ToolError::Denied(format!(
                "{} is not at an allowed host; hosts are {}",
                shown(url),
                self.hosts.join(", ")
            )));
        }
        Ok(())
    }

    fn get(&self, url: &Url, timeout: Duration) -> Result<Response<Body>, Error> {
        let mut request = self.agent.get(url.as_str());
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        if bare(url.host_str().unwrap_or_default()) == self.host {
            for (name, value) in &self.secret {
                request = request.header(name, value);
            }
        }
        request
            .config()
            .timeout_global(Some(timeout))
            .build()
            .call()
    }

    fn read(&self, first: Url, call: &Call) -> Result<Reply, ToolError> {
        let until = Instant::now() + call.timeout;
        let mut url = first;
        for _ in 0..=REDIRECTS_MAX {
            if call.cancel.is_cancelled() {
                return Err(ToolError::Cancelled);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(timed_out(call));
            }
            let response = self
                .get(&url, left)
                .map_err(|error| explain(error, &url, call))?;
            let status = response.status();
            if status.is_success() {
                return body(response, &url, call);
            }
            let Some(to) = location(&response) else {
                return Err(refusal(&response, &url));
            };
            let next = url
                .join(to)
                .map_err(|error| ToolError::Malformed(format!("redirect to {to:?}: {error}")))?;
            self.allow(&next)?;
            if url.scheme() == "https" && next.scheme() == "http" {
                return Err(ToolError::Denied(format!(
                    "{} redirects to {}, from https to http",
                    shown(&url),
                    shown(&next)
                )));
            }
            url = next;
        }
        Err(ToolError::Refused(format!(
            "more than {REDIRECTS_MAX} redirects, the last to {}",
            shown(&url)
        )))
    }
}

impl Tool for HttpReader {
    fn scope(&self) -> &str {
        ""
    }

    fn resource(&self, arguments: &Arguments) -> Result<String, ToolError> {
        let url = self.address(arguments)?;
        Ok(format!("host:{}", bare(url.host_str().unwrap_or_default())))
    }

    fn call(&self, arguments: &Arguments, call: &Call) -> Result<Reply, ToolError> {
        self.read(self.address(arguments)?, call)
    }
}

/// An address without user name, password and query, which may hold what must not be shown.
fn shown(url: &Url) -> String {
    let port = url
        .port()
        .map(|port| format!(":{port}"))
        .unwrap_or_default();
    let host = url.host_str().unwrap_or_default();
    format!("{}://{host}{port}{}", url.scheme(), url.path())
}

fn timed_out(call: &Call) -> ToolError {
    ToolError::TimedOut {
        after_ms: u64::try_from(call.timeout.as_millis()).unwrap_or(u64::MAX),
    }
}

/// Where a response leads to, if it is a redirect.
fn location(response: &Response<Body>) -> Option<&str> {
    let moved = [
        StatusCode::MOVED_PERMANENTLY,
        StatusCode::FOUND,
        StatusCode::SEE_OTHER,
        StatusCode::TEMPORARY_REDIRECT,
        StatusCode::PERMANENT_REDIRECT,
    ];
    let to = response.headers().get(header::LOCATION)?.to_str().ok()?;
    moved.contains(&response.status()).then_some(to)
}

fn body(mut response: Response<Body>, url: &Url, call: &Call) -> Result<Reply, ToolError> {
    let length = response.body().content_length();
    if !call.cut && length.is_some_and(|length| length > call.bytes_max) {
        let bytes_max = call.bytes_max;
        return Err(ToolError::TooLarge { bytes_max });
    }
    let media = response.body().mime_type();
    let media = media.unwrap_or("application/octet-stream").to_owned();
    let mut body = Vec::new();
    let reader = response.body_mut().with_config().limit(u64::MAX).reader();
    reader
        .take(call.bytes_max.saturating_add(1))
        .read_to_end(&mut body)
        .map_err(|error| explain(Error::from(error), url, call))?;
    let truncated = call.fit(&mut body)?;
    Ok(Reply {
        body,
        media,
        truncated,
        from: shown(url),
    })
}

/// What a status other than success means.
fn refusal(response: &Response<Body>, url: &Url) -> ToolError {
    let status = response.status();
    let message = format!("{} answers {status}", shown(url));
    let retry_after = response.headers().get(header::RETRY_AFTER);
    let retry_after_ms = retry_after
        .and_then(|value| value.to_str().ok())
        .and_then(|value| retry_after::parse(value, Timestamp::now()));
    match status.as_u16() {
        429 => ToolError::RateLimited {
            message,
            retry_after_ms,
        },
        403 if retry_after_ms.is_some() => ToolError::RateLimited {
            message,
            retry_after_ms,
        },
        408 | 425 | 500 | 502 | 503 | 504 => ToolError::Unavailable {
            message,
            retry_after_ms,
        },
        _ => ToolError::Refused(message),
    }
}

/// What an error on the way means.
fn explain(error: Error, url: &Url, call: &Call) -> ToolError {
    match error {
        Error::Timeout(_) => timed_out(call),
        Error::Io(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            ToolError::Denied(error.to_string())
        }
        Error::Io(error) if error.kind() == io::ErrorKind::TimedOut => timed_out(call),
        Error::BadUri(_) | Error::Http(_) => {
            ToolError::Malformed(format!("{}: {error}", shown(url)))
        }
        error => ToolError::unavailable(format!("{}: {error}", shown(url))),
    }
}
