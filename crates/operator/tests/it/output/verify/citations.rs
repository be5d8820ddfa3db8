//! Sufficiency: what a claim cites is enough to make the claim again.

use std::collections::BTreeSet;

use operator::Plan;
use operator::answer::Claim;
use operator::fact::Fact;
use operator::id::UnitId;
use operator::selfcheck::{Artifact, Corpus, check};
use operator::verify::{Subject, backing};
use proptest::prelude::*;

use super::super::facts::{facts, reduced};
use super::agreement::{made, under};
use super::{ARTIFACT, CORPUS, plan};

/// The claim of that name, folded from the facts of some units alone.
fn folded_from(plan: &Plan, facts: &[Fact], units: &[UnitId], name: &str) -> Claim {
    let units: BTreeSet<&UnitId> = units.iter().collect();
    let some: Vec<Fact> = facts
        .iter()
        .filter(|fact| units.contains(&fact.unit_id))
        .cloned()
        .collect();
    assert_eq!(some.len(), units.len(), "every unit has a fact");
    let claims = reduced(plan, &some, plan.fold.fan_in as u32).claims;
    claims.into_iter().find(|claim| claim.name == name).unwrap()
}

/// Whether the cap left every citation in place.
fn cites_all(claim: &Claim) -> bool {
    claim.cites.len() as u64 == claim.cites_total
}

fn cited(claim: &Claim) -> Vec<UnitId> {
    claim
        .cites
        .iter()
        .map(|cite| cite.unit_id.clone())
        .collect()
}

/// Folds every claim again from what backs it: its citations where all are there, else its
/// lineage. Returns how many claims needed no more than their citations.
fn regenerate(plan: &Plan, artifact: &Artifact) -> usize {
    let subject = Subject {
        plan,
        facts: &artifact.facts,
        nodes: &artifact.nodes,
        answer: &artifact.answer,
    };
    let mut by_citations = 0;
    for claim in &artifact.answer.claims {
        let lineage = backing(subject, &claim.name);
        for cite in cited(claim) {
            assert!(
                lineage.contains(&cite),
                "{}: {cite} is cited and no source",
                claim.name
            );
        }
        let units = if cites_all(claim) {
            by_citations += 1;
            cited(claim)
        } else {
            assert!(lineage.len() > claim.cites.len(), "{}", claim.name);
            lineage
        };
        let again = folded_from(plan, &artifact.facts, &units, &claim.name);
        assert_eq!(again.value, claim.value, "{}", claim.name);
        assert_eq!(again.cites, claim.cites, "{}", claim.name);
        assert_eq!(again.cites_total, claim.cites_total, "{}", claim.name);
    }
    by_citations
}

/// Under the check's own caps, 10 citations and 1, none of the four claims lists all that it rests
/// on: all are made again from the lineage, which the tree keeps. With the caps at 64, the most
/// that a plan may ask for, one of four, the surest three, is made again from its citations alone,
/// for more records block than 64. When only security issues are asked for, four of four are.
#[test]
fn every_claim_of_the_artifact_is_made_again_from_its_citations_or_its_lineage() {
    assert_eq!(regenerate(&plan(), &ARTIFACT), 0);
    let mut text = CORPUS.plan.to_owned();
    for cap in ["cite_max = 10\n", "cite_max = 1\n"] {
        text = text.replace(cap, "cite_max = 64\n");
    }
    let text = text.replace("cite_max = 1", "cite_max = 64");
    let artifact = check(Corpus {
        plan: &text,
        ..CORPUS
    })
    .unwrap();
    let plan = Plan::parse(&text, "wide.toml").unwrap();
    assert_eq!(regenerate(&plan, &artifact), 1);
    let few = text.replace(
        "where = { blocker = \"yes\" }",
        "where = { cause = \"security\" }",
    );
    let artifact = check(Corpus {
        plan: &few,
        ..CORPUS
    })
    .unwrap();
    let plan = Plan::parse(&few, "few.toml").unwrap();
    assert_eq!(regenerate(&plan, &artifact), 4);
}

#[test]
fn a_citation_too_few_makes_another_claim() {
    let plan = plan();
    let subject = Subject {
        plan: &plan,
        facts: &ARTIFACT.facts,
        nodes: &ARTIFACT.nodes,
        answer: &ARTIFACT.answer,
    };
    for name in ["causes", "blockers"] {
        let mut units = backing(subject, name);
        units.pop();
        let claim = ARTIFACT
            .answer
            .claims
            .iter()
            .find(|claim| claim.name == name)
            .unwrap();
        let again = folded_from(&plan, &ARTIFACT.facts, &units, name);
        assert_ne!(again.value, claim.value, "{name}");
    }
}

#[test]
fn a_tree_that_names_itself_has_an_end() {
    let mut artifact = ARTIFACT.clone();
    let root = artifact.nodes[0].node.range;
    let inner = &mut artifact.nodes[1].node;
    inner.range = root;
    let plan = plan();
    let subject = Subject {
        plan: &plan,
        facts: &artifact.facts,
        nodes: &artifact.nodes,
        answer: &artifact.answer,
    };
    assert!(backing(subject, "blockers").len() < 1_000);
    assert!(backing(subject, "no such claim").is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn complete_citations_and_lineage_are_enough_for_every_operation(
        facts in facts(60), fan_in in 2..=9_u32,
    ) {
        let plan = under(fan_in);
        let (nodes, answer) = made(&plan, &facts);
        let subject = Subject { plan: &plan, facts: &facts, nodes: &nodes, answer: &answer };
        for claim in answer.claims.iter().filter(|claim| claim.refused.is_none()) {
            let again = folded_from(&plan, &facts, &backing(subject, &claim.name), &claim.name);
            prop_assert_eq!(&again.value, &claim.value, "{} by lineage", claim.name);
            // An extreme cites the units that carry it; the number of all it was taken over is
            // no part of its value.
            if cites_all(claim) {
                let again = folded_from(&plan, &facts, &cited(claim), &claim.name);
                prop_assert_eq!(&again.value, &claim.value, "{} by citations", claim.name);
            }
        }
    }
}
