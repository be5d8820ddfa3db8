//! Finds what a name means in a run: a unit's id, a node's name or hash, or a claim's name.
//!
//! Must not know what is told of what is found.

use crate::answer::Claim;
use crate::error::OperatorError;
use crate::fact::Fact;
use crate::fold::NodeRecord;
use crate::id::UnitId;
use crate::nearest::nearest;
use crate::recorded::{RecordedRun, node_name};

/// Fewest hex digits that are taken for a hash.
const HASH_DIGITS_MIN: usize = 6;
/// Names shown where several come close.
const NEAR_MAX: usize = 3;

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A unit, by its id.
    Unit,
    /// A node, as `START/HEIGHT` or by the first digits of its provenance hash.
    Node,
    /// A claim, by the name of its reduction.
    Claim,
}

/// What was found.
#[derive(Debug, Clone, Copy)]
pub enum Found<'a> {
    /// The fact of a unit.
    Unit(&'a Fact),
    /// A node.
    Node(&'a NodeRecord),
    /// A claim.
    Claim(&'a Claim),
}

/// Finds a unit, else a node by its name, else a claim, else a node by its hash; with a kind, only
/// that.
///
/// # Errors
/// `NotRecorded` naming what was searched and what comes closest.
pub fn find<'a>(
    run: &'a RecordedRun,
    wanted: &str,
    kind: Option<Kind>,
) -> Result<Found<'a>, OperatorError> {
    let looks_for = |one: Kind| kind.is_none_or(|kind| kind == one);
    if looks_for(Kind::Unit)
        && let Some(fact) = run.fact(&UnitId::new(wanted))
    {
        return Ok(Found::Unit(fact));
    }
    if looks_for(Kind::Node)
        && let Some(record) = run.node_named(wanted)
    {
        return Ok(Found::Node(record));
    }
    let mut claims = run.answer.claims.iter();
    if looks_for(Kind::Claim)
        && let Some(claim) = claims.find(|claim| claim.name == wanted)
    {
        return Ok(Found::Claim(claim));
    }
    if looks_for(Kind::Node) && is_hash(wanted) {
        let found = run.nodes_hashed(wanted);
        match found.as_slice() {
            [] => {}
            [record] => return Ok(Found::Node(record)),
            several => return Err(not_recorded(run, wanted, ambiguous(several))),
        }
    }
    let mut searched = Vec::new();
    if looks_for(Kind::Unit) {
        searched.push(units(run, wanted));
    }
    if looks_for(Kind::Node) {
        searched.push(nodes(run));
    }
    if looks_for(Kind::Claim) {
        searched.push(claim_names(run, wanted));
    }
    let what = match kind {
        None => "no unit, no node and no claim of this run",
        Some(Kind::Unit) => "no unit of this run",
        Some(Kind::Node) => "no node of this run",
        Some(Kind::Claim) => "no claim of this run",
    };
    Err(not_recorded(
        run,
        wanted,
        format!("{what}; {}", searched.join("; ")),
    ))
}

fn is_hash(text: &str) -> bool {
    let digits = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    (HASH_DIGITS_MIN..=64).contains(&text.len()) && text.bytes().all(digits)
}

fn not_recorded(run: &RecordedRun, wanted: &str, problem: String) -> OperatorError {
    OperatorError::NotRecorded {
        path: run.path.clone(),
        wanted: wanted.to_owned(),
        problem,
    }
}

fn ambiguous(several: &[&NodeRecord]) -> String {
    let names: Vec<String> = several
        .iter()
        .take(NEAR_MAX)
        .map(|record| {
            let hash = record.node.hashes.provenance_hash.to_string();
            format!("{} ({})", node_name(&record.node.range), &hash[..12])
        })
        .collect();
    format!(
        "the beginning of {} hashes, among them {}; give more digits",
        several.len(),
        names.join(", ")
    )
}

fn units(run: &RecordedRun, wanted: &str) -> String {
    let mut places: Vec<_> = run
        .facts
        .iter()
        .map(|fact| run.spec().place(fact))
        .collect();
    places.sort_unstable();
    let (Some(first), Some(last)) = (places.first(), places.last()) else {
        return String::from("it has no units");
    };
    let mut text = match places.len() {
        1 => format!("its unit is {}", first.id),
        many => format!("its {many} units go from {} to {}", first.id, last.id),
    };
    let near = near(wanted, places.iter().map(|unit| unit.id.as_str()));
    if !near.is_empty() {
        text.push_str(&format!(", close to it {}", near.join(", ")));
    }
    text
}

/// The ids that are closest: by number where all are numbers, else by their common beginning.
fn near<'a>(wanted: &str, ids: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut near: Vec<(u64, &str)> = match wanted.parse::<u64>() {
        Ok(number) => ids
            .filter_map(|id| Some((id.parse::<u64>().ok()?.abs_diff(number), id)))
            .collect(),
        Err(_) => ids
            .map(|id| {
                let shared = id.chars().zip(wanted.chars());
                (shared.take_while(|(a, b)| a == b).count() as u64, id)
            })
            .filter(|(shared, _)| *shared > 0)
            .map(|(shared, id)| (u64::MAX - shared, id))
            .collect(),
    };
    // Stable, so that ties stay in key order.
    near.sort_by_key(|(distance, _)| *distance);
    near.into_iter().take(NEAR_MAX).map(|(_, id)| id).collect()
}

fn nodes(run: &RecordedRun) -> String {
    let Some(root) = run.root() else {
        return String::from("it has no nodes");
    };
    let last = run
        .nodes
        .iter()
        .max_by_key(|record| record.node.range.start);
    let last = last.map_or_else(String::new, |record| node_name(&record.node.range));
    format!(
        "its {} nodes are named START/HEIGHT, from the root {} to {last}, or by {HASH_DIGITS_MIN} \
         hex digits or more of their provenance hash",
        run.nodes.len(),
        node_name(&root.node.range)
    )
}

fn claim_names(run: &RecordedRun, wanted: &str) -> String {
    let names: Vec<&str> = run
        .answer
        .claims
        .iter()
        .map(|claim| claim.name.as_str())
        .collect();
    if names.is_empty() {
        return String::from("it has no claims");
    }
    let list = format!("its claims are {}", names.join(", "));
    match nearest(wanted, &names) {
        Some(near) => format!("{list}; did you mean {near:?}?"),
        None => list,
    }
}
