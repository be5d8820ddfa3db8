//! `engine fold --verify` and `engine verify`: exit codes, and that what was changed is named.

use serde_json::{Value, json};

use crate::cli::{Ended, PLAN, Place};

fn read(place: &Place, name: &str) -> Value {
    serde_json::from_slice(&std::fs::read(place.path().join(name)).unwrap()).unwrap()
}

fn says(ended: &Ended, code: i32, parts: &[&str]) {
    assert_eq!(ended.code, code, "{}{}", ended.stdout, ended.stderr);
    for part in parts {
        assert!(
            ended.stdout.contains(part),
            "no {part:?} in: {}",
            ended.stdout
        );
    }
}

#[test]
fn an_artifact_passes_and_a_changed_one_is_told_by_its_node() {
    let place = Place::new();
    let made = place.engine(&["fold", "--selfcheck", "--out", "fold.json"]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    let ended = place.engine(&["fold", "--verify", "fold.json"]);
    says(
        &ended,
        0,
        &["1000 facts, 144 nodes", "1000 records", "all of it holds"],
    );

    let mut artifact = read(&place, "fold.json");
    let node = &mut artifact["nodes"][40];
    let range = &node["range"];
    let name = format!(
        "node {}/{}",
        range["start"].as_str().unwrap(),
        range["height"]
    );
    node["coverage"]["units"] = json!(7);
    let changed = place.write("changed.json", artifact.to_string());
    let ended = place.engine(&["fold", "--verify", &changed]);
    says(
        &ended,
        4,
        &[&name, "counts 7 units, its leaves are 8", "1 finding"],
    );

    artifact["facts"] = json!([]);
    let emptied = place.write("emptied.json", artifact.to_string());
    let ended = place.engine(&["fold", "--verify", &emptied]);
    says(&ended, 4, &["and has no fact", "... and ", "Not verified"]);

    let whole = std::fs::read(place.path().join("fold.json")).unwrap();
    let cut = place.write("cut.json", &whole[..whole.len() / 2]);
    for (arguments, parts) in [
        (["fold", "--verify", &cut], ["cut.json", "EOF"]),
        (
            ["fold", "--verify", "gone.json"],
            ["gone.json", "cannot read"],
        ),
    ] {
        place.refuses(&arguments, &parts);
        assert_eq!(place.engine(&arguments).code, 1);
    }
    for usage in [
        &["fold"][..],
        &["fold", "--selfcheck", "--verify", "fold.json"],
        &["fold", "--verify", "fold.json", "--out", "other.json"],
    ] {
        assert_eq!(place.engine(usage).code, 2, "{usage:?}");
    }
}

/// A finished run over three records, one of which cannot be read.
fn run(place: &Place) -> String {
    let plan = place.write("plan.toml", PLAN);
    let input = place.write(
        "in.jsonl",
        "{\"id\":\"a\",\"text\":\"crimson\"}\n{\"id\":\"b\",\"text\":\"blue\"}\nnot json\n",
    );
    let answers = place.write(
        "answers.jsonl",
        "{\"unit_id\":\"a\",\"answers\":{\"red\":{\"yes\":900000,\"no\":100000}}}\n\
         {\"unit_id\":\"b\",\"answers\":{\"red\":{\"yes\":100000,\"no\":900000}}}\n",
    );
    let ended = place.engine(&[
        "run", &plan, "--input", &input, "--replay", &answers, "--out", "out",
    ]);
    assert_eq!(ended.code, 3, "{}", ended.stderr);
    input
}

#[test]
fn a_run_is_verified_against_its_records_or_says_that_they_are_gone() {
    let place = Place::new();
    let input = run(&place);
    let ended = place.engine(&["verify", "out"]);
    says(
        &ended,
        0,
        &["3 facts", "3 records, 2 spans", "all of it holds"],
    );

    let moved = place.path().join("moved.jsonl");
    std::fs::rename(&input, &moved).unwrap();
    let ended = place.engine(&["verify", "out"]);
    says(
        &ended,
        5,
        &["NOT CHECKED", "in.jsonl", "--input", "in part"],
    );
    let ended = place.engine(&["verify", "out", "--input", "moved.jsonl"]);
    says(&ended, 0, &["all of it holds"]);
    place.write(
        "other.jsonl",
        std::fs::read_to_string(&moved)
            .unwrap()
            .replace("blue", "teal"),
    );
    let ended = place.engine(&["verify", "out", "--input", "other.jsonl"]);
    says(
        &ended,
        4,
        &["other.jsonl: hashes to", "unit b: its source_hash"],
    );
    let ended = place.engine(&["verify", "out", "--input", "gone.jsonl"]);
    assert_eq!(ended.code, 1);
    assert!(ended.stderr.contains("gone.jsonl"), "{}", ended.stderr);
}

#[test]
fn a_changed_file_of_a_run_is_named_and_so_is_what_changed_in_it() {
    let place = Place::new();
    run(&place);
    let mut answer = read(&place, "out/answer.json");
    answer["claims"][0]["value"] = json!(2);
    place.write("out/answer.json", answer.to_string());
    let ended = place.engine(&["verify", "out"]);
    says(
        &ended,
        4,
        &[
            "claim reds: its value is 2, 1 is right",
            "answer.json: hashes to",
            "answer: result_hash",
        ],
    );
    let cut = std::fs::read(place.path().join("out/answer.json")).unwrap();
    place.write("out/answer.json", &cut[..cut.len() / 2]);
    let ended = place.engine(&["verify", "out"]);
    assert_eq!(ended.code, 1, "{}", ended.stdout);
    assert!(ended.stderr.contains("answer.json"), "{}", ended.stderr);
    let ended = place.engine(&["verify", "nowhere"]);
    assert_eq!(ended.code, 1, "{}", ended.stdout);
    assert!(ended.stderr.contains("nowhere"), "{}", ended.stderr);
}
