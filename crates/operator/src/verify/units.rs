//! Units that were not asked: with nothing to ask about, or without a relation that the answer needs.

use crate::fact::{Fact, Status};
use crate::group;
use crate::plan::{Granularity, Plan};

/// A unit with nothing to ask about: one field without text, or a record without neighbours.
pub(super) fn check_skipped(plan: &Plan, fact: &Fact, problems: &mut Vec<String>) {
    let skips = matches!(plan.unit.kind, Granularity::Field | Granularity::Group);
    if fact.status != Status::Excluded || fact.reason.is_none() || fact.members.len() != 1 || !skips
    {
        problems.push(format!(
            "is {} at {}, where only units with nothing to ask about end",
            fact.status,
            group::STAGE
        ));
    }
    if fact.backend.is_some() || !fact.evidence.is_empty() {
        problems.push("has nothing to be asked about, and evidence or a backend".to_owned());
    }
}

/// Whether a unit abstains because an answer depends on a relation that it does not show.
pub(super) fn lacks_relation(plan: &Plan, fact: &Fact) -> bool {
    let lacking = |reason: &String| reason.starts_with("lacks relation ");
    fact.status == Status::Abstained
        && fact.reason.as_ref().is_some_and(lacking)
        && plan.stage(&fact.stage).is_some()
}

pub(super) fn check_lacking(plan: &Plan, fact: &Fact, problems: &mut Vec<String>) {
    let needed = plan.required_relations();
    let widens = plan.unit.widen;
    let missing: Vec<&str> = needed
        .iter()
        .filter(|relation| !plan.unit.provided().contains(relation))
        .map(|relation| relation.as_str())
        .collect();
    let names = fact.reason.as_deref().unwrap_or_default();
    let names = names.trim_start_matches("lacks relation ");
    let (names, neighbour) = match names.split_once(": ") {
        Some((names, why)) => (names, Some(why)),
        None => (names, None),
    };
    let known = names.split(" and ").all(|name| missing.contains(&name));
    let why = neighbour.is_some_and(|why| why == "no neighbour");
    if !known || why != widens || neighbour.is_some() != widens {
        problems.push(format!(
            "abstains for {:?}, and the plan's units lack {missing:?}",
            fact.reason
        ));
    }
    if !plan.is_staged() && (fact.backend.is_some() || !fact.values.is_empty()) {
        problems.push("lacks a relation, and was asked all the same".to_owned());
    }
}
