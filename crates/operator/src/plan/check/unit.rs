//! Units and neighbours: which keys belong to which, and that every relation can be had.

use std::ops::Range;

use regex::Regex;
use toml::Spanned;

use super::{Fault, unique, within};
use crate::nearest::suggest;
use crate::plan::file::{FieldFile, Share};
use crate::plan::unit_file::{GroupFile, UnitFile};
use crate::plan::{
    EvidenceMode, Field, Granularity, GroupPlan, Input, Nearness, Relation, Shape, TextField,
    UnitPlan,
};

const MOST_DEFAULT: u32 = 5;
const MOST: u32 = 64;
const MEMBERS_DEFAULT: u32 = 8;
const MEMBERS_MAX: u32 = 64;
const SIMILARITY_DEFAULT_PPM: u32 = 300_000;

/// The keys that each way to find neighbours may have beside `by`, `shape`, `members_max` and
/// `order_by`.
const WAYS: [(&str, &[&str]); 4] = [
    ("similarity", &["fields", "at_least", "most", "within"]),
    ("key", &["field", "most"]),
    ("links", &["field", "pattern"]),
    ("window", &["within", "most"]),
];

pub(super) fn unit(
    unit: Option<&Spanned<UnitFile>>,
    group: Option<&Spanned<GroupFile>>,
    input: &Input,
) -> Result<UnitPlan, Fault> {
    let mut plan = UnitPlan::default();
    if let Some(spanned) = unit {
        let file = spanned.get_ref();
        plan.kind = file.kind.unwrap_or(Granularity::Record);
        plan.fields = unit_fields(file, plan.kind, input)?;
        plan.widen = match (&file.widen, plan.kind) {
            (None, kind) => kind == Granularity::Adaptive,
            (Some(widen), Granularity::Record) => *widen.get_ref(),
            (Some(widen), kind) => {
                let kind = kind.as_str();
                let problem = format!(
                    "unit: widen is for records, and kind is {kind:?}; remove it (adaptive units are \
                     widened as it is)"
                );
                return Err((widen.span(), problem));
            }
        };
    }
    plan.group = match group {
        None => None,
        Some(group) => Some(neighbours(group, plan.kind, input)?),
    };
    let needs = plan.widen || matches!(plan.kind, Granularity::Group | Granularity::Adaptive);
    if needs && plan.group.is_none() {
        let span = unit.map_or(0..0, Spanned::span);
        let problem = "unit: it takes neighbours, and nothing says who they are; add a [group]";
        return Err((span, problem.to_owned()));
    }
    if let (Some(group), false) = (group, needs) {
        let problem = "group: no unit takes neighbours; remove it, or set kind = \"group\" or \
                       \"adaptive\", or widen = true, under [unit]";
        return Err((group.span(), problem.to_owned()));
    }
    if input.evidence == EvidenceMode::Model
        && let Some(group) = &plan.group
    {
        let members = match (plan.kind, group.shape) {
            (Granularity::Group, Shape::Cluster) => group.members_max,
            (Granularity::Group, Shape::Pair) => 2,
            _ => group.most + 1,
        };
        let least = members.saturating_mul(u32::try_from(input.text.len()).unwrap_or(u32::MAX));
        if input.evidence_lines_max < least {
            let problem = format!(
                "group: evidence_lines_max is {}, and {members} records show at least {least} lines; \
                 raise it under [input]",
                input.evidence_lines_max
            );
            return Err((unit.map_or(0..0, Spanned::span), problem));
        }
    }
    Ok(plan)
}

fn unit_fields(file: &UnitFile, kind: Granularity, input: &Input) -> Result<Vec<TextField>, Fault> {
    let Some(given) = &file.fields else {
        return Ok(match kind {
            Granularity::Field => input.text.clone(),
            _ => Vec::new(),
        });
    };
    if kind != Granularity::Field {
        let problem = "unit: fields become units with kind = \"field\" only; remove them";
        return Err((given.span(), problem.to_owned()));
    }
    let mut fields: Vec<TextField> = Vec::new();
    let known: Vec<&str> = input.text.iter().map(|text| text.field.as_str()).collect();
    for name in given.get_ref() {
        let text = input.text.iter().find(|text| text.field == *name.get_ref());
        let near = suggest(name.get_ref(), &known);
        let problem = format!("unit: {:?} is no text field{near}", name.get_ref());
        fields.push(text.ok_or((name.span(), problem))?.clone());
    }
    if fields.is_empty() {
        let problem = "unit: fields is empty; name one, or leave it out for every text field";
        return Err((given.span(), problem.to_owned()));
    }
    unique(
        "unit field",
        given
            .get_ref()
            .iter()
            .map(|name| (name.get_ref().as_str(), name.span())),
    )?;
    Ok(fields)
}

fn neighbours(
    spanned: &Spanned<GroupFile>,
    kind: Granularity,
    input: &Input,
) -> Result<GroupPlan, Fault> {
    let file = spanned.get_ref();
    let by = file.by.get_ref().as_str();
    let Some((_, keys)) = WAYS.iter().find(|(way, _)| *way == by) else {
        let known: Vec<&str> = WAYS.iter().map(|(way, _)| *way).collect();
        let near = suggest(by, &known);
        return Err((file.by.span(), format!("group: unknown by {by:?}{near}")));
    };
    if let Some((key, span)) = given(file).find(|(key, _)| !keys.contains(key)) {
        let problem = format!(
            "group: by = {by:?} has no {key}; its keys are {}",
            keys.join(", ")
        );
        return Err((span, problem));
    }
    let shape = match (&file.shape, kind) {
        (None, _) => Shape::Pair,
        (Some(shape), Granularity::Group) => *shape.get_ref(),
        (Some(shape), _) => {
            let problem = "group: shape is for units of kind \"group\"; remove it";
            return Err((shape.span(), problem.to_owned()));
        }
    };
    if let (Some(given), Shape::Pair) = (&file.members_max, shape) {
        let problem = "group: members_max is for shape = \"cluster\"; remove it";
        return Err((given.span(), problem.to_owned()));
    }
    let order_by = file.order_by.as_ref();
    let order_by = order_by.map(|field| path("order_by", field)).transpose()?;
    let within_seconds = file.within.as_ref().map(duration).transpose()?;
    if within_seconds.is_some() && order_by.is_none() {
        let problem = "group: within needs order_by, the field that holds the time; add it";
        return Err((spanned.span(), problem.to_owned()));
    }
    let by = match (by, within_seconds) {
        ("similarity", within_seconds) => Nearness::Similarity {
            fields: compared(file, input)?,
            at_least_ppm: match &file.at_least {
                Some(share) => {
                    let Share(ppm) = *share.get_ref();
                    ppm
                }
                None => SIMILARITY_DEFAULT_PPM,
            },
            within_seconds,
        },
        ("key", _) => match &file.field {
            Some(field) => Nearness::Key {
                field: path("field", field)?,
            },
            None => {
                let problem = "group: by = \"key\" needs field, whose text neighbours share";
                return Err((spanned.span(), problem.to_owned()));
            }
        },
        ("links", _) => links(file, spanned.span())?,
        (_, Some(within_seconds)) => Nearness::Window { within_seconds },
        (_, None) => {
            let problem = "group: by = \"window\" needs within, such as within = \"2h\"";
            return Err((spanned.span(), problem.to_owned()));
        }
    };
    let most = within(file.most.as_ref(), "group: most", 1..=MOST)?;
    let members = within(
        file.members_max.as_ref(),
        "group: members_max",
        2..=MEMBERS_MAX,
    )?;
    Ok(GroupPlan {
        by,
        shape,
        most: most.unwrap_or(MOST_DEFAULT),
        members_max: members.unwrap_or(MEMBERS_DEFAULT),
        order_by,
    })
}

/// The keys that are given and belong to some ways only.
fn given(file: &GroupFile) -> impl Iterator<Item = (&'static str, Range<usize>)> {
    [
        ("fields", file.fields.as_ref().map(Spanned::span)),
        ("field", file.field.as_ref().map(Spanned::span)),
        ("pattern", file.pattern.as_ref().map(Spanned::span)),
        ("at_least", file.at_least.as_ref().map(Spanned::span)),
        ("within", file.within.as_ref().map(Spanned::span)),
        ("most", file.most.as_ref().map(Spanned::span)),
    ]
    .into_iter()
    .filter_map(|(key, span)| Some((key, span?)))
}

fn path(key: &str, given: &Spanned<String>) -> Result<String, Fault> {
    let path = given.get_ref();
    if path.is_empty() || path.chars().any(char::is_control) {
        let problem = format!("group: {key} must be a field path without control characters");
        return Err((given.span(), problem));
    }
    Ok(path.clone())
}

fn compared(file: &GroupFile, input: &Input) -> Result<Vec<String>, Fault> {
    let Some(given) = &file.fields else {
        return Ok(input.text.iter().map(|text| text.field.clone()).collect());
    };
    let names = given.get_ref();
    if names.is_empty() {
        let problem = "group: fields is empty; name one, or leave it out for every text field";
        return Err((given.span(), problem.to_owned()));
    }
    unique(
        "compared field",
        names
            .iter()
            .map(|name| (name.get_ref().as_str(), name.span())),
    )?;
    names.iter().map(|name| path("fields", name)).collect()
}

fn links(file: &GroupFile, span: Range<usize>) -> Result<Nearness, Fault> {
    let field = file.field.as_ref().map(|field| path("field", field));
    let pattern = match &file.pattern {
        None => None,
        Some(given) => {
            let text = given.get_ref();
            let fault = |problem: String| (given.span(), problem);
            let pattern = Regex::new(text)
                .map_err(|error| fault(format!("group: pattern {text:?}: {error}")))?;
            if pattern.captures_len() != 2 {
                return Err(fault(format!(
                    "group: pattern {text:?} needs exactly one group, which is the id, such as \
                     \"#(\\\\d+)\""
                )));
            }
            Some(pattern)
        }
    };
    if field.is_none() && pattern.is_none() {
        let problem = "group: by = \"links\" needs field, which holds ids, or pattern, which finds them \
                       in the text fields";
        return Err((span, problem.to_owned()));
    }
    Ok(Nearness::Links {
        field: field.transpose()?,
        pattern,
    })
}

/// Seconds of a span such as `90d` or `2h 30m`; a day has 24 hours.
fn duration(given: &Spanned<String>) -> Result<i64, Fault> {
    let text = given.get_ref();
    let seconds = text.parse::<jiff::Span>().ok().and_then(|span| {
        let days = jiff::SpanRelativeTo::days_are_24_hours();
        span.to_duration(days).ok().map(|length| length.as_secs())
    });
    match seconds {
        Some(seconds) if seconds > 0 => Ok(seconds),
        _ => Err((
            given.span(),
            format!("group: within is {text:?}; write a length of time such as \"90d\" or \"2h\""),
        )),
    }
}

/// The relations that a field's answer needs.
pub(super) fn requires(file: &FieldFile) -> Result<Vec<Relation>, Fault> {
    let known = Relation::ALL.map(Relation::as_str);
    let mut relations = Vec::new();
    for name in &file.requires {
        let wanted = name.get_ref();
        let found = Relation::ALL
            .into_iter()
            .find(|relation| relation.as_str() == wanted);
        let near = suggest(wanted, &known);
        let problem = format!(
            "field {:?}: unknown relation {wanted:?}{near}",
            file.name.as_str()
        );
        let relation = found.ok_or((name.span(), problem))?;
        if relations.contains(&relation) {
            let problem = format!("field {:?} requires {wanted:?} twice", file.name);
            return Err((name.span(), problem));
        }
        relations.push(relation);
    }
    Ok(relations)
}

/// Refuses a plan that groups records and asks for a relation that such groups never have: not one of
/// its units could be asked.
pub(super) fn relations_can_be_had(
    unit: &UnitPlan,
    fields: &[Field],
    files: &[Spanned<FieldFile>],
) -> Result<(), Fault> {
    let Some(group) = &unit.group else {
        return Ok(());
    };
    for (field, file) in fields.iter().zip(files) {
        let missing = field
            .requires
            .iter()
            .find(|relation| !unit.provided_widened().contains(relation));
        if let Some(relation) = missing {
            let provided: Vec<&str> = group.provides().iter().map(|r| r.as_str()).collect();
            let problem = format!(
                "field {:?} requires {:?}, and neighbours by {} have {}; find them another way, or \
                 remove [group] to let the field abstain",
                field.name,
                relation.as_str(),
                group.by.as_str(),
                provided.join(", "),
            );
            return Err((file.span(), problem));
        }
    }
    Ok(())
}
