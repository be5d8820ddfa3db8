//! `engine explain` and `engine diff` on runs of a tiny model.

use serde_json::Value;

use crate::cli::{Ended, PLAN, Place};
use crate::store::write_model;

const RECORDS: &str = "{\"id\":7,\"text\":\"crimson\"}\n{\"id\":8,\"text\":\"blue\"}\n\
                       {\"id\":9,\"text\":\"scarlet\"}\nnot json\n{\"id\":40,\"text\":\"grey\"}\n";

/// Runs the tiny model over records into a directory.
fn run(place: &Place, records: &str, out: &str, more: &[&str]) {
    let model = place.path().join("tiny.gguf");
    if !model.exists() {
        write_model(&model);
    }
    let plan = place.write("plan.toml", PLAN);
    let input = place.write("in.jsonl", records);
    let model = model.to_string_lossy();
    let mut arguments = vec!["run", &plan, "--input", &input, "--model", &model];
    arguments.extend(["--out", out, "--no-store"]);
    arguments.extend(more);
    let ended = place.engine(&arguments);
    assert!(ended.code == 0 || ended.code == 3, "{}", ended.stderr);
}

/// Expects a page with every given part, and no line past column 100.
fn shows(ended: &Ended, parts: &[&str]) {
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    for part in parts {
        assert!(
            ended.stdout.contains(part),
            "no {part:?} in: {}",
            ended.stdout
        );
    }
    for line in ended.stdout.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
}

fn json(ended: &Ended) -> Value {
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    serde_json::from_str(&ended.stdout).unwrap()
}

#[test]
fn a_unit_a_node_and_a_claim_are_explained() {
    let place = Place::new();
    run(&place, RECORDS, "out", &[]);
    let explain = |what: &str, more: &[&str]| {
        let mut arguments = vec!["explain", "out", what];
        arguments.extend(more);
        place.engine(&arguments)
    };
    shows(
        &explain("7", &[]),
        &[
            "unit 7: decided at map\n",
            "why          tiny answered, and every field was sure enough to count",
            "record       position 0 of",
            "answered by  tiny in this run: ",
            "  red        ",
            "evidence     text, bytes 0..7: \"crimson\"",
            "path to the answer: the leaf, then ",
            "(root)",
            "claims\n  reds       ",
        ],
    );
    shows(
        &explain("#3", &[]),
        &[
            "unit #3: errored at partition",
            "its record cannot be read: malformed:",
            "nobody: it was not asked",
            "not counted: it is errored",
        ],
    );
    let unit = json(&explain("7", &["--json"]));
    assert_eq!(
        (&unit["kind"], &unit["status"]),
        (&"unit".into(), &"decided".into())
    );
    let step = &unit["path"][0];
    let (name, hash) = (
        step["node"].as_str().unwrap(),
        step["provenance_hash"].as_str().unwrap(),
    );
    let by_name = explain(name, &[]);
    shows(
        &by_name,
        &[
            &format!("node {name}: level "),
            "  7          unit, decided; decision ",
            "states, as claims over the units below\n  reds       count, ",
        ],
    );
    assert_eq!(explain(&hash[..12], &[]).stdout, by_name.stdout);
    shows(
        &explain("reds", &[]),
        &[
            "claim reds: count\n",
            "selects      red = yes",
            "left out     ",
            "errored (1)",
            "carried by ",
        ],
    );
    for (what, parts) in [
        ("77", ["out: \"77\" is no unit", "close to it 40, 9, 8"]),
        ("redds", ["its claims are reds", "did you mean \"reds\"?"]),
    ] {
        let ended = explain(what, &[]);
        assert_eq!(ended.code, 1);
        assert!(ended.stdout.is_empty(), "{}", ended.stdout);
        for part in parts {
            assert!(ended.stderr.contains(part), "{}", ended.stderr);
        }
    }
    assert_eq!(explain("7", &["--kind", "claim"]).code, 1);
}

#[test]
fn a_redacted_run_hides_its_quotes() {
    let place = Place::new();
    run(&place, RECORDS, "out", &["--redact"]);
    let ended = place.engine(&["explain", "out", "7"]);
    shows(
        &ended,
        &["evidence     text, bytes 0..7: hidden (redacted), hash "],
    );
    assert!(!ended.stdout.contains("crimson"), "{}", ended.stdout);
}

#[test]
fn runs_are_compared_and_the_exit_code_tells_when_asked() {
    let place = Place::new();
    run(&place, RECORDS, "a", &[]);
    run(&place, RECORDS, "b", &[]);
    let diff = |after: &str, more: &[&str]| {
        let mut arguments = vec!["diff", "a", after];
        arguments.extend(more);
        place.engine(&arguments)
    };
    let same = diff("b", &["--exit-code"]);
    shows(
        &same,
        &[
            "same result ",
            "units: 5 same, 0 changed, 0 added, 0 removed",
            "claims: 1 same, 0 changed",
        ],
    );
    assert!(same.stdout.starts_with("same result "), "{}", same.stdout);
    let edited = RECORDS.replace(
        "{\"id\":40,\"text\":\"grey\"}",
        "{\"id\":41,\"text\":\"grey\"}",
    );
    let edited = edited.replace("\"scarlet\"", "\"scarlet\",\"seen\":true");
    run(&place, &edited, "c", &[]);
    let page = diff("c", &[]);
    shows(
        &page,
        &[
            "plan         same: ",
            "source       changed: ",
            "backend      same: ",
            "units: 3 same, 1 changed, 1 added, 1 removed",
            "1 unit: same decision, other provenance; by its bytes\n    9        bytes ",
            "nodes: ",
        ],
    );
    let result = json(&diff("c", &["--json"]));
    assert_eq!(result["units"].as_array().unwrap().len(), 3);
    assert_eq!(result["tree"]["trees"], "compared");
    run(&place, RECORDS, "d", &["--limit", "2"]);
    let differ = diff("d", &["--exit-code"]);
    assert_eq!(differ.code, 4, "{}", differ.stderr);
    assert!(
        differ.stdout.starts_with("results differ: "),
        "{}",
        differ.stdout
    );
    assert!(
        differ.stdout.contains("by the course of the run"),
        "{}",
        differ.stdout
    );
    assert_eq!(diff("d", &[]).code, 0);
}

#[test]
fn a_directory_that_is_no_run_is_named() {
    let place = Place::new();
    std::fs::create_dir(place.path().join("empty")).unwrap();
    for (arguments, part) in [
        (["explain", "empty", "7"], "empty: holds no manifest.json"),
        (["explain", "gone", "7"], "gone: is no directory"),
        (["diff", "empty", "gone"], "empty: holds no manifest.json"),
    ] {
        let ended = place.engine(&arguments);
        assert_eq!(ended.code, 1);
        assert!(ended.stderr.contains(part), "{}", ended.stderr);
        assert!(ended.stdout.is_empty(), "{}", ended.stdout);
    }
}
