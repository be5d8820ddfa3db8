//! The text of a claim, worded again from its value; no word of it is taken from the answer.

use serde_json::Value;

use super::conclusions::Stated;
use crate::coverage::Counts;
use crate::plan::{Filter, Measure, Operation, Reduce};

/// Words a claim, in the plan's words where it has some.
pub(super) fn word(reduce: &Reduce, stated: &Stated) -> String {
    let value = tell(&reduce.op, &stated.value);
    match &reduce.claim {
        Some(claim) => fill(claim, &value, stated.count),
        None => plain(reduce, &value, stated.count),
    }
}

/// Puts value and count into the plan's words; what is put in is not looked at again.
pub(super) fn fill(claim: &str, value: &str, count: u64) -> String {
    let parts = claim.split("{value}");
    let counted: Vec<String> = parts
        .map(|part| part.replace("{count}", &count.to_string()))
        .collect();
    counted.join(value)
}

fn plain(reduce: &Reduce, value: &str, count: u64) -> String {
    let with = condition(&reduce.filter);
    let units = format!("decided units{with}");
    match &reduce.op {
        Operation::Count => format!("{count} {units}"),
        Operation::CountBy { key, .. } => format!("{count} {units}, by {}: {value}", key.name()),
        Operation::Set { key, .. } => match key {
            None => format!("{count} {units}: {value}"),
            Some(key) => format!("{count} values of {} among {units}: {value}", key.name()),
        },
        Operation::TopK { by, order, .. } => match by {
            Measure::Probability { field, label } => format!(
                "the {count} {units} most probably {field} = {}: {value}",
                its_label(label.as_deref())
            ),
            Measure::Column(column) => format!(
                "the {count} {units} with the {} {}: {value}",
                order.as_str(),
                column.name
            ),
        },
        Operation::TopKeys { key, .. } => format!(
            "the {count} most frequent values of {}{with}: {value}",
            key.name()
        ),
        Operation::Histogram { by, .. } => {
            let by = match by {
                Measure::Probability { field, label } => {
                    format!("probability of {field} = {}", its_label(label.as_deref()))
                }
                Measure::Column(column) => column.name.clone(),
            };
            format!("{count} {units}, by {by}: {value}")
        }
        Operation::Min(column) => {
            format!("the smallest {} of {count} {units} is {value}", column.name)
        }
        Operation::Max(column) => {
            format!("the largest {} of {count} {units} is {value}", column.name)
        }
        Operation::Sum(column) => {
            format!("the {} of {count} {units} add up to {value}", column.name)
        }
        Operation::Mean(column) => format!("the mean {} of {count} {units}: {value}", column.name),
        Operation::Quantiles { column, .. } => {
            format!("{} of {count} {units}: {value}", column.name)
        }
        Operation::HeavyHitters { key, k } => format!(
            "{count} values of {} are each carried by more than 1 in {} {units}: {value}",
            key.name(),
            u64::from(*k) + 1
        ),
        Operation::Distinct(column) => {
            format!("{value} different values of {} among {units}", column.name)
        }
        Operation::Join { left, right, kind } => format!(
            "{count} keys of {} and {} in the {} join: {value}",
            left.key.name(),
            right.key.name(),
            kind.as_str()
        ),
        Operation::Clusters { field, .. } => {
            format!("{count} {units} in clusters of {field}: {value}")
        }
        Operation::Components { field, label, .. } => {
            format!("{count} components of records joined by {field} = {label}{with}: {value}")
        }
        Operation::Summary { .. } => value.to_owned(),
    }
}

fn its_label(label: Option<&str>) -> &str {
    label.unwrap_or("its label")
}

pub(super) fn condition(filter: &Filter) -> String {
    let terms: Vec<String> = filter
        .labels
        .iter()
        .chain(&filter.columns)
        .map(|(name, wanted)| format!("{name} = {wanted}"))
        .collect();
    match terms.is_empty() {
        true => String::new(),
        false => format!(" with {}", terms.join(" and ")),
    }
}

/// Says which units a claim does not count; nothing where it counts all.
pub(super) fn gap(counts: Counts) -> String {
    gap_as(counts, "incomplete: ")
}

/// As [`gap`], with what is said where some unit was not heard.
pub(super) fn gap_as(counts: Counts, unfinished: &str) -> String {
    let unheard = counts.errored + counts.cancelled + counts.not_run;
    if unheard + counts.abstained == 0 {
        return String::new();
    }
    let parts: Vec<String> = [
        (counts.abstained, "abstained"),
        (counts.errored, "errored"),
        (counts.cancelled, "were cancelled"),
        (counts.not_run, "were not run"),
    ]
    .into_iter()
    .filter(|(units, _)| *units > 0)
    .map(|(units, what)| format!("{units} {what}"))
    .collect();
    format!(
        " ({}of {} units {} and are not counted)",
        if unheard > 0 { unfinished } else { "" },
        counts.units,
        parts.join(", ")
    )
}

/// Tells a value of an operation.
fn tell(op: &Operation, value: &Value) -> String {
    let rows = || value.as_array().map_or(&[][..], Vec::as_slice);
    match op {
        _ if value.is_null() => String::from("none"),
        Operation::CountBy { .. } => pairs(value),
        Operation::Set { .. } => list(rows().iter().map(bare)),
        Operation::TopK { .. } => list(rows().iter().map(|row| {
            let number = match integer(row, "probability_ppm") {
                Some(ppm) => percent(ppm),
                None => bare(&row["value"]),
            };
            format!("{} ({number})", bare(&row["unit_id"]))
        })),
        Operation::TopKeys { .. } | Operation::HeavyHitters { .. } => list(
            rows()
                .iter()
                .map(|row| format!("{} {}", bare(&row["label"]), row["count"])),
        ),
        Operation::Histogram { .. } => list(rows().iter().map(bin)),
        Operation::Mean(_) => match integer(value, "mean_milli") {
            None => pairs(value),
            Some(milli) => {
                let (sign, size) = (if milli < 0 { "-" } else { "" }, milli.unsigned_abs());
                let (whole, part) = (size / 1_000, size % 1_000);
                format!("{sign}{whole}.{part:03} over {}", value["units"])
            }
        },
        Operation::Quantiles { .. } => {
            let rows = value["quantiles"].as_array().map_or(&[][..], Vec::as_slice);
            let told = list(rows.iter().map(|row| {
                let value = match &row["value"] {
                    Value::Null => String::from("none"),
                    value => bare(value),
                };
                format!("{} % at most {value}", row["percent"])
            }));
            match integer(value, "error_max_ppm") {
                Some(error) if error > 0 => {
                    format!(
                        "{told} (each at most {} below the true value)",
                        percent(error)
                    )
                }
                _ => told,
            }
        }
        Operation::Distinct(_) => match integer(value, "standard_error_ppm") {
            None => bare(value),
            Some(error) => {
                format!(
                    "about {} (standard error {})",
                    value["estimate"],
                    percent(error)
                )
            }
        },
        Operation::Join { .. } => list(
            rows()
                .iter()
                .map(|row| format!("{} {} x {}", bare(&row["label"]), row["left"], row["right"])),
        ),
        Operation::Clusters { .. } => clusters(value),
        Operation::Components { .. } => {
            let listed = |value: &Value, between: &str| -> String {
                let items: Vec<String> = value.as_array().into_iter().flatten().map(bare).collect();
                items.join(between)
            };
            let rows = value["components"].as_array().into_iter().flatten();
            let joined = list(rows.map(|row| listed(&row["members"], " + ")));
            let dissent = list(value["dissent"].as_array().into_iter().flatten().map(bare));
            format!("{joined}; dissent: {dissent}")
        }
        Operation::Count if value.is_object() => bare(&value["at_least"]),
        Operation::Count
        | Operation::Min(_)
        | Operation::Max(_)
        | Operation::Sum(_)
        | Operation::Summary { .. } => bare(value),
    }
}

fn clusters(value: &Value) -> String {
    let units = |value: &Value| -> Vec<String> {
        let units = value.as_array().into_iter().flatten();
        units.map(bare).collect()
    };
    let rows = value["clusters"].as_array().into_iter().flatten();
    let told = list(rows.map(|row| {
        let exemplars = units(&row["exemplars"]);
        let such = match exemplars.is_empty() {
            true => String::new(),
            false => format!(" (such as {})", exemplars.join(" and ")),
        };
        format!("{} {}{such}", bare(&row["label"]), row["count"])
    }));
    format!(
        "{told}; unclustered: {}; dissent: {}; abstained: {}",
        value["unclustered"],
        list(units(&value["dissent"])),
        list(units(&value["abstained"]))
    )
}

fn bin(row: &Value) -> String {
    let count = &row["count"];
    if let (Some(from), Some(to)) = (integer(row, "from_ppm"), integer(row, "to_ppm")) {
        return format!("{} to {}: {count}", percent(from), percent(to));
    }
    match (integer(row, "from"), integer(row, "to")) {
        (Some(from), Some(to)) => format!("{from} to {to}: {count}"),
        (None, Some(to)) => format!("under {to}: {count}"),
        (Some(from), None) => format!("{from} and more: {count}"),
        (None, None) => count.to_string(),
    }
}

fn integer(value: &Value, key: &str) -> Option<i64> {
    value.get(key).and_then(Value::as_i64)
}

/// A scalar without quotation marks.
fn bare(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn list(items: impl IntoIterator<Item = String>) -> String {
    let items: Vec<String> = items.into_iter().collect();
    match items.is_empty() {
        true => String::from("none"),
        false => items.join(", "),
    }
}

/// An object as its entries, in its own order.
fn pairs(value: &Value) -> String {
    let entries = value.as_object().into_iter().flatten();
    let told: Vec<String> = entries
        .map(|(key, value)| format!("{key} {}", bare(value)))
        .collect();
    told.join(", ")
}

/// Parts per million as percent, to the nearest tenth.
fn percent(ppm: i64) -> String {
    let tenths = (ppm + 500) / 1_000;
    let (whole, tenth) = (tenths / 10, tenths % 10);
    if tenth == 0 {
        format!("{whole} %")
    } else {
        format!("{whole}.{tenth} %")
    }
}
