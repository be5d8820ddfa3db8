//! Explanations of units: every status with its reason, the way up, the bytes, each claim.

use operator::explain::{Explanation, Lack, Role, UnitExplanation, counts, explain, lacks};
use operator::fact::Status;
use operator::fold::Child;
use operator::infer::FailReason;
use operator::recorded::{RecordedRun, node_name};
use operator::run_directory::RunDirectory;
use serde_json::{Value, json};

use super::recorded::{Recorded, WIDE, record};
use super::script::{Act, PLAN, Script, Setup, issues, plan, run_with};

pub fn unit(run: &RecordedRun, id: &str) -> UnitExplanation {
    let Ok(Explanation::Unit(unit)) = explain(run, id, None) else {
        panic!("{id} is no unit")
    };
    *unit
}

/// Issues with columns of which some are missing.
fn wide_issues(n: u32) -> Vec<Value> {
    let mut issues = issues(n);
    for (number, issue) in (0_u32..).zip(&mut issues) {
        if number % 3 != 0 {
            issue["comments"] = json!(number % 7);
        }
        if number % 4 != 0 {
            issue["component"] = json!(if number % 2 == 0 { "login" } else { "api" });
        }
    }
    issues
}

fn eventful() -> Script {
    Script::with([
        (2, Act::Fail(FailReason::Truncated)),
        (3, Act::Doubt),
        (4, Act::Cancel),
        (5, Act::Skip),
        (6, Act::Misshapen),
    ])
}

pub fn wide_run() -> Recorded {
    let text = format!("{PLAN}{WIDE}");
    record(
        &text,
        &wide_issues(90),
        &mut eventful(),
        Setup {
            limit: Some(70),
            ..Setup::default()
        },
    )
}

#[test]
fn every_status_is_explained_with_its_reason() {
    let recorded = record(
        PLAN,
        &issues(40),
        &mut eventful(),
        Setup {
            limit: Some(30),
            ..Setup::default()
        },
    );
    for (id, status, parts) in [
        (
            "0",
            Status::Excluded,
            vec!["predicate closed", "issue is closed"],
        ),
        (
            "1",
            Status::Decided,
            vec![
                "predicate labelled",
                "without a model",
                "a maintainer said so",
            ],
        ),
        (
            "2",
            Status::Errored,
            vec!["no usable answer", "truncated: unit 2"],
        ),
        (
            "3",
            Status::Abstained,
            vec!["too uncertainly", "margin of blocker"],
        ),
        ("4", Status::Cancelled, vec!["withdrawn", "cancelled"]),
        ("5", Status::NotRun, vec!["never asked", "cancelled"]),
        ("6", Status::Errored, vec!["no usable answer", "schema"]),
        ("7", Status::Decided, vec!["script answered", "sure enough"]),
        ("39", Status::NotRun, vec!["never asked", "limit"]),
    ] {
        let explained = unit(&recorded.run, id);
        assert_eq!(explained.status, status, "unit {id}");
        for part in parts {
            assert!(explained.why.contains(part), "{id}: {}", explained.why);
        }
        let counted = explained.claims.iter().any(|standing| standing.counted);
        assert_eq!(counted, status == Status::Decided, "unit {id}");
        if status != Status::Decided {
            for standing in &explained.claims {
                assert_eq!(standing.lacks, [Lack::Decision { found: status }], "{id}");
            }
        }
    }
    assert_eq!(unit(&recorded.run, "3").values.len(), 2);
    assert!(unit(&recorded.run, "2").path[0].unsettled);
    assert!(!unit(&recorded.run, "7").path[0].unsettled);
}

#[test]
fn an_unreadable_record_is_explained_as_one() {
    let lines: Vec<String> = issues(12).iter().map(Value::to_string).collect();
    let text = lines
        .join("\n")
        .replace(&lines[7], "{\"number\": 7, \"title\":");
    let (source, records, bad) =
        operator::record::read_bytes("issues.jsonl", text.as_bytes(), None).unwrap();
    let partition = operator::ops::partition(&plan(), source, records, bad).unwrap();
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("run");
    let mut directory = RunDirectory::create(&path, "0.1.0", Value::Null).unwrap();
    let setup = Setup {
        directory: Some(&mut directory),
        ..Setup::default()
    };
    run_with(&plan(), &partition, &mut Script::new(), setup).unwrap();
    let explained = unit(&RecordedRun::open(&path).unwrap(), "#7");
    assert_eq!(explained.stage, "partition");
    assert!(
        explained.why.contains("cannot be read"),
        "{}",
        explained.why
    );
}

#[test]
fn the_path_holds_exactly_the_nodes_over_the_unit() {
    let recorded = wide_run();
    let run = &recorded.run;
    assert!(run.nodes.len() > 10, "{} nodes", run.nodes.len());
    for fact in &run.facts {
        let explained = unit(run, fact.unit_id.as_str());
        let place = run.spec().place(fact);
        // Every node that covers the key, found without walking.
        let mut over: Vec<_> = run
            .nodes
            .iter()
            .filter(|record| record.node.range.holds(place.key, run.spec().fan_in))
            .collect();
        over.sort_by_key(|record| std::cmp::Reverse(record.path.len()));
        let names: Vec<String> = over
            .iter()
            .map(|record| node_name(&record.node.range))
            .collect();
        let path: Vec<&str> = explained
            .path
            .iter()
            .map(|step| step.node.as_str())
            .collect();
        assert_eq!(path, names, "unit {}", fact.unit_id);
        assert_eq!(explained.path.len(), over[0].path.len());
        let direct = over[0].node.children.iter().any(|child| {
            matches!(child, Child::Leaf { unit, hashes } if *unit == place && *hashes == explained.hashes)
        });
        assert!(direct, "unit {} is an input of {}", fact.unit_id, names[0]);
        let units: Vec<u64> = explained
            .path
            .iter()
            .map(|step| step.coverage.units)
            .collect();
        assert!(units.is_sorted(), "{units:?}");
        assert_eq!(units.last(), Some(&90));
        let citing: Vec<String> = run
            .citing(&fact.unit_id)
            .iter()
            .rev()
            .map(|record| node_name(&record.node.range))
            .collect();
        let cited = explained.path.iter().filter(|step| step.cited);
        let cited: Vec<String> = cited.map(|step| step.node.clone()).collect();
        assert_eq!(cited, citing, "unit {}", fact.unit_id);
    }
}

#[test]
fn the_bytes_shown_are_the_records_bytes() {
    let recorded = wide_run();
    let mut shown = 0;
    for (number, issue) in wide_issues(90).iter().enumerate() {
        let explained = unit(&recorded.run, &number.to_string());
        for evidence in &explained.evidence {
            let text = issue[&evidence.field].as_str().unwrap();
            let bytes = &text[evidence.start as usize..evidence.end as usize];
            assert_eq!(evidence.quote.as_deref(), Some(bytes), "unit {number}");
            shown += 1;
        }
    }
    assert!(shown > 60, "{shown} quotes");
}

#[test]
fn a_redacted_run_shows_hashes_and_no_quote() {
    let open = record(PLAN, &issues(20), &mut Script::new(), Setup::default());
    let redacted = record(
        PLAN,
        &issues(20),
        &mut Script::new(),
        Setup {
            redact: true,
            ..Setup::default()
        },
    );
    let (shown, hidden) = (unit(&open.run, "7"), unit(&redacted.run, "7"));
    assert!(shown.evidence[0].quote.is_some() && hidden.evidence[0].quote.is_none());
    assert_eq!(shown.evidence[0].quote_hash, hidden.evidence[0].quote_hash);
    let told = serde_json::to_string(&explain(&redacted.run, "blockers", None).unwrap()).unwrap();
    assert!(!told.contains("expires"), "{told}");
    let root = node_name(&redacted.run.nodes[0].node.range);
    let told = serde_json::to_string(&explain(&redacted.run, &root, None).unwrap()).unwrap();
    assert!(!told.contains("expires"), "{told}");
}

#[test]
fn what_a_unit_lacks_is_empty_exactly_where_the_reducer_counts_it() {
    let recorded = wide_run();
    let run = &recorded.run;
    for reduce in &run.plan.reduces {
        let mut both = [0, 0];
        for fact in &run.facts {
            let counted = counts(&run.plan, run.spec(), reduce, fact);
            let lacks = lacks(reduce, fact);
            assert_eq!(
                counted,
                lacks.is_empty(),
                "{} of {}: {lacks:?}",
                reduce.name,
                fact.unit_id
            );
            both[usize::from(counted)] += 1;
        }
        assert!(both[0] > 0 && both[1] > 0, "{}: {both:?}", reduce.name);
    }
}

#[test]
fn a_claim_that_leaves_a_unit_out_says_which_part_says_no() {
    let recorded = wide_run();
    let run = &recorded.run;
    let no = run
        .facts
        .iter()
        .find(|fact| {
            fact.status == Status::Decided
                && fact.values["blocker"].label == "no"
                && fact.columns.is_empty()
        })
        .expect("some decided issue is no blocker and has no column");
    let explained = unit(run, no.unit_id.as_str());
    let standing = |name: &str| {
        let mut claims = explained.claims.iter();
        claims.find(|standing| standing.claim == name).unwrap()
    };
    let blocker = Lack::Value {
        side: None,
        name: String::from("blocker"),
        wanted: String::from("yes"),
        found: Some(String::from("no")),
    };
    assert_eq!(standing("blockers").lacks, std::slice::from_ref(&blocker));
    let component = Lack::Value {
        side: None,
        name: String::from("component"),
        wanted: String::from("login"),
        found: None,
    };
    assert_eq!(standing("login_blockers").lacks, [blocker, component]);
    let missing = Lack::Measure {
        side: None,
        name: String::from("comments"),
    };
    assert_eq!(standing("typical").lacks, [missing]);
    assert!(standing("by_cause").counted);
}

#[test]
fn roles_and_cites_agree_with_the_answer() {
    let recorded = wide_run();
    let run = &recorded.run;
    for fact in &run.facts {
        let explained = unit(run, fact.unit_id.as_str());
        for (standing, claim) in explained.claims.iter().zip(&run.answer.claims) {
            let place = (1_u64..).zip(&claim.cites);
            let mut place = place.filter(|(_, cite)| cite.unit_id == fact.unit_id);
            let place = place.next().map(|(place, _)| place);
            assert_eq!(standing.cited, place, "{} of {}", claim.name, fact.unit_id);
            let named = |kind: &str| {
                let units = claim.value[kind].as_array().into_iter().flatten();
                units.filter(|unit| **unit == fact.unit_id.as_str()).count() == 1
            };
            if claim.name == "clusters" {
                let has = |role: &Role| standing.roles.contains(role);
                assert_eq!(has(&Role::Dissent), named("dissent"), "{}", fact.unit_id);
                assert_eq!(
                    has(&Role::Abstention),
                    named("abstained"),
                    "{}",
                    fact.unit_id
                );
            }
            if claim.name == "surest" {
                let rows = claim.value.as_array().unwrap();
                let rank = rows
                    .iter()
                    .position(|row| row["unit_id"] == fact.unit_id.as_str());
                let wanted: Vec<Role> = rank
                    .map(|rank| Role::Ranked {
                        place: rank as u64 + 1,
                    })
                    .into_iter()
                    .collect();
                assert_eq!(standing.roles, wanted, "{}", fact.unit_id);
            }
        }
    }
    let doubtful = unit(run, "3");
    let standing = doubtful
        .claims
        .iter()
        .find(|standing| standing.claim == "clusters");
    assert_eq!(standing.unwrap().roles, [Role::Abstention]);
}
