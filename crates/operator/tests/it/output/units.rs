//! Units that are not records: what they cover, whom they bring together, and what they never guess.

mod coverage;
mod evidence;
mod plans;
mod relations;
mod same;
mod similarity;

use operator::Plan;
use operator::group;
use operator::ops::{Partition, Placed, Unit, Units, partition};
use operator::record::read_bytes;
use serde_json::{Value, json};

/// A plan over tickets; `unit` is put between the input and the field, `requires` into the field.
pub fn plan_text(unit: &str, requires: &str) -> String {
    format!(
        r#"
version = 1
question = "Which tickets say the same?"
rubric = "Judge tickets."

[input]
id = "number"
text = [{{ field = "title", max_chars = 80 }}, {{ field = "body", max_chars = 200 }}]
evidence = "first_line"

{unit}

[[field]]
name = "same"
question = "Do they say the same?"
labels = ["yes", "no"]
abstain_below_margin = 0.05
{requires}

[[reduce]]
name = "yes"
op = "count"
where = {{ same = "yes" }}

[[reduce]]
name = "answers"
op = "count_by"
field = "same"
"#
    )
}

pub fn plan(unit: &str) -> Plan {
    Plan::parse(&plan_text(unit, ""), "plan.toml").unwrap()
}

pub const PAIRS: &str = "[unit]\nkind = \"group\"\n[group]\nby = \"similarity\"\nmost = 3";

/// One plan of every kind and shape.
pub const KINDS: [(&str, &str); 8] = [
    ("records", ""),
    ("fields", "[unit]\nkind = \"field\""),
    ("similar pairs", PAIRS),
    (
        "similar clusters",
        "[unit]\nkind = \"group\"\n[group]\nby = \"similarity\"\nshape = \"cluster\"\nmembers_max = 4",
    ),
    (
        "pairs by key",
        "[unit]\nkind = \"group\"\n[group]\nby = \"key\"\nfield = \"component\"\nmost = 2",
    ),
    (
        "clusters by key",
        "[unit]\nkind = \"group\"\n[group]\nby = \"key\"\nfield = \"component\"\nshape = \"cluster\"\n\
         members_max = 5\norder_by = \"opened\"",
    ),
    (
        "linked pairs",
        "[unit]\nkind = \"group\"\n[group]\nby = \"links\"\npattern = '#(\\d+)\\b'",
    ),
    (
        "clusters in time",
        "[unit]\nkind = \"group\"\n[group]\nby = \"window\"\nwithin = \"1h\"\norder_by = \"opened\"\n\
         shape = \"cluster\"",
    ),
];

/// Tickets: every third repeats the one before in other words, some link another, some lack a part.
pub fn tickets(n: u32) -> Vec<Value> {
    let words = [
        "login", "token", "session", "expires", "refresh", "proxy", "cache", "disk", "index",
        "slow", "crash", "restart", "upload", "parser", "header", "timeout", "worker", "queue",
        "backup", "replica", "quota", "mount", "socket", "schema",
    ];
    let pick = |seed: u32, place: u32| {
        let mixed = (seed * 97 + place * 31 + 7).wrapping_mul(2_654_435_761) >> 16;
        words[mixed as usize % words.len()]
    };
    (0..n)
        .map(|number| {
            let subject = if number % 3 == 2 { number - 1 } else { number };
            let of = |places: std::ops::Range<u32>| -> Vec<&str> {
                places.map(|place| pick(subject, place)).collect()
            };
            let link = if number % 5 == 4 { format!(" See #{}.", number - 3) } else { String::new() };
            json!({
                "number": number,
                "title": format!("{} of host{subject}", of(0..3).join(" ")),
                "body": match number % 11 {
                    10 => String::new(),
                    _ => format!("The {} case{subject}.{link}", of(3..9).join(" ")),
                },
                "component": if number % 7 == 6 { Value::Null } else { json!(format!("c{}", number % 4)) },
                "opened": format!("2026-03-01T{:02}:{:02}:00Z", number / 4 % 24, number * 13 % 60),
            })
        })
        .collect()
}

/// The records in JSON lines, so that one of them may be broken.
pub fn lines(records: &[Value]) -> String {
    records.iter().map(|record| format!("{record}\n")).collect()
}

pub fn read(plan: &Plan, lines: &str) -> Partition {
    let (source, records, bad) = read_bytes("tickets.jsonl", lines.as_bytes(), None).unwrap();
    partition(plan, source, records, bad).unwrap()
}

/// Everything that a plan makes of records.
pub fn arranged(plan: &Plan, records: &dyn Units) -> Vec<Placed> {
    let made = group::arrange(plan, records).unwrap();
    let units = made.as_deref().unwrap_or(records);
    let mut all = Vec::new();
    units
        .visit(&mut |placed| {
            all.push(placed);
            Ok(())
        })
        .unwrap();
    assert_eq!(all.len(), units.len() as usize);
    all
}

pub fn units_of(plan: &Plan, records: &[Value]) -> Vec<Unit> {
    let placed = arranged(plan, &read(plan, &lines(records)));
    let units = placed.into_iter().filter_map(|placed| match placed {
        Placed::Unit(unit, _) => Some(unit),
        Placed::Bad(_) => None,
    });
    units.collect()
}
