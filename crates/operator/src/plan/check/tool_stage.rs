//! Tool stages: which tool, what of its answer is read, and how a long one is cut up.

use std::ops::Range;

use toml::Spanned;

use super::stage::Scope;
use super::{Fault, field, within};
use crate::nearest::suggest;
use crate::plan::stage_file::{SplitFile, StageFile};
use crate::plan::{ClipPolicy, Split, Stage, StageOp, ToolStage};

const CHARS_DEFAULT: u32 = 1_000;
const PARTS_DEFAULT: u32 = 64;
const PARTS_MAX: u32 = 4_096;
const DEPTH_DEFAULT: u32 = 2;
const DEPTH_MAX: u32 = 4;

pub(super) fn tool_stage(
    file: &StageFile,
    span: &Range<usize>,
    scope: &Scope<'_>,
    what: &str,
) -> Result<ToolStage, Fault> {
    let Some(tool) = &file.tool else {
        let problem = format!("{what}: needs tool, the name of a [[tool]]");
        return Err((span.clone(), problem));
    };
    let name = tool.get_ref();
    if !scope.tools.contains(&name.as_str()) {
        let near = suggest(name, scope.tools);
        let problem = format!("{what}: no [[tool]] is named {name:?}{near}");
        return Err((tool.span(), problem));
    }
    is_free(&file.name, scope).map_err(|problem| (span.clone(), format!("{what}: {problem}")))?;
    let mut fields: Vec<String> = Vec::new();
    if let Some(given) = &file.fields {
        for field in given.get_ref() {
            let path = field.get_ref();
            if path.trim().is_empty() || path.chars().any(char::is_control) || fields.contains(path)
            {
                let problem = format!(
                    "{what}: {path:?} must be the path of a field in the tool's JSON, named once"
                );
                return Err((field.span(), problem));
            }
            fields.push(path.clone());
        }
        if fields.is_empty() {
            let problem = format!("{what}: fields is empty; leave it out to read the whole answer");
            return Err((given.span(), problem));
        }
    }
    let max_chars = within(
        file.max_chars.as_ref(),
        &format!("{what}: max_chars"),
        1..=u32::MAX,
    )?;
    let split = match &file.split {
        Some(given) => Some(split(given, what)?),
        None => None,
    };
    Ok(ToolStage {
        tool: name.clone(),
        fields,
        max_chars: max_chars.unwrap_or(CHARS_DEFAULT),
        policy: file
            .policy
            .as_ref()
            .map_or(ClipPolicy::HeadTail, |policy| *policy.get_ref()),
        split,
    })
}

/// What is shown under the stage's name must not hide what the plan reads of the record.
fn is_free(name: &str, scope: &Scope<'_>) -> Result<(), String> {
    let texts = scope.input.text.iter().map(|text| &text.field);
    let columns = scope.columns.iter().map(|column| &column.field);
    let mut paths = std::iter::once(&scope.input.id).chain(texts).chain(columns);
    let head = |path: &str| path.split('.').next().is_some_and(|head| head == name) || path == name;
    match paths.find(|path| head(path)) {
        Some(path) => Err(format!(
            "its answer is shown as field {name:?}, and the plan reads {path:?} of the records; rename \
             the stage"
        )),
        None => Ok(()),
    }
}

fn split(given: &Spanned<SplitFile>, what: &str) -> Result<Split, Fault> {
    let file = given.get_ref();
    let what = format!("{what}: split");
    let number = |given: Option<&Spanned<u32>>, key: &str, to: u32| {
        within(given, &format!("{what}: {key}"), 1..=to)
    };
    let text = |text: &Spanned<String>, key: &str| match text.get_ref().trim() {
        "" => Err((text.span(), format!("{what}: {key} is empty; write it"))),
        text => Ok(text.to_owned()),
    };
    let labels = field::labels(&file.labels, &format!("labels of {what}"), &given.span())?;
    let names: Vec<&str> = labels.iter().map(|label| label.name.as_str()).collect();
    let keep = file.keep.get_ref();
    if !names.contains(&keep.as_str()) {
        let near = suggest(keep, &names);
        let problem = format!("{what}: keep names {keep:?}, which is no label{near}");
        return Err((file.keep.span(), problem));
    }
    let over_chars = number(Some(&file.over_chars), "over_chars", u32::MAX)?;
    Ok(Split {
        over_chars: over_chars.unwrap_or(CHARS_DEFAULT),
        part_chars: number(file.part_chars.as_ref(), "part_chars", u32::MAX)?
            .unwrap_or(CHARS_DEFAULT),
        parts_max: number(file.parts_max.as_ref(), "parts_max", PARTS_MAX)?
            .unwrap_or(PARTS_DEFAULT),
        depth_max: number(file.depth_max.as_ref(), "depth_max", DEPTH_MAX)?
            .unwrap_or(DEPTH_DEFAULT),
        rubric: text(&file.rubric, "rubric")?,
        question: text(&file.question, "question")?,
        labels,
        keep: keep.clone(),
    })
}

/// Every tool stage is followed by one that reads what it showed.
pub(super) fn are_read(files: &[Spanned<StageFile>], stages: &[Stage]) -> Result<(), Fault> {
    for (place, stage) in stages.iter().enumerate() {
        let mut later = stages[place + 1..].iter();
        let is_tool = |stage: &Stage| matches!(stage.op, StageOp::Tool(_));
        if is_tool(stage) && !later.any(|later| !is_tool(later)) {
            let problem = format!(
                "stage {:?} is followed by no select or map stage, so nobody reads what the tool \
                 answers; move it up",
                stage.name
            );
            return Err((files[place].span(), problem));
        }
    }
    Ok(())
}
