//! Explanations: every status with its reason, the way up, the bytes, and what is not found.

use operator::explain::{
    ClaimExplanation, Explanation, Kind, Lack, NodeExplanation, Role, UnitExplanation, counts,
    explain, lacks,
};
use operator::fact::Status;
use operator::fold::Child;
use operator::infer::FailReason;
use operator::recorded::{RecordedRun, node_name};
use operator::run_directory::RunDirectory;
use serde_json::{Value, json};

use super::recorded::{Recorded, WIDE, record};
use super::script::{Act, PLAN, Script, Setup, issues, plan, run_with, units};

fn unit(run: &RecordedRun, id: &str) -> UnitExplanation {
    let Ok(Explanation::Unit(unit)) = explain(run, id, None) else {
        panic!("{id} is no unit")
    };
    *unit
}

fn node(run: &RecordedRun, name: &str) -> NodeExplanation {
    let Ok(Explanation::Node(node)) = explain(run, name, None) else {
        panic!("{name} is no node")
    };
    *node
}

fn claim(run: &RecordedRun, name: &str) -> ClaimExplanation {
    let Ok(Explanation::Claim(claim)) = explain(run, name, Some(Kind::Claim)) else {
        panic!("{name} is no claim")
    };
    *claim
}

fn refusal(run: &RecordedRun, wanted: &str, kind: Option<Kind>) -> String {
    explain(run, wanted, kind).unwrap_err().to_string()
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

fn wide_run() -> Recorded {
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

#[test]
fn a_node_is_found_by_name_and_by_hash_and_adds_up() {
    let recorded = wide_run();
    let run = &recorded.run;
    for record in &run.nodes {
        let name = node_name(&record.node.range);
        let explained = node(run, &name);
        let hash = record.node.hashes.provenance_hash.to_string();
        assert_eq!(node(run, &hash[..12]), explained);
        let sum: u64 = explained
            .children
            .iter()
            .map(|child| child.coverage.units)
            .sum();
        assert_eq!(sum, explained.coverage.units, "node {name}");
        let decided: u64 = explained
            .children
            .iter()
            .map(|child| child.coverage.decided)
            .sum();
        assert_eq!(decided, explained.coverage.decided, "node {name}");
        assert_eq!(explained.path.last(), Some(&name));
        assert!(explained.citations.len() as u64 <= explained.cited_total);
        assert!(
            explained
                .citations
                .iter()
                .all(|cite| { cite.span.as_ref().is_none_or(|span| span.quote.is_some()) }),
            "node {name}"
        );
    }
    let root = node(run, &node_name(&run.nodes[0].node.range));
    for (state, claim) in root.states.iter().zip(&run.answer.claims) {
        assert_eq!(state.value, claim.value, "{}", claim.name);
        assert_eq!(state.refused, claim.refused, "{}", claim.name);
    }
    assert_eq!(root.unsettled_total, 3);
    assert!(root.storable);
}

#[test]
fn a_claim_adds_up_and_its_carriers_are_nodes_that_count_something() {
    let recorded = wide_run();
    let run = &recorded.run;
    for told in &run.answer.claims {
        let explained = claim(run, &told.name);
        assert_eq!(explained.claim, *told);
        let left_out: u64 = explained.left_out.iter().map(|row| row.units).sum();
        assert_eq!(explained.counted + left_out, 90, "{}", told.name);
        let root = explained.carriers.first().expect("something is counted");
        assert_eq!((root.level, root.units), (1, 90));
        assert!(explained.carriers.iter().all(|carrier| carrier.counted > 0));
        assert!(explained.carriers_total <= explained.nodes);
    }
    let blockers = claim(run, "blockers");
    assert_eq!(blockers.selects, "blocker = yes");
    assert_eq!(blockers.carriers[0].counted, blockers.counted);
    assert!(
        blockers
            .left_out
            .iter()
            .any(|row| row.why == "blocker is not yes"),
        "{:?}",
        blockers.left_out
    );
}

#[test]
fn a_summary_is_told_by_what_it_was_written_from_and_moves_no_state() {
    let text = format!(
        "{PLAN}\n[[reduce]]\nname = \"in-short\"\nop = \"summary\"\nof = [\"blockers\", \"surest\"]\n\
         instruction = \"Say it.\"\n\n[[reduce]]\nname = \"decided\"\nop = \"count\"\n"
    );
    let recorded = record(&text, &issues(60), &mut Script::new(), Setup::default());
    let run = &recorded.run;
    let explained = unit(run, "7");
    let mut standings = explained.claims.iter();
    let summary = standings
        .find(|standing| standing.claim == "in-short")
        .unwrap();
    assert_eq!(summary.written_from, ["blockers", "surest"]);
    assert!(!summary.counted && summary.lacks.is_empty());
    let told = claim(run, "in-short");
    assert_eq!(told.written_from, ["blockers", "surest"]);
    assert_eq!((told.counted, told.carriers_total), (0, 0));
    let root = node(run, &node_name(&run.nodes[0].node.range));
    assert_eq!(root.states.len(), 7);
    for state in &root.states {
        assert_eq!(
            state.value,
            claim(run, &state.claim).claim.value,
            "{}",
            state.claim
        );
    }
    assert!(
        explained.path[0]
            .states
            .iter()
            .any(|state| state.claim == "decided")
    );
}

#[test]
fn what_is_not_there_is_named_with_what_comes_close() {
    let recorded = record(PLAN, &issues(90), &mut Script::new(), Setup::default());
    let run = &recorded.run;
    let told = refusal(run, "4824", None);
    for part in [
        "run: \"4824\" is no unit, no node and no claim",
        "its 90 units go from 0 to 89, close to it 89, 88, 87",
        "START/HEIGHT, from the root 0/3",
        "its claims are blockers, ids",
    ] {
        assert!(told.contains(part), "{told}");
    }
    let told = refusal(run, "blocker", Some(Kind::Claim));
    assert!(told.contains("did you mean \"blockers\"?"), "{told}");
    assert!(!told.contains("units go from"), "{told}");
    let told = refusal(run, "7", Some(Kind::Node));
    assert!(told.contains("no node of this run"), "{told}");
    let told = refusal(run, "000000", None);
    assert!(told.contains("no node"), "{told}");
}

#[test]
fn a_directory_that_is_no_finished_run_is_refused_with_the_cure() {
    let home = tempfile::tempdir().unwrap();
    let open = |path: &std::path::Path| RecordedRun::open(path).unwrap_err().to_string();
    let told = open(&home.path().join("gone"));
    assert!(told.contains("gone: is no directory"), "{told}");
    let told = open(home.path());
    assert!(told.contains("holds no manifest.json"), "{told}");

    let path = home.path().join("stopped");
    let mut directory = RunDirectory::create(&path, "0.1.0", Value::Null).unwrap();
    let setup = Setup {
        directory: Some(&mut directory),
        ..Setup::default()
    };
    let mut script = Script {
        repeat: true,
        ..Script::new()
    };
    run_with(&plan(), &units(&plan(), &issues(20)), &mut script, setup).unwrap_err();
    let told = open(&path);
    assert!(told.contains("did not finish"), "{told}");

    let recorded = record(PLAN, &issues(20), &mut Script::new(), Setup::default());
    let facts = recorded.path.join("facts.jsonl");
    let rows = std::fs::read_to_string(&facts).unwrap();
    std::fs::write(&facts, rows.replace("\"yes\"", "\"no\"")).unwrap();
    let told = open(&recorded.path);
    assert!(told.contains("facts.jsonl hashes to"), "{told}");
    std::fs::write(&facts, rows).unwrap();
    assert!(RecordedRun::open(&recorded.path).is_ok());
    std::fs::remove_file(recorded.path.join("nodes.jsonl")).unwrap();
    let told = open(&recorded.path);
    assert!(told.contains("nodes.jsonl"), "{told}");

    let manifest = recorded.path.join("manifest.json");
    let text = std::fs::read_to_string(&manifest).unwrap();
    std::fs::write(
        &manifest,
        text.replacen("\"version\": 1", "\"version\": 9", 1),
    )
    .unwrap();
    let told = open(&recorded.path);
    assert!(told.contains("manifest.json is of version 9"), "{told}");
    assert!(recorded.home.path().exists());
}

#[test]
fn an_explanation_survives_json() {
    let recorded = wide_run();
    let root = node_name(&recorded.run.nodes[0].node.range);
    for wanted in ["7", "3", root.as_str(), "clusters", "pairs"] {
        let explained = explain(&recorded.run, wanted, None).unwrap();
        let text = serde_json::to_string(&explained).unwrap();
        let back: Explanation = serde_json::from_str(&text).unwrap();
        assert_eq!(back, explained, "{wanted}");
    }
}
