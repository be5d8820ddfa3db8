//! The head of the answer: what was asked, who answered, how many units ended how, and the hashes.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::derive::tally;
use super::difference::difference;
use super::{Place, Report, Sources, Subject, hash};
use crate::answer::{ANSWER_VERSION, ReasonCount, TreeSummary};
use crate::fact::{Fact, Status};
use crate::fold::NodeRecord;
use crate::ops::prefilter::shared_reason;

/// Compares everything of the answer but its claims; `by_rule` says whether a run that may stop early is
/// complete.
pub(super) fn check(
    subject: Subject<'_>,
    nodes: &[NodeRecord],
    by_rule: Option<bool>,
    sources: &Sources,
    report: &mut Report,
) {
    let (plan, answer) = (subject.plan, subject.answer);
    let counts = tally(subject.facts.iter());
    let answered = counts.errored + counts.cancelled + counts.not_run == 0;
    // What a breaker left is complete only where every unit has an answer.
    let by_rule = by_rule.filter(|_| answer.quarantine.is_none());
    let complete = by_rule.unwrap_or(answered);
    let tree = nodes.first().map(|root| TreeSummary {
        hashes: root.node.hashes,
        fan_in: u32::try_from(plan.fold.fan_in).unwrap_or(u32::MAX),
        levels: nodes.iter().map(|node| node.path.len()).max().unwrap_or(0) as u64,
        nodes: nodes.len() as u64,
    });
    let facts = subject.facts.len() as u64;
    let mut parts = vec![
        ("its version", difference(&answer.version, &ANSWER_VERSION)),
        ("its question", difference(&answer.question, &plan.question)),
        ("plan_hash", difference(&answer.plan_hash, &plan.hash())),
        ("source.records", difference(&answer.source.records, &facts)),
        (
            "simulated",
            difference(&answer.simulated, &answer.backend.simulated),
        ),
        ("complete", difference(&answer.complete, &complete)),
        ("coverage:", difference(&answer.coverage, &counts)),
        (
            "coverage_by_reason:",
            difference(&answer.coverage_by_reason, &by_reason(subject.facts)),
        ),
    ];
    if let Sources::Read(registry) = sources {
        let (records, hash) = (registry.len(), registry.hash());
        parts.push((
            "source.records",
            difference(&answer.source.records, &records),
        ));
        parts.push(("source.hash", difference(&answer.source.hash, &hash)));
    }
    for (what, differs) in parts {
        if let Some(differs) = differs {
            report.content(Place::Answer, format!("{what} {differs}"));
        }
    }
    if let Some(differs) = difference(&answer.tree, &tree) {
        // A root hash follows every change below; the numbers stand for themselves.
        let hashes = |tree: &TreeSummary| tree.hashes;
        let mut sealed = tree.clone();
        if let (Some(sealed), Some(found)) = (&mut sealed, &answer.tree) {
            sealed.hashes = hashes(found);
        }
        let problem = format!("tree: {differs}");
        match sealed == answer.tree {
            true => report.hash(Place::Answer, problem),
            false => report.content(Place::Answer, problem),
        }
    }
    let result = hash::answer(answer);
    if result != answer.result_hash {
        let problem = format!(
            "result_hash is {}, the content hashes to {result}",
            answer.result_hash
        );
        report.hash(Place::Answer, problem);
    }
}

/// Units per status, stage and kind of reason, in the order of reports, most frequent first.
fn by_reason(facts: &[Fact]) -> Vec<ReasonCount> {
    let mut groups: BTreeMap<(u8, String, Option<String>), (Status, u64)> = BTreeMap::new();
    for fact in facts {
        let kind = fact.reason.clone().map(|reason| match fact.status {
            // What follows is the unit's own.
            Status::Errored | Status::Abstained => reason
                .split_once(": ")
                .map_or(reason.clone(), |(kind, _)| kind.to_owned()),
            _ => shared_reason(&reason).to_owned(),
        });
        let key = (place(fact.status), fact.stage.clone(), kind);
        groups.entry(key).or_insert((fact.status, 0)).1 += 1;
    }
    let mut rows: Vec<ReasonCount> = groups
        .into_iter()
        .map(|((_, stage, reason), (status, units))| ReasonCount {
            status,
            stage,
            reason,
            units,
        })
        .collect();
    rows.sort_by_key(|row| (place(row.status), Reverse(row.units)));
    rows
}

const fn place(status: Status) -> u8 {
    match status {
        Status::Excluded => 0,
        Status::Decided => 1,
        Status::Abstained => 2,
        Status::Errored => 3,
        Status::Cancelled => 4,
        Status::NotRun => 5,
    }
}
