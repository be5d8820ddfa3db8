//! A whole run without a model: three issues, recorded answers, one cited claim.

use operator::infer::CancelFlag;
use operator::run::{RunOptions, run};
use operator::{OperatorError, Plan, answer, ops, record, replay::Replay};

const PLAN: &str = r#"
version = 1
question = "How many issues are bugs?"
rubric = "Classify one issue."
input = { id = "number", text = [{ field = "title" }] }
field = [{ name = "kind", question = "What is it?", labels = ["bug", "feature"] }]
reduce = [{ name = "bugs", op = "count", where = { kind = "bug" }, claim = "{count} are bugs" }]
"#;

const ISSUES: &str = r#"[{"number": 1, "title": "Crash on start"},
{"number": 2, "title": "Add a dark theme"}, {"number": 3, "title": "Login fails"}]"#;

const ANSWERS: &str = r#"{"unit_id": "1", "answers": {"kind": {"bug": 980000, "feature": 20000}}}
{"unit_id": "2", "answers": {"kind": "feature"}}
{"unit_id": "3", "answers": {"kind": {"bug": 910000, "feature": 90000}}}"#;

fn main() -> Result<(), OperatorError> {
    let plan = Plan::parse(PLAN, "bugs.toml")?;
    let (source, records, bad) = record::read_bytes("issues.json", ISSUES.as_bytes(), None)?;
    let partition = ops::partition(&plan, source, records, bad)?;
    let mut replay = Replay::parse(ANSWERS, "answers.jsonl")?;
    let cancel = CancelFlag::new();
    let options = RunOptions {
        limit: None,
        redact: false,
        clock: &|| 0,
        cancel: &cancel,
        larger: None,
        tools: None,
    };
    let outcome = run(&plan, partition, &mut replay, None, options, &mut (), None)?;
    println!("{}", answer::render_page(&outcome.answer, &outcome.usage));
    Ok(())
}
