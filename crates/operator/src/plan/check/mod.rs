//! What makes a plan valid; every mistake is named, placed and comes with its cure.

mod audit;
mod canary;
mod column;
mod compound;
mod control;
mod effect;
mod field;
mod index;
mod input;
mod names;
mod operation;
mod prefilter;
mod reduce;
mod scope;
mod stage;
mod tool;
mod tool_stage;
mod unit;

use std::collections::BTreeSet;
use std::ops::{Range, RangeInclusive};

use toml::Spanned;

use super::file::{FoldFile, PlanFile};
use super::locate::plan_error;
use super::{
    Control, EVIDENCE_FIELD, FoldSettings, Granularity, ID_KEY, PLAN_VERSION, Plan, Reduce,
};
use crate::error::OperatorError;
use names::Names;

pub(super) use canary::check_expected;

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
    let input = input::input(&file.input)?;
    let unit = unit::unit(file.unit.as_ref(), file.group.as_ref(), &input)?;
    if file.field.is_empty() {
        return Err((
            0..0,
            "the plan decides nothing; add at least one [[field]]".to_owned(),
        ));
    }
    let fields = all(&file.field, field::field)?;
    unique("field", names_of(&file.field, |field| &field.name))?;
    unit::relations_can_be_had(&unit, &fields, &file.field)?;
    let columns = all(&file.column, |column| column::column(column, &fields))?;
    unique("column", names_of(&file.column, |column| &column.name))?;
    let indexes = all(&file.index, |file| index::index(file, text))?;
    unique("index table", names_of(&file.index, |index| &index.name))?;
    let prefilters = all(&file.prefilter, |prefilter| {
        prefilter::prefilter(prefilter, &fields, &indexes)
    })?;
    unique(
        "prefilter",
        names_of(&file.prefilter, |prefilter| &prefilter.name),
    )?;
    let fold = fold_settings(&file.fold)?;
    unique("reduce", names_of(&file.reduce, |reduce| &reduce.name))?;
    let names = Names {
        fields: &fields,
        columns: &columns,
        unit: &unit,
    };
    let mut reduces: Vec<Reduce> = Vec::new();
    for spanned in &file.reduce {
        reduces.push(reduce::reduce(spanned, names, &reduces)?);
    }
    let tools = all(&file.tool, tool::tool)?;
    unique("tool", names_of(&file.tool, |tool| &tool.name))?;
    let tool_names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
    let passes = stage::passes(&file.pass, &file.budget)?;
    let stages = stage::stages(
        &file.stage,
        &stage::Scope {
            fields: &fields,
            passes: &passes,
            tools: &tool_names,
            unit: &unit,
            input: &input,
            columns: &columns,
        },
    )?;
    let staged = !file.stage.is_empty() || unit.kind == Granularity::Adaptive;
    let canary = match &file.canary {
        Some(canary) if matches!(unit.kind, Granularity::Field | Granularity::Group) => {
            let problem = "canaries are records, and the plan asks about parts or groups of them; \
                           remove [canary], or use kind = \"record\" or \"adaptive\"";
            return Err((canary.span(), problem.to_owned()));
        }
        Some(canary) => Some(canary::canary(canary, &fields, &stages)?),
        None => None,
    };
    let audit = match &file.audit {
        Some(audit) => Some(audit::audit(audit, &fields, &stages)?),
        None => None,
    };
    let effects = all(&file.effect, |file| effect::effect(file, &fields))?;
    unique("effect", names_of(&file.effect, |effect| &effect.name))?;
    let control = match &file.control {
        Some(control) => control::control(control, &reduces, &file)?,
        None => Control::default(),
    };
    Ok(Plan {
        path: path.to_owned(),
        text: text.to_owned(),
        version,
        question,
        task,
        input,
        unit,
        indexes,
        prefilters,
        fields,
        columns,
        fold,
        reduces,
        stages,
        passes,
        tools,
        staged,
        canary,
        audit,
        effects,
        control,
        budget: file.budget,
    })
}

fn all<T, C>(
    files: &[Spanned<T>],
    check: impl FnMut(&Spanned<T>) -> Result<C, Fault>,
) -> Result<Vec<C>, Fault> {
    files.iter().map(check).collect()
}

fn names_of<T>(
    files: &[Spanned<T>],
    name: impl Fn(&T) -> &String,
) -> impl Iterator<Item = (&str, Range<usize>)> {
    files
        .iter()
        .map(move |file| (name(file.get_ref()).as_str(), file.span()))
}

fn fold_settings(file: &FoldFile) -> Result<FoldSettings, Fault> {
    let default = FoldSettings::default();
    let fan_in = within(file.fan_in.as_ref(), "fold: fan_in", 2..=64)?;
    Ok(FoldSettings {
        fan_in: fan_in.map_or(default.fan_in, |fan_in| fan_in as usize),
        key: file.key.unwrap_or(default.key),
        outliers_max: within(file.outliers_max.as_ref(), "fold: outliers_max", 1..=4_096)?
            .unwrap_or(default.outliers_max),
    })
}

fn filled(key: &str, text: &Spanned<String>) -> Result<String, Fault> {
    let trimmed = text.get_ref().trim();
    if trimmed.is_empty() {
        return Err((text.span(), format!("{key} is empty; write it")));
    }
    Ok(trimmed.to_owned())
}

/// A number that is in range, where one is given.
fn within(
    given: Option<&Spanned<u32>>,
    what: &str,
    range: RangeInclusive<u32>,
) -> Result<Option<u32>, Fault> {
    let Some(given) = given else { return Ok(None) };
    let number = *given.get_ref();
    if range.contains(&number) {
        return Ok(Some(number));
    }
    let (from, to) = range.into_inner();
    let problem = if to == u32::MAX {
        format!("{what} is {number}; it must be at least {from}")
    } else {
        format!("{what} is {number}; it must be from {from} to {to}")
    };
    Err((given.span(), problem))
}

/// Refuses a name that could not stand in a claim or be told from another use.
fn plain_name(kind: &str, name: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) || !name.chars().all(plain) {
        return Err(format!(
            "{kind} name {name:?} must be lower-case letters, digits and _, starting with a letter"
        ));
    }
    if [EVIDENCE_FIELD, ID_KEY].contains(&name) {
        return Err(format!("{kind} name {name:?} is reserved; choose another"));
    }
    Ok(())
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
