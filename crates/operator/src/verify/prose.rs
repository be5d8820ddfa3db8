//! What a model's prose may say: the numbers, units and names of the claims that it is of.
//!
//! No digit may stand in it that is not of a unit, a name, a quote or a number that was checked; and
//! such a number in digits must be one of the claims or, as a percentage, the ratio of two. Numbers
//! in words are only counted.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{Derived, Subject};
use crate::coverage::Counts;
use crate::fact::Fact;

/// What a summary may speak of.
pub(super) struct Known<'a> {
    /// What code adds to the text.
    pub(super) apart: Vec<Value>,
    /// Whole numbers of the claims, with how many units they speak of and how long their lists are.
    numbers: BTreeSet<i128>,
    /// Thousandths that a mean is given in.
    milli: BTreeSet<i128>,
    /// Shares in parts per million.
    shares: BTreeSet<i128>,
    /// Entries of the longest list.
    places: i128,
    /// Every text in the values: labels, keys, ids; and the names of the claims.
    pub(super) texts: BTreeSet<String>,
    pub(super) facts: BTreeMap<&'a str, &'a Fact>,
    pub(super) counts: Counts,
}

impl<'a> Known<'a> {
    /// Reads the claims that a summary is of.
    pub(super) fn of(
        subject: Subject<'a>,
        derived: &Derived,
        of: &[String],
        counts: Counts,
    ) -> Self {
        let mut known = Self {
            apart: Vec::new(),
            numbers: BTreeSet::new(),
            milli: BTreeSet::new(),
            shares: BTreeSet::new(),
            places: 0,
            texts: of.iter().cloned().collect(),
            facts: subject
                .facts
                .iter()
                .map(|fact| (fact.unit_id.as_str(), fact))
                .collect(),
            counts,
        };
        for name in of {
            let mut claims = derived.claims.iter().zip(&derived.counted);
            let Some((claim, counted)) = claims.find(|(claim, _)| claim.name == *name) else {
                continue;
            };
            if let Some(reason) = &claim.refused {
                known.apart.push(json!({
                    "claim": name, "kind": "refused", "units": [], "total": 0, "reason": reason,
                }));
                continue;
            }
            known.number(i128::from(*counted));
            known.read(&claim.value, "");
            let cites = claim.cites.iter().map(|cite| cite.unit_id.to_string());
            known.texts.extend(cites);
            for kind in ["dissent", "abstained"] {
                let units = claim.value.get(kind).and_then(Value::as_array);
                if let Some(units) = units.filter(|units| !units.is_empty()) {
                    known.apart.push(json!({
                        "claim": name, "kind": kind, "units": units, "total": units.len(),
                        "reason": null,
                    }));
                }
            }
        }
        let Counts {
            units,
            excluded,
            decided,
            abstained,
            errored,
            cancelled,
            not_run,
        } = counts;
        let statuses = [
            units, excluded, decided, abstained, errored, cancelled, not_run,
        ];
        known.numbers.extend(statuses.map(i128::from));
        let unsettled = derived.nodes.first().map(|root| &root.node.unsettled);
        if let Some(unsettled) = unsettled.filter(|unsettled| unsettled.total > 0) {
            let units: Vec<_> = unsettled.best.iter().map(|(_, unit)| &unit.id).collect();
            known.apart.push(json!({
                "claim": null, "kind": "unsettled", "units": units, "total": unsettled.total,
                "reason": null,
            }));
        }
        known
    }

    /// Takes in every number and every text of a value.
    fn read(&mut self, value: &Value, key: &str) {
        match value {
            Value::Number(number) => {
                let number = number.as_i64().map(i128::from);
                let number = number.unwrap_or_else(|| value.as_u64().map_or(0, i128::from));
                match key {
                    "mean_milli" => self.milli(number),
                    "percent" => {
                        self.shares.insert(number * 10_000);
                        self.places = self.places.max(number);
                    }
                    key if key.ends_with("_ppm") => {
                        self.shares.insert(number);
                    }
                    _ => self.number(number),
                }
            }
            Value::String(text) => {
                if let Ok(number) = text.parse() {
                    match key {
                        "mean_milli" => self.milli(number),
                        _ => self.number(number),
                    }
                }
                self.texts.insert(text.clone());
            }
            Value::Array(items) => {
                self.count(items.len());
                for item in items {
                    self.read(item, key);
                }
                let sum = items.iter().filter_map(|item| item.get("count")?.as_i64());
                let sum = sum.map(i128::from).sum();
                self.number(sum);
            }
            Value::Object(fields) => {
                self.count(fields.len());
                for (key, value) in fields {
                    self.texts.insert(key.clone());
                    self.read(value, key);
                }
            }
            Value::Null | Value::Bool(_) => {}
        }
    }

    fn count(&mut self, entries: usize) {
        self.places = self.places.max(entries as i128);
        self.number(entries as i128);
    }

    /// A sign stands before a number and is no part of it as written.
    fn number(&mut self, number: i128) {
        self.numbers.extend([number, number.saturating_abs()]);
    }

    fn milli(&mut self, milli: i128) {
        self.milli.extend([milli, milli.saturating_abs()]);
    }
}

/// Whether a number in digits is one of the claims; one with words in it is not judged.
pub(super) fn holds(written: &str, known: &Known<'_>, units: &[&str]) -> bool {
    let bare = written.trim();
    if units.contains(&bare) {
        return true;
    }
    let (number, suffix) = match bare
        .find(|c: char| !c.is_ascii_digit() && !",. \u{a0}\u{202f}\u{2009}".contains(c))
    {
        Some(end) => (&bare[..end], bare[end..].trim()),
        None => (bare, ""),
    };
    let kept: String = number
        .chars()
        .filter(|c| c.is_ascii_digit() || *c == '.')
        .collect();
    let (whole, decimals) = kept
        .trim_end_matches('.')
        .split_once('.')
        .unwrap_or((&kept, ""));
    let scale = decimals.len() as u32;
    let digits = format!("{whole}{decimals}").parse::<i128>();
    let (Ok(digits), Some(unit)) = (digits, 10_i128.checked_pow(scale)) else {
        // Words first, or a sign: nothing to read here.
        return !bare.starts_with(|c: char| c.is_ascii_digit());
    };
    let equals = |set: &BTreeSet<i128>, of: i128| {
        set.iter()
            .any(|known| known.checked_mul(unit) == digits.checked_mul(of))
    };
    // Rounded half up to the decimals that are written.
    let is_percent = |part: i128, all: i128| {
        let doubled = part.checked_mul(200).and_then(|n| n.checked_mul(unit));
        all > 0 && doubled.map(|n| (n + all).div_euclid(2 * all)) == Some(digits)
    };
    let is_ratio = |all: &i128| {
        let mut parts = known.numbers.range(0..=*all);
        *all > 0 && parts.any(|part| is_percent(*part, *all))
    };
    match suffix {
        "" => equals(&known.numbers, 1) || equals(&known.milli, 1_000),
        "%" | "percent" | "per cent" => {
            let mut shares = known.shares.iter();
            shares.any(|ppm| is_percent(*ppm, 1_000_000)) || known.numbers.iter().any(is_ratio)
        }
        "st" | "nd" | "rd" | "th" => scale == 0 && (1..=known.places).contains(&digits),
        // Scales and shares in words.
        _ => true,
    }
}

/// Digits of a prose that stand in nothing that is known.
pub(super) fn unread(
    prose: &str,
    known: &Known<'_>,
    units: &[&str],
    numbers: &[&str],
) -> Vec<String> {
    let quotes = units.iter().filter_map(|unit| {
        let quote = known.facts.get(unit)?.evidence.first()?.quote.as_ref()?;
        Some(one_line(quote))
    });
    let quotes: Vec<String> = quotes.collect();
    let mut rest = one_line(prose);
    // What stands in quotation marks and in the quote of a cited unit is the record's.
    for part in prose.split([
        '"', '\u{201c}', '\u{201d}', '\u{201e}', '\u{ab}', '\u{bb}', '\'', '`',
    ]) {
        let words = one_line(part);
        let bare = words
            .trim()
            .trim_end_matches(['.', ',', ';', ':', '!', '?', '\u{2026}']);
        if !bare.is_empty() && quotes.iter().any(|quote| quote.contains(bare)) {
            rest = rest.replace(bare, " ");
        }
    }
    let names = known.texts.iter().map(String::as_str);
    let mut whole: Vec<&str> = numbers
        .iter()
        .chain(units)
        .copied()
        .chain(names.filter(|name| name.contains(|c: char| !c.is_ascii_digit())))
        .filter(|text| text.contains(|c: char| c.is_ascii_digit()))
        .collect();
    whole.sort_by_key(|text| std::cmp::Reverse(text.len()));
    for text in whole {
        rest = without(&rest, text);
    }
    rest.split(|c: char| !c.is_ascii_digit())
        .filter(|digits| !digits.is_empty())
        .map(str::to_owned)
        .collect()
}

/// A text without a word where it stands whole: no digit before it, none behind it.
fn without(text: &str, word: &str) -> String {
    let mut kept = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(word) {
        let (head, tail) = (&rest[..at], &rest[at + word.len()..]);
        let grown = head.ends_with(|c: char| c.is_ascii_digit())
            || tail.starts_with(|c: char| c.is_ascii_digit());
        kept.push_str(head);
        kept.push_str(if grown { word } else { " " });
        rest = tail;
    }
    kept + rest
}

/// Text on one line, as pages print it.
pub(super) fn one_line(text: &str) -> String {
    let broken = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    text.replace(broken, " ")
}
