//! The shipped plan on the shipped corpus: predicates must never lose a blocker or name a wrong
//! cause.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use operator::Plan;
use operator::index::Indexes;
use operator::ops::{Route, partition, prefilter};
use operator::record::read_source;
use operator::text::{quote, render};
use serde_json::Value;

#[test]
fn predicates_agree_with_the_oracle_and_every_text_can_be_quoted() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    let plan = Plan::load(&fixtures.join("plans/auth-blockers.toml")).unwrap();
    let path = plan.input_path().unwrap();
    let (source, records, bad) = read_source(&path, plan.input.format).unwrap();
    let units = partition(&plan, source, records, bad).unwrap().units;
    assert_eq!(units.len(), 1_000);

    let oracle = std::fs::read_to_string(fixtures.join("oracle/issues-1000.oracle.jsonl")).unwrap();
    let oracle: HashMap<String, Value> = oracle
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .map(|verdict| (verdict["number"].to_string(), verdict))
        .collect();

    let mut routes: BTreeMap<&str, u32> = BTreeMap::new();
    for unit in &units {
        let truth = &oracle[unit.id.as_str()];
        let route = match prefilter(&plan, unit, &Indexes::none()) {
            Route::Exclude { prefilter, .. } => {
                assert_eq!(truth["blocker"], false, "{prefilter} excludes {}", unit.id);
                "excluded"
            }
            Route::Decide { prefilter, set, .. } => {
                assert_eq!(truth["blocker"], true, "{prefilter} decides {}", unit.id);
                assert_eq!(set["blocker"], "yes");
                assert_eq!(
                    truth["cause"],
                    set["cause"].as_str(),
                    "{prefilter}: {}",
                    unit.id
                );
                "decided"
            }
            Route::Model { .. } => "model",
            Route::Malformed { message, .. } => panic!("{}: {message}", unit.id),
        };
        *routes.entry(route).or_default() += 1;
        let text = render(&plan, unit).unwrap();
        for line in &text.lines {
            let quoted = quote(&unit.record, &line.field, line.start, line.end).unwrap();
            assert!(
                text.text.contains(&format!("\n{}| {quoted}", line.number)),
                "{}",
                unit.id
            );
        }
    }
    let residual = routes["model"];
    assert!(
        (200..=260).contains(&residual) && routes["decided"] > 0,
        "{routes:?}"
    );
}
