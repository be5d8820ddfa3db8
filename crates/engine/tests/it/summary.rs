//! A plan with a summary, as a user runs it: a text is checked or refused, and the rest stands.

use crate::cli::{PLAN, Place};
use crate::store::write_model;

const SUMMARY: &str = r#"
[[reduce]]
name = "in-short"
op = "summary"
of = ["reds"]
instruction = "Say how many are red."
tokens_max = 16

[[reduce]]
name = "all"
op = "count"
"#;

const RECORDS: &str = "{\"id\":\"a\",\"text\":\"crimson\"}\n{\"id\":\"b\",\"text\":\"blue\"}\n";

struct Run {
    answer: serde_json::Value,
    usage: serde_json::Value,
    stdout: String,
    stderr: String,
    page: String,
}

fn run(place: &Place, plan: &str, more: &[&str]) -> Run {
    let plan = place.write("plan.toml", plan);
    let input = place.write("in.jsonl", RECORDS);
    let mut arguments = vec![
        "run",
        &plan,
        "--input",
        &input,
        "--out",
        "out",
        "--no-store",
    ];
    arguments.extend(more);
    let ended = place.engine(&arguments);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let read = |name: &str| std::fs::read_to_string(place.path().join("out").join(name)).unwrap();
    Run {
        answer: serde_json::from_str(&read("answer.json")).unwrap(),
        usage: serde_json::from_str(&read("usage.json")).unwrap(),
        stdout: ended.stdout,
        stderr: ended.stderr,
        page: read("answer.md"),
    }
}

#[test]
fn what_a_random_model_writes_is_refused_and_the_rest_stands() {
    let place = Place::new();
    let model = place.path().join("tiny.gguf");
    write_model(&model);
    let model = ["--model", &model.to_string_lossy()];
    let with = run(&place, &format!("{PLAN}{SUMMARY}"), &model);
    let claims = with.answer["claims"].as_array().unwrap();
    let names: Vec<_> = claims
        .iter()
        .map(|claim| claim["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["reds", "in-short", "all"]);
    let refused = claims[1]["refused"].as_str().unwrap();
    assert!(!refused.is_empty() && claims[1]["value"].is_null());
    assert!(
        with.stderr.contains("summary in-short: refused: "),
        "{}",
        with.stderr
    );
    for page in [&with.stdout, &with.page] {
        assert!(page.contains("in-short is not answered: "), "{page}");
    }
    let composed = &with.usage["composed"];
    assert_eq!(composed["texts"], 1);
    assert!(
        composed["prompt_tokens"].as_u64().unwrap() > 100,
        "{composed}"
    );
    let generated = composed["generated_tokens"].as_u64().unwrap();
    assert!((1..=16).contains(&generated), "{composed}");
    let shown = format!("summaries        1 written ({generated} tokens from ");
    assert!(with.stdout.contains(&shown), "{}", with.stdout);

    let without = run(&place, PLAN, &model);
    assert_eq!(without.answer["claims"][0], claims[0]);
    assert_eq!(
        without.answer["tree"]["nodes"],
        with.answer["tree"]["nodes"]
    );
    assert_eq!(without.usage["composed"]["texts"], 0);
    assert!(!without.stdout.contains("summaries"), "{}", without.stdout);
}

#[test]
fn a_recording_writes_no_text_and_says_so() {
    let place = Place::new();
    let answers = place.write(
        "answers.jsonl",
        "{\"unit_id\":\"a\",\"answers\":{\"red\":\"yes\"}}\n\
         {\"unit_id\":\"b\",\"answers\":{\"red\":\"no\"}}\n",
    );
    let ran = run(&place, &format!("{PLAN}{SUMMARY}"), &["--replay", &answers]);
    assert_eq!(ran.answer["claims"][0]["value"], 1);
    assert_eq!(
        ran.answer["claims"][1]["refused"],
        "the backend replay writes no texts"
    );
    assert_eq!(ran.answer["claims"][2]["value"], 2);
    assert_eq!(ran.answer["complete"], true);
}
