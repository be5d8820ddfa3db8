//! What makes a plan valid; every mistake is named, placed and comes with its cure.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use toml::Spanned;

use super::file::{
    FieldFile, InputFile, LabelFile, LabelText, PlanFile, PrefilterFile, ReduceFile,
};
use super::locate::plan_error;
use super::{
    Action, ClipPolicy, EVIDENCE_FIELD, EvidenceMode, Field, Input, Label, PLAN_VERSION, Plan,
    Prefilter, REASON_SUFFIX, Reduce, ReduceOp, TextField,
};
use crate::error::OperatorError;
use crate::infer::PPM;
use crate::nearest::suggest;
use crate::predicate;

const LABELS_MAX: usize = 64;
const LABEL_BYTES_MAX: usize = 64;
const EVIDENCE_LINES_DEFAULT: u32 = 24;
const EVIDENCE_LINES_MAX: u32 = 999;
const CHARS_DEFAULT: u32 = 2_000;
const CITE_MAX_DEFAULT: u32 = 8;

/// A mistake and where it is.
type Fault = (Range<usize>, String);

pub(super) fn check(file: PlanFile, text: &str, path: &str) -> Result<Plan, OperatorError> {
    build(file, text, path).map_err(|(span, problem)| plan_error(text, path, &span, problem))
}

fn build(file: PlanFile, text: &str, path: &str) -> Result<Plan, Fault> {
    let version = *file.version.get_ref();
    if version != PLAN_VERSION {
        let problem = format!("plan version is {version}, this program reads {PLAN_VERSION}");
        return Err((file.version.span(), problem));
    }
    let question = filled("question", &file.question)?;
    let task = filled("rubric", &file.rubric)?;
    let input = input(&file.input)?;
    if file.field.is_empty() {
        return Err((
            0..0,
            "the plan decides nothing; add at least one [[field]]".to_owned(),
        ));
    }
    let fields = file
        .field
        .iter()
        .map(field)
        .collect::<Result<Vec<_>, _>>()?;
    unique(
        "field",
        file.field
            .iter()
            .map(|f| (f.get_ref().name.as_str(), f.span())),
    )?;
    let prefilters = file
        .prefilter
        .iter()
        .map(|spanned| prefilter(spanned, &fields))
        .collect::<Result<Vec<_>, _>>()?;
    unique(
        "prefilter",
        file.prefilter
            .iter()
            .map(|p| (p.get_ref().name.as_str(), p.span())),
    )?;
    let reduces = file
        .reduce
        .iter()
        .map(|spanned| reduce(spanned, &fields))
        .collect::<Result<Vec<_>, _>>()?;
    unique(
        "reduce",
        file.reduce
            .iter()
            .map(|r| (r.get_ref().name.as_str(), r.span())),
    )?;
    Ok(Plan {
        path: path.to_owned(),
        text: text.to_owned(),
        version,
        question,
        task,
        input,
        prefilters,
        fields,
        reduces,
        budget: file.budget,
    })
}

fn filled(key: &str, text: &Spanned<String>) -> Result<String, Fault> {
    let trimmed = text.get_ref().trim();
    if trimmed.is_empty() {
        return Err((text.span(), format!("{key} is empty; write it")));
    }
    Ok(trimmed.to_owned())
}

fn unique<'a>(
    kind: &str,
    names: impl Iterator<Item = (&'a str, Range<usize>)>,
) -> Result<(), Fault> {
    let mut seen = BTreeSet::new();
    for (name, span) in names {
        if !seen.insert(name) {
            return Err((span, format!("two {kind}s are named {name:?}; rename one")));
        }
    }
    Ok(())
}

fn input(spanned: &Spanned<InputFile>) -> Result<Input, Fault> {
    let file = spanned.get_ref();
    let fault = |problem: &str| (spanned.span(), problem.to_owned());
    if file.id.is_empty() {
        return Err(fault(
            "id is empty; name the field that identifies a record",
        ));
    }
    let mut text = Vec::new();
    for entry in &file.text {
        let (span, entry) = (entry.span(), entry.get_ref());
        let max_chars = entry.max_chars.unwrap_or(CHARS_DEFAULT);
        if entry.field.is_empty() || entry.field.chars().any(char::is_control) {
            return Err((
                span,
                "a text field needs a name without control characters".to_owned(),
            ));
        }
        if max_chars == 0 {
            let name = &entry.field;
            return Err((
                span,
                format!("max_chars of {name:?} is 0; remove the field instead"),
            ));
        }
        text.push(TextField {
            field: entry.field.clone(),
            max_chars,
            policy: entry.policy.unwrap_or(ClipPolicy::HeadTail),
        });
    }
    unique(
        "text field",
        file.text
            .iter()
            .map(|t| (t.get_ref().field.as_str(), t.span())),
    )?;
    if text.is_empty() {
        return Err(fault(
            "text is empty; name at least one field for the model to read",
        ));
    }
    let lines_max = file.evidence_lines_max.unwrap_or(EVIDENCE_LINES_DEFAULT);
    if lines_max > EVIDENCE_LINES_MAX || (lines_max as usize) < text.len() {
        let fields = text.len();
        return Err(fault(&format!(
            "evidence_lines_max is {lines_max}; it must be from {fields}, one line per text field, \
             to {EVIDENCE_LINES_MAX}"
        )));
    }
    Ok(Input {
        path: file.path.clone(),
        format: file.format,
        id: file.id.clone(),
        text,
        evidence: file.evidence.unwrap_or(EvidenceMode::FirstLine),
        evidence_lines_max: lines_max,
    })
}

fn field(spanned: &Spanned<FieldFile>) -> Result<Field, Fault> {
    let file = spanned.get_ref();
    let fault = |problem: String| (spanned.span(), problem);
    let name = &file.name;
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) || !name.chars().all(plain) {
        return Err(fault(format!(
            "field name {name:?} must be lower-case letters, digits and _, starting with a letter"
        )));
    }
    if name == EVIDENCE_FIELD || name.ends_with(REASON_SUFFIX) {
        return Err(fault(format!(
            "field name {name:?} is reserved; choose another"
        )));
    }
    if file.question.trim().is_empty() {
        return Err(fault(format!(
            "field {name:?} has an empty question; write it"
        )));
    }
    let labels = labels(
        &file.labels,
        &format!("labels of field {name:?}"),
        &spanned.span(),
    )?;
    let reasons = if file.reasons.is_empty() {
        Vec::new()
    } else {
        self::labels(
            &file.reasons,
            &format!("reasons of field {name:?}"),
            &spanned.span(),
        )?
    };
    let scaffold = file.scaffold.clone().unwrap_or_else(|| format!("{name}: "));
    if scaffold.trim().is_empty() || scaffold.chars().any(char::is_control) {
        return Err(fault(format!(
            "scaffold of field {name:?} must be one line of text"
        )));
    }
    let share = |share: &Option<Spanned<super::file::Share>>| {
        share.as_ref().map_or(0, |share| share.get_ref().0)
    };
    Ok(Field {
        name: name.clone(),
        question: file.question.trim().to_owned(),
        labels,
        abstain_below_margin_ppm: share(&file.abstain_below_margin),
        label_mass_min_ppm: share(&file.label_mass_min),
        reasons,
        scaffold,
    })
}

fn labels(
    files: &[Spanned<LabelFile>],
    what: &str,
    span: &Range<usize>,
) -> Result<Vec<Label>, Fault> {
    if files.len() < 2 || files.len() > LABELS_MAX {
        let problem = format!(
            "{what}: {} given, from 2 to {LABELS_MAX} are needed",
            files.len()
        );
        return Err((span.clone(), problem));
    }
    for label in files {
        let name = &label.get_ref().0.name;
        let sound = !name.is_empty()
            && name.trim() == name
            && name.len() <= LABEL_BYTES_MAX
            && !name.chars().any(char::is_control);
        if !sound {
            let problem = format!(
                "{what}: {name:?} must be 1 to {LABEL_BYTES_MAX} bytes on one line, without space \
                 around it"
            );
            return Err((label.span(), problem));
        }
    }
    unique(
        &format!("of the {what}"),
        files
            .iter()
            .map(|label| (label.get_ref().0.name.as_str(), label.span())),
    )?;
    Ok(files
        .iter()
        .map(|label| label.get_ref().0.clone())
        .collect())
}

fn prefilter(spanned: &Spanned<PrefilterFile>, fields: &[Field]) -> Result<Prefilter, Fault> {
    let file = spanned.get_ref();
    let name = &file.name;
    let fault = |problem: String| (spanned.span(), problem);
    if name.is_empty() || name.chars().any(char::is_control) {
        return Err(fault("a prefilter needs a name on one line".to_owned()));
    }
    let when = predicate::compile(&file.when)
        .map_err(|fault| (fault.span, format!("prefilter {name:?}: {}", fault.problem)))?;
    let set = assignments(&file.set, fields, &format!("set of prefilter {name:?}"))?;
    match (file.action, set.is_empty()) {
        (Action::Exclude | Action::Keep, false) => {
            return Err(fault(format!(
                "prefilter {name:?} has a set, which only action = \"decide\" may have"
            )));
        }
        (Action::Decide, _) => {
            let missing: Vec<&str> = fields
                .iter()
                .map(|field| field.name.as_str())
                .filter(|field| !set.contains_key(*field))
                .collect();
            if !missing.is_empty() {
                return Err(fault(format!(
                    "prefilter {name:?} decides, but its set leaves out {}; set every field, or \
                     use action = \"keep\"",
                    missing.join(", ")
                )));
            }
        }
        _ => {}
    }
    let reason = file
        .reason
        .as_deref()
        .map_or(name.as_str(), str::trim)
        .to_owned();
    Ok(Prefilter {
        name: name.clone(),
        when,
        action: file.action,
        reason,
        set,
    })
}

fn assignments(
    given: &BTreeMap<String, Spanned<LabelText>>,
    fields: &[Field],
    what: &str,
) -> Result<BTreeMap<String, String>, Fault> {
    let mut checked = BTreeMap::new();
    for (name, label) in given {
        let field = known_field(name, fields, what, label.span())?;
        checked.insert(name.clone(), known_label(label, field, what)?);
    }
    Ok(checked)
}

fn known_field<'a>(
    name: &str,
    fields: &'a [Field],
    what: &str,
    span: Range<usize>,
) -> Result<&'a Field, Fault> {
    fields
        .iter()
        .find(|field| field.name == name)
        .ok_or_else(|| {
            let known: Vec<&str> = fields.iter().map(|field| field.name.as_str()).collect();
            (
                span,
                format!("{what}: unknown field {name:?}{}", suggest(name, &known)),
            )
        })
}

fn known_label(label: &Spanned<LabelText>, field: &Field, what: &str) -> Result<String, Fault> {
    let name = &label.get_ref().0;
    if field.label_index(name).is_some() {
        return Ok(name.clone());
    }
    let known: Vec<&str> = field
        .labels
        .iter()
        .map(|label| label.name.as_str())
        .collect();
    let near = suggest(name, &known);
    Err((
        label.span(),
        format!("{what}: field {:?} has no label {name:?}{near}", field.name),
    ))
}

fn reduce(spanned: &Spanned<ReduceFile>, fields: &[Field]) -> Result<Reduce, Fault> {
    use ReduceOp::{Count, CountBy, Histogram, Set, TopK, TopKeys};
    let file = spanned.get_ref();
    let (name, op) = (&file.name, file.op);
    if name.is_empty() || name.chars().any(char::is_control) {
        return Err((
            spanned.span(),
            "a reduce needs a name on one line".to_owned(),
        ));
    }
    let what = format!("reduce {name:?}");
    let filter = assignments(&file.filter, fields, &format!("where of {what}"))?;
    let field = match &file.field {
        Some(field) => Some(known_field(field.get_ref(), fields, &what, field.span())?),
        None => None,
    };
    let label = match (&file.label, field) {
        (Some(label), Some(field)) => Some(known_label(label, field, &what)?),
        _ => None,
    };
    // For each key: whether it is given, whether the operation needs it, and whether it may have
    // it.
    let keys = [
        (
            "field",
            file.field.is_some(),
            !matches!(op, Count | Set),
            op != Count,
        ),
        (
            "label",
            file.label.is_some(),
            op == TopK,
            matches!(op, TopK | Histogram),
        ),
        (
            "k",
            file.k.is_some(),
            matches!(op, TopK | TopKeys),
            matches!(op, TopK | TopKeys),
        ),
        (
            "edges",
            file.edges.is_some(),
            op == Histogram,
            op == Histogram,
        ),
    ];
    debug_assert!(
        keys.iter()
            .all(|(_, _, needed, allowed)| *allowed || !*needed),
        "{op:?}"
    );
    let spelled = op.as_str();
    for (key, given, needed, allowed) in keys {
        if needed && !given {
            return Err((
                spanned.span(),
                format!("{what}: op {spelled:?} needs {key:?}; add it"),
            ));
        }
        if given && !allowed {
            let problem = format!("{what}: op {spelled:?} has no {key:?}; remove it");
            return Err((spanned.span(), problem));
        }
    }
    if file.k == Some(0) {
        return Err((
            spanned.span(),
            format!("{what}: k is 0; it must be at least 1"),
        ));
    }
    if op == CountBy && field.is_some_and(|field| filter.contains_key(&field.name)) {
        let problem =
            format!("{what}: counts by the field that its where fixes; use op = \"count\"");
        return Err((spanned.span(), problem));
    }
    Ok(Reduce {
        name: name.clone(),
        op,
        field: field.map(|field| field.name.clone()),
        label,
        k: file.k,
        filter,
        edges_ppm: edges(file.edges.as_ref(), &what)?,
        claim: claim(file.claim.as_ref(), &what)?,
        cite_max: file.cite_max.unwrap_or(CITE_MAX_DEFAULT),
    })
}

/// Edges up to 100 are percent, larger ones parts per million.
fn edges(given: Option<&Spanned<Vec<u32>>>, what: &str) -> Result<Vec<u32>, Fault> {
    let Some(given) = given else {
        return Ok(Vec::new());
    };
    let edges = given.get_ref();
    let ascending = edges.windows(2).all(|pair| pair[0] < pair[1]);
    let largest = edges.iter().copied().max().unwrap_or(u32::MAX);
    if !ascending || largest > PPM {
        let problem = format!(
            "{what}: edges must ascend and be percent (to 100) or parts per million (to {PPM})"
        );
        return Err((given.span(), problem));
    }
    let scale = if largest <= 100 { PPM / 100 } else { 1 };
    Ok(edges.iter().map(|edge| edge * scale).collect())
}

fn claim(given: Option<&Spanned<String>>, what: &str) -> Result<Option<String>, Fault> {
    let Some(given) = given else { return Ok(None) };
    let text = given.get_ref().trim();
    for part in text.split('{').skip(1) {
        let name = part.split('}').next().unwrap_or(part);
        if !["value", "count"].contains(&name) {
            let problem = format!(
                "{what}: claim has the placeholder {{{name}}}{}",
                suggest(name, &["value", "count"])
            );
            return Err((given.span(), problem));
        }
    }
    Ok(Some(text.to_owned()))
}
