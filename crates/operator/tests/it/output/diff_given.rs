//! Differences where the runs were given the same, another plan, backend, limit or tree.

use operator::diff::{Aspect, Cause, TreeDifference, diff};
use operator::fact::Status;
use operator::store::MemoryStore;

use super::diff::{check_over_units, names, run};
use super::recorded::{Recorded, WIDE, record};
use super::script::{PLAN, Script, Setup, issues};

fn run_plan(text: &str) -> Recorded {
    record(text, &issues(120), &mut Script::new(), Setup::default())
}

#[test]
fn equal_runs_are_the_same_whatever_they_cost_and_remembered() {
    let store = MemoryStore::default();
    let remembering = || Setup {
        memo: Some(&store),
        ..Setup::default()
    };
    let cold = record(PLAN, &issues(120), &mut Script::new(), remembering());
    let warm = record(PLAN, &issues(120), &mut Script::new(), remembering());
    assert!(warm.run.usage.remembered_units > 50);
    let difference = diff(&cold.run, &warm.run);
    assert!(difference.same_result && difference.result.same());
    assert_eq!(names(&difference), Vec::<&str>::new());
    assert_eq!((difference.units_same, difference.claims.len()), (120, 0));
    assert_eq!(difference.claims_same, 6);
    let TreeDifference::Compared {
        visited,
        same,
        nodes,
        ..
    } = &difference.tree
    else {
        panic!("equal trees are compared")
    };
    assert_eq!(
        (*visited, *same),
        (2, nodes.before),
        "both roots and no more"
    );
    check_over_units(&cold.run, &warm.run, &difference);
}

#[test]
fn a_redacted_run_is_the_same_as_an_open_one() {
    let open = run(&issues(60));
    let setup = Setup {
        redact: true,
        ..Setup::default()
    };
    let redacted = record(PLAN, &issues(60), &mut Script::new(), setup);
    let difference = diff(&open.run, &redacted.run);
    assert!(difference.same_result);
    assert!(difference.units.is_empty() && difference.claims.is_empty());
}

#[test]
fn a_changed_plan_is_told_and_only_changed_facts_are_its_work() {
    // Another wording of the rubric: the script answers from the text alone, so the facts stay.
    let reworded = PLAN.replace("Judge one issue.", "Judge this one issue.");
    let (before, after) = (run_plan(PLAN), run_plan(&reworded));
    let difference = diff(&before.run, &after.run);
    assert!(!difference.plan.same() && difference.question.same());
    assert!(!difference.same_result);
    assert!(difference.units.is_empty() && difference.claims.is_empty());
    check_over_units(&before.run, &after.run, &difference);

    // Another prefilter decides otherwise.
    let stricter = PLAN.replace("set = { blocker = \"yes\"", "set = { blocker = \"no\"");
    let after = run_plan(&stricter);
    let difference = diff(&before.run, &after.run);
    assert_eq!(difference.units.len(), 12);
    for unit in &difference.units {
        assert_eq!(unit.aspects, [Aspect::Labels]);
        assert_eq!(unit.causes, [Cause::Plan]);
    }
    check_over_units(&before.run, &after.run, &difference);

    // Other reductions: every node holds other states, and no fact changed.
    let wider = format!("{PLAN}{WIDE}");
    let after = run_plan(&wider.replace("{count} issues block", "{count} of them block"));
    let difference = diff(&before.run, &after.run);
    let TreeDifference::Compared {
        reductions_changed,
        changed,
        same,
        ..
    } = &difference.tree
    else {
        panic!("the ranges are the same")
    };
    assert!(*reductions_changed);
    assert_eq!((*same, changed.len()), (0, before.run.nodes.len()));
    let new = difference
        .claims
        .iter()
        .filter(|claim| claim.before.is_none());
    assert_eq!(new.count(), 10);
    let reworded = difference
        .claims
        .iter()
        .find(|claim| claim.claim == "blockers")
        .unwrap();
    assert!(reworded.reduction_changed && !reworded.value_changed);
}

#[test]
fn another_backend_is_behind_what_it_answered_and_nothing_else() {
    let before = run(&issues(120));
    let mut other = Script::new();
    other.identity.digest = [8; 32];
    other.identity.name = String::from("other script");
    let after = record(PLAN, &issues(120), &mut other, Setup::default());
    let difference = diff(&before.run, &after.run);
    assert!(!difference.backend.same() && difference.plan.same());
    assert_eq!(difference.units.len(), 96, "24 are settled by predicates");
    for unit in &difference.units {
        assert!(!unit.decision);
        assert_eq!(unit.aspects, [Aspect::Answerer]);
        assert_eq!(unit.causes, [Cause::Backend]);
    }
    assert!(difference.claims.is_empty(), "the answers are the same");
    check_over_units(&before.run, &after.run, &difference);
}

#[test]
fn a_limit_is_the_course_of_the_run() {
    let before = run(&issues(120));
    let setup = Setup {
        limit: Some(90),
        ..Setup::default()
    };
    let after = record(PLAN, &issues(120), &mut Script::new(), setup);
    let difference = diff(&before.run, &after.run);
    assert_eq!(difference.units.len(), 6);
    for unit in &difference.units {
        assert_eq!(unit.causes, [Cause::Course]);
        assert_eq!(unit.after.as_ref().unwrap().status, Status::NotRun);
    }
    assert_eq!(difference.claims.len(), 6, "each claim states the gap");
    for claim in &difference.claims {
        assert!(claim.behind_total > 0, "{}", claim.claim);
    }
    assert_eq!(difference.coverage.after.not_run, 6);
    check_over_units(&before.run, &after.run, &difference);
}

#[test]
fn trees_of_another_shape_are_not_compared_and_facts_and_claims_are() {
    let before = run_plan(PLAN);
    let after = run_plan(&format!("{PLAN}\n[fold]\nfan_in = 4\n"));
    let difference = diff(&before.run, &after.run);
    let TreeDifference::Incomparable { why } = &difference.tree else {
        panic!("the fan-in differs")
    };
    assert!(why.contains("fan-in is 8 before and 4 after"), "{why}");
    assert!(difference.same_result, "no result depends on the fan-in");
    assert!(difference.units.is_empty() && difference.claims.is_empty());

    let mut edited = issues(120);
    edited.remove(0);
    let text = format!("{PLAN}\n[fold]\nkey = \"ordinal\"\n");
    let after = record(&text, &edited, &mut Script::new(), Setup::default());
    let difference = diff(&before.run, &after.run);
    let TreeDifference::Incomparable { why } = &difference.tree else {
        panic!("the keys differ")
    };
    assert!(
        why.contains("placed by id before and by ordinal after"),
        "{why}"
    );
    assert_eq!(names(&difference), ["0"]);
}
