//! Summaries in runs: their place, what the writer is given, what cannot be lost, and no text at all.

use operator::answer::Claim;
use operator::compose::{ComposeJob, Composed};
use operator::event::Event;
use operator::infer::{CancelFlag, InferError};
use operator::ops::summary::MATERIAL_BYTES_MAX;
use operator::plan::Plan;
use operator::run::RunOutcome;
use operator::store::MemoryStore;

use super::script::{PLAN, Script, Setup, issues, run_with, units};
use super::writer::{SUMMARY, Writer, claim, composed, partition, plan, run_writing, truth};

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
fn what_stands_apart_is_there_whether_the_text_passes_or_not() {
    for text in ["Nothing to see.", "There are 31337 dissenters."] {
        let (outcome, events, _) = run_writing(&|_| composed(text), None);
        let logged = events.iter().find_map(|line| match &line.event {
            Event::Summary { refused_text, .. } => refused_text.clone(),
            _ => None,
        });
        assert_eq!(
            logged.is_some(),
            text.contains("31337"),
            "only the log has it"
        );
        assert!(logged.is_none_or(|logged| logged == text));
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
    let surest = claim(&outcome, "surest").value[0]["unit_id"].clone();
    let bracketed = format!(
        "surest: the units most probably blocker = yes: [{}], [",
        surest.as_str().unwrap()
    );
    assert!(material.contains(&bracketed), "{material}");
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
            refused_text: None,
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
        larger: None,
        tools: None,
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
