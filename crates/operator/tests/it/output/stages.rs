//! Plans with stages: who is asked what, what becomes of it, and that its path tells it truly.

mod choices;
mod passes;
mod paths;
mod selections;
mod tampers;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use operator::OperatorError;
use operator::Plan;
use operator::fact::{Fact, Status};
use operator::id::ContentHash;
use operator::infer::{
    Answer, BackendIdentity, CancelFlag, Completion, Infer, InferError, InferJob, JobUsage,
    UnitOutcome, UnitUsage,
};
use operator::ops::Partition;
use operator::run::{RunOptions, RunOutcome, run};
use operator::run_directory::RunDirectory;
use operator::store::Store;
use operator::verify::{RunFiles, verify_directory};
use serde_json::{Value, json};

use super::script::Act;

const HEAD: &str = r#"
version = 1
question = "Which open issues block the release, and why?"
rubric = "Judge one issue."

[input]
id = "number"
text = [{ field = "title", max_chars = 200 }]
evidence = "first_line"

[[prefilter]]
name = "closed"
when = { field = "state", op = "eq", value = "closed" }
action = "exclude"
reason = "issue is closed"

[[field]]
name = "blocker"
question = "Does it block the release?"
labels = ["no", "yes"]
abstain_below_margin = 0.05

[[field]]
name = "cause"
question = "What causes it?"
labels = ["token", "session", "other"]

[[reduce]]
name = "blockers"
op = "count"
where = { blocker = "yes" }
"#;

/// A selector, two map stages of the first pass, and one of each of two further passes.
const STAGES: &str = r#"
[[pass]]
name = "second"
units_max = 3

[[pass]]
name = "third"
units_max = 1

[[stage]]
name = "route"
op = "select"
rubric = "Choose what comes next."
question = "What has to be done?"
why = "no field says whether the text is enough"
options = [
  { name = "judge", means = "enough is said", run = ["judge"] },
  { name = "both", run = ["judge", "detail"] },
  { name = "unrelated", then = "exclude" },
  { name = "unsure", then = "abstain" },
]
unclear = { margin_below = 0.1, option = "judge" }

[[stage]]
name = "judge"
op = "map"

[[stage]]
name = "detail"
op = "map"
rubric = "Look at the cause alone."
fields = ["cause"]
when = { label = { blocker = "yes" } }

[[stage]]
name = "reread"
op = "map"
pass = "second"
rubric = "Read it again."
when = { abstained = true }
model = "larger"

[[stage]]
name = "last"
op = "map"
pass = "third"
rubric = "Read it for the last time."
fields = ["blocker"]
when = { margin_below = { blocker = 0.2 } }
"#;

fn plan(stages: &str) -> Plan {
    Plan::parse(&format!("{HEAD}{stages}"), "plan.toml").unwrap()
}

/// Open issues with different texts; every tenth is closed.
fn issues(n: u32) -> Vec<Value> {
    (0..n)
        .map(|number| {
            let state = if number % 10 == 0 { "closed" } else { "open" };
            json!({ "number": number, "state": state, "title": format!("login {number} fails") })
        })
        .collect()
}

fn units(plan: &Plan, issues: &[Value]) -> Partition {
    super::script::units(plan, issues)
}

/// A backend that is told what to say at each stage of each unit; else the first label, surely.
#[derive(Default)]
struct Told {
    identity: BackendIdentity2,
    stages: HashMap<ContentHash, String>,
    says: BTreeMap<(String, String, String), (String, u32)>,
    acts: BTreeMap<(String, String), Act>,
    /// After which unit of which stage the run is told to stop.
    cancels: Option<(String, String)>,
    /// At which stage it is lost, after so many answers.
    breaks: Option<(String, usize)>,
    asked: Vec<(String, Vec<String>)>,
    /// What stops the whole run.
    run: CancelFlag,
}

/// An identity with a default.
struct BackendIdentity2(BackendIdentity);

impl Default for BackendIdentity2 {
    fn default() -> Self {
        Self(identity("small"))
    }
}

fn identity(name: &str) -> BackendIdentity {
    BackendIdentity {
        name: name.to_owned(),
        digest: [name.len() as u8; 32],
        simulated: false,
        describe: String::from("told what to say"),
    }
}

impl Told {
    fn new(plan: &Plan) -> Self {
        let stages = plan.stages.iter().filter_map(|stage| {
            let turn = plan.turn(stage)?;
            Some((turn.rubric.hash, stage.name.clone()))
        });
        Self {
            stages: stages.collect(),
            ..Self::default()
        }
    }

    fn larger(plan: &Plan) -> Self {
        Self {
            identity: BackendIdentity2(identity("larger")),
            ..Self::new(plan)
        }
    }

    /// Says a label of a field with a margin in parts per million, an even number.
    fn say(mut self, stage: &str, unit: u32, field: &str, label: &str, margin: u32) -> Self {
        let key = (stage.to_owned(), unit.to_string(), field.to_owned());
        self.says.insert(key, (label.to_owned(), margin));
        self
    }

    /// Chooses an option of the selector named `route`.
    fn choose(self, unit: u32, option: &str, margin: u32) -> Self {
        self.say("route", unit, "route", option, margin)
    }

    fn act(mut self, stage: &str, unit: u32, act: Act) -> Self {
        self.acts.insert((stage.to_owned(), unit.to_string()), act);
        self
    }

    /// Stages that were asked with their units, in order.
    fn asked(&self) -> Vec<(&str, Vec<&str>)> {
        let asked = self.asked.iter();
        asked
            .map(|(stage, units)| (stage.as_str(), units.iter().map(String::as_str).collect()))
            .collect()
    }

    fn answers(&self, stage: &str, job: &InferJob<'_>, place: usize) -> UnitOutcome {
        let shown = job.units.text(place).unwrap();
        let unit = shown.unit_id.to_string();
        match self.acts.get(&(stage.to_owned(), unit.clone())) {
            None | Some(Act::Answer | Act::Doubt) => {}
            Some(Act::Fail(reason)) => {
                let (reason, message) = (*reason, format!("unit {unit}"));
                return UnitOutcome::Failed { reason, message };
            }
            Some(Act::Misshapen) => return UnitOutcome::Answered(Vec::new()),
            Some(Act::Cancel) => return UnitOutcome::Cancelled,
            Some(Act::Skip) => return UnitOutcome::NotRun,
        }
        let answers = job.questions.iter().map(|question| {
            let labels = question.labels.of(&shown);
            let key = (stage.to_owned(), unit.clone(), question.field.clone());
            let (label, margin) = match self.says.get(&key) {
                Some((label, margin)) => (label.as_str(), *margin),
                None => (labels[0].as_str(), 800_000),
            };
            let chosen = labels.iter().position(|known| known == label).unwrap();
            let mut shares = vec![0; labels.len()];
            shares[chosen] = (1_000_000 + margin) / 2;
            shares[usize::from(chosen == 0)] = 1_000_000 - shares[chosen];
            Answer::from_ppm(shares, 990_000).unwrap()
        });
        UnitOutcome::Answered(answers.collect())
    }
}

impl Infer for Told {
    fn identity(&self) -> &BackendIdentity {
        &self.identity.0
    }

    fn infer(
        &mut self,
        job: InferJob<'_>,
        sink: &mut dyn FnMut(Completion),
    ) -> Result<JobUsage, InferError> {
        let stage = self.stages[&job.rubric.hash].clone();
        let units = (0..job.units.len()).map(|place| job.units.id(place).to_string());
        self.asked.push((stage.clone(), units.collect()));
        let mut total = JobUsage::default();
        for place in 0..job.units.len() {
            if self.breaks == Some((stage.clone(), place)) {
                return Err(InferError::Failed("device lost".into()));
            }
            if job.cancel.is_cancelled() {
                break;
            }
            let unit_id = job.units.id(place).clone();
            let usage = UnitUsage {
                prompt_tokens: 50,
                computed_tokens: 10,
                cached_tokens: 40,
                micros: 5,
            };
            total.prompt_tokens += usage.prompt_tokens;
            total.computed_tokens += usage.computed_tokens;
            total.cached_tokens += usage.cached_tokens;
            let stops = self.cancels == Some((stage.clone(), unit_id.to_string()));
            let outcome = self.answers(&stage, &job, place);
            sink(Completion {
                unit_id,
                outcome,
                usage,
            });
            if stops {
                self.run.cancel();
            }
        }
        Ok(total)
    }
}

/// Runs a plan with stages.
fn go(
    plan: &Plan,
    partition: &Partition,
    (main, larger): (&mut Told, Option<&mut Told>),
    store: Option<&dyn Store>,
    directory: Option<&mut RunDirectory>,
) -> Result<RunOutcome, OperatorError> {
    let options = RunOptions {
        limit: None,
        redact: false,
        clock: &|| 0,
        cancel: &main.run.clone(),
        larger: larger.map(|larger| larger as &mut dyn Infer),
        tools: None,
    };
    let mut events = Vec::new();
    run(
        plan,
        partition.clone(),
        main,
        store,
        options,
        &mut events,
        directory,
    )
}

/// Runs without a store, into a directory that verification must pass.
fn sound(plan: &Plan, issues: &[Value], main: &mut Told, larger: Option<&mut Told>) -> RunOutcome {
    let home = tempfile::tempdir().unwrap();
    kept(home.path(), plan, issues, (main, larger), None).0
}

/// The same into a directory that is kept.
fn kept(
    home: &Path,
    plan: &Plan,
    issues: &[Value],
    backends: (&mut Told, Option<&mut Told>),
    store: Option<&dyn Store>,
) -> (RunOutcome, RunFiles) {
    let (input, path) = (home.join("issues.json"), home.join("run"));
    std::fs::write(&input, serde_json::to_vec(issues).unwrap()).unwrap();
    let (source, records, bad) = operator::record::read_source(&input, None).unwrap();
    let partition = operator::ops::partition(plan, source, records, bad).unwrap();
    let mut directory = RunDirectory::create(&path, "0.1.0", json!({})).unwrap();
    let outcome = go(plan, &partition, backends, store, Some(&mut directory)).unwrap();
    let report = verify_directory(&path, None).unwrap();
    let found: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
    assert_eq!(found, Vec::<String>::new());
    assert_eq!(report.sources_absent, None);
    (outcome, RunFiles::read(&path).unwrap())
}

fn fact(outcome: &RunOutcome, unit: u32) -> &Fact {
    let mut facts = outcome.facts.iter();
    facts
        .find(|fact| fact.unit_id.as_str() == unit.to_string())
        .unwrap()
}

/// How a unit ended: status, stage and reason.
fn end(outcome: &RunOutcome, unit: u32) -> (Status, &str, Option<&str>) {
    let fact = fact(outcome, unit);
    (fact.status, &fact.stage, fact.reason.as_deref())
}

/// A unit's steps as `stage: outcome`.
fn path(outcome: &RunOutcome, unit: u32) -> Vec<String> {
    let steps = fact(outcome, unit).path.iter();
    steps
        .map(|step| format!("{}: {}", step.stage, step.outcome))
        .collect()
}

fn label<'o>(outcome: &'o RunOutcome, unit: u32, field: &str) -> &'o str {
    &fact(outcome, unit).values[field].label
}
