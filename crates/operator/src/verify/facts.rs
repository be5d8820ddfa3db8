//! Every fact against the plan: what it may say, given its stage and status.
//!
//! Whether the model was right is not asked. That an answer was sure enough to count is: the
//! thresholds stand in the plan and the margins in the fact.

use std::collections::{BTreeSet, HashSet};

use super::units::{check_lacking, check_skipped, lacks_relation};
use super::{Place, Report, Subject};
use crate::audit::Finding;
use crate::column::{ColumnType, ColumnValue};
use crate::fact::{Evidence, FACT_SCHEMA, Fact, FieldValue, Status, Step};
use crate::group;
use crate::id::ContentHash;
use crate::infer::{PPM, UnitUsage};
use crate::ops::prefilter::shared_reason;
use crate::plan::{AUDIT_STAGE, Action, EvidenceMode, Field, Plan, Prefilter, TextField};

/// What a model's failure may be.
const OF_MODELS: [&str; 7] = [
    "too_large",
    "schema",
    "truncated",
    "backend",
    "malformed",
    "transport",
    "denied",
];

/// What a tool's failure may be.
pub(super) const OF_TOOLS: [&str; 7] = [
    "denied",
    "too_large",
    "timed_out",
    "rate_limited",
    "unavailable",
    "refused",
    "malformed",
];

/// How the stages are called.
const PARTITION: &str = "partition";
const MAP: &str = "map";
const PREFILTER: &str = "prefilter:";

/// Checks every fact on its own, and that each unit and each position has one.
pub(super) fn check(subject: Subject<'_>, report: &mut Report) {
    let mut seen = HashSet::new();
    let mut next = Some(0_u32);
    let mut spans = subject.facts.iter().flat_map(|fact| &fact.evidence);
    let quoted = spans.any(|span| span.quote.is_some());
    for fact in subject.facts {
        report.checked.facts += 1;
        let place = Place::Unit(fact.unit_id.clone());
        if !seen.insert(&fact.unit_id) {
            report.content(place.clone(), "has more than one fact");
        }
        // Told once, where the row breaks: what follows may be as it should.
        if Some(fact.ordinal) != next {
            let right = next.map_or_else(|| String::from("none"), |next| next.to_string());
            let problem = format!("its ordinal is {}, {right} follows here", fact.ordinal);
            report.content(place.clone(), problem);
        }
        next = fact.ordinal.checked_add(1);
        let mut problems = Vec::new();
        check_fact(subject, fact, &mut problems);
        // A run is redacted as a whole or not at all.
        if quoted && fact.evidence.iter().any(|span| span.quote.is_none()) {
            problems.push("lacks a quote where other facts have theirs".to_owned());
        }
        for problem in problems {
            report.content(place.clone(), problem);
        }
    }
}

fn check_fact(subject: Subject<'_>, fact: &Fact, problems: &mut Vec<String>) {
    let plan = subject.plan;
    if fact.schema != FACT_SCHEMA {
        problems.push(format!(
            "its schema is {}, {FACT_SCHEMA} is right",
            fact.schema
        ));
    }
    if fact.unit_id.as_str().contains(char::is_control) {
        problems.push("has the id of a planted canary, which is no unit".to_owned());
    }
    for evidence in &fact.evidence {
        problems.extend(check_evidence(plan, fact, evidence));
    }
    if plan.input.evidence == EvidenceMode::None && !fact.evidence.is_empty() {
        problems.push("has evidence, the plan asks for none".to_owned());
    }
    check_columns(plan, fact, problems);
    check_asked(subject, fact, problems);
    if let Some(name) = fact.stage.strip_prefix(PREFILTER) {
        match plan.prefilters.iter().find(|filter| filter.name == name) {
            None => problems.push(format!("ended at {}, no prefilter of the plan", fact.stage)),
            Some(filter) => check_filtered(fact, filter, problems),
        }
    } else if fact.stage == MAP || plan.stage(&fact.stage).is_some() {
        // Where there are stages, what is answered follows from the path.
        if !plan.is_staged()
            || !matches!(
                fact.status,
                Status::Excluded | Status::Decided | Status::Abstained
            )
        {
            check_mapped(plan, fact, problems);
        }
    } else if fact.stage == PARTITION {
        check_unreadable(fact, problems);
    } else if fact.stage == AUDIT_STAGE {
        check_put_back(subject, fact, problems);
    } else if fact.stage == group::STAGE {
        check_skipped(plan, fact, problems);
    } else {
        problems.push(format!("ended at stage {:?}, which is none", fact.stage));
    }
    if lacks_relation(plan, fact) {
        check_lacking(plan, fact, problems);
    } else if fact.status == Status::Decided
        || (fact.status == Status::Abstained && !plan.is_staged())
    {
        let wanted: BTreeSet<&String> = plan.fields.iter().map(|field| &field.name).collect();
        let found: BTreeSet<&String> = fact.values.keys().collect();
        let partly = fact.stage == AUDIT_STAGE && found.is_subset(&wanted);
        if wanted != found && !partly {
            problems.push(format!(
                "has values of {found:?}, the plan asks for {wanted:?}"
            ));
        }
    } else if !fact.values.is_empty() && fact.status != Status::Abstained {
        problems.push(format!("is {} and has values", fact.status));
    }
}

fn check_evidence(plan: &Plan, fact: &Fact, evidence: &Evidence) -> Vec<String> {
    let mut problems = Vec::new();
    let span = format!(
        "bytes {}..{} of {}",
        evidence.start, evidence.end, evidence.field
    );
    if let Some(quote) = &evidence.quote {
        let hash = ContentHash::of_bytes(quote.as_bytes());
        if hash != evidence.quote_hash {
            problems.push(format!(
                "its quote of {span} hashes to {hash}, the fact says {}",
                evidence.quote_hash
            ));
        }
        let length = evidence.end.checked_sub(evidence.start).map(u64::from);
        if length != Some(quote.len() as u64) {
            problems.push(format!("its quote of {span} has {} bytes", quote.len()));
        }
    }
    let read = |text: &TextField| {
        let mut of = fact.members.iter();
        text.field == evidence.field
            || of.any(|member| group::member_field(&text.field, member) == evidence.field)
    };
    let shown = |step: &Step| step.stage == evidence.field && step.observed.is_some();
    let observed = plan.tool_stage(&evidence.field).is_some() && fact.path.iter().any(shown);
    if !observed && !plan.input.text.iter().any(read) {
        problems.push(format!("cites {span}, which the plan does not read"));
    }
    if plan.input.evidence != EvidenceMode::Model && evidence.line.is_some() {
        problems.push(format!(
            "names a line for {span}, and no model pointed at one"
        ));
    }
    problems
}

fn check_columns(plan: &Plan, fact: &Fact, problems: &mut Vec<String>) {
    for (name, value) in &fact.columns {
        let column = plan.columns.iter().find(|column| column.name == *name);
        let fits = column.is_some_and(|column| {
            matches!(value, ColumnValue::Text(_)) == (column.kind == ColumnType::Text)
        });
        if !fits {
            problems.push(format!(
                "has {value:?} in column {name}, which is none of the plan's"
            ));
        }
    }
}

/// Who answered, and what that cost.
fn check_asked(subject: Subject<'_>, fact: &Fact, problems: &mut Vec<String>) {
    let backend = &subject.answer.backend;
    let asked = fact.backend.is_some();
    if fact.simulated != (asked && backend.simulated) {
        problems.push(format!(
            "says simulated {}, the answer's backend {}",
            fact.simulated, backend.simulated
        ));
    }
    if subject.plan.is_staged() {
        // Each step says who answered and at what cost.
        return;
    }
    if fact
        .backend
        .as_ref()
        .is_some_and(|name| *name != backend.name)
    {
        let name = &backend.name;
        problems.push(format!(
            "was answered by {:?}, the answer by {name}",
            fact.backend
        ));
    }
    let none = UnitUsage::default();
    if !asked && (fact.remembered || fact.usage != none || fact.cost != none) {
        problems.push("was not asked, and is remembered or has a cost".to_owned());
    }
    if fact.remembered && (fact.simulated || fact.usage != none) {
        problems.push("is remembered, and simulated or with a cost in this run".to_owned());
    }
    if let Some(same) = &fact.same_as {
        if !asked || fact.simulated || fact.usage != none || fact.cost != none {
            problems.push(format!(
                "has the answer of {same}, and was not asked, is simulated or has a cost"
            ));
        }
        let first = subject.facts.iter().find(|other| other.unit_id == *same);
        let alike = first.is_some_and(|first| {
            first.same_as.is_none()
                // Where units have turns, the first to be asked may stand anywhere.
                && (first.ordinal < fact.ordinal || subject.plan.control.stops())
                // The audit read one of them and may have put that one back alone.
                && (first.stage == AUDIT_STAGE
                    || (first.status, &first.values) == (fact.status, &fact.values))
        });
        if !alike {
            problems.push(format!(
                "has the answer of {same}, which is no earlier unit with that answer"
            ));
        }
    }
    if !fact.remembered && fact.usage != fact.cost {
        problems.push("was computed in this run, at another cost than it names".to_owned());
    }
}

/// A unit that the audit put back: missed, by the answer's own list, and decided as what was missed.
fn check_put_back(subject: Subject<'_>, fact: &Fact, problems: &mut Vec<String>) {
    let audit = subject.answer.audit.as_ref();
    let row = audit.and_then(|audit| {
        let mut units = audit.units.iter();
        let row = units.find(|unit| unit.unit_id == fact.unit_id)?;
        let stratum = audit.strata.get(row.stratum as usize)?;
        (row.finding == Finding::Missed).then_some(&stratum.stratum)
    });
    let stage = super::audit::ended(fact);
    match row {
        None => {
            problems.push("was put back by an audit that does not name it as missed".to_owned())
        }
        Some(stratum) if !stratum.unknown && stratum.cause != stage => {
            let cause = &stratum.cause;
            problems.push(format!("was missed by {stage}, the audit says by {cause}"));
        }
        Some(_) => {}
    }
    let positive = subject.plan.audit.as_ref().is_some_and(|spec| {
        let value = fact.values.get(&spec.field);
        value.is_some_and(|value| value.label == spec.positive)
    });
    if fact.status != Status::Decided || !positive {
        problems.push("was put back by the audit, and is not what was missed".to_owned());
    }
    if stage == AUDIT_STAGE {
        let reason = &fact.reason;
        problems.push(format!("was put back by the audit for {reason:?}"));
    }
}

fn check_filtered(fact: &Fact, filter: &Prefilter, problems: &mut Vec<String>) {
    let name = &filter.name;
    let status = match filter.action {
        Action::Exclude => Some(Status::Excluded),
        Action::Decide => Some(Status::Decided),
        Action::Keep => None,
    };
    if fact.status == Status::Errored {
        check_reason(fact, "malformed: ", problems);
    } else if Some(fact.status) != status {
        problems.push(format!(
            "is {} by prefilter {name}, which does not do so",
            fact.status
        ));
    } else if fact
        .reason
        .as_deref()
        // What an index said is held against the records, which are not looked at here.
        .map(|reason| match filter.when.is_indexed() {
            true => shared_reason(reason),
            false => reason,
        })
        != Some(&filter.reason)
    {
        problems.push(format!(
            "its reason is {:?}, that of {name} another",
            fact.reason
        ));
    }
    let wanted = filter
        .set
        .iter()
        .map(|(field, label)| (field, FieldValue::set(label)));
    if fact.status == Status::Decided
        && !fact
            .values
            .iter()
            .map(|(field, value)| (field, value.clone()))
            .eq(wanted)
    {
        problems.push(format!("has other values than prefilter {name} sets"));
    }
    if fact.backend.is_some() {
        problems.push(format!(
            "was settled by prefilter {name}, and a backend answered"
        ));
    }
}

fn check_unreadable(fact: &Fact, problems: &mut Vec<String>) {
    if fact.status != Status::Errored {
        problems.push(format!("is {} at partition, which only errs", fact.status));
    }
    check_reason(fact, "malformed: ", problems);
    if !fact.evidence.is_empty() || !fact.columns.is_empty() || fact.backend.is_some() {
        problems.push("cannot be read, and has columns, evidence or a backend".to_owned());
    }
}

fn check_reason(fact: &Fact, start: &str, problems: &mut Vec<String>) {
    if !fact
        .reason
        .as_ref()
        .is_some_and(|reason| reason.starts_with(start))
    {
        let status = fact.status;
        problems.push(format!(
            "is {status} for {:?}, not for {start:?}",
            fact.reason
        ));
    }
}

fn check_mapped(plan: &Plan, fact: &Fact, problems: &mut Vec<String>) {
    if lacks_relation(plan, fact) {
        return;
    }
    match fact.status {
        Status::Excluded => {
            problems.push("is excluded by the model, which only answers".to_owned())
        }
        Status::Decided | Status::Abstained => {
            if fact.backend.is_none() {
                problems.push("is answered, and no backend is named".to_owned());
            }
            for field in &plan.fields {
                if let Some(value) = fact.values.get(&field.name) {
                    problems.extend(check_value(field, value));
                }
            }
            let mut fields = plan.fields.iter();
            let doubt = fields.find_map(|field| doubt_in(field, fact.values.get(&field.name)?));
            let right = match doubt {
                Some(_) => Status::Abstained,
                None => Status::Decided,
            };
            if fact.status != right {
                problems.push(format!(
                    "is {}, by the plan's thresholds {right} is right",
                    fact.status
                ));
            } else if fact.reason != doubt {
                problems.push(format!(
                    "its reason is {:?}, {doubt:?} is right",
                    fact.reason
                ));
            }
        }
        Status::Errored => {
            let kinds: &[&str] = match plan.tool_stage(&fact.stage) {
                None => &OF_MODELS,
                Some(_) => &OF_TOOLS,
            };
            let reason = fact.reason.as_deref().unwrap_or_default();
            if !kinds
                .iter()
                .any(|kind| reason.starts_with(&format!("{kind}: ")))
            {
                problems.push(format!("errored for {reason:?}, no reason that there is"));
            }
        }
        Status::Cancelled | Status::NotRun => {
            if fact.reason.is_none() {
                problems.push(format!("is {}, and no reason is given", fact.status));
            }
        }
    }
}

/// Why a value is too uncertain to count; none where it counts.
pub(super) fn doubt_in(field: &Field, value: &FieldValue) -> Option<String> {
    let thresholds = [
        ("label mass", value.label_mass_ppm, field.label_mass_min_ppm),
        ("margin", value.margin_ppm, field.abstain_below_margin_ppm),
    ];
    let (what, found, wanted) = thresholds
        .into_iter()
        .find(|(_, found, wanted)| found.is_some_and(|found| found < *wanted))?;
    let found = found.unwrap_or_default();
    Some(format!(
        "{what} of {}: {found} ppm, the plan wants {wanted}",
        field.name
    ))
}

/// A judged value is a whole distribution over the field's labels, with a reason where one is asked.
pub(super) fn check_value(field: &Field, value: &FieldValue) -> Option<String> {
    let name = &field.name;
    let known = field.labels.iter().map(|label| label.name.as_str());
    if let Some(problem) = check_distribution(name, known.collect(), value) {
        return Some(problem);
    }
    let fits = match &value.reason_code {
        None => field.reasons.is_empty(),
        Some(code) => field.reasons.iter().any(|reason| reason.name == *code),
    };
    (!fits).then(|| format!("its reason code of {name} is not one of the plan's"))
}

/// A whole distribution over labels, its best label first.
pub(super) fn check_distribution(
    name: &str,
    known: BTreeSet<&str>,
    value: &FieldValue,
) -> Option<String> {
    let (Some(best), Some(margin), Some(mass)) = (
        value.probability_ppm,
        value.margin_ppm,
        value.label_mass_ppm,
    ) else {
        return Some(format!("has no probability of {name}"));
    };
    let mut others = value.alternatives.clone();
    others.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let mut named: Vec<&str> = others.iter().map(|(label, _)| label.as_str()).collect();
    named.push(&value.label);
    let count = named.len();
    if count != known.len() || named.into_iter().collect::<BTreeSet<_>>() != known {
        return Some(format!("its labels of {name} are not the plan's"));
    }
    let sum = others.iter().map(|(_, ppm)| u64::from(*ppm)).sum::<u64>() + u64::from(best);
    let second = others.first().map_or(0, |(_, ppm)| *ppm);
    let whole = sum == u64::from(PPM) && mass <= PPM;
    if !whole || best.checked_sub(second) != Some(margin) || others != value.alternatives {
        return Some(format!(
            "its probabilities of {name} are no distribution with that margin"
        ));
    }
    None
}
