//! The drill: 100 effects, killed 100 times, doubled on purpose; each happens once and is read back.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use engine::effects::files::FileTracker;
use operator::effect::{
    Dispatch, Due, Effector as _, JOURNAL, Order, read_journal, verify_effects,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::Value;

use super::server::{Network, Server};
use super::{RECORDS, file_plan, issue, plan, records, report, run_arguments, text, write_issues};
use crate::cli::Place;

const KILLS: u32 = 100;
/// Most lines of the journal that a process may write before it is killed.
const LINES_MAX: usize = 8;

/// A place with a plan and a tracker, in which one run is killed again and again.
struct World<'a> {
    place: &'a Place,
    plan: String,
    input: String,
}

impl World<'_> {
    /// Starts the run, or what takes it up after a crash: both must do.
    fn start(&self, recover: bool) -> Child {
        let arguments = match recover {
            true => vec!["effects", "out", "--recover"],
            false => run_arguments(&self.plan, &self.input, "out", &["tell", "mark"]),
        };
        self.place
            .command(&arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }

    fn journal_lines(&self) -> usize {
        let bytes = std::fs::read(self.place.path().join("out").join(JOURNAL));
        let bytes = bytes.unwrap_or_default();
        bytes.iter().filter(|byte| **byte == b'\n').count()
    }

    /// Runs one process and kills it; its exit code where it ended before.
    fn kill_one(&self, chance: &mut StdRng) -> Option<i32> {
        let before = self.journal_lines();
        let mut child = self.start(before > 0 && chance.random_bool(0.5));
        let lines = before + chance.random_range(0..=LINES_MAX);
        let more = Duration::from_micros(chance.random_range(0..4_000));
        while self.journal_lines() < lines {
            if let Some(status) = child.try_wait().unwrap() {
                return Some(status.code().unwrap());
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        std::thread::sleep(more);
        child.kill().unwrap();
        child.wait().unwrap().code()
    }

    /// Lets it finish, starting it as often as a bad network makes necessary.
    fn finish(&self) {
        for _ in 0..20 {
            match self.start(false).wait().unwrap().code() {
                Some(0) => return,
                Some(3) => {}
                other => panic!("{other:?}"),
            }
        }
        panic!("it does not come to an end");
    }

    /// Whether the journal holds an effect that may have been sent and was not read back.
    fn cut_midway(&self) -> bool {
        let (_, recovered, _) = read_journal(&self.place.path().join("out")).unwrap();
        let mut standings = recovered.standings.values();
        standings.any(|standing| standing.due(true) == Due::ReadBack)
    }
}

/// Kills runs until so many kills hit; a world that came to its end is checked, and a new one begins.
fn drill(seed: u64, mut new_world: impl FnMut(&mut dyn FnMut(&World<'_>, &dyn Fn(&Path)), u64)) {
    // Seeded, so that a failure can be looked for again; the machine adds chance of its own.
    let mut chance = StdRng::seed_from_u64(seed);
    let (mut kills, mut midway, mut worlds) = (0, 0, 0);
    while kills < KILLS {
        worlds += 1;
        assert!(worlds < 40, "runs end before they can be killed");
        new_world(
            &mut |world, check| {
                while kills < KILLS {
                    match world.kill_one(&mut chance) {
                        None => {
                            kills += 1;
                            midway += u32::from(world.cut_midway());
                        }
                        Some(0) => break,
                        // Recovering refuses a run directory that was cut off before it was whole,
                        // or in the middle of being written again; a bad network leaves effects.
                        Some(1 | 3 | 4) => {}
                        Some(other) => panic!("exit code {other}"),
                    }
                }
                world.finish();
                check(world.place.path());
            },
            worlds,
        );
    }
    assert!(
        midway >= KILLS / 10,
        "only {midway} of {kills} kills hit an effect on its way"
    );
}

/// Checks the run's own account: everything done, every receipt in its place.
fn check_run(place: &Place, out: &str) -> BTreeSet<String> {
    let run = place.path().join(out);
    let check = verify_effects(&run).unwrap();
    assert!(check.holds(), "{:?}", check.findings);
    assert_eq!(check.receipts, u64::from(2 * RECORDS));
    let report = report(&run);
    let mut keys = BTreeSet::new();
    for section in &report.effects {
        assert_eq!(section.counts.done, u64::from(RECORDS));
        assert_eq!(section.counts.due, u64::from(RECORDS));
        keys.extend(
            section
                .outcomes
                .iter()
                .map(|outcome| outcome.key.unwrap().to_string()),
        );
    }
    assert_eq!(keys.len() as u32, 2 * RECORDS);
    let read_back = place.engine(&["effects", out, "--read-back"]);
    assert_eq!(read_back.code, 0, "{}", read_back.stdout);
    assert!(
        read_back.stdout.contains("read back        100 effects"),
        "{}",
        read_back.stdout
    );
    keys
}

/// Checks an issue as the tracker has it: one comment and one label more, two versions later.
fn check_issue(issue: &Value, id: u32, keys: &mut Vec<String>) {
    assert_eq!(issue["version"], 5, "{issue}");
    assert_eq!(issue["labels"], serde_json::json!(["red"]));
    let comments = issue["comments"].as_array().unwrap();
    assert_eq!(comments.len(), 2, "{issue}");
    assert_eq!(comments[0]["text"], "by hand");
    assert_eq!(
        comments[1]["text"],
        format!("Record {id} is red: {}", text(id))
    );
    for applied in issue["applied"].as_array().unwrap() {
        keys.push(applied["key"].as_str().unwrap().to_owned());
    }
}

/// A list of keys, each once, and all that are expected.
fn each_once(keys: &[String], expected: &BTreeSet<String>) {
    let distinct: BTreeSet<String> = keys.iter().cloned().collect();
    assert_eq!(distinct.len(), keys.len(), "something was done twice");
    assert_eq!(distinct, *expected);
}

#[test]
fn killed_at_any_moment_every_effect_on_files_happens_once() {
    drill(7, |each, _| {
        let place = Place::new();
        let issues = write_issues(&place, RECORDS);
        place.write("none.jsonl", "");
        let world = World {
            place: &place,
            plan: place.write("plan.toml", file_plan()),
            input: place.write("in.jsonl", records(RECORDS)),
        };
        each(&world, &|_| {
            let expected = check_run(&place, "out");
            let read = || {
                let mut keys = Vec::new();
                for id in 0..RECORDS {
                    check_issue(&issue(&issues, id), id, &mut keys);
                }
                each_once(&keys, &expected);
            };
            read();
            // Sent once more, by hand and by a second run that knows nothing of the first.
            resend(&issues, &place.path().join("out"));
            let again = run_arguments(&world.plan, &world.input, "again", &["tell", "mark"]);
            assert_eq!(place.engine(&again).code, 0);
            assert_eq!(check_run(&place, "again"), expected);
            read();
        });
    });
}

/// Sends every effect of a journal again under its key, and another content under the same key.
fn resend(issues: &Path, run: &Path) {
    let tracker = FileTracker::open(issues).unwrap();
    let (_, recovered, _) = read_journal(run).unwrap();
    for (key, standing) in &recovered.standings {
        let order = |request| Order {
            request,
            key,
            version: "5",
            fence: u64::MAX,
        };
        assert_eq!(
            tracker.dispatch(order(&standing.request)),
            Dispatch::Accepted
        );
        let mut other = standing.request.clone();
        other.text = Some("something else".to_owned());
        assert!(matches!(
            tracker.dispatch(order(&other)),
            Dispatch::KeyTaken(_)
        ));
    }
}

#[test]
fn killed_at_any_moment_on_a_bad_network_every_effect_over_http_happens_once() {
    drill(11, |each, number| {
        let server = Server::start(Network::Bad, number);
        let place = Place::new();
        place.write("none.jsonl", "");
        let address = server.address();
        let target = format!(
            "kind = \"http_tracker\"\nwhere = \"http://{address}/api\"\nhosts = [\"{address}\"]"
        );
        let world = World {
            place: &place,
            plan: place.write("plan.toml", plan(&target)),
            input: place.write("in.jsonl", records(RECORDS)),
        };
        each(&world, &|_| {
            let expected = check_run(&place, "out");
            let read = || {
                let mut keys = Vec::new();
                for id in 0..RECORDS {
                    check_issue(&server.issue(id), id, &mut keys);
                }
                each_once(&keys, &expected);
                each_once(&server.state().log, &expected);
            };
            read();
            // Everything once more, by hand, as a proxy that repeats itself would send it.
            let (_, recovered, _) = read_journal(&place.path().join("out")).unwrap();
            server.state().calm();
            for (key, standing) in &recovered.standings {
                let request = &standing.request;
                let headers = format!("Idempotency-Key: {key}\r\nIf-Match: \"5\"\r\n");
                let path = format!("/api/issues/{}/effects", request.resource);
                let send = |text: Option<&str>| {
                    let body = serde_json::json!({
                        "action": request.action, "set": request.set, "text": text,
                    });
                    server.say("POST", &path, &headers, &body.to_string()).0
                };
                assert_eq!(send(request.text.as_deref()), 200);
                assert_eq!(send(Some("something else")), 409);
            }
            let again = run_arguments(&world.plan, &world.input, "again", &["tell", "mark"]);
            assert_eq!(place.engine(&again).code, 0);
            assert_eq!(check_run(&place, "again"), expected);
            read();
        });
    });
}

#[test]
fn two_runs_at_the_same_time_do_every_effect_once() {
    let place = Place::new();
    let issues = write_issues(&place, RECORDS);
    place.write("none.jsonl", "");
    let plan = place.write("plan.toml", file_plan());
    let input = place.write("in.jsonl", records(RECORDS));
    let outs = ["one", "two", "three"];
    let children: Vec<Child> = outs
        .iter()
        .map(|out| {
            let arguments = run_arguments(&plan, &input, out, &["tell", "mark"]);
            let mut command = place.command(&arguments);
            command.stdout(Stdio::null()).stderr(Stdio::null());
            command.spawn().unwrap()
        })
        .collect();
    for mut child in children {
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }
    let mut keys = Vec::new();
    for id in 0..RECORDS {
        check_issue(&issue(&issues, id), id, &mut keys);
    }
    for out in outs {
        each_once(&keys, &check_run(&place, out));
    }
}
