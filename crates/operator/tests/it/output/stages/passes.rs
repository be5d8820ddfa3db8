//! Further passes: who is let in, who is asked, and what stands when they are stopped.

use operator::OperatorError;
use operator::fact::Status;
use operator::infer::FailReason;

use super::super::script::Act;
use super::{STAGES, Told, end, fact, go, issues, label, path, plan, sound, units};

/// Units 1 to `n` abstain after the first pass.
fn doubting(told: Told, n: u32) -> Told {
    (1..=n).fold(told, |told, unit| {
        told.say("judge", unit, "blocker", "yes", 20_000)
    })
}

const DOUBT: &str = "margin of blocker: 20000 ppm, the plan wants 50000";

#[test]
fn a_pass_takes_so_many_in_source_order_and_only_those_that_its_stages_want() {
    let plan = plan(STAGES);
    let mut main = doubting(Told::new(&plan), 5).say("judge", 2, "blocker", "yes", 600_000);
    let mut larger = Told::larger(&plan).say("reread", 1, "blocker", "yes", 100_000);
    let outcome = sound(&plan, &issues(8), &mut main, Some(&mut larger));
    assert_eq!(larger.asked(), [("reread", vec!["1", "3", "4"])]);
    // Unit 5 had no room in the second pass and waits; unit 1, still close, comes before it.
    let asked = main.asked();
    assert_eq!(asked[2..], [("last", vec!["1"])]);
    assert_eq!(
        path(&outcome, 1),
        [
            "route: judge",
            "judge: answered",
            "reread: answered",
            "last: answered"
        ]
    );
    assert_eq!(end(&outcome, 2), (Status::Decided, "judge", None));
    assert_eq!(end(&outcome, 3), (Status::Decided, "reread", None));
    assert_eq!(end(&outcome, 5), (Status::Abstained, "judge", Some(DOUBT)));
    assert_eq!(label(&outcome, 1, "blocker"), "no");
    assert_eq!(fact(&outcome, 3).backend.as_deref(), Some("larger"));
}

#[test]
fn a_unit_that_one_pass_had_no_room_for_may_come_into_the_next() {
    let plan = plan(STAGES);
    let mut main = doubting(Told::new(&plan), 4);
    let mut larger = Told::larger(&plan);
    let outcome = sound(&plan, &issues(6), &mut main, Some(&mut larger));
    assert_eq!(larger.asked(), [("reread", vec!["1", "2", "3"])]);
    assert_eq!(main.asked()[2..], [("last", vec!["4"])]);
    assert_eq!(
        path(&outcome, 4),
        ["route: judge", "judge: answered", "last: answered"]
    );
}

#[test]
fn passes_must_become_smaller_and_say_whom_they_want() {
    let parse = |from: &str, to: &str| {
        let text = format!("{}{}", super::HEAD, STAGES.replacen(from, to, 1));
        operator::Plan::parse(&text, "p.toml")
            .unwrap_err()
            .to_string()
    };
    let larger = parse("units_max = 1", "units_max = 3");
    assert!(
        larger.contains("less than the 3 of the pass before"),
        "{larger}"
    );
    let none = parse("when = { abstained = true }\n", "");
    assert!(none.contains("needs a `when`"), "{none}");
    let backward = parse("pass = \"third\"\n", "");
    assert!(
        backward.contains("belongs to an earlier pass"),
        "{backward}"
    );
    for taken in ["partition", "audit", "unit"] {
        let error = parse("name = \"last\"", &format!("name = {taken:?}"));
        assert!(error.contains("is reserved"), "{error}");
    }
}

#[test]
fn a_larger_model_is_asked_only_where_it_is_named_and_its_absence_is_told_before_anything() {
    let plan = plan(STAGES);
    let mut main = doubting(Told::new(&plan), 1);
    let partition = units(&plan, &issues(4));
    match go(&plan, &partition, (&mut main, None), None, None) {
        Err(OperatorError::NoLargerModel { stage }) => assert_eq!(stage, "reread"),
        other => panic!("{other:?}"),
    }
    assert_eq!(main.asked().len(), 0);
    let mut larger = Told::larger(&plan);
    sound(&plan, &issues(4), &mut main, Some(&mut larger));
    assert_eq!(larger.asked(), [("reread", vec!["1"])]);
    assert!(main.asked().iter().all(|(stage, _)| *stage != "reread"));
}

#[test]
fn what_a_later_pass_does_not_get_leaves_the_earlier_result_and_the_path_says_so() {
    let plan = plan(STAGES);
    let mut main = doubting(Told::new(&plan), 4);
    let mut larger = Told::larger(&plan)
        .act("reread", 1, Act::Skip)
        .act("reread", 2, Act::Cancel)
        .act("reread", 3, Act::Fail(FailReason::TooLarge));
    let outcome = sound(&plan, &issues(6), &mut main, Some(&mut larger));
    for (unit, outcome_there) in [(1, "not_run"), (2, "cancelled")] {
        assert_eq!(
            end(&outcome, unit),
            (Status::Abstained, "judge", Some(DOUBT))
        );
        assert_eq!(
            path(&outcome, unit)[2..],
            [format!("reread: {outcome_there}")]
        );
    }
    assert_eq!(
        end(&outcome, 3).0,
        Status::Errored,
        "asked, and answered by an error"
    );
    assert_eq!(end(&outcome, 4), (Status::Decided, "last", None));
}

#[test]
fn a_backend_lost_in_a_later_pass_leaves_the_earlier_results() {
    let plan = plan(STAGES);
    let mut main = doubting(Told::new(&plan), 4);
    let mut larger = Told::larger(&plan);
    larger.breaks = Some((String::from("reread"), 1));
    let outcome = sound(&plan, &issues(6), &mut main, Some(&mut larger));
    assert!(outcome.backend_failure.is_some() && outcome.answer.complete);
    assert_eq!(end(&outcome, 1), (Status::Decided, "reread", None));
    for unit in [2, 3] {
        assert_eq!(
            end(&outcome, unit),
            (Status::Abstained, "judge", Some(DOUBT))
        );
        assert_eq!(path(&outcome, unit)[2..], ["reread: not_run"]);
    }
    assert_eq!(
        path(&outcome, 4)[2..],
        ["last: not_run"],
        "nothing is asked after that"
    );
    assert_eq!(end(&outcome, 5), (Status::Decided, "judge", None));
}

#[test]
fn a_backend_lost_in_the_first_pass_leaves_units_not_run_where_they_were_due() {
    let plan = plan(STAGES);
    let mut main = Told::new(&plan).choose(2, "unrelated", 600_000);
    main.breaks = Some((String::from("judge"), 1));
    let outcome = sound(&plan, &issues(5), &mut main, Some(&mut Told::larger(&plan)));
    assert_eq!(end(&outcome, 1), (Status::Decided, "judge", None));
    assert_eq!(end(&outcome, 2).0, Status::Excluded);
    for unit in [3, 4] {
        let (status, stage, reason) = end(&outcome, unit);
        assert_eq!((status, stage), (Status::NotRun, "judge"));
        assert!(reason.unwrap().contains("device lost"), "{reason:?}");
        assert_eq!(path(&outcome, unit), ["route: judge"]);
    }
}

#[test]
fn a_run_cancelled_between_stages_settles_every_unit_where_it_stood() {
    let plan = plan(STAGES);
    let mut main = doubting(Told::new(&plan), 2).choose(3, "unrelated", 600_000);
    main.cancels = Some((String::from("route"), String::from("5")));
    let outcome = sound(&plan, &issues(6), &mut main, Some(&mut Told::larger(&plan)));
    assert_eq!(main.asked().len(), 1, "only the selector was asked");
    for unit in [1, 2, 4, 5] {
        assert_eq!(
            end(&outcome, unit),
            (Status::NotRun, "judge", Some("cancelled"))
        );
        assert_eq!(path(&outcome, unit), ["route: judge"]);
    }
    assert_eq!(end(&outcome, 3).0, Status::Excluded);
    // Before a further pass: the earlier results stand, and who would have come in is told.
    let mut main = doubting(Told::new(&plan), 2);
    main.cancels = Some((String::from("judge"), String::from("5")));
    let mut larger = Told::larger(&plan);
    let outcome = sound(&plan, &issues(6), &mut main, Some(&mut larger));
    assert_eq!(larger.asked().len(), 0);
    assert!(outcome.answer.complete);
    assert_eq!(end(&outcome, 1), (Status::Abstained, "judge", Some(DOUBT)));
    assert_eq!(path(&outcome, 1)[2..], ["reread: not_run"]);
    assert_eq!(path(&outcome, 3), ["route: judge", "judge: answered"]);
}

#[test]
fn a_pass_stops_at_its_own_budget_of_tokens() {
    let stages = STAGES.replacen("units_max = 3", "units_max = 3\ntokens_max = 20", 1);
    let stages = stages.replacen("units_max = 1", "units_max = 1\ntokens_max = 10", 1);
    let plan = plan(&stages);
    let mut main = doubting(Told::new(&plan), 4);
    let outcome = sound(&plan, &issues(7), &mut main, Some(&mut Told::larger(&plan)));
    // Ten tokens an answer: the first pass may use more, the second two answers.
    assert_eq!(end(&outcome, 2), (Status::Decided, "reread", None));
    assert_eq!(path(&outcome, 3)[2..], ["reread: not_run"]);
    assert_eq!(path(&outcome, 4)[2..], ["last: not_run"]);
    assert_eq!(end(&outcome, 6), (Status::Decided, "judge", None));
}
