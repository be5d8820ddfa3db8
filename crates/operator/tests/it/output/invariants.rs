//! The ten safety invariants of the operator algebra, one test each, named after it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use operator::OperatorError;
use operator::audit::Finding;
use operator::effect::{EffectStatus, Journal, Leases, Limits, Performer, perform};
use operator::fact::Status;
use operator::infer::{CancelFlag, Completion, FailReason, Infer, InferError, InferJob, JobUsage};
use operator::ops::FileUnits;
use operator::plan::Plan;
use operator::run::{RunOptions, run_over};
use operator::run_directory::{RunDirectory, read_nodes};
use operator::store::MemoryStore;
use operator::tool::Capability;
use operator::verify::verify_directory;
use serde_json::{Value, json};

use super::script::{Act, Script, Setup, issues, plan, run_with, units};
use super::{stopping, tool_stages};
use crate::effects::tracker::{Fate, Tracker, process};
use crate::effects::{answer, comment};

/// A run over a file, with its directory.
fn run_file(
    plan: &Plan,
    home: &Path,
    records: &[Value],
    infer: &mut dyn Infer,
) -> Result<operator::run::RunOutcome<operator::fact::Facts>, OperatorError> {
    let input = home.join("issues.json");
    std::fs::write(&input, serde_json::to_vec(records).unwrap()).unwrap();
    let units = FileUnits::open(plan, &input, &mut |_| {}).unwrap();
    let mut directory = RunDirectory::create(&home.join("run"), "test", json!({})).unwrap();
    let options = RunOptions {
        limit: None,
        redact: false,
        clock: &|| 0,
        cancel: &CancelFlag::new(),
        larger: None,
        tools: None,
    };
    run_over(
        plan,
        &units,
        infer,
        None,
        options,
        &mut (),
        Some(&mut directory),
    )
}

/// Changes the input once it is asked.
struct Meddler<'a> {
    script: Script,
    input: &'a Path,
}

impl Infer for Meddler<'_> {
    fn identity(&self) -> &operator::infer::BackendIdentity {
        self.script.identity()
    }

    fn infer(
        &mut self,
        job: InferJob<'_>,
        sink: &mut dyn FnMut(Completion),
    ) -> Result<JobUsage, InferError> {
        let text = std::fs::read_to_string(self.input).unwrap();
        std::fs::write(self.input, text.replace("Token 5 ", "Taken 5 ")).unwrap();
        let mut shown = Vec::new();
        for place in 0..job.units.len() {
            match job.units.text(place) {
                Ok(text) => shown.push(text),
                Err(problem) => sink(Completion {
                    unit_id: job.units.id(place).clone(),
                    outcome: problem.into(),
                    usage: Default::default(),
                }),
            }
        }
        let job = InferJob {
            units: &shown,
            ..job
        };
        self.script.infer(job, sink)
    }
}

#[test]
fn invariant_1_the_source_artifact_is_immutable_and_hashed_and_every_result_names_its_source_unit()
{
    let home = tempfile::tempdir().unwrap();
    let (plan, records) = (plan(), issues(40));
    let outcome = run_file(&plan, home.path(), &records, &mut Script::new()).unwrap();
    let input = home.path().join("issues.json");
    let bytes = std::fs::read(&input).unwrap();
    let hash = blake3::hash(&bytes).to_hex().to_string();
    assert_eq!(outcome.answer.source.hash.to_string(), hash);
    let source = units(&plan, &records);
    let by_id: BTreeMap<&str, _> = source
        .units
        .iter()
        .map(|unit| (unit.id.as_str(), unit))
        .collect();
    for fact in outcome.facts.iter() {
        assert_eq!(fact.source_hash, by_id[fact.unit_id.as_str()].source_hash);
    }
    let cites = outcome.answer.claims.iter().flat_map(|claim| &claim.cites);
    assert!(cites.clone().count() > 0);
    for cite in cites {
        assert_eq!(cite.source_hash, by_id[cite.unit_id.as_str()].source_hash);
    }
    // A source that moves under the run is told, and gives no fact.
    let other = tempfile::tempdir().unwrap();
    let input = other.path().join("issues.json");
    let mut meddler = Meddler {
        script: Script::new(),
        input: &input,
    };
    let result = run_file(&plan, other.path(), &records, &mut meddler);
    let told = match result {
        Err(error) => error.to_string(),
        Ok(outcome) => {
            let fact = outcome
                .facts
                .iter()
                .find(|fact| fact.unit_id.as_str() == "5")
                .unwrap();
            assert_eq!(fact.status, Status::Errored);
            fact.reason.unwrap()
        }
    };
    assert!(told.contains("changed"), "{told}");
}

#[test]
fn invariant_2_partition_coverage_is_checkable_without_silent_omission_or_duplicate() {
    let home = tempfile::tempdir().unwrap();
    let mut records = issues(30);
    // A record that cannot be read is told, not dropped.
    records[7] = json!("no object");
    let plan = plan();
    let outcome = run_file(&plan, home.path(), &records, &mut Script::new()).unwrap();
    let ordinals: Vec<u32> = outcome.facts.iter().map(|fact| fact.ordinal).collect();
    assert_eq!(ordinals, (0..30).collect::<Vec<_>>());
    assert_eq!(outcome.facts.get(7).unwrap().status, Status::Errored);
    assert_eq!(outcome.answer.coverage.units, 30);
    let (directory, input) = (home.path().join("run"), home.path().join("issues.json"));
    assert_eq!(
        verify_directory(&directory, Some(&input)).unwrap().findings,
        []
    );
    let path = directory.join("facts.jsonl");
    let facts = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = facts.lines().collect();
    let [before, after] = [&lines[..12], &lines[13..]];
    for (edited, part) in [
        ([before, after].concat(), "has no fact"),
        (
            [before, &lines[12..13], &lines[12..13], after].concat(),
            "more than one fact",
        ),
    ] {
        std::fs::write(&path, edited.join("\n") + "\n").unwrap();
        let report = verify_directory(&directory, Some(&input)).unwrap();
        let said: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
        assert!(
            said.iter().any(|said| said.contains(part)),
            "{part}: {said:?}"
        );
    }
    let mut twice = issues(3);
    twice[2]["number"] = json!(1);
    std::fs::write(&input, serde_json::to_vec(&twice).unwrap()).unwrap();
    let error = FileUnits::open(&plan, &input, &mut |_| {})
        .err()
        .map(|error| error.to_string());
    assert!(error.is_some_and(|error| error.contains("number")));
}

#[test]
fn invariant_3_a_selectors_output_is_a_typed_choice_from_an_allowlisted_catalogue() {
    let plan = tool_stages::plan("", "");
    let ran = tool_stages::go(&plan, tool_stages::threads(), (None, None), false).unwrap();
    let options = ["judge", "look", "drop"];
    for fact in &ran.outcome.facts {
        let choice = &fact.path[0];
        assert!(options.contains(&choice.outcome.as_str()), "{choice:?}");
        assert!(
            fact.path
                .iter()
                .all(|step| plan.stage(&step.stage).is_some())
        );
    }
    // What is called, and with what, comes from the record alone.
    let threads = tool_stages::issues();
    let known: BTreeSet<String> = threads
        .iter()
        .map(|issue| issue["thread"].to_string())
        .collect();
    assert!(ran.calls.iter().all(|call| known.contains(call)));
    // A choice that is none of the options is no choice.
    let partition = units(&plan, &tool_stages::issues());
    let mut script = Script::with((1..10).map(|number| (number, Act::Misshapen)));
    let spec = plan.tools[0].clone();
    let allowed = Capability::grant(&spec, std::slice::from_ref(&spec.name));
    assert!(allowed.is_ok());
    let plain = Plan::parse(&without_tool(&plan.text), "plan.toml").unwrap();
    let (outcome, _) = run_with(&plain, &partition, &mut script, Setup::default()).unwrap();
    for fact in &outcome.facts {
        assert_eq!((fact.status, &*fact.stage), (Status::Errored, "route"));
    }
    for (from, to) in [
        ("run = [\"judge\"]", "run = [\"anything\"]"),
        ("run = [\"judge\"]", "run = [\"route\"]"),
        ("then = \"exclude\"", "then = \"delete\""),
    ] {
        assert!(
            Plan::parse(&plan.text.replacen(from, to, 1), "plan.toml").is_err(),
            "{to}"
        );
    }
}

/// The plan of tool stages with a further map stage in the tool's place.
fn without_tool(text: &str) -> String {
    let (before, rest) = text.split_once("[[stage]]\nname = \"comments\"").unwrap();
    let (_, after) = rest.split_once("[[stage]]").unwrap();
    format!("{before}[[stage]]\nname = \"comments\"\nop = \"map\"\n\n[[stage]]{after}")
}

#[test]
fn invariant_4_pure_stages_are_cacheable_and_effects_are_never_replayed_from_an_ambiguous_key() {
    let (plan, memo) = (tool_stages::plan("", ""), MemoryStore::new());
    let go = || tool_stages::go(&plan, tool_stages::threads(), (Some(&memo), None), false).unwrap();
    let (first, again) = (go(), go());
    assert!(again.reader.jobs.is_empty(), "select and map are looked up");
    assert_eq!(
        again.outcome.answer.result_hash,
        first.outcome.answer.result_hash
    );
    for fate in [
        Fate::Lost,
        Fate::DoneUnheard,
        Fate::DiesBefore,
        Fate::DiesAfter,
    ] {
        let place = tempfile::tempdir().unwrap();
        let mut tracker = Tracker::new(&["1"], &[fate]);
        tracker.repeatable = false;
        let requests = [comment(1, "1", None)];
        for _ in 0..3 {
            process(place.path(), &tracker, &requests);
        }
        assert_eq!(tracker.writes.borrow()[&requests[0].key()], 1, "{fate:?}");
    }
    // What says the same of another record, or under another plan, is another effect.
    let request = comment(1, "1", None);
    let mut other = request.clone();
    other.plan_hash = operator::id::ContentHash::of_bytes(b"another plan");
    assert_ne!(request.key(), other.key());
    assert_ne!(request.key(), comment(2, "1", None).key());
}

#[test]
fn invariant_5_capability_lease_idempotency_and_read_back_bind_every_effect() {
    let plan = tool_stages::plan("", "");
    let denied = Capability::grant(&plan.tools[0], &["other".to_owned()]).unwrap_err();
    assert!(
        denied.to_string().contains("--allow issue_comments"),
        "{denied}"
    );
    // Lease: nothing is written to what another holds.
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("leases");
    let other = Leases::new(&directory, "other", 1_000_000).unwrap();
    let held = other.acquire("1", 1_000).unwrap().unwrap();
    let tracker = Tracker::new(&["1"], &[]);
    let requests = [comment(1, "1", None), comment(1, "1", None)];
    let blocked = process(place.path(), &tracker, &requests).unwrap();
    assert!(
        blocked
            .iter()
            .all(|outcome| outcome.status == EffectStatus::NotRun)
    );
    assert!(tracker.writes.borrow().is_empty());
    other.release(held).unwrap();
    // Idempotency: one key, one write, however often it is asked for.
    for _ in 0..2 {
        let done = process(place.path(), &tracker, &requests).unwrap();
        assert!(
            done.iter()
                .all(|outcome| outcome.status == EffectStatus::Done)
        );
    }
    assert_eq!(tracker.done().into_values().collect::<Vec<_>>(), [1]);
    // Read-back: without it there is no receipt, whatever the tracker claims.
    let place = tempfile::tempdir().unwrap();
    let liar = Tracker::new(&["1"], &[Fate::Lies; 8]);
    let mut journal = Journal::open(place.path()).unwrap();
    let leases = Leases::new(&place.path().join("leases"), "run", 30_000).unwrap();
    let outcomes = perform(
        &[comment(1, "1", None)],
        answer(),
        &mut Performer {
            journal: &mut journal,
            leases: &leases,
            effector: &liar,
            cancel: &CancelFlag::new(),
            clock: &|| 1_000,
            pause: &|_| {},
            limits: Limits::default(),
        },
    )
    .unwrap();
    assert_eq!(outcomes[0].status, EffectStatus::Unknown);
    assert!(outcomes[0].receipt.is_none());
}

#[test]
fn invariant_6_reduction_is_bounded_and_records_its_tree_and_lossy_reducers_keep_dissent() {
    let home = tempfile::tempdir().unwrap();
    let text = format!(
        "{}\n[fold]\nfan_in = 4\n[[reduce]]\nname = \"kinds\"\nop = \"clusters\"\nfield = \"cause\"\n\
         taxonomy = \"causes 1\"\nexemplars = 2\ndissent = [\"other\"]\n",
        plan().text
    );
    let plan = Plan::parse(&text, "plan.toml").unwrap();
    let outcome = run_file(&plan, home.path(), &issues(300), &mut Script::new()).unwrap();
    let directory = home.path().join("run");
    let nodes = read_nodes(&directory).unwrap();
    for node in &nodes {
        assert!(
            node.node.children.len() <= 4,
            "{} children",
            node.node.children.len()
        );
    }
    assert!(nodes.len() > 300 / 4, "{} nodes", nodes.len());
    let report = verify_directory(&directory, Some(&home.path().join("issues.json"))).unwrap();
    assert_eq!(report.findings, []);
    let claims = &outcome.answer.claims;
    let clusters = claims.iter().find(|claim| claim.name == "kinds").unwrap();
    let dissent: BTreeSet<String> = outcome
        .facts
        .iter()
        .filter(|fact| fact.status == Status::Decided && fact.values["cause"].label == "other")
        .map(|fact| fact.unit_id.to_string())
        .collect();
    match &clusters.refused {
        // More dissent than is kept refuses the claim; it is never dropped.
        Some(refused) => assert!(refused.contains("dissenting"), "{refused}"),
        None => {
            let told: BTreeSet<String> =
                serde_json::from_value(clusters.value["dissent"].clone()).unwrap();
            assert_eq!(told, dissent);
            assert!(!clusters.cites.is_empty());
        }
    }
}

#[test]
fn invariant_7_error_abstain_cancel_and_negative_remain_distinct() {
    let plan = plan();
    let partition = units(&plan, &issues(40));
    let mut script = Script::with([
        (2, Act::Fail(FailReason::Backend)),
        (3, Act::Doubt),
        (4, Act::Cancel),
        (5, Act::Skip),
    ]);
    let (outcome, _) = run_with(&plan, &partition, &mut script, Setup::default()).unwrap();
    let status = |id: usize| outcome.facts[id].status;
    assert_eq!(
        [status(2), status(3), status(4), status(5), status(10)],
        [
            Status::Errored,
            Status::Abstained,
            Status::Cancelled,
            Status::NotRun,
            Status::Excluded
        ]
    );
    let negative = outcome
        .facts
        .iter()
        .find(|fact| fact.status == Status::Decided && fact.values["blocker"].label == "no");
    assert!(negative.is_some());
    for id in [2, 4, 5, 10] {
        assert!(
            outcome.facts[id].values.is_empty(),
            "no answer stands for none"
        );
    }
    let counts = outcome.answer.coverage;
    assert_eq!(
        (
            counts.errored,
            counts.abstained,
            counts.cancelled,
            counts.not_run,
            counts.excluded
        ),
        (1, 1, 1, 1, 4)
    );
    assert_eq!(counts.units, 40);
    assert!(!outcome.answer.complete);
    let claim = &outcome.answer.claims[0].text;
    assert!(
        claim.contains("without an answer") || claim.contains("not"),
        "{claim}"
    );
}

#[test]
fn invariant_8_stopping_rules_are_declared_against_the_answer_contract_before_execution() {
    let examples = "{ reduce = \"all\", rule = \"examples\", k = 3 }";
    let all = "[[reduce]]\nname = \"all\"\nop = \"set\"\ncontract = \"exhaustive\"\n\
               where = { good = \"yes\" }\n";
    let text = |reduce: &str, rule: &str| {
        let plain = stopping::plan(&[stopping::COUNT], &[&stopping::threshold(4)]).text;
        let head = plain.split("[[reduce]]").next().unwrap().to_owned();
        format!("{head}{reduce}[control]\nstop = [{rule}]\n")
    };
    // Three examples are no answer to "all", and a run cannot be told so later.
    let refused = Plan::parse(&text(all, examples), "plan.toml")
        .unwrap_err()
        .to_string();
    assert!(refused.contains("exhaustive"), "{refused}");
    let some = all.replace("contract = \"exhaustive\"\n", "");
    assert!(Plan::parse(&text(&some, examples), "plan.toml").is_ok());
    // Without a rule every unit is asked; with one the answer says by which it stopped.
    let records = stopping::records(600);
    let declared = stopping::plan(&[stopping::COUNT], &[&stopping::threshold(4)]);
    let plain = declared.text.split("[control]").next().unwrap().to_owned();
    let plain = Plan::parse(&plain, "plan.toml").unwrap();
    let go = |plan: &Plan| {
        let partition = units(plan, &records);
        run_with(plan, &partition, &mut stopping::reader(), Setup::default())
            .unwrap()
            .0
    };
    let (whole, part) = (go(&plain), go(&declared));
    assert_eq!(whole.answer.coverage.decided, 600);
    assert!(whole.answer.stop.is_none());
    assert!(stopping::stopped_after(&part).is_some_and(|after| after < 600));
    assert!(part.answer.complete && part.answer.coverage.not_run > 0);
    assert_eq!(
        part.answer.claims[0].value["at_least"], 4,
        "no number of all is claimed"
    );
}

#[test]
fn invariant_9_random_negatives_and_boundary_cases_receive_independent_read_back() {
    let (plan, outcome) = super::audits::audited(200, 60);
    let report = outcome.answer.audit.as_ref().unwrap();
    assert!(plan.audit.is_some());
    let near = report.strata.iter().filter(|row| row.stratum.near);
    assert!(
        near.clone().count() > 0,
        "boundary cases are a stratum of their own"
    );
    assert!(near.into_iter().all(|row| row.audited > 0));
    let far = report.strata.iter().filter(|row| !row.stratum.near);
    assert!(far.into_iter().all(|row| row.audited > 0));
    assert!(
        report.statistic.missed > 0,
        "some were wrong, and were found"
    );
    for unit in report
        .units
        .iter()
        .filter(|unit| unit.finding == Finding::Missed)
    {
        let fact = outcome
            .facts
            .iter()
            .find(|fact| fact.unit_id == unit.unit_id)
            .unwrap();
        assert_eq!((fact.status, &*fact.stage), (Status::Decided, "audit"));
    }
}

#[test]
fn invariant_10_depth_fan_out_token_tool_time_and_money_budgets_cap_recursive_expansion() {
    let go = |budget: &str, split: &str| {
        let plan = tool_stages::plan(budget, split);
        tool_stages::go(&plan, tool_stages::threads(), (None, None), false).unwrap()
    };
    let not_run = |ran: &tool_stages::Ran, reason: &str| {
        let counts = ran.outcome.answer.coverage;
        assert_eq!(counts.units, 9, "no unit is lost");
        let mut facts = ran.outcome.facts.iter();
        let stopped = facts.any(|fact| {
            fact.status == Status::NotRun
                && fact.reason.as_deref().is_some_and(|r| r.contains(reason))
        });
        assert!(
            stopped,
            "{reason}: {:?}",
            ran.outcome.answer.coverage_by_reason
        );
    };
    not_run(&go("tokens_max = 30", ""), "budget tokens_max");
    not_run(&go("seconds_max = 0", ""), "budget seconds_max");
    not_run(&go("tool_calls_max = 1", ""), "calls");
    let price = "money_max_micros = 1\nprice = { prompt_per_million_micros = 1_000_000 }";
    not_run(&go(price, ""), "budget money_max_micros");
    // A long answer is cut so deep and into so many parts, and no further.
    let split = tool_stages::SPLIT;
    for (tight, part) in [
        (
            split.replace("parts_max = 4", "parts_max = 2"),
            "parts_max is 2",
        ),
        (
            split.replace("part_chars = 40", "part_chars = 3, depth_max = 1"),
            "depth_max",
        ),
    ] {
        let ran = go("", &tight);
        let fact = ran.fact("6");
        assert_eq!((fact.status, &*fact.stage), (Status::Errored, "comments"));
        let reason = fact.reason.as_deref().unwrap_or_default();
        assert!(reason.contains(part), "{reason}");
        assert!(
            ran.reader.jobs.iter().all(|(field, _)| field != "comments"),
            "no part is asked"
        );
    }
    // Further passes have strictly smaller budgets, or the plan is none.
    let passes = |second: u32| {
        let text = tool_stages::plan("", "").text;
        let head = format!(
            "[[pass]]\nname = \"a\"\nunits_max = 4\n[[pass]]\nname = \"b\"\nunits_max = {second}\n"
        );
        Plan::parse(
            &text.replacen("[[tool]]", &format!("{head}[[tool]]"), 1),
            "plan.toml",
        )
    };
    assert!(passes(3).is_ok());
    assert!(
        passes(4)
            .unwrap_err()
            .to_string()
            .contains("less than the 4")
    );
}
