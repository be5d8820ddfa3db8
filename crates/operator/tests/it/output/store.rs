//! What is remembered, under which key, and what a second run asks.

use std::sync::Mutex;

use operator::OperatorError;
use operator::fact::Status;
use operator::id::FactKey;
use operator::infer::{FailReason, JobUsage, UnitUsage};
use operator::plan::Plan;
use operator::store::{ContentStore, FactStore, Kind, MemoryStore, Store, StoredAnswers};
use serde_json::json;

use super::script::{Act, PLAN, Script, Setup, issues, plan, run_with, units};
use super::store_file::open;

fn remembering<'a>(memo: &'a dyn Store) -> Setup<'a> {
    Setup {
        memo: Some(memo),
        ..Setup::default()
    }
}

#[test]
fn a_second_run_asks_nothing_and_finds_the_same() {
    let home = tempfile::tempdir().unwrap();
    let partition = units(&plan(), &issues(100));
    let acts = || Script::with([(3, Act::Doubt), (13, Act::Doubt)]);
    let path = home.path().join("facts.redb");
    let store = open(&path);
    let mut script = acts();
    let (first, _) = run_with(&plan(), &partition, &mut script, remembering(&store)).unwrap();
    assert_eq!(script.asked_last().len(), 80);
    assert_eq!(first.answer.coverage.abstained, 2);
    drop(store);
    let store = open(&path);
    let mut script = acts();
    let (second, _) = run_with(&plan(), &partition, &mut script, remembering(&store)).unwrap();
    assert!(
        script.asked.is_empty(),
        "no job at all when nothing is left"
    );
    assert_eq!(second.usage.job, JobUsage::default());
    assert_eq!(second.usage.remembered_units, 80);
    assert_eq!(
        second.usage.tokens_as_if_uncached,
        first.usage.tokens_as_if_uncached
    );
    assert_eq!(second.answer, first.answer);
    for (old, new) in first.facts.iter().zip(&second.facts) {
        assert_eq!(old.fact_hash(), new.fact_hash());
        assert_eq!(old.provenance_hash(), new.provenance_hash());
        assert_eq!(new.remembered, new.stage == "map");
    }
}

#[test]
fn only_answers_are_remembered() {
    let partition = units(&plan(), &issues(1_000));
    let store = MemoryStore::new();
    let mut script = Script::with([
        (2, Act::Fail(FailReason::Backend)),
        (3, Act::Cancel),
        (4, Act::Skip),
        (5, Act::Misshapen),
        (6, Act::Fail(FailReason::Truncated)),
    ]);
    run_with(&plan(), &partition, &mut script, remembering(&store)).unwrap();
    // Answers, and the content of the fold: every fact and node under its own hash.
    assert_eq!(store.len(), 795 + 1_000 + 144);
    let mut script = Script::new();
    let (outcome, _) = run_with(&plan(), &partition, &mut script, remembering(&store)).unwrap();
    assert_eq!(script.asked_last(), ["2", "3", "4", "5", "6"]);
    assert!(outcome.answer.complete);
    let (fresh, _) = run_with(&plan(), &partition, &mut Script::new(), Setup::default()).unwrap();
    assert_eq!(outcome.answer.result_hash, fresh.answer.result_hash);
}

/// Keeps what was put, in order.
#[derive(Default)]
struct Spy(Mutex<Vec<StoredAnswers>>);

impl FactStore for Spy {
    fn get(&self, _: &FactKey) -> Option<StoredAnswers> {
        None
    }

    fn put(&self, _: &FactKey, stored: &StoredAnswers) -> Result<(), OperatorError> {
        self.0.lock().unwrap().push(stored.clone());
        Ok(())
    }

    fn exchange(
        &self,
        put: &[(FactKey, StoredAnswers)],
        _: &[FactKey],
    ) -> Result<(), OperatorError> {
        put.iter()
            .try_for_each(|(key, stored)| self.put(key, stored))
    }
}

/// Keeps no content.
impl ContentStore for Spy {
    fn get_bytes(&self, _: Kind, _: &[u8; 32]) -> Option<Vec<u8>> {
        None
    }

    fn put_bytes(&self, _: Kind, _: &[([u8; 32], Vec<u8>)]) -> Result<(), OperatorError> {
        Ok(())
    }
}

#[test]
fn the_whole_cost_of_an_answer_is_kept() {
    let spy = Spy::default();
    let partition = units(&plan(), &issues(30));
    let (outcome, _) =
        run_with(&plan(), &partition, &mut Script::new(), remembering(&spy)).unwrap();
    let asked = outcome.facts.iter().filter(|fact| fact.stage == "map");
    let spent: Vec<UnitUsage> = asked.map(|fact| fact.usage).collect();
    let kept: Vec<UnitUsage> = spy
        .0
        .lock()
        .unwrap()
        .iter()
        .map(|stored| stored.cost)
        .collect();
    assert_eq!(kept, spent);
    assert_eq!(kept.len(), 24);
    assert!(
        kept.iter()
            .all(|cost| cost.cached_tokens == 40 && cost.micros >= 5)
    );
}

#[test]
fn the_key_covers_every_input_that_matters_and_no_other() {
    let all = issues(100);
    let partition = units(&plan(), &all);
    let asked_after = |plan: &Plan, partition, setup: &dyn Fn(&mut Script), limit| {
        let store = MemoryStore::new();
        let setup_first = remembering(&store);
        run_with(
            &super::script::plan(),
            &units(&super::script::plan(), &issues(100)),
            &mut Script::new(),
            setup_first,
        )
        .unwrap();
        let mut script = Script::new();
        setup(&mut script);
        let setup = Setup {
            limit,
            ..remembering(&store)
        };
        run_with(plan, partition, &mut script, setup).unwrap();
        script.asked_last()
    };
    let same = |_: &mut Script| {};
    let edited = |from: &str, to: &str| {
        assert!(PLAN.contains(from));
        Plan::parse(&PLAN.replacen(from, to, 1), "plan.toml").unwrap()
    };
    for (from, to) in [
        ("Judge one issue.", "Judge one issue!"),
        ("Does it block the release?", "Does it block a release?"),
        ("\"session\", \"other\"", "\"sessions\", \"other\""),
    ] {
        let asked = asked_after(&edited(from, to), &partition, &same, None);
        assert_eq!(asked.len(), 80, "{from} -> {to}");
    }
    let other_model = |script: &mut Script| script.identity.digest[31] ^= 1;
    assert_eq!(
        asked_after(&plan(), &partition, &other_model, None).len(),
        80
    );
    let mut touched = all.clone();
    touched[42]["body"] = json!("Another body.");
    let touched = units(&plan(), &touched);
    assert_eq!(asked_after(&plan(), &touched, &same, None), ["42"]);
    let mut unread = all.clone();
    unread[42]["assignee"] = json!("somebody");
    let unread = units(&plan(), &unread);
    assert_eq!(
        asked_after(&plan(), &unread, &same, None),
        Vec::<String>::new()
    );
    for (from, to) in [
        ("abstain_below_margin = 0.05", "abstain_below_margin = 0.9"),
        ("k = 3", "k = 2"),
        ("issue is closed", "the issue is closed"),
    ] {
        let asked = asked_after(&edited(from, to), &partition, &same, None);
        assert_eq!(asked, Vec::<String>::new(), "{from} -> {to}");
    }
    let renamed = |script: &mut Script| {
        script.identity.name = String::from("same model, other name");
        script.reverse = true;
    };
    assert_eq!(
        asked_after(&plan(), &partition, &renamed, Some(5)),
        Vec::<String>::new()
    );
}

#[test]
fn a_changed_threshold_is_applied_to_remembered_answers() {
    let partition = units(&plan(), &issues(100));
    let store = MemoryStore::new();
    let (first, _) =
        run_with(&plan(), &partition, &mut Script::new(), remembering(&store)).unwrap();
    assert_eq!(first.answer.coverage.abstained, 0);
    let strict = PLAN.replacen(
        "abstain_below_margin = 0.05",
        "abstain_below_margin = 0.9",
        1,
    );
    let strict = Plan::parse(&strict, "plan.toml").unwrap();
    let mut script = Script::new();
    let (second, _) = run_with(&strict, &partition, &mut script, remembering(&store)).unwrap();
    assert!(script.asked.is_empty());
    assert!(second.answer.coverage.abstained > 0);
    let fact = second
        .facts
        .iter()
        .find(|fact| fact.status == Status::Abstained)
        .unwrap();
    assert!(
        fact.reason
            .as_deref()
            .unwrap()
            .starts_with("margin of blocker: ")
    );
    assert_ne!(first.answer.result_hash, second.answer.result_hash);
}

#[test]
fn simulated_answers_never_enter_the_memory() {
    let partition = units(&plan(), &issues(30));
    let store = MemoryStore::new();
    let mut script = Script::new();
    script.identity.simulated = true;
    let (outcome, events) =
        run_with(&plan(), &partition, &mut script, remembering(&store)).unwrap();
    assert!(store.is_empty());
    assert!(outcome.answer.simulated && outcome.answer.backend.simulated);
    for fact in &outcome.facts {
        assert_eq!(fact.simulated, fact.stage == "map", "unit {}", fact.unit_id);
    }
    let marked = serde_json::to_value(&events[0]).unwrap();
    assert_eq!(marked["simulated"], json!(true));
    let page = operator::answer::render_page(&outcome.answer, &outcome.usage);
    assert!(page.contains("**SIMULATED**"));
}
