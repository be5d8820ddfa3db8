//! The input side: formats, partition, predicates, plans, texts and the encoding that is hashed.

mod columns;
mod corpus;
mod digests;
mod files;
mod formats;
mod plans;
mod predicates;
mod reductions;
mod texts;
mod tools;

use operator::ops::{Partition, partition};
use operator::record::{BadRecord, Format, Record, read_bytes};
use operator::{OperatorError, Plan};

/// A plan with two fields; tests replace parts of its text.
pub const PLAN: &str = r#"version = 1
question = "Which?"
rubric = "Judge the record."

[input]
id = "id"
text = [{ field = "title", max_chars = 80 }, { field = "body", max_chars = 300, policy = "head_tail" }]
evidence = "model"
evidence_lines_max = 12

[[prefilter]]
name = "closed"
when = { field = "state", op = "eq", value = "CLOSED" }
action = "exclude"

[[field]]
name = "blocker"
question = "Does it block?"
labels = [{ name = "yes", means = "it does" }, "no"]
abstain_below_margin = 0.05

[[field]]
name = "cause"
question = "Why?"
labels = ["clock", "none"]
reasons = ["stated", "implied"]

[[reduce]]
name = "blockers"
op = "count"
where = { blocker = "yes" }
claim = "{value} block"
"#;

pub fn plan() -> Plan {
    Plan::parse(PLAN, "plan.toml").unwrap()
}

/// The plan with one piece of its text replaced, which must occur.
pub fn plan_with(from: &str, to: &str) -> Result<Plan, OperatorError> {
    assert!(PLAN.contains(from), "{from}");
    Plan::parse(&PLAN.replacen(from, to, 1), "plan.toml")
}

pub fn read(text: &str) -> (Vec<Record>, Vec<BadRecord>) {
    let (_, records, bad) = read_bytes("in", text.as_bytes(), None).unwrap();
    (records, bad)
}

pub fn read_error(bytes: &[u8], format: Option<Format>) -> String {
    read_bytes("in", bytes, format).unwrap_err().to_string()
}

pub fn split(text: &str) -> Result<Partition, OperatorError> {
    let (source, records, bad) = read_bytes("in", text.as_bytes(), None).unwrap();
    partition(&plan(), source, records, bad)
}
