//! Effects: bounded, aimed at what is named, and filled from what is decided.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;

use toml::Spanned;

use super::names::{known_field, known_label};
use super::{Fault, plain_name, within};
use crate::nearest::suggest;
use crate::plan::effect::{Action, EffectCondition, EffectSpec, Part, Service, Target, Template};
use crate::plan::effect_file::{EffectConditionFile, EffectFile};
use crate::plan::file::Share;
use crate::plan::{Field, effect};

/// Most effects that a plan may declare for one run.
const EFFECTS_MAX: u32 = 10_000;

/// Fields of an issue that have an action of their own, or that the tracker keeps.
const RESERVED: [&str; 7] = [
    "version", "state", "labels", "comments", "messages", "applied", "fence",
];

pub(super) fn effect(spanned: &Spanned<EffectFile>, fields: &[Field]) -> Result<EffectSpec, Fault> {
    let file = spanned.get_ref();
    plain_name("effect", &file.name).map_err(|problem| (spanned.span(), problem))?;
    let what = format!("effect {:?}", file.name);
    let target = target(file, &what)?;
    let template = |key: &str, given: &Spanned<String>| template(key, given, fields, &what);
    let text = file.text.as_ref().map(|text| template("text", text));
    let text = text.transpose()?;
    let version = file.version.as_ref();
    let version = version.map(|text| template("version", text)).transpose()?;
    let resource = match &file.resource {
        Some(resource) => template("resource", resource)?,
        None => Template(vec![Part::Id]),
    };
    let spec = EffectSpec {
        name: file.name.clone(),
        target,
        action: file.action,
        when: condition(&file.when, fields, &what)?,
        resource,
        text,
        set: set(file, &what, spanned.span())?,
        version,
        effects_max: within(
            Some(&file.effects_max),
            &format!("{what}: effects_max"),
            1..=EFFECTS_MAX,
        )?
        .unwrap_or(EFFECTS_MAX),
    };
    complete(&spec, file, &what, spanned.span())?;
    Ok(spec)
}

/// Every action has what it takes, and nothing else.
fn complete(
    spec: &EffectSpec,
    file: &EffectFile,
    what: &str,
    span: Range<usize>,
) -> Result<(), Fault> {
    let action = spec.action.as_str();
    match (&spec.text, spec.action, &file.text) {
        (None, Action::Comment | Action::Label | Action::Edit | Action::Send, _) => {
            let problem = format!("{what}: action {action:?} needs text; write what it says");
            return Err((span, problem));
        }
        (Some(_), Action::Close, Some(text)) => {
            let problem = format!(
                "{what}: close takes no text; remove it, and add an effect of action \"comment\""
            );
            return Err((text.span(), problem));
        }
        _ => {}
    }
    if spec.action.overwrites() && spec.version.is_none() {
        let problem = format!(
            "{what}: {action} overwrites what others may have written since; add version, such as \
             version = \"{{record.version}}\""
        );
        return Err((span, problem));
    }
    Ok(())
}

fn set(file: &EffectFile, what: &str, span: Range<usize>) -> Result<Option<String>, Fault> {
    match (&file.set, file.action) {
        (None, Action::Edit) => {
            let problem = format!("{what}: edit needs set, the field of the issue that it changes");
            Err((span, problem))
        }
        (None, _) => Ok(None),
        (Some(set), Action::Edit) => {
            let name = set.get_ref();
            if name.trim().is_empty() || RESERVED.contains(&name.as_str()) {
                let problem = format!(
                    "{what}: set is {name:?}, which no edit may change; name a field such as \
                     \"title\" (not: {})",
                    RESERVED.join(", ")
                );
                return Err((set.span(), problem));
            }
            Ok(Some(name.clone()))
        }
        (Some(set), _) => {
            let problem = format!("{what}: set belongs to action \"edit\" only; remove it");
            Err((set.span(), problem))
        }
    }
}

fn target(file: &EffectFile, what: &str) -> Result<Target, Fault> {
    let place = file.place.get_ref().trim();
    if place.is_empty() {
        return Err((
            file.place.span(),
            format!("{what}: where is empty; write it"),
        ));
    }
    match file.kind.get_ref().as_str() {
        "file_tracker" => {
            let of_http = [
                file.hosts.as_ref().map(|hosts| ("hosts", hosts.span())),
                file.token_env
                    .as_ref()
                    .map(|name| ("token_env", name.span())),
            ];
            if let Some((key, span)) = of_http.into_iter().flatten().next() {
                let problem = format!("{what}: {key} belongs to kind \"http_tracker\" only");
                return Err((span, problem));
            }
            Ok(Target::Files(PathBuf::from(place)))
        }
        "http_tracker" => service(file, place, what).map(Target::Http),
        other => {
            let near = suggest(other, &["file_tracker", "http_tracker"]);
            let problem = format!("{what}: unknown kind {other:?}{near}");
            Err((file.kind.span(), problem))
        }
    }
}

/// The address is of an allowed host, and a token is never sent in the clear over a network.
fn service(file: &EffectFile, place: &str, what: &str) -> Result<Service, Fault> {
    let fault = |problem: String| (file.place.span(), format!("{what}: {problem}"));
    let (scheme, rest) = place
        .split_once("://")
        .filter(|(scheme, _)| ["http", "https"].contains(scheme))
        .ok_or_else(|| {
            fault(format!(
                "where is {place:?}; write an http:// or https:// address"
            ))
        })?;
    let authority = rest.split('/').next().unwrap_or_default();
    if authority.is_empty() || place.contains(['@', '?', '#', '\\']) || has_blank(place) {
        return Err(fault(format!(
            "where is {place:?}; write scheme, host and path, without user, query or fragment"
        )));
    }
    let hosts = file.hosts.as_ref().ok_or_else(|| {
        fault(format!(
            "http_tracker needs hosts; add hosts = [{authority:?}]"
        ))
    })?;
    if !hosts
        .get_ref()
        .iter()
        .any(|host| host.get_ref() == authority)
    {
        let problem = format!("{what}: host {authority:?} is not among the allowed hosts; add it");
        return Err((hosts.span(), problem));
    }
    if scheme == "http" && !loopback(authority) {
        return Err(fault(format!(
            "{authority:?} is reached over a network; use https://"
        )));
    }
    let token_env = match &file.token_env {
        Some(name) if name.get_ref().trim().is_empty() || name.get_ref().contains(['=', '\0']) => {
            let problem = format!("{what}: token_env is no name of an environment variable");
            return Err((name.span(), problem));
        }
        name => name.as_ref().map(|name| name.get_ref().clone()),
    };
    Ok(Service {
        url: place.trim_end_matches('/').to_owned(),
        token_env,
    })
}

fn has_blank(text: &str) -> bool {
    text.chars().any(|c| c.is_whitespace() || c.is_control())
}

/// Whether an authority names this machine; a name that merely begins like it does not.
fn loopback(authority: &str) -> bool {
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.chars().all(|c| c.is_ascii_digit()) => host,
        _ => authority,
    };
    ["localhost", "127.0.0.1", "[::1]"].contains(&host)
}

fn condition(
    spanned: &Spanned<EffectConditionFile>,
    fields: &[Field],
    what: &str,
) -> Result<EffectCondition, Fault> {
    let file = spanned.get_ref();
    if file.label.is_empty() {
        let problem = format!(
            "{what}: when names no label; add one, such as label = {{ {} = {:?} }}",
            fields[0].name, fields[0].labels[0].name
        );
        return Err((spanned.span(), problem));
    }
    let mut labels = BTreeMap::new();
    for (name, label) in &file.label {
        let field = known_field(name, fields, what, label.span())?;
        labels.insert(name.clone(), known_label(label, field, what)?);
    }
    let bounds = |given: &BTreeMap<String, Spanned<Share>>| {
        let mut bounds = BTreeMap::new();
        for (name, share) in given {
            known_field(name, fields, what, share.span())?;
            bounds.insert(name.clone(), share.get_ref().0);
        }
        Ok::<_, Fault>(bounds)
    };
    Ok(EffectCondition {
        labels,
        probability_min_ppm: bounds(&file.probability_min)?,
        margin_min_ppm: bounds(&file.margin_min)?,
    })
}

fn template(
    key: &str,
    given: &Spanned<String>,
    fields: &[Field],
    what: &str,
) -> Result<Template, Fault> {
    let fault = |problem: String| (given.span(), format!("{what}: {key}: {problem}"));
    if given.get_ref().trim().is_empty() {
        return Err(fault("is empty; write it".to_owned()));
    }
    let template = effect::Template::parse(given.get_ref()).map_err(fault)?;
    for part in &template.0 {
        let (Part::Label(name) | Part::Reason(name)) = part else {
            continue;
        };
        let field = known_field(name, fields, &format!("{what}: {key}"), given.span())?;
        if matches!(part, Part::Reason(_)) && field.reasons.is_empty() {
            return Err(fault(format!("field {name:?} has no reasons")));
        }
    }
    Ok(template)
}
