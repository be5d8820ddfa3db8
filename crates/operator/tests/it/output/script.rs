//! A scripted backend and the plan and records that the tests of runs share.

use std::collections::BTreeMap;

use operator::OperatorError;
use operator::event::EventLine;
use operator::infer::{
    Answer, BackendIdentity, CancelFlag, Completion, FailReason, Infer, InferError, InferJob,
    JobUsage, UnitOutcome, UnitUsage,
};
use operator::ops::{Partition, partition};
use operator::plan::Plan;
use operator::record::read_bytes;
use operator::run::{RunOptions, RunOutcome, run};
use operator::run_directory::RunDirectory;
use operator::store::Store;
use serde_json::json;

pub const PLAN: &str = r#"
version = 1
question = "Which open issues block the release, and why?"
rubric = "Judge one issue."

[input]
id = "number"
text = [{ field = "title", max_chars = 200 }, { field = "body", max_chars = 400 }]
evidence = "model"

[[prefilter]]
name = "closed"
when = { field = "state", op = "eq", value = "closed" }
action = "exclude"
reason = "issue is closed"

[[prefilter]]
name = "labelled"
when = { field = "tag", op = "eq", value = "blocker" }
action = "decide"
reason = "a maintainer said so"
set = { blocker = "yes", cause = "other" }

[[field]]
name = "blocker"
question = "Does it block the release?"
labels = ["yes", "no"]
abstain_below_margin = 0.05

[[field]]
name = "cause"
question = "What causes it?"
labels = ["token", "session", "other"]

[[reduce]]
name = "blockers"
op = "count"
where = { blocker = "yes" }
claim = "{count} issues block the release"

[[reduce]]
name = "ids"
op = "set"
where = { blocker = "yes" }

[[reduce]]
name = "causes"
op = "top_keys"
field = "cause"
k = 3
where = { blocker = "yes" }

[[reduce]]
name = "by_cause"
op = "count_by"
field = "cause"

[[reduce]]
name = "surest"
op = "top_k"
field = "blocker"
label = "yes"
k = 5

[[reduce]]
name = "spread"
op = "histogram"
field = "blocker"
label = "yes"
edges = [250000, 750000]
"#;

/// What the script does with one unit.
#[derive(Clone)]
pub enum Act {
    Answer,
    Doubt,
    Fail(FailReason),
    Misshapen,
    Cancel,
    Skip,
}

/// Answers from the unit's text alone, so that neighbours, order and position cannot matter.
pub struct Script {
    pub identity: BackendIdentity,
    pub acts: BTreeMap<String, Act>,
    pub reverse: bool,
    pub break_after: Option<usize>,
    pub repeat: bool,
    pub stranger: bool,
    pub asked: Vec<Vec<String>>,
}

impl Script {
    pub fn new() -> Self {
        Self {
            identity: BackendIdentity {
                name: String::from("script"),
                digest: [7; 32],
                simulated: false,
                describe: String::from("scripted answers"),
            },
            acts: BTreeMap::new(),
            reverse: false,
            break_after: None,
            repeat: false,
            stranger: false,
            asked: Vec::new(),
        }
    }

    pub fn with(acts: impl IntoIterator<Item = (u32, Act)>) -> Self {
        let acts = acts
            .into_iter()
            .map(|(number, act)| (number.to_string(), act))
            .collect();
        Self {
            acts,
            ..Self::new()
        }
    }

    /// Units asked in the latest job; empty when there was none.
    pub fn asked_last(&self) -> Vec<String> {
        self.asked.last().cloned().unwrap_or_default()
    }
}

fn share(labels: usize, chosen: usize, ppm: u32) -> Answer {
    let others = (1_000_000 - ppm) / (labels as u32 - 1).max(1);
    let mut shares = vec![others; labels];
    shares[chosen] = 0;
    shares[chosen] = 1_000_000 - shares.iter().sum::<u32>();
    Answer::from_ppm(shares, 990_000).unwrap()
}

fn outcome(act: &Act, job: &InferJob<'_>, place: usize) -> UnitOutcome {
    let unit = &job.units.text(place).unwrap();
    let seed = unit.text_hash.as_bytes();
    let answers = job.questions.iter().enumerate().map(|(index, question)| {
        let labels = question.labels.of(unit).len();
        let (chosen, extra) = (
            usize::from(seed[index]) % labels,
            u32::from(seed[index + 8]),
        );
        match act {
            Act::Doubt => share(labels, chosen, 500_000 + 10),
            _ if labels == 1 => Answer::from_ppm(vec![1_000_000], 990_000).unwrap(),
            _ => share(labels, chosen, 600_000 + extra * 1_000),
        }
    });
    match act {
        Act::Answer | Act::Doubt => UnitOutcome::Answered(answers.collect()),
        Act::Misshapen => UnitOutcome::Answered(answers.skip(1).collect()),
        Act::Fail(reason) => UnitOutcome::Failed {
            reason: *reason,
            message: format!("unit {}", unit.unit_id),
        },
        Act::Cancel => UnitOutcome::Cancelled,
        Act::Skip => UnitOutcome::NotRun,
    }
}

impl Infer for Script {
    fn identity(&self) -> &BackendIdentity {
        &self.identity
    }

    fn infer(
        &mut self,
        job: InferJob<'_>,
        sink: &mut dyn FnMut(Completion),
    ) -> Result<JobUsage, InferError> {
        self.asked.push(
            (0..job.units.len())
                .map(|place| job.units.id(place).to_string())
                .collect(),
        );
        let mut order: Vec<usize> = (0..job.units.len()).collect();
        if self.reverse {
            order.reverse();
        }
        let mut total = JobUsage {
            prefix_tokens: 40,
            forks: order.len() as u64,
            ..JobUsage::default()
        };
        for (done, place) in order.into_iter().enumerate() {
            if self.break_after == Some(done) {
                return Err(InferError::Failed("device lost".into()));
            }
            if job.cancel.is_cancelled() {
                break;
            }
            let id = job.units.id(place).clone();
            let act = self.acts.get(id.as_str()).cloned().unwrap_or(Act::Answer);
            let usage = UnitUsage {
                prompt_tokens: 50,
                computed_tokens: 10,
                cached_tokens: 40,
                micros: 5 + place as u64,
            };
            total.prompt_tokens += 50;
            total.computed_tokens += 10;
            total.cached_tokens += 40;
            let outcome = outcome(&act, &job, place);
            let unit_id = if self.stranger {
                operator::id::UnitId::new("who")
            } else {
                id
            };
            let completion = Completion {
                unit_id,
                outcome,
                usage,
            };
            sink(completion.clone());
            if self.repeat {
                sink(completion);
            }
        }
        Ok(total)
    }
}

pub fn plan() -> Plan {
    Plan::parse(PLAN, "plan.toml").unwrap()
}

/// Issues 0..n: every tenth is closed, every tenth plus one is a blocker by its tag.
pub fn issues(n: u32) -> Vec<serde_json::Value> {
    (0..n)
        .map(|number| {
            json!({
                "number": number,
                "state": if number % 10 == 0 { "closed" } else { "open" },
                "tag": if number % 10 == 1 { "blocker" } else { "none" },
                "title": format!("login of user {number} fails *sometimes*"),
                "body": format!("Token {number} expires \u{1f511}.\r\nThen the session | ends.\n\nDone."),
            })
        })
        .collect()
}

pub fn units(plan: &Plan, issues: &[serde_json::Value]) -> Partition {
    let bytes = serde_json::to_vec(issues).unwrap();
    let (source, records, bad) = read_bytes("issues.json", &bytes, None).unwrap();
    partition(plan, source, records, bad).unwrap()
}

/// Runs with the options that most tests share: no limit, a clock that ticks once per look.
pub struct Setup<'a> {
    pub memo: Option<&'a dyn Store>,
    pub limit: Option<u32>,
    pub redact: bool,
    pub directory: Option<&'a mut RunDirectory>,
    pub tick_us: u64,
}

impl Default for Setup<'_> {
    fn default() -> Self {
        Self {
            memo: None,
            limit: None,
            redact: false,
            directory: None,
            tick_us: 1,
        }
    }
}

pub fn run_with(
    plan: &Plan,
    partition: &Partition,
    infer: &mut dyn Infer,
    setup: Setup<'_>,
) -> Result<(RunOutcome, Vec<EventLine>), OperatorError> {
    let mut events = Vec::new();
    let now = std::cell::Cell::new(0);
    let clock = || {
        now.set(now.get() + setup.tick_us);
        now.get()
    };
    let options = RunOptions {
        limit: setup.limit,
        redact: setup.redact,
        clock: &clock,
        cancel: &CancelFlag::new(),
        larger: None,
        tools: None,
    };
    let outcome = run(
        plan,
        partition.clone(),
        infer,
        setup.memo,
        options,
        &mut events,
        setup.directory,
    )?;
    Ok((outcome, events))
}

pub fn run_simply(partition: &Partition, infer: &mut dyn Infer) -> RunOutcome {
    run_with(&plan(), partition, infer, Setup::default())
        .unwrap()
        .0
}
