//! The arm that asks a server, against a server of a few lines on loopback.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};

use engine::bench::api::{self, Endpoint};
use engine::bench::arms::Sample;
use engine::bench::{Arm, BenchError};
use serde_json::{Value, json};

use super::{SHAPE, Tiny, task};
use crate::cli::Place;
use crate::store::write_model;

/// What a server was asked: the head of the request and its body.
type Asked = Arc<Mutex<Vec<(String, Value)>>>;

/// Answers every request, by its number, with a status line and a body; never stops.
fn serve(
    answer: impl Fn(usize) -> (&'static str, String) + Send + Sync + 'static,
) -> (String, Asked) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let asked = Asked::default();
    let seen = asked.clone();
    let answer = Arc::new(answer);
    let count = Arc::new(AtomicUsize::new(0));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (answer, seen, count) = (answer.clone(), seen.clone(), count.clone());
            std::thread::spawn(move || {
                let mut stream = stream.unwrap();
                while let Some(request) = read(&mut stream) {
                    seen.lock().unwrap().push(request);
                    let (status, body) = answer(count.fetch_add(1, Ordering::SeqCst));
                    let length = body.len();
                    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n");
                    stream
                        .write_all(format!("{head}{body}").as_bytes())
                        .unwrap();
                }
            });
        }
    });
    (url, asked)
}

fn read(stream: &mut TcpStream) -> Option<(String, Value)> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).unwrap_or(0) == 0 {
            return None;
        }
    }
    let lower = head.to_lowercase();
    let length = lower
        .lines()
        .find_map(|line| line.strip_prefix("content-length:"));
    let mut body = vec![0; length.unwrap().trim().parse().unwrap()];
    reader.read_exact(&mut body).unwrap();
    Some((head, serde_json::from_slice(&body).unwrap()))
}

fn completion(prompt_tokens: u64, cached_tokens: u64) -> String {
    json!({
        "choices": [{ "index": 0, "message": { "role": "assistant", "content": "yes" } }],
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": 1,
            "prompt_tokens_details": { "cached_tokens": cached_tokens },
        },
    })
    .to_string()
}

fn ask(url: &str, concurrency: usize) -> Result<Sample, BenchError> {
    let mut task = task(Arm::Api, Tiny::new().work(SHAPE).unwrap());
    task.concurrency = concurrency;
    let endpoint = Endpoint {
        url: url.into(),
        model: "some-model".into(),
        key: Some("open-sesame".into()),
    };
    api::run(&endpoint, &task, &mut |_| {})
}

#[test]
fn every_record_is_asked_once_with_its_own_text() {
    let (url, asked) = serve(|_| ("200 OK", completion(100, 80)));
    let sample = ask(&url, 3).unwrap();
    assert_eq!(sample.arm, Arm::Api);
    let tokens = sample.tokens.unwrap();
    assert_eq!(
        (tokens.logical, tokens.cached, tokens.computed),
        (900, 720, 180)
    );
    assert_eq!((sample.latency_us.len(), sample.done_us.len()), (9, 9));
    assert!(sample.done_us.is_sorted());
    assert!(
        sample
            .answers
            .iter()
            .all(|answer| answer.text.as_deref() == Some("yes"))
    );
    let work = Tiny::new().work(SHAPE).unwrap();
    let asked = asked.lock().unwrap();
    let mut users: Vec<&str> = Vec::new();
    for (head, body) in asked.iter() {
        assert!(head.starts_with("POST /v1/chat/completions "), "{head}");
        assert!(
            head.to_lowercase()
                .contains("authorization: bearer open-sesame"),
            "{head}"
        );
        assert_eq!(body["model"], "some-model");
        assert_eq!(
            (&body["max_tokens"], &body["temperature"]),
            (&json!(1), &json!(0))
        );
        assert_eq!(body["messages"][0]["content"], work.system);
        users.push(body["messages"][1]["content"].as_str().unwrap());
    }
    users.sort_unstable();
    let mut texts = work.users.clone();
    texts.sort_unstable();
    assert_eq!(users, texts);
}

#[test]
fn as_many_requests_as_asked_for_are_in_flight() {
    // Each answer waits for two others: with fewer than three in flight, none would come.
    let barrier = Barrier::new(3);
    let (url, _) = serve(move |_| {
        barrier.wait();
        ("200 OK", completion(10, 0))
    });
    assert_eq!(ask(&url, 3).unwrap().answers.len(), 9);
}

#[test]
fn a_server_without_usage_gives_times_and_no_tokens() {
    let (url, _) = serve(|_| {
        (
            "200 OK",
            json!({"choices": [{"message": {"content": "no"}}]}).to_string(),
        )
    });
    let sample = ask(&url, 2).unwrap();
    assert!(sample.tokens.is_none());
    assert_eq!(sample.answers[8].text.as_deref(), Some("no"));
}

#[test]
fn a_bad_reply_ends_the_arm_and_is_shown() {
    let cases: [(&str, &str, &[&str]); 4] = [
        (
            "503 Service Unavailable",
            "{\"error\":\"no slot\"}",
            &["503", "no slot"],
        ),
        ("401 Unauthorized", "who are you?", &["401", "who are you?"]),
        (
            "200 OK",
            "<html>hello</html>",
            &["no chat completion", "<html>"],
        ),
        ("200 OK", "{\"choices\":[]}", &["no choices"]),
    ];
    for (status, body, parts) in cases {
        let (url, asked) = serve(move |number| match number {
            4 => (status, body.to_owned()),
            _ => ("200 OK", completion(10, 0)),
        });
        let error = ask(&url, 1).unwrap_err().to_string();
        for part in parts.iter().chain(&["record 4", url.as_str()]) {
            assert!(error.contains(part), "no {part:?} in: {error}");
        }
        assert!(!error.contains("open-sesame"), "{error}");
        assert_eq!(asked.lock().unwrap().len(), 5, "nothing is asked after it");
    }
    // Nobody listens on a port that was just given back.
    let url = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}/v1", listener.local_addr().unwrap())
    };
    let error = ask(&url, 2).unwrap_err().to_string();
    assert!(error.contains(&url), "{error}");
}

#[test]
fn the_command_asks_the_server_in_its_last_arm() {
    let (url, asked) = serve(|_| ("200 OK", completion(50, 40)));
    let place = Place::new();
    let model = place.path().join("tiny.gguf");
    write_model(&model);
    let model = model.to_string_lossy().into_owned();
    let bench = |url: &str| {
        place.engine(&[
            "bench",
            "prefix",
            "--model",
            &model,
            "--out",
            "out",
            "--prefix-len",
            "40",
            "--record-len",
            "20",
            "--records",
            "4",
            "--rounds",
            "1",
            "--arms",
            "unshared,api",
            "--numerics",
            "f32",
            "--url",
            url,
            "--api-model",
            "theirs",
            "--json",
        ])
    };
    let ended = bench(&url);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(report["figures"][1]["arm"], "api");
    assert_eq!(report["figures"][1]["tokens"]["cached"], 160);
    assert_eq!(asked.lock().unwrap()[3].1["model"], "theirs");
    let (url, _) = serve(|_| ("500 Internal Server Error", "out of order".into()));
    let ended = bench(&url);
    assert_eq!(ended.code, 1);
    for part in ["out of order", "arm api, round 1"] {
        assert!(
            ended.stderr.contains(part),
            "no {part:?} in: {}",
            ended.stderr
        );
    }
}
