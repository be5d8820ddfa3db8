//! A scripted writer of summaries, and the plan and records that their tests share.

use operator::answer::Claim;
use operator::compose::{Compose, ComposeJob, Composed};
use operator::event::EventLine;
use operator::infer::{
    BackendIdentity, Completion, FailReason, Infer, InferError, InferJob, JobUsage, UnitUsage,
};
use operator::ops::Partition;
use operator::ops::summary::INSTRUCTION;
use operator::plan::Plan;
use operator::run::RunOutcome;
use operator::store::Store;

use super::script::{Act, PLAN, Script, Setup, issues, run_with, units};

pub const SUMMARY: &str = r#"
[[reduce]]
name = "clusters"
op = "clusters"
field = "cause"
taxonomy = "causes v1"
dissent = ["other"]

[[reduce]]
name = "in-short"
op = "summary"
of = ["blockers", "causes", "surest", "clusters"]
instruction = "Say how many block the release, and why."
tokens_max = 100

[[reduce]]
name = "decided"
op = "count"
"#;

pub fn plan() -> Plan {
    Plan::parse(&format!("{PLAN}{SUMMARY}"), "plan.toml").unwrap()
}

/// Of 60 issues two are in doubt and one cannot be read.
pub fn partition() -> Partition {
    units(&plan(), &issues(60))
}

/// Writes what it is told to, and keeps what it was given.
pub struct Writer<'w> {
    pub script: Script,
    write: &'w dyn Fn(ComposeJob<'_>) -> Result<Composed, InferError>,
    pub given: Vec<String>,
}

impl<'w> Writer<'w> {
    pub fn new(write: &'w dyn Fn(ComposeJob<'_>) -> Result<Composed, InferError>) -> Self {
        Self {
            script: Script::with([
                (3, Act::Doubt),
                (13, Act::Doubt),
                (6, Act::Fail(FailReason::Truncated)),
            ]),
            write,
            given: Vec::new(),
        }
    }
}

impl Infer for Writer<'_> {
    fn identity(&self) -> &BackendIdentity {
        &self.script.identity
    }

    fn infer(
        &mut self,
        job: InferJob<'_>,
        sink: &mut dyn FnMut(Completion),
    ) -> Result<JobUsage, InferError> {
        self.script.infer(job, sink)
    }

    fn as_compose(&mut self) -> Option<&mut dyn Compose> {
        Some(self)
    }
}

impl Compose for Writer<'_> {
    fn identity(&self) -> &BackendIdentity {
        &self.script.identity
    }

    fn compose(&mut self, job: ComposeJob<'_>) -> Result<Composed, InferError> {
        assert_eq!(
            job.instruction, INSTRUCTION,
            "one instruction for all texts"
        );
        self.given.push(job.material.to_owned());
        (self.write)(job)
    }
}

pub fn composed(text: &str) -> Result<Composed, InferError> {
    Ok(Composed {
        text: text.to_owned(),
        finished: true,
        usage: UnitUsage {
            prompt_tokens: 70,
            computed_tokens: 30,
            cached_tokens: 40,
            micros: 5,
        },
        generated_tokens: 9,
    })
}

pub fn run_writing(
    write: &dyn Fn(ComposeJob<'_>) -> Result<Composed, InferError>,
    memo: Option<&dyn Store>,
) -> (RunOutcome, Vec<EventLine>, Vec<String>) {
    let mut writer = Writer::new(write);
    let setup = Setup {
        memo,
        ..Setup::default()
    };
    let (outcome, events) = run_with(&plan(), &partition(), &mut writer, setup).unwrap();
    (outcome, events, writer.given)
}

/// The summary of a run whose writer writes this.
pub fn written(text: &str) -> Claim {
    let (outcome, ..) = run_writing(&|_| composed(text), None);
    assert_eq!(outcome.answer.verify(&partition()), Vec::<String>::new());
    claim(&outcome, "in-short")
}

pub fn claim(outcome: &RunOutcome, name: &str) -> Claim {
    let claims = &outcome.answer.claims;
    claims
        .iter()
        .find(|claim| claim.name == name)
        .unwrap()
        .clone()
}

/// The numbers and ids that the texts below are made of.
pub struct Truth {
    pub blockers: u64,
    pub causes: Vec<(String, u64)>,
    pub unit: String,
    pub quote: String,
    pub other: String,
}

pub fn truth() -> Truth {
    let (outcome, ..) = run_writing(&|_| composed("Nothing."), None);
    let blockers = claim(&outcome, "blockers");
    let causes = claim(&outcome, "causes").value;
    let cite = &blockers.cites[0];
    let named: Vec<String> = ["blockers", "causes", "surest", "clusters"]
        .iter()
        .flat_map(|name| {
            let claim = claim(&outcome, name);
            let values = claim.value.to_string();
            let cites = claim.cites.into_iter().map(|cite| cite.unit_id.to_string());
            cites.chain([values]).collect::<Vec<_>>()
        })
        .collect();
    let other = (0..60_u32)
        .map(|id| id.to_string())
        .find(|id| {
            !named
                .iter()
                .any(|text| text == id || text.contains(&format!("\"{id}\"")))
        })
        .unwrap();
    Truth {
        blockers: blockers.value.as_u64().unwrap(),
        causes: causes
            .as_array()
            .unwrap()
            .iter()
            .map(|row| {
                (
                    row["label"].as_str().unwrap().to_owned(),
                    row["count"].as_u64().unwrap(),
                )
            })
            .collect(),
        unit: cite.unit_id.to_string(),
        quote: cite.span.clone().unwrap().quote.unwrap(),
        other,
    }
}
