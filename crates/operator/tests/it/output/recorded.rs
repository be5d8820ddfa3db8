//! Runs in directories of their own, read back: what explanations and differences start from.

use std::path::PathBuf;

use operator::infer::Infer;
use operator::plan::Plan;
use operator::recorded::RecordedRun;
use operator::run_directory::RunDirectory;
use serde_json::Value;

use super::script::{Setup, run_with, units};

/// The plan of the scripted runs, with columns and every operation that code folds.
pub const WIDE: &str = r#"
[[column]]
name = "comments"
type = "integer"

[[column]]
name = "component"
type = "text"

[[reduce]]
name = "commented"
op = "sum"
field = "comments"
where = { blocker = "yes" }

[[reduce]]
name = "typical"
op = "mean"
field = "comments"

[[reduce]]
name = "quietest"
op = "min"
field = "comments"

[[reduce]]
name = "loudest"
op = "max"
field = "comments"

[[reduce]]
name = "shares"
op = "quantiles"
field = "comments"
at = [50, 100]

[[reduce]]
name = "components"
op = "distinct"
field = "component"
where = { cause = "token" }

[[reduce]]
name = "frequent"
op = "heavy_hitters"
field = "component"
k = 2

[[reduce]]
name = "login_blockers"
op = "count"
where = { blocker = "yes", component = "login" }

[[reduce]]
name = "pairs"
op = "join"
left = { where = { blocker = "yes" }, key = "component" }
right = { where = { cause = "session" }, key = "component" }
kind = "inner"

[[reduce]]
name = "clusters"
op = "clusters"
field = "cause"
taxonomy = "v1"
exemplars = 1
unclustered = "other"
dissent = ["session"]
"#;

/// A run in a directory that goes away with it.
pub struct Recorded {
    pub home: tempfile::TempDir,
    pub path: PathBuf,
    pub run: RecordedRun,
}

pub fn record(text: &str, issues: &[Value], infer: &mut dyn Infer, setup: Setup<'_>) -> Recorded {
    let plan = Plan::parse(text, "plan.toml").unwrap();
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("run");
    let mut directory = RunDirectory::create(&path, "0.1.0", Value::Null).unwrap();
    let setup = Setup {
        directory: Some(&mut directory),
        ..setup
    };
    run_with(&plan, &units(&plan, issues), infer, setup).unwrap();
    let run = RecordedRun::open(&path).unwrap();
    Recorded { home, path, run }
}
