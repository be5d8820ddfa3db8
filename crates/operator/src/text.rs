//! What the model reads of a unit: chosen fields, clipped and cut into addressable lines.
//!
//! Every line names its field and its byte span in that field's decoded UTF-8, so a quote can
//! always be read back from the record. This file must not know tokens: lengths are characters and
//! bytes.

mod clip;

use std::borrow::Cow;
use std::fmt::Write as _;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::canonical::Canonical;
use crate::id::{ContentHash, UnitId};
use crate::infer::FailReason;
use crate::ops::Unit;
use crate::plan::{EvidenceMode, Plan, TextField};
use crate::predicate::{self, FieldError};
use crate::record::Record;

use clip::{Clip, Limits};

/// What the model reads of one unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitText {
    /// The unit.
    pub unit_id: UnitId,
    /// Hash of the record it comes from.
    pub source_hash: ContentHash,
    /// The text; it starts with an ASCII letter and ends without a newline.
    pub text: String,
    /// The lines of the record inside `text`, numbered from 1; at least one.
    pub lines: Vec<Line>,
    /// Bytes of the record's text fields that were left out by clipping.
    pub clipped_bytes: u64,
    /// Hash of `text`.
    pub text_hash: ContentHash,
}

/// One line of a unit's text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// The field path.
    pub field: String,
    /// First byte in the field's text.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
    /// Its number, from 1.
    pub number: u32,
}

/// Why a unit has no text; becomes an errored fact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextProblem {
    /// The kind.
    pub reason: FailReason,
    /// What is wrong, for a person.
    pub message: String,
}

/// A line longer than this is split, in bytes, where the model is to name lines.
pub const LINE_BYTES_MAX: usize = 160;

/// Renders what the model reads of a unit.
///
/// Fields come in plan order. With [`EvidenceMode::Model`] every line is numbered, `"3| text"`,
/// long lines are split and at most `evidence_lines_max` are kept; otherwise lines stay as they
/// are. Blank lines are dropped. A gap is shown as a line of its own with the number of bytes left
/// out.
///
/// # Errors
/// [`TextProblem`] with `too_large` where a field under [`crate::plan::ClipPolicy::Error`] is too
/// long, and with `malformed` where a field is no text or all of them are empty.
pub fn render(plan: &Plan, unit: &Unit) -> Result<UnitText, TextProblem> {
    render_for(plan, unit, &[], plan.input.evidence)
}

/// As [`render`], with what was shown to the unit on its way: fields that `unit`'s record was given
/// after its own, and that follow them. Lines are numbered for [`EvidenceMode::Model`] alone.
///
/// # Errors
/// As [`render`].
pub fn render_for(
    plan: &Plan,
    unit: &Unit,
    shown: &[TextField],
    evidence: EvidenceMode,
) -> Result<UnitText, TextProblem> {
    let numbered = evidence == EvidenceMode::Model;
    let mut page = Page {
        text: String::new(),
        lines: Vec::new(),
        numbered,
    };
    let mut clipped_bytes = 0;
    let own = unit.shown(plan).iter();
    let fields: Vec<&TextField> = own.chain(shown).collect();
    for (index, field) in fields.iter().enumerate() {
        let taken = u32::try_from(page.lines.len()).unwrap_or(u32::MAX);
        let later = u32::try_from(fields.len() - index - 1).unwrap_or(u32::MAX);
        let left = plan.input.evidence_lines_max.saturating_sub(taken);
        let lines_max = left.saturating_sub(later).max(1);
        let lines = numbered.then_some((LINE_BYTES_MAX, lines_max));
        clipped_bytes += page.write_field(&unit.record.fields, field, lines)?;
    }
    if page.lines.is_empty() {
        let names: Vec<&str> = fields.iter().map(|field| field.field.as_str()).collect();
        return Err(TextProblem {
            reason: FailReason::Malformed,
            message: format!("all text fields are empty: {}", names.join(", ")),
        });
    }
    Ok(page.finish(unit.id.clone(), unit.source_hash, clipped_bytes))
}

/// Renders one field that belongs to no record, such as a part of what a tool answered.
///
/// # Errors
/// As [`render`].
pub(crate) fn render_alone(
    unit_id: UnitId,
    source_hash: ContentHash,
    text: &str,
    field: &TextField,
) -> Result<UnitText, TextProblem> {
    let mut page = Page {
        text: String::new(),
        lines: Vec::new(),
        numbered: false,
    };
    let mut fields = Map::new();
    fields.insert(field.field.clone(), Value::from(text));
    let clipped_bytes = page.write_field(&fields, field, None)?;
    Ok(page.finish(unit_id, source_hash, clipped_bytes))
}

/// The decoded text of a field, which is what spans index; `None` where it is missing.
///
/// Several values, as in a list of labels, are joined by `", "`.
///
/// # Errors
/// [`FieldError`] where the field is an object.
pub fn field_text<'a>(record: &'a Record, path: &str) -> Result<Option<Cow<'a, str>>, FieldError> {
    text_at(&record.fields, path)
}

/// As [`field_text`], from a record's fields.
pub(crate) fn text_at<'a>(
    fields: &'a Map<String, Value>,
    path: &str,
) -> Result<Option<Cow<'a, str>>, FieldError> {
    let leaves = predicate::leaves(fields, path)?;
    if let [Value::String(text)] = leaves.as_slice() {
        return Ok(Some(Cow::Borrowed(text)));
    }
    let mut parts = Vec::new();
    for leaf in &leaves {
        parts.push(match leaf {
            Value::String(text) => text.clone(),
            Value::Object(_) => {
                return Err(FieldError::new(
                    path,
                    leaf,
                    "text; name one of the object's fields",
                ));
            }
            other => other.to_string(),
        });
    }
    Ok((!parts.is_empty()).then(|| Cow::Owned(parts.join(", "))))
}

/// Reads a span back from a record; `None` where the field or the span is not there.
pub fn quote(record: &Record, field: &str, start: u32, end: u32) -> Option<String> {
    let text = field_text(record, field).ok()??;
    let range: Range<usize> = usize::try_from(start).ok()?..usize::try_from(end).ok()?;
    text.get(range).map(str::to_owned)
}

/// A text under construction.
struct Page {
    text: String,
    lines: Vec<Line>,
    numbered: bool,
}

impl Page {
    fn finish(self, unit_id: UnitId, source_hash: ContentHash, clipped_bytes: u64) -> UnitText {
        let mut canonical = Canonical::new("operator 2026 unit text v1");
        canonical.text(&self.text);
        UnitText {
            unit_id,
            source_hash,
            text_hash: ContentHash::of(&canonical),
            text: self.text,
            lines: self.lines,
            clipped_bytes,
        }
    }

    /// Writes one field and returns how many of its bytes were left out.
    fn write_field(
        &mut self,
        fields: &Map<String, Value>,
        field: &TextField,
        lines: Option<(usize, u32)>,
    ) -> Result<u64, TextProblem> {
        let text = text_at(fields, &field.field)
            .map_err(|error| TextProblem {
                reason: FailReason::Malformed,
                message: error.to_string(),
            })?
            .unwrap_or_default();
        let limits = Limits {
            max_chars: field.max_chars,
            policy: field.policy,
            lines,
        };
        let Clip {
            head,
            tail,
            left_out_bytes,
        } = clip::clip(&text, limits).map_err(|problem| TextProblem {
            reason: FailReason::TooLarge,
            message: format!("field {:?} {problem}", field.field),
        })?;
        self.write_name(&field.field);
        let single = head.len() + tail.len() == 1 && left_out_bytes == 0;
        if head.is_empty() && tail.is_empty() {
            self.text.push_str(" (empty)");
        }
        for range in head {
            self.write_line(&field.field, &text, range, single);
        }
        if left_out_bytes > 0 {
            // Writing to a String cannot fail.
            let _ = write!(self.text, "\n[... {left_out_bytes} bytes left out ...]");
        }
        for range in tail {
            self.write_line(&field.field, &text, range, single);
        }
        Ok(left_out_bytes)
    }

    /// The seam before a unit's text is tokenised apart from it, so the text must start with a
    /// letter.
    fn write_name(&mut self, name: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        } else if !name.starts_with(|first: char| first.is_ascii_alphabetic()) {
            self.text.push_str("field ");
        }
        let _ = write!(self.text, "{name}:");
    }

    fn write_line(&mut self, field: &str, text: &str, range: Range<usize>, single: bool) {
        let number = u32::try_from(self.lines.len() + 1).unwrap_or(u32::MAX);
        let quoted = &text[range.clone()];
        let _ = match (self.numbered, single) {
            (true, _) => write!(self.text, "\n{number}| {quoted}"),
            (false, true) => write!(self.text, " {quoted}"),
            (false, false) => write!(self.text, "\n{quoted}"),
        };
        // A record is at most `RECORD_BYTES_MAX`, and so is every field of it.
        let start = u32::try_from(range.start).unwrap_or(u32::MAX);
        let end = u32::try_from(range.end).unwrap_or(u32::MAX);
        self.lines.push(Line {
            field: field.to_owned(),
            start,
            end,
            number,
        });
    }
}
