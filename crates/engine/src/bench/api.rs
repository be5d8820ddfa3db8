//! The arm that asks a server with OpenAI's chat completions, many records at a time.
//!
//! Knows HTTP and texts, no tokens: what a server counts is taken from its replies. One bad reply
//! ends the arm, since the rate of the others would mean nothing.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::json;

use super::arms::{RecordAnswer, Sample, Task, Tokens};
use super::{Arm, BenchError, machine};

/// Longest wait for one reply.
const TIMEOUT: Duration = Duration::from_secs(600);
/// Characters of a server's error that are shown.
const SHOWN_CHARS: usize = 300;

/// A server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Up to and with the version, such as `http://127.0.0.1:8080/v1`.
    pub url: String,
    /// What it calls the model.
    pub model: String,
    /// Sent as bearer token.
    pub key: Option<String>,
}

#[derive(Deserialize)]
struct Reply {
    choices: Vec<Choice>,
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct Choice {
    message: Message,
}

#[derive(Deserialize)]
struct Message {
    content: Option<String>,
}

#[derive(Deserialize)]
struct Usage {
    prompt_tokens: u64,
    prompt_tokens_details: Option<Details>,
}

#[derive(Deserialize)]
struct Details {
    cached_tokens: Option<u64>,
}

/// One record's reply and times, in microseconds since the arm began.
struct Answered {
    text: String,
    prompt_tokens: Option<u64>,
    cached_tokens: Option<u64>,
    asked_us: u64,
    done_us: u64,
}

/// Asks all records and waits for all replies; `tick` is told how many are done.
///
/// # Errors
/// `Api` at the first reply that is none, `Nothing` where no record may be in flight.
pub fn run(
    endpoint: &Endpoint,
    task: &Task,
    tick: &mut (dyn FnMut(usize) + Send),
) -> Result<Sample, BenchError> {
    if task.concurrency == 0 {
        return Err(BenchError::Nothing {
            what: "the number of records in flight",
        });
    }
    let count = task.work.users.len();
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .timeout_global(Some(TIMEOUT))
        .http_status_as_error(false)
        .max_idle_connections_per_host(task.concurrency)
        .max_idle_connections(task.concurrency)
        .build()
        .into();
    let next = AtomicUsize::new(0);
    let slots: Mutex<Vec<Option<Answered>>> = Mutex::new((0..count).map(|_| None).collect());
    let done = Mutex::new((0, tick));
    let failed: Mutex<Option<BenchError>> = Mutex::new(None);
    let started = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..task.concurrency.min(count) {
            scope.spawn(|| {
                loop {
                    let record = next.fetch_add(1, Ordering::Relaxed);
                    if record >= count {
                        return;
                    }
                    match ask(&agent, endpoint, task, record, started) {
                        Ok(answered) => {
                            locked(&slots)[record] = Some(answered);
                            let (done, tick) = &mut *locked(&done);
                            *done += 1;
                            tick(*done);
                        }
                        Err(problem) => {
                            // The other threads find nothing left to ask.
                            next.store(count, Ordering::Relaxed);
                            locked(&failed).get_or_insert(BenchError::Api {
                                url: endpoint.url.clone(),
                                record,
                                problem,
                            });
                            return;
                        }
                    }
                }
            });
        }
    });
    if let Some(error) = locked(&failed).take() {
        return Err(error);
    }
    let answered: Vec<Answered> = locked(&slots).drain(..).flatten().collect();
    Ok(sample(answered))
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn ask(
    agent: &ureq::Agent,
    endpoint: &Endpoint,
    task: &Task,
    record: usize,
    started: Instant,
) -> Result<Answered, String> {
    let body = json!({
        "model": endpoint.model,
        "messages": [
            { "role": "system", "content": task.work.system },
            { "role": "user", "content": task.work.users[record] },
        ],
        "max_tokens": task.output_len.max(1),
        "temperature": 0,
    });
    let url = format!("{}/chat/completions", endpoint.url.trim_end_matches('/'));
    let asked_us = started.elapsed().as_micros() as u64;
    let mut request = agent.post(&url).content_type("application/json");
    if let Some(key) = &endpoint.key {
        request = request.header("Authorization", format!("Bearer {key}"));
    }
    let mut response = request
        .send(body.to_string())
        .map_err(|error| error.to_string())?;
    let text = response
        .body_mut()
        .read_to_string()
        .map_err(|error| error.to_string())?;
    if !response.status().is_success() {
        return Err(format!("status {}: {}", response.status(), shorten(&text)));
    }
    let reply: Reply = serde_json::from_str(&text)
        .map_err(|error| format!("no chat completion ({error}): {}", shorten(&text)))?;
    let choice = reply.choices.into_iter().next();
    let choice = choice.ok_or_else(|| format!("no choices: {}", shorten(&text)))?;
    let details = |usage: &Usage| usage.prompt_tokens_details.as_ref()?.cached_tokens;
    Ok(Answered {
        text: choice.message.content.unwrap_or_default(),
        prompt_tokens: reply.usage.as_ref().map(|usage| usage.prompt_tokens),
        cached_tokens: reply.usage.as_ref().and_then(details),
        asked_us,
        done_us: started.elapsed().as_micros() as u64,
    })
}

fn sample(answered: Vec<Answered>) -> Sample {
    let mut done_us: Vec<u64> = answered.iter().map(|answer| answer.done_us).collect();
    done_us.sort_unstable();
    let sum = |of: &dyn Fn(&Answered) -> Option<u64>| answered.iter().map(of).sum::<Option<u64>>();
    let tokens = sum(&|answer| answer.prompt_tokens)
        .zip(sum(&|answer| answer.cached_tokens))
        .map(|(logical, cached)| Tokens {
            computed: logical.saturating_sub(cached),
            cached,
            logical,
            sealed: 0,
        });
    Sample {
        arm: Arm::Api,
        load_us: 0,
        prefix_us: 0,
        records_us: done_us.last().copied().unwrap_or(0),
        latency_us: answered
            .iter()
            .map(|answer| answer.done_us - answer.asked_us)
            .collect(),
        done_us,
        tokens,
        forwards: 0,
        peak_bytes: machine::peak_bytes(),
        gemm_flops_per_s: None,
        answers: answered
            .into_iter()
            .map(|answer| RecordAnswer {
                text: Some(answer.text),
                ..RecordAnswer::default()
            })
            .collect(),
    }
}

fn shorten(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(SHOWN_CHARS) {
        Some((at, _)) => format!("{} ...", &line[..at]),
        None => line,
    }
}
