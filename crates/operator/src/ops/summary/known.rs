//! What a summary may say: the numbers, units, names and quotes of the claims that it is of.
//!
//! Filled from typed values, each number with a name and a role, so that a percentage is only ever
//! compared with shares and a place only with lists. Must not know how a text is read.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::amount::Amount;
use crate::answer::Claim;
use crate::coverage::Counts;
use crate::fact::{Cite, Status};
use crate::id::UnitId;
use crate::plan::{Operation, Reduce};

/// What a number can stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// A count that can be the whole of a share.
    Whole(u64),
    /// A count that can be a part of one.
    Part(u64),
    /// Any other number: it equals itself and nothing is derived from it.
    Measure,
    /// A share in parts per million; only percentages equal it.
    Ppm(u64),
}

/// One number with what it counts or measures.
#[derive(Debug, Clone)]
pub(super) struct Named {
    pub(super) name: String,
    /// The label, key or unit that it is the number of.
    pub(super) of: Option<String>,
    pub(super) amount: Amount,
    pub(super) role: Role,
    /// As the material prints it.
    pub(super) shown: String,
}

/// Everything that the claims of a summary know.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// In the order of the material.
    pub(super) numbers: Vec<Named>,
    /// Entries of the longest list: an ordinal up to it names a place.
    pub(super) places: u64,
    /// Percents of quantiles, which ordinals name too: "the 90th percentile".
    pub(super) percentiles: BTreeSet<u64>,
    /// Units that the claims name or cite, with their sources.
    pub(super) units: BTreeMap<UnitId, Cite>,
    /// Labels, keys and names of claims.
    pub(super) names: BTreeSet<String>,
}

impl Known {
    /// Takes in a claim that stands.
    pub(super) fn add(&mut self, reduce: &Reduce, claim: &Claim, counted: u64) {
        let name = claim.name.as_str();
        self.names.insert(name.to_owned());
        for cite in &claim.cites {
            self.units.insert(cite.unit_id.clone(), cite.clone());
        }
        let value = &claim.value;
        let rows = value.as_array().map_or(&[][..], Vec::as_slice);
        match &reduce.op {
            Operation::Count => self.whole(name, counted),
            Operation::CountBy { key, .. } => {
                for (label, count) in value.as_object().into_iter().flatten() {
                    self.part(name, label, count);
                }
                self.list(
                    &format!("{name}, values of {}", key.name()),
                    value.as_object().map_or(0, Map::len),
                );
                self.whole(&format!("{name}, all together"), counted);
            }
            Operation::Set { key: None, .. } => self.whole(name, counted),
            Operation::Set { key: Some(key), .. } => {
                self.name_all(rows);
                self.list(&format!("{name}, values of {}", key.name()), rows.len());
            }
            Operation::TopK { .. } => {
                for row in rows {
                    let unit = format!("{name}, [{}]", text(row, "unit_id"));
                    let before = self.numbers.len();
                    self.ppm(&unit, &row["probability_ppm"]);
                    self.measure(&unit, &row["value"]);
                    self.own(before, text(row, "unit_id"));
                }
                self.list(&format!("{name}, units"), rows.len());
            }
            Operation::TopKeys { .. } | Operation::HeavyHitters { .. } => {
                self.rows(name, rows);
            }
            Operation::Histogram { .. } => {
                for row in rows {
                    let range = self.range(name, row);
                    self.part(name, &range, &row["count"]);
                }
                self.whole(&format!("{name}, all together"), counted);
            }
            Operation::Min(_) | Operation::Max(_) | Operation::Sum(_) => {
                self.measure(name, value);
                self.whole(&format!("{name}, units"), counted);
            }
            Operation::Mean(_) => {
                self.decimal(name, &value["mean_milli"]);
                self.measure(&format!("{name}, sum"), &value["sum"]);
                self.whole(&format!("{name}, units"), counted);
            }
            Operation::Quantiles { .. } => {
                for row in value["quantiles"].as_array().into_iter().flatten() {
                    let Some(percent) = row["percent"].as_u64() else {
                        continue;
                    };
                    self.percentiles.insert(percent);
                    let share = format!("{name}, share");
                    self.ppm(&share, &Value::from(percent * 10_000));
                    self.measure(&format!("{name}, {percent} % at most"), &row["value"]);
                }
                self.ppm(&format!("{name}, error at most"), &value["error_max_ppm"]);
                self.whole(&format!("{name}, units"), counted);
            }
            Operation::Distinct(_) => {
                if value.is_object() {
                    self.measure(&format!("{name}, estimate"), &value["estimate"]);
                    self.ppm(
                        &format!("{name}, standard error"),
                        &value["standard_error_ppm"],
                    );
                } else {
                    self.measure(name, value);
                }
            }
            Operation::Join { .. } => {
                for row in rows {
                    let label = text(row, "label");
                    self.names.insert(label.to_owned());
                    let before = self.numbers.len();
                    for side in ["left", "right", "pairs"] {
                        self.measure(&format!("{name}, {label}, {side}"), &row[side]);
                    }
                    self.own(before, label);
                }
                self.list(&format!("{name}, keys"), rows.len());
            }
            Operation::Clusters { .. } => self.clusters(name, value, counted),
            Operation::Components { .. } => {
                let found = value["components"]
                    .as_array()
                    .map_or(&[][..], Vec::as_slice);
                for row in found {
                    let members = row["members"].as_array().map_or(&[][..], Vec::as_slice);
                    self.name_all(members);
                    let first = members.first().and_then(Value::as_str).unwrap_or_default();
                    let before = self.numbers.len();
                    for part in ["count", "pairs"] {
                        self.measure(&format!("{name}, {first}, {part}"), &row[part]);
                    }
                    self.own(before, first);
                }
                self.list(&format!("{name}, components"), found.len());
            }
            Operation::Summary { .. } => unreachable!("a summary is of claims that are none"),
        }
    }

    /// Takes in the counts of all units; a status that no unit has is left out, so that a zero in a
    /// text has to stand in a claim.
    pub(super) fn cover(&mut self, counts: Counts) {
        self.whole("coverage, units", counts.units);
        for status in Status::ALL {
            let count = counts.of(status);
            let name = format!("coverage, {}", status.name().replace('_', " "));
            match status {
                _ if count == 0 => {}
                Status::Decided => self.whole(&name, count),
                _ => {
                    let before = self.numbers.len();
                    self.push(name, i128::from(count), Role::Part(count));
                    self.own(before, &status.name().replace('_', " "));
                }
            }
        }
    }

    fn clusters(&mut self, name: &str, value: &Value, counted: u64) {
        let rows = value["clusters"].as_array().map_or(&[][..], Vec::as_slice);
        self.rows(name, rows);
        self.part(name, "unclustered", &value["unclustered"]);
        self.names.insert(text(value, "taxonomy").to_owned());
        for kind in ["dissent", "abstained"] {
            let units = value[kind].as_array().map_or(0, Vec::len) as u64;
            if units > 0 {
                self.push(
                    format!("{name}, {kind}"),
                    i128::from(units),
                    Role::Part(units),
                );
            }
        }
        self.whole(&format!("{name}, all units"), counted);
    }

    /// Rows of a label and its count; every unit is under one label, so that counts add up.
    fn rows(&mut self, name: &str, rows: &[Value]) {
        let mut sum = 0;
        for row in rows {
            self.part(name, text(row, "label"), &row["count"]);
            sum += row["count"].as_u64().unwrap_or(0);
        }
        self.list(&format!("{name}, entries"), rows.len());
        self.whole(&format!("{name}, these together"), sum);
    }

    fn range(&mut self, name: &str, row: &Value) -> String {
        let mut ends = Vec::new();
        for (word, end) in [("from", "from"), ("to under", "to")] {
            let ppm = &row[format!("{end}_ppm")];
            let edge = format!("{name}, an edge");
            if let Some(share) = ppm.as_u64() {
                ends.push(format!("{word} {}", percent(share)));
                self.ppm(&edge, ppm);
            } else if let Some(number) = row[end].as_i64() {
                ends.push(format!("{word} {number}"));
                self.measure(&edge, &row[end]);
            }
        }
        ends.join(" ")
    }

    fn name_all(&mut self, names: &[Value]) {
        let names = names.iter().filter_map(Value::as_str);
        self.names.extend(names.map(str::to_owned));
    }

    fn whole(&mut self, name: &str, count: u64) {
        self.push(name.to_owned(), i128::from(count), Role::Whole(count));
    }

    fn part(&mut self, name: &str, label: &str, count: &Value) {
        if let Some(count) = count.as_u64() {
            self.names.insert(label.to_owned());
            let before = self.numbers.len();
            self.push(
                format!("{name}, {label}"),
                i128::from(count),
                Role::Part(count),
            );
            self.own(before, label);
        }
    }

    /// Says of the numbers from this place on whose they are.
    fn own(&mut self, from: usize, of: &str) {
        for number in &mut self.numbers[from..] {
            number.of = Some(of.to_owned());
        }
    }

    fn list(&mut self, name: &str, entries: usize) {
        self.places = self.places.max(entries as u64);
        self.push(name.to_owned(), entries as i128, Role::Measure);
    }

    /// An integer, or the digits of one that JSON numbers cannot hold.
    fn measure(&mut self, name: &str, value: &Value) {
        let number = match value {
            Value::String(digits) => digits.parse().ok(),
            other => other.as_i64().map(i128::from),
        };
        if let Some(number) = number {
            self.push(name.to_owned(), number, Role::Measure);
        }
    }

    fn decimal(&mut self, name: &str, milli: &Value) {
        let milli: Option<i128> = match milli {
            Value::String(digits) => digits.parse().ok(),
            other => other.as_i64().map(i128::from),
        };
        if let Some(milli) = milli {
            let (sign, size) = (if milli < 0 { "-" } else { "" }, milli.unsigned_abs());
            self.numbers.push(Named {
                name: name.to_owned(),
                of: None,
                amount: Amount::milli(milli),
                role: Role::Measure,
                shown: format!("{sign}{}.{:03}", size / 1_000, size % 1_000),
            });
        }
    }

    fn ppm(&mut self, name: &str, value: &Value) {
        if let Some(ppm) = value.as_u64() {
            self.numbers.push(Named {
                name: name.to_owned(),
                of: None,
                amount: Amount::whole(i128::from(ppm)),
                role: Role::Ppm(ppm),
                shown: percent(ppm),
            });
        }
    }

    fn push(&mut self, name: String, number: i128, role: Role) {
        self.numbers.push(Named {
            name,
            of: None,
            amount: Amount::whole(number),
            role,
            shown: number.to_string(),
        });
    }
}

/// Ids in a claim's value: each is a unit below the fold.
pub(super) fn units_named(reduce: &Reduce, value: &Value) -> Vec<UnitId> {
    let mut ids: Vec<&Value> = Vec::new();
    match &reduce.op {
        Operation::Set { key: None, .. } => ids.extend(value.as_array().into_iter().flatten()),
        Operation::TopK { .. } => {
            let rows = value.as_array().into_iter().flatten();
            ids.extend(rows.map(|row| &row["unit_id"]));
        }
        Operation::Clusters { .. } => {
            for row in value["clusters"].as_array().into_iter().flatten() {
                ids.extend(row["exemplars"].as_array().into_iter().flatten());
            }
            for kind in ["dissent", "abstained"] {
                ids.extend(value[kind].as_array().into_iter().flatten());
            }
        }
        _ => {}
    }
    ids.into_iter()
        .filter_map(Value::as_str)
        .map(UnitId::new)
        .collect()
}

/// Parts per million as a percentage with one decimal, rounded to nearest, as claims print it.
fn percent(ppm: u64) -> String {
    let tenths = (ppm + 500) / 1_000;
    match tenths % 10 {
        0 => format!("{} %", tenths / 10),
        tenth => format!("{}.{tenth} %", tenths / 10),
    }
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}
