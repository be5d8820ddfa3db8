//! Canaries under a real model: packed among records, and what the command says when they fail.

use serde_json::Value;

use crate::cli::{Ended, PLAN, Place};
use crate::store::write_model;

const WORDS: [&str; 24] = [
    "crimson",
    "blue",
    "scarlet",
    "green",
    "ruby",
    "grey",
    "vermilion",
    "white",
    "rust",
    "black",
    "cherry",
    "teal",
    "brick",
    "navy",
    "rose",
    "olive",
    "coral",
    "amber",
    "wine",
    "ivory",
    "copper",
    "mint",
    "salmon",
    "violet",
];

struct Bench {
    place: Place,
    model: String,
    input: String,
    plan: String,
}

impl Bench {
    fn new() -> Self {
        let place = Place::new();
        let model = place.path().join("tiny.gguf");
        write_model(&model);
        let rows = WORDS.iter().enumerate();
        let rows = rows.map(|(id, word)| format!("{{\"id\":{id},\"text\":\"a {word} door\"}}\n"));
        let input = place.write("in.jsonl", rows.collect::<String>());
        let plan = place.write("plan.toml", PLAN);
        let model = model.to_string_lossy().into_owned();
        Self {
            place,
            model,
            input,
            plan,
        }
    }

    fn run(&self, plan: &str, input: &str, out: &str) -> Ended {
        let store = self.place.path().join("answers.redb");
        let store = store.to_string_lossy();
        self.place.engine(&[
            "run",
            plan,
            "--input",
            input,
            "--model",
            &self.model,
            "--out",
            out,
            "--store",
            &store,
        ])
    }

    /// What was decided, by unit.
    fn values(&self, out: &str) -> Vec<(String, String, Value)> {
        let path = self.place.path().join(out).join("facts.jsonl");
        let text = std::fs::read_to_string(path).unwrap();
        text.lines()
            .map(|line| {
                let fact: Value = serde_json::from_str(line).unwrap();
                let text = |key: &str| fact[key].as_str().unwrap().to_owned();
                (text("unit_id"), text("status"), fact["values"].clone())
            })
            .collect()
    }

    /// A plan whose canaries expect what the model says of them, or the opposite.
    fn plan_with_canaries(&self, inverted: bool) -> String {
        let texts: Vec<String> = WORDS.iter().map(|word| format!("one {word} hat")).collect();
        let rows = texts.iter().enumerate();
        let rows = rows.map(|(id, text)| format!("{{\"id\":{id},\"text\":\"{text}\"}}\n"));
        let known = self.place.write("known.jsonl", rows.collect::<String>());
        assert_eq!(self.run(&self.plan, &known, "known").code, 0);
        let mut canaries = String::new();
        for ((_, _, values), text) in self.values("known").into_iter().zip(&texts) {
            let says_yes = values["red"]["label"] == "yes";
            let label = if says_yes != inverted { "yes" } else { "no" };
            canaries.push_str(&format!(
                "{{\"id\":\"{text}\",\"text\":\"{text}\",\"expect\":{{\"red\":\"{label}\"}}}}\n"
            ));
        }
        self.place.write("canaries.jsonl", canaries);
        let table = "[canary]\npath = \"canaries.jsonl\"\nevery = 2\n";
        self.place.write("watched.toml", format!("{PLAN}{table}"))
    }
}

#[test]
fn canaries_change_no_answer_and_are_nowhere_but_in_the_log() {
    let bench = Bench::new();
    let watched = bench.plan_with_canaries(false);
    assert_eq!(bench.run(&watched, &bench.input, "watched").code, 0);
    let log = std::fs::read_to_string(bench.place.path().join("watched/events.jsonl")).unwrap();
    assert_eq!(log.matches("\"verdict\":\"hit\"").count(), 12);
    assert_eq!(log.matches("\"verdict\":\"miss\"").count(), 0);
    let with = bench.values("watched");
    // Their answers are everyone's now: the plan without canaries asks for none.
    let ended = bench.run(&bench.plan, &bench.input, "bare");
    assert!(
        ended.stdout.contains("remembered       24 records"),
        "{}",
        ended.stdout
    );
    assert_eq!(with, bench.values("bare"));
    let fresh = Bench::new();
    assert_eq!(fresh.run(&fresh.plan, &fresh.input, "alone").code, 0);
    assert_eq!(
        with,
        fresh.values("alone"),
        "a row does not depend on the canaries beside it"
    );
    let ended = bench.place.engine(&["verify", "watched"]);
    assert_eq!(ended.code, 0, "{}", ended.stdout);
}

#[test]
fn failed_canaries_end_a_run_with_a_code_of_its_own_and_leave_nothing_remembered() {
    let bench = Bench::new();
    let watched = bench.plan_with_canaries(true);
    let ended = bench.run(&watched, &bench.input, "stopped");
    assert_eq!(ended.code, 6, "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("QUARANTINED"), "{}", ended.stdout);
    assert!(
        ended.stderr.contains("canaries got a wrong answer"),
        "{}",
        ended.stderr
    );
    assert!(bench.place.path().join("stopped/quarantine.json").exists());
    let answer = std::fs::read(bench.place.path().join("stopped/answer.json")).unwrap();
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    assert_eq!(answer["quarantine"]["trip"]["breaker"], "canary");
    assert!(answer["claims"][0]["value"].is_null());
    let ended = bench.run(&bench.plan, &bench.input, "bare");
    assert!(
        ended.stdout.contains("remembered       0 records"),
        "{}",
        ended.stdout
    );
    let ended = bench.place.engine(&["verify", "stopped"]);
    assert_eq!(ended.code, 0, "{}", ended.stdout);
}

#[test]
fn bad_canaries_are_refused_before_a_model_is_looked_for() {
    let place = Place::new();
    let plan = format!("{PLAN}[canary]\npath = \"canaries.jsonl\"\n");
    let plan = place.write("plan.toml", plan);
    let input = place.write("in.jsonl", "{\"id\":1,\"text\":\"x\"}\n");
    place.write(
        "canaries.jsonl",
        "{\"id\":1,\"text\":\"x\",\"expect\":{\"red\":\"yse\"}}\n",
    );
    let arguments = [
        "run",
        &plan,
        "--input",
        &input,
        "--model",
        "no-such-model",
        "--out",
        "out",
    ];
    place.refuses(
        &arguments,
        &["canaries.jsonl", "line 1", "did you mean \"yes\""],
    );
}

#[test]
fn the_safeguards_check_themselves() {
    let ended = Place::new().engine(&["verify", "--selfcheck"]);
    assert_eq!(ended.code, 0, "{}", ended.stdout);
    for part in [
        "inverted rubric  100 of 100",
        "of 2000 audits",
        "All of it holds.",
    ] {
        assert!(
            ended.stdout.contains(part),
            "no {part:?} in: {}",
            ended.stdout
        );
    }
}
