//! What selectors chose and what came of it, against counts made by hand.

use std::collections::BTreeMap;

use operator::answer::{OptionRow, render_page, selections};
use operator::eval::{Labels, evaluate_choices};
use operator::id::UnitId;
use operator::infer::FailReason;
use operator::verify::{Place, RunFiles, Sources, Subject, verify};
use serde_json::json;

use super::super::script::Act;
use super::{STAGES, Told, issues, kept, plan};

/// 1 to 9: judge 1, 2, 5 and (unclear) 6, 7; both 3; unrelated 4; 8 fails; 9 abstains.
fn run() -> (operator::run::RunOutcome, RunFiles, operator::Plan) {
    let plan = plan(STAGES);
    let mut main = Told::new(&plan)
        .choose(2, "judge", 200_000)
        .choose(3, "both", 600_000)
        .choose(4, "unrelated", 300_000)
        .choose(6, "unrelated", 20_000)
        .choose(7, "judge", 60_000)
        .choose(9, "unsure", 600_000)
        .say("judge", 3, "blocker", "yes", 600_000)
        .say("judge", 6, "blocker", "yes", 600_000)
        .act("route", 8, Act::Fail(FailReason::Backend))
        .act("judge", 5, Act::Fail(FailReason::Backend));
    let home = tempfile::tempdir().unwrap();
    let backends = (&mut main, Some(&mut Told::larger(&plan)));
    let (outcome, files) = kept(home.path(), &plan, &issues(10), backends, None);
    (outcome, files, plan)
}

fn counts(pairs: &[(&str, u64)]) -> BTreeMap<String, u64> {
    pairs
        .iter()
        .map(|(name, count)| ((*name).to_owned(), *count))
        .collect()
}

#[test]
fn options_are_counted_by_outcome_with_their_rivals_and_the_unclear_apart() {
    let (outcome, _, _) = run();
    let [route] = &outcome.answer.selections[..] else {
        panic!("{:?}", outcome.answer.selections);
    };
    assert_eq!(route.why, "no field says whether the text is enough");
    assert_eq!(
        (route.chosen, route.unclear, route.without_choice),
        (8, 2, 1)
    );
    let [judge, both, unrelated, unsure] = &route.options[..] else {
        panic!("{:?}", route.options);
    };
    assert_eq!((judge.units, judge.unclear), (5, 2));
    assert_eq!(judge.statuses, counts(&[("decided", 4), ("errored", 1)]));
    assert_eq!(judge.labels["blocker"], counts(&[("no", 3), ("yes", 1)]));
    assert_eq!(judge.rivals, counts(&[("both", 4), ("unrelated", 1)]));
    let closest: Vec<(&str, &str, u32, u32)> = judge
        .closest
        .iter()
        .map(|c| {
            (
                c.unit_id.as_str(),
                c.rival.as_str(),
                c.taken_ppm,
                c.rival_ppm,
            )
        })
        .collect();
    // What an unclear unit would have chosen is the rival of what it took.
    assert_eq!(
        closest,
        [
            ("6", "unrelated", 490_000, 510_000),
            ("7", "both", 530_000, 470_000),
            ("2", "both", 600_000, 400_000),
        ]
    );
    assert_eq!(both.labels["blocker"], counts(&[("yes", 1)]));
    assert_eq!(unrelated.statuses, counts(&[("excluded", 1)]));
    assert!(unrelated.labels.is_empty());
    assert_eq!(unsure.statuses, counts(&[("abstained", 1)]));
}

#[test]
fn the_page_shows_the_matrix_and_why_a_model_was_asked() {
    let (outcome, _, _) = run();
    let page = render_page(&outcome.answer, &outcome.usage);
    for line in [
        "## Choices",
        "selector route chose for 8 units, 2 of them unclear, 1 ended without a choice; asked because no \
         field says whether the text is enough",
        "| option | units | unclear | excluded | decided | abstained | errored | blocker no | blocker yes | \
         cause token |",
        "| judge | 5 | 2 | 0 | 4 | 0 | 1 | 3 | 1 | 4 |",
        "| unrelated | 1 | 0 | 1 | 0 | 0 | 0 | 0 | 0 | 0 |",
        "- closest: 6 took judge at 49.0 %, unrelated had 51.0 %",
    ] {
        assert!(page.contains(line), "{line}\n{page}");
    }
}

#[test]
fn a_plan_without_selectors_has_no_such_part() {
    let plan = plan("");
    let home = tempfile::tempdir().unwrap();
    let mut told = Told::new(&plan);
    let (outcome, _) = kept(home.path(), &plan, &issues(4), (&mut told, None), None);
    assert!(selections(&plan, &outcome.facts).is_empty());
    let written = serde_json::to_value(&outcome.answer).unwrap();
    assert!(written.get("selections").is_none());
    let page = render_page(&outcome.answer, &outcome.usage);
    assert!(!page.contains("Choices"));
}

#[test]
fn every_count_of_a_selection_is_verified_and_part_of_the_result_hash() {
    let (outcome, files, plan) = run();
    let selections = serde_json::to_value(&outcome.answer.selections).unwrap();
    let mut pointers = Vec::new();
    leaves(&selections, String::new(), &mut pointers);
    assert!(pointers.len() > 50, "{}", pointers.len());
    for pointer in pointers {
        let mut changed = selections.clone();
        let value = changed.pointer_mut(&pointer).unwrap();
        *value = match &*value {
            serde_json::Value::Number(number) => json!(number.as_u64().unwrap() + 1),
            other => json!(format!("{}0", other.as_str().unwrap())),
        };
        let mut answer = outcome.answer.clone();
        answer.selections = serde_json::from_value(changed).unwrap();
        assert_ne!(
            answer.hash_result(),
            outcome.answer.result_hash,
            "{pointer}"
        );
        answer.result_hash = answer.hash_result();
        let subject = Subject {
            plan: &plan,
            facts: &files.facts,
            nodes: &files.nodes,
            answer: &answer,
        };
        let report = verify(subject, &Sources::Absent(String::from("not wanted")));
        let found: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), 1, "{pointer}: {found:?}");
        assert_eq!(report.findings[0].place, Place::Answer);
        assert!(found[0].starts_with("answer: selections: at "), "{found:?}");
    }
    let mut answer = outcome.answer.clone();
    answer.selections[0].options.push(OptionRow::default());
    let report = verify(
        Subject {
            answer: &answer,
            ..files.subject()
        },
        &Sources::Absent(String::new()),
    );
    assert!(!report.holds());
}

fn leaves(value: &serde_json::Value, at: String, found: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(fields) => {
            for (key, below) in fields {
                leaves(below, format!("{at}/{key}"), found);
            }
        }
        serde_json::Value::Array(items) => {
            for (place, below) in items.iter().enumerate() {
                leaves(below, format!("{at}/{place}"), found);
            }
        }
        _ => found.push(at),
    }
}

#[test]
fn options_are_held_against_true_labels() {
    let (outcome, _, _) = run();
    let labels: Labels = (1..9)
        .map(|unit| {
            let label = if unit % 2 == 0 { "yes" } else { "no" };
            (UnitId::new(&unit.to_string()), label.to_owned())
        })
        .collect();
    let reports = evaluate_choices(&outcome.facts, &labels, ["route"]);
    let report = &reports[0];
    assert_eq!(report.options["judge"], counts(&[("no", 3), ("yes", 2)]));
    assert_eq!(report.options["both"], counts(&[("no", 1)]));
    assert_eq!(report.options["unrelated"], counts(&[("yes", 1)]));
    assert_eq!(
        (report.options.len(), report.unlabelled),
        (3, 1),
        "9 has no label"
    );
    let told = report.to_string();
    assert!(told.contains("judge     -> no 3, yes 2\n"), "{told}");
}
