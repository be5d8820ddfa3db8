//! What was changed in a run that stopped is found.

use operator::answer::CitedAnswer;
use operator::fact::{Fact, Status};
use operator::verify::{RunFiles, Sources, Subject, verify};

use super::{COUNT, TOP, findings, kept, plan, records, threshold};

/// Changes the answer, makes its hash fit, and returns what is found.
fn changed(home: &tempfile::TempDir, change: impl FnOnce(&mut CitedAnswer)) -> String {
    let run = home.path().join("run");
    let whole = std::fs::read(run.join("answer.json")).unwrap();
    let mut answer: CitedAnswer = serde_json::from_slice(&whole).unwrap();
    change(&mut answer);
    answer.result_hash = answer.hash_result();
    std::fs::write(
        run.join("answer.json"),
        serde_json::to_vec_pretty(&answer).unwrap(),
    )
    .unwrap();
    let found = findings(home).join("\n");
    std::fs::write(run.join("answer.json"), whole).unwrap();
    found
}

/// Changes the facts and returns what is found of them and of the stop.
fn with_facts(home: &tempfile::TempDir, change: impl FnOnce(&mut Vec<Fact>)) -> String {
    let mut files = RunFiles::read(&home.path().join("run")).unwrap();
    change(&mut files.facts);
    let subject = Subject {
        plan: &files.plan,
        facts: &files.facts,
        nodes: &files.nodes,
        answer: &files.answer,
    };
    let sources = Sources::Absent(String::from("not looked at"));
    let report = verify(subject, &sources);
    let found: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
    found.join("\n")
}

#[test]
fn a_changed_stop_is_found() {
    let (home, _) = kept(&plan(&[COUNT], &[&threshold(4)]), &records(40), None);
    assert_eq!(findings(&home), [""; 0]);
    let stop = |answer: &mut CitedAnswer| answer.stop.take();
    assert!(changed(&home, |answer| drop(stop(answer))).contains("answer: stop: "));
    let found = changed(&home, |answer| {
        answer.stop.as_mut().unwrap().stopped_after = Some(9);
    });
    assert!(found.contains("stop: "), "{found}");
    let found = changed(&home, |answer| {
        answer.claims[0].text = answer.claims[0].text.replace("at least ", "");
    });
    assert!(found.contains("claim many: its text"), "{found}");
    let found = changed(&home, |answer| answer.claims[0].value = 4.into());
    assert!(found.contains("claim many: its value"), "{found}");
    assert!(changed(&home, |answer| answer.complete = false).contains("complete"));
}

#[test]
fn an_interval_that_is_too_narrow_is_found() {
    let rule = "{ reduce = \"many\", rule = \"confidence\", half_width = 0.15, alpha = 0.1, \
                looks = [50, 100], seed = \"s\" }";
    let (home, _) = kept(&plan(&[COUNT], &[rule]), &records(300), None);
    assert_eq!(findings(&home), [""; 0]);
    for change in [1_i64, -1] {
        for high in [true, false] {
            let found = changed(&home, |answer| {
                let stop = answer.stop.as_mut().unwrap();
                let interval = stop.rules[0].interval.as_mut().unwrap();
                let bound = if high {
                    &mut interval.high
                } else {
                    &mut interval.low
                };
                *bound = bound.checked_add_signed(change).unwrap();
            });
            assert!(found.contains("stop: "), "{change} {high}: {found}");
        }
    }
}

#[test]
fn a_unit_that_was_left_out_before_its_rule_was_met_is_found() {
    let (home, _) = kept(&plan(&[COUNT], &[&threshold(4)]), &records(40), None);
    // The last that matched is left out, too: three are not four.
    let found = with_facts(&home, |facts| {
        let mut left_out = facts[10].clone();
        left_out.unit_id = facts[9].unit_id.clone();
        left_out.source_hash = facts[9].source_hash;
        left_out.columns = facts[9].columns.clone();
        left_out.ordinal = 9;
        facts[9] = left_out;
    });
    let wanted = "unit 9: was left out by rule, and its turn came before the rules were met";
    assert!(found.contains(wanted), "{found}");
}

#[test]
fn an_unopened_unit_that_could_have_entered_is_found() {
    let rule = "{ reduce = \"best\", rule = \"top_k\" }";
    let (home, _) = kept(&plan(&[TOP], &[rule]), &records(40), None);
    let found = with_facts(&home, |facts| {
        let fact = facts
            .iter_mut()
            .find(|fact| fact.status == Status::Cancelled);
        let best = operator::column::ColumnValue::Integer(1_000);
        fact.unwrap().columns.insert(String::from("score"), best);
    });
    assert!(
        found.contains("its turn came before the rules were met"),
        "{found}"
    );
}

#[test]
fn an_answer_past_the_stop_and_a_late_cancellation_are_found() {
    let (home, _) = kept(&plan(&[COUNT], &[&threshold(4)]), &records(400), None);
    let found = with_facts(&home, |facts| facts[300].status = Status::Cancelled);
    assert!(found.contains("unit 300: was cancelled, after units that were not even asked"));
    let found = with_facts(&home, |facts| {
        facts[300].reason = Some(String::from("limit"));
    });
    assert!(found.contains("unit 300: is not_run for Some(\"limit\"), and its turn came after"));
}
