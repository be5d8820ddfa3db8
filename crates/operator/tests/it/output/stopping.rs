//! Runs that stop early: by their declared rules, never before, and never silently.

mod deadlines;
mod laws;
mod plans;
mod retries;
mod shares;
mod tampers;

use operator::event::EventLine;
use operator::fact::{Fact, Status};
use operator::infer::{FailReason, UnitOutcome};
use operator::plan::Plan;
use operator::run::RunOutcome;
use operator::run_directory::RunDirectory;
use operator::store::MemoryStore;
use operator::verify::verify_directory;
use serde_json::{Value, json};

use super::canaries::{Reader, answer};
use super::script::{Setup, run_with, units};

/// A plan over texts that say good, bad or vague, or cannot be answered.
const HEAD: &str = r#"
version = 1
question = "Which are good?"
rubric = "Judge one."
[input]
id = "id"
text = [{ field = "text" }]
[[prefilter]]
name = "old"
when = { field = "old", op = "eq", value = true }
action = "exclude"
[[prefilter]]
name = "sure"
when = { field = "sure", op = "eq", value = true }
action = "decide"
set = { good = "yes" }
[[field]]
name = "good"
question = "Is it good?"
labels = ["yes", "no"]
abstain_below_margin = 0.1
[[column]]
name = "score"
type = "integer"
[[column]]
name = "team"
type = "text"
"#;

pub const COUNT: &str = "[[reduce]]\nname = \"many\"\nop = \"count\"\nwhere = { good = \"yes\" }\n";
const SET: &str = "[[reduce]]\nname = \"some\"\nop = \"set\"\nwhere = { good = \"yes\" }\n";
const TOP: &str = "[[reduce]]\nname = \"best\"\nop = \"top_k\"\nfield = \"score\"\nk = 3\n\
                   order = \"largest\"\nwhere = { good = \"yes\" }\n";

fn text_of(reduces: &[&str], more: &str, rules: &[&str]) -> String {
    let rules = rules.join(",\n");
    let reduces = reduces.concat();
    format!("{HEAD}{reduces}[control]\nstop = [\n{rules}\n]\n{more}")
}

pub fn plan(reduces: &[&str], rules: &[&str]) -> Plan {
    Plan::parse(&text_of(reduces, "", rules), "plan.toml").unwrap()
}

pub fn threshold(at_least: u32) -> String {
    format!("{{ reduce = \"many\", rule = \"threshold\", at_least = {at_least} }}")
}

fn record(id: u32, word: &str) -> Value {
    json!({ "id": id, "text": format!("it is {word}, number {id}"), "score": id, "team": "a" })
}

/// Records 0..n; every third is good.
pub fn records(count: u32) -> Vec<Value> {
    let word = |id| if id % 3 == 0 { "good" } else { "bad" };
    (0..count).map(|id| record(id, word(id))).collect()
}

/// Reads good, bad, vague, and what cannot be answered.
pub fn reader() -> Reader {
    Reader::new(|_, text| match text {
        text if text.contains("vague") => answer(true, 20_000),
        text if text.contains("broken") => UnitOutcome::Failed {
            reason: FailReason::Backend,
            message: String::from("cannot"),
        },
        text => answer(text.contains("good"), 800_000),
    })
}

fn go(plan: &Plan, records: &[Value], reader: &mut Reader, setup: Setup<'_>) -> RunOutcome {
    go_with_events(plan, records, reader, setup).0
}

fn go_with_events(
    plan: &Plan,
    records: &[Value],
    reader: &mut Reader,
    setup: Setup<'_>,
) -> (RunOutcome, Vec<EventLine>) {
    run_with(plan, &units(plan, records), reader, setup).unwrap()
}

/// A run that is kept in a directory, and what verification finds in it.
fn kept(plan: &Plan, records: &[Value], limit: Option<u32>) -> (tempfile::TempDir, RunOutcome) {
    let home = tempfile::tempdir().unwrap();
    let mut directory = RunDirectory::create(&home.path().join("run"), "0", json!({})).unwrap();
    let setup = Setup {
        limit,
        directory: Some(&mut directory),
        ..Setup::default()
    };
    let outcome = go(plan, records, &mut reader(), setup);
    (home, outcome)
}

fn findings(home: &tempfile::TempDir) -> Vec<String> {
    let report = verify_directory(&home.path().join("run"), None).unwrap();
    report.findings.iter().map(ToString::to_string).collect()
}

fn with(outcome: &RunOutcome, status: Status) -> Vec<u32> {
    let facts = outcome.facts.iter().filter(|fact| fact.status == status);
    facts.map(|fact| fact.ordinal).collect()
}

fn claim<'o>(outcome: &'o RunOutcome, name: &str) -> &'o operator::answer::Claim {
    let mut claims = outcome.answer.claims.iter();
    claims.find(|claim| claim.name == name).unwrap()
}

pub fn stopped_after(outcome: &RunOutcome) -> Option<u64> {
    outcome.answer.stop.as_ref().unwrap().stopped_after
}

fn is_left_out(fact: &Fact) -> bool {
    let reason = fact.reason.as_deref().unwrap_or_default();
    reason.starts_with("stopped by rule: ")
}

#[test]
fn a_threshold_stops_at_the_unit_that_meets_it_and_nothing_further_is_computed() {
    let plan = plan(&[COUNT], &[&threshold(4)]);
    let (home, _) = kept(&plan, &records(600), None);
    assert_eq!(findings(&home), [""; 0]);
    let mut reader = reader();
    let outcome = go(&plan, &records(600), &mut reader, Setup::default());
    // 0, 3, 6 and 9 are good.
    assert_eq!(with(&outcome, Status::Decided), (0..10).collect::<Vec<_>>());
    assert_eq!(reader.shown.len(), 10);
    assert_eq!(
        with(&outcome, Status::Cancelled),
        (10..256).collect::<Vec<_>>()
    );
    assert_eq!(
        with(&outcome, Status::NotRun),
        (256..600).collect::<Vec<_>>()
    );
    let reason = "stopped by rule: threshold of many";
    let left_out = outcome.facts.iter().skip(10);
    assert!(
        left_out
            .clone()
            .all(|fact| fact.reason.as_deref() == Some(reason))
    );
    assert!(outcome.answer.complete);
    assert_eq!(stopped_after(&outcome), Some(10));
    let many = claim(&outcome, "many");
    assert_eq!(many.value, json!({ "at_least": 4 }));
    assert!(
        many.text
            .starts_with("at least 4 decided units with good = yes (stopped by rule: ")
    );
    assert_eq!(outcome.answer.coverage.units, 600);
    // What was on its way is no part of the ladder's decisions either.
    let rung = outcome.usage.ladder.last().unwrap();
    assert_eq!((rung.decided, rung.stopped, rung.onward), (10, 246, 0));
}

#[test]
fn a_rule_that_is_not_met_asks_every_unit_and_claims_what_is_exact() {
    let plan = plan(&[COUNT], &[&threshold(21)]);
    let (home, outcome) = kept(&plan, &records(60), None);
    assert_eq!(findings(&home), [""; 0]);
    assert_eq!(stopped_after(&outcome), None);
    assert!(outcome.answer.complete);
    assert_eq!(claim(&outcome, "many").value, json!(20));
    assert_eq!(
        claim(&outcome, "many").text,
        "20 decided units with good = yes"
    );
}

#[test]
fn what_predicates_decide_counts_and_may_leave_nothing_to_ask() {
    let mut records = records(40);
    for place in [7, 20, 31] {
        records[place]["sure"] = json!(true);
    }
    let plan = plan(&[COUNT], &[&threshold(3)]);
    let mut reader = reader();
    let outcome = go(&plan, &records, &mut reader, Setup::default());
    assert_eq!(with(&outcome, Status::Decided), [7, 20, 31]);
    assert_eq!(outcome.answer.coverage.not_run, 37);
    assert!(reader.shown.is_empty() && outcome.answer.complete);
    let (home, _) = kept(&plan, &records, None);
    assert_eq!(findings(&home), [""; 0]);
}

#[test]
fn examples_are_as_many_as_were_promised_and_are_called_examples() {
    let mut records = records(40);
    records[35]["sure"] = json!(true);
    let rule = "{ reduce = \"some\", rule = \"examples\", k = 3 }";
    let (home, outcome) = kept(&plan(&[SET], &[rule]), &records, None);
    assert_eq!(findings(&home), [""; 0]);
    let some = claim(&outcome, "some");
    assert_eq!(some.value, json!(["0", "3", "35"]));
    assert!(
        some.text
            .starts_with("examples, not all: 3 decided units with good = yes: 0, 3, 35")
    );
    assert_eq!((some.cites.len(), some.cites_total), (3, 3));
}

#[test]
fn the_best_by_a_column_are_asked_first_and_the_others_not_at_all() {
    let rule = "{ reduce = \"best\", rule = \"top_k\" }";
    let mut records = records(400);
    records[399]["team"] = json!("b");
    records[398]["score"] = Value::Null;
    let plan = plan(&[TOP], &[rule]);
    let mut reader = reader();
    let outcome = go(&plan, &records, &mut reader, Setup::default());
    let units: Vec<&str> = claim(&outcome, "best")
        .value
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["unit_id"].as_str().unwrap())
        .collect();
    assert_eq!(units, ["399", "396", "393"]);
    assert_eq!(reader.shown.len(), 6, "399, 397, 396, 395, 394 and 393");
    assert!(outcome.answer.complete);
    let ordinals: Vec<u32> = outcome.facts.iter().map(|fact| fact.ordinal).collect();
    assert_eq!(
        ordinals,
        (0..400).collect::<Vec<_>>(),
        "facts stay in source order"
    );
    let (home, _) = kept(&plan, &records, None);
    assert_eq!(findings(&home), [""; 0]);
}

#[test]
fn a_better_unit_without_an_answer_leaves_the_best_incomplete() {
    let rule = "{ reduce = \"best\", rule = \"top_k\" }";
    let mut records = records(60);
    records[58] = record(58, "broken");
    let (home, outcome) = kept(&plan(&[TOP], &[rule]), &records, None);
    assert_eq!(findings(&home), [""; 0]);
    assert!(stopped_after(&outcome).is_some() && !outcome.answer.complete);
    assert!(claim(&outcome, "best").text.contains("(incomplete: "));
    // At least three are at least three whatever the broken one is.
    let (_, outcome) = kept(&plan(&[COUNT], &[&threshold(20)]), &records, None);
    assert!(outcome.answer.complete);
}

#[test]
fn a_run_stops_when_all_its_rules_are_met() {
    let examples = "{ reduce = \"some\", rule = \"examples\", k = 5 }";
    let best = "{ reduce = \"best\", rule = \"top_k\" }";
    let plan = plan(&[COUNT, SET, TOP], &[&threshold(4), examples, best]);
    let (home, outcome) = kept(&plan, &records(90), None);
    assert_eq!(findings(&home), [""; 0]);
    // From 89 down, the fifth good one is 75.
    assert_eq!(stopped_after(&outcome), Some(15));
    let reason = &outcome.facts[0].reason;
    let wanted = "stopped by rule: threshold of many and examples of some and top_k of best";
    assert_eq!(reason.as_deref(), Some(wanted));
}

#[test]
fn a_limit_cuts_in_the_order_of_turns_and_is_told_apart_from_the_rule() {
    let rule = "{ reduce = \"best\", rule = \"top_k\" }";
    let (home, outcome) = kept(&plan(&[TOP], &[rule]), &records(60), Some(5));
    assert_eq!(findings(&home), [""; 0]);
    assert_eq!(with(&outcome, Status::Decided), [55, 56, 57, 58, 59]);
    let limited = outcome
        .facts
        .iter()
        .filter(|fact| fact.reason.as_deref() == Some("limit"));
    assert_eq!(limited.count(), 55);
    assert!(!outcome.answer.complete && stopped_after(&outcome).is_none());
}

#[test]
fn a_warm_run_a_cold_one_and_one_answered_backwards_agree() {
    let examples = "{ reduce = \"some\", rule = \"examples\", k = 5 }";
    let plan = plan(&[COUNT, SET], &[&threshold(4), examples]);
    let records = records(700);
    let store = MemoryStore::new();
    let setup = || Setup {
        memo: Some(&store),
        ..Setup::default()
    };
    let cold = go(&plan, &records, &mut reader(), setup());
    let mut again = reader();
    let warm = go(&plan, &records, &mut again, setup());
    assert!(again.shown.is_empty(), "all that counts was remembered");
    assert_eq!(cold.answer, warm.answer);
    let bare = go(&plan, &records, &mut reader(), Setup::default());
    assert_eq!(cold.answer.result_hash, bare.answer.result_hash);
    let mut backwards = super::script::Script::new();
    backwards.reverse = true;
    let mut forwards = super::script::Script::new();
    let units = units(&plan, &records);
    let (forwards, _) = run_with(&plan, &units, &mut forwards, Setup::default()).unwrap();
    let (backwards, _) = run_with(&plan, &units, &mut backwards, Setup::default()).unwrap();
    assert_eq!(forwards.answer, backwards.answer);
}

#[test]
fn equal_texts_of_different_waves_are_asked_once() {
    let mut records = records(600);
    for record in &mut records {
        record["text"] = json!("it is bad");
    }
    let plan = plan(&[COUNT], &[&threshold(4)]);
    let mut reader = reader();
    let outcome = go(&plan, &records, &mut reader, Setup::default());
    assert_eq!(outcome.answer.coverage.decided, 600);
    assert_eq!(reader.shown.len(), 1);
    let (home, _) = kept(&plan, &records, None);
    assert_eq!(findings(&home), [""; 0]);
}

#[test]
fn stages_and_canaries_go_along_with_a_rule() {
    let more = "[[stage]]\nname = \"route\"\nop = \"select\"\nwhy = \"no field says it\"\n\
                rubric = \"Choose.\"\nquestion = \"What is to be done?\"\n\
                options = [{ name = \"judge\", run = [\"judge\"] }, { name = \"read\", run = [\"judge\"] }]\n\
                [[stage]]\nname = \"judge\"\nop = \"map\"\n\
                [canary]\nevery = 5\nseed = \"s\"\n";
    let canaries: String = (0..4).map(|id| format!(
        "[[canary.record]]\nrecord = {{ id = \"c{id}\", text = \"known good {id}\" }}\nexpect = {{ good = \"yes\" }}\n"
    )).collect();
    let more = &format!("{more}{canaries}");
    let text = text_of(&[COUNT], more, &[&threshold(30)]);
    let plan = Plan::parse(&text, "plan.toml").unwrap();
    let (home, outcome) = kept(&plan, &records(700), None);
    assert_eq!(findings(&home), [""; 0]);
    assert!(stopped_after(&outcome).is_some() && outcome.answer.complete);
    assert_eq!(claim(&outcome, "many").value, json!({ "at_least": 30 }));
    let decided = outcome
        .facts
        .iter()
        .filter(|fact| fact.status == Status::Decided);
    assert!(decided.clone().all(|fact| fact.path.len() == 2));
    let left_out = outcome.facts.iter().filter(|fact| is_left_out(fact));
    assert!(
        left_out
            .clone()
            .all(|fact| fact.path.is_empty() && fact.stage == "route")
    );
    let named: Vec<&str> = outcome
        .usage
        .ladder
        .iter()
        .map(|rung| rung.name.as_str())
        .collect();
    assert_eq!(named, ["old", "sure", "route", "judge"]);
}

#[test]
fn what_tools_showed_of_units_that_were_left_out_is_left_out_too() {
    use super::tool_stages;
    let home = tempfile::tempdir().unwrap();
    let input = home.path().join("issues.json");
    std::fs::write(&input, serde_json::to_vec(&tool_stages::issues()).unwrap()).unwrap();
    let rule = "[control]\nstop = [{ reduce = \"locked\", rule = \"examples\", k = 2 }]\n";
    let text = tool_stages::plan("", "").text + rule;
    let plan = Plan::parse(&text, "plan.toml").unwrap();
    let path = home.path().join("run");
    let ran = tool_stages::go(&plan, tool_stages::threads(), (None, Some(&path)), false).unwrap();
    assert!(stopped_after(&ran.outcome).is_some());
    let observed = |fact: &&Fact| fact.path.iter().any(|step| step.observed.is_some());
    let observed = ran.outcome.facts.iter().filter(observed).count();
    let rows = std::fs::read_to_string(path.join("observations.jsonl")).unwrap();
    assert_eq!(rows.lines().count(), observed);
    assert!(
        observed < ran.calls.len(),
        "more was called for than counts"
    );
    let report = verify_directory(&path, Some(&input)).unwrap();
    let found: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
    let excluded = |finding: &&String| !finding.contains("which only answers");
    assert_eq!(found.iter().filter(excluded).count(), 0, "{found:?}");
}
