//! Canaries in whole runs: planted, judged, and nowhere to be found afterwards.

use std::collections::BTreeMap;

use operator::breaker::Trip;
use operator::event::{Event, EventLine};
use operator::fact::Status;
use operator::id::FactKey;
use operator::infer::{
    Answer, BackendIdentity, Completion, FailReason, Infer, InferError, InferJob, JobUsage,
    UnitOutcome, UnitUsage,
};
use operator::ops::Partition;
use operator::plan::Plan;
use operator::run::RunOutcome;
use operator::run_directory::RunDirectory;
use operator::store::{FactStore, MemoryStore};
use serde_json::json;

use super::script::{Setup, run_with, units};

/// A plan over texts that say `good` or `bad`, with so many inline canaries.
pub fn plan_with(canaries: u32, table: &str) -> Plan {
    let mut text = format!(
        "version = 1\nquestion = \"Which are good?\"\nrubric = \"Judge one.\"\n\
         [input]\nid = \"id\"\ntext = [{{ field = \"text\" }}]\n\
         [[prefilter]]\nname = \"old\"\nwhen = {{ field = \"old\", op = \"eq\", value = true }}\n\
         action = \"exclude\"\n\
         [[field]]\nname = \"good\"\nquestion = \"Is it good?\"\nlabels = [\"yes\", \"no\"]\n\
         abstain_below_margin = 0.1\n\
         [[reduce]]\nname = \"good\"\nop = \"count\"\nwhere = {{ good = \"yes\" }}\n\
         [[reduce]]\nname = \"all\"\nop = \"set\"\ncontract = \"exhaustive\"\n{table}"
    );
    if canaries > 0 && !table.contains("[canary]") {
        text.push_str("[canary]\nevery = 5\nseed = \"s\"\n");
    }
    for id in 0..canaries {
        let (word, label) = [("good", "yes"), ("bad", "no")][id as usize % 2];
        text.push_str(&format!(
            "[[canary.record]]\nrecord = {{ id = \"c{id}\", text = \"known {word} {id}\" }}\n\
             expect = {{ good = \"{label}\" }}\n"
        ));
    }
    Plan::parse(&text, "plan.toml").unwrap()
}

pub fn records(count: u32) -> Vec<serde_json::Value> {
    (0..count)
        .map(|id| {
            let word = if id % 3 == 0 { "good" } else { "bad" };
            json!({ "id": id, "text": format!("it is {word}, number {id}"), "old": id % 10 == 9 })
        })
        .collect()
}

/// What a reader does, given its call's number and the text.
type Say = Box<dyn FnMut(usize, &str) -> UnitOutcome>;

/// Reads texts as told.
pub struct Reader {
    identity: BackendIdentity,
    say: Say,
    /// Every text that it was shown.
    pub shown: Vec<String>,
    /// Reports what was not reached as cancelled, as the local backend does.
    reports_cancelled: bool,
}

pub fn answer(yes: bool, margin: u32) -> UnitOutcome {
    let (high, low) = ((1_000_000 + margin) / 2, (1_000_000 - margin) / 2);
    let shares = if yes {
        vec![high, low]
    } else {
        vec![low, high]
    };
    UnitOutcome::Answered(vec![Answer::from_ppm(shares, 1_000_000).unwrap()])
}

impl Reader {
    pub fn new(say: impl FnMut(usize, &str) -> UnitOutcome + 'static) -> Self {
        Self {
            identity: BackendIdentity {
                name: String::from("reader"),
                digest: [3; 32],
                simulated: false,
                describe: String::from("reads as told"),
            },
            say: Box::new(say),
            shown: Vec::new(),
            reports_cancelled: true,
        }
    }

    pub fn named(mut self, name: &str, digest: u8) -> Self {
        self.identity.name = name.to_owned();
        self.identity.digest = [digest; 32];
        self
    }

    /// Answers what the text says.
    pub fn sound() -> Self {
        Self::new(|_, text| answer(text.contains("good"), 800_000))
    }

    /// Answers the opposite.
    pub fn inverted() -> Self {
        Self::new(|_, text| answer(!text.contains("good"), 800_000))
    }

    fn canaries(&self) -> usize {
        self.shown
            .iter()
            .filter(|text| text.contains("known"))
            .count()
    }
}

impl Infer for Reader {
    fn identity(&self) -> &BackendIdentity {
        &self.identity
    }

    fn infer(
        &mut self,
        job: InferJob<'_>,
        sink: &mut dyn FnMut(Completion),
    ) -> Result<JobUsage, InferError> {
        for place in 0..job.units.len() {
            let outcome = if !job.cancel.is_cancelled() {
                let text = job.units.text(place).unwrap().text;
                self.shown.push(text.clone());
                (self.say)(self.shown.len(), &text)
            } else if self.reports_cancelled {
                UnitOutcome::Cancelled
            } else {
                break;
            };
            let (unit_id, usage) = (job.units.id(place).clone(), UnitUsage::default());
            sink(Completion {
                unit_id,
                outcome,
                usage,
            });
        }
        Ok(JobUsage::default())
    }
}

fn go(
    plan: &Plan,
    partition: &Partition,
    reader: &mut Reader,
    store: Option<&MemoryStore>,
) -> (RunOutcome, Vec<EventLine>) {
    let setup = Setup {
        memo: store.map(|store| store as _),
        ..Setup::default()
    };
    run_with(plan, partition, reader, setup).unwrap()
}

fn judged(events: &[EventLine]) -> usize {
    let is_canary = |line: &&EventLine| matches!(line.event, Event::Canary { .. });
    events.iter().filter(is_canary).count()
}

#[test]
fn canaries_are_asked_and_leave_no_trace_in_the_answer() {
    let records = records(60);
    let (with, without) = (plan_with(8, ""), plan_with(0, ""));
    let mut reader = Reader::sound();
    let (watched, events) = go(&with, &units(&with, &records), &mut reader, None);
    assert_eq!((reader.canaries(), judged(&events)), (8, 8));
    let (bare, _) = go(
        &without,
        &units(&without, &records),
        &mut Reader::sound(),
        None,
    );
    assert_eq!(watched.facts, bare.facts);
    assert_eq!(watched.answer.claims, bare.answer.claims);
    assert_eq!(watched.answer.coverage, bare.answer.coverage);
    assert_eq!(watched.trip, None);
    assert_ne!(
        with.hash(),
        without.hash(),
        "what was declared is part of the plan"
    );
    // Among the records, not before or after them.
    let places: Vec<usize> = (0..reader.shown.len())
        .filter(|&place| reader.shown[place].contains("known"))
        .collect();
    assert!(
        places.windows(2).all(|two| two[1] - two[0] >= 2),
        "{places:?}"
    );
    assert!(
        places.windows(2).any(|two| two[1] - two[0] != 6),
        "{places:?}"
    );
    let in_progress = events.iter().filter_map(|line| match &line.event {
        Event::Unit { id, .. } => Some(id.as_str()),
        _ => None,
    });
    assert!(in_progress.into_iter().all(|id| id.parse::<u32>().is_ok()));
}

#[test]
fn places_follow_from_seed_and_input() {
    let order = |seed: &str, count: u32| {
        let table = format!("[canary]\nevery = 5\nseed = \"{seed}\"\n");
        let plan = plan_with(8, &table);
        let mut reader = Reader::sound();
        go(&plan, &units(&plan, &records(count)), &mut reader, None);
        reader.shown
    };
    assert_eq!(order("a", 60), order("a", 60));
    assert_ne!(order("a", 60), order("b", 60));
    let canaries = |shown: Vec<String>| -> Vec<String> {
        shown
            .into_iter()
            .filter(|text| text.contains("known"))
            .collect()
    };
    assert_ne!(canaries(order("a", 60)), canaries(order("a", 61)));
}

#[test]
fn canaries_are_never_remembered_and_a_warm_run_asks_nothing() {
    let plan = plan_with(8, "");
    let partition = units(&plan, &records(60));
    let store = MemoryStore::new();
    let (cold, _) = go(&plan, &partition, &mut Reader::sound(), Some(&store));
    let mut warm_reader = Reader::sound();
    let (warm, events) = go(&plan, &partition, &mut warm_reader, Some(&store));
    assert_eq!((warm_reader.shown.len(), judged(&events)), (0, 0));
    assert_eq!(warm.answer.result_hash, cold.answer.result_hash);
    // One changed record is asked again, and a canary with it: its answer was not kept.
    let mut changed = records(60);
    changed[4]["text"] = json!("it is good now");
    let mut reader = Reader::sound();
    go(&plan, &units(&plan, &changed), &mut reader, Some(&store));
    assert_eq!((reader.shown.len(), reader.canaries()), (2, 1));
    // As many answers as there are texts of records, plus the changed one; facts and nodes aside.
    let distinct = 54 + 1;
    let unwatched = plan_with(0, "");
    let mut again = Reader::sound();
    go(
        &unwatched,
        &units(&unwatched, &records(60)),
        &mut again,
        Some(&store),
    );
    assert_eq!(
        again.shown.len(),
        0,
        "{distinct} answers are there for everyone"
    );
}

#[test]
fn a_defective_rubric_stops_the_run_and_nothing_of_it_is_a_fact_or_remembered() {
    let plan = plan_with(8, "");
    let partition = units(&plan, &records(60));
    let store = MemoryStore::new();
    for reports_cancelled in [true, false] {
        let mut reader = Reader::inverted();
        reader.reports_cancelled = reports_cancelled;
        let (outcome, events) = go(&plan, &partition, &mut reader, Some(&store));
        let Some(Trip::Canary { judged, misses, .. }) = outcome.trip else {
            panic!("{:?}", outcome.trip)
        };
        assert_eq!((judged, misses, reader.canaries()), (3, 3, 3));
        let reason = "breaker open: 3 of 3 canaries got a wrong answer";
        let left = outcome
            .facts
            .iter()
            .filter(|fact| fact.status == Status::NotRun);
        assert!(left.clone().count() > 30);
        assert!(
            left.clone()
                .all(|fact| fact.reason.as_deref() == Some(reason))
        );
        assert_eq!(outcome.answer.coverage.cancelled, 0);
        assert!(
            outcome
                .facts
                .iter()
                .any(|fact| fact.status == Status::Decided)
        );
        assert!(
            outcome
                .answer
                .claims
                .iter()
                .all(|claim| { claim.refused.as_deref() == Some(reason) && claim.value.is_null() })
        );
        let quarantine = outcome.answer.quarantine.as_ref().unwrap();
        assert_eq!(quarantine.reason, reason);
        assert_eq!(outcome.answer.result_hash, outcome.answer.hash_result());
        let opened = events
            .iter()
            .filter(|line| matches!(line.event, Event::BreakerOpen { .. }));
        assert_eq!(opened.count(), 1);
        assert_eq!(store.len(), 0, "answers, facts and nodes are all withheld");
    }
}

/// Every key that a run may have put, as a plan without canaries would look it up.
fn is_known(store: &MemoryStore, partition: &Partition) -> usize {
    let plan = plan_with(0, "");
    let mut reader = Reader::sound();
    go(&plan, partition, &mut reader, None);
    let texts = reader.shown.len();
    let mut again = Reader::sound();
    let copy = Forgetful(store);
    let setup = Setup {
        memo: Some(&copy),
        ..Setup::default()
    };
    run_with(&plan, partition, &mut again, setup).unwrap();
    texts - again.shown.len()
}

/// Looks answers up and keeps nothing.
struct Forgetful<'s>(&'s MemoryStore);

impl FactStore for Forgetful<'_> {
    fn get(&self, key: &FactKey) -> Option<operator::store::StoredAnswers> {
        self.0.get(key)
    }

    fn put(
        &self,
        _: &FactKey,
        _: &operator::store::StoredAnswers,
    ) -> Result<(), operator::OperatorError> {
        Ok(())
    }

    fn exchange(
        &self,
        _: &[(FactKey, operator::store::StoredAnswers)],
        _: &[FactKey],
    ) -> Result<(), operator::OperatorError> {
        Ok(())
    }
}

impl operator::store::ContentStore for Forgetful<'_> {
    fn get_bytes(&self, _: operator::store::Kind, _: &[u8; 32]) -> Option<Vec<u8>> {
        None
    }

    fn put_bytes(
        &self,
        _: operator::store::Kind,
        _: &[([u8; 32], Vec<u8>)],
    ) -> Result<(), operator::OperatorError> {
        Ok(())
    }
}

#[test]
fn answers_of_a_run_that_broke_off_are_taken_up_but_only_once_canaries_have_vouched() {
    let plan = plan_with(8, "");
    let partition = units(&plan, &records(60));
    let store = MemoryStore::new();
    // All records are answered, then the backend is lost: the run is not at its end.
    let mut lost = Lost(Reader::sound(), 62);
    let setup = Setup {
        memo: Some(&store),
        ..Setup::default()
    };
    let (broken, _) = run_with(&plan, &partition, &mut lost, setup).unwrap();
    assert!(broken.backend_failure.is_some());
    assert_eq!(broken.answer.coverage.not_run, 0);
    assert_eq!(
        is_known(&store, &partition),
        0,
        "nobody else sees its answers"
    );
    // The next run asks canaries alone, and then everyone sees the answers.
    let mut next = Reader::sound();
    go(&plan, &partition, &mut next, Some(&store));
    assert_eq!((next.shown.len(), next.canaries()), (1, 1));
    assert_eq!(is_known(&store, &partition), 54);
    // Had they failed, the answers would be gone.
    let other = MemoryStore::new();
    let setup = Setup {
        memo: Some(&other),
        ..Setup::default()
    };
    run_with(&plan, &partition, &mut Lost(Reader::inverted(), 9), setup).unwrap();
    let before = other.len();
    let (stopped, _) = go(&plan, &partition, &mut Reader::inverted(), Some(&other));
    assert!(stopped.trip.is_some() && before > 0);
    let mut fresh = Reader::sound();
    go(&plan, &partition, &mut fresh, Some(&other));
    assert_eq!(
        fresh.shown.len(),
        54 + 8,
        "what the stopped run found is gone as well"
    );
}

/// A reader that breaks after so many texts.
struct Lost(Reader, usize);

impl Infer for Lost {
    fn identity(&self) -> &BackendIdentity {
        self.0.identity()
    }

    fn infer(
        &mut self,
        job: InferJob<'_>,
        sink: &mut dyn FnMut(Completion),
    ) -> Result<JobUsage, InferError> {
        let mut left = self.1;
        let all = left >= job.units.len();
        self.0.infer(job, &mut |done| {
            if left > 0 {
                left -= 1;
                sink(done);
            }
        })?;
        assert!(all || left == 0);
        Err(InferError::Failed("device lost".into()))
    }
}

#[test]
fn remembered_answers_are_forgotten_where_the_rubric_fails_later() {
    let plan = plan_with(8, "");
    let store = MemoryStore::new();
    go(
        &plan,
        &units(&plan, &records(30)),
        &mut Reader::sound(),
        Some(&store),
    );
    assert_eq!(is_known(&store, &units(&plan, &records(30))), 27);
    let (stopped, _) = go(
        &plan,
        &units(&plan, &records(90)),
        &mut Reader::inverted(),
        Some(&store),
    );
    assert!(stopped.trip.is_some());
    assert_eq!(is_known(&store, &units(&plan, &records(30))), 0);
}

#[test]
fn an_abstention_counts_as_declared() {
    let opened = |rule: &str| {
        let table = format!("[canary]\nevery = 5\nabstention = \"{rule}\"\n");
        let plan = plan_with(8, &table);
        let mut reader = Reader::new(|_, text| answer(text.contains("good"), 50_000));
        let (outcome, events) = go(&plan, &units(&plan, &records(60)), &mut reader, None);
        (outcome.trip.is_some(), judged(&events))
    };
    assert_eq!(opened("miss"), (true, 3));
    assert_eq!(opened("hit"), (false, 8));
    assert_eq!(opened("ignore"), (false, 8));
}

#[test]
fn a_reply_without_shape_is_a_miss_and_no_reply_is_neither() {
    let opened = |reason: FailReason| {
        let plan = plan_with(8, "");
        let mut reader = Reader::new(move |_, text| match text.contains("known") {
            true => UnitOutcome::Failed {
                reason,
                message: String::from("no"),
            },
            false => answer(true, 900_000),
        });
        let (outcome, _) = go(&plan, &units(&plan, &records(60)), &mut reader, None);
        outcome.trip.is_some()
    };
    assert!(opened(FailReason::Schema) && opened(FailReason::Truncated));
    assert!(!opened(FailReason::TooLarge) && !opened(FailReason::Backend));
}

#[test]
fn a_refusal_opens_the_breaker_at_once_and_the_rest_is_not_run() {
    let plan = plan_with(0, "");
    let partition = units(&plan, &records(300));
    let mut reader = Reader::new(|call, text| match call {
        0..100 => answer(text.contains("good"), 800_000),
        _ => UnitOutcome::Failed {
            reason: FailReason::Denied,
            message: String::from("401 Unauthorized"),
        },
    });
    let (outcome, _) = go(&plan, &partition, &mut reader, None);
    assert!(reader.shown.len() <= 102, "{} calls", reader.shown.len());
    let counts = outcome.answer.coverage;
    assert_eq!((counts.decided, counts.errored), (99, 1));
    assert_eq!(counts.not_run, 300 - 30 - 100);
    assert!(matches!(outcome.trip, Some(Trip::Denied { .. })));
    let reason = "breaker open: the backend refuses (401 Unauthorized)";
    let left = outcome
        .facts
        .iter()
        .filter(|fact| fact.status == Status::NotRun);
    assert!(
        left.into_iter()
            .all(|fact| fact.reason.as_deref() == Some(reason))
    );
}

#[test]
fn three_failures_to_reach_the_backend_in_a_row_open_the_breaker_and_scattered_ones_do_not() {
    let plan = plan_with(0, "");
    let partition = units(&plan, &records(100));
    let lost = || UnitOutcome::Failed {
        reason: FailReason::Transport,
        message: String::from("connection reset"),
    };
    let mut reader = Reader::new(move |call, text| match call {
        0..40 if call % 3 > 0 => lost(),
        0..40 => answer(text.contains("good"), 800_000),
        _ => lost(),
    });
    let (outcome, _) = go(&plan, &partition, &mut reader, None);
    assert_eq!(reader.shown.len(), 42);
    assert!(matches!(
        outcome.trip,
        Some(Trip::Transport { in_a_row: 3, .. })
    ));
    assert_eq!(outcome.answer.coverage.not_run, 90 - 42);
}

#[test]
fn a_lost_way_does_not_taint_what_was_answered_before() {
    let plan = plan_with(0, "");
    let partition = units(&plan, &records(100));
    let store = MemoryStore::new();
    let mut reader = Reader::new(|call, text| match call {
        0..=50 => answer(text.contains("good"), 800_000),
        _ => UnitOutcome::Failed {
            reason: FailReason::Denied,
            message: String::from("402"),
        },
    });
    go(&plan, &partition, &mut reader, Some(&store));
    let mut again = Reader::sound();
    let (outcome, _) = go(&plan, &partition, &mut again, Some(&store));
    assert_eq!(again.shown.len(), 40);
    assert!(outcome.answer.complete);
}

#[test]
fn an_exhaustive_claim_is_refused_while_a_unit_has_no_answer() {
    let plan = plan_with(0, "");
    let partition = units(&plan, &records(20));
    let (whole, _) = go(&plan, &partition, &mut Reader::sound(), None);
    assert!(whole.answer.claims[1].refused.is_none());
    let mut reader = Reader::new(|call, _| match call {
        4 | 7 => UnitOutcome::Failed {
            reason: FailReason::Backend,
            message: String::from("no"),
        },
        _ => answer(true, 800_000),
    });
    let (outcome, _) = go(&plan, &partition, &mut reader, None);
    let [open, sealed] = &outcome.answer.claims[..] else {
        panic!("two claims")
    };
    assert!(open.refused.is_none(), "{open:?}");
    let refused = sealed.refused.as_deref().unwrap();
    assert!(refused.contains("of 20 units 2 errored"), "{refused}");
    let setup = Setup {
        limit: Some(5),
        ..Setup::default()
    };
    let (limited, _) = run_with(&plan, &partition, &mut Reader::sound(), setup).unwrap();
    let refused = limited.answer.claims[1].refused.as_deref().unwrap();
    assert!(refused.contains("of 20 units 13 were not run"), "{refused}");
}

#[test]
fn canaries_come_from_a_file_and_bad_ones_are_told_with_their_place() {
    let home = tempfile::tempdir().unwrap();
    let load = |name: &str, content: &str, spec: &str| {
        std::fs::write(home.path().join(name), content).unwrap();
        let text = plan_with(0, &format!("[canary]\npath = \"{name}\"\n{spec}")).text;
        let plan = Plan::parse(&text, home.path().join("plan.toml").to_str().unwrap()).unwrap();
        operator::canary::load(&plan).map(|canaries| canaries.unwrap())
    };
    let rows: Vec<serde_json::Value> = (0..4)
        .map(|id| json!({ "id": id, "text": "known good", "expect": { "good": "yes" } }))
        .collect();
    let canaries = load("c.json", &json!(rows).to_string(), "").unwrap();
    assert_eq!(canaries.list.len(), 4);
    assert_eq!(
        canaries.list[0].expect,
        BTreeMap::from([(String::from("good"), String::from("yes"))])
    );
    let csv = "id,text,expect.good\n1,known good,yes\n2,known bad,no\n3,known bad,no\n";
    assert_eq!(load("c.csv", csv, "").unwrap().list.len(), 3);
    let refused = |name: &str, content: &str, spec: &str, parts: &[&str]| {
        let error = load(name, content, spec).unwrap_err().to_string();
        for part in parts {
            assert!(error.contains(part), "{error} lacks {part}");
        }
    };
    let row = |expect: serde_json::Value| {
        let rows = vec![json!({ "id": 1, "text": "x", "expect": expect }); 3];
        json!(rows).to_string()
    };
    refused(
        "d.json",
        &row(json!({ "good": "yse" })),
        "",
        &["d.json", "element 1", "\"yes\""],
    );
    refused(
        "e.json",
        &row(json!({ "god": "yes" })),
        "",
        &["e.json", "\"good\""],
    );
    refused(
        "f.json",
        &row(json!({})),
        "",
        &["f.json", "expects nothing"],
    );
    refused(
        "g.json",
        &json!([rows[0]]).to_string(),
        "",
        &["g.json", "add 2 or more"],
    );
    let empty = json!(vec![
        json!({ "id": 1, "text": "", "expect": { "good": "no" } });
        3
    ]);
    refused(
        "h.json",
        &empty.to_string(),
        "",
        &["h.json", "text fields are empty"],
    );
}

#[test]
fn an_unreadable_canary_file_stops_the_run_before_anything_is_asked() {
    let plan = plan_with(0, "[canary]\npath = \"nowhere.jsonl\"\n");
    let partition = units(&plan, &records(20));
    let mut reader = Reader::sound();
    let error = run_with(&plan, &partition, &mut reader, Setup::default()).unwrap_err();
    assert!(error.to_string().contains("nowhere.jsonl"), "{error}");
    assert!(reader.shown.is_empty());
}

#[test]
fn a_run_directory_has_no_canary_but_in_its_log() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("run");
    let plan = plan_with(8, "");
    let partition = units(&plan, &records(60));
    let mut directory = RunDirectory::create(&path, "0", json!({})).unwrap();
    let setup = Setup {
        directory: Some(&mut directory),
        ..Setup::default()
    };
    run_with(&plan, &partition, &mut Reader::sound(), setup).unwrap();
    for file in ["facts.jsonl", "nodes.jsonl", "answer.json", "answer.md"] {
        let text = std::fs::read_to_string(path.join(file)).unwrap();
        assert!(
            !text.contains("canary") && !text.contains("known"),
            "{file}"
        );
    }
    let log = std::fs::read_to_string(path.join("events.jsonl")).unwrap();
    assert_eq!(log.matches("\"type\":\"canary\"").count(), 8);
    let facts = std::fs::read_to_string(path.join("facts.jsonl")).unwrap();
    let smuggled = facts.replacen("\"unit_id\":\"4\"", "\"unit_id\":\"\\u0001canary/4\"", 1);
    assert_ne!(smuggled, facts);
    std::fs::write(path.join("facts.jsonl"), smuggled).unwrap();
    let report = operator::verify::verify_directory(&path, None).unwrap();
    let told = report
        .findings
        .iter()
        .any(|finding| finding.problem.contains("planted canary"));
    assert!(told, "{:?}", report.findings);
}

/// A selector, then a map stage; canaries know what both must answer.
fn staged() -> Plan {
    let table = "[[stage]]\nname = \"route\"\nop = \"select\"\nwhy = \"no field says it\"\n\
         rubric = \"Choose.\"\nquestion = \"What next?\"\n\
         options = [{ name = \"judge\", run = [\"judge\"] }, { name = \"drop\", then = \"exclude\" }]\n\
         [[stage]]\nname = \"judge\"\nop = \"map\"\n";
    let mut text = plan_with(0, table).text + "[canary]\nevery = 5\n";
    for id in 0..10 {
        let (word, next) = [("good", "judge"), ("bad", "drop")][id % 2];
        let label = if id % 2 == 0 { ", good = \"yes\"" } else { "" };
        text.push_str(&format!(
            "[[canary.record]]\nrecord = {{ id = \"c{id}\", text = \"known {word} {id}\" }}\n\
             expect = {{ route = \"{next}\"{label} }}\n"
        ));
    }
    Plan::parse(&text, "plan.toml").unwrap()
}

#[test]
fn every_stage_that_a_model_answers_has_its_own_canaries() {
    let plan = staged();
    let partition = units(&plan, &records(60));
    // Both stages say "yes" or its first option of what is good.
    let (outcome, events) = go(&plan, &partition, &mut Reader::sound(), None);
    assert_eq!(outcome.trip, None);
    let of = |field: &str| {
        let judged = events.iter().filter(|line| match &line.event {
            Event::Canary { got, .. } => got.contains_key(field),
            _ => false,
        });
        judged.count()
    };
    assert_eq!(
        (of("route"), of("good")),
        (10, 4),
        "one in five of 54 units, and of 18"
    );
    assert!(outcome.facts.iter().all(|fact| fact.path.len() <= 2));
    // A selector that chooses the opposite is noticed before anything is mapped.
    let (stopped, events) = go(&plan, &partition, &mut Reader::inverted(), None);
    assert!(matches!(stopped.trip, Some(Trip::Canary { judged: 3, .. })));
    let mapped = events.iter().filter(|line| match &line.event {
        Event::MapStarted { stage, .. } => stage == "judge",
        _ => false,
    });
    assert_eq!(mapped.count(), 0);
    assert_eq!(stopped.answer.coverage.units, 60);
    assert!(stopped.answer.coverage.not_run > 30);
}

#[test]
fn a_plan_with_bad_canaries_is_refused_at_its_line() {
    let record = "[[canary.record]]\nrecord = { id = \"c\", text = \"x\" }\nexpect = ";
    for (table, part) in [
        ("[canary]\n".to_owned(), "there are none"),
        (format!("[canary]\n{record}{{}}\n"), "expects nothing"),
        (
            format!("[canary]\n{record}{{ god = \"yes\" }}\n"),
            "unknown field",
        ),
        (
            format!("[canary]\n{record}{{ good = \"yse\" }}\n"),
            "did you mean \"yes\"",
        ),
        (
            format!("[canary]\np0 = 0.4\n{record}{{ good = \"yes\" }}\n"),
            "p1",
        ),
        (
            format!("[canary]\nalpha = 0\n{record}{{ good = \"yes\" }}\n"),
            "alpha",
        ),
        (
            format!("[canary]\nevery = 0\n{record}{{ good = \"yes\" }}\n"),
            "every",
        ),
        (
            format!("[canary]\nabstention = \"mis\"\n{record}{{ good = \"yes\" }}\n"),
            "miss",
        ),
        (
            format!("[canary]\nevry = 3\n{record}{{ good = \"yes\" }}\n"),
            "every",
        ),
    ] {
        let text = plan_with(0, "").text + &table;
        let error = Plan::parse(&text, "p.toml").unwrap_err().to_string();
        assert!(
            error.starts_with("p.toml:") && error.contains(part),
            "{table}: {error}"
        );
    }
}

#[test]
fn the_shipped_canaries_have_both_classes_a_boundary_case_and_an_injection() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../fixtures/plans/auth-blockers-watched.toml"
    );
    let plan = Plan::load(path.as_ref()).unwrap();
    operator::run::check_files(&plan).unwrap();
    let canaries = operator::canary::load(&plan).unwrap().unwrap();
    let labels: Vec<&str> = canaries
        .list
        .iter()
        .map(|c| c.expect["blocker"].as_str())
        .collect();
    assert!(labels.contains(&"yes") && labels.contains(&"no"));
    let spec = plan.audit.as_ref().unwrap();
    assert_eq!(
        (spec.field.as_str(), spec.positive.as_str()),
        ("blocker", "yes")
    );
}

#[test]
fn answers_for_which_no_canary_could_be_judged_stay_withheld() {
    let plan = plan_with(8, "");
    let partition = units(&plan, &records(60));
    let store = MemoryStore::new();
    let mut reader = Reader::new(|_, text| match text.contains("known") {
        true => UnitOutcome::Failed {
            reason: FailReason::TooLarge,
            message: String::from("no room"),
        },
        false => answer(text.contains("good"), 800_000),
    });
    let (outcome, _) = go(&plan, &partition, &mut reader, Some(&store));
    assert!(outcome.answer.complete && outcome.trip.is_none());
    assert_eq!(is_known(&store, &partition), 0);
}
