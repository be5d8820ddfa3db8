//! Every hash that verification compares, written out from the documented encodings.
//!
//! Nothing here asks a fact, a node, a state or an answer for its own hash.

use std::collections::BTreeMap;

use crate::answer::CitedAnswer;
use crate::canonical::Canonical;
use crate::column::ColumnValue;
use crate::coverage::Counts;
use crate::fact::{Evidence, Fact, FieldValue, Status};
use crate::fold::{Child, Hashes, Node};
use crate::id::ContentHash;
use crate::plan::FoldKey;
use crate::reducers::{AggregateState, Groups, Ranked};
use crate::stopping::StopReport;

/// Stands where hashes are not derived yet.
pub(super) const NONE: Hashes = Hashes {
    fact_hash: ContentHash::from_bytes([0; 32]),
    provenance_hash: ContentHash::from_bytes([0; 32]),
};

/// The two hashes of a fact.
pub(super) fn fact(fact: &Fact) -> Hashes {
    let mut text = Canonical::new("operator 2026 fact v3");
    text.u64(u64::from(fact.schema))
        .text(fact.unit_id.as_str())
        .list(fact.members.len());
    for member in &fact.members {
        text.text(member.as_str());
    }
    text.text(fact.status.name())
        .text(&fact.stage)
        .optional_text(fact.reason.as_deref());
    values(&mut text, &fact.values);
    text.list(fact.columns.len());
    for (name, value) in &fact.columns {
        text.text(name);
        match value {
            ColumnValue::Integer(number) => text.i64(*number),
            ColumnValue::Text(value) => text.text(value),
        };
    }
    text.list(fact.path.len());
    for step in &fact.path {
        text.text(&step.stage).text(&step.outcome);
        values(&mut text, &step.values);
        match step.observed {
            None => text.none(),
            Some(hash) => text.some().bytes(hash.as_bytes()),
        };
        text.optional_text(step.backend.as_deref());
    }
    let fact_hash = ContentHash::of(&text);
    let mut text = Canonical::new("operator 2026 provenance v2");
    text.bytes(fact_hash.as_bytes())
        .bytes(fact.source_hash.as_bytes())
        .u64(fact.clipped_bytes)
        .list(fact.evidence.len());
    for evidence in &fact.evidence {
        span(&mut text, evidence);
    }
    text.bool(fact.simulated)
        .optional_text(fact.backend.as_deref());
    Hashes {
        fact_hash,
        provenance_hash: ContentHash::of(&text),
    }
}

fn values(text: &mut Canonical, values: &BTreeMap<String, FieldValue>) {
    text.list(values.len());
    for (field, value) in values {
        text.text(field).text(&value.label);
        for part in [
            value.probability_ppm,
            value.margin_ppm,
            value.label_mass_ppm,
        ] {
            match part {
                None => text.none(),
                Some(ppm) => text.some().u32(ppm),
            };
        }
        text.list(value.alternatives.len());
        for (label, ppm) in &value.alternatives {
            text.text(label).u32(*ppm);
        }
        text.optional_text(value.reason_code.as_deref());
    }
}

fn span(text: &mut Canonical, evidence: &Evidence) {
    text.text(&evidence.field)
        .u32(evidence.start)
        .u32(evidence.end)
        .bytes(evidence.quote_hash.as_bytes());
}

/// The two hashes of a node, from its inputs and from what it says of them.
pub(super) fn node(node: &Node, fan_in: u32, keys: FoldKey) -> Hashes {
    let mut facts = Vec::new();
    let mut provenance = Vec::new();
    let mut starts = Vec::new();
    for child in &node.children {
        let (start, hashes) = match child {
            Child::Leaf { unit, hashes } => (unit.key, hashes),
            Child::Node { range, hashes } => (range.start, hashes),
        };
        starts.push(start);
        facts.extend_from_slice(hashes.fact_hash.as_bytes());
        provenance.extend_from_slice(hashes.provenance_hash.as_bytes());
    }
    let mut text = Canonical::new("operator 2026 fold node v1");
    text.bytes(node.spec.as_bytes())
        .u32(fan_in)
        .u128(node.range.start.get())
        .u32(node.range.height)
        .bytes(&facts);
    if keys == FoldKey::Ordinal {
        for start in starts {
            text.u128(start.get());
        }
    }
    let fact_hash = ContentHash::of(&text);
    let mut text = Canonical::new("operator 2026 fold provenance v1");
    text.bytes(fact_hash.as_bytes())
        .bytes(&provenance)
        .u32(node.version);
    counts(&mut text, &node.coverage.counts, false);
    text.list(node.states.len());
    for held in &node.states {
        state(&mut text, held);
    }
    ranked(&mut text, &node.unsettled);
    text.u64(node.cited_total);
    Hashes {
        fact_hash,
        provenance_hash: ContentHash::of(&text),
    }
}

fn counts(text: &mut Canonical, counts: &Counts, named: bool) {
    text.u64(counts.units);
    for (status, units) in [
        (Status::Excluded, counts.excluded),
        (Status::Decided, counts.decided),
        (Status::Abstained, counts.abstained),
        (Status::Errored, counts.errored),
        (Status::Cancelled, counts.cancelled),
        (Status::NotRun, counts.not_run),
    ] {
        if named {
            text.text(status.name());
        }
        text.u64(units);
    }
}

fn state(text: &mut Canonical, state: &AggregateState) {
    match state {
        AggregateState::Count(units) => ranked(text.text("count"), units),
        AggregateState::CountBy(keys) => groups(text.text("count_by"), keys),
        AggregateState::Set(keys) => groups(text.text("set"), keys),
        AggregateState::TopK(units) => ranked(text.text("top_k"), units),
        AggregateState::TopKeys(keys) => groups(text.text("top_keys"), keys),
        AggregateState::Histogram(bins) => groups(text.text("histogram"), bins),
        AggregateState::Extreme(held) => {
            ranked(text.text("extreme"), &held.units);
            text.u64(held.sharing);
        }
        AggregateState::Sum(sum) => ranked(text.text("sum").i128(sum.sum), &sum.units),
        AggregateState::Quantiles(numbers) => {
            ranked(text.text("quantiles"), &numbers.units);
            text.bool(numbers.bucketed).list(numbers.counts.len());
            for (number, count) in &numbers.counts {
                text.i64(*number).u64(*count);
            }
        }
        AggregateState::HeavyHitters(held) => {
            text.text("heavy_hitters")
                .u64(held.total)
                .u64(held.error_max)
                .list(held.counters.len());
            for (key, count) in &held.counters {
                text.text(key).u64(*count);
            }
        }
        AggregateState::Distinct(values) => {
            ranked(text.text("distinct"), &values.units);
            text.list(values.hashes.len());
            for hash in &values.hashes {
                text.u64(*hash);
            }
            text.bytes(&values.registers);
        }
        AggregateState::Join(sides) => {
            groups(text.text("join"), &sides.left);
            groups(text, &sides.right);
        }
        AggregateState::Components(held) => {
            ranked(text.text("components"), &held.joining);
            text.bool(held.overflowed).list(held.root_of.len());
            for (member, root) in &held.root_of {
                text.text(member).text(root);
            }
            text.list(held.pairs.len());
            for (root, pairs) in &held.pairs {
                text.text(root).u64(*pairs);
            }
            text.list(held.against.len());
            for against in held.against.values() {
                text.text(against.unit.id.as_str())
                    .list(against.members.len());
                for member in &against.members {
                    text.text(member);
                }
            }
        }
        AggregateState::Clusters(held) => {
            groups(text.text("clusters"), &held.clusters);
            ranked(text, &held.dissent);
            ranked(text, &held.abstained);
        }
    }
}

fn groups(text: &mut Canonical, groups: &Groups) {
    text.u64(groups.total)
        .bool(groups.overflowed)
        .list(groups.groups.len());
    for (key, units) in &groups.groups {
        ranked(text.text(key), units);
    }
}

fn ranked(text: &mut Canonical, units: &Ranked) {
    text.u64(units.total).list(units.best.len());
    for (rank, unit) in &units.best {
        text.i64(*rank).text(unit.id.as_str());
    }
}

/// The hash of an answer: what was asked and what was found.
pub(super) fn answer(answer: &CitedAnswer) -> ContentHash {
    let mut text = Canonical::new("operator 2026 result v2");
    text.text(&answer.question)
        .bytes(answer.plan_hash.as_bytes())
        .bytes(answer.backend.digest.as_bytes())
        .bool(answer.simulated);
    counts(&mut text, &answer.coverage, true);
    text.list(answer.claims.len());
    for claim in &answer.claims {
        text.text(&claim.name)
            .text(&claim.text)
            .value(&claim.value)
            .optional_text(claim.refused.as_deref())
            .u64(claim.cites_total)
            .list(claim.cites.len());
        for cite in &claim.cites {
            text.text(cite.unit_id.as_str())
                .bytes(cite.source_hash.as_bytes());
            match &cite.span {
                None => {
                    text.none();
                }
                Some(evidence) => span(text.some(), evidence),
            }
            for evidence in &cite.also {
                span(text.text("also"), evidence);
            }
        }
    }
    if !answer.selections.is_empty() {
        let selections = serde_json::to_value(&answer.selections).unwrap_or_default();
        text.text("selections").value(&selections);
    }
    if let Some(stop) = &answer.stop {
        stopped(&mut text, stop);
    }
    if let Some(audit) = &answer.audit {
        text.text("audit").value(&audit.content());
    }
    if let Some(quarantine) = &answer.quarantine {
        text.text("quarantine").text(&quarantine.reason);
    }
    ContentHash::of(&text)
}

fn stopped(text: &mut Canonical, stop: &StopReport) {
    text.text("stop").u64(stop.population);
    match stop.stopped_after {
        None => text.none(),
        Some(units) => text.some().u64(units),
    };
    text.list(stop.rules.len());
    for row in &stop.rules {
        text.text(&row.reduce).text(&row.rule);
        let Some(found) = &row.interval else {
            text.none();
            continue;
        };
        text.some();
        for number in [
            found.sample,
            found.matching,
            found.unknown,
            found.low,
            found.high,
        ] {
            text.u64(number);
        }
    }
    text.bool(stop.complete).text(&stop.text);
}
