//! Effects with the binary: off unless allowed twice, done after verification, once, and read back.

mod commands;
mod drill;
mod server;

use std::path::{Path, PathBuf};

use operator::effect::EffectsReport;
use serde_json::{Value, json};

use crate::cli::Place;

pub const RECORDS: u32 = 50;

/// A plan whose predicate decides everything, so that no model is needed, and its two effects.
pub fn plan(target: &str) -> String {
    format!(
        r#"
version = 1
question = "Which records are red?"
rubric = "Say whether the record is red."
[input]
id = "id"
text = [{{ field = "text", max_chars = 100 }}]
evidence = "first_line"
[[prefilter]]
name = "crimson"
when = {{ field = "text", op = "contains", value = "crimson" }}
action = "decide"
set = {{ red = "yes" }}
[[field]]
name = "red"
question = "Is it red?"
labels = ["yes", "no"]
[[reduce]]
name = "reds"
op = "count"
where = {{ red = "yes" }}
[[effect]]
name = "tell"
{target}
action = "comment"
when = {{ label = {{ red = "yes" }} }}
text = "Record {{id}} is red: {{record.text}}"
version = "{{record.version}}"
effects_max = 50
[[effect]]
name = "mark"
{target}
action = "label"
when = {{ label = {{ red = "yes" }} }}
text = "red"
version = "{{record.version}}"
effects_max = 50
"#
    )
}

pub fn file_plan() -> String {
    plan("kind = \"file_tracker\"\nwhere = \"issues\"")
}

/// What a record says.
pub fn text(id: u32) -> String {
    format!("crimson number {id}")
}

/// Records as they were exported from the tracker at version 3.
pub fn records(count: u32) -> String {
    let record = |id| format!("{}\n", json!({ "id": id, "text": text(id), "version": 3 }));
    (0..count).map(record).collect()
}

/// A directory with one JSON file an issue.
pub fn write_issues(place: &Place, count: u32) -> PathBuf {
    let issues = place.path().join("issues");
    std::fs::create_dir(&issues).unwrap();
    for id in 0..count {
        let issue = json!({ "version": 3, "title": text(id), "comments": [{ "text": "by hand" }] });
        std::fs::write(issues.join(format!("{id}.json")), issue.to_string()).unwrap();
    }
    issues
}

pub fn issue(issues: &Path, id: u32) -> Value {
    let bytes = std::fs::read(issues.join(format!("{id}.json"))).unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

pub fn report(run: &Path) -> EffectsReport {
    serde_json::from_slice(&std::fs::read(run.join("effects.json")).unwrap()).unwrap()
}

/// Arguments of a run that needs no model and allows effects.
pub fn run_arguments<'a>(
    plan: &'a str,
    input: &'a str,
    out: &'a str,
    allow: &[&'a str],
) -> Vec<&'a str> {
    let mut arguments = vec![
        "run",
        plan,
        "--input",
        input,
        "--replay",
        "none.jsonl",
        "--out",
        out,
    ];
    for name in allow {
        arguments.extend(["--allow-effect", name]);
    }
    arguments
}
