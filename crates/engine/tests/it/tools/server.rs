//! A resource on the loopback that counts what reaches it and misbehaves as its paths say.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// What is answered to a path, by how often it was asked before.
pub type Script = dyn Fn(&str, u32) -> Answer + Send + Sync;

/// What becomes of a request.
#[derive(Debug, Clone)]
pub enum Answer {
    /// This status, these further headers, this body.
    Reply(u16, Vec<(&'static str, String)>, String),
    /// The same, after a while.
    Slow(Duration, String),
    /// Nothing, until the client goes away; counted as under way for so long.
    Hang(Duration),
    /// The connection is closed.
    Close,
}

impl Answer {
    pub fn ok(body: impl Into<String>) -> Self {
        Self::Reply(200, Vec::new(), body.into())
    }

    pub fn status(status: u16) -> Self {
        Self::Reply(status, Vec::new(), String::new())
    }
}

/// What reached the server.
#[derive(Debug, Default, Clone)]
pub struct Seen {
    /// Requests by path.
    pub paths: BTreeMap<String, u32>,
    /// When each arrived.
    pub arrivals: Vec<Instant>,
    /// Requests under way, and the most that were at once.
    pub under_way: u32,
    pub most_under_way: u32,
    /// Header lines of the last request, lower case.
    pub headers: Vec<String>,
}

pub struct Server {
    pub address: String,
    seen: Arc<Mutex<Seen>>,
    stop: Arc<AtomicBool>,
}

impl Server {
    pub fn start(script: impl Fn(&str, u32) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (seen, stop) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let script: Arc<Script> = Arc::new(script);
        let (of_all, stopped) = (Arc::clone(&seen), Arc::clone(&stop));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::Acquire) {
                    break;
                }
                let (Ok(stream), script, seen) = (stream, script.clone(), Arc::clone(&of_all))
                else {
                    continue;
                };
                std::thread::spawn(move || serve(stream, &*script, &seen));
            }
        });
        Self {
            address,
            seen,
            stop,
        }
    }

    pub fn seen(&self) -> Seen {
        self.seen.lock().unwrap().clone()
    }

    pub fn requests(&self) -> usize {
        self.seen.lock().unwrap().arrivals.len()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // The listener looks at the flag when something arrives.
        let _ = TcpStream::connect(&self.address);
    }
}

/// Answers one request after the other until the client goes away.
fn serve(mut stream: TcpStream, script: &Script, seen: &Mutex<Seen>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    loop {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            match line.trim_end() {
                "" => break,
                line => lines.push(line.to_owned()),
            }
        }
        let path = lines.first()?.split(' ').nth(1)?.to_owned();
        let before = {
            let mut seen = seen.lock().unwrap();
            seen.arrivals.push(Instant::now());
            seen.under_way += 1;
            seen.most_under_way = seen.most_under_way.max(seen.under_way);
            seen.headers = lines[1..].iter().map(|l| l.to_ascii_lowercase()).collect();
            let count = seen.paths.entry(path.clone()).or_default();
            *count += 1;
            *count - 1
        };
        let leave = || seen.lock().unwrap().under_way -= 1;
        let (status, headers, body) = match script(&path, before) {
            Answer::Reply(status, headers, body) => (status, headers, body),
            Answer::Slow(time, body) => {
                std::thread::sleep(time);
                (200, Vec::new(), body)
            }
            Answer::Hang(time) => {
                std::thread::sleep(time);
                leave();
                let _ = reader.read(&mut [0; 1]);
                return None;
            }
            Answer::Close => {
                leave();
                return None;
            }
        };
        let mut head = format!("HTTP/1.1 {status} -\r\ncontent-length: {}\r\n", body.len());
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        // No longer under way once the client can know of the answer.
        leave();
        stream
            .write_all(format!("{head}\r\n{body}").as_bytes())
            .ok()?;
    }
}
