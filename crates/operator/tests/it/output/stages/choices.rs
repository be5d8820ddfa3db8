//! Selectors and conditions: which stage takes which unit.

use operator::fact::Status;
use operator::infer::FailReason;
use operator::store::MemoryStore;

use super::super::script::Act;
use super::{STAGES, Told, end, fact, go, issues, kept, label, path, plan, sound, units};

/// Two stages that name no further pass, so that no larger model is wanted.
fn first_pass() -> &'static str {
    &STAGES[STAGES.find("[[stage]]").unwrap()..STAGES.find("[[stage]]\nname = \"reread\"").unwrap()]
}

#[test]
fn a_choice_runs_stages_excludes_or_abstains_and_nothing_else_is_asked() {
    let plan = plan(first_pass());
    let mut told = Told::new(&plan)
        .choose(2, "both", 600_000)
        .choose(3, "unrelated", 600_000)
        .choose(4, "unsure", 600_000)
        .say("judge", 2, "blocker", "yes", 600_000);
    let outcome = sound(&plan, &issues(6), &mut told, None);
    assert_eq!(
        told.asked(),
        [
            ("route", vec!["1", "2", "3", "4", "5"]),
            ("judge", vec!["1", "2", "5"]),
            ("detail", vec!["2"]),
        ]
    );
    assert_eq!(path(&outcome, 0), Vec::<String>::new());
    assert_eq!(path(&outcome, 1), ["route: judge", "judge: answered"]);
    assert_eq!(
        path(&outcome, 2),
        ["route: both", "judge: answered", "detail: answered"]
    );
    let left_out = (
        Status::Excluded,
        "route",
        Some("selector route chose unrelated"),
    );
    assert_eq!(end(&outcome, 3), left_out);
    assert!(fact(&outcome, 3).values.is_empty() && fact(&outcome, 3).evidence.is_empty());
    let abstained = (
        Status::Abstained,
        "route",
        Some("selector route chose unsure"),
    );
    assert_eq!(end(&outcome, 4), abstained);
    assert_eq!(end(&outcome, 5), (Status::Decided, "judge", None));
    assert_eq!(fact(&outcome, 2).cost.computed_tokens, 30, "three answers");
}

#[test]
fn below_the_margin_the_declared_option_is_taken_and_at_it_the_chosen_one() {
    let plan = plan(first_pass());
    let mut told = Told::new(&plan)
        .choose(1, "unrelated", 99_998)
        .choose(2, "unrelated", 100_000);
    let outcome = sound(&plan, &issues(3), &mut told, None);
    assert_eq!(path(&outcome, 1), ["route: judge", "judge: answered"]);
    let step = &fact(&outcome, 1).path[0];
    assert_eq!(
        step.values["route"].label, "unrelated",
        "what it would have chosen stays"
    );
    assert_eq!(path(&outcome, 2), ["route: unrelated"]);
}

#[test]
fn a_condition_looks_at_label_margin_and_abstention_as_they_stand_there() {
    let stages = r#"
[[stage]]
name = "early"
op = "map"
rubric = "Before anything is known."
fields = ["blocker"]
when = { abstained = false }

[[stage]]
name = "judge"
op = "map"
fields = ["blocker"]

[[stage]]
name = "yes"
op = "map"
rubric = "Of those that block."
fields = ["cause"]
when = { label = { blocker = "yes" }, abstained = false }

[[stage]]
name = "narrow"
op = "map"
rubric = "Of those that are close."
fields = ["cause"]
when = { margin_below = { blocker = 0.3 } }

[[stage]]
name = "unasked"
op = "map"
rubric = "Of those whose cause is open."
fields = ["cause"]
when = { margin_below = { cause = 0.000001 } }
"#;
    let plan = plan(stages);
    let mut told = Told::new(&plan)
        .say("judge", 1, "blocker", "yes", 600_000)
        .say("judge", 2, "blocker", "yes", 40_000)
        .say("judge", 3, "blocker", "no", 299_998)
        .say("judge", 4, "blocker", "no", 300_000);
    let outcome = sound(&plan, &issues(5), &mut told, None);
    assert_eq!(
        told.asked(),
        [
            // Before anything is asked every unit abstains: the first stage takes none.
            ("judge", vec!["1", "2", "3", "4"]),
            ("yes", vec!["1"]),
            ("narrow", vec!["2", "3"]),
            ("unasked", vec!["4"]),
        ]
    );
    assert_eq!(end(&outcome, 3), (Status::Decided, "narrow", None));
    let doubt = "margin of blocker: 40000 ppm, the plan wants 50000";
    assert_eq!(end(&outcome, 2), (Status::Abstained, "narrow", Some(doubt)));
}

#[test]
fn later_values_replace_earlier_ones_and_with_them_the_status() {
    let plan = plan(first_pass());
    let mut told = Told::new(&plan)
        .choose(1, "both", 600_000)
        .say("judge", 1, "blocker", "yes", 600_000)
        .say("judge", 1, "cause", "session", 600_000)
        .say("detail", 1, "cause", "other", 400_000);
    let outcome = sound(&plan, &issues(2), &mut told, None);
    assert_eq!(label(&outcome, 1, "cause"), "other");
    assert_eq!(label(&outcome, 1, "blocker"), "yes");
    assert_eq!(fact(&outcome, 1).path[1].values["cause"].label, "session");
    assert_eq!(end(&outcome, 1), (Status::Decided, "detail", None));
}

#[test]
fn a_field_that_no_stage_of_the_way_asks_leaves_its_unit_abstaining() {
    let stages = "[[stage]]\nname = \"first\"\nop = \"map\"\nfields = [\"blocker\"]\n\
                  [[stage]]\nname = \"second\"\nop = \"map\"\nrubric = \"Cause.\"\nfields = [\"cause\"]\n\
                  when = { label = { blocker = \"yes\" } }\n";
    let plan = plan(stages);
    let mut told = Told::new(&plan).say("first", 2, "blocker", "yes", 600_000);
    let outcome = sound(&plan, &issues(3), &mut told, None);
    let reason = "not asked: no stage that it took asks cause";
    assert_eq!(end(&outcome, 1), (Status::Abstained, "first", Some(reason)));
    assert_eq!(end(&outcome, 2), (Status::Decided, "second", None));
}

#[test]
fn a_unit_without_an_answer_ends_at_its_stage_and_keeps_no_value() {
    let plan = plan(first_pass());
    let mut told = Told::new(&plan)
        .act("route", 1, Act::Fail(FailReason::Truncated))
        .act("judge", 2, Act::Misshapen)
        .act("judge", 3, Act::Cancel)
        .act("route", 4, Act::Skip)
        .choose(5, "both", 600_000)
        .say("judge", 5, "blocker", "yes", 600_000)
        .act("detail", 5, Act::Fail(FailReason::Backend));
    let outcome = sound(&plan, &issues(6), &mut told, None);
    let ends: Vec<(Status, &str)> = (1..6)
        .map(|unit| (end(&outcome, unit).0, end(&outcome, unit).1))
        .collect();
    assert_eq!(
        ends,
        [
            (Status::Errored, "route"),
            (Status::Errored, "judge"),
            (Status::Cancelled, "judge"),
            (Status::NotRun, "route"),
            (Status::Errored, "detail"),
        ]
    );
    assert!((1..6).all(|unit| fact(&outcome, unit).values.is_empty()));
    assert_eq!(
        path(&outcome, 5),
        ["route: both", "judge: answered", "detail: errored"]
    );
    assert_eq!(fact(&outcome, 5).cost.prompt_tokens, 150);
}

#[test]
fn each_stage_remembers_its_own_answers() {
    let plan = plan(first_pass());
    let store = MemoryStore::new();
    let partition = units(&plan, &issues(4));
    let mut cold = Told::new(&plan).choose(2, "unrelated", 600_000);
    let first = go(&plan, &partition, (&mut cold, None), Some(&store), None).unwrap();
    assert_eq!(first.usage.remembered_units, 0);
    let home = tempfile::tempdir().unwrap();
    let mut warm = Told::new(&plan);
    let backends = (&mut warm, None);
    let (second, _) = kept(home.path(), &plan, &issues(4), backends, Some(&store));
    assert_eq!(warm.asked().len(), 0);
    assert_eq!(
        second.usage.remembered_units, 5,
        "three choices, two answers"
    );
    assert_eq!(second.answer.result_hash, first.answer.result_hash);
    let fact = fact(&second, 1);
    assert!(fact.remembered && fact.usage.prompt_tokens == 0 && fact.cost.prompt_tokens == 100);
    assert!(fact.path.iter().all(|step| step.remembered));
    // Another rubric of one stage is asked again there and nowhere else.
    let changed = first_pass().replace("Choose what comes next.", "Choose well.");
    let plan = super::plan(&changed);
    let mut told = Told::new(&plan).choose(2, "unrelated", 600_000);
    let home = tempfile::tempdir().unwrap();
    let backends = (&mut told, None);
    let (third, _) = kept(home.path(), &plan, &issues(4), backends, Some(&store));
    assert_eq!(told.asked(), [("route", vec!["1", "2", "3"])]);
    let fact = super::fact(&third, 1);
    assert!(!fact.remembered && fact.path[1].remembered);
    assert_eq!(
        (fact.usage.prompt_tokens, fact.cost.prompt_tokens),
        (50, 100)
    );
}

#[test]
fn equal_texts_are_asked_once_at_each_stage() {
    let plan = plan(first_pass());
    let mut records = issues(5);
    for number in [2, 3] {
        records[number]["title"] = records[1]["title"].clone();
    }
    for what in ["cold", "warm"] {
        let store = MemoryStore::new();
        let mut told = Told::new(&plan).choose(4, "unrelated", 600_000);
        if what == "warm" {
            let partition = units(&plan, &records);
            go(&plan, &partition, (&mut told, None), Some(&store), None).unwrap();
            told.asked.clear();
        }
        let home = tempfile::tempdir().unwrap();
        let backends = (&mut told, None);
        let (outcome, _) = kept(home.path(), &plan, &records, backends, Some(&store));
        if what == "cold" {
            assert_eq!(
                told.asked(),
                [("route", vec!["1", "4"]), ("judge", vec!["1"])]
            );
        }
        for unit in [2, 3] {
            let fact = fact(&outcome, unit);
            let same: Vec<Option<&str>> = fact
                .path
                .iter()
                .map(|step| step.same_as.as_ref().map(|id| id.as_str()))
                .collect();
            assert_eq!(same, [Some("1"), Some("1")], "{what}");
            assert_eq!(fact.cost.prompt_tokens, 0, "{what}");
            assert_eq!(fact.values, super::fact(&outcome, 1).values, "{what}");
        }
        assert_eq!(outcome.usage.duplicate_units, 4, "{what}");
    }
}
