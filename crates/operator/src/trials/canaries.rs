//! Runs under a sound and under a defective rubric, watched by canaries.

use serde_json::{Value, json};

use super::numbers::Numbers;
use crate::breaker::Trip;
use crate::error::OperatorError;
use crate::infer::{
    Answer, BackendIdentity, CancelFlag, Completion, Infer, InferError, InferJob, JobUsage, PPM,
    UnitOutcome, UnitUsage,
};
use crate::ops::partition;
use crate::plan::Plan;
use crate::record::read_bytes;
use crate::run::{RunOptions, run};

/// Records of a trial.
const RECORDS: u64 = 400;
/// Canaries of a trial, one among ten records.
const CANARIES: u64 = 40;
/// What a report of a fault says, and what a wish says.
const FAULTS: [&str; 4] = [
    "The parser crashes when the file is empty",
    "Saving twice loses the second change",
    "After the update every export comes out blank",
    "The server answers 500 to a valid request",
];
const WISHES: [&str; 4] = [
    "Please add an option to sort by date",
    "It would help to have a dark theme",
    "A shortcut for closing all tabs, perhaps",
    "Could exports be named after the project?",
];

/// Whether the rubric says what it should.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rubric {
    /// The judge answers what is so.
    Sound,
    /// Its labels are mixed up: the judge answers the opposite.
    Inverted,
}

/// A judge that knows the truth, under a rubric, and errs at a stated rate.
///
/// It errs text by text: the same text gets the same answer wherever it stands.
pub struct Judge {
    identity: BackendIdentity,
    rubric: Rubric,
    noise_ppm: u32,
    seed: u64,
}

impl Judge {
    /// A judge whose answers are wrong in so many parts per million.
    pub fn new(rubric: Rubric, noise_ppm: u32, seed: u64) -> Self {
        Self {
            identity: BackendIdentity {
                name: String::from("trial"),
                digest: [0; 32],
                simulated: true,
                describe: String::from("a judge of known error"),
            },
            rubric,
            noise_ppm,
            seed,
        }
    }

    fn says_fault(&self, text: &crate::text::UnitText) -> bool {
        let is_fault = FAULTS.iter().any(|fault| text.text.contains(fault));
        let mut short = [0; 8];
        short.copy_from_slice(&text.text_hash.as_bytes()[..8]);
        let mut numbers = Numbers::new(self.seed ^ u64::from_le_bytes(short));
        is_fault ^ (self.rubric == Rubric::Inverted) ^ numbers.happens(self.noise_ppm)
    }
}

impl Infer for Judge {
    fn identity(&self) -> &BackendIdentity {
        &self.identity
    }

    fn infer(
        &mut self,
        job: InferJob<'_>,
        sink: &mut dyn FnMut(Completion),
    ) -> Result<JobUsage, InferError> {
        for place in 0..job.units.len() {
            if job.cancel.is_cancelled() {
                break;
            }
            let outcome = match job.units.text(place) {
                Ok(text) => {
                    let (yes, no) = match self.says_fault(&text) {
                        true => (900_000, 100_000),
                        false => (100_000, 900_000),
                    };
                    let answer = Answer::from_ppm(vec![yes, no], PPM);
                    UnitOutcome::Answered(answer.into_iter().collect())
                }
                Err(problem) => problem.into(),
            };
            sink(Completion {
                unit_id: job.units.id(place).clone(),
                outcome,
                usage: UnitUsage::default(),
            });
        }
        Ok(JobUsage::default())
    }
}

/// What became of many runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CanaryTrials {
    /// Runs.
    pub runs: u64,
    /// Of these, stopped by the breaker.
    pub opened: u64,
    /// Canaries that were judged before it opened, for each run that was stopped.
    pub judged: Vec<u64>,
}

impl CanaryTrials {
    /// Runs that were stopped after so many canaries or fewer.
    pub fn opened_within(&self, canaries: u64) -> u64 {
        self.judged
            .iter()
            .filter(|judged| **judged <= canaries)
            .count() as u64
    }
}

/// Runs a plan with canaries so many times, each over other records, canaries and errors.
///
/// # Errors
/// None but for a defect of the trial itself.
pub fn canary_trials(
    runs: u64,
    rubric: Rubric,
    noise_ppm: u32,
) -> Result<CanaryTrials, OperatorError> {
    let mut judged = Vec::new();
    for run in 0..runs {
        let mut judge = Judge::new(rubric, noise_ppm, run.wrapping_mul(0x5851_f42d_4c95_7f2d));
        if let Some(Trip::Canary { judged: after, .. }) = trial(run, &mut judge)? {
            judged.push(after);
        }
    }
    Ok(CanaryTrials {
        runs,
        opened: judged.len() as u64,
        judged,
    })
}

fn trial(number: u64, judge: &mut Judge) -> Result<Option<Trip>, OperatorError> {
    let mut numbers = Numbers::new(number);
    let plan = Plan::parse(&plan_text(&mut numbers), "trial.toml")?;
    let records: Vec<Value> = (0..RECORDS)
        .map(|id| json!({ "id": id, "text": text(&mut numbers, "record", id).0 }))
        .collect();
    let bytes = serde_json::to_vec(&records).unwrap_or_default();
    let (source, records, bad) = read_bytes("trial.json", &bytes, None)?;
    let units = partition(&plan, source, records, bad)?;
    let options = RunOptions {
        limit: None,
        clock: &|| 0,
        redact: false,
        cancel: &CancelFlag::new(),
        larger: None,
        tools: None,
    };
    Ok(run(&plan, units, judge, None, options, &mut (), None)?.trip)
}

fn plan_text(numbers: &mut Numbers) -> String {
    let seed = numbers.below(u64::MAX);
    let mut plan = format!(
        "version = 1\nquestion = \"Which reports are faults?\"\nrubric = \"Judge one report.\"\n\
         [input]\nid = \"id\"\ntext = [{{ field = \"text\" }}]\nevidence = \"none\"\n\
         [[field]]\nname = \"fault\"\nquestion = \"Is it a fault?\"\nlabels = [\"yes\", \"no\"]\n\
         [[reduce]]\nname = \"faults\"\nop = \"count\"\nwhere = {{ fault = \"yes\" }}\n\
         [canary]\nseed = \"{seed}\"\nevery = {}\n",
        RECORDS / CANARIES
    );
    for id in 0..CANARIES {
        let (text, is_fault) = text(numbers, "canary", id);
        let label = if is_fault { "yes" } else { "no" };
        plan.push_str(&format!(
            "[[canary.record]]\nrecord = {{ id = \"c{id}\", text = \"{text}\" }}\nexpect = {{ fault = \
             \"{label}\" }}\n"
        ));
    }
    plan
}

/// The text of a record, and whether it is a fault.
fn text(numbers: &mut Numbers, kind: &str, id: u64) -> (String, bool) {
    let is_fault = numbers.happens(PPM / 2);
    let phrases = if is_fault { FAULTS } else { WISHES };
    let phrase = phrases[numbers.below(4) as usize];
    (format!("{phrase} ({kind} {id})"), is_fault)
}
