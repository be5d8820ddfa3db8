//! Indexes over all records: SQL, search, classifiers, and predicates that refer to them.

mod classifier;
mod plans;
mod runs;
mod search;
mod sql;

use operator::OperatorError;
use operator::index::{Indexes, UnitRows};
use operator::ops::Partition;
use operator::plan::Plan;
use serde_json::Value;

use super::script::{PLAN, units};

/// The shared plan with indexes, and with prefilters before its own.
fn plan_text(indexes: &str, prefilters: &str) -> String {
    PLAN.replacen(
        "[[prefilter]]",
        &format!("{indexes}\n{prefilters}\n[[prefilter]]"),
        1,
    )
}

fn plan(indexes: &str) -> Plan {
    Plan::parse(&plan_text(indexes, ""), "plan.toml").unwrap()
}

fn compute(plan: &Plan, records: &[Value]) -> Result<(Partition, Indexes), OperatorError> {
    let partition = units(plan, records);
    let indexes = Indexes::compute(plan, &UnitRows(&partition), &|| 0)?;
    Ok((partition, indexes))
}

/// The values of the plan's first index, by position.
fn values(indexes: &Indexes, records: usize) -> Vec<Option<i64>> {
    let table = indexes.table(0);
    (0..records as u32)
        .map(|ordinal| table.value(0, ordinal))
        .collect()
}

/// The members of the plan's first index.
fn members(indexes: &Indexes, records: usize) -> Vec<u32> {
    let table = indexes.table(0);
    (0..records as u32)
        .filter(|ordinal| table.is_member(0, *ordinal))
        .collect()
}
