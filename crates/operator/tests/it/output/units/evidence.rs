//! Evidence of a unit of several records cites the right record, and a run over such units is verified.

use std::path::{Path, PathBuf};

use operator::Plan;
use operator::fact::{Fact, Status};
use operator::run_directory::{self, RunDirectory};
use operator::verify::verify_directory;
use serde_json::{Value, json};

use super::super::script::{Act, Script, Setup, run_with};
use super::{KINDS, PAIRS, lines, plan_text, read, tickets};

/// Runs into a directory beside its input, and returns where.
fn recorded(home: &Path, plan: &Plan, records: &[Value]) -> PathBuf {
    let (path, input) = (home.join("run"), home.join("tickets.jsonl"));
    std::fs::write(&input, lines(records)).unwrap();
    let (source, found, bad) = operator::record::read_source(&input, None).unwrap();
    let partition = operator::ops::partition(plan, source, found, bad).unwrap();
    let mut directory = RunDirectory::create(&path, "0.1.0", json!({})).unwrap();
    let setup = Setup {
        directory: Some(&mut directory),
        ..Setup::default()
    };
    let mut script = Script::with([(4, Act::Doubt), (7, Act::Doubt)]);
    run_with(plan, &partition, &mut script, setup).unwrap();
    path
}

fn findings(run: &Path) -> Vec<String> {
    let report = verify_directory(run, None).unwrap();
    assert_eq!(report.sources_absent, None);
    report.findings.iter().map(ToString::to_string).collect()
}

fn plan(unit: &str, evidence: &str) -> Plan {
    let text = plan_text(unit, "").replace(
        "\"first_line\"",
        &format!("{evidence:?}\nevidence_lines_max = 24"),
    );
    Plan::parse(&text, "plan.toml").unwrap()
}

#[test]
fn every_member_is_cited_by_its_own_bytes() {
    let records = tickets(30);
    for evidence in ["first_line", "model"] {
        let plan = plan(PAIRS, evidence);
        let partition = read(&plan, &lines(&records));
        let (outcome, _) =
            run_with(&plan, &partition, &mut Script::new(), Setup::default()).unwrap();
        let decided: Vec<&Fact> = outcome
            .facts
            .iter()
            .filter(|fact| fact.status == Status::Decided)
            .collect();
        assert!(!decided.is_empty());
        for fact in decided {
            let mut cited: Vec<&str> = Vec::new();
            for span in &fact.evidence {
                let (field, member) = span.field.split_once(" of ").unwrap();
                let record = &records[member.parse::<usize>().unwrap()];
                let bytes =
                    &record[field].as_str().unwrap()[span.start as usize..span.end as usize];
                assert_eq!(span.quote.as_deref(), Some(bytes), "{}", fact.unit_id);
                cited.push(member);
            }
            let mut wanted: Vec<&str> = fact.members.iter().map(|member| member.as_str()).collect();
            cited.sort_unstable();
            wanted.sort_unstable();
            assert_eq!(cited, wanted, "each side once: {}", fact.unit_id);
        }
    }
}

#[test]
fn runs_over_units_of_every_kind_are_verified() {
    for evidence in ["first_line", "model", "none"] {
        for (kind, unit) in KINDS {
            let home = tempfile::tempdir().unwrap();
            let run = recorded(home.path(), &plan(unit, evidence), &tickets(25));
            assert_eq!(findings(&run), Vec::<String>::new(), "{kind}, {evidence}");
        }
    }
    for unit in [
        "[unit]\nkind = \"adaptive\"\n[group]\nby = \"links\"\npattern = '#(\\d+)\\b'",
        "[unit]\nwiden = true\n[group]\nby = \"similarity\"",
    ] {
        let home = tempfile::tempdir().unwrap();
        let plan =
            Plan::parse(&plan_text(unit, "requires = [\"duplicates\"]"), "plan.toml").unwrap();
        let run = recorded(home.path(), &plan, &tickets(25));
        assert_eq!(findings(&run), Vec::<String>::new(), "{unit}");
    }
}

#[test]
fn what_is_changed_in_a_run_over_groups_is_found_and_named() {
    type Change = fn(&mut Vec<Fact>);
    let cases: [(&str, &str, Change); 6] = [
        ("another member", "its members are", |facts| {
            facts[0].members[1] = operator::id::UnitId::new("29");
        }),
        (
            "the hash of one record for that of the group",
            "its source_hash is",
            |facts| {
                facts[0].source_hash = facts[1].source_hash;
            },
        ),
        ("a quote of the other side", "in its record", |facts| {
            let spans = &mut facts[0].evidence;
            let (one, other) = (spans[0].field.clone(), spans[1].field.clone());
            (spans[0].field, spans[1].field) = (other, one);
        }),
        (
            "an answer of a record alone",
            "and nothing is asked about it",
            |facts| {
                let (answered, alone) = (facts[0].clone(), facts.last_mut().unwrap());
                assert_eq!(alone.members.len(), 1);
                (alone.status, alone.stage) = (Status::Decided, answered.stage);
                (alone.values, alone.reason) = (answered.values, None);
                alone.backend = answered.backend;
            },
        ),
        (
            "a relation that nobody needs",
            "and the plan's units lack []",
            |facts| {
                facts[0].status = Status::Abstained;
                facts[0].reason = Some(String::from("lacks relation duplicates"));
                facts[0].values.clear();
            },
        ),
        ("a unit that is left out", "has no fact", |facts| {
            facts.remove(2);
        }),
    ];
    for (what, problem, change) in cases {
        let home = tempfile::tempdir().unwrap();
        let run = recorded(home.path(), &plan(PAIRS, "first_line"), &tickets(32));
        let file = run.join("facts.jsonl");
        let mut facts = run_directory::read_facts(&file).unwrap();
        change(&mut facts);
        let rows: Vec<String> = facts
            .iter()
            .map(|fact| json!(fact).to_string() + "\n")
            .collect();
        std::fs::write(&file, rows.concat()).unwrap();
        let found = findings(&run);
        assert!(
            found.iter().any(|finding| finding.contains(problem)),
            "{what}: {found:?}"
        );
    }
}

#[test]
fn a_neighbour_that_was_changed_after_the_run_is_found_at_the_units_that_saw_it() {
    let home = tempfile::tempdir().unwrap();
    let unit = "[unit]\nwiden = true\n[group]\nby = \"links\"\npattern = '#(\\d+)\\b'";
    let plan = Plan::parse(&plan_text(unit, "requires = [\"duplicates\"]"), "plan.toml").unwrap();
    let mut records = tickets(12);
    let run = recorded(home.path(), &plan, &records);
    assert_eq!(findings(&run), Vec::<String>::new());
    records[1]["title"] = json!("something else");
    std::fs::write(home.path().join("tickets.jsonl"), lines(&records)).unwrap();
    let found = findings(&run);
    assert!(
        found
            .iter()
            .any(|f| f.starts_with("unit 4: its source_hash")),
        "{found:?}"
    );
    assert!(
        !found.iter().any(|f| f.starts_with("unit 9: ")),
        "{found:?}"
    );
}

#[test]
fn a_claim_about_pairs_cites_both_sides_of_each() {
    let records = tickets(30);
    let home = tempfile::tempdir().unwrap();
    let run = recorded(home.path(), &plan(PAIRS, "first_line"), &records);
    let answer = run_directory::read_answer(&run).unwrap();
    let cites: Vec<_> = answer
        .claims
        .iter()
        .flat_map(|claim| &claim.cites)
        .collect();
    assert!(!cites.is_empty());
    for cite in cites {
        let spans = cite.span.iter().chain(&cite.also);
        let sides: Vec<&str> = spans
            .map(|span| span.field.split_once(" of ").unwrap().1)
            .collect();
        assert_eq!(sides.join("+"), cite.unit_id.as_str());
    }
    let page = std::fs::read_to_string(run.join("answer.md")).unwrap();
    let first = &answer.claims[0].cites[0];
    assert!(
        page.contains(&format!("; {} ", first.also[0].field)),
        "{page}"
    );
    let file = run.join("answer.json");
    let text = std::fs::read_to_string(&file).unwrap();
    let other = first.also[0].quote_hash.to_string();
    std::fs::write(&file, text.replacen(&other, &"0".repeat(64), 1)).unwrap();
    let found = findings(&run);
    assert!(
        found.iter().any(|f| f.starts_with("claim yes: cites")),
        "{found:?}"
    );
}
