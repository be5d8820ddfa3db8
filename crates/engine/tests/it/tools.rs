//! The built-in tools through the operator's kernel, as a run calls them: what each may reach, what it
//! refuses, and that no limit is passed.

mod drill;
mod file;
mod http;
mod process;
mod server;
mod sql;

use std::path::Path;

use engine::tools::{SystemClock, open};
use operator::Plan;
use operator::infer::CancelFlag;
use operator::tool::{
    ArgumentValue, Arguments, Kernel, ToolBudget, ToolError, ToolOutcome, ToolRequest, ToolUsage,
};

/// A plan with one tool, named "look", whose other keys are given; its file would lie in `home`.
fn plan(home: &Path, tool: &str) -> Plan {
    let text = format!(
        r#"
version = 1
question = "Which are odd?"
rubric = "Judge one."
[input]
id = "id"
text = [{{ field = "title" }}]
[[tool]]
name = "look"
{tool}
[[stage]]
name = "seen"
op = "tool"
tool = "look"
[[stage]]
name = "judge"
op = "map"
[[field]]
name = "odd"
question = "Is it odd?"
labels = ["yes", "no"]
[[reduce]]
name = "odd"
op = "count"
where = {{ odd = "yes" }}
"#
    );
    Plan::parse(&text, &home.join("plan.toml").display().to_string()).unwrap()
}

/// Calls the tool once for each value of its argument `key`.
fn ask(plan: &Plan, values: &[&str]) -> (Vec<ToolOutcome>, ToolUsage) {
    let clock = SystemClock::default();
    let tools = open(plan, &[String::from("look")]).unwrap();
    let mut kernel = Kernel::new(tools, ToolBudget::default(), 7, &clock);
    let requests = values.iter().map(|value| ToolRequest {
        tool: String::from("look"),
        arguments: Arguments::from_iter([(
            String::from("key"),
            ArgumentValue::Text((*value).to_owned()),
        )]),
    });
    let mut outcomes: Vec<Option<ToolOutcome>> = vec![None; values.len()];
    let usage = kernel
        .run(
            requests.collect(),
            None,
            &CancelFlag::new(),
            &mut |place, outcome| {
                assert!(outcomes[place].replace(outcome).is_none(), "ended twice");
                Ok(())
            },
        )
        .unwrap();
    (outcomes.into_iter().map(Option::unwrap).collect(), usage)
}

fn ask_one(plan: &Plan, value: &str) -> ToolOutcome {
    ask(plan, &[value]).0.remove(0)
}

fn body(outcome: &ToolOutcome) -> &str {
    match outcome {
        ToolOutcome::Observed { observation, .. } => {
            std::str::from_utf8(&observation.body).unwrap()
        }
        other => panic!("nothing was read: {other:?}"),
    }
}

fn failure(outcome: &ToolOutcome) -> (&ToolError, u32) {
    match outcome {
        ToolOutcome::Failed { error, attempts } => (error, *attempts),
        other => panic!("it did not fail: {other:?}"),
    }
}

/// The kind of a failure.
fn kind(outcome: &ToolOutcome) -> &'static str {
    failure(outcome).0.as_str()
}

#[test]
fn a_tool_that_the_command_line_does_not_name_is_not_opened() {
    let home = tempfile::tempdir().unwrap();
    let tool = "kind = \"file\"\nroot = \".\"\nfile = \"{key}\"\narguments = { key = { field = \"title\" } }";
    let plan = plan(home.path(), tool);
    let denied = open(&plan, &[]).unwrap_err().to_string();
    assert!(denied.contains("--allow look"), "{denied}");
    assert!(denied.contains("reads files below"), "{denied}");
    let unknown = open(&plan, &[String::from("loook")])
        .unwrap_err()
        .to_string();
    assert!(unknown.contains("declares no such tool"), "{unknown}");
}
