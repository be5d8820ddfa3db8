//! Runs whose predicates refer to indexes: routes, reasons, costs, files in memory or not, and what a
//! verifier finds.

use std::fs;

use operator::OperatorError;
use operator::diff::{Cause, diff};
use operator::event::Event;
use operator::fact::{Facts, Status};
use operator::infer::CancelFlag;
use operator::ops::{FileUnits, Units};
use operator::plan::Plan;
use operator::recorded::RecordedRun;
use operator::run::{RunOptions, RunOutcome, RungKind, run_over};
use operator::run_directory::RunDirectory;
use operator::store::MemoryStore;
use operator::verify::{Registry, Sources, Subject, verify};
use serde_json::{Value, json};

use super::super::script::{Script, Setup, issues, run_with, units};
use super::plan_text;

const INDEXES: &str = "
[[index]]
name = \"repeated\"
kind = \"sql\"
statement = '''SELECT _id, COUNT(*) OVER (PARTITION BY component) FROM records'''

[[index]]
name = \"near\"
kind = \"search\"
fields = [\"title\"]
query = \"gateway timeout\"
";

const FILTERS: &str = "
[[prefilter]]
name = \"rare\"
when = { index = \"repeated\", op = \"below\", value = 3 }
action = \"exclude\"
reason = \"its component is hardly ever named\"

[[prefilter]]
name = \"far\"
when = { all = [{ index = \"near\", op = \"below\", value = 0.5 }, { index = \"repeated\", op = \"at_least\", value = 3 }] }
action = \"decide\"
reason = \"says nothing of gateways\"
set = { blocker = \"no\", cause = \"other\" }
";

/// Issues of components a (30 times), b (9 times) and c (once); every fourth speaks of gateways.
fn records() -> Vec<Value> {
    let mut records = issues(40);
    for (number, record) in records.iter_mut().enumerate() {
        let component = match number {
            39 => "c",
            30.. => "b",
            _ => "a",
        };
        record["component"] = json!(component);
        if number % 4 == 0 {
            record["title"] = json!(format!("gateway timeout {number}"));
        }
    }
    records
}

fn plan() -> Plan {
    Plan::parse(&plan_text(INDEXES, FILTERS), "plan.toml").unwrap()
}

#[test]
fn predicates_refer_to_indexes_and_reasons_say_what_these_said() {
    let (plan, records) = (plan(), records());
    let mut script = Script::new();
    let (outcome, events) = run_with(
        &plan,
        &units(&plan, &records),
        &mut script,
        Setup::default(),
    )
    .unwrap();
    let fact = |number: usize| &outcome.facts[number];
    assert_eq!(fact(39).status, Status::Excluded);
    assert_eq!(
        fact(39).reason.as_deref(),
        Some("its component is hardly ever named [index repeated 1]")
    );
    assert_eq!(fact(1).stage, "prefilter:far");
    assert_eq!(
        fact(1).reason.as_deref(),
        Some("says nothing of gateways [index near 0.000, repeated 30]")
    );
    // Gateways go on, to the plan's own predicates and the model.
    assert_eq!(fact(20).stage, "prefilter:closed");
    assert_eq!(fact(4).stage, "map");
    assert_eq!(
        script.asked_last(),
        ["4", "8", "12", "16", "24", "28", "32", "36"]
    );
    // Reasons are grouped without what is the unit's own.
    let groups: Vec<_> = outcome
        .answer
        .coverage_by_reason
        .iter()
        .filter(|row| row.stage == "prefilter:far")
        .map(|row| (row.reason.as_deref(), row.units))
        .collect();
    assert_eq!(groups, [(Some("says nothing of gateways"), 29)]);
    let done: Vec<_> = events
        .iter()
        .filter_map(|line| match &line.event {
            Event::IndexDone { report } => {
                Some((report.name.as_str(), report.records, report.members))
            }
            _ => None,
        })
        .collect();
    assert_eq!(done, [("repeated", 40, 40), ("near", 40, 10)]);
}

#[test]
fn the_ladder_counts_what_each_step_saw_decided_and_cost() {
    let (plan, records) = (plan(), records());
    let mut script = Script::new();
    let (outcome, _) = run_with(
        &plan,
        &units(&plan, &records),
        &mut script,
        Setup::default(),
    )
    .unwrap();
    let ladder = &outcome.usage.ladder;
    let counts: Vec<_> = ladder
        .iter()
        .map(|rung| {
            (
                rung.name.as_str(),
                rung.seen,
                rung.decided,
                rung.excluded,
                rung.onward,
            )
        })
        .collect();
    assert_eq!(
        counts,
        [
            ("repeated", 40, 0, 0, 40),
            ("near", 40, 0, 0, 40),
            ("rare", 40, 0, 1, 39),
            ("far", 39, 29, 0, 10),
            ("closed", 10, 0, 2, 8),
            ("labelled", 8, 0, 0, 8),
            ("map", 8, 8, 0, 0),
        ]
    );
    let model = ladder.last().unwrap();
    assert_eq!((model.kind, model.computed_tokens), (RungKind::Stage, 80));
    assert!(ladder.iter().all(|rung| rung.micros > 0), "{ladder:?}");
    for rung in ladder {
        let ended = rung.decided + rung.excluded + rung.abstained + rung.errored + rung.stopped;
        assert_eq!(rung.seen, ended + rung.onward, "{}", rung.name);
    }
}

fn over(
    plan: &Plan,
    units: &dyn Units,
    directory: Option<&mut RunDirectory>,
) -> Result<RunOutcome<Facts>, OperatorError> {
    let options = RunOptions {
        limit: None,
        redact: false,
        clock: &|| 0,
        cancel: &CancelFlag::new(),
        larger: None,
        tools: None,
    };
    run_over(
        plan,
        units,
        &mut Script::new(),
        None,
        options,
        &mut (),
        directory,
    )
}

#[test]
fn a_run_over_a_file_has_the_facts_of_one_in_memory_and_is_verified() {
    let home = tempfile::tempdir().unwrap();
    let input = home.path().join("issues.json");
    let bytes = serde_json::to_vec(&records()).unwrap();
    fs::write(&input, &bytes).unwrap();
    let plan = plan();
    let mut directory = RunDirectory::create(&home.path().join("run"), "0", json!({})).unwrap();
    let file = FileUnits::open(&plan, &input, &mut |_| {}).unwrap();
    let streamed = over(&plan, &file, Some(&mut directory)).unwrap();
    let mut partition = units(&plan, &records());
    partition.source.path = input.display().to_string();
    let whole = over(&plan, &partition, None).unwrap();
    let facts: Vec<_> = streamed.facts.iter().collect();
    assert_eq!(facts, whole.facts.iter().collect::<Vec<_>>());
    assert_eq!(streamed.answer, whole.answer);
    let report = operator::verify::verify_directory(&home.path().join("run"), None).unwrap();
    assert!(report.holds(), "{:?}", report.findings);
    assert_eq!((report.sources_absent, report.indexes_absent), (None, None));
}

#[test]
fn a_route_that_no_index_gives_is_found() {
    let (plan, records) = (plan(), records());
    let (outcome, _) = run_with(
        &plan,
        &units(&plan, &records),
        &mut Script::new(),
        Setup::default(),
    )
    .unwrap();
    let bytes = serde_json::to_vec(&records).unwrap();
    let registry = Registry::read(&plan, "issues.json", &bytes).unwrap();
    for (number, from, to, word) in [
        (1, "near 0.000", "near 0.499", "its record has"),
        (39, "repeated 1", "repeated 2", "its record has"),
    ] {
        let mut facts = outcome.facts.clone();
        facts[number].reason = facts[number]
            .reason
            .as_ref()
            .map(|reason| reason.replace(from, to));
        assert_ne!(facts[number], outcome.facts[number]);
        let subject = Subject {
            plan: &plan,
            facts: &facts,
            nodes: &[],
            answer: &outcome.answer,
        };
        let report = verify(subject, &Sources::Read(registry.clone()));
        let unit = format!("unit {number}");
        let found = report.findings.iter().any(|finding| {
            let text = finding.to_string();
            text.starts_with(&unit) && text.contains(word)
        });
        assert!(found, "{:?}", report.findings);
    }
}

#[test]
fn another_record_elsewhere_can_change_a_route_and_no_answer_is_asked_again() {
    let (plan, mut records) = (plan(), records());
    let store = MemoryStore::default();
    let run = |records: &[Value]| {
        let mut script = Script::new();
        let setup = Setup {
            memo: Some(&store),
            ..Setup::default()
        };
        let (outcome, _) = run_with(&plan, &units(&plan, records), &mut script, setup).unwrap();
        (outcome.facts, script.asked.concat())
    };
    let (before, asked) = run(&records);
    assert_eq!(asked.len(), 8);
    // Two more of component c: the one that there was is no longer rare.
    records.extend([40, 41].map(|number| {
        json!({"number": number, "state": "open", "tag": "none", "title": "gateway", "body": number, "component": "c"})
    }));
    let (after, asked) = run(&records);
    assert_eq!(before[39].stage, "prefilter:rare");
    assert_eq!(after[39].stage, "prefilter:far");
    assert_ne!(before[39].fact_hash(), after[39].fact_hash());
    assert_eq!(asked, ["40", "41"]);
}

#[test]
fn a_difference_names_the_index_where_nothing_of_the_unit_itself_changed() {
    let home = tempfile::tempdir().unwrap();
    let (plan, mut records) = (plan(), records());
    let run = |name: &str, records: &[Value]| {
        let path = home.path().join(name);
        let mut directory = RunDirectory::create(&path, "0", json!({})).unwrap();
        let setup = Setup {
            directory: Some(&mut directory),
            ..Setup::default()
        };
        run_with(&plan, &units(&plan, records), &mut Script::new(), setup).unwrap();
        RecordedRun::open(&path).unwrap()
    };
    let before = run("before", &records);
    records[38]["component"] = json!("c");
    records[37]["component"] = json!("c");
    let after = run("after", &records);
    let difference = diff(&before, &after);
    let unit = difference
        .units
        .iter()
        .find(|unit| unit.unit_id.as_str() == "39")
        .unwrap();
    assert_eq!(unit.causes, [Cause::Index]);
}

#[test]
fn an_index_that_leaves_nothing_gives_a_whole_answer_and_asks_nothing() {
    let index =
        "[[index]]\nname = \"all\"\nkind = \"sql\"\nstatement = \"SELECT _id FROM records\"\n";
    let filter = "[[prefilter]]\nname = \"all\"\naction = \"exclude\"\nwhen = { index = \"all\", op = \"member\" }\n";
    let plan = Plan::parse(&plan_text(index, filter), "plan.toml").unwrap();
    let mut script = Script::new();
    let partition = units(&plan, &issues(30));
    let (outcome, _) = run_with(&plan, &partition, &mut script, Setup::default()).unwrap();
    assert!(script.asked.is_empty());
    assert!(outcome.answer.complete);
    assert_eq!(
        (
            outcome.answer.coverage.excluded,
            outcome.answer.coverage.units
        ),
        (30, 30)
    );
    assert_eq!(
        outcome.facts[3].reason.as_deref(),
        Some("all [index all member]")
    );
    let model = outcome.usage.ladder.last().unwrap();
    assert_eq!((model.name.as_str(), model.seen), ("map", 0));
}

#[test]
fn an_index_that_cannot_be_computed_stops_the_run_before_anything_is_written() {
    let home = tempfile::tempdir().unwrap();
    let index = "[[index]]\nname = \"x\"\nkind = \"sql\"\nstatement = \"SELECT _id FROM record\"\n";
    let plan = Plan::parse(&plan_text(index, ""), "plan.toml").unwrap();
    let path = home.path().join("run");
    let mut directory = RunDirectory::create(&path, "0", json!({})).unwrap();
    let error = over(&plan, &units(&plan, &issues(3)), Some(&mut directory)).unwrap_err();
    assert!(
        error.to_string().contains("no such table: record"),
        "{error}"
    );
    assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
}
