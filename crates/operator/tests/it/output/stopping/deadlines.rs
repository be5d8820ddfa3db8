//! A unit's own time: once it is over nothing more is asked about the unit, and what is known stands.

use std::thread::sleep;
use std::time::Duration;

use operator::fact::Status;
use operator::infer::{
    BackendIdentity, Completion, Infer, InferError, InferJob, JobUsage, UnitOutcome, UnitUsage,
};
use operator::plan::Plan;
use operator::run_directory::RunDirectory;
use operator::verify::verify_directory;
use serde_json::json;

use super::super::canaries::answer;
use super::super::script::{Setup, run_with, units};
use super::{COUNT, HEAD, records};

/// Takes longer over every job than the plans below give a unit.
struct Slow {
    identity: BackendIdentity,
    /// Units answered, per job.
    answered: Vec<usize>,
}

impl Slow {
    fn new() -> Self {
        let identity = BackendIdentity {
            name: String::from("slow"),
            digest: [6; 32],
            simulated: false,
            describe: String::from("takes its time"),
        };
        Self {
            identity,
            answered: Vec::new(),
        }
    }
}

impl Infer for Slow {
    fn identity(&self) -> &BackendIdentity {
        &self.identity
    }

    fn infer(
        &mut self,
        job: InferJob<'_>,
        sink: &mut dyn FnMut(Completion),
    ) -> Result<JobUsage, InferError> {
        let texts: Vec<_> = (0..job.units.len()).map(|p| job.units.text(p)).collect();
        sleep(Duration::from_millis(30));
        self.answered.push(texts.iter().flatten().count());
        for (place, text) in texts.into_iter().enumerate() {
            let outcome = match text {
                Ok(text) => answer(text.text.contains("good"), 800_000),
                Err(problem) => UnitOutcome::from(problem),
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

/// A first look at every unit, and a second one at those that are good.
fn plan(control: &str, pass: &str) -> Plan {
    let (declared, of_pass) = match pass {
        "" => (String::new(), String::new()),
        name => (
            format!("[[pass]]\nname = \"{name}\"\nunits_max = 5\n"),
            format!("pass = \"{name}\"\n"),
        ),
    };
    let stages = format!(
        "[[stage]]\nname = \"look\"\nop = \"map\"\n{declared}[[stage]]\nname = \"again\"\nop = \"map\"\n\
         {of_pass}rubric = \"Look twice.\"\nwhen = {{ label = {{ good = \"yes\" }} }}\n"
    );
    Plan::parse(&format!("{HEAD}{COUNT}{stages}{control}"), "plan.toml").unwrap()
}

const SHORT: &str = "[control]\nunit_ms_max = 10\nattempts_max = 3\n";

#[test]
fn a_unit_whose_time_is_over_is_asked_nothing_more_and_is_errored() {
    let plan = plan(SHORT, "");
    let mut slow = Slow::new();
    let partition = units(&plan, &records(6));
    let (outcome, _) = run_with(&plan, &partition, &mut slow, Setup::default()).unwrap();
    // All are begun by the first job; the second is asked for the good ones, too late, and not again.
    assert_eq!(slow.answered, [6, 0]);
    for (id, fact) in outcome.facts.iter().enumerate() {
        if id % 3 == 0 {
            assert_eq!((fact.status, &*fact.stage), (Status::Errored, "again"));
            let reason = fact.reason.as_deref().unwrap();
            assert!(reason.starts_with("deadline: its 10 ms"), "{reason}");
        } else {
            assert_eq!(fact.status, Status::Decided);
        }
    }
}

#[test]
fn in_a_further_pass_what_was_found_in_time_stands_and_the_path_says_what_was_not_done() {
    let plan = plan(SHORT, "second");
    let home = tempfile::tempdir().unwrap();
    let mut directory = RunDirectory::create(&home.path().join("run"), "0", json!({})).unwrap();
    let setup = Setup {
        directory: Some(&mut directory),
        ..Setup::default()
    };
    let mut slow = Slow::new();
    let partition = units(&plan, &records(6));
    let (outcome, _) = run_with(&plan, &partition, &mut slow, setup).unwrap();
    assert_eq!(slow.answered, [6, 0]);
    for fact in &outcome.facts {
        assert_eq!(fact.status, Status::Decided);
    }
    let steps: Vec<&str> = outcome.facts[0].path.iter().map(|s| &*s.outcome).collect();
    assert_eq!(steps, ["answered", "not_run"]);
    let report = verify_directory(&home.path().join("run"), None).unwrap();
    let found: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn units_that_are_in_time_and_units_without_a_limit_end_as_if_there_were_none() {
    let decided = |control: &str| {
        let plan = plan(control, "");
        let mut slow = Slow::new();
        let partition = units(&plan, &records(6));
        let (outcome, _) = run_with(&plan, &partition, &mut slow, Setup::default()).unwrap();
        assert_eq!(slow.answered, [6, 2]);
        outcome.answer.result_hash
    };
    assert_eq!(decided(""), decided("[control]\nunit_ms_max = 3_600_000\n"));
}

#[test]
fn a_limit_of_no_time_is_refused() {
    let text = format!("{HEAD}{COUNT}[control]\nunit_ms_max = 0\n");
    let error = Plan::parse(&text, "plan.toml").unwrap_err().to_string();
    assert!(
        error.contains("unit_ms_max is 0; it must be at least 1"),
        "{error}"
    );
}
