//! Explanations of nodes and claims, and what is said where nothing is found.

use operator::explain::{ClaimExplanation, Explanation, Kind, NodeExplanation, explain};
use operator::recorded::{RecordedRun, node_name};
use operator::run_directory::RunDirectory;
use serde_json::Value;

use super::explain::{unit, wide_run};
use super::recorded::record;
use super::script::{PLAN, Script, Setup, issues, plan, run_with, units};

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
