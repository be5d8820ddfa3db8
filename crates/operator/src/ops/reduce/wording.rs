//! The wording of claims: every number is read off the folded value or the coverage.

use serde_json::Value;

use crate::answer::fill;
use crate::plan::{Measure, Operation, Reduce};
use crate::reducers::{Folded, Selection};

/// States a folded value: in the plan's own words, else in plain ones.
pub(super) fn state(reduce: &Reduce, folded: &Folded) -> String {
    let value = match (&reduce.op, &folded.value) {
        // The least number is worded by who declared it.
        (Operation::Count, Value::Object(least)) => {
            least.get("at_least").map_or_else(String::new, render)
        }
        // Its keys are the records' own words, which may be those of a shape below.
        (Operation::CountBy { .. }, Value::Object(counts)) => render_pairs(counts),
        (_, value) => render(value),
    };
    match &reduce.claim {
        Some(wording) => fill(wording, &value, folded.count),
        None => plain(reduce, &value, folded.count),
    }
}

fn plain(reduce: &Reduce, value: &str, count: u64) -> String {
    let selection = Selection::of(&reduce.filter).to_string();
    let with = if selection.is_empty() {
        selection
    } else {
        format!(" with {selection}")
    };
    let units = format!("decided units{with}");
    match &reduce.op {
        Operation::Count => format!("{count} {units}"),
        Operation::CountBy { key, .. } => format!("{count} {units}, by {}: {value}", key.name()),
        Operation::Set { key: Some(key), .. } => {
            format!("{count} values of {} among {units}: {value}", key.name())
        }
        Operation::Set { key: None, .. } => format!("{count} {units}: {value}"),
        Operation::TopK {
            by: Measure::Probability { field, label },
            ..
        } => {
            let label = label.as_deref().unwrap_or("its label");
            format!("the {count} {units} most probably {field} = {label}: {value}")
        }
        Operation::TopK {
            by: Measure::Column(column),
            order,
            ..
        } => format!(
            "the {count} {units} with the {} {}: {value}",
            order.as_str(),
            column.name
        ),
        Operation::TopKeys { key, .. } => {
            format!(
                "the {count} most frequent values of {}{with}: {value}",
                key.name()
            )
        }
        Operation::Histogram { by, .. } => match by {
            Measure::Probability { field, label } => {
                let label = label.as_deref().unwrap_or("its label");
                format!("{count} {units}, by probability of {field} = {label}: {value}")
            }
            Measure::Column(column) => format!("{count} {units}, by {}: {value}", column.name),
        },
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

fn render(value: &Value) -> String {
    match value {
        Value::Null => String::from("none"),
        Value::String(text) => text.clone(),
        Value::Array(items) if items.is_empty() => String::from("none"),
        Value::Array(items) => items.iter().map(render_item).collect::<Vec<_>>().join(", "),
        Value::Object(entries) => render_object(value, entries),
        other => other.to_string(),
    }
}

/// Objects that a reducer shapes have a reading of their own; any other is a list of pairs.
fn render_object(value: &Value, entries: &serde_json::Map<String, Value>) -> String {
    let number = |key: &str| value.get(key).and_then(Value::as_i64);
    if let (Some(milli), Some(units)) = (number("mean_milli"), number("units")) {
        return format!("{} over {units}", thousandths(milli));
    }
    if let (Some(estimate), Some(error)) = (number("estimate"), number("standard_error_ppm")) {
        return format!("about {estimate} (standard error {})", percent(error));
    }
    if let (Some(rows), Some(error)) = (value.get("quantiles"), number("error_max_ppm")) {
        let about = match error {
            0 => String::new(),
            error => format!(" (each at most {} below the true value)", percent(error)),
        };
        return render(rows) + &about;
    }
    if let Some(components) = value.get("components") {
        let dissent = value.get("dissent").unwrap_or(&Value::Null);
        return format!("{}; dissent: {}", render(components), render(dissent));
    }
    if let Some(clusters) = value.get("clusters") {
        let mut text = render(clusters);
        for kind in ["unclustered", "dissent", "abstained"] {
            if let Some(units) = value.get(kind) {
                text.push_str(&format!("; {kind}: {}", render(units)));
            }
        }
        return text;
    }
    render_pairs(entries)
}

fn render_pairs(entries: &serde_json::Map<String, Value>) -> String {
    let pairs = entries
        .iter()
        .map(|(key, value)| format!("{key} {}", render(value)));
    pairs.collect::<Vec<_>>().join(", ")
}

fn render_item(item: &Value) -> String {
    if let Some(members) = item.get("members").and_then(Value::as_array) {
        let members: Vec<String> = members.iter().map(render).collect();
        return members.join(" + ");
    }
    let number = |key: &str| item.get(key).and_then(Value::as_i64);
    let name = |key: &str| item.get(key).and_then(Value::as_str);
    if let Some(unit) = name("unit_id") {
        return match (number("probability_ppm"), number("value")) {
            (Some(ppm), _) => format!("{unit} ({})", percent(ppm)),
            (_, Some(value)) => format!("{unit} ({value})"),
            _ => unit.to_owned(),
        };
    }
    if let Some(label) = name("label") {
        if let (Some(left), Some(right)) = (number("left"), number("right")) {
            return format!("{label} {left} x {right}");
        }
        let count = number("count").unwrap_or(0);
        return match item.get("exemplars").and_then(Value::as_array) {
            Some(units) if !units.is_empty() => {
                let units: Vec<String> = units.iter().map(render).collect();
                format!("{label} {count} (such as {})", units.join(" and "))
            }
            _ => format!("{label} {count}"),
        };
    }
    if let Some(share) = number("percent") {
        return format!("{share} % at most {}", render(&item["value"]));
    }
    let Some(count) = number("count") else {
        return render(item);
    };
    let ends =
        [("from_ppm", "to_ppm"), ("from", "to")].map(|(from, to)| (number(from), number(to)));
    match ends {
        [(Some(from), Some(to)), _] => format!("{} to {}: {count}", percent(from), percent(to)),
        [_, (Some(from), Some(to))] => format!("{from} to {to}: {count}"),
        [_, (None, Some(to))] => format!("under {to}: {count}"),
        [_, (Some(from), None)] => format!("{from} and more: {count}"),
        _ => count.to_string(),
    }
}

/// Parts per million as a percentage with one decimal, rounded to nearest.
fn percent(ppm: i64) -> String {
    let tenths = (ppm + 500) / 1_000;
    match tenths % 10 {
        0 => format!("{} %", tenths / 10),
        tenth => format!("{}.{tenth} %", tenths / 10),
    }
}

/// Thousandths as a decimal number.
fn thousandths(milli: i64) -> String {
    let sign = if milli < 0 { "-" } else { "" };
    let size = milli.unsigned_abs();
    format!("{sign}{}.{:03}", size / 1_000, size % 1_000)
}
