//! Attempts and money: each is bounded, counted, and told.

use std::collections::BTreeMap;

use operator::event::Event;
use operator::fact::Status;
use operator::infer::{
    BackendIdentity, Completion, FailReason, Infer, InferError, InferJob, JobUsage, UnitOutcome,
    UnitUsage,
};
use operator::plan::Plan;
use serde_json::json;

use super::super::canaries::answer;
use super::super::script::{Setup, run_with, units};
use super::{COUNT, HEAD, records};

/// Fails some units a number of times before it answers them.
struct Flaky {
    identity: BackendIdentity,
    reason: FailReason,
    failures: BTreeMap<String, u32>,
    asked: Vec<String>,
}

impl Flaky {
    fn new(reason: FailReason, failures: &[(u32, u32)]) -> Self {
        let failures = failures.iter().map(|(id, times)| (id.to_string(), *times));
        Self {
            identity: BackendIdentity {
                name: String::from("flaky"),
                digest: [5; 32],
                simulated: false,
                describe: String::from("fails now and then"),
            },
            reason,
            failures: failures.collect(),
            asked: Vec::new(),
        }
    }
}

impl Infer for Flaky {
    fn identity(&self) -> &BackendIdentity {
        &self.identity
    }

    fn infer(
        &mut self,
        job: InferJob<'_>,
        sink: &mut dyn FnMut(Completion),
    ) -> Result<JobUsage, InferError> {
        let mut total = JobUsage::default();
        for place in 0..job.units.len() {
            if job.cancel.is_cancelled() {
                break;
            }
            let unit_id = job.units.id(place).clone();
            self.asked.push(unit_id.to_string());
            let left = self.failures.entry(unit_id.to_string()).or_default();
            let outcome = match left.checked_sub(1) {
                Some(less) => {
                    *left = less;
                    UnitOutcome::Failed {
                        reason: self.reason,
                        message: String::from("not now"),
                    }
                }
                None => answer(true, 800_000),
            };
            let usage = UnitUsage {
                prompt_tokens: 50,
                computed_tokens: 10,
                cached_tokens: 40,
                micros: 1,
            };
            total.prompt_tokens += 50;
            total.computed_tokens += 10;
            total.cached_tokens += 40;
            sink(Completion {
                unit_id,
                outcome,
                usage,
            });
        }
        Ok(total)
    }
}

fn plan(more: &str) -> Plan {
    Plan::parse(&format!("{HEAD}{COUNT}{more}"), "plan.toml").unwrap()
}

#[test]
fn what_could_not_be_reached_is_asked_again_so_often_and_each_attempt_is_counted() {
    let plan = plan("[control]\nattempts_max = 3\n");
    let mut flaky = Flaky::new(FailReason::Transport, &[(1, 1), (4, 2), (7, 3)]);
    let partition = units(&plan, &records(10));
    let (outcome, events) = run_with(&plan, &partition, &mut flaky, Setup::default()).unwrap();
    let cost = |id: usize| outcome.facts[id].cost.computed_tokens;
    assert_eq!((cost(0), cost(1), cost(4), cost(7)), (10, 20, 30, 30));
    assert_eq!(outcome.facts[4].status, Status::Decided);
    assert_eq!(outcome.facts[7].status, Status::Errored);
    assert_eq!(
        outcome.facts[7].reason.as_deref(),
        Some("transport: not now")
    );
    assert_eq!(outcome.usage.job.computed_tokens, 150);
    assert_eq!(flaky.asked.len(), 15);
    let again = events.iter().filter_map(|line| match &line.event {
        Event::Retried { units, attempt, .. } => Some((*units, *attempt)),
        _ => None,
    });
    assert_eq!(again.collect::<Vec<_>>(), [(3, 2), (2, 3)]);
}

#[test]
fn without_attempts_and_for_other_failures_nothing_is_asked_again() {
    let cases = [
        ("", FailReason::Transport),
        ("[control]\nattempts_max = 3\n", FailReason::Backend),
        ("[control]\nattempts_max = 3\n", FailReason::Schema),
    ];
    for (more, reason) in cases {
        let plan = plan(more);
        let mut flaky = Flaky::new(reason, &[(1, 1)]);
        let partition = units(&plan, &records(10));
        let (outcome, _) = run_with(&plan, &partition, &mut flaky, Setup::default()).unwrap();
        assert_eq!(outcome.facts[1].status, Status::Errored);
        assert_eq!(flaky.asked.len(), 10);
    }
}

#[test]
fn a_unit_that_is_asked_again_keeps_its_turn() {
    let rule = super::threshold(3);
    let plan = plan(&format!("[control]\nattempts_max = 2\nstop = [{rule}]\n"));
    let mut flaky = Flaky::new(FailReason::Transport, &[(1, 1)]);
    let partition = units(&plan, &records(10));
    let (outcome, _) = run_with(&plan, &partition, &mut flaky, Setup::default()).unwrap();
    // Whatever came meanwhile for later ones, the first three are what was promised.
    assert_eq!(super::with(&outcome, Status::Decided), [0, 1, 2]);
    assert_eq!(outcome.answer.claims[0].value, json!({ "at_least": 3 }));
}

#[test]
fn a_budget_of_money_stops_the_run_and_is_told() {
    // 10 computed and 40 cached tokens of a unit cost 1 and 2 millionths.
    let plan = plan(
        "[budget]\nmoney_max_micros = 9\n\
         price = { prompt_per_million_micros = 100_000, cached_per_million_micros = 50_000 }\n",
    );
    let mut flaky = Flaky::new(FailReason::Transport, &[]);
    let partition = units(&plan, &records(10));
    let (outcome, _) = run_with(&plan, &partition, &mut flaky, Setup::default()).unwrap();
    assert_eq!(outcome.answer.coverage.decided, 3);
    assert_eq!(outcome.usage.money_micros, Some(9));
    let reason = outcome.facts[9].reason.as_deref();
    assert_eq!(reason, Some("budget money_max_micros"));
    assert!(!outcome.answer.complete);
}

#[test]
fn a_budget_that_is_spent_before_a_rule_is_met_is_told_as_the_budget() {
    let rule = super::threshold(8);
    let plan = plan(&format!(
        "[control]\nstop = [{rule}]\n[budget]\nmoney_max_micros = 9\n\
         price = {{ prompt_per_million_micros = 300_000 }}\n"
    ));
    let mut flaky = Flaky::new(FailReason::Transport, &[]);
    let partition = units(&plan, &records(600));
    let (outcome, _) = run_with(&plan, &partition, &mut flaky, Setup::default()).unwrap();
    assert_eq!(super::with(&outcome, Status::Decided), [0, 1, 2]);
    assert_eq!(outcome.answer.coverage.not_run, 597);
    let of_budget =
        |fact: &operator::fact::Fact| fact.reason.as_deref() == Some("budget money_max_micros");
    assert!(outcome.facts[3..].iter().all(of_budget));
    assert!(!outcome.answer.complete && super::stopped_after(&outcome).is_none());
    assert_eq!(outcome.answer.claims[0].value, json!(3));
}
