//! Summaries by a scripted writer: what passes, what is refused and why, and what cannot be lost.

use std::sync::Mutex;

use operator::OperatorError;
use operator::answer::Claim;
use operator::compose::{Compose, ComposeJob, Composed};
use operator::event::{Event, EventLine};
use operator::id::FactKey;
use operator::infer::{
    BackendIdentity, CancelFlag, Completion, FailReason, Infer, InferError, InferJob, JobUsage,
    UnitUsage,
};
use operator::ops::Partition;
use operator::ops::summary::{INSTRUCTION, MATERIAL_BYTES_MAX};
use operator::plan::Plan;
use operator::run::RunOutcome;
use operator::store::{ContentStore, FactStore, Kind, MemoryStore, Store, StoredAnswers};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::script::{Act, PLAN, Script, Setup, issues, run_with, units};

const SUMMARY: &str = r#"
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
fn partition() -> Partition {
    units(&plan(), &issues(60))
}

/// Writes what it is told to, and keeps what it was given.
struct Writer<'w> {
    script: Script,
    write: &'w dyn Fn(ComposeJob<'_>) -> Result<Composed, InferError>,
    given: Vec<String>,
}

impl<'w> Writer<'w> {
    fn new(write: &'w dyn Fn(ComposeJob<'_>) -> Result<Composed, InferError>) -> Self {
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
fn written(text: &str) -> Claim {
    let (outcome, ..) = run_writing(&|_| composed(text), None);
    assert_eq!(outcome.answer.verify(&partition()), Vec::<String>::new());
    claim(&outcome, "in-short")
}

fn claim(outcome: &RunOutcome, name: &str) -> Claim {
    let claims = &outcome.answer.claims;
    claims
        .iter()
        .find(|claim| claim.name == name)
        .unwrap()
        .clone()
}

/// The numbers and ids that the texts below are made of.
struct Truth {
    blockers: u64,
    causes: Vec<(String, u64)>,
    unit: String,
    quote: String,
    other: String,
}

fn truth() -> Truth {
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

#[test]
fn a_true_text_is_stated_with_its_numbers_units_and_what_stands_apart() {
    let truth = truth();
    let (cause, count) = &truth.causes[0];
    let percent = (count * 1_000 + truth.blockers * 5) / (truth.blockers * 10);
    let text = format!(
        "{} issues block the release. {cause} is behind {count} of them ({percent} %), for one \
         \"{}\" [{}].",
        truth.blockers, truth.quote, truth.unit
    )
    .replace("for one", "such as");
    let claim = written(&text);
    assert_eq!(claim.refused, None, "{}", claim.text);
    assert_eq!(claim.value["prose"], text);
    assert_eq!(claim.value["cited_units"], json!([truth.unit]));
    let equals: Vec<&str> = claim.value["checked_numbers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|number| number["equals"].as_str().unwrap())
        .collect();
    assert_eq!(equals[0], "blockers");
    assert_eq!(equals[1], format!("causes, {cause}"));
    assert!(equals[2].contains(" of "), "{equals:?}");
    assert_eq!(claim.cites.len(), 1);
    assert_eq!(claim.cites_total, 1);
    assert_eq!(claim.cites[0].unit_id.as_str(), truth.unit);
    assert!(
        claim.text.contains(
            "prose of the model script; checked: 3 numbers, 1 units; meaning not checked"
        ),
        "{}",
        claim.text
    );
    assert!(
        claim.text.contains("of 60 units 2 abstained, 1 errored"),
        "{}",
        claim.text
    );
}

#[test]
fn claims_stay_in_plan_order_and_the_hash_covers_the_text() {
    let (one, ..) = run_writing(&|_| composed("It is the tokens."), None);
    let names: Vec<&str> = one
        .answer
        .claims
        .iter()
        .map(|claim| claim.name.as_str())
        .collect();
    let wanted: Vec<String> = plan()
        .reduces
        .iter()
        .map(|reduce| reduce.name.clone())
        .collect();
    assert_eq!(names, wanted);
    assert_eq!(
        one.answer.claims.last().unwrap().value,
        one.answer.coverage.decided
    );
    let (other, ..) = run_writing(&|_| composed("It is the sessions."), None);
    assert_ne!(one.answer.result_hash, other.answer.result_hash);
    let without = |outcome: &RunOutcome| -> Vec<Claim> {
        let claims = outcome.answer.claims.iter();
        claims
            .filter(|claim| claim.name != "in-short")
            .cloned()
            .collect()
    };
    assert_eq!(without(&one), without(&other));
    assert_eq!(
        one.answer.tree, other.answer.tree,
        "no text enters the fold"
    );
}

#[test]
fn a_lie_is_refused_by_its_token() {
    let truth = truth();
    let Truth {
        blockers,
        other,
        unit,
        quote,
        ..
    } = &truth;
    let lies = [
        (
            format!("{} issues block.", blockers + 100),
            format!("{:?}", (blockers + 100).to_string()),
        ),
        (
            String::from("Some 1,234 issues block."),
            String::from("\"1,234\""),
        ),
        (
            String::from("Some 1'234 issues block."),
            String::from("\"1'234\""),
        ),
        (
            String::from("Some 1\u{2009}234 issues block."),
            String::from("234\""),
        ),
        (
            String::from("Some 12.75 issues block."),
            String::from("\"12.75\""),
        ),
        (String::from("It is -3 issues."), String::from("\"3\"")),
        (String::from("It is 4.0.1 now."), String::from("\"4.0.1\"")),
        (String::from("It is 007."), String::from("\"007\"")),
        (String::from("It is 9k."), String::from("\"9k\"")),
        (String::from("See GH-99."), String::from("\"99\"")),
        (
            String::from("It is 9 thousand."),
            String::from("\"9 thousand\""),
        ),
        (
            String::from("Seventy-seven issues block."),
            String::from("\"Seventy-seven\""),
        ),
        (
            String::from("Two hundred and five block."),
            String::from("\"Two hundred and five\""),
        ),
        (
            String::from("Hundreds of issues block."),
            String::from("\"Hundreds\""),
        ),
        (
            String::from("A dozen dozen block."),
            String::from("\"dozen dozen\""),
        ),
        (
            String::from("The 77th cause is new."),
            String::from("\"77th\""),
        ),
        (
            String::from("The nineteenth cause is new."),
            String::from("\"nineteenth\""),
        ),
        (
            String::from("That is 98.76 % of all."),
            String::from("\"98.76 %\""),
        ),
        (
            String::from("That is 98.76 per cent."),
            String::from("\"98.76 per cent\""),
        ),
        (
            String::from("Two sevenths block."),
            String::from("\"Two sevenths\""),
        ),
        (String::from("See [9999]."), String::from("\"9999\"")),
        (format!("See [{unit}, 9999]."), String::from("\"9999\"")),
        (String::from("See #9999."), String::from("\"#9999\"")),
        (format!("See [{other}]."), format!("{other:?}")),
        (format!("See #{other}."), format!("\"#{other}\"")),
        (
            String::from("They say \"all is lost\"."),
            String::from("\"all is lost\""),
        ),
        (
            String::from("They say \u{201c}all is lost\u{201d}."),
            String::from("\"all is lost\""),
        ),
        (
            String::from("They say 'all is lost'."),
            String::from("\"all is lost\""),
        ),
        (
            String::from("They say `all is lost`."),
            String::from("\"all is lost\""),
        ),
        (
            String::from("They say \u{ab}all is lost\u{bb}."),
            String::from("\"all is lost\""),
        ),
        (
            String::from("It is \"777\" issues."),
            String::from("\"777\""),
        ),
        (String::from("They say \"it."), String::from("\\\"")),
        (String::from("See [4."), String::from("\"[\"")),
        (
            String::from("It is \u{bd} of them."),
            String::from("\u{bd}"),
        ),
        (
            String::from("It is \u{663} of them."),
            String::from("\u{663}"),
        ),
        (String::from("It is\u{200b} hidden."), String::from("200b")),
        (String::from("\u{1b}[2J"), String::from("1b")),
        (
            String::from("See https://example.org."),
            String::from("://"),
        ),
        (
            String::from("It was seven_ty_nine."),
            String::from("seven_ty_nine"),
        ),
        (String::from(" \n "), String::from("empty")),
        (
            format!("{quote} never ends \u{fffd}"),
            String::from("\u{fffd}"),
        ),
    ];
    for (text, token) in lies {
        let claim = written(&text);
        let Some(reason) = &claim.refused else {
            panic!("{text:?} passed: {}", claim.value);
        };
        assert!(
            reason.contains(&token),
            "{text:?} needs {token} in: {reason}"
        );
        assert!(claim.value.is_null() && claim.cites.is_empty());
        assert!(
            claim.text.starts_with("in-short is not answered: "),
            "{}",
            claim.text
        );
    }
}

#[test]
fn words_without_a_number_pass_and_say_that_their_meaning_is_not_checked() {
    let claim = written("The users' tokens don't last.\nThat is all.");
    assert_eq!(claim.refused, None);
    assert_eq!(claim.value["checked_numbers"], json!([]));
    assert!(
        claim
            .text
            .starts_with("The users' tokens don't last. That is all. |"),
        "one line: {}",
        claim.text
    );
    assert!(
        claim
            .text
            .contains("checked: 0 numbers, 0 units; meaning not checked"),
        "{}",
        claim.text
    );
}

#[test]
fn true_numbers_pass_however_they_are_written() {
    let Truth {
        blockers,
        unit,
        causes,
        ..
    } = truth();
    let entries = causes.len();
    let places = ["first", "2nd", "third"][..entries].join(", ");
    for text in [
        format!("There are {blockers}.0 of them."),
        format!("In all {blockers}: see #{unit}, that is [#{unit}] and unit {unit}."),
        format!("The {places} of the causes."),
        String::from("The coverage is 60 units, sixty in all."),
        String::from("All of \"causes v1\" and of \"in-short\".").replace("in-short", "causes"),
        String::from("Exactly \"60\" units."),
        String::from("It is 10 of 60, no: 2 of 60 abstained, 3.3 %.").replace("10 of 60, no: ", ""),
    ] {
        let claim = written(&text);
        assert_eq!(claim.refused, None, "{text:?}");
    }
    assert!(
        written("All of causes v1.")
            .refused
            .unwrap()
            .contains("\"v1\""),
        "a name of two words has to be quoted"
    );
}

#[test]
fn what_stands_apart_is_there_whether_the_text_passes_or_not() {
    for text in ["Nothing to see.", "There are 31337 dissenters."] {
        let (outcome, ..) = run_writing(&|_| composed(text), None);
        let summary = claim(&outcome, "in-short");
        let clusters = claim(&outcome, "clusters").value;
        let dissent = clusters["dissent"].as_array().unwrap();
        assert!(!dissent.is_empty());
        for unit in dissent {
            let named = format!("[{}]", unit.as_str().unwrap());
            assert!(summary.text.contains(&named), "{named} in {}", summary.text);
        }
        let listed = format!("clusters, dissent ({}): [", dissent.len());
        assert!(summary.text.contains(&listed), "{}", summary.text);
        assert!(
            summary.text.contains("clusters, abstained (2): [3] [13]"),
            "{}",
            summary.text
        );
        assert!(
            summary.text.contains("unsettled (3): [3] [6] [13]"),
            "{}",
            summary.text
        );
        if summary.refused.is_none() {
            let kinds: Vec<&str> = summary.value["dissent"]
                .as_array()
                .unwrap()
                .iter()
                .map(|apart| apart["kind"].as_str().unwrap())
                .collect();
            assert_eq!(kinds, ["dissent", "abstained", "unsettled"]);
            assert_eq!(summary.value["dissent"][0]["units"], clusters["dissent"]);
        }
    }
}

#[test]
fn a_writer_is_given_the_claims_and_no_record() {
    let (outcome, events, given) = run_writing(&|_| composed("Fine."), None);
    let material = &given[0];
    assert_eq!(given.len(), 1);
    assert!(material.len() <= MATERIAL_BYTES_MAX);
    assert!(material.contains("Task: Say how many block the release, and why."));
    assert!(material.contains(&claim(&outcome, "blockers").text));
    assert!(!material.contains("by_cause"), "only what it is of");
    let cited: Vec<String> = ["blockers", "causes", "surest", "clusters"]
        .iter()
        .flat_map(|name| claim(&outcome, name).cites)
        .filter_map(|cite| cite.span?.quote)
        .collect();
    for fact in &outcome.facts {
        let quote = fact
            .evidence
            .first()
            .and_then(|evidence| evidence.quote.clone());
        let Some(quote) = quote.filter(|quote| quote.len() > 8) else {
            continue;
        };
        let alike = cited.iter().any(|cited| cited.contains(&quote));
        assert_eq!(material.contains(&quote), alike, "{quote}");
    }
    let usage = outcome.usage.composed;
    assert_eq!((usage.texts, usage.remembered), (1, 0));
    assert_eq!((usage.prompt_tokens, usage.generated_tokens), (70, 9));
    assert_eq!(usage.computed_tokens + usage.cached_tokens, 70);
    assert_eq!(outcome.usage.job.generated_tokens, 0, "not part of the job");
    let told = events.iter().find_map(|line| match &line.event {
        Event::Summary {
            name,
            refused,
            remembered,
            prompt_tokens,
            generated_tokens,
        } => Some((
            name.clone(),
            refused.clone(),
            *remembered,
            *prompt_tokens,
            *generated_tokens,
        )),
        _ => None,
    });
    assert_eq!(told, Some((String::from("in-short"), None, false, 70, 9)));
}

#[test]
fn a_redacted_run_shows_no_quote_to_the_writer() {
    let quote = truth().quote;
    let text = format!("They say \"{quote}\".");
    let write = |_: ComposeJob<'_>| composed(&text);
    let mut writer = Writer::new(&write);
    let setup = Setup {
        redact: true,
        ..Setup::default()
    };
    let (outcome, _) = run_with(&plan(), &partition(), &mut writer, setup).unwrap();
    assert!(!writer.given[0].contains(&quote));
    let refused = claim(&outcome, "in-short").refused.unwrap();
    assert!(refused.contains("stands in no source"), "{refused}");
}

#[test]
fn no_text_refuses_the_claim_and_the_rest_stands() {
    let complete = run_writing(&|_| composed("Fine."), None).0;
    let cut = |_: ComposeJob<'_>| {
        Ok(Composed {
            finished: false,
            ..composed("It is the tokens")?
        })
    };
    let cancelled = |job: ComposeJob<'_>| {
        job.cancel.cancel();
        Ok(Composed {
            finished: false,
            ..composed("It is")?
        })
    };
    let refuses = |_: ComposeJob<'_>| Err(InferError::Refused("no room".into()));
    let breaks = |_: ComposeJob<'_>| Err(InferError::Failed("device lost".into()));
    type Write<'a> = &'a dyn Fn(ComposeJob<'_>) -> Result<Composed, InferError>;
    let writes: [(Write<'_>, &str); 4] = [
        (&cut, "cut after 9 tokens"),
        (&cancelled, "cancelled while it was written"),
        (&refuses, "the job was refused: no room"),
        (&breaks, "the backend failed: device lost"),
    ];
    for (write, part) in writes {
        let store = MemoryStore::new();
        let (outcome, ..) = run_writing(write, Some(&store));
        let refused = claim(&outcome, "in-short").refused.unwrap();
        assert!(refused.contains(part), "{refused}");
        assert!(outcome.backend_failure.is_none());
        assert_eq!(outcome.answer.complete, complete.answer.complete);
        for (one, other) in outcome.answer.claims.iter().zip(&complete.answer.claims) {
            assert!(one == other || one.name == "in-short", "{}", one.name);
        }
        let again = run_writing(&|_| composed("Fine."), Some(&store));
        assert_eq!(again.2.len(), 1, "nothing was remembered of {part}");
    }
}

#[test]
fn who_cannot_write_or_may_not_any_more_is_not_asked() {
    let mut script = Script::new();
    let (outcome, _) = run_with(&plan(), &partition(), &mut script, Setup::default()).unwrap();
    let refused = claim(&outcome, "in-short").refused.unwrap();
    assert_eq!(refused, "the backend script writes no texts");
    assert!(outcome.answer.complete, "a summary is no unit");

    let write = |_: ComposeJob<'_>| -> Result<Composed, InferError> { panic!("not asked") };
    let mut writer = Writer::new(&write);
    writer.script.break_after = Some(5);
    let (outcome, _) = run_with(&plan(), &partition(), &mut writer, Setup::default()).unwrap();
    let refused = claim(&outcome, "in-short").refused.unwrap();
    assert!(refused.contains("the backend had stopped"), "{refused}");

    let cancel = CancelFlag::new();
    cancel.cancel();
    let options = operator::run::RunOptions {
        limit: None,
        redact: false,
        clock: &|| 0,
        cancel: &cancel,
    };
    let mut writer = Writer::new(&write);
    let parts = partition();
    let outcome = operator::run::run(&plan(), parts, &mut writer, None, options, &mut (), None);
    let refused = claim(&outcome.unwrap(), "in-short").refused.unwrap();
    assert_eq!(refused, "cancelled before it was written");
}

#[test]
fn too_much_to_summarise_is_refused_and_never_cut() {
    let wide = SUMMARY.replace("of = [\"blockers\",", "of = [\"ids\", \"blockers\",");
    let plan = Plan::parse(&format!("{PLAN}{wide}"), "plan.toml").unwrap();
    let partition = units(&plan, &issues(9_000));
    let write = |_: ComposeJob<'_>| -> Result<Composed, InferError> { panic!("not asked") };
    let mut writer = Writer::new(&write);
    let (outcome, _) = run_with(&plan, &partition, &mut writer, Setup::default()).unwrap();
    let refused = claim(&outcome, "in-short").refused.unwrap();
    assert!(refused.contains("at most 16384"), "{refused}");
}

#[test]
fn a_claim_that_is_refused_is_told_and_nothing_but_such_gives_no_text() {
    let few = format!("{PLAN}\n[fold]\noutliers_max = 1\n{SUMMARY}");
    let plan = Plan::parse(&few, "plan.toml").unwrap();
    let write = |_: ComposeJob<'_>| composed("Fine.");
    let mut writer = Writer::new(&write);
    let (outcome, _) = run_with(&plan, &partition(), &mut writer, Setup::default()).unwrap();
    let clusters = claim(&outcome, "clusters").refused.unwrap();
    let summary = claim(&outcome, "in-short");
    assert_eq!(summary.refused, None);
    assert!(
        summary
            .text
            .contains(&format!("clusters, refused: {clusters}")),
        "{}",
        summary.text
    );
    let only = few.replace(
        "of = [\"blockers\", \"causes\", \"surest\", \"clusters\"]",
        "of = [\"clusters\"]",
    );
    let plan = Plan::parse(&only, "plan.toml").unwrap();
    let (outcome, _) = run_with(&plan, &partition(), &mut writer, Setup::default()).unwrap();
    let refused = claim(&outcome, "in-short").refused.unwrap();
    assert!(refused.contains("none of the claims"), "{refused}");
}

#[test]
fn a_text_that_passed_is_remembered_and_no_other() {
    let store = MemoryStore::new();
    let (lied, _, given) = run_writing(&|_| composed("There are 31337."), Some(&store));
    assert!(claim(&lied, "in-short").refused.is_some());
    assert_eq!(given.len(), 1);
    let (first, _, given) = run_writing(&|_| composed("It is tokens."), Some(&store));
    assert_eq!(given.len(), 1, "a lie is not remembered");
    let (second, events, given) = run_writing(&|_| panic!("not asked"), Some(&store));
    assert!(given.is_empty());
    assert_eq!(second.answer, first.answer);
    assert_eq!(second.usage.composed.remembered, 1);
    assert_eq!(second.usage.composed.generated_tokens, 0);
    let told = |line: &EventLine| {
        matches!(
            line.event,
            Event::Summary {
                remembered: true,
                ..
            }
        )
    };
    assert!(events.iter().any(told));

    let write = |_: ComposeJob<'_>| composed("Anew.");
    let mut other = Writer::new(&write);
    other.script.identity.digest = [8; 32];
    let setup = || Setup {
        memo: Some(&store),
        ..Setup::default()
    };
    run_with(&plan(), &partition(), &mut other, setup()).unwrap();
    assert_eq!(other.given.len(), 1, "another model is asked");
    let mut simulated = Writer::new(&write);
    simulated.script.identity.simulated = true;
    run_with(&plan(), &partition(), &mut simulated, setup()).unwrap();
    assert_eq!(simulated.given.len(), 1, "a simulated one has no memory");
}

/// A store that hands a text out once with other words in it.
struct Tampered<'s> {
    store: &'s MemoryStore,
    words: Mutex<Option<&'static str>>,
}

impl FactStore for Tampered<'_> {
    fn get(&self, key: &FactKey) -> Option<StoredAnswers> {
        self.store.get(key)
    }

    fn put(&self, key: &FactKey, stored: &StoredAnswers) -> Result<(), OperatorError> {
        self.store.put(key, stored)
    }
}

impl ContentStore for Tampered<'_> {
    fn get_bytes(&self, kind: Kind, key: &[u8; 32]) -> Option<Vec<u8>> {
        let bytes = self.store.get_bytes(kind, key)?;
        if kind != Kind::Text {
            return Some(bytes);
        }
        let text = String::from_utf8(bytes).unwrap();
        assert!(text.contains("It is tokens."));
        let words = self.words.lock().unwrap().take().unwrap_or("It is tokens.");
        Some(text.replace("It is tokens.", words).into_bytes())
    }

    fn put_bytes(&self, kind: Kind, entries: &[([u8; 32], Vec<u8>)]) -> Result<(), OperatorError> {
        self.store.put_bytes(kind, entries)
    }
}

#[test]
fn a_remembered_text_is_read_again_and_one_that_lies_is_written_anew() {
    let store = MemoryStore::new();
    let (first, ..) = run_writing(&|_| composed("It is tokens."), Some(&store));
    for words in ["It is 31337 tokens.", "\",\"torn"] {
        let tampered = Tampered {
            store: &store,
            words: Mutex::new(Some(words)),
        };
        let (second, _, given) = run_writing(&|_| composed("It is tokens."), Some(&tampered));
        assert_eq!(given.len(), 1, "{words}");
        assert_eq!(second.answer, first.answer);
        let (third, _, given) = run_writing(&|_| panic!("not asked"), Some(&tampered));
        assert!(given.is_empty());
        assert_eq!(third.answer, first.answer);
    }
}

#[test]
fn a_text_that_fails_its_re_reading_is_replaced_in_the_store() {
    let store = MemoryStore::new();
    let key = [5; 32];
    for text in [&b"one"[..], b"two"] {
        store
            .put_bytes(Kind::Text, &[(key, text.to_vec())])
            .unwrap();
        store
            .put_bytes(Kind::Fact, &[(key, text.to_vec())])
            .unwrap();
    }
    assert_eq!(store.get_bytes(Kind::Text, &key).unwrap(), b"two");
    assert_eq!(store.get_bytes(Kind::Fact, &key).unwrap(), b"one");
}

#[test]
fn a_plan_words_its_summary_with_the_placeholders() {
    let worded = SUMMARY.replace(
        "tokens_max = 100",
        "tokens_max = 100\nclaim = \"In short: {value}\"",
    );
    let plan = Plan::parse(&format!("{PLAN}{worded}"), "plan.toml").unwrap();
    let write = |_: ComposeJob<'_>| composed("Fine {value}.");
    let mut writer = Writer::new(&write);
    let (outcome, _) = run_with(&plan, &partition(), &mut writer, Setup::default()).unwrap();
    let text = claim(&outcome, "in-short").text;
    assert!(text.starts_with("In short: Fine {value}."), "{text}");
}

/// One way to write a number, in a sentence.
fn phrase() -> impl Strategy<Value = (u64, String)> {
    (0..400_u64, 0..6_usize).prop_map(|(number, way)| {
        let text = match way {
            0 => format!("There are {number} of them."),
            1 => format!("({number})"),
            2 => format!("exactly {number}-fold trouble;"),
            3 => format!("\u{201c}{number}\u{201d} they say,"),
            4 => format!("it is {number}.00 now:"),
            _ => format!("from {number} to more"),
        };
        (number, text)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_passes_unless_all_its_numbers_belong(phrases in prop::collection::vec(phrase(), 1..4)) {
        let text: Vec<&str> = phrases.iter().map(|(_, text)| text.as_str()).collect();
        let (outcome, _, given) = run_writing(&|_| composed(&text.join(" and ")), None);
        let summary = claim(&outcome, "in-short");
        // What belongs is read off the printed material, by other code than the one under test.
        let belongs: Vec<u64> = given[0]
            .lines()
            .skip_while(|line| *line != "Numbers:")
            .take_while(|line| *line != "Sources:")
            .filter_map(|line| line.rsplit_once(" = ")?.1.parse().ok())
            .collect();
        let all = phrases.iter().all(|(number, _)| belongs.contains(number));
        prop_assert_eq!(summary.refused.is_none(), all, "{:?} {:?}", text, summary.refused);
        if all {
            let checked = summary.value["checked_numbers"].as_array().map_or(0, Vec::len);
            prop_assert_eq!(checked, phrases.len());
        }
    }

    #[test]
    fn any_text_at_all_is_read_to_its_end(text in "\\PC{0,60}", tail in prop::sample::select(vec![
        "", "[", "#", "\"", "'", "1.", "1,", ".5", "-", "%", "one-", "a third", "\u{2018}x", "1\u{a0}%",
    ])) {
        let summary = written(&format!("{text}{tail}"));
        prop_assert_eq!(summary.refused.is_some(), summary.value == Value::Null);
    }
}
