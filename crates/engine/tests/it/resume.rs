//! Runs that are stopped and go on, the larger model beside the model, and heads that a plan trains itself.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;

use crate::cli::{PLAN, Place};
use crate::store::{write_deep_model, write_model};

/// Records of different texts.
fn records(count: usize) -> String {
    let line = |id| format!("{{\"id\":\"{id}\",\"text\":\"the paint of can {id} is red\"}}\n");
    (0..count).map(line).collect()
}

struct Ground {
    place: Place,
    plan: String,
    input: String,
    model: String,
}

impl Ground {
    fn new(plan: &str, count: usize) -> Self {
        let place = Place::new();
        let model = place.path().join("tiny.gguf");
        write_model(&model);
        let (plan, input) = (
            place.write("plan.toml", plan),
            place.write("in.jsonl", records(count)),
        );
        Self {
            plan,
            input,
            model: model.to_string_lossy().into_owned(),
            place,
        }
    }

    fn arguments<'a>(&'a self, out: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        let mut arguments = vec!["run", &*self.plan, "--input", &*self.input];
        arguments.extend(["--model", &*self.model, "--out", out]);
        arguments.extend(more);
        arguments
    }

    fn answer(&self, out: &str) -> Vec<u8> {
        fs::read(self.place.path().join(out).join("answer.json")).unwrap()
    }
}

#[test]
fn a_run_that_was_limited_goes_on_and_ends_as_if_it_had_not_been() {
    let ground = Ground::new(PLAN, 30);
    let begun = ground
        .place
        .engine(&ground.arguments("out", &["--limit", "7"]));
    assert_eq!(begun.code, 3, "{}", begun.stderr);
    let resumed = ground.place.engine(&ground.arguments("out", &["--resume"]));
    assert_eq!(resumed.code, 0, "{}", resumed.stderr);
    let asked = "asking the model about 23 records (7 remembered)";
    assert!(resumed.stderr.contains(asked), "{}", resumed.stderr);
    let whole = ground
        .place
        .engine(&ground.arguments("whole", &["--store", "other.redb"]));
    assert_eq!(whole.code, 0, "{}", whole.stderr);
    assert_eq!(ground.answer("out"), ground.answer("whole"));
}

#[test]
fn a_run_is_resumed_only_as_it_was_begun() {
    let ground = Ground::new(PLAN, 4);
    let resume = |out: &str, more: &[&str], parts: &[&str]| {
        let mut arguments = ground.arguments(out, more);
        arguments.push("--resume");
        let ended = ground.place.engine(&arguments);
        assert_ne!(ended.code, 0);
        for part in parts {
            assert!(
                ended.stderr.contains(part),
                "no {part:?} in: {}",
                ended.stderr
            );
        }
    };
    resume("none", &[], &["--resume", "none holds no run"]);
    let begun = ground
        .place
        .engine(&ground.arguments("out", &["--limit", "2"]));
    assert_eq!(begun.code, 3, "{}", begun.stderr);
    resume(
        "out",
        &["--numerics", "f32"],
        &[
            "was begun otherwise",
            "--numerics was \"auto\", now it is \"f32\"",
        ],
    );
    resume(
        "out",
        &["--no-store"],
        &["cannot be used with", "--no-store"],
    );
    fs::write(&ground.input, records(5)).unwrap();
    resume("out", &[], &["in.jsonl had other bytes"]);
    fs::write(&ground.input, records(4)).unwrap();
    fs::write(&ground.plan, PLAN.replace("Is it red?", "Is it blue?")).unwrap();
    resume("out", &[], &["plan.toml meant something else"]);
    // Nothing of the run was touched by all this.
    fs::write(&ground.plan, PLAN).unwrap();
    let resumed = ground.place.engine(&ground.arguments("out", &["--resume"]));
    assert_eq!(resumed.code, 0, "{}", resumed.stderr);
}

#[test]
fn an_interrupt_ends_a_run_cleanly_says_what_is_left_and_how_to_go_on() {
    let mut count = 2_000;
    let (ground, stderr) = loop {
        let ground = Ground::new(PLAN, count);
        let mut command = ground.place.command(&ground.arguments("out", &[]));
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut told = BufReader::new(child.stderr.take().unwrap());
        let mut stderr = String::new();
        while !stderr.contains("asking the model") {
            assert_ne!(told.read_line(&mut stderr).unwrap(), 0, "{stderr}");
        }
        let interrupt = std::process::Command::new("kill")
            .args(["-INT", &child.id().to_string()])
            .status();
        assert!(interrupt.unwrap().success());
        told.read_to_string(&mut stderr).unwrap();
        match child.wait().unwrap().code() {
            Some(3) => break (ground, stderr),
            // It was done before the interrupt came.
            Some(0) if count < 100_000 => count *= 4,
            code => panic!("{code:?}: {stderr}"),
        }
    };
    assert!(stderr.contains("stopping: "), "{stderr}");
    assert!(
        stderr.contains(&format!(" of {count} records have an answer, ")),
        "{stderr}"
    );
    assert!(stderr.contains("--out out --resume"), "{stderr}");
    let answer: serde_json::Value = serde_json::from_slice(&ground.answer("out")).unwrap();
    assert_eq!(answer["complete"], false);
    let coverage = &answer["coverage"];
    let of = |status: &str| coverage[status].as_u64().unwrap();
    assert!(of("not_run") + of("cancelled") > 0, "{coverage}");
    let resumed = ground
        .place
        .engine(&ground.arguments("out", &["--resume", "--quiet"]));
    assert_eq!(resumed.code, 0, "{}", resumed.stderr);
    assert_eq!(resumed.stderr, "", "quiet");
    let whole = ground
        .place
        .engine(&ground.arguments("whole", &["--no-store"]));
    assert_eq!(whole.code, 0, "{}", whole.stderr);
    assert_eq!(ground.answer("out"), ground.answer("whole"));
}

#[test]
fn a_stage_that_asks_the_larger_model_needs_one_and_says_who_answered() {
    let stages = "[[stage]]\nname = \"look\"\nop = \"map\"\n[[pass]]\nname = \"again\"\nunits_max = 100\n\
                  [[stage]]\nname = \"closer\"\nop = \"map\"\npass = \"again\"\nmodel = \"larger\"\n\
                  when = { margin_below = { red = 1.0 } }\n";
    let ground = Ground::new(&format!("{PLAN}{stages}"), 6);
    ground.place.refuses(
        &ground.arguments("out", &[]),
        &["\"closer\" asks the larger model", "--larger NAME"],
    );
    let larger = ground.place.path().join("large.gguf");
    write_deep_model(&larger, 3);
    let larger = larger.to_string_lossy().into_owned();
    let ended = ground
        .place
        .engine(&ground.arguments("out", &["--larger", &larger]));
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let facts = fs::read_to_string(ground.place.path().join("out/facts.jsonl")).unwrap();
    assert_eq!(facts.lines().count(), 6);
    for line in facts.lines() {
        let fact: serde_json::Value = serde_json::from_str(line).unwrap();
        let steps = fact["path"].as_array().unwrap();
        let who: Vec<&str> = steps.iter().filter_map(|s| s["backend"].as_str()).collect();
        assert_eq!(who, ["tiny", "large"], "{line}");
    }
    let unused = Ground::new(PLAN, 2);
    let ended = unused
        .place
        .engine(&unused.arguments("out", &["--larger", &larger]));
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(
        ended
            .stderr
            .contains("nothing in the plan asks the larger model")
    );
}

#[test]
fn a_plan_that_names_examples_trains_its_head_once_and_answers_as_with_the_calibrated_one() {
    let place = Place::new();
    let model = place.path().join("tiny.gguf");
    write_deep_model(&model, 3);
    let model = model.to_string_lossy().into_owned();
    let line = |id: usize| {
        let (word, red) = match id % 2 {
            0 => ("crimson", "yes"),
            _ => ("moss", "no"),
        };
        format!(
            "{{\"id\":\"{id}\",\"text\":\"the paint is {word}, can {id}\",\"red\":\"{red}\"}}\n"
        )
    };
    let input = place.write("in.jsonl", (0..60).map(line).collect::<String>());
    place.write("labels.jsonl", (0..40).map(line).collect::<String>());
    let plain = place.write("plain.toml", PLAN);
    let examples = PLAN.replace(
        "labels = [\"yes\", \"no\"]\n",
        "labels = [\"yes\", \"no\"]\nexamples = { path = \"labels.jsonl\" }\n",
    );
    let plan = place.write("plan.toml", &examples);
    let run = |plan: &str, out: &str, more: &[&str]| {
        let mut arguments = vec![
            "run", plan, "--input", &input, "--model", &model, "--out", out,
        ];
        arguments.extend(more);
        let ended = place.engine(&arguments);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        ended.stderr
    };
    let first = run(&plan, "first", &[]);
    assert!(
        first.contains("red: training a head on 40 labelled records"),
        "{first}"
    );
    assert!(first.contains("red: trained in "), "{first}");
    let second = run(&plan, "second", &[]);
    assert!(!second.contains("training"), "{second}");
    assert!(
        second.contains("nothing to ask: 60 answers are remembered"),
        "{second}"
    );
    let calibrated = place.engine(&[
        "calibrate",
        &plain,
        "--labels",
        "labels.jsonl",
        "--input",
        &input,
        "--model",
        &model,
        "--out",
        "red.head",
    ]);
    assert_eq!(calibrated.code, 0, "{}", calibrated.stderr);
    run(&plain, "named", &["--head", "red.head", "--no-store"]);
    let facts = |out: &str| {
        let text = fs::read_to_string(place.path().join(out).join("facts.jsonl")).unwrap();
        let values = text.lines().map(|line| {
            let fact: serde_json::Value = serde_json::from_str(line).unwrap();
            fact["values"].clone()
        });
        values.collect::<Vec<_>>()
    };
    assert_eq!(facts("first"), facts("named"));
    let eval = place.engine(&[
        "eval",
        "first",
        "--labels",
        &input,
        "--id",
        "id",
        "--field",
        "red",
        "--except",
        "labels.jsonl",
    ]);
    assert!(
        eval.stdout
            .contains("red: 20 labelled, 20 decided, 20 right"),
        "{}",
        eval.stdout
    );
    let both = place.write(
        "both.toml",
        examples.replace("examples =", "head = \"x\"\nexamples ="),
    );
    place.refuses(
        &[
            "run", &both, "--input", &input, "--model", &model, "--out", "out",
        ],
        &[
            "both.toml",
            "has a head and examples for one; remove either",
        ],
    );
}
