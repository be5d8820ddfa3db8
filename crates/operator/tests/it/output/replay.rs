//! Recordings: answers come back, what is missing or wrong is an error of its unit.

use operator::fact::Status;
use operator::replay::{Replay, record};
use serde_json::json;

use super::script::{Act, Script, issues, plan, run_simply, units};
use operator::infer::FailReason;

#[test]
fn a_recorded_run_replays_to_the_same_decisions() {
    let partition = units(&plan(), &issues(80));
    let mut script = Script::with([(2, Act::Fail(FailReason::Truncated)), (3, Act::Doubt)]);
    let first = run_simply(&partition, &mut script);
    let recording = record(&first.facts);
    let mut replay = Replay::parse(&recording, "answers.jsonl").unwrap();
    let second = run_simply(&partition, &mut replay);
    assert!(second.answer.simulated);
    assert_eq!(second.answer.coverage, first.answer.coverage);
    for (old, new) in first.facts.iter().zip(&second.facts) {
        assert_eq!((old.status, &old.reason), (new.status, &new.reason));
        assert_eq!(old.evidence, new.evidence);
        for (field, value) in &old.values {
            assert_eq!(value.label, new.values[field].label);
            assert_eq!(value.alternatives, new.values[field].alternatives);
        }
    }
    for (old, new) in first.answer.claims.iter().zip(&second.answer.claims) {
        assert_eq!((&old.value, &old.cites), (&new.value, &new.cites));
    }
    assert_ne!(
        first.answer.result_hash, second.answer.result_hash,
        "a replay is no model's answer"
    );
}

#[test]
fn what_is_missing_or_wrong_is_an_error_of_its_unit() {
    let partition = units(&plan(), &issues(7));
    let full = |id: u32| {
        json!({ "unit_id": id.to_string(), "answers":
            { "blocker": { "yes": 900_000, "no": 100_000 }, "cause": "token", "evidence": "2" } })
    };
    let mut rows = [full(2), full(3), full(4), full(5)];
    rows[1]["answers"]["cause"] = json!("gremlins");
    rows[2]["answers"]["blocker"] = json!({ "yes": 900_000 });
    rows[3]["answers"]
        .as_object_mut()
        .unwrap()
        .remove("evidence");
    let text: String = rows.iter().map(|row| format!("{row}\n")).collect();
    let mut replay = Replay::parse(&text, "answers.jsonl").unwrap();
    let outcome = run_simply(&partition, &mut replay);
    assert_eq!(outcome.facts[2].status, Status::Decided);
    assert_eq!(
        outcome.facts[2].evidence[0].quote.as_deref(),
        Some("Token 2 expires \u{1f511}.")
    );
    let reason = |id: usize| outcome.facts[id].reason.clone().unwrap();
    assert_eq!(
        reason(3),
        "schema: cause: label \"gremlins\" is none of token, session, other"
    );
    assert_eq!(
        reason(4),
        "schema: blocker: probabilities sum to 900000 ppm, 1000000 wanted"
    );
    assert_eq!(reason(5), "schema: evidence: no recorded answer");
    assert_eq!(reason(6), "backend: no recorded answer");
}

#[test]
fn a_broken_recording_names_its_line() {
    let good = r#"{"unit_id":"1","answers":{}}"#;
    for (line, wanted) in [
        ("{", "is not a recorded answer"),
        (r#"{"unit_id":"2"}"#, "needs either `answers` or `failed`"),
        (r#"{"unit_id":"2","answer":{}}"#, "unknown field `answer`"),
        (good, "unit 1 is recorded twice"),
    ] {
        let error = Replay::parse(&format!("{good}\n\n{line}\n"), "a.jsonl").unwrap_err();
        let message = error.to_string();
        assert!(message.starts_with("a.jsonl: line 3: "), "{message}");
        assert!(message.contains(wanted), "{message}");
    }
}
