//! Surveys: what a run would ask is what it then asks, and what depends on answers is bounded.

use std::cell::RefCell;

use operator::infer::{BackendIdentity, FailReason, InferError};
use operator::plan::{Plan, Turn};
use operator::store::{MemoryStore, Store};
use operator::survey::{Gauge, Ruler, Survey, SurveyOptions, measure, survey};
use operator::text::{TextProblem, UnitText};
use serde_json::{Value, json};

use super::script::{PLAN, Script, Setup, issues, plan, run_with, units};

/// Counts words; texts over its room do not fit.
struct Words {
    identity: BackendIdentity,
    room: u64,
    opened: RefCell<Vec<String>>,
}

impl Words {
    fn new(script: &Script) -> Self {
        Self {
            identity: script.identity.clone(),
            room: 1_000,
            opened: RefCell::default(),
        }
    }
}

impl Gauge for Words {
    fn identity(&self) -> &BackendIdentity {
        &self.identity
    }

    fn open<'t>(&'t self, turn: &'t Turn) -> Result<Box<dyn Ruler + 't>, InferError> {
        self.opened
            .borrow_mut()
            .push(turn.questions[0].field.clone());
        let shared = turn.rubric.system.split_whitespace().count() as u64;
        match shared > self.room {
            true => Err(InferError::RubricTooLong {
                tokens: shared,
                tokens_max: self.room,
            }),
            false => Ok(Box::new(Counter {
                shared,
                room: self.room,
            })),
        }
    }
}

struct Counter {
    shared: u64,
    room: u64,
}

impl Ruler for Counter {
    fn shared_tokens(&self) -> u64 {
        self.shared
    }

    fn tokens(&mut self, unit: &UnitText) -> Result<u64, TextProblem> {
        let words = unit.text.split_whitespace().count() as u64;
        match self.shared + words > self.room {
            true => Err(TextProblem {
                reason: FailReason::TooLarge,
                message: format!("{words} words"),
            }),
            false => Ok(words),
        }
    }
}

fn look(plan: &Plan, records: &[Value], words: &Words, store: Option<&dyn Store>) -> Survey {
    let options = SurveyOptions {
        limit: None,
        clock: &|| 0,
        gauge: Some(words),
        larger: None,
        store,
    };
    survey(plan, &units(plan, records), &options).unwrap().0
}

#[test]
fn what_a_survey_says_is_asked_remembered_and_equal_is_so_in_the_run() {
    let plan = plan();
    let mut records = issues(40);
    records[12] = json!({ "number": 12, "state": "open", "title": "same", "body": "same" });
    records[17] = json!({ "number": 17, "state": "open", "title": "same", "body": "same" });
    records[23] = json!({ "number": 23, "state": "open", "title": {"deep": 1}, "body": "same" });
    let store = MemoryStore::default();
    let run = |records: &[Value]| {
        let setup = Setup {
            memo: Some(&store),
            ..Setup::default()
        };
        let mut script = Script::new();
        run_with(&plan, &units(&plan, records), &mut script, setup)
            .unwrap()
            .0
            .usage
    };
    let words = Words::new(&Script::new());
    for change in 0..3 {
        records[30 + change]["title"] = json!(format!("changed {change}"));
        let found = look(&plan, &records, &words, Some(&store));
        let usage = run(&records);
        let stage = &found.stages[0];
        assert_eq!(found.ladder[..2], without_time(&usage.ladder[..2]));
        assert_eq!(found.kept, 32);
        assert_eq!(stage.malformed.len(), 1);
        assert_eq!(stage.malformed[0].unit, "23");
        // Each script's answer costs ten tokens.
        assert_eq!(
            stage.asked,
            Some(usage.job.computed_tokens / 10),
            "{change}"
        );
        assert_eq!(stage.remembered, Some(usage.remembered_units), "{change}");
        let one_asked = u64::from(change == 0);
        assert_eq!(stage.duplicates, Some(one_asked), "{change}");
    }
}

fn without_time(ladder: &[operator::run::Rung]) -> Vec<operator::run::Rung> {
    let still = |rung: &operator::run::Rung| operator::run::Rung {
        micros: 0,
        ..rung.clone()
    };
    ladder.iter().map(still).collect()
}

#[test]
fn a_stage_after_a_choice_is_bounded_and_a_further_pass_by_its_own_limit() {
    let stages = "
[[stage]]
name = \"route\"
op = \"select\"
why = \"nothing says which\"
rubric = \"You route.\"
question = \"What now?\"
options = [{ name = \"judge\", run = [\"judge\"] }, { name = \"drop\", then = \"exclude\" }]

[[stage]]
name = \"judge\"
op = \"map\"

[[pass]]
name = \"again\"
units_max = 7

[[stage]]
name = \"reread\"
op = \"map\"
pass = \"again\"
when = { abstained = true }

[[field]]
name = \"blocker\"";
    let text = PLAN.replacen("\n[[field]]\nname = \"blocker\"", stages, 1);
    let plan = Plan::parse(&text, "plan.toml").unwrap();
    let words = Words::new(&Script::new());
    let found = look(&plan, &issues(40), &words, None);
    let shown: Vec<_> = found
        .stages
        .iter()
        .map(|stage| (stage.name.as_str(), stage.at_most, stage.units))
        .collect();
    assert_eq!(
        shown,
        [
            ("route", false, 32),
            ("judge", true, 32),
            ("reread", true, 7)
        ]
    );
    assert_eq!(*words.opened.borrow(), ["route", "blocker", "blocker"]);
    let steps: Vec<&str> = found.may.iter().map(|may| may.step.as_str()).collect();
    assert_eq!(
        steps,
        ["select stage route", "map stage judge", "map stage reread"]
    );
    assert!(
        found.may[0]
            .may
            .contains(&String::from("chooses one of judge, drop"))
    );
    // No store was there to look at.
    assert_eq!(found.stages[0].remembered, None);
}

#[test]
fn what_does_not_fit_is_named_and_a_rubric_that_does_not_is_refused() {
    let plan = plan();
    let mut words = Words::new(&Script::new());
    let mut records = issues(20);
    records[5]["body"] = json!("word ".repeat(70));
    let shared = look(&plan, &records, &words, None).stages[0]
        .shared_tokens
        .unwrap();
    words.room = shared + 60;
    let stage = &look(&plan, &records, &words, None).stages[0];
    assert_eq!(stage.too_long.len(), 1);
    assert_eq!(
        (stage.too_long[0].unit.as_str(), stage.asked),
        ("5", Some(15))
    );
    words.room = shared - 1;
    let options = SurveyOptions {
        limit: None,
        clock: &|| 0,
        gauge: Some(&words),
        larger: None,
        store: None,
    };
    let error = survey(&plan, &units(&plan, &records), &options).unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("shorten it"), "{cause}");
}

#[test]
fn a_survey_without_a_survivor_or_a_model_says_so() {
    let plan = plan();
    let closed: Vec<Value> = issues(9)
        .into_iter()
        .map(|mut record| {
            record["state"] = json!("closed");
            record
        })
        .collect();
    let words = Words::new(&Script::new());
    let found = look(&plan, &closed, &words, None);
    let stage = &found.stages[0];
    assert_eq!((found.kept, stage.units, stage.asked), (0, 0, Some(0)));
    assert_eq!((stage.shared_tokens, stage.unit_tokens), (Some(0), Some(0)));
    let options = SurveyOptions {
        limit: Some(3),
        clock: &|| 0,
        gauge: None,
        larger: None,
        store: None,
    };
    let (found, asked) = survey(&plan, &units(&plan, &issues(20)), &options).unwrap();
    assert_eq!(
        (found.kept, found.over_limit, found.stages[0].units),
        (16, 13, 3)
    );
    assert_eq!(
        (found.stages[0].asked, found.stages[0].unit_tokens),
        (None, None)
    );
    assert!(asked.is_empty());
}

#[test]
fn a_sample_is_spread_over_what_would_be_asked_and_scales_without_the_rubric() {
    let plan = plan();
    let partition = units(&plan, &issues(40));
    let words = Words::new(&Script::new());
    let options = SurveyOptions {
        limit: None,
        clock: &|| 0,
        gauge: Some(&words),
        larger: None,
        store: None,
    };
    let (_, asked) = survey(&plan, &partition, &options).unwrap();
    let turn = plan.turn(&plan.stages[0]).unwrap();
    let mut script = Script::new();
    let now = std::cell::Cell::new(0);
    let clock = || {
        now.set(now.get() + 30);
        now.get()
    };
    let sample = measure(&plan, &partition, &turn, &asked, 4, &mut script, &clock).unwrap();
    assert_eq!(script.asked, [vec!["2"], vec!["12", "22", "32"]]);
    assert_eq!(
        (sample.units, sample.first_tokens, sample.rest_tokens),
        (4, 10, 30)
    );
    // Thirty tokens took thirty microseconds.
    assert_eq!(sample.micros(600), Some(600));
    let none = measure(&plan, &partition, &turn, &[], 4, &mut script, &clock).unwrap();
    assert_eq!((none.units, none.micros(5)), (0, None));
}
