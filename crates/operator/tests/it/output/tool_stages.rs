//! Tool stages in a run: who is called, what later stages read of it, and what becomes of failures.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use operator::fact::{Fact, Status};
use operator::infer::{
    Answer, BackendIdentity, CancelFlag, Completion, Infer, InferError, InferJob, JobUsage,
    UnitOutcome, UnitUsage,
};
use operator::plan::Plan;
use operator::run::{RunOptions, RunOutcome, run};
use operator::run_directory::RunDirectory;
use operator::store::{MemoryStore, Store};
use operator::tool::{
    Arguments, Call, Capability, Clock, OpenTool, Reply, Tool, ToolError, Toolbox,
};
use operator::verify::verify_directory;
use operator::{OperatorError, event::EventLine};
use serde_json::{Value, json};

use super::script::units;

const PLAN: &str = r#"
version = 1
question = "Which issues lock people out?"
rubric = "Judge one issue."

[input]
id = "number"
text = [{ field = "title", max_chars = 200 }]
evidence = "first_line"

[budget]
BUDGET

[[tool]]
name = "issue_comments"
kind = "file"
root = "."
file = "{number}.json"
arguments = { number = { field = "thread", type = "integer" } }
backoff_ms = 1
attempts_max = 2
max_age = 100

[[stage]]
name = "route"
op = "select"
why = "the title alone does not say it"
rubric = "You route issues."
question = "What has to be done?"
options = [
  { name = "judge", run = ["judge"] },
  { name = "look", run = ["comments", "judge"] },
  { name = "drop", then = "exclude" },
]

[[stage]]
name = "comments"
op = "tool"
tool = "issue_comments"
fields = ["by", "body"]
max_chars = 120
SPLIT

[[stage]]
name = "judge"
op = "map"

[[field]]
name = "locked"
question = "Are people locked out?"
labels = ["yes", "no"]

[[reduce]]
name = "locked"
op = "set"
where = { locked = "yes" }
"#;

pub const SPLIT: &str = r#"split = { over_chars = 60, part_chars = 40, parts_max = 4, rubric = "Read one comment.", question = "Does it matter?", labels = ["matters", "idle"], keep = "matters" }"#;

pub fn plan(budget: &str, split: &str) -> Plan {
    let text = PLAN.replace("BUDGET", budget).replace("SPLIT", split);
    Plan::parse(&text, "plan.toml").unwrap()
}

/// Answers by what the text says, and keeps what it was asked.
#[derive(Default)]
pub struct Reader {
    pub jobs: Vec<(String, Vec<String>)>,
}

fn choice(question: &str, text: &str) -> &'static str {
    match question {
        "route" if text.contains('?') => "look",
        "route" if text.contains("manual") => "drop",
        "route" => "judge",
        "comments" if text.contains("door") => "matters",
        "comments" => "idle",
        _ if text.contains("shut") => "yes",
        _ => "no",
    }
}

impl Infer for Reader {
    fn identity(&self) -> &BackendIdentity {
        static IDENTITY: std::sync::OnceLock<BackendIdentity> = std::sync::OnceLock::new();
        IDENTITY.get_or_init(|| BackendIdentity {
            name: String::from("reader"),
            digest: [3; 32],
            simulated: false,
            describe: String::from("answers by words"),
        })
    }

    fn infer(
        &mut self,
        job: InferJob<'_>,
        sink: &mut dyn FnMut(Completion),
    ) -> Result<JobUsage, InferError> {
        let mut texts = Vec::new();
        let usage = UnitUsage {
            prompt_tokens: 50,
            computed_tokens: 10,
            cached_tokens: 40,
            micros: 1,
        };
        for place in 0..job.units.len() {
            if job.cancel.is_cancelled() {
                break;
            }
            let unit = job.units.text(place).unwrap();
            let answer = |question: &operator::infer::Question| {
                let labels = question.labels.of(&unit);
                let wanted = choice(&question.field, &unit.text);
                let named = labels.iter().position(|label| label == wanted);
                // The last line is what supports it.
                let chosen = match question.field.as_str() {
                    "evidence" => labels.len() - 1,
                    _ => named.unwrap(),
                };
                if labels.len() == 1 {
                    return Answer::from_ppm(vec![1_000_000], 990_000).unwrap();
                }
                let mut shares = vec![100_000; labels.len()];
                shares[chosen] = 1_000_000 - 100_000 * (labels.len() as u32 - 1);
                Answer::from_ppm(shares, 990_000).unwrap()
            };
            texts.push(unit.text.clone());
            sink(Completion {
                unit_id: job.units.id(place).clone(),
                outcome: UnitOutcome::Answered(job.questions.iter().map(answer).collect()),
                usage,
            });
        }
        self.jobs.push((job.questions[0].field.clone(), texts));
        Ok(JobUsage::default())
    }
}

/// Threads of comments by number; it counts its calls.
#[derive(Default)]
pub struct Threads {
    pub threads: BTreeMap<String, String>,
    calls: Mutex<Vec<String>>,
    cancel: Option<Arc<CancelFlag>>,
}

impl Tool for Threads {
    fn scope(&self) -> &str {
        "here"
    }

    fn resource(&self, _arguments: &Arguments) -> Result<String, ToolError> {
        Ok("here".to_owned())
    }

    fn call(&self, arguments: &Arguments, _call: &Call) -> Result<Reply, ToolError> {
        let number = arguments.text("number").into_owned();
        self.calls.lock().unwrap().push(number.clone());
        if let Some(cancel) = &self.cancel {
            cancel.cancel();
        }
        match self.threads.get(&number) {
            None => Err(ToolError::unavailable("the line is dead")),
            Some(body) => Ok(Reply {
                body: body.clone().into_bytes(),
                media: "application/json".to_owned(),
                truncated: false,
                from: format!("{number}.json"),
            }),
        }
    }
}

pub struct Now;

impl Clock for Now {
    fn now_us(&self) -> u64 {
        static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
        let start = START.get_or_init(std::time::Instant::now);
        u64::try_from(start.elapsed().as_micros()).unwrap()
    }

    fn unix_seconds(&self) -> u64 {
        1_000
    }
}

pub fn threads() -> Threads {
    let thread = |comments: &[(&str, &str)]| {
        let comments = comments.iter();
        let comments = comments.map(|(by, body)| json!({ "by": by, "body": body, "id": 1 }));
        Value::from_iter(comments).to_string()
    };
    Threads {
        threads: BTreeMap::from([
            ("7".to_owned(), thread(&[("ann", "the door is shut")])),
            ("8".to_owned(), thread(&[])),
            (
                "9".to_owned(),
                thread(&[
                    ("ann", "nothing to see here at all"),
                    ("bob", "the door is shut for all of us"),
                    ("cid", "thanks, shut up, closing words"),
                ]),
            ),
            ("10".to_owned(), thread(&[("ann", "a b"); 30])),
            ("11".to_owned(), "no JSON".to_owned()),
        ]),
        ..Threads::default()
    }
}

pub fn issues() -> Vec<Value> {
    let issue = |number: u32, title: &str, thread: Value| json!({ "number": number, "title": title, "thread": thread });
    vec![
        issue(1, "shut out", json!(1)),
        issue(2, "out?", json!(7)),
        issue(3, "in the manual", json!(7)),
        issue(4, "out or not?", json!(7)),
        issue(5, "who knows?", json!(8)),
        issue(6, "long story?", json!(9)),
        issue(7, "dead line?", json!(12)),
        issue(8, "no thread?", Value::Null),
        issue(9, "odd thread?", json!(11)),
    ]
}

pub struct Ran {
    pub outcome: RunOutcome,
    events: Vec<EventLine>,
    pub reader: Reader,
    pub calls: Vec<String>,
}

impl Ran {
    pub fn fact(&self, id: &str) -> &Fact {
        let mut facts = self.outcome.facts.iter();
        facts.find(|fact| fact.unit_id.as_str() == id).unwrap()
    }

    fn ended(&self, id: &str) -> (Status, &str, &str) {
        let fact = self.fact(id);
        let reason = fact.reason.as_deref().unwrap_or_default();
        (fact.status, &fact.stage, reason)
    }

    fn label(&self, id: &str) -> &str {
        &self.fact(id).values["locked"].label
    }
}

pub fn go(
    plan: &Plan,
    tool: Threads,
    (memo, directory): (Option<&dyn Store>, Option<&Path>),
    redact: bool,
) -> Result<Ran, OperatorError> {
    let partition = units(plan, &issues());
    let mut reader = Reader::default();
    let mut events = Vec::new();
    let cancel = tool.cancel.clone().unwrap_or_default();
    let tool = Arc::new(tool);
    let spec = plan.tools[0].clone();
    let allowed = Capability::grant(&spec, &["issue_comments".to_owned()]).unwrap();
    let options = RunOptions {
        limit: None,
        redact,
        clock: &|| 0,
        cancel: &cancel,
        larger: None,
        tools: Some(Toolbox {
            open: vec![OpenTool::new(spec, allowed, tool.clone())],
            clock: &Now,
        }),
    };
    let mut directory =
        directory.map(|path| RunDirectory::create(path, "test", json!({})).unwrap());
    let outcome = run(
        plan,
        partition,
        &mut reader,
        memo,
        options,
        &mut events,
        directory.as_mut(),
    )?;
    let calls = tool.calls.lock().unwrap().clone();
    Ok(Ran {
        outcome,
        events,
        reader,
        calls,
    })
}

fn plainly(plan: &Plan) -> Ran {
    go(plan, threads(), (None, None), false).unwrap()
}

#[test]
fn a_tool_is_called_for_the_units_that_chose_it_and_later_stages_read_its_answer() {
    let ran = plainly(&plan("", ""));
    let mut calls = ran.calls.clone();
    calls.sort();
    // One thread for two issues, and a dead one tried again.
    assert_eq!(calls, ["11", "12", "12", "7", "8", "9"]);
    let (field, texts) = ran.reader.jobs.last().unwrap();
    assert_eq!(field, "locked");
    assert!(texts.contains(&"title: out?\ncomments: ann: the door is shut".to_owned()));
    assert!(texts.contains(&"title: who knows?\ncomments: (empty)".to_owned()));
    let labels: Vec<&str> = ["1", "2", "4", "5"].map(|id| ran.label(id)).to_vec();
    assert_eq!(labels, ["yes", "yes", "yes", "no"]);
    assert_eq!(ran.ended("3").0, Status::Excluded);
    let path: Vec<(&str, &str)> = ran
        .fact("2")
        .path
        .iter()
        .map(|s| (&*s.stage, &*s.outcome))
        .collect();
    let whole = [
        ("route", "look"),
        ("comments", "observed"),
        ("judge", "answered"),
    ];
    assert_eq!(path, whole);
    let usage = ran.outcome.usage.tools;
    assert_eq!(
        (usage.requests, usage.duplicates, usage.calls, usage.retries),
        (6, 1, 6, 1)
    );
}

#[test]
fn a_failed_call_is_an_error_of_its_unit_and_no_answer() {
    let ran = plainly(&plan("", ""));
    for (id, reason) in [
        (
            "7",
            "unavailable: the line is dead (tool issue_comments, after 2 calls)",
        ),
        (
            "8",
            "malformed: the record has no \"thread\" (tool issue_comments)",
        ),
        (
            "9",
            "malformed: the stage names fields, and the reply is no JSON",
        ),
    ] {
        let (status, stage, said) = ran.ended(id);
        assert_eq!((status, stage), (Status::Errored, "comments"), "{id}");
        assert!(said.starts_with(reason), "{id}: {said}");
        assert!(ran.fact(id).values.is_empty());
    }
    assert!(!ran.outcome.answer.complete);
    let counts = ran.outcome.answer.coverage;
    assert_eq!(
        (
            counts.units,
            counts.decided,
            counts.errored,
            counts.excluded
        ),
        (9, 5, 3, 1)
    );
}

#[test]
fn a_tool_that_is_not_allowed_stops_the_run_before_anything_is_asked() {
    let plan = plan("", "");
    let partition = units(&plan, &issues());
    let mut reader = Reader::default();
    let options = RunOptions {
        limit: None,
        redact: false,
        clock: &|| 0,
        cancel: &CancelFlag::new(),
        larger: None,
        tools: None,
    };
    let error = run(&plan, partition, &mut reader, None, options, &mut (), None).unwrap_err();
    let message = error.to_string();
    assert!(
        message.contains("stage \"comments\" calls the tool \"issue_comments\""),
        "{message}"
    );
    assert!(
        message.contains("reads files below .; pass --allow issue_comments"),
        "{message}"
    );
    assert!(reader.jobs.is_empty());
}

#[test]
fn a_long_answer_becomes_parts_of_which_the_kept_ones_are_read() {
    let ran = plainly(&plan("", SPLIT));
    let parts = ran
        .reader
        .jobs
        .iter()
        .find(|(field, _)| field == "comments")
        .unwrap();
    assert_eq!(
        parts.1,
        [
            "comments: ann: nothing to see here at all",
            "comments: bob: the door is shut for all of us",
            "comments: cid: thanks, shut up, closing words",
        ]
    );
    let (_, judged) = ran.reader.jobs.last().unwrap();
    let read = "title: long story?\ncomments: bob: the door is shut for all of us";
    assert!(judged.contains(&read.to_owned()), "{judged:?}");
    let fact = ran.fact("6");
    assert_eq!(fact.path[1].cost.prompt_tokens, 150);
    assert_eq!(fact.cost.prompt_tokens, 250);
    let done = ran.events.iter().find_map(|line| match &line.event {
        operator::event::Event::PartsDone {
            answers,
            parts,
            kept,
            ..
        } => Some((*answers, *parts, *kept)),
        _ => None,
    });
    assert_eq!(done, Some((1, 3, 1)));
    // Without the cut the last comment would have been read as well.
    let whole = plainly(&plan("", ""));
    let (_, judged) = whole.reader.jobs.last().unwrap();
    assert!(judged.iter().any(|text| text.contains("closing words")));
}

#[test]
fn an_answer_of_too_many_parts_is_an_error_of_its_unit() {
    let mut issues = issues();
    issues.truncate(1);
    let mut tool = threads();
    let many = tool.threads["10"].clone();
    tool.threads.insert("7".to_owned(), many);
    let ran = go(&plan("", SPLIT), tool, (None, None), false).unwrap();
    let (status, stage, reason) = ran.ended("2");
    assert_eq!((status, stage), (Status::Errored, "comments"));
    assert!(reason.contains("30 parts, parts_max is 4"), "{reason}");
}

#[test]
fn answers_of_tools_and_models_are_remembered_and_a_changed_one_is_judged_anew() {
    let (plan, memo) = (plan("", SPLIT), MemoryStore::new());
    let first = go(&plan, threads(), (Some(&memo), None), false).unwrap();
    let again = go(&plan, threads(), (Some(&memo), None), false).unwrap();
    // What failed is tried again.
    assert_eq!(again.calls.iter().filter(|call| *call != "12").count(), 0);
    assert!(again.reader.jobs.is_empty());
    assert_eq!(
        again.outcome.answer.result_hash,
        first.outcome.answer.result_hash
    );
    assert!(again.fact("2").remembered && again.fact("6").remembered);
    let mut changed = threads();
    changed
        .threads
        .insert("7".to_owned(), r#"[{"body":"all is well"}]"#.to_owned());
    let fresh = Plan::parse(
        &plan.text.replace("max_age = 100", "max_age = 0"),
        "plan.toml",
    )
    .unwrap();
    let third = go(&fresh, changed, (Some(&memo), None), false).unwrap();
    assert_eq!(third.label("2"), "no");
    assert_eq!(third.reader.jobs.len(), 1);
    assert_eq!(
        third.reader.jobs[0].1.len(),
        2,
        "only the new texts are asked"
    );
}

#[test]
fn budget_and_cancellation_leave_units_not_run_and_lose_none() {
    let ran = plainly(&plan("tool_calls_max = 1", ""));
    let counts = ran.outcome.answer.coverage;
    assert_eq!(ran.calls.len(), 1);
    assert_eq!(counts.units, 9);
    assert!(counts.not_run > 0, "{counts:?}");
    let not_run = ran
        .outcome
        .facts
        .iter()
        .find(|fact| fact.status == Status::NotRun)
        .unwrap();
    assert_eq!(not_run.stage, "comments");
    assert!(
        not_run.reason.as_ref().unwrap().contains("calls"),
        "{:?}",
        not_run.reason
    );

    let mut tool = threads();
    tool.cancel = Some(Arc::new(CancelFlag::new()));
    let ran = go(&plan("", ""), tool, (None, None), false).unwrap();
    let counts = ran.outcome.answer.coverage;
    assert_eq!(counts.units, 9);
    assert!(counts.not_run + counts.cancelled > 0, "{counts:?}");
    assert!(!ran.outcome.answer.complete);
}

/// What a report finds, but for how a selector's exclusion is told.
fn wrong(report: &operator::verify::Report) -> Vec<String> {
    let findings = report.findings.iter().map(ToString::to_string);
    findings
        .filter(|finding| !finding.contains("which only answers"))
        .collect()
}

#[test]
fn citations_lead_to_what_a_tool_answered_and_a_changed_answer_is_found() {
    let home = tempfile::tempdir().unwrap();
    let input = home.path().join("issues.json");
    std::fs::write(&input, serde_json::to_vec(&issues()).unwrap()).unwrap();
    let text = PLAN.replace("BUDGET", "").replace("SPLIT", SPLIT);
    let text = text.replace("first_line", "model");
    let plan = Plan::parse(&text, "plan.toml").unwrap();
    for redact in [false, true] {
        let path = home.path().join(format!("run-{redact}"));
        let ran = go(&plan, threads(), (None, Some(&path)), redact).unwrap();
        assert_eq!(ran.fact("2").evidence[0].field, "comments");
        let report = verify_directory(&path, Some(&input)).unwrap();
        assert_eq!(wrong(&report), [""; 0], "redact {redact}");
        let rows = std::fs::read_to_string(path.join("observations.jsonl")).unwrap();
        assert_eq!(rows.contains("the door is shut"), !redact);
        assert_eq!(rows.lines().count(), 4);
    }
    let path = home.path().join("run-false");
    let file = path.join("observations.jsonl");
    let rows = std::fs::read_to_string(&file).unwrap();
    for (from, to, part) in [
        (
            "ann: the door is shut\"",
            "ann: the door is open\"",
            "its text hashes to",
        ),
        (
            "\"label\":\"idle\"",
            "\"label\":\"matters\"",
            "what was kept hashes to",
        ),
        (
            "\"stage\":\"comments\"",
            "\"stage\":\"judge\"",
            "no such tool stage",
        ),
        ("\"start\":32", "\"start\":33", "leaves something out"),
        (
            "\"tool\":\"issue_comments\"",
            "\"tool\":\"other\"",
            "the stage calls issue_comments",
        ),
    ] {
        assert!(rows.contains(from), "{from}: {rows}");
        std::fs::write(&file, rows.replacen(from, to, 1)).unwrap();
        let report = verify_directory(&path, Some(&input)).unwrap();
        let said = wrong(&report);
        assert!(
            said.iter().any(|finding| finding.contains(part)),
            "{from}: {said:?}"
        );
    }
    let first = rows.lines().next().unwrap();
    std::fs::write(&file, rows.replacen(&format!("{first}\n"), "", 1)).unwrap();
    let report = verify_directory(&path, Some(&input)).unwrap();
    let said = wrong(&report);
    assert!(
        said.iter()
            .any(|finding| finding.contains("nothing says what")),
        "{said:?}"
    );
}
