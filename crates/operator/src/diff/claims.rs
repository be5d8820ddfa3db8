//! Compares claims: what each says before and after, and which changed units are behind it.
//!
//! A unit is behind a claim when its reducer makes something else of the unit, or when the claim
//! cites other bytes of it. Must not know trees.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::answer::Claim;
use crate::fact::Cite;
use crate::fold::Reducer;
use crate::id::{ContentHash, UnitId};
use crate::ops::reduce::aggregate;
use crate::plan::{Operation, Reduce};
use crate::recorded::RecordedRun;
use crate::reducers::AggregateState;

use super::units::UnitDifference;

/// Most units that are named as being behind a claim.
const BEHIND_MAX: usize = 64;

/// A claim that differs between two runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimDifference {
    /// Name of the reduction.
    pub claim: String,
    /// In the first run; none where the claim is new.
    pub before: Option<ClaimSide>,
    /// In the second run; none where the claim is gone.
    pub after: Option<ClaimSide>,
    /// Whether the plan words or computes it in another way.
    pub reduction_changed: bool,
    /// Whether the value, or the refusal to give one, differs.
    pub value_changed: bool,
    /// Units that only the second run cites.
    pub cites_added: Vec<UnitId>,
    /// Units that only the first run cites.
    pub cites_removed: Vec<UnitId>,
    /// Units that both cite, by other bytes.
    pub cites_changed: Vec<UnitId>,
    /// Changed units that are behind it, in key order, capped.
    pub behind: Vec<UnitId>,
    /// All of them.
    pub behind_total: u64,
}

/// A claim in one run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimSide {
    /// Its statement.
    pub text: String,
    /// Its value.
    pub value: Value,
    /// Why there is no value.
    pub refused: Option<String>,
    /// Units that it could cite.
    pub cites_total: u64,
}

/// Compares the claims of two runs; returns those that differ, and how many do not.
pub(super) fn compare(
    before: &RecordedRun,
    after: &RecordedRun,
    units: &[UnitDifference],
) -> (Vec<ClaimDifference>, u64) {
    let mut differences = Vec::new();
    let mut same = 0;
    let old = &before.answer.claims;
    for new in &after.answer.claims {
        let known = old.iter().find(|claim| claim.name == new.name);
        match known {
            Some(known) if equal(known, new) => same += 1,
            known => differences.push(compare_claim(before, after, known, Some(new), units)),
        }
    }
    for gone in old {
        let claims = &after.answer.claims;
        if claims.iter().all(|claim| claim.name != gone.name) {
            differences.push(compare_claim(before, after, Some(gone), None, units));
        }
    }
    (differences, same)
}

/// Equal as the answer's hash sees it: quotes are left out, since a redacted run has none.
fn equal(old: &Claim, new: &Claim) -> bool {
    let spans = |claim: &Claim| -> Vec<(UnitId, Bytes)> {
        let cites = claim.cites.iter();
        cites
            .map(|cite| (cite.unit_id.clone(), bytes(cite)))
            .collect()
    };
    old.text == new.text
        && old.value == new.value
        && old.refused == new.refused
        && old.cites_total == new.cites_total
        && spans(old) == spans(new)
}

/// The record and the spans that a cite names.
type Bytes = (ContentHash, Vec<(String, u32, u32, ContentHash)>);

fn bytes(cite: &Cite) -> Bytes {
    let spans = cite.span.iter().chain(&cite.also);
    let spans = spans.map(|span| (span.field.clone(), span.start, span.end, span.quote_hash));
    (cite.source_hash, spans.collect())
}

fn compare_claim(
    before: &RecordedRun,
    after: &RecordedRun,
    old: Option<&Claim>,
    new: Option<&Claim>,
    units: &[UnitDifference],
) -> ClaimDifference {
    let name = old.or(new).map_or("", |claim| claim.name.as_str());
    let reduction = |run: &RecordedRun| -> Option<Reduce> {
        let mut reduces = run.plan.reduces.iter();
        reduces.find(|reduce| reduce.name == name).cloned()
    };
    let (reduce_old, reduce_new) = (reduction(before), reduction(after));
    let cites = |claim: Option<&Claim>| claim.map_or_else(Vec::new, |claim| claim.cites.clone());
    let (cites_old, cites_new) = (cites(old), cites(new));
    let only = |these: &[Cite], others: &[Cite]| -> Vec<UnitId> {
        let fresh = |cite: &&Cite| others.iter().all(|other| other.unit_id != cite.unit_id);
        these
            .iter()
            .filter(fresh)
            .map(|cite| cite.unit_id.clone())
            .collect()
    };
    let cites_changed: Vec<UnitId> = cites_old
        .iter()
        .filter(|cite| {
            let mut others = cites_new.iter();
            let other = others.find(|other| other.unit_id == cite.unit_id);
            other.is_some_and(|other| bytes(other) != bytes(cite))
        })
        .map(|cite| cite.unit_id.clone())
        .collect();
    let side = |claim: &Claim| ClaimSide {
        text: claim.text.clone(),
        value: claim.value.clone(),
        refused: claim.refused.clone(),
        cites_total: claim.cites_total,
    };
    let (left, right) = (old.map(side), new.map(side));
    let value = |side: &Option<ClaimSide>| {
        let side = side.as_ref();
        side.map(|side| (side.value.clone(), side.refused.clone()))
    };
    let (cites_added, cites_removed) = (only(&cites_new, &cites_old), only(&cites_old, &cites_new));
    let cites = [&cites_changed, &cites_added, &cites_removed];
    let cites: Vec<&UnitId> = cites.into_iter().flatten().collect();
    let behind = behind(
        (before, reduce_old.as_ref()),
        (after, reduce_new.as_ref()),
        left == right,
        &cites,
        units,
    );
    ClaimDifference {
        claim: name.to_owned(),
        value_changed: value(&left) != value(&right),
        before: left,
        after: right,
        reduction_changed: reduce_old != reduce_new,
        cites_added,
        cites_removed,
        cites_changed,
        behind_total: behind.len() as u64,
        behind: behind.into_iter().take(BEHIND_MAX).collect(),
    }
}

/// A run with the reduction of the claim.
type Reduced<'a> = (&'a RecordedRun, Option<&'a Reduce>);

/// The changed units that are behind a claim: of which it cites other bytes where it says the same
/// of as many units, else of which its reducer makes something else.
fn behind(
    old: Reduced<'_>,
    new: Reduced<'_>,
    said_the_same: bool,
    cites: &[&UnitId],
    units: &[UnitDifference],
) -> Vec<UnitId> {
    let pick = |chosen: &dyn Fn(&UnitId) -> bool| -> Vec<UnitId> {
        let ids = units.iter().map(|unit| &unit.unit_id);
        ids.filter(|unit| chosen(unit)).cloned().collect()
    };
    let cited = |unit: &UnitId| cites.contains(&unit);
    let found = if said_the_same {
        pick(&cited)
    } else {
        pick(&|unit| cited(unit) || part(old, unit) != part(new, unit))
    };
    if !found.is_empty() {
        return found;
    }
    // The value stands, so that the words differ by the coverage that they state.
    let status = |(run, _): Reduced<'_>, unit: &UnitId| run.fact(unit).map(|fact| fact.status);
    pick(&|unit| status(old, unit) != status(new, unit))
}

/// What a reduction makes of one unit; nothing where it does not count it. For a summary, what the
/// claims that it was written from make of the unit.
fn part((run, reduce): Reduced<'_>, unit: &UnitId) -> Vec<(String, AggregateState)> {
    let (Some(reduce), Some(fact)) = (reduce, run.fact(unit)) else {
        return Vec::new();
    };
    let named = |name: &String| run.plan.reduces.iter().find(|other| other.name == *name);
    let folded: Vec<&Reduce> = match &reduce.op {
        Operation::Summary { of, .. } => of.iter().filter_map(named).collect(),
        _ => vec![reduce],
    };
    let lift = |reduce: &Reduce| {
        let reducer = aggregate(&run.plan, reduce)?;
        let mut state = reducer.empty();
        let counted = reducer.absorb(&mut state, &run.spec().place(fact), fact);
        counted.then(|| (reduce.name.clone(), state))
    };
    folded.into_iter().filter_map(lift).collect()
}
