//! The input section: what is read and what of it the model sees.

use toml::Spanned;

use super::{Fault, unique};
use crate::plan::file::InputFile;
use crate::plan::{ClipPolicy, EvidenceMode, Input, TextField};

const EVIDENCE_LINES_DEFAULT: u32 = 24;
const EVIDENCE_LINES_MAX: u32 = 999;
const CHARS_DEFAULT: u32 = 2_000;

pub(super) fn input(spanned: &Spanned<InputFile>) -> Result<Input, Fault> {
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
