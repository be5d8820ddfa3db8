//! Claims of an answer measured against labels: which of the units it names an oracle confirms, and
//! how often the keys that it counts truly occur.
//!
//! Facts are judged field by field in [`super::evaluate`]; here the answer itself is, as a reader gets it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Labels, percent, share};
use crate::answer::Claim;
use crate::error::OperatorError;
use crate::id::UnitId;

/// Most ids that are printed of the wrong and of the missed ones.
const PRINTED: usize = 20;

/// A claim beside the truth.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ClaimReport {
    /// The claim names units.
    Units(UnitsReport),
    /// The claim counts units by a label.
    Keys(KeysReport),
}

/// The units that a claim names, beside those that truly have the label.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitsReport {
    /// The claim.
    pub claim: String,
    /// The label that a unit must have to be named rightly.
    pub positive: String,
    /// Units with a label that are named.
    pub named: u64,
    /// Units that truly have the label.
    pub support: u64,
    /// Named units that truly have it.
    pub confirmed: u64,
    /// Named units that have another one.
    pub wrong: Vec<UnitId>,
    /// Units that have it and are not named.
    pub missed: Vec<UnitId>,
    /// Named units without a label; they count neither way.
    pub unlabelled: Vec<UnitId>,
    /// `confirmed / named` in ppm.
    pub precision_ppm: Option<u32>,
    /// `confirmed / support` in ppm.
    pub recall_ppm: Option<u32>,
    /// `2 confirmed / (named + support)` in ppm.
    pub f1_ppm: Option<u32>,
}

/// The labels that a claim counts, beside how often each truly occurs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeysReport {
    /// The claim.
    pub claim: String,
    /// In the claim's order.
    pub keys: Vec<KeyRow>,
    /// The labels that occur most often, as many as the claim has, ties by name.
    pub most_frequent: Vec<String>,
    /// How many of these the claim has.
    pub right: u64,
}

/// One label of a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRow {
    /// The label.
    pub label: String,
    /// Units, as claimed.
    pub claimed: u64,
    /// Units that truly have it.
    pub support: u64,
}

/// Measures a claim: one that lists units against those whose label is `positive`, one that counts labels
/// against the labels' true frequencies without those in `ignored`.
///
/// # Errors
/// `FileInvalid` where the claim has no value, or is neither of the two.
pub fn evaluate_claim(
    claim: &Claim,
    labels: &Labels,
    positive: &str,
    ignored: &[String],
) -> Result<ClaimReport, OperatorError> {
    let fault = |problem: String| super::invalid(&format!("claim {:?}", claim.name), problem);
    if let Some(refused) = &claim.refused {
        return Err(fault(format!("was refused: {refused}")));
    }
    let Value::Array(items) = &claim.value else {
        return Err(fault(String::from(
            "is no list; name a claim of op set (without a field), top_keys or count_by",
        )));
    };
    if let Some(units) = texts(items) {
        return Ok(ClaimReport::Units(units_report(
            claim, units, labels, positive,
        )));
    }
    let counted: Option<Vec<(&str, u64)>> = items.iter().map(counted).collect();
    match counted {
        Some(counted) => Ok(ClaimReport::Keys(keys_report(
            claim, counted, labels, ignored,
        ))),
        None => Err(fault(String::from(
            "lists neither units nor labels with counts; name a claim of op set, top_keys or count_by",
        ))),
    }
}

fn texts(items: &[Value]) -> Option<Vec<UnitId>> {
    items
        .iter()
        .map(|item| item.as_str().map(UnitId::new))
        .collect()
}

fn counted(item: &Value) -> Option<(&str, u64)> {
    Some((item.get("label")?.as_str()?, item.get("count")?.as_u64()?))
}

fn units_report(claim: &Claim, units: Vec<UnitId>, labels: &Labels, positive: &str) -> UnitsReport {
    let (known, unlabelled): (Vec<UnitId>, Vec<UnitId>) = units
        .into_iter()
        .partition(|unit| labels.contains_key(unit));
    let is_true = |unit: &UnitId| labels.get(unit).is_some_and(|label| label == positive);
    let named: BTreeSet<&UnitId> = known.iter().collect();
    let truly: Vec<&UnitId> = labels.keys().filter(|unit| is_true(unit)).collect();
    let missed: Vec<UnitId> = truly
        .iter()
        .filter(|unit| !named.contains(*unit))
        .map(|unit| (*unit).clone())
        .collect();
    let wrong: Vec<UnitId> = known
        .iter()
        .filter(|unit| !is_true(unit))
        .cloned()
        .collect();
    let (of_named, support) = (known.len() as u64, truly.len() as u64);
    let confirmed = of_named - wrong.len() as u64;
    UnitsReport {
        claim: claim.name.clone(),
        positive: positive.to_owned(),
        named: of_named,
        support,
        confirmed,
        wrong,
        missed,
        unlabelled,
        precision_ppm: share(confirmed, of_named),
        recall_ppm: share(confirmed, support),
        f1_ppm: share(2 * confirmed, of_named + support),
    }
}

fn keys_report(
    claim: &Claim,
    counted: Vec<(&str, u64)>,
    labels: &Labels,
    ignored: &[String],
) -> KeysReport {
    let mut frequency: BTreeMap<&str, u64> = BTreeMap::new();
    for label in labels.values().filter(|label| !ignored.contains(label)) {
        *frequency.entry(label).or_default() += 1;
    }
    let mut most: Vec<(&str, u64)> = frequency.iter().map(|(label, n)| (*label, *n)).collect();
    most.sort_by_key(|(label, count)| (std::cmp::Reverse(*count), *label));
    most.truncate(counted.len());
    let most_frequent: Vec<String> = most.iter().map(|(label, _)| (*label).to_owned()).collect();
    let keys: Vec<KeyRow> = counted
        .into_iter()
        .map(|(label, claimed)| KeyRow {
            label: label.to_owned(),
            claimed,
            support: frequency.get(label).copied().unwrap_or(0),
        })
        .collect();
    KeysReport {
        claim: claim.name.clone(),
        right: keys
            .iter()
            .filter(|row| most_frequent.contains(&row.label))
            .count() as u64,
        keys,
        most_frequent,
    }
}

impl fmt::Display for ClaimReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Units(report) => report.fmt(f),
            Self::Keys(report) => report.fmt(f),
        }
    }
}

impl fmt::Display for UnitsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: {} named, {} of them confirmed; {} truly {}; precision {}, recall {}, F1 {}",
            self.claim,
            self.named,
            self.confirmed,
            self.support,
            self.positive,
            percent(self.precision_ppm),
            percent(self.recall_ppm),
            percent(self.f1_ppm),
        )?;
        list(f, "named wrongly", &self.wrong)?;
        list(f, "missed", &self.missed)?;
        list(f, "named, without a label", &self.unlabelled)
    }
}

fn list(f: &mut fmt::Formatter<'_>, what: &str, units: &[UnitId]) -> fmt::Result {
    if units.is_empty() {
        return Ok(());
    }
    let shown: Vec<&str> = units.iter().take(PRINTED).map(UnitId::as_str).collect();
    let more = match units.len().saturating_sub(PRINTED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    writeln!(f, "{what} ({}): {}{more}", units.len(), shown.join(", "))
}

impl fmt::Display for KeysReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: {} of the {} most frequent labels are named ({})",
            self.claim,
            self.right,
            self.most_frequent.len(),
            self.most_frequent.join(", "),
        )?;
        let widths = self.keys.iter().map(|row| row.label.chars().count());
        let width = widths.max().unwrap_or(0).max("label".len());
        writeln!(f, "{:width$} {:>8} {:>8}", "label", "claimed", "truly")?;
        self.keys.iter().try_for_each(|row| {
            writeln!(
                f,
                "{:width$} {:>8} {:>8}",
                row.label, row.claimed, row.support
            )
        })
    }
}
