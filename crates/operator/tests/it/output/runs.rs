//! Whole runs: statuses add up, order does not matter, faults are counted and never hidden.

use std::collections::BTreeMap;

use operator::OperatorError;
use operator::event::Event;
use operator::fact::Status;
use operator::infer::{FailReason, JobUsage};
use operator::run_directory::{self, RunDirectory};
use serde_json::{Value, json};

use super::script::{Act, Script, Setup, issues, plan, run_simply, run_with, units};

#[test]
fn every_unit_ends_in_one_status_and_the_statuses_add_up() {
    let partition = units(&plan(), &issues(40));
    let mut script = Script::with([
        (2, Act::Fail(FailReason::Truncated)),
        (3, Act::Doubt),
        (4, Act::Cancel),
        (5, Act::Skip),
        (6, Act::Misshapen),
        (12, Act::Fail(FailReason::Backend)),
    ]);
    let (outcome, events) = run_with(&plan(), &partition, &mut script, Setup::default()).unwrap();
    let counts = outcome.answer.coverage;
    assert_eq!(
        (
            counts.units,
            counts.excluded,
            counts.errored,
            counts.abstained
        ),
        (40, 4, 3, 1)
    );
    assert_eq!(
        (counts.cancelled, counts.not_run, counts.decided),
        (1, 1, 30)
    );
    assert!(!outcome.answer.complete);
    let status = |id: u32| &outcome.facts[id as usize];
    assert_eq!(status(2).reason.as_deref(), Some("truncated: unit 2"));
    assert!(status(6).reason.as_deref().unwrap().starts_with("schema: "));
    assert_eq!(status(3).status, Status::Abstained);
    assert_eq!(
        status(3).values.len(),
        2,
        "an abstention keeps what was answered"
    );
    assert_eq!(status(1).stage, "prefilter:labelled");
    assert_eq!(status(1).values["blocker"].probability_ppm, None);
    let by_reason: u64 = outcome
        .answer
        .coverage_by_reason
        .iter()
        .map(|row| row.units)
        .sum();
    assert_eq!(by_reason, 40);
    for claim in &outcome.answer.claims {
        let wanted =
            "(incomplete: of 40 units 1 abstained, 3 errored, 1 were cancelled, 1 were not";
        assert!(claim.text.contains(wanted), "{}", claim.text);
    }
    let told = events
        .iter()
        .filter(|line| matches!(line.event, Event::Unit { .. }))
        .count();
    assert_eq!(told, 40);
    assert!((0..).zip(&events).all(|(seq, line)| line.seq == seq));
}

#[test]
fn order_of_completion_leaves_no_trace() {
    let partition = units(&plan(), &issues(200));
    let forward = run_simply(&partition, &mut Script::new());
    let backward = run_simply(
        &partition,
        &mut Script {
            reverse: true,
            ..Script::new()
        },
    );
    assert_eq!(forward.facts, backward.facts);
    assert_eq!(forward.answer, backward.answer);
    let ordinals: Vec<u32> = forward.facts.iter().map(|fact| fact.ordinal).collect();
    assert_eq!(ordinals, (0..200).collect::<Vec<_>>());
}

#[test]
fn claims_equal_a_recount_of_the_facts() {
    let partition = units(&plan(), &issues(150));
    let outcome = run_simply(&partition, &mut Script::new());
    let blockers: Vec<_> = outcome
        .facts
        .iter()
        .filter(|fact| fact.status == Status::Decided && fact.values["blocker"].label == "yes")
        .collect();
    let claim = |name: &str| {
        outcome
            .answer
            .claims
            .iter()
            .find(|c| c.name == name)
            .unwrap()
    };
    assert_eq!(claim("blockers").value, json!(blockers.len()));
    assert_eq!(
        claim("blockers").text,
        format!("{} issues block the release", blockers.len())
    );
    assert_eq!(claim("blockers").cites.len(), 8);
    assert_eq!(claim("blockers").cites_total, blockers.len() as u64);
    let ids: Vec<&str> = blockers.iter().map(|fact| fact.unit_id.as_str()).collect();
    assert_eq!(claim("ids").value, json!(ids));
    let mut causes: BTreeMap<&str, u64> = BTreeMap::new();
    for fact in &blockers {
        *causes.entry(&fact.values["cause"].label).or_default() += 1;
    }
    let mut causes: Vec<_> = causes.into_iter().collect();
    causes.sort_by_key(|(label, count)| (std::cmp::Reverse(*count), *label));
    let wanted: Vec<Value> = causes
        .iter()
        .map(|(label, count)| json!({ "label": label, "count": count }))
        .collect();
    assert_eq!(claim("causes").value, Value::from(wanted));
    let mut ranked: Vec<_> = outcome
        .facts
        .iter()
        .filter(|fact| fact.status == Status::Decided)
        .map(|fact| {
            (
                std::cmp::Reverse(fact.values["blocker"].probability_of("yes")),
                fact.unit_id.as_str().parse::<u64>().unwrap(),
            )
        })
        .collect();
    ranked.sort();
    let wanted: Vec<Value> = ranked[..5]
        .iter()
        .map(|(ppm, unit)| json!({ "unit_id": unit.to_string(), "probability_ppm": ppm.0 }))
        .collect();
    assert_eq!(claim("surest").value, Value::from(wanted));
    let bins: u64 = claim("spread")
        .value
        .as_array()
        .unwrap()
        .iter()
        .map(|b| b["count"].as_u64().unwrap())
        .sum();
    assert_eq!(bins, outcome.answer.coverage.decided);
}

#[test]
fn every_cite_resolves_and_a_forged_one_is_named() {
    let partition = units(&plan(), &issues(60));
    let outcome = run_simply(&partition, &mut Script::new());
    assert_eq!(outcome.answer.verify(&partition), Vec::<String>::new());
    for fact in outcome
        .facts
        .iter()
        .filter(|fact| fact.status == Status::Decided)
    {
        assert_eq!(fact.evidence.len(), 1, "unit {}", fact.unit_id);
    }
    let mut forged = outcome.answer.clone();
    let span = forged.claims[0].cites[0].span.as_mut().unwrap();
    span.quote = Some(String::from("other words"));
    forged.result_hash = forged.hash_result();
    let problems = forged.verify(&partition);
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(
        problems[0].contains("claim blockers: unit 1: bytes"),
        "{problems:?}"
    );
    let mut forged = outcome.answer;
    forged.coverage.decided += 1;
    assert_eq!(
        forged.verify(&partition).len(),
        2,
        "the hash and the sum both break"
    );
}

#[test]
fn nothing_left_is_a_valid_answer_and_asks_nobody() {
    let mut all = issues(100);
    for issue in &mut all {
        issue["state"] = json!("closed");
    }
    let partition = units(&plan(), &all);
    let mut script = Script::new();
    let outcome = run_simply(&partition, &mut script);
    assert!(script.asked.is_empty());
    assert!(outcome.answer.complete);
    assert_eq!(outcome.answer.coverage.excluded, 100);
    assert_eq!(outcome.usage.job, JobUsage::default());
    let claim = |name: &str| {
        outcome
            .answer
            .claims
            .iter()
            .find(|c| c.name == name)
            .unwrap()
    };
    assert_eq!(claim("blockers").value, json!(0));
    assert_eq!(claim("ids").value, json!([]));
    assert_eq!(
        claim("by_cause").value,
        json!({ "token": 0, "session": 0, "other": 0 })
    );
    assert!(
        outcome
            .answer
            .claims
            .iter()
            .all(|claim| claim.cites.is_empty())
    );
}

#[test]
fn an_unreadable_record_is_one_errored_unit() {
    let lines: Vec<String> = issues(12).iter().map(Value::to_string).collect();
    let mut text = lines.join("\n");
    text = text.replace(&lines[7], "{\"number\": 7, \"title\":");
    let (source, records, bad) =
        operator::record::read_bytes("issues.jsonl", text.as_bytes(), None).unwrap();
    let partition = operator::ops::partition(&plan(), source, records, bad).unwrap();
    let outcome = run_simply(&partition, &mut Script::new());
    assert_eq!(outcome.answer.coverage.units, 12);
    assert_eq!(outcome.answer.coverage.errored, 1);
    let fact = &outcome.facts[7];
    assert_eq!(
        (fact.unit_id.as_str(), fact.stage.as_str()),
        ("#7", "partition")
    );
    assert_eq!(fact.status, Status::Errored);
}

#[test]
fn a_broken_contract_stops_the_run() {
    let partition = units(&plan(), &issues(20));
    let run = |script: Script| {
        run_with(&plan(), &partition, &mut { script }, Setup::default()).unwrap_err()
    };
    let error = run(Script {
        repeat: true,
        ..Script::new()
    });
    assert!(matches!(error, OperatorError::DuplicateCompletion { ref unit_id } if unit_id == "2"));
    let error = run(Script {
        stranger: true,
        ..Script::new()
    });
    assert!(matches!(error, OperatorError::UnknownCompletion { ref unit_id } if unit_id == "who"));
}

#[test]
fn a_lost_backend_leaves_the_rest_not_run() {
    let partition = units(&plan(), &issues(100));
    let mut script = Script {
        break_after: Some(30),
        ..Script::new()
    };
    let outcome = run_simply(&partition, &mut script);
    assert!(outcome.backend_failure.is_some());
    assert_eq!(outcome.answer.coverage.not_run, 50);
    assert_eq!(outcome.answer.coverage.decided, 40);
    assert!(!outcome.answer.complete);
    assert_eq!(outcome.usage.job.prompt_tokens, 30 * 50);
    let left = outcome
        .facts
        .iter()
        .find(|fact| fact.status == Status::NotRun)
        .unwrap();
    assert_eq!(
        left.reason.as_deref(),
        Some("the backend failed: device lost")
    );
}

#[test]
fn limits_and_budgets_leave_units_not_run_with_their_name() {
    let partition = units(&plan(), &issues(100));
    let setup = Setup {
        limit: Some(10),
        ..Setup::default()
    };
    let (outcome, _) = run_with(&plan(), &partition, &mut Script::new(), setup).unwrap();
    assert_eq!(outcome.answer.coverage.not_run, 70);
    assert!(
        outcome
            .facts
            .iter()
            .any(|fact| fact.reason.as_deref() == Some("limit"))
    );
    let mut budgeted = plan();
    budgeted.budget.tokens_max = Some(100);
    let (outcome, _) =
        run_with(&budgeted, &partition, &mut Script::new(), Setup::default()).unwrap();
    assert_eq!(
        outcome.answer.coverage.not_run, 70,
        "ten units compute ten tokens each"
    );
    let named = |reason: &str| {
        outcome
            .facts
            .iter()
            .filter(|fact| fact.reason.as_deref() == Some(reason))
            .count()
    };
    assert_eq!(named("budget tokens_max"), 70);
    let mut budgeted = plan();
    budgeted.budget.seconds_max = Some(1);
    let setup = Setup {
        tick_us: 10_000,
        ..Setup::default()
    };
    let (outcome, _) = run_with(&budgeted, &partition, &mut Script::new(), setup).unwrap();
    assert!(outcome.answer.coverage.not_run > 0);
    assert_eq!(budgeted.hash(), plan().hash());
}

#[test]
fn a_directory_holds_the_run_and_verifies() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("run");
    let partition = units(&plan(), &issues(50));
    for reverse in [false, true] {
        let mut directory = RunDirectory::create(&path, "0.1.0", json!({ "limit": null })).unwrap();
        let setup = Setup {
            directory: Some(&mut directory),
            ..Setup::default()
        };
        let mut script = Script {
            reverse,
            ..Script::with([(2, Act::Fail(FailReason::Schema))])
        };
        let (outcome, _) = run_with(&plan(), &partition, &mut script, setup).unwrap();
        assert_eq!(
            run_directory::verify_files(&path).unwrap(),
            Vec::<String>::new()
        );
        assert_eq!(run_directory::read_answer(&path).unwrap(), outcome.answer);
        let facts = run_directory::read_facts(&path.join("facts.jsonl")).unwrap();
        assert_eq!(facts, outcome.facts);
        let manifest = run_directory::read_manifest(&path).unwrap();
        assert!(manifest.finished);
        assert_eq!(manifest.records, 50);
        assert_eq!(manifest.files.len(), 6);
        let nodes = run_directory::read_nodes(&path).unwrap();
        assert_eq!(
            nodes.len() as u64,
            outcome.answer.tree.as_ref().unwrap().nodes
        );
    }
    let columns = |line: &str| -> Vec<String> {
        let row: Value = serde_json::from_str(line).unwrap();
        row.as_object().unwrap().keys().cloned().collect()
    };
    let rows = std::fs::read_to_string(path.join("facts.jsonl")).unwrap();
    let first = columns(rows.lines().next().unwrap());
    assert_eq!(first.len(), 19);
    assert!(
        rows.lines().all(|line| columns(line) == first),
        "every row has every column"
    );
    let page = std::fs::read_to_string(path.join("answer.md")).unwrap();
    assert!(page.find("## Coverage").unwrap() < page.find("## Answer").unwrap());
    assert!(page.contains("INCOMPLETE") && !page.contains("SIMULATED"));
    assert!(
        page.contains("\\*sometimes\\*"),
        "record text is escaped: {page}"
    );
    let usage: Value =
        serde_json::from_slice(&std::fs::read(path.join("usage.json")).unwrap()).unwrap();
    let sum = usage["computed_tokens"].as_u64().unwrap() + usage["cached_tokens"].as_u64().unwrap();
    assert_eq!(usage["prompt_tokens"].as_u64(), Some(sum));
    std::fs::write(path.join("answer.md"), "forged").unwrap();
    assert_eq!(run_directory::verify_files(&path).unwrap().len(), 1);
}

#[test]
fn a_stopped_run_leaves_whole_facts_and_says_so() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("run");
    let partition = units(&plan(), &issues(50));
    let mut directory = RunDirectory::create(&path, "0.1.0", Value::Null).unwrap();
    let setup = Setup {
        directory: Some(&mut directory),
        ..Setup::default()
    };
    let mut script = Script {
        repeat: true,
        ..Script::new()
    };
    run_with(&plan(), &partition, &mut script, setup).unwrap_err();
    assert!(!run_directory::read_manifest(&path).unwrap().finished);
    let log = path.join("facts.jsonl");
    assert_eq!(
        run_directory::read_facts(&log).unwrap().len(),
        11,
        "5 + 5 filtered and 1 answered"
    );
    let bytes = std::fs::read(&log).unwrap();
    for cut in [1, 9, bytes.len() / 2] {
        std::fs::write(&log, &bytes[..bytes.len() - cut]).unwrap();
        let whole = bytes[..bytes.len() - cut]
            .iter()
            .filter(|byte| **byte == b'\n')
            .count();
        assert_eq!(run_directory::read_facts(&log).unwrap().len(), whole);
    }
}

#[test]
fn a_directory_of_something_else_is_left_alone() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("thesis.txt"), "mine").unwrap();
    let error = RunDirectory::create(home.path(), "0.1.0", Value::Null).unwrap_err();
    assert!(error.to_string().contains("no run wrote it"), "{error}");
}
