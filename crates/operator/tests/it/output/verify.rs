//! The verifier: what is sound passes, what was changed is named, and it agrees with the fold.

mod agreement;
mod citations;
mod fuzz;
mod resealing;
mod runs;
mod summaries;
mod tampers;

use std::sync::LazyLock;

use operator::Plan;
use operator::selfcheck::{Artifact, Corpus, check};
use operator::verify::{
    Checked, Place, Registry, Report, Sources, Subject, verify, verify_artifact,
};

pub const CORPUS: Corpus<'static> = Corpus {
    plan: include_str!("../../../../../fixtures/plans/fold-selfcheck.toml"),
    records: include_bytes!("../../../../../fixtures/issues-1000.json"),
    oracle: include_str!("../../../../../fixtures/oracle/issues-1000.oracle.jsonl"),
};

/// The artifact of the fold's own check, made once for all tests.
pub static ARTIFACT: LazyLock<Artifact> = LazyLock::new(|| check(CORPUS).unwrap());

pub fn plan() -> Plan {
    Plan::parse(CORPUS.plan, "fold-selfcheck.toml").unwrap()
}

pub fn shown(report: &Report) -> Vec<String> {
    report.findings.iter().map(ToString::to_string).collect()
}

#[test]
fn the_untouched_artifact_passes_and_everything_in_it_is_checked() {
    let report = verify_artifact(&ARTIFACT, CORPUS).unwrap();
    assert_eq!(shown(&report), Vec::<String>::new());
    assert!(report.holds());
    assert_eq!(report.sources_absent, None);
    assert_eq!(
        report.checked,
        Checked {
            facts: 1_000,
            nodes: 144,
            states: 144 * 4,
            claims: 4,
            cites: 13,
            records: 1_000,
            spans: ARTIFACT
                .facts
                .iter()
                .map(|fact| fact.evidence.len() as u64)
                .sum(),
        }
    );
}

#[test]
fn without_its_records_an_answer_is_checked_and_said_to_be_checked_in_part() {
    let plan = plan();
    let subject = Subject {
        plan: &plan,
        facts: &ARTIFACT.facts,
        nodes: &ARTIFACT.nodes,
        answer: &ARTIFACT.answer,
    };
    let report = verify(subject, &Sources::Absent(String::from("it was moved")));
    assert_eq!(shown(&report), Vec::<String>::new());
    assert_eq!(report.sources_absent.as_deref(), Some("it was moved"));
    assert_eq!((report.checked.records, report.checked.spans), (0, 0));
    assert_eq!(report.checked.nodes, 144);
}

#[test]
fn a_source_that_was_edited_names_the_records_that_changed() {
    let plan = plan();
    let mut edited: serde_json::Value = serde_json::from_slice(CORPUS.records).unwrap();
    edited[0]["title"] = "edited".into();
    let edited = serde_json::to_vec(&edited).unwrap();
    let registry = Registry::read(&plan, "edited.json", &edited).unwrap();
    let subject = Subject {
        plan: &plan,
        facts: &ARTIFACT.facts,
        nodes: &ARTIFACT.nodes,
        answer: &ARTIFACT.answer,
    };
    let report = verify(subject, &Sources::Read(registry));
    let unit = ARTIFACT.facts[0].unit_id.clone();
    let place = Place::Unit(unit);
    assert!(
        report.findings.iter().any(|finding| finding.place == place),
        "{:?}",
        shown(&report)
    );
    let others = report
        .findings
        .iter()
        .filter(|finding| finding.place != place);
    let others: Vec<String> = others.map(ToString::to_string).collect();
    assert_eq!(others.len(), 1, "{others:?}");
    assert!(others[0].starts_with("answer: source.hash"), "{others:?}");
}
