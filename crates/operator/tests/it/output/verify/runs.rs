//! Whole run directories: every kind of run passes, and every file of one is guarded.

use std::path::{Path, PathBuf};

use operator::infer::FailReason;
use operator::ops::partition;
use operator::record::read_source;
use operator::run_directory::RunDirectory;
use operator::store::{MemoryStore, Store};
use operator::verify::{Place, verify_directory};
use operator::{OperatorError, Plan};
use serde_json::{Value, json};

use super::super::script::{Act, PLAN, Script, Setup, issues, run_with};
use super::shown;

/// A plan whose columns and evidence reach every kind of each.
fn plan(evidence: &str) -> Plan {
    let columns = "\n[[column]]\nname = \"votes\"\ntype = \"integer\"\n\n[[column]]\nname = \
                   \"tag\"\ntype = \"text\"\n\n[[column]]\nname = \"opened\"\ntype = \"time\"\n\n\
                   [[reduce]]\nname = \"most\"\nop = \"max\"\nfield = \"votes\"\n";
    let text = PLAN.replace("evidence = \"model\"", &format!("evidence = {evidence:?}"));
    Plan::parse(&(text + columns), "plan.toml").unwrap()
}

fn records() -> Vec<Value> {
    let mut records = issues(40);
    for (number, record) in records.iter_mut().enumerate() {
        record["votes"] = json!(number * 7 % 11);
        record["opened"] = json!(format!("2026-03-{:02}", number % 28 + 1));
    }
    records[7]["votes"] = json!("many");
    records
}

struct Case<'a> {
    plan: Plan,
    name: &'a str,
    bytes: Vec<u8>,
    script: Script,
    limit: Option<u32>,
    redact: bool,
    store: Option<&'a dyn Store>,
}

impl Case<'_> {
    fn new(evidence: &str, script: Script) -> Self {
        Self {
            plan: plan(evidence),
            name: "issues.json",
            bytes: serde_json::to_vec(&records()).unwrap(),
            script,
            limit: None,
            redact: false,
            store: None,
        }
    }

    /// Runs into `run` below a directory; returns where.
    fn run(mut self, home: &Path) -> PathBuf {
        let (path, input) = (home.join("run"), home.join(self.name));
        std::fs::write(&input, &self.bytes).unwrap();
        let (source, records, bad) = read_source(&input, None).unwrap();
        let partition = partition(&self.plan, source, records, bad).unwrap();
        let mut directory = RunDirectory::create(&path, "0.1.0", json!({})).unwrap();
        let setup = Setup {
            memo: self.store,
            limit: self.limit,
            redact: self.redact,
            directory: Some(&mut directory),
            ..Setup::default()
        };
        run_with(&self.plan, &partition, &mut self.script, setup).unwrap();
        path
    }
}

fn troubled() -> Script {
    Script::with([
        (2, Act::Fail(FailReason::Truncated)),
        (3, Act::Doubt),
        (4, Act::Cancel),
        (5, Act::Skip),
        (6, Act::Misshapen),
        (12, Act::Fail(FailReason::Backend)),
    ])
}

fn passes(case: Case<'_>, what: &str) {
    let home = tempfile::tempdir().unwrap();
    let facts = records().len() as u64;
    let path = case.run(home.path());
    let report = verify_directory(&path, None).unwrap();
    assert_eq!(shown(&report), Vec::<String>::new(), "{what}");
    assert_eq!(report.sources_absent, None, "{what}");
    assert_eq!(
        (report.checked.facts, report.checked.records),
        (facts, facts),
        "{what}"
    );
}

#[test]
fn runs_of_every_kind_pass() {
    for evidence in ["model", "first_line", "none"] {
        passes(Case::new(evidence, Script::new()), evidence);
        passes(Case::new(evidence, troubled()), evidence);
    }
    passes(
        Case {
            limit: Some(9),
            ..Case::new("model", Script::new())
        },
        "a limit",
    );
    passes(
        Case {
            redact: true,
            ..Case::new("model", troubled())
        },
        "redacted",
    );
    let mut simulated = Script::new();
    simulated.identity.simulated = true;
    passes(Case::new("model", simulated), "simulated");
    let lost = Script {
        break_after: Some(5),
        ..Script::new()
    };
    passes(Case::new("model", lost), "a lost backend");
    let store = MemoryStore::new();
    for what in ["cold", "warm"] {
        let store: Option<&dyn Store> = Some(&store);
        passes(
            Case {
                store,
                ..Case::new("model", troubled())
            },
            what,
        );
    }
    let mut excluding = Case::new("model", Script::new());
    let all: Vec<Value> = records()
        .into_iter()
        .map(|mut record| {
            record["state"] = json!("closed");
            record
        })
        .collect();
    excluding.bytes = serde_json::to_vec(&all).unwrap();
    passes(excluding, "all excluded");
}

#[test]
fn every_format_passes_unreadable_records_included() {
    let lines: Vec<String> = records().iter().map(Value::to_string).collect();
    let text = lines
        .join("\n")
        .replace(&lines[7], "{\"number\": 7, \"title\":");
    let (name, bytes) = ("issues.jsonl", text.into_bytes());
    passes(
        Case {
            name,
            bytes,
            ..Case::new("model", Script::new())
        },
        "lines",
    );
    let mut table = String::from("number,state,tag,title,body,votes,opened\n");
    for record in records() {
        let cells = ["number", "state", "tag", "title", "votes", "opened"].map(|key| {
            record[key]
                .as_str()
                .map_or_else(|| record[key].to_string(), str::to_owned)
        });
        let [number, state, tag, title, votes, opened] = cells;
        table += &format!("{number},{state},{tag},{title},\"one,\r\ntwo\",{votes},{opened}\n");
    }
    let (name, bytes) = ("issues.csv", table.into_bytes());
    passes(
        Case {
            name,
            bytes,
            ..Case::new("model", Script::new())
        },
        "a table",
    );
}

#[test]
fn every_file_of_a_run_is_guarded() {
    for name in [
        "facts.jsonl",
        "nodes.jsonl",
        "answer.json",
        "answer.md",
        "usage.json",
        "events.jsonl",
    ] {
        let home = tempfile::tempdir().unwrap();
        let path = Case::new("model", Script::new()).run(home.path());
        let file = path.join(name);
        let mut bytes = std::fs::read(&file).unwrap();
        bytes.push(b'\n');
        if !name.ends_with("jsonl") {
            std::fs::write(&file, &bytes).unwrap();
            let report = verify_directory(&path, None).unwrap();
            let place = Place::File(name.to_owned());
            assert!(report.findings.iter().all(|finding| finding.place == place));
            assert_eq!(
                report.findings.len(),
                2,
                "hash and size: {:?}",
                shown(&report)
            );
        }
        std::fs::remove_file(&file).unwrap();
        match verify_directory(&path, None) {
            Ok(report) => assert!(shown(&report)[0].starts_with(name), "{:?}", shown(&report)),
            Err(error) => assert!(error.to_string().contains(name), "{error}"),
        }
    }
}

/// Changes the manifest and returns what is found.
fn with_manifest(change: impl Fn(&mut Value)) -> Vec<String> {
    let home = tempfile::tempdir().unwrap();
    let path = Case::new("model", Script::new()).run(home.path());
    let file = path.join("manifest.json");
    let mut manifest: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    change(&mut manifest);
    std::fs::write(&file, manifest.to_string()).unwrap();
    shown(&verify_directory(&path, None).unwrap())
}

#[test]
fn the_manifest_must_agree_with_the_answer() {
    let none = "0".repeat(64);
    for (key, value) in [
        ("version", json!(9)),
        ("finished", json!(false)),
        ("plan_hash", json!(none)),
        ("records", json!(7)),
        (
            "backend",
            json!({ "name": "who", "digest": none, "simulated": false }),
        ),
    ] {
        let found = with_manifest(|manifest| manifest[key] = value.clone());
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("manifest.json: "), "{found:?}");
        assert!(found[0].contains(key), "{found:?}");
    }
    let found = with_manifest(|manifest| manifest["input"]["hash"] = json!(none));
    assert!(
        found[0].starts_with("manifest.json: input.hash"),
        "{found:?}"
    );
    let found = with_manifest(|manifest| {
        let text = manifest["plan_text"]
            .as_str()
            .unwrap()
            .replace("k = 5", "k = 4");
        manifest["plan_text"] = json!(text);
    });
    assert!(
        found
            .iter()
            .any(|line| line.starts_with("claim surest: its value")),
        "{found:?}"
    );
    let found = with_manifest(|manifest| {
        manifest["files"][0]["name"] = json!("../../secret");
    });
    assert_eq!(found.len(), 2, "{found:?}");
    let found = with_manifest(|manifest| {
        manifest["files"].as_array_mut().unwrap().pop();
    });
    assert!(found[0].contains("is listed 0 times"), "{found:?}");
}

#[test]
fn a_run_that_did_not_finish_has_no_answer_to_verify() {
    let home = tempfile::tempdir().unwrap();
    let input = home.path().join("issues.json");
    std::fs::write(&input, serde_json::to_vec(&records()).unwrap()).unwrap();
    let plan = plan("model");
    let (source, records, bad) = read_source(&input, None).unwrap();
    let partition = partition(&plan, source, records, bad).unwrap();
    let path = home.path().join("run");
    let mut directory = RunDirectory::create(&path, "0.1.0", Value::Null).unwrap();
    let setup = Setup {
        directory: Some(&mut directory),
        ..Setup::default()
    };
    let mut script = Script {
        repeat: true,
        ..Script::new()
    };
    run_with(&plan, &partition, &mut script, setup).unwrap_err();
    match verify_directory(&path, None) {
        Err(OperatorError::FileInvalid { path, problem, .. }) => {
            assert!(path.ends_with("manifest.json"), "{path}");
            assert!(problem.contains("did not finish"), "{problem}");
        }
        other => panic!("{other:?}"),
    }
}
