//! Summaries: prose that passed is verified, and what was changed in it is found.

use operator::answer::{CitedAnswer, Claim};
use operator::fact::Fact;
use operator::fold::NodeRecord;
use operator::verify::{Place, Registry, Sources, Subject, verify};
use serde_json::json;

use super::super::script::issues;
use super::super::writer::{composed, plan, run_writing};
use super::agreement::made;

struct Written {
    facts: Vec<Fact>,
    nodes: Vec<NodeRecord>,
    answer: CitedAnswer,
}

/// A run whose writer writes this; what cannot be written is refused.
fn written(text: &str) -> Written {
    let (outcome, ..) = run_writing(&|_| composed(text), None);
    let (nodes, _) = made(&plan(), &outcome.facts);
    Written {
        facts: outcome.facts,
        nodes,
        answer: outcome.answer,
    }
}

impl Written {
    fn summary(&mut self) -> &mut Claim {
        let mut claims = self.answer.claims.iter_mut();
        claims.find(|claim| claim.name == "in-short").unwrap()
    }

    /// What is found at the summary, and how much is found in all.
    fn found(&mut self) -> (Vec<String>, usize) {
        self.answer.result_hash = self.answer.hash_result();
        let plan = plan();
        let bytes = serde_json::to_vec(&issues(60)).unwrap();
        let registry = Registry::read(&plan, "issues.json", &bytes).unwrap();
        let subject = Subject {
            plan: &plan,
            facts: &self.facts,
            nodes: &self.nodes,
            answer: &self.answer,
        };
        let report = verify(subject, &Sources::Read(registry));
        let place = Place::Claim(String::from("in-short"));
        let all = report.findings.len();
        let found = report.findings.into_iter();
        let found = found.filter(|finding| finding.place == place);
        (found.map(|finding| finding.problem).collect(), all)
    }
}

/// True sentences of the run.
fn sentences() -> (u64, String, String) {
    let nothing = written("Nothing.");
    let claim = |name: &str| {
        let mut claims = nothing.answer.claims.iter();
        claims.find(|claim| claim.name == name).unwrap().clone()
    };
    let blockers = claim("blockers");
    let cite = &blockers.cites[0];
    let (unit, quote) = (
        &cite.unit_id,
        cite.span.as_ref().unwrap().quote.as_ref().unwrap(),
    );
    let count = blockers.value.as_u64().unwrap();
    let percent = (count * 100 + 30) / 60;
    let text = format!(
        "{count} of 60 issues, {percent} %, block the release; the 1st is [{unit}], \"{quote}\"."
    );
    (count, unit.to_string(), text)
}

#[test]
fn prose_that_passed_is_verified_and_so_is_a_refusal() {
    let (_, _, text) = sentences();
    for text in [
        "Nothing.",
        &text,
        "Nearly 4711 issues block it.",
        "Seven [nobody].",
    ] {
        let mut run = written(text);
        let refused = run.summary().refused.is_some();
        assert_eq!(
            refused,
            text.contains("4711") || text.contains("nobody"),
            "{text}"
        );
        assert_eq!(run.found(), (Vec::new(), 0), "{text}");
    }
}

#[test]
fn what_was_changed_in_a_summary_is_found() {
    let (count, unit, text) = sentences();
    type Change<'a> = (&'a str, &'a dyn Fn(&mut Claim));
    let reword = |claim: &mut Claim, from: &str, to: &str| {
        let prose = claim.value["prose"].as_str().unwrap().replacen(from, to, 1);
        claim.value["prose"] = json!(prose);
        claim.text = claim.text.replacen(from, to, 1);
    };
    let wrong = (count + 1_000).to_string();
    let changes: [Change<'_>; 8] = [
        ("which was not checked", &|claim| {
            reword(claim, &count.to_string(), &wrong);
        }),
        ("which no claim that it is of says", &|claim| {
            reword(claim, &count.to_string(), &wrong);
            claim.value["checked_numbers"][0]["written"] = json!(wrong);
        }),
        ("its text", &|claim| {
            claim.text = claim.text.replace("block", "do not block")
        }),
        ("its text", &|claim| {
            claim.text = claim.text.replace("meaning not checked", "checked")
        }),
        ("dissent:", &|claim| claim.value["dissent"] = json!([])),
        ("cites:", &|claim| claim.cites.clear()),
        ("cites_total", &|claim| claim.cites_total = 7),
        ("which no claim that it is of names", &|claim| {
            claim.value["cited_units"] = json!([unit, "999"]);
        }),
    ];
    for (problem, change) in changes {
        let mut run = written(&text);
        change(run.summary());
        let (found, _) = run.found();
        assert!(
            found.iter().any(|line| line.contains(problem)),
            "{problem}: {found:?}"
        );
    }
    let mut run = written(&text);
    let at = run
        .answer
        .claims
        .iter()
        .position(|claim| claim.name == "in-short")
        .unwrap();
    let claim = run.answer.claims.remove(at);
    assert_eq!(run.found(), (vec![String::from("is not made")], 1));
    run.answer.claims.push(claim);
    assert!(run.found().0[0].contains("is made at place"));
}
