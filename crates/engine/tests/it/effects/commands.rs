//! The commands: what is shown, what is refused, and what the report's check finds.

use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use engine::effects::http::HttpTracker;
use operator::effect::{Dispatch, EffectRequest, EffectStatus, Effector as _, Order};
use operator::id::{ContentHash, UnitId};
use operator::plan::effect::Action;
use serde_json::Value;

use super::server::{Network, Server};
use super::{file_plan, issue, plan, records, report, run_arguments, write_issues};
use crate::cli::Place;

/// Three issues in files and a plan over them.
fn three() -> (Place, String, String, std::path::PathBuf) {
    let place = Place::new();
    let issues = write_issues(&place, 3);
    place.write("none.jsonl", "");
    let plan = place.write("plan.toml", file_plan());
    let input = place.write("in.jsonl", records(3));
    (place, plan, input, issues)
}

fn untouched(issues: &Path) {
    for id in 0..3 {
        assert_eq!(issue(issues, id)["version"], 3);
    }
}

#[test]
fn effects_are_shown_and_not_done_unless_the_command_line_allows_them() {
    let (place, plan, input, issues) = three();
    let shown = place.engine(&run_arguments(&plan, &input, "out", &[]));
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    assert!(
        shown.stdout.contains("effect tell: would comment 3 issues"),
        "{}",
        shown.stdout
    );
    assert!(
        shown.stdout.contains("[1] comment Record 1 is red"),
        "{}",
        shown.stdout
    );
    assert!(
        shown.stdout.contains("--allow-effect mark"),
        "{}",
        shown.stdout
    );
    untouched(&issues);
    assert!(!place.path().join("out/effects.jsonl").exists());
    let answer = std::fs::read(place.path().join("out/answer.json")).unwrap();

    // One is allowed: the other is still only shown.
    let one = place.engine(&run_arguments(&plan, &input, "out", &["mark"]));
    assert_eq!(one.code, 0, "{}", one.stderr);
    assert!(
        one.stdout.contains("effect tell: would comment 3"),
        "{}",
        one.stdout
    );
    assert!(
        one.stdout
            .contains("effect mark: 3 due, 3 done with a receipt, 0 refused"),
        "{}",
        one.stdout
    );
    for id in 0..3 {
        let issue = issue(&issues, id);
        assert_eq!(
            (&issue["labels"][0], &issue["version"]),
            (&"red".into(), &4.into())
        );
        assert_eq!(issue["comments"].as_array().unwrap().len(), 1);
    }
    // The answer is what it was, to the byte, and the run still verifies.
    assert_eq!(
        std::fs::read(place.path().join("out/answer.json")).unwrap(),
        answer
    );
    assert_eq!(place.engine(&["verify", "out"]).code, 0);
    // Later the other is allowed, and the first one stays accounted for.
    let both = place.engine(&run_arguments(&plan, &input, "out", &["tell"]));
    assert_eq!(both.code, 0, "{}", both.stderr);
    let report = report(&place.path().join("out"));
    let done: Vec<u64> = report
        .effects
        .iter()
        .map(|section| section.counts.done)
        .collect();
    assert_eq!(done, [3, 3]);
    assert_eq!(place.engine(&["effects", "out"]).code, 0);
}

#[test]
fn an_effect_that_the_plan_does_not_have_is_refused_before_anything_is_read() {
    let (place, plan, input, _) = three();
    let arguments = run_arguments(&plan, &input, "out", &["tel"]);
    place.refuses(&arguments, &["no effect \"tel\"", "tell, mark"]);
}

#[test]
fn no_effect_follows_from_an_incomplete_or_simulated_answer() {
    let (place, plan, _, issues) = three();
    let input = place.write(
        "blue.jsonl",
        records(2) + "{\"id\":2,\"text\":\"blue\",\"version\":3}\n",
    );
    let run = || place.engine(&run_arguments(&plan, &input, "out", &["tell"]));
    // The recording has no answer for the third record.
    let incomplete = run();
    assert_eq!(incomplete.code, 3, "{}", incomplete.stderr);
    assert!(
        incomplete.stderr.contains("no effect is done"),
        "{}",
        incomplete.stderr
    );
    untouched(&issues);
    let yes = "{\"unit_id\":\"2\",\"answers\":{\"red\":{\"yes\":900000,\"no\":100000}}}\n";
    place.write("none.jsonl", yes);
    let simulated = run();
    assert_eq!(simulated.code, 0, "{}", simulated.stderr);
    let statuses: Vec<EffectStatus> = report(&place.path().join("out")).effects[0]
        .outcomes
        .iter()
        .map(|outcome| outcome.status)
        .collect();
    assert_eq!(
        statuses,
        [
            EffectStatus::Done,
            EffectStatus::Done,
            EffectStatus::Refused
        ]
    );
    assert!(
        simulated.stdout.contains("from a recording"),
        "{}",
        simulated.stdout
    );
    assert_eq!(issue(&issues, 2)["version"], 3);
}

#[test]
fn no_effect_follows_from_a_run_that_does_not_verify() {
    let (place, plan, input, issues) = three();
    let broken = place.path().join("issues/1.json");
    std::fs::write(&broken, "no issue").unwrap();
    // The tracker cannot read one of them: begun, and left for later.
    let left = place.engine(&run_arguments(&plan, &input, "out", &["tell"]));
    assert_eq!(left.code, 3, "{}", left.stdout);
    assert!(left.stdout.contains("is no issue"), "{}", left.stdout);
    let issue_1 = serde_json::json!({ "version": 3, "comments": [] });
    std::fs::write(&broken, issue_1.to_string()).unwrap();
    let facts = place.path().join("out/facts.jsonl");
    let before = std::fs::read_to_string(&facts).unwrap();
    std::fs::write(
        &facts,
        before.replacen("\"label\":\"yes\"", "\"label\":\"no\"", 1),
    )
    .unwrap();
    let refused = place.engine(&["effects", "out", "--recover"]);
    assert_eq!(refused.code, 4, "{}", refused.stderr);
    assert!(
        refused.stderr.contains("does not verify"),
        "{}",
        refused.stderr
    );
    assert_eq!(issue(&issues, 1)["version"], 3);
    std::fs::write(&facts, before).unwrap();
    // Records that changed since are found out as well.
    let text = std::fs::read_to_string(&input).unwrap();
    std::fs::write(&input, text.replace("number 1", "number 7")).unwrap();
    assert_eq!(place.engine(&["effects", "out", "--recover"]).code, 4);
    std::fs::write(&input, text).unwrap();
    assert_eq!(place.engine(&["effects", "out", "--recover"]).code, 0);
    assert_eq!(issue(&issues, 1)["version"], 4);
}

#[test]
fn an_issue_that_somebody_changed_is_left_and_told() {
    let (place, plan, input, issues) = three();
    let mut changed = issue(&issues, 1);
    changed["version"] = 4.into();
    std::fs::write(issues.join("1.json"), changed.to_string()).unwrap();
    let run = place.engine(&run_arguments(&plan, &input, "out", &["tell", "mark"]));
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(
        run.stdout.contains("[1] conflict: 1 is at version 4"),
        "{}",
        run.stdout
    );
    assert_eq!(issue(&issues, 1), changed);
    assert_eq!(issue(&issues, 0)["version"], 5);
}

#[test]
fn a_report_or_receipt_that_was_changed_is_found() {
    let (place, plan, input, issues) = three();
    assert_eq!(
        place
            .engine(&run_arguments(&plan, &input, "out", &["tell"]))
            .code,
        0
    );
    let path = place.path().join("out/effects.json");
    let whole = std::fs::read_to_string(&path).unwrap();
    let finds = |from: &str, to: &str, what: &str| {
        assert!(whole.contains(from), "{from}");
        std::fs::write(&path, whole.replacen(from, to, 1)).unwrap();
        let found = place.engine(&["effects", "out"]);
        assert_eq!(found.code, 4, "{}", found.stdout);
        assert!(
            found.stdout.contains(what),
            "no {what:?} in {}",
            found.stdout
        );
    };
    finds("\"done\": 3", "\"done\": 4", "the counts are not those");
    finds(
        "\"applied_version\": \"4\"",
        "\"applied_version\": \"9\"",
        "another receipt than the journal",
    );
    finds(
        "\"unit_id\": \"1\"",
        "\"unit_id\": \"2\"",
        "effect tell of unit 2",
    );
    finds(
        "\"status\": \"done\"",
        "\"status\": \"refused\"",
        "receipt of something else",
    );
    finds(
        "\"journal_lines\": ",
        "\"journal_lines\": 1",
        "names lines that the journal does not have",
    );
    std::fs::write(&path, &whole).unwrap();
    assert_eq!(place.engine(&["effects", "out"]).code, 0);
    // What a person changed in the tracker afterwards only the tracker can tell.
    let mut changed = issue(&issues, 0);
    changed["comments"] = Value::Array(Vec::new());
    std::fs::write(issues.join("0.json"), changed.to_string()).unwrap();
    assert_eq!(place.engine(&["effects", "out"]).code, 0);
    let read = place.engine(&["effects", "out", "--read-back"]);
    assert_eq!(read.code, 4, "{}", read.stdout);
    assert!(
        read.stdout.contains("of unit 0: the effect's key stands"),
        "{}",
        read.stdout
    );
    // A journal without its report was cut off.
    std::fs::remove_file(&path).unwrap();
    let cut = place.engine(&["effects", "out"]);
    assert_eq!(cut.code, 4);
    assert!(cut.stdout.contains("recover it"), "{}", cut.stdout);
    assert_eq!(place.engine(&["effects", "out", "--recover"]).code, 0);
    assert_eq!(place.engine(&["effects", "out"]).code, 0);
}

/// A plan for a service that asks for a token.
fn over_http(place: &Place, server: &Server) -> String {
    let address = server.address();
    place.write(
        "plan.toml",
        plan(&format!(
            "kind = \"http_tracker\"\nwhere = \"http://{address}/api/\"\nhosts = [\"{address}\"]\n\
             token_env = \"TRACKER_TOKEN\""
        )),
    )
}

#[test]
fn a_token_comes_from_its_variable_and_stands_in_no_file() {
    let (place, _, input, _) = three();
    let server = Server::start(Network::Good, 1);
    let plan = over_http(&place, &server);
    let arguments = run_arguments(&plan, &input, "out", &["tell"]);
    let without = place.engine(&arguments);
    assert_eq!(without.code, 1);
    assert!(
        without
            .stderr
            .contains("set the environment variable TRACKER_TOKEN")
    );
    assert!(server.state().log.is_empty());
    let with = place
        .command(&arguments)
        .env("TRACKER_TOKEN", "s3cret")
        .output()
        .unwrap();
    assert!(
        with.status.success(),
        "{}",
        String::from_utf8_lossy(&with.stderr)
    );
    assert_eq!(server.state().log.len(), 3);
    let tokens = server.state().tokens.clone();
    assert!(!tokens.is_empty());
    assert!(
        tokens
            .iter()
            .all(|token| token.as_deref() == Some("Bearer s3cret"))
    );
    for entry in std::fs::read_dir(place.path().join("out")).unwrap() {
        let text = std::fs::read(entry.unwrap().path()).unwrap();
        assert!(!String::from_utf8_lossy(&text).contains("s3cret"));
    }
}

#[test]
fn every_answer_of_a_service_ends_in_its_own_status() {
    for (told, status, part) in [
        (vec![(409, "")], EffectStatus::Conflict, "409"),
        (vec![(403, "")], EffectStatus::Refused, "403"),
        // Elsewhere is not where the plan says.
        (
            vec![(307, "Location: /elsewhere\r\n")],
            EffectStatus::Refused,
            "307",
        ),
        (
            vec![(429, "Retry-After: 0\r\n"), (503, "")],
            EffectStatus::Done,
            "",
        ),
        (vec![(500, ""); 20], EffectStatus::Unknown, "500"),
        (
            vec![(429, "Retry-After: 0\r\n"); 20],
            EffectStatus::NotRun,
            "429",
        ),
        // It moved, says the service; nobody moved it, so the next try succeeds.
        (vec![(412, "")], EffectStatus::Done, ""),
    ] {
        let place = Place::new();
        place.write("none.jsonl", "");
        let input = place.write("in.jsonl", records(1));
        let server = Server::start(Network::Good, 1);
        server.state().answers = told.clone();
        let plan = over_http(&place, &server);
        let arguments = run_arguments(&plan, &input, "out", &["tell"]);
        let run = place
            .command(&arguments)
            .env("TRACKER_TOKEN", "t")
            .output()
            .unwrap();
        let settled = !matches!(status, EffectStatus::Unknown | EffectStatus::NotRun);
        assert_eq!(
            run.status.code(),
            Some(if settled { 0 } else { 3 }),
            "{told:?}"
        );
        let outcome = report(&place.path().join("out")).effects[0].outcomes[0].clone();
        assert_eq!(outcome.status, status, "{told:?}: {:?}", outcome.reason);
        assert!(
            outcome.reason.unwrap_or_default().contains(part),
            "{told:?}"
        );
        assert_eq!(outcome.receipt.is_some(), status == EffectStatus::Done);
    }
}

#[test]
fn an_issue_that_moves_between_read_and_write_is_not_written_to() {
    let place = Place::new();
    place.write("none.jsonl", "");
    let input = place.write("in.jsonl", records(2));
    let server = Server::start(Network::Good, 1);
    server.state().touch(1);
    let plan = over_http(&place, &server);
    let arguments = run_arguments(&plan, &input, "out", &["tell"]);
    let run = place
        .command(&arguments)
        .env("TRACKER_TOKEN", "t")
        .output()
        .unwrap();
    assert_eq!(run.status.code(), Some(0));
    assert_eq!(server.state().log.len(), 1);
    let outcomes = report(&place.path().join("out")).effects[0]
        .outcomes
        .clone();
    assert_eq!(outcomes[1].status, EffectStatus::Conflict);
    assert_eq!(server.issue(1)["comments"].as_array().unwrap().len(), 1);
}

#[test]
fn a_service_that_stays_silent_leaves_a_write_unknown_and_one_that_is_away_does_not() {
    let request = EffectRequest {
        effect: "tell".to_owned(),
        tracker: "http_tracker:there".to_owned(),
        resource: "1".to_owned(),
        action: Action::Comment,
        set: None,
        text: Some("hello".to_owned()),
        expects: None,
        unit_id: UnitId::new("1"),
        source_hash: ContentHash::of_bytes(b"record"),
        plan_hash: ContentHash::of_bytes(b"plan"),
    };
    let key = request.key();
    let order = Order {
        request: &request,
        key: &key,
        version: "1",
        fence: 1,
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    // It takes connections, for the system does, and never says a word.
    let silent = HttpTracker::new(&url, None, Duration::from_millis(50));
    assert!(matches!(silent.dispatch(order), Dispatch::Unknown { .. }));
    assert!(silent.read_back(&request, &key).is_err());
    drop(listener);
    let away = HttpTracker::new(&url, None, Duration::from_secs(5));
    assert!(matches!(away.dispatch(order), Dispatch::Later { .. }));
}
