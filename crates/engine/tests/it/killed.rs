//! Runs that are killed: what was finished is never asked again, and the end is the same.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::Value;

use crate::cli::Place;
use crate::store::write_model;

const PLAN: &str = r#"
version = 1
question = "Which records are red?"
rubric = "Say whether the record is red."
[input]
id = "id"
text = [{ field = "text", max_chars = 60 }]
evidence = "model"
[[prefilter]]
name = "grey"
when = { field = "text", op = "eq", value = "grey" }
action = "exclude"
reason = "grey is no colour"
[[field]]
name = "red"
question = "Is it red?"
labels = ["yes", "no"]
[[reduce]]
name = "reds"
op = "count_by"
field = "red"
[[reduce]]
name = "surest"
op = "top_k"
field = "red"
label = "yes"
k = 3
"#;

const RECORDS: usize = 48;
const KILLS: usize = 200;
/// Kills after which a run may end in peace, and the next one begins with an empty store.
const KILLS_A_RUN: usize = 8;

/// The lines of an event log that are whole: the last one may have been cut.
fn events(out: &Path) -> Vec<Value> {
    let text = fs::read(out.join("events.jsonl")).unwrap_or_default();
    let lines = text.split_inclusive(|byte| *byte == b'\n');
    let whole = lines.filter(|line| line.ends_with(b"\n"));
    whole
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect()
}

/// Units that the model answered, with whether the answer was remembered.
fn answered(events: &[Value]) -> Vec<(String, bool)> {
    let units = events
        .iter()
        .filter(|event| event["type"] == "unit" && event["stage"] == "map");
    units
        .map(|event| {
            assert_eq!(event["status"], "decided", "{event}");
            let id = event["id"].as_str().unwrap().to_owned();
            (id, event["remembered"].as_bool().unwrap())
        })
        .collect()
}

/// Checks one run, ended or killed, against all that was finished before, and adds what it finished.
fn account(out: &Path, finished: &mut BTreeSet<String>) {
    for (id, remembered) in answered(&events(out)) {
        assert_eq!(
            remembered,
            finished.contains(&id),
            "unit {id} was finished and is asked again, or was remembered before it was finished"
        );
        finished.insert(id);
    }
}

/// A unit whose answer was stored right before the kill and not yet told is remembered too.
fn adopt(out: &Path, finished: &mut BTreeSet<String>) {
    let told = answered(&events(out));
    let early = told
        .iter()
        .filter(|(id, remembered)| *remembered && !finished.contains(id));
    let early: Vec<String> = early.map(|(id, _)| id.clone()).collect();
    assert!(
        early.len() <= 1,
        "one answer is stored at a time: {early:?}"
    );
    finished.extend(early);
}

#[test]
fn a_run_killed_at_any_moment_ends_like_one_that_was_not_and_asks_nothing_twice() {
    let place = Place::new();
    let plan = place.write("plan.toml", PLAN);
    let records: String = (0..RECORDS)
        .map(|number| match number % 6 {
            0 => format!("{{\"id\":\"{number}\",\"text\":\"grey\"}}\n"),
            _ => format!("{{\"id\":\"{number}\",\"text\":\"crimson number {number}\"}}\n"),
        })
        .collect();
    let input = place.write("in.jsonl", records);
    let model = place.path().join("tiny.gguf");
    write_model(&model);
    let model = model.to_string_lossy().into_owned();
    let run = |out: &str, store: &str| {
        let mut command = place.command(&[
            "run",
            &plan,
            "--input",
            &input,
            "--model",
            &model,
            "--out",
            out,
            "--store",
            store,
            "--batch-tokens",
            "128",
        ]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    assert!(run("whole", "whole.redb").status().unwrap().success());
    let whole = place.path().join("whole");
    let all = events(&whole).len();
    let asked = answered(&events(&whole)).len();
    assert_eq!(asked, RECORDS - RECORDS.div_ceil(6));
    let answer = fs::read(whole.join("answer.json")).unwrap();

    // Seeded, so that a failure can be looked for again; the machine adds chance of its own.
    let mut chance = StdRng::seed_from_u64(3);
    let out = place.path().join("out");
    let (mut kills, mut midway) = (0, 0);
    while kills < KILLS {
        let store = format!("{kills}.redb");
        let mut finished = BTreeSet::new();
        for _ in 0..KILLS_A_RUN {
            let _ = fs::remove_dir_all(&out);
            let mut child = run("out", &store).spawn().unwrap();
            let lines = chance.random_range(0..all);
            let more = Duration::from_micros(chance.random_range(0..3_000));
            // A moment is a place in the log and a little more, so that kills fall everywhere in
            // a run however fast the machine is. A run that is through with its work ends itself.
            while events(&out).len() < lines && child.try_wait().unwrap().is_none() {
                std::thread::sleep(Duration::from_micros(300));
            }
            std::thread::sleep(more);
            child.kill().unwrap();
            child.wait().unwrap();
            kills += 1;
            adopt(&out, &mut finished);
            account(&out, &mut finished);
            midway += usize::from((1..asked).contains(&finished.len()));
        }
        let ended = run("out", &store).stderr(Stdio::piped()).output().unwrap();
        let told = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success(), "after {kills} kills: {told}");
        adopt(&out, &mut finished);
        account(&out, &mut finished);
        assert_eq!(finished.len(), asked);
        assert!(
            fs::read(out.join("answer.json")).unwrap() == answer,
            "the answer is another after {kills} kills"
        );
    }
    assert!(
        midway > KILLS / 20,
        "only {midway} kills fell between answers"
    );
}
