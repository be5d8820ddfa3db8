//! The artifact of the fold's own check, with its witness, against the corpus that it speaks of.
//!
//! Plan, records and oracle come from the verifier's side. What the check tried by folding again is
//! held to what it must have given: the same result, one path of new nodes, none at all.

use std::collections::{BTreeSet, HashSet};

use serde_json::Value;

use super::derive::tally;
use super::difference::difference;
use super::{Derived, Place, Registry, Report, Sources, Subject};
use crate::answer::Claim;
use crate::canonical::Canonical;
use crate::error::OperatorError;
use crate::fact::Status;
use crate::fold::{CITES_MAX, Child, FoldWork};
use crate::id::{ContentHash, UnitId};
use crate::plan::Plan;
use crate::selfcheck::{Artifact, Audit, Corpus, FORMAT, Witness, read_oracle};

/// How the check names its records.
const RECORDS: &str = "issues-1000.json";

/// Verifies an artifact against the corpus.
///
/// # Errors
/// `Plan`, and whatever reading the corpus may cause: the artifact alone causes none.
pub fn verify_artifact(artifact: &Artifact, corpus: Corpus<'_>) -> Result<Report, OperatorError> {
    let plan = Plan::parse(corpus.plan, "fold-selfcheck.toml")?;
    let registry = Registry::read(&plan, RECORDS, corpus.records)?;
    let blockers: HashSet<UnitId> = read_oracle(corpus.oracle)?
        .iter()
        .filter(|row| row.blocker)
        .map(|row| UnitId::new(&row.number.to_string()))
        .collect();
    let mut report = Report::default();
    let subject = Subject {
        plan: &plan,
        facts: &artifact.facts,
        nodes: &artifact.nodes,
        answer: &artifact.answer,
    };
    let file = Place::File(String::from("artifact"));
    if artifact.format != FORMAT {
        let problem = format!("its format is {:?}, {FORMAT:?} is right", artifact.format);
        report.content(file.clone(), problem);
    }
    if artifact.plan != corpus.plan {
        report.content(file.clone(), "its plan is not that of the check");
    }
    if artifact.source_hash != registry.hash() {
        let (found, right) = (artifact.source_hash, registry.hash());
        report.content(
            file,
            format!("source_hash is {found}, the records hash to {right}"),
        );
    }
    if artifact.answer.source.path != RECORDS {
        let path = &artifact.answer.source.path;
        report.content(
            Place::Answer,
            format!("source.path is {path:?}, {RECORDS:?} is right"),
        );
    }
    let derived = super::check(subject, &Sources::Read(registry), &mut report);
    check_witness(subject, &artifact.witness, &derived, &blockers, &mut report);
    report.sort();
    Ok(report)
}

fn check_witness(
    subject: Subject<'_>,
    witness: &Witness,
    derived: &Derived,
    blockers: &HashSet<UnitId>,
    report: &mut Report,
) {
    let nodes = &derived.nodes;
    let most = |counts: &mut dyn Iterator<Item = usize>| counts.max().unwrap_or(0) as u64;
    let leaves = subject.facts.len() as u64;
    let levels = most(&mut nodes.iter().map(|record| record.path.len()));
    let inputs = most(&mut nodes.iter().map(|record| record.node.children.len()));
    let citations = most(&mut nodes.iter().map(|record| record.citations.len()));
    let mut right = subject.answer.clone();
    right.claims.clone_from(&derived.claims);
    right.coverage = tally(subject.facts.iter());
    let result = super::hash::answer(&right);
    let claims = &derived.claims;
    let variants = expected_variants(result);
    let (whole, middle) = (leaves + nodes.len() as u64, decided_in_the_middle(subject));
    let path = middle.as_ref().map_or(0, |unit| path_length(derived, unit));
    let mut say = |what: &str, differs: Option<String>| {
        if let Some(differs) = differs {
            report.content(Place::Witness, format!("{what} {differs}"));
        }
    };
    let mut number = |what: &str, found: u64, right: u64| say(what, difference(&found, &right));
    number("leaves", witness.leaves, leaves);
    number("nodes", witness.nodes, nodes.len() as u64);
    number("levels", witness.levels, levels);
    number("inputs_max", witness.inputs_max, inputs);
    number("citations_max", witness.citations_max, citations);
    number("citations_cap", witness.citations_cap, CITES_MAX as u64);
    say("result_hash", difference(&witness.result_hash, &result));
    say("variants:", difference(&witness.variants, &variants));
    say(
        "dissent:",
        difference(&witness.dissent, &outliers(claims, "dissent")),
    );
    say(
        "abstained:",
        difference(&witness.abstained, &outliers(claims, "abstained")),
    );
    say("cited:", difference(&witness.cited, &cited(claims)));
    for (what, mutation, nodes_computed) in [
        ("mutation:", &witness.mutation, path),
        ("edit:", &witness.edit, 0),
    ] {
        let work = FoldWork {
            leaves_computed: 1,
            leaves_reused: leaves.saturating_sub(1),
            nodes_computed,
            nodes_reused: whole - leaves - nodes_computed,
        };
        say(what, difference(&mutation.work, &work));
        say(what, difference(&Some(&mutation.unit), &middle.as_ref()));
    }
    for (what, differs) in check_audit(subject, &witness.audit, blockers) {
        say(what, Some(differs));
    }
}

/// Every other order and width that is tried, each with the one result.
fn expected_variants(result: ContentHash) -> Vec<(String, ContentHash)> {
    let shuffled = (1..=crate::selfcheck::SHUFFLES).map(|seed| format!("shuffled {seed}"));
    let widths = crate::selfcheck::FAN_INS.iter();
    std::iter::once(String::from("reversed"))
        .chain(shuffled)
        .chain(widths.map(|fan_in| format!("fan-in {fan_in}")))
        .map(|name| (name, result))
        .collect()
}

fn decided_in_the_middle(subject: Subject<'_>) -> Option<UnitId> {
    let decided: Vec<&UnitId> = subject
        .facts
        .iter()
        .filter(|fact| fact.stage == "map" && fact.status == Status::Decided)
        .map(|fact| &fact.unit_id)
        .collect();
    decided.get(decided.len() / 2).map(|unit| (*unit).clone())
}

/// Nodes above a unit's leaf.
fn path_length(derived: &Derived, wanted: &UnitId) -> u64 {
    let above = derived.nodes.iter().find(|record| {
        let mut children = record.node.children.iter();
        children.any(|child| matches!(child, Child::Leaf { unit, .. } if unit.id == *wanted))
    });
    above.map_or(0, |record| record.path.len() as u64)
}

fn outliers(claims: &[Claim], kind: &str) -> Vec<UnitId> {
    let lists = claims
        .iter()
        .filter_map(|claim| claim.value.get(kind)?.as_array());
    lists
        .flatten()
        .filter_map(Value::as_str)
        .map(UnitId::new)
        .collect()
}

fn cited(claims: &[Claim]) -> BTreeSet<&UnitId> {
    claims
        .iter()
        .flat_map(|claim| claim.cites.iter().map(|cite| &cite.unit_id))
        .collect()
}

/// Units that are read back, and the confidence with which, are part of the format.
const AUDITED: usize = 25;
const ALPHA_PPM: u32 = 50_000;

fn check_audit(
    subject: Subject<'_>,
    audit: &Audit,
    blockers: &HashSet<UnitId>,
) -> Vec<(&'static str, String)> {
    let mut excluded: Vec<([u8; 32], &UnitId)> = subject
        .facts
        .iter()
        .filter(|fact| fact.status == Status::Excluded)
        .map(|fact| {
            let mut text = Canonical::new("operator 2026 audit sample v1");
            text.text(&audit.seed).text(fact.unit_id.as_str());
            (text.digest(), &fact.unit_id)
        })
        .collect();
    excluded.sort_unstable();
    let population = excluded.len() as u64;
    let drawn: Vec<&UnitId> = excluded
        .iter()
        .take(AUDITED)
        .map(|(_, unit)| *unit)
        .collect();
    let misses: Vec<&UnitId> = drawn
        .iter()
        .copied()
        .filter(|unit| blockers.contains(*unit))
        .collect();
    let (read, found) = (drawn.len() as u64, misses.len() as u64);
    let mut problems = Vec::new();
    let mut say = |what, differs: Option<String>| {
        problems.extend(differs.map(|differs| (what, differs)));
    };
    say(
        "audit.population",
        difference(&audit.population, &population),
    );
    say("audit.audited:", difference(&audit.audited, &drawn));
    say("audit.misses:", difference(&audit.misses, &misses));
    say(
        "audit.confidence_ppm",
        difference(&audit.confidence_ppm, &(1_000_000 - ALPHA_PPM)),
    );
    say("audit.seed", difference(&audit.seed, "fold selfcheck"));
    let alpha = f64::from(ALPHA_PPM) / 1e6;
    let at_most = |misses: u64| hypergeometric(population, misses, read, found);
    let upper = audit.misses_upper;
    let room = population - (read - found);
    let tight = upper <= room
        && upper >= found
        && at_most(upper) >= alpha * (1.0 - SLACK)
        && (upper == room || at_most(upper + 1) < alpha * (1.0 + SLACK));
    if !tight {
        say(
            "audit.misses_upper",
            Some(format!("is {upper}, which is not the bound")),
        );
    }
    let share = |ppm: u32| binomial(f64::from(ppm) / 1e6, read, found);
    let rate = audit.rate_upper_ppm;
    let tight = match found == read {
        true => rate == 1_000_000,
        false => {
            (1..=1_000_000).contains(&rate)
                && share(rate) < alpha * (1.0 + SLACK)
                && share(rate - 1) >= alpha * (1.0 - SLACK)
        }
    };
    if !tight {
        say(
            "audit.rate_upper_ppm",
            Some(format!("is {rate}, which is not the bound")),
        );
    }
    problems
}

/// Relative error that two ways of computing one probability may differ by.
const SLACK: f64 = 1e-6;

/// Probability of at most `found` among `read` of `population`, of which `misses` are.
///
/// Summed term by term as products of draws without putting back.
fn hypergeometric(population: u64, misses: u64, read: u64, found: u64) -> f64 {
    let term = |drawn: u64| {
        let ways = choose(read, drawn);
        let hit = (0..drawn).map(|i| misses.saturating_sub(i) as f64 / (population - i) as f64);
        let sound = (population - misses) as f64;
        let missed = (0..read - drawn)
            .map(|i| (sound - i as f64).max(0.0) / (population - drawn - i) as f64);
        ways * hit.product::<f64>() * missed.product::<f64>()
    };
    (0..=found.min(read)).map(term).sum()
}

/// Probability of at most `found` among `read` at a share.
fn binomial(share: f64, read: u64, found: u64) -> f64 {
    let power = |base: f64, times: u64| (0..times).map(|_| base).product::<f64>();
    (0..=found.min(read))
        .map(|drawn| choose(read, drawn) * power(share, drawn) * power(1.0 - share, read - drawn))
        .sum()
}

fn choose(of: u64, some: u64) -> f64 {
    (0..some)
        .map(|i| (of - i) as f64 / (some - i) as f64)
        .product()
}
