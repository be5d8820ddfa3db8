//! Plans whose rules could not be kept are refused before anything is asked.

use operator::plan::Plan;

use super::{COUNT, SET, TOP, text_of, threshold};

fn problem(reduces: &[&str], more: &str, rules: &[&str]) -> String {
    match Plan::parse(&text_of(reduces, more, rules), "plan.toml") {
        Ok(_) => panic!("accepted: {rules:?}"),
        Err(error) => error.to_string(),
    }
}

const SHARE: &str = "{ reduce = \"many\", rule = \"confidence\", half_width = 0.1, alpha = 0.05, \
                     looks = [10, 20], seed = \"s\" }";

#[test]
fn a_rule_is_refused_where_its_claim_promises_all() {
    let exhaustive = format!("{COUNT}contract = \"exhaustive\"\n");
    for rule in [threshold(3).as_str(), SHARE] {
        let problem = problem(&[&exhaustive], "", &[rule]);
        assert!(problem.contains("declared exhaustive"), "{problem}");
        assert!(problem.starts_with("plan.toml:"), "{problem}");
    }
}

#[test]
fn a_rule_is_refused_where_another_claim_would_be_partial() {
    let of_all = [
        SET.to_owned(),
        TOP.to_owned(),
        "[[reduce]]\nname = \"by\"\nop = \"count_by\"\nfield = \"good\"\n".to_owned(),
        "[[reduce]]\nname = \"keys\"\nop = \"top_keys\"\nfield = \"good\"\nk = 2\n".to_owned(),
        "[[reduce]]\nname = \"most\"\nop = \"max\"\nfield = \"score\"\n".to_owned(),
        "[[reduce]]\nname = \"told\"\nop = \"summary\"\nof = [\"many\"]\ninstruction = \"Tell.\"\n"
            .to_owned(),
    ];
    for other in &of_all {
        let problem = problem(&[COUNT, other], "", &[&threshold(3)]);
        assert!(problem.contains("speaks of every unit, and the run stops by threshold of many"));
        assert!(problem.contains("another plan"), "{problem}");
    }
    let audit = "[audit]\nfield = \"good\"\npositive = \"yes\"\ntarget_recall = 0.9\nunits_max = 9\n\
                 seed = \"s\"\nauditor = { rubric = \"Read slowly.\" }\n";
    let problem = problem(&[COUNT], audit, &[&threshold(3)]);
    assert!(
        problem.contains("[audit] certifies that all were found"),
        "{problem}"
    );
}

#[test]
fn a_rule_is_refused_where_it_does_not_fit_its_claim() {
    let surest =
        "[[reduce]]\nname = \"best\"\nop = \"top_k\"\nfield = \"good\"\nlabel = \"yes\"\nk = 3\n";
    let all = "[[reduce]]\nname = \"many\"\nop = \"count\"\n";
    let keys = "[[reduce]]\nname = \"some\"\nop = \"set\"\nfield = \"good\"\n";
    let best = "{ reduce = \"best\", rule = \"top_k\" }";
    let some = "{ reduce = \"some\", rule = \"examples\", k = 3 }";
    let at_least = threshold(3).replace("many", "some");
    let cases = [
        (surest, best, "no bound is known before a unit is asked"),
        (all, SHARE, "has no share to estimate"),
        (keys, some, "the rule is for set without a field"),
        (SET, at_least.as_str(), "the rule is for count"),
        (
            COUNT,
            "{ reduce = \"mny\", rule = \"top_k\" }",
            "did you mean \"many\"",
        ),
        (
            COUNT,
            "{ reduce = \"many\", rule = \"treshold\" }",
            "did you mean \"threshold\"",
        ),
        (
            COUNT,
            "{ reduce = \"many\", rule = \"threshold\" }",
            "needs \"at_least\"",
        ),
        (
            COUNT,
            "{ reduce = \"many\", rule = \"threshold\", at_least = 0 }",
            "at least 1",
        ),
        (
            COUNT,
            "{ reduce = \"many\", rule = \"threshold\", at_least = 2, k = 1 }",
            "has no \"k\"",
        ),
    ];
    for (reduce, rule, wanted) in cases {
        let problem = problem(&[reduce], "", &[rule]);
        assert!(problem.contains(wanted), "{problem}");
    }
    for (from, to, wanted) in [
        ("[10, 20]", "[20, 10]", "strictly ascending"),
        ("[10, 20]", "[]", "strictly ascending"),
        ("alpha = 0.05", "alpha = 1.0", "between 0 and 1"),
        ("alpha = 0.05", "alpha = 0.000003", "too small to be shared"),
    ] {
        let problem = problem(&[COUNT], "", &[&SHARE.replace(from, to)]);
        assert!(problem.contains(wanted), "{problem}");
    }
}

#[test]
fn rules_that_want_different_orders_are_refused_and_so_are_two_of_one_claim() {
    let best = "{ reduce = \"best\", rule = \"top_k\" }";
    let orders = problem(&[COUNT, TOP], "", &[SHARE, best]);
    assert!(
        orders.contains("want units in different orders"),
        "{orders}"
    );
    let twice = problem(&[COUNT], "", &[&threshold(3), SHARE]);
    assert!(twice.contains("has two rules"), "{twice}");
}

#[test]
fn rules_are_part_of_what_a_plan_means_and_attempts_are_not() {
    let hash = |more: &str, rules: &[&str]| {
        let text = text_of(&[COUNT], "", rules).replace("[control]", &format!("[control]\n{more}"));
        Plan::parse(&text, "plan.toml").unwrap().hash()
    };
    let (three, four) = (threshold(3), threshold(4));
    assert_ne!(hash("", &[&three]), hash("", &[&four]));
    assert_ne!(hash("", &[&three]), hash("", &[]));
    assert_eq!(hash("", &[&three]), hash("attempts_max = 3", &[&three]));
    let share = |from: &str, to: &str| hash("", &[&SHARE.replace(from, to)]);
    let changes = [
        share("", ""),
        share("0.1", "0.2"),
        share("0.05", "0.01"),
        share("20", "21"),
        share("\"s\"", "\"t\""),
    ];
    for (place, one) in changes.iter().enumerate() {
        assert!(changes[place + 1..].iter().all(|other| other != one));
    }
}

#[test]
fn a_budget_of_money_needs_a_price() {
    let text = text_of(&[COUNT], "[budget]\nmoney_max_micros = 5\n", &[]);
    let problem = Plan::parse(&text, "plan.toml").unwrap_err().to_string();
    assert!(problem.contains("add price = {"), "{problem}");
    assert!(problem.starts_with("plan.toml:"), "{problem}");
}
