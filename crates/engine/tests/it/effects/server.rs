//! An issue tracker over HTTP on the loopback: a real one that does a key once, on a network that
//! loses, delays and doubles.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

use super::{RECORDS, text};

/// How bad the network is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    Good,
    Bad,
}

pub struct Server {
    address: String,
    state: Arc<Mutex<State>>,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

pub struct State {
    issues: BTreeMap<String, Value>,
    /// Keys in the order in which something was done: the tracker's own log.
    pub log: Vec<String>,
    /// Writes that came for a key that was done already.
    pub repeated: u32,
    /// Tokens that requests carried.
    pub tokens: Vec<Option<String>>,
    /// What writes are answered, where a test says so, instead of being done.
    pub answers: Vec<(u16, &'static str)>,
    chance: StdRng,
    network: Network,
}

struct Request {
    method: String,
    path: String,
    headers: BTreeMap<String, String>,
    body: String,
}

impl Server {
    pub fn start(network: Network, seed: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let issues = (0..RECORDS).map(|id| {
            let issue = json!({
                "version": 3, "title": text(id), "labels": [], "applied": [],
                "comments": [{ "text": "by hand" }],
            });
            (id.to_string(), issue)
        });
        let state = Arc::new(Mutex::new(State {
            issues: issues.collect(),
            log: Vec::new(),
            repeated: 0,
            tokens: Vec::new(),
            answers: Vec::new(),
            chance: StdRng::seed_from_u64(seed),
            network,
        }));
        let stop = Arc::new(AtomicBool::new(false));
        let (served, stopped) = (state.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::Acquire) {
                    return;
                }
                let state = served.clone();
                std::thread::spawn(move || {
                    // A client that was killed leaves a connection that says nothing.
                    let _ = serve(stream.unwrap(), &state);
                });
            }
        });
        Self {
            address,
            state,
            stop,
            thread: Some(thread),
        }
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    pub fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// The issue as anybody gets it, on a connection of its own.
    pub fn issue(&self, id: u32) -> Value {
        let (status, body) = self.say("GET", &format!("/api/issues/{id}"), "", "");
        assert_eq!(status, 200);
        serde_json::from_str(&body).unwrap()
    }

    /// Sends a request by hand.
    pub fn say(&self, method: &str, path: &str, headers: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, body.to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        let _ = TcpStream::connect(&self.address);
        let _ = self.thread.take().unwrap().join();
    }
}

fn serve(stream: TcpStream, state: &Arc<Mutex<State>>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let Some(request) = read(&mut reader)? else {
        return Ok(());
    };
    let stream = reader.get_mut();
    let token = request.headers.get("authorization").cloned();
    state.lock().unwrap().tokens.push(token);
    let name = request.path.trim_start_matches("/api/issues/");
    match (request.method.as_str(), name.strip_suffix("/effects")) {
        ("GET", None) => {
            let issue = state.lock().unwrap().issues.get(name).cloned();
            match issue {
                Some(issue) => answer(stream, 200, &tag(&issue), &issue.to_string()),
                None => answer(stream, 404, "", "no such issue"),
            }
        }
        ("POST", Some(name)) => write(stream, state, name, &request),
        _ => answer(stream, 405, "", "GET an issue, or POST its effects"),
    }
}

/// A write on a network where anything may happen to it.
fn write(
    stream: &mut TcpStream,
    state: &Arc<Mutex<State>>,
    name: &str,
    request: &Request,
) -> std::io::Result<()> {
    let mut held = state.lock().unwrap();
    if let Some((status, header)) = held.answers.pop() {
        return answer(stream, status, header, "as told");
    }
    let luck = match held.network {
        Network::Good => 99,
        Network::Bad => held.chance.random_range(0..100),
    };
    match luck {
        // Lost on the way.
        0..10 => Ok(()),
        // Done, and the answer is lost.
        10..22 => held.apply(name, request).map_or(Ok(()), |_| Ok(())),
        22..27 => answer(stream, 500, "", "before"),
        27..37 => {
            let _ = held.apply(name, request);
            answer(stream, 500, "", "after")
        }
        37..42 => answer(stream, 429, "Retry-After: 0\r\n", "slowly"),
        // Delivered twice.
        42..52 => {
            let first = held.apply(name, request);
            let second = held.apply(name, request);
            assert!(first.is_err() || second.is_ok());
            reply(stream, &second)
        }
        // Not heard of until later.
        52..60 => {
            drop(held);
            let _ = stream.shutdown(std::net::Shutdown::Both);
            std::thread::sleep(Duration::from_millis(20));
            let _ = state.lock().unwrap().apply(name, request);
            Ok(())
        }
        _ => {
            let applied = held.apply(name, request);
            reply(stream, &applied)
        }
    }
}

fn reply(stream: &mut TcpStream, applied: &Result<Value, u16>) -> std::io::Result<()> {
    match applied {
        Ok(issue) => answer(stream, 200, &tag(issue), "{}"),
        Err(status) => answer(stream, *status, "", "refused"),
    }
}

impl State {
    /// Does an effect, unless its key is known or the issue is at another version.
    fn apply(&mut self, name: &str, request: &Request) -> Result<Value, u16> {
        let issue = self.issues.get_mut(name).ok_or(404_u16)?;
        let key = request.headers.get("idempotency-key").ok_or(400_u16)?;
        let body: Value = serde_json::from_str(&request.body).map_err(|_| 400_u16)?;
        let applied = issue["applied"].as_array().unwrap();
        if let Some(known) = applied.iter().find(|applied| applied["key"] == **key) {
            self.repeated += 1;
            let same = ["action", "set", "text"]
                .iter()
                .all(|part| known[part] == body[part]);
            return if same { Ok(issue.clone()) } else { Err(409) };
        }
        let wanted = request.headers.get("if-match").ok_or(428_u16)?;
        if *wanted != format!("\"{}\"", issue["version"]) {
            return Err(412);
        }
        let version = issue["version"].as_u64().unwrap() + 1;
        match body["action"].as_str().unwrap() {
            "comment" => {
                let comment = json!({ "key": key, "text": body["text"] });
                issue["comments"].as_array_mut().unwrap().push(comment);
            }
            "label" => issue["labels"]
                .as_array_mut()
                .unwrap()
                .push(body["text"].clone()),
            _ => return Err(400),
        }
        issue["version"] = version.into();
        let mut applied = body.clone();
        applied["key"] = key.as_str().into();
        applied["version"] = version.into();
        issue["applied"].as_array_mut().unwrap().push(applied);
        self.log.push(key.clone());
        Ok(issue.clone())
    }

    /// From now on nothing is lost.
    pub fn calm(&mut self) {
        self.network = Network::Good;
    }

    /// Changes an issue as a person would.
    pub fn touch(&mut self, id: u32) {
        let issue = self.issues.get_mut(&id.to_string()).unwrap();
        issue["version"] = (issue["version"].as_u64().unwrap() + 1).into();
    }
}

fn tag(issue: &Value) -> String {
    format!("ETag: \"{}\"\r\n", issue["version"])
}

fn answer(stream: &mut TcpStream, status: u16, headers: &str, body: &str) -> std::io::Result<()> {
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
    )
}

fn read(reader: &mut BufReader<TcpStream>) -> std::io::Result<Option<Request>> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let mut parts = line.split(' ');
    let (Some(method), Some(path)) = (parts.next(), parts.next()) else {
        return Ok(None);
    };
    let (method, path) = (method.to_owned(), path.to_owned());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        match line.trim_end().split_once(": ") {
            Some((name, value)) => headers.insert(name.to_lowercase(), value.to_owned()),
            None => break,
        };
    }
    let length = headers.get("content-length");
    let length: usize = length.map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(Some(Request {
        method,
        path,
        headers,
        body: String::from_utf8(body).unwrap(),
    }))
}
