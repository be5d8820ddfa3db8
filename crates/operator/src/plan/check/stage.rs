//! Stages and passes: data goes forward, every name is known, and a later pass may do less.

use std::collections::BTreeMap;
use std::ops::Range;

use toml::Spanned;

use super::names::{known_field, known_label};
use super::{Fault, plain_name, tool_stage, unique};
use crate::column::Column;
use crate::nearest::suggest;
use crate::plan::file::Share;
use crate::plan::stage_file::{ConditionFile, OptionFile, PassFile, StageFile};
use crate::plan::{
    Budget, Condition, Field, Granularity, Input, Label, MAP_STAGE, MapStage, PassSpec, Select,
    SelectOption, Stage, StageOp, Then, Unclear, UnitPlan,
};

const OPTIONS_MAX: usize = 16;

/// The keys that each operator may have beside `name`, `op`, `pass` and `when`.
const OPERATORS: [(&str, &[&str]); 3] = [
    (
        "select",
        &["rubric", "question", "why", "options", "unclear", "model"],
    ),
    ("map", &["rubric", "fields", "model", "widen"]),
    ("tool", &["tool", "fields", "max_chars", "policy", "split"]),
];

/// What a stage may name.
pub(super) struct Scope<'a> {
    pub(super) fields: &'a [Field],
    pub(super) passes: &'a [PassSpec],
    /// Names of the declared tools.
    pub(super) tools: &'a [&'a str],
    pub(super) unit: &'a UnitPlan,
    pub(super) input: &'a Input,
    pub(super) columns: &'a [Column],
}

pub(super) fn passes(files: &[Spanned<PassFile>], budget: &Budget) -> Result<Vec<PassSpec>, Fault> {
    let mut passes: Vec<PassSpec> = Vec::new();
    for spanned in files {
        let file = spanned.get_ref();
        let name = file.name.get_ref();
        plain_name("pass", name).map_err(|problem| (file.name.span(), problem))?;
        let units_max = *file.units_max.get_ref();
        let before = match passes.last() {
            Some(before) => Some((before.units_max, before.tokens_max)),
            None => Some((budget.units_max.unwrap_or(u64::MAX), budget.tokens_max)),
        };
        if let Some((units_before, tokens_before)) = before {
            if units_max == 0 || units_max >= units_before {
                let problem = format!(
                    "pass {name:?}: units_max is {units_max}; it must be at least 1 and less than the \
                     {units_before} of the pass before, so that passes come to an end"
                );
                return Err((file.units_max.span(), problem));
            }
            if let Some(most) = tokens_before
                && file.tokens_max.is_none_or(|tokens| tokens >= most)
            {
                let problem = format!(
                    "pass {name:?}: tokens_max must be less than the {most} of the pass before"
                );
                return Err((spanned.span(), problem));
            }
        }
        passes.push(PassSpec {
            name: name.clone(),
            units_max,
            tokens_max: file.tokens_max,
        });
    }
    unique(
        "pass",
        files
            .iter()
            .map(|file| (file.get_ref().name.get_ref().as_str(), file.span())),
    )?;
    Ok(passes)
}

pub(super) fn stages(files: &[Spanned<StageFile>], scope: &Scope<'_>) -> Result<Vec<Stage>, Fault> {
    if files.is_empty() {
        let mut stages = vec![Stage::implicit(scope.fields)];
        if scope.unit.kind == Granularity::Adaptive {
            stages.push(Stage::widened(scope.fields));
        }
        return Ok(stages);
    }
    let mut stages: Vec<Stage> = Vec::new();
    for spanned in files {
        let stage = stage(spanned, scope)?;
        if let Some(before) = stages.last()
            && before.pass > stage.pass
        {
            let problem = format!(
                "stage {:?} belongs to an earlier pass than {:?} above it; put stages in the order in \
                 which they run",
                stage.name, before.name
            );
            return Err((spanned.span(), problem));
        }
        stages.push(stage);
    }
    unique(
        "stage",
        files
            .iter()
            .map(|file| (file.get_ref().name.as_str(), file.span())),
    )?;
    for (place, file) in files.iter().enumerate() {
        goes_forward(file, place, &stages)?;
    }
    tool_stage::are_read(files, &stages)?;
    for field in scope.fields {
        let asked = |stage: &Stage| matches!(&stage.op, StageOp::Map(map) if map.fields.contains(&field.name));
        if !stages.iter().any(asked) {
            let problem = format!(
                "no map stage asks field {:?}; add it to the fields of one",
                field.name
            );
            return Err((files[0].span(), problem));
        }
    }
    Ok(stages)
}

fn stage(spanned: &Spanned<StageFile>, scope: &Scope<'_>) -> Result<Stage, Fault> {
    let file = spanned.get_ref();
    let name = &file.name;
    plain_name("stage", name).map_err(|problem| (spanned.span(), problem))?;
    if scope.fields.iter().any(|field| field.name == *name) {
        let problem = format!("stage {name:?} has the name of a field; choose another");
        return Err((spanned.span(), problem));
    }
    let what = format!("stage {name:?}");
    let keys = OPERATORS
        .iter()
        .find(|(op, _)| op == file.op.get_ref())
        .map(|(_, keys)| *keys)
        .ok_or_else(|| {
            let known: Vec<&str> = OPERATORS.iter().map(|(op, _)| *op).collect();
            let near = suggest(file.op.get_ref(), &known);
            let op = file.op.get_ref();
            (file.op.span(), format!("{what}: unknown op {op:?}{near}"))
        })?;
    if let Some((key, span)) = given(file).into_iter().find(|(key, _)| !keys.contains(key)) {
        let op = file.op.get_ref();
        let problem = format!(
            "{what}: a {op} stage has no {key}; its keys are {}",
            keys.join(", ")
        );
        return Err((span, problem));
    }
    let pass = match &file.pass {
        None => 0,
        Some(wanted) => {
            let names: Vec<&str> = scope.passes.iter().map(|pass| pass.name.as_str()).collect();
            let place = names.iter().position(|name| name == wanted.get_ref());
            let near = suggest(wanted.get_ref(), &names);
            let problem = format!("{what}: unknown pass {:?}{near}", wanted.get_ref());
            place.ok_or((wanted.span(), problem))? + 1
        }
    };
    let op = match file.op.get_ref().as_str() {
        "select" => StageOp::Select(select(file, &spanned.span(), &what)?),
        "map" => StageOp::Map(map(file, scope, &what)?),
        _ => StageOp::Tool(tool_stage::tool_stage(file, &spanned.span(), scope, &what)?),
    };
    let when = match &file.when {
        None => Condition::default(),
        Some(when) => condition(when.get_ref(), scope.fields, &what)?,
    };
    if pass > 0 && when == Condition::default() {
        let problem = format!(
            "{what}: a stage of a further pass needs a `when` that says which units are read again, \
             such as when = {{ abstained = true }}"
        );
        return Err((spanned.span(), problem));
    }
    Ok(Stage {
        name: name.clone(),
        pass,
        when,
        op,
    })
}

/// The keys that are given, beside those that every stage may have.
fn given(file: &StageFile) -> Vec<(&'static str, Range<usize>)> {
    let keys = [
        ("rubric", file.rubric.as_ref().map(Spanned::span)),
        ("question", file.question.as_ref().map(Spanned::span)),
        ("why", file.why.as_ref().map(Spanned::span)),
        ("options", file.options.as_ref().map(Spanned::span)),
        ("unclear", file.unclear.as_ref().map(Spanned::span)),
        ("fields", file.fields.as_ref().map(Spanned::span)),
        ("model", file.model.as_ref().map(Spanned::span)),
        ("tool", file.tool.as_ref().map(Spanned::span)),
        ("widen", file.widen.as_ref().map(Spanned::span)),
        ("max_chars", file.max_chars.as_ref().map(Spanned::span)),
        ("policy", file.policy.as_ref().map(Spanned::span)),
        ("split", file.split.as_ref().map(Spanned::span)),
    ];
    keys.into_iter()
        .filter_map(|(key, span)| Some((key, span?)))
        .collect()
}

fn select(file: &StageFile, span: &Range<usize>, what: &str) -> Result<Select, Fault> {
    let text = |key: &str, given: &Option<Spanned<String>>, cure: &str| match given {
        Some(text) if !text.get_ref().trim().is_empty() => Ok(text.get_ref().trim().to_owned()),
        Some(text) => Err((text.span(), format!("{what}: {key} is empty; {cure}"))),
        None => Err((span.clone(), format!("{what}: needs {key}; {cure}"))),
    };
    let rubric = text("rubric", &file.rubric, "say what the selector has to know")?;
    let question = text("question", &file.question, "write what it is asked")?;
    let why = text(
        "why",
        &file.why,
        "say why no predicate, index or classifier can decide this",
    )?;
    let empty = Vec::new();
    let given = file
        .options
        .as_ref()
        .map_or(&empty, |options| options.get_ref());
    if given.len() < 2 || given.len() > OPTIONS_MAX {
        let problem = format!(
            "{what}: {} options given, from 2 to {OPTIONS_MAX} are needed",
            given.len()
        );
        return Err((span.clone(), problem));
    }
    unique(
        &format!("option of {what}"),
        given
            .iter()
            .map(|option| (option.get_ref().name.0.as_str(), option.span())),
    )?;
    let options = given
        .iter()
        .map(|option| select_option(option, what))
        .collect::<Result<Vec<_>, Fault>>()?;
    let unclear = match &file.unclear {
        None => None,
        Some(unclear) => {
            let file = unclear.get_ref();
            let names: Vec<&str> = options.iter().map(|o| o.label.name.as_str()).collect();
            let option = file.option.get_ref();
            if !names.contains(&option.as_str()) {
                let near = suggest(option, &names);
                let problem = format!("{what}: unclear: unknown option {option:?}{near}");
                return Err((file.option.span(), problem));
            }
            Some(Unclear {
                margin_below_ppm: file.margin_below.get_ref().0,
                option: option.clone(),
            })
        }
    };
    Ok(Select {
        rubric,
        question,
        why,
        options,
        unclear,
        larger: larger(file, what)?,
    })
}

fn select_option(option: &Spanned<OptionFile>, what: &str) -> Result<SelectOption, Fault> {
    let file = option.get_ref();
    let name = &file.name.0;
    if name.is_empty() || name.trim() != name || name.chars().any(char::is_control) {
        let problem = format!("{what}: option {name:?} must be one line, without space around it");
        return Err((option.span(), problem));
    }
    let then = match (&file.then, &file.run) {
        (Some(then), None) => match then.get_ref().as_str() {
            "exclude" => Then::Exclude,
            "abstain" => Then::Abstain,
            other => {
                let near = suggest(other, &["exclude", "abstain"]);
                let problem = format!(
                    "{what}: option {name:?}: unknown then {other:?}{near}; for stages use run = [...]"
                );
                return Err((then.span(), problem));
            }
        },
        (None, Some(run)) if !run.get_ref().is_empty() => {
            let stages = run.get_ref().iter();
            Then::Run(stages.map(|stage| stage.get_ref().clone()).collect())
        }
        _ => {
            let problem = format!(
                "{what}: option {name:?} needs either then = \"exclude\" or \"abstain\", or run with \
                 at least one stage"
            );
            return Err((option.span(), problem));
        }
    };
    Ok(SelectOption {
        label: Label {
            name: name.clone(),
            means: file.means.clone(),
        },
        then,
    })
}

fn map(file: &StageFile, scope: &Scope<'_>, what: &str) -> Result<MapStage, Fault> {
    let rubric = match &file.rubric {
        None => None,
        Some(rubric) if rubric.get_ref().trim().is_empty() => {
            let problem = format!("{what}: rubric is empty; leave it out to use the plan's");
            return Err((rubric.span(), problem));
        }
        Some(rubric) => Some(rubric.get_ref().trim().to_owned()),
    };
    let mut fields: Vec<String> = Vec::new();
    match &file.fields {
        None => fields.extend(scope.fields.iter().map(|field| field.name.clone())),
        Some(given) => {
            for name in given.get_ref() {
                let field = known_field(name.get_ref(), scope.fields, what, name.span())?;
                if fields.contains(&field.name) {
                    let problem = format!("{what}: field {:?} is named twice", field.name);
                    return Err((name.span(), problem));
                }
                fields.push(field.name.clone());
            }
            if fields.is_empty() {
                let problem = format!("{what}: fields is empty; name one, or leave it out for all");
                return Err((given.span(), problem));
            }
        }
    }
    Ok(MapStage {
        rubric,
        fields,
        larger: larger(file, what)?,
        widen: widen(file, scope, what)?,
    })
}

fn widen(file: &StageFile, scope: &Scope<'_>, what: &str) -> Result<bool, Fault> {
    match &file.widen {
        Some(widen) if *widen.get_ref() && !scope.unit.widen => {
            let problem = format!(
                "{what}: it widens units, and [unit] does not allow it; set kind = \"adaptive\", or \
                 widen = true, there"
            );
            Err((widen.span(), problem))
        }
        widen => Ok(widen.as_ref().is_some_and(|widen| *widen.get_ref())),
    }
}

fn larger(file: &StageFile, what: &str) -> Result<bool, Fault> {
    match &file.model {
        None => Ok(false),
        Some(model) if model.get_ref() == "larger" => Ok(true),
        Some(model) => {
            let problem = format!(
                "{what}: model is {:?}; only \"larger\" can be asked for, and --larger NAME says which \
                 model that is",
                model.get_ref()
            );
            Err((model.span(), problem))
        }
    }
}

fn condition(file: &ConditionFile, fields: &[Field], what: &str) -> Result<Condition, Fault> {
    let mut labels = BTreeMap::new();
    for (name, label) in &file.label {
        let field = known_field(name, fields, what, label.span())?;
        labels.insert(name.clone(), known_label(label, field, what)?);
    }
    let mut margins = BTreeMap::new();
    for (name, share) in &file.margin_below {
        known_field(name, fields, what, share.span())?;
        let Share(ppm) = *share.get_ref();
        margins.insert(name.clone(), ppm);
    }
    Ok(Condition {
        labels,
        margin_below_ppm: margins,
        abstained: file.abstained,
    })
}

/// Whether every option leads to stages after the selector, in the same pass, and `map` is not taken
/// for another operator.
fn goes_forward(file: &Spanned<StageFile>, place: usize, stages: &[Stage]) -> Result<(), Fault> {
    let stage = &stages[place];
    if stage.name == MAP_STAGE && !matches!(stage.op, StageOp::Map(_)) {
        let problem = format!("stage {MAP_STAGE:?} must have op = \"map\"; choose another name");
        return Err((file.span(), problem));
    }
    let Some(options) = &file.get_ref().options else {
        return Ok(());
    };
    for option in options.get_ref() {
        let runs = option.get_ref().run.as_ref();
        for wanted in runs.iter().flat_map(|run| run.get_ref()) {
            let (name, from) = (wanted.get_ref(), &stage.name);
            let after: Vec<&str> = stages[place + 1..]
                .iter()
                .filter(|later| later.pass == stage.pass)
                .map(|later| later.name.as_str())
                .collect();
            if after.contains(&name.as_str()) {
                continue;
            }
            let problem = if stages.iter().any(|other| other.name == *name) {
                format!(
                    "stage {from:?}: {name:?} does not come after it in the same pass; data goes \
                     forward only"
                )
            } else {
                format!(
                    "stage {from:?}: unknown stage {name:?}{}",
                    suggest(name, &after)
                )
            };
            return Err((wanted.span(), problem));
        }
    }
    Ok(())
}
