//! Audits in whole runs: who is drawn, what goes back into the answer, and what is said of it.

use operator::audit::{AuditReport, Finding};
use operator::fact::Status;
use operator::infer::{FailReason, UnitOutcome};
use operator::ops::Partition;
use operator::plan::Plan;
use operator::run::{RunOptions, RunOutcome, run};
use operator::run_directory::RunDirectory;
use operator::store::MemoryStore;
use operator::verify::verify_directory;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::canaries::{Reader, answer, plan_with, records};
use super::script::{Setup, run_with, units};

/// Records of which every 13th is good without saying so, and is missed by who reads words.
fn hidden(count: u32) -> Vec<Value> {
    let mut records = records(count);
    for id in (1..count).step_by(13) {
        records[id as usize]["text"] = json!(format!("it is truly fine, number {id}"));
    }
    records
}

fn is_good(record: &Value) -> bool {
    let text = record["text"].as_str().unwrap();
    text.contains("good") || text.contains("fine")
}

/// Answers what the words say; only who knows better sees what is hidden.
fn by_words() -> Reader {
    Reader::sound()
}

fn knowing() -> Reader {
    Reader::new(|_, text| answer(text.contains("good") || text.contains("fine"), 800_000))
        .named("knowing", 9)
}

/// A home with labels of the records, and the plan with an audit beside them.
struct Home {
    home: tempfile::TempDir,
    records: Vec<Value>,
}

impl Home {
    fn new(records: Vec<Value>) -> Self {
        let home = tempfile::tempdir().unwrap();
        let mut labels = String::from("number,is\n");
        for record in &records {
            let label = if is_good(record) { "yes" } else { "no" };
            labels.push_str(&format!("{},{label}\n", record["id"]));
        }
        std::fs::write(home.path().join("labels.csv"), labels).unwrap();
        Self { home, records }
    }

    fn plan(&self, units: u64, auditor: &str, more: &str) -> Plan {
        let table = format!(
            "[audit]\nfield = \"good\"\npositive = \"yes\"\ntarget_recall = 0.9\nunits_max = {units}\n\
             seed = \"2026\"\nauditor = {auditor}\n{more}\n"
        );
        let text = plan_with(0, &table).text.replace(
            "action = \"exclude\"",
            "action = \"exclude\"\nnear = { field = \"text\", op = \"contains\", value = \"fine\" }",
        );
        let path = self.home.path().join("plan.toml");
        Plan::parse(&text, path.to_str().unwrap()).unwrap()
    }

    fn by_labels(&self, units: u64, more: &str) -> Plan {
        self.plan(units, LABELS, more)
    }

    fn partition(&self, plan: &Plan) -> Partition {
        units(plan, &self.records)
    }

    /// Positives among the records, and of these, found by words.
    fn truth(&self) -> (u64, u64) {
        let good = self.records.iter().filter(|record| is_good(record));
        let found = good.clone().filter(|record| {
            record["text"].as_str().unwrap().contains("good") && record["old"] == json!(false)
        });
        (good.count() as u64, found.count() as u64)
    }
}

const LABELS: &str = "{ labels = \"labels.csv\", id = \"number\", label = \"is\" }";

fn go(plan: &Plan, partition: &Partition, reader: &mut Reader) -> RunOutcome {
    run_with(plan, partition, reader, Setup::default())
        .unwrap()
        .0
}

/// A run over so many records, of which some are missed, that was audited by their labels.
pub fn audited(count: u32, units: u64) -> (Plan, RunOutcome) {
    let home = Home::new(hidden(count));
    let plan = home.by_labels(units, "");
    let outcome = go(&plan, &home.partition(&plan), &mut by_words());
    (plan, outcome)
}

fn report(outcome: &RunOutcome) -> &AuditReport {
    outcome.answer.audit.as_ref().unwrap()
}

fn count_of(outcome: &RunOutcome) -> &Value {
    &outcome.answer.claims[0].value
}

#[test]
fn misses_go_back_into_the_answer_and_stay_in_the_statistic() {
    let home = Home::new(hidden(200));
    let plan = home.by_labels(60, "");
    let outcome = go(&plan, &home.partition(&plan), &mut by_words());
    let (all, found) = home.truth();
    let report = report(&outcome);
    let statistic = &report.statistic;
    assert_eq!((statistic.found, statistic.not_found), (found, 200 - found));
    assert_eq!(statistic.audited, 60);
    assert!(statistic.missed > 0);
    assert_eq!(count_of(&outcome), &json!(found + statistic.missed));
    // Kept in the statistic: recall before the audit is bounded as if nothing had been put back.
    let upper = statistic.misses_upper;
    assert!(upper >= all - found);
    assert_eq!(
        u64::from(statistic.recall_lower_ppm),
        found * 1_000_000 / (found + upper)
    );
    assert!(statistic.recall_lower_with_missed_ppm > statistic.recall_lower_ppm);
    let back: Vec<&str> = outcome
        .facts
        .iter()
        .filter(|fact| fact.stage == "audit")
        .map(|fact| {
            assert_eq!(fact.status, Status::Decided);
            assert_eq!(fact.values["good"].label, "yes");
            fact.unit_id.as_str()
        })
        .collect();
    let mut missed: Vec<&str> = report
        .units
        .iter()
        .filter(|unit| unit.finding == Finding::Missed)
        .map(|unit| unit.unit_id.as_str())
        .collect();
    missed.sort_by_key(|id| id.parse::<u32>().unwrap());
    assert_eq!(back, missed);
    assert_eq!(outcome.answer.coverage.units, 200);
    let strata: Vec<String> = report
        .strata
        .iter()
        .map(|row| row.stratum.to_string())
        .collect();
    assert_eq!(
        strata,
        ["map, far", "prefilter:old, far", "prefilter:old, near"]
    );
}

#[test]
fn a_target_that_cannot_be_certified_is_told_with_the_units_that_it_would_take() {
    let home = Home::new(records(400));
    let few = home.by_labels(20, "");
    let outcome = go(&few, &home.partition(&few), &mut by_words());
    let lacking = report(&outcome);
    // Records excluded as old are missed where they are good, none by the model.
    assert!(!lacking.certified);
    assert!(lacking.text.contains("NOT certified"), "{}", lacking.text);
    let sound = |count| {
        let mut records = records(count);
        records
            .iter_mut()
            .for_each(|record| record["old"] = json!(false));
        Home::new(records)
    };
    let home = sound(400);
    let few = home.by_labels(20, "");
    let outcome = go(&few, &home.partition(&few), &mut by_words());
    let lacking = report(&outcome);
    let wanted = lacking.units_to_certify.unwrap();
    assert!(!lacking.certified && lacking.text.contains(&format!("about {wanted} units")));
    for (units, certified) in [(wanted, true), (wanted - 1, false)] {
        let plan = home.by_labels(units, "");
        let outcome = go(&plan, &home.partition(&plan), &mut by_words());
        assert_eq!(report(&outcome).certified, certified, "{units}");
    }
}

#[test]
fn units_without_an_answer_are_no_negatives() {
    let home = Home::new(records(100));
    let doubtful = || {
        Reader::new(|call, text| match call % 10 {
            0 => answer(text.contains("good"), 10),
            1 => UnitOutcome::Failed {
                reason: FailReason::Backend,
                message: String::from("no"),
            },
            _ => answer(text.contains("good"), 800_000),
        })
    };
    let counted = home.by_labels(40, "");
    let outcome = go(&counted, &home.partition(&counted), &mut doubtful());
    let rows = &report(&outcome).strata;
    let unknown: Vec<_> = rows.iter().filter(|row| row.stratum.unknown).collect();
    assert_eq!(unknown.len(), 2);
    for row in unknown {
        assert_eq!(
            (row.audited, row.misses_upper),
            (0, row.population),
            "all may be missed"
        );
    }
    let inspected = home.by_labels(40, "unknown = \"inspect\"");
    let outcome = go(&inspected, &home.partition(&inspected), &mut doubtful());
    let rows = &report(&outcome).strata;
    for row in rows.iter().filter(|row| row.stratum.unknown) {
        assert_eq!(
            (row.audited, row.misses_upper),
            (row.population, row.missed)
        );
    }
    let back = outcome.facts.iter().filter(|fact| fact.stage == "audit");
    let reasons: Vec<&str> = back.filter_map(|fact| fact.reason.as_deref()).collect();
    assert!(
        reasons.contains(&"missed by map and found by the audit"),
        "{reasons:?}"
    );
}

#[test]
fn an_auditor_may_be_another_rubric_or_a_larger_model() {
    let home = Home::new(hidden(120));
    let plan = home.plan(50, "{ rubric = \"Read slowly.\" }", "");
    let partition = home.partition(&plan);
    let store = MemoryStore::new();
    let mut reader = by_words();
    let setup = || Setup {
        memo: Some(&store),
        ..Setup::default()
    };
    let (outcome, _) = run_with(&plan, &partition, &mut reader, setup()).unwrap();
    assert_eq!(
        reader.shown.len(),
        108 + 50,
        "every drawn unit is asked again"
    );
    assert!(
        report(&outcome)
            .auditor
            .contains("under the auditor's rubric")
    );
    // The same eyes see what they saw, but for what the predicate had kept from them.
    let missed = report(&outcome)
        .units
        .iter()
        .filter(|unit| unit.finding == Finding::Missed);
    assert!(missed.into_iter().all(|unit| unit.ordinal % 10 == 9));
    let mut warm = by_words();
    let (again, _) = run_with(&plan, &partition, &mut warm, setup()).unwrap();
    assert_eq!(
        warm.shown.len(),
        0,
        "the auditor's answers are remembered as well"
    );
    assert_eq!(again.answer.result_hash, outcome.answer.result_hash);

    let plan = home.plan(50, "{ model = \"larger\" }", "");
    let mut larger = knowing();
    let options = RunOptions {
        limit: None,
        redact: true,
        clock: &|| 0,
        cancel: &operator::infer::CancelFlag::new(),
        larger: Some(&mut larger),
        tools: None,
    };
    let mut reader = by_words();
    let outcome = run(
        &plan,
        partition.clone(),
        &mut reader,
        None,
        options,
        &mut (),
        None,
    )
    .unwrap();
    assert_eq!((reader.shown.len(), larger.shown.len()), (108, 50));
    let report = report(&outcome);
    assert_eq!(report.auditor, "knowing");
    assert!(report.statistic.missed > 0);
    let back: Vec<_> = outcome
        .facts
        .iter()
        .filter(|fact| fact.stage == "audit")
        .collect();
    assert_eq!(back.len() as u64, report.statistic.missed);
    let quotes = back.iter().flat_map(|fact| &fact.evidence);
    assert!(
        quotes.into_iter().all(|span| span.quote.is_none()),
        "redacted as all are"
    );
    let mut alone = by_words();
    let error = run_with(&plan, &partition, &mut alone, Setup::default()).unwrap_err();
    assert!(error.to_string().contains("larger"), "{error}");
    assert!(alone.shown.is_empty());
}

#[test]
fn what_the_auditor_cannot_decide_counts_as_missed_in_the_bound() {
    let home = Home::new(hidden(150));
    let plan = home.plan(50, "{ model = \"larger\" }", "");
    let mut larger = Reader::new(|_, _| answer(true, 10)).named("doubtful", 8);
    let options = RunOptions {
        limit: None,
        redact: false,
        clock: &|| 0,
        cancel: &operator::infer::CancelFlag::new(),
        larger: Some(&mut larger),
        tools: None,
    };
    let partition = home.partition(&plan);
    let outcome = run(
        &plan,
        partition,
        &mut by_words(),
        None,
        options,
        &mut (),
        None,
    )
    .unwrap();
    let statistic = &report(&outcome).statistic;
    assert_eq!((statistic.missed, statistic.unresolved), (0, 50));
    assert_eq!(statistic.misses_upper, statistic.not_found);
}

#[test]
fn what_was_declared_is_in_the_plans_hash() {
    let home = Home::new(records(30));
    let base = home.by_labels(20, "").hash();
    assert_ne!(base, home.by_labels(21, "").hash());
    assert_ne!(base, home.by_labels(20, "alpha = 0.01").hash());
    assert_ne!(base, home.by_labels(20, "unknown = \"inspect\"").hash());
    assert_ne!(base, home.by_labels(20, "near_margin = 0.3").hash());
    assert_ne!(base, home.plan(20, "{ rubric = \"x\" }", "").hash());
    let text = home.by_labels(20, "").text;
    let path = home.home.path().join("plan.toml");
    let other = Plan::parse(
        &text.replace("\"fine\"", "\"good\""),
        path.to_str().unwrap(),
    );
    assert_ne!(base, other.unwrap().hash(), "what is near, too");
}

#[test]
fn mistakes_in_plan_and_labels_are_told_before_anything_is_asked() {
    let home = Home::new(records(30));
    let text = home.by_labels(20, "").text;
    for (wrong, right, part) in [
        (
            "positive = \"yse\"",
            "positive = \"yes\"",
            "did you mean \"yes\"",
        ),
        (
            "target_recall = 1.0",
            "target_recall = 0.9",
            "between 0 and 1",
        ),
        (
            "auditor = {}",
            &format!("auditor = {LABELS}"),
            "name labels",
        ),
        (
            "auditor = { id = \"x\" }",
            &format!("auditor = {LABELS}"),
            "belong to labels",
        ),
        (
            "auditor = { model = \"lager\" }",
            &format!("auditor = {LABELS}"),
            "larger",
        ),
        ("units_max = 0", "units_max = 20", "units_max"),
        (
            "field = \"god\"\npositive",
            "field = \"good\"\npositive",
            "unknown field",
        ),
    ] {
        assert!(text.contains(right), "{right}");
        let error = Plan::parse(&text.replace(right, wrong), "p.toml")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(part) && error.starts_with("p.toml:"),
            "{error}"
        );
    }
    let plan = home.by_labels(20, "");
    for (labels, part) in [
        ("number,is\n0,maybe\n", "\"maybe\""),
        ("number,was\n0,yes\n", "no record has a label in is"),
    ] {
        std::fs::write(home.home.path().join("labels.csv"), labels).unwrap();
        let mut reader = by_words();
        let partition = home.partition(&plan);
        let error = run_with(&plan, &partition, &mut reader, Setup::default()).unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
        assert!(reader.shown.is_empty());
    }
}

/// Runs into a directory beside the records, so that it can be verified.
fn recorded(home: &Home, plan: &Plan, reader: &mut Reader) -> std::path::PathBuf {
    let input = home.home.path().join("records.json");
    std::fs::write(&input, serde_json::to_vec(&home.records).unwrap()).unwrap();
    let (source, records, bad) = operator::record::read_source(&input, None).unwrap();
    let partition = operator::ops::partition(plan, source, records, bad).unwrap();
    let path = home.home.path().join("run");
    let mut directory = RunDirectory::create(&path, "0", json!({})).unwrap();
    let setup = Setup {
        directory: Some(&mut directory),
        ..Setup::default()
    };
    run_with(plan, &partition, reader, setup).unwrap();
    path
}

fn findings(run: &std::path::Path) -> Vec<String> {
    let report = verify_directory(run, None).unwrap();
    report.findings.iter().map(ToString::to_string).collect()
}

/// Changes the answer and makes its hash fit.
fn tamper(run: &std::path::Path, change: impl FnOnce(&mut operator::answer::CitedAnswer)) {
    let mut answer = operator::run_directory::read_answer(run).unwrap();
    change(&mut answer);
    answer.result_hash = answer.hash_result();
    let bytes = serde_json::to_vec_pretty(&answer).unwrap();
    std::fs::write(run.join("answer.json"), bytes).unwrap();
}

/// One way of tampering with an answer.
type Change = fn(&mut operator::answer::CitedAnswer);

#[test]
fn an_audit_is_verified_from_facts_and_rows_and_tampering_is_found() {
    let home = Home::new(hidden(200));
    let plan = home.by_labels(60, "");
    let run = recorded(&home, &plan, &mut by_words());
    assert_eq!(findings(&run), Vec::<String>::new());
    let original = std::fs::read(run.join("answer.json")).unwrap();
    let changes: [(&str, Change); 7] = [
        ("a smaller bound", |answer| {
            answer.audit.as_mut().unwrap().strata[0].misses_upper -= 1;
        }),
        ("a missed unit called sound", |answer| {
            let units = &mut answer.audit.as_mut().unwrap().units;
            let missed = units
                .iter_mut()
                .find(|unit| unit.finding == Finding::Missed);
            missed.unwrap().finding = Finding::Sound;
        }),
        ("a unit left out", |answer| {
            answer.audit.as_mut().unwrap().units.pop();
        }),
        ("another unit drawn", |answer| {
            let units = &mut answer.audit.as_mut().unwrap().units;
            units[0].unit_id = operator::id::UnitId::new("2");
        }),
        ("a target that was declared later", |answer| {
            answer.audit.as_mut().unwrap().target_recall_ppm = 100_000;
        }),
        ("certified", |answer| {
            answer.audit.as_mut().unwrap().certified ^= true
        }),
        ("no audit at all", |answer| answer.audit = None),
    ];
    for (what, change) in changes {
        tamper(&run, change);
        let found = findings(&run);
        let of_content = found.iter().filter(|text| !text.starts_with("answer.json"));
        assert!(of_content.count() > 0, "{what}: {found:?}");
        std::fs::write(run.join("answer.json"), &original).unwrap();
    }
    assert_eq!(findings(&run), Vec::<String>::new());
    // Without the records the bounds can still be tested, though not who is near.
    std::fs::remove_file(home.home.path().join("records.json")).unwrap();
    assert_eq!(findings(&run), Vec::<String>::new());
    tamper(&run, |answer| {
        answer.audit.as_mut().unwrap().strata[0].misses_upper -= 1
    });
    assert!(
        findings(&run)
            .iter()
            .any(|text| text.contains("exact bound"))
    );
}

#[test]
fn a_quarantined_run_verifies_as_one_and_may_not_hide_it() {
    let home = Home::new(hidden(100));
    let plan = plan_with(8, "");
    let run = recorded(&home, &plan, &mut Reader::inverted());
    assert_eq!(findings(&run), Vec::<String>::new());
    assert!(run.join("quarantine.json").exists());
    let page = std::fs::read_to_string(run.join("answer.md")).unwrap();
    assert!(page.contains("QUARANTINED"), "{page}");
    let original = std::fs::read(run.join("answer.json")).unwrap();
    let changes: [Change; 3] = [
        |answer| answer.quarantine = None,
        |answer| answer.claims[0].value = json!(7),
        |answer| answer.quarantine.as_mut().unwrap().reason = String::from("all is well"),
    ];
    for change in changes {
        tamper(&run, change);
        let found = findings(&run);
        let of_content = found.iter().filter(|text| !text.starts_with("answer.json"));
        assert!(of_content.count() > 0, "{found:?}");
        std::fs::write(run.join("answer.json"), &original).unwrap();
    }
    // A later run into the same directory clears the name.
    recorded(&home, &plan, &mut Reader::sound());
    assert!(!run.join("quarantine.json").exists());
    assert_eq!(findings(&run), Vec::<String>::new());
}

#[test]
fn whole_runs_with_audits_keep_to_their_bound() {
    let mut broken = 0;
    let runs = 40;
    for seed in 0..runs {
        let home = Home::new(hidden(130));
        let (all, found) = home.truth();
        let text = home.by_labels(30, "").text;
        let text = text.replace("seed = \"2026\"", &format!("seed = \"{seed}\""));
        let path = home.home.path().join("plan.toml");
        let plan = Plan::parse(&text, path.to_str().unwrap()).unwrap();
        let outcome = go(&plan, &home.partition(&plan), &mut by_words());
        let statistic = &report(&outcome).statistic;
        broken += u32::from(u64::from(statistic.recall_lower_ppm) > found * 1_000_000 / all);
    }
    // More than 6 of 40 at a true rate of 5 % have a probability of under 0.4 %; the draw is seeded.
    assert!(broken <= 6, "{broken} of {runs}");
}

proptest! {
    #[test]
    fn what_is_allotted_is_all_that_may_be_read_and_no_more(
        sizes in prop::collection::vec((0_u64..400, any::<bool>(), any::<bool>()), 0..7),
        budget in 0_u64..900,
        inspect in any::<bool>(),
    ) {
        use operator::audit::{Allotment, allot};
        let strata: Vec<Allotment> = sizes
            .iter()
            .map(|&(population, near, unknown)| Allotment { population, near, unknown })
            .collect();
        let given = allot(&strata, budget, inspect);
        let mut readable = 0;
        for (given, stratum) in given.iter().zip(&strata) {
            prop_assert!(*given <= stratum.population);
            prop_assert!(!stratum.unknown || inspect || *given == 0);
            readable += if stratum.unknown && !inspect { 0 } else { stratum.population };
        }
        prop_assert_eq!(given.iter().sum::<u64>(), budget.min(readable));
        for (a, one) in given.iter().zip(&strata) {
            for (b, other) in given.iter().zip(&strata) {
                let alike = !one.unknown && !other.unknown && one.population == other.population;
                if alike && one.near && !other.near {
                    prop_assert!(a >= b, "near strata are read no less");
                }
            }
        }
    }
}
