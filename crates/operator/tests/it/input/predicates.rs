//! Every op, wrong types, missing fields, dates and routes.

use operator::Plan;
use operator::index::Indexes;
use operator::ops::{Route, Unit, prefilter};

use super::{PLAN, plan_with, split};

const RECORD: &str = r#"{"id":7,"title":"Login fails","body":"See src/auth/v2/x.rs","n":5,"d":2.5,
    "open":true,"state":"OPEN","labels":[{"name":"bug"},{"name":"area/auth"}],"none":null,"empty":[],
    "milestone":{"title":"4.0"},"a.b":"dotted","created":"2026-09-10T08:00:00Z","digits":"12"}"#;

fn filter(when: &str) -> Plan {
    let from = r#"{ field = "state", op = "eq", value = "CLOSED" }"#;
    plan_with(from, when).unwrap()
}

fn unit() -> Unit {
    split(&format!("[{RECORD}]")).unwrap().units.remove(0)
}

fn holds(when: &str) -> bool {
    match prefilter(&filter(when), &unit(), &Indexes::none()) {
        Route::Exclude {
            prefilter: "closed",
            reason,
        } => reason == "closed",
        Route::Model { prefilter: None } => false,
        other => panic!("{when}: {other:?}"),
    }
}

fn malformed(when: &str) -> String {
    match prefilter(&filter(when), &unit(), &Indexes::none()) {
        Route::Malformed {
            prefilter: "closed",
            message,
        } => message,
        other => panic!("{when}: {other:?}"),
    }
}

#[test]
fn every_op_says_yes_and_no() {
    for (yes, no) in [
        (
            r#"field="state", op="eq", value="OPEN""#,
            r#"field="state", op="eq", value="open""#,
        ),
        (
            r#"field="state", op="eq", value="open", case="ignore""#,
            r#"field="n", op="eq", value=6"#,
        ),
        (
            r#"field="n", op="eq", value=5"#,
            r#"field="open", op="eq", value=false"#,
        ),
        (
            r#"field="d", op="eq", value=2.5"#,
            r#"field="d", op="eq", value=2"#,
        ),
        (
            r#"field="state", op="ne", value="CLOSED""#,
            r#"field="state", op="ne", value="OPEN""#,
        ),
        (
            r#"field="labels.name", op="in", value=["docs","bug"]"#,
            r#"field="labels.name", op="in", value=["docs"]"#,
        ),
        (
            r#"field="labels.name", op="not_in", value=["docs"]"#,
            r#"field="labels.name", op="not_in", value=["docs","bug"]"#,
        ),
        (
            r#"field="n", op="lt", value=6"#,
            r#"field="n", op="lt", value=5"#,
        ),
        (
            r#"field="n", op="le", value=5"#,
            r#"field="n", op="le", value=4"#,
        ),
        (
            r#"field="n", op="gt", value=4.5"#,
            r#"field="n", op="gt", value=5"#,
        ),
        (
            r#"field="n", op="ge", value=5"#,
            r#"field="n", op="ge", value=6"#,
        ),
        (
            r#"field="digits", op="gt", value=9"#,
            r#"field="digits", op="lt", value=9"#,
        ),
        (
            r#"field="created", op="before", value="2026-09-11""#,
            r#"field="created", op="before", value="2026-09-10""#,
        ),
        (
            r#"field="created", op="after", value=2026-09-10"#,
            r#"field="created", op="after", value="2026/09/10 10:00:00 +0200""#,
        ),
        (
            r#"field="body", op="contains", value="src/auth/v2/""#,
            r#"field="body", op="contains", value="SRC""#,
        ),
        (
            r#"field="title", op="contains_any", value=["x","LOGIN"], case="ignore""#,
            r#"field="title", op="contains_any", value=["x"]"#,
        ),
        (
            r#"field="title", op="matches", value='^login\b', case="ignore""#,
            r#"field="title", op="matches", value='^fails'"#,
        ),
        (
            r#"field="milestone.title", op="exists""#,
            r#"field="none", op="exists""#,
        ),
        (
            r#"field="empty", op="missing""#,
            r#"field="labels.name", op="missing""#,
        ),
        (
            r#"field="a.b", op="eq", value="dotted""#,
            r#"field="a.c", op="eq", value="dotted""#,
        ),
        (
            r#"all=[{field="n", op="eq", value=5}, {field="state", op="exists"}]"#,
            r#"all=[{field="n", op="eq", value=5}, {field="state", op="missing"}]"#,
        ),
        (
            r#"any=[{field="n", op="eq", value=6}, {field="state", op="exists"}]"#,
            r#"any=[{field="n", op="eq", value=6}, {field="state", op="missing"}]"#,
        ),
        (
            r#"not={field="n", op="eq", value=6}"#,
            r#"not={field="n", op="eq", value=5}"#,
        ),
    ] {
        assert!(holds(&format!("{{ {yes} }}")), "{yes}");
        assert!(!holds(&format!("{{ {no} }}")), "{no}");
    }
}

#[test]
fn a_missing_field_matches_nothing_but_missing() {
    for field in [
        "gone",
        "none",
        "empty",
        "milestone.gone",
        "gone.title",
        "labels.gone",
    ] {
        for op in [
            r#"op="eq", value="x""#,
            r#"op="ne", value="x""#,
            r#"op="not_in", value=["x"]"#,
            r#"op="lt", value=1"#,
            r#"op="before", value="2026-01-01""#,
            r#"op="contains", value="x""#,
            r#"op="exists""#,
        ] {
            assert!(
                !holds(&format!("{{ field={field:?}, {op} }}")),
                "{field} {op}"
            );
        }
        assert!(
            holds(&format!("{{ field={field:?}, op=\"missing\" }}")),
            "{field}"
        );
    }
}

#[test]
fn a_wrong_type_names_field_value_and_expectation() {
    for (when, message) in [
        (
            r#"field="n", op="eq", value="5""#,
            r#"field "n" is a number (5), expected text for "eq""#,
        ),
        (
            r#"field="state", op="eq", value=5"#,
            r#"field "state" is text ("OPEN"), expected a number for "eq""#,
        ),
        (
            r#"field="state", op="eq", value=true"#,
            r#"field "state" is text ("OPEN"), expected true or false for "eq""#,
        ),
        (
            r#"field="title", op="lt", value=3"#,
            r#"field "title" is text ("Login fails"), expected a number for "lt""#,
        ),
        (
            r#"field="n", op="contains", value="5""#,
            r#"field "n" is a number (5), expected text for "contains""#,
        ),
        (
            r#"field="open", op="matches", value="t""#,
            r#"field "open" is a truth value (true), expected text for "matches""#,
        ),
        (
            r#"field="milestone", op="eq", value="4.0""#,
            r#"field "milestone" is an object ({"title":"4.0"}), expected text for "eq""#,
        ),
        (
            r#"field="state.name", op="exists""#,
            r#"field "state.name" is text ("OPEN"), expected an object or a list of objects on the way"#,
        ),
    ] {
        assert_eq!(malformed(&format!("{{ {when} }}")), message);
    }
    let date = malformed(r#"{ field="title", op="before", value="2026-01-01" }"#);
    assert!(date.contains("expected an RFC 3339 date-time"), "{date}");
    let members = r#"{ any=[{field="open", op="exists"}, {field="n", op="eq", value="5"}] }"#;
    assert!(holds(members), "any stops at the first that holds");
}

#[test]
fn the_first_match_in_plan_order_decides() {
    let more = r#"
[[prefilter]]
name = "kept"
when = { field = "n", op = "eq", value = 5 }
action = "keep"

[[prefilter]]
name = "sure"
when = { field = "state", op = "eq", value = "OPEN" }
action = "decide"
reason = "told"
set = { blocker = "yes", cause = "clock" }

[[field]]
name = "blocker""#;
    let plan = plan_with("\n[[field]]\nname = \"blocker\"", more).unwrap();
    assert_eq!(
        prefilter(&plan, &unit(), &Indexes::none()),
        Route::Model {
            prefilter: Some("kept")
        }
    );
    let text = PLAN.replacen(
        "\n[[field]]\nname = \"blocker\"",
        &more.replace("value = 5", "value = 4"),
        1,
    );
    let plan = Plan::parse(&text, "plan.toml").unwrap();
    match prefilter(&plan, &unit(), &Indexes::none()) {
        Route::Decide {
            prefilter: "sure",
            reason,
            set,
        } => {
            assert_eq!(reason, "told");
            assert_eq!(
                (set["blocker"].as_str(), set["cause"].as_str()),
                ("yes", "clock")
            );
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(
        prefilter(&plan, &unit(), &Indexes::none()),
        prefilter(&plan, &unit(), &Indexes::none()),
        "pure"
    );
}
