//! What is kept of each record while neighbours are looked for: id, place, hash, and what makes
//! neighbours; never a text.
//!
//! Entries are in the order of their ids, so that nothing that follows depends on the order of the
//! records.

use crate::column::{Column, ColumnType, ColumnValue, project};
use crate::error::OperatorError;
use crate::id::{ContentHash, UnitId};
use crate::ops::{BadUnit, Place, Placed, Unit, Units};
use crate::plan::{GroupPlan, Nearness, Plan};
use crate::record::Record;
use crate::text::field_text;

use super::link;
use super::order::by_id;
use super::sketch::{Census, Sketch, Terms};

/// A record that can be read again.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) id: UnitId,
    pub(super) place: Place,
    pub(super) source_hash: ContentHash,
    /// What `order_by` says of it.
    pub(super) time: Option<i64>,
}

/// Everything that is known of the records without their texts.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    /// By id.
    pub(super) entries: Vec<Entry>,
    /// Records that cannot be read, in input order.
    pub(super) bad: Vec<BadUnit>,
    /// What makes neighbours, by entry.
    pub(super) marks: Marks,
}

/// What makes neighbours, by entry.
#[derive(Debug, Default)]
pub(super) enum Marks {
    /// Nothing but the time.
    #[default]
    Times,
    /// The text that neighbours share.
    Keys(Vec<Option<String>>),
    /// The ids that it names.
    Links(Vec<Vec<String>>),
    /// What remains of its text.
    Sketches(Vec<Sketch>),
}

/// One entry with its mark.
type Marked<T> = (Entry, T);

/// Reads all records, twice where their texts are compared.
pub(super) fn gather(
    plan: &Plan,
    group: &GroupPlan,
    units: &dyn Units,
) -> Result<Gathered, OperatorError> {
    match &group.by {
        Nearness::Window { .. } => {
            let (marked, bad) = collect(group, units, |_| ())?;
            Ok(gathered(marked, bad, |_| Marks::Times))
        }
        Nearness::Key { field } => {
            let (marked, bad) = collect(group, units, |record| key_of(record, field))?;
            Ok(gathered(marked, bad, Marks::Keys))
        }
        Nearness::Links { field, pattern } => {
            let texts: Vec<String> = plan.input.text.iter().map(|t| t.field.clone()).collect();
            let pattern = pattern.as_ref().map(|pattern| (pattern, texts.as_slice()));
            let names = |record: &Record| link::named(record, field.as_deref(), pattern);
            let (marked, bad) = collect(group, units, names)?;
            Ok(gathered(marked, bad, Marks::Links))
        }
        Nearness::Similarity { fields, .. } => {
            let mut census = Census::default();
            units.visit(&mut |placed| {
                if let Placed::Unit(unit, _) = placed {
                    census.add(&terms(&unit.record, fields));
                }
                Ok(())
            })?;
            let sketch = |record: &Record| census.sketch(&terms(record, fields));
            let (marked, bad) = collect(group, units, sketch)?;
            Ok(gathered(marked, bad, Marks::Sketches))
        }
    }
}

fn collect<T>(
    group: &GroupPlan,
    units: &dyn Units,
    mark: impl Fn(&Record) -> T,
) -> Result<(Vec<Marked<T>>, Vec<BadUnit>), OperatorError> {
    let (mut marked, mut bad) = (Vec::new(), Vec::new());
    units.visit(&mut |placed| {
        match placed {
            Placed::Unit(unit, place) => {
                let mark = mark(&unit.record);
                marked.push((entry(group, unit, place), mark));
            }
            Placed::Bad(unit) => bad.push(unit),
        }
        Ok(())
    })?;
    let timeless = marked.iter().all(|(entry, _)| entry.time.is_none());
    if let (Some(field), true, false) = (&group.order_by, timeless, marked.is_empty()) {
        return Err(OperatorError::NoTime {
            path: units.source().path.clone(),
            field: field.clone(),
        });
    }
    marked.sort_unstable_by(|(a, _), (b, _)| by_id(a.id.as_str(), b.id.as_str()));
    Ok((marked, bad))
}

fn gathered<T>(
    marked: Vec<Marked<T>>,
    bad: Vec<BadUnit>,
    marks: impl FnOnce(Vec<T>) -> Marks,
) -> Gathered {
    let (entries, values) = marked.into_iter().unzip();
    Gathered {
        entries,
        bad,
        marks: marks(values),
    }
}

fn entry(group: &GroupPlan, unit: Unit, place: Place) -> Entry {
    let order_by = group.order_by.as_ref();
    Entry {
        time: order_by.and_then(|field| time_of(&unit.record, field)),
        id: unit.id,
        place,
        source_hash: unit.source_hash,
    }
}

/// A date as Unix seconds, or a whole number as it stands.
pub(super) fn time_of(record: &Record, field: &str) -> Option<i64> {
    let read = |kind| {
        let column = Column {
            name: field.to_owned(),
            field: field.to_owned(),
            kind,
        };
        match project(&column, record)? {
            ColumnValue::Integer(time) => Some(time),
            ColumnValue::Text(_) => None,
        }
    };
    read(ColumnType::Time).or_else(|| read(ColumnType::Integer))
}

/// A text without the space around it; an empty one is no key.
fn key_of(record: &Record, field: &str) -> Option<String> {
    let text = field_text(record, field).ok()??;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

fn terms(record: &Record, fields: &[String]) -> Terms {
    let mut terms = Terms::default();
    for field in fields {
        // A field of another shape has no text to compare; what that means is told when it is shown.
        if let Ok(Some(text)) = field_text(record, field) {
            terms.add(&text);
        }
    }
    terms
}
