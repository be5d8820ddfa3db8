//! Paths of sound runs pass whatever happened in them, and a plan without stages has none.

use operator::fact::Status;
use operator::infer::FailReason;
use operator::verify::{Kind, Place, Sources, Subject, verify};
use proptest::prelude::*;

use super::super::script::Act;
use super::{STAGES, Told, end, go, issues, kept, path, plan, sound, units};

/// What a run may meet: per unit a choice, margins and an act at some stage.
#[derive(Debug, Clone)]
struct Fate {
    choice: usize,
    clear: u32,
    blocker: (usize, u32),
    again: (usize, u32),
    act: Option<(usize, usize)>,
}

fn fate() -> impl Strategy<Value = Fate> {
    let margin = || prop::sample::select(vec![20_000_u32, 60_000, 150_000, 700_000]);
    let value = move || (0..2_usize, margin());
    let act = prop::option::weighted(0.3, (0..5_usize, 0..4_usize));
    (0..4_usize, margin(), value(), value(), act).prop_map(
        |(choice, clear, blocker, again, act)| Fate {
            choice,
            clear,
            blocker,
            again,
            act,
        },
    )
}

const OPTIONS: [&str; 4] = ["judge", "both", "unrelated", "unsure"];
const LABELS: [&str; 2] = ["no", "yes"];
const STAGE_NAMES: [&str; 5] = ["route", "judge", "detail", "reread", "last"];

fn told(mut told: Told, fates: &[Fate]) -> Told {
    for (unit, fate) in (1..).zip(fates) {
        let say = |told: Told, stage: &str, (label, margin): (usize, u32)| {
            told.say(stage, unit, "blocker", LABELS[label], margin)
        };
        told = told.choose(unit, OPTIONS[fate.choice], fate.clear);
        told = say(told, "judge", fate.blocker);
        told = say(told, "reread", fate.again);
        if let Some((stage, act)) = fate.act {
            let act = [
                Act::Fail(FailReason::TooLarge),
                Act::Misshapen,
                Act::Cancel,
                Act::Skip,
            ][act]
                .clone();
            told = told.act(STAGE_NAMES[stage], unit, act);
        }
    }
    told
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_run_with_stages_has_paths_that_follow_from_its_plan(
        fates in prop::collection::vec(fate(), 9),
        lost in prop::option::weighted(0.3, (0..5_usize, 0..4_usize)),
        cancelled in prop::option::weighted(0.3, (0..5_usize, 1..10_u32)),
    ) {
        let plan = plan(STAGES);
        let stop = |mut told: Told| {
            told.breaks = lost.map(|(stage, after)| (STAGE_NAMES[stage].to_owned(), after));
            told.cancels =
                cancelled.map(|(stage, unit)| (STAGE_NAMES[stage].to_owned(), unit.to_string()));
            told
        };
        let mut main = stop(told(Told::new(&plan), &fates));
        let mut larger = stop(told(Told::larger(&plan), &fates));
        // Verifies the directory.
        let home = tempfile::tempdir().unwrap();
        let backends = (&mut main, Some(&mut larger));
        let (_, files) = kept(home.path(), &plan, &issues(10), backends, None);
        prop_assert_eq!(files.facts.len(), 10);
        // No step of it can be left out.
        for (ordinal, fact) in files.facts.iter().enumerate() {
            for step in 0..fact.path.len() {
                let mut facts = files.facts.clone();
                let left_out = facts[ordinal].path.remove(step);
                let subject = Subject { facts: &facts, ..files.subject() };
                let report = verify(subject, &Sources::Absent(String::from("not wanted")));
                let place = Place::Unit(fact.unit_id.clone());
                let told = report.findings.iter().any(|f| f.kind == Kind::Content && f.place == place);
                prop_assert!(told, "{left_out:?} of {fact:?}: {:?}", report.findings);
            }
        }
    }
}

#[test]
fn units_that_an_audit_put_back_keep_the_path_on_which_they_were_missed() {
    let labels = tempfile::tempdir().unwrap();
    let file = labels.path().join("labels.csv");
    let rows: String = (0..10)
        .map(|id| format!("{id},{}\n", ["yes", "no"][id % 2]))
        .collect();
    std::fs::write(&file, format!("number,truth\n{rows}")).unwrap();
    let audit = format!(
        "[audit]\nfield = \"blocker\"\npositive = \"yes\"\ntarget_recall = 0.9\nalpha = 0.05\nseed = \"s\"\nunits_max = 10\nunknown = \"inspect\"\n\
         auditor = {{ labels = {:?}, id = \"number\", label = \"truth\" }}\n{STAGES}",
        file.display().to_string()
    );
    let plan = plan(&audit);
    let mut main = Told::new(&plan)
        .choose(2, "unrelated", 600_000)
        .choose(4, "unsure", 600_000)
        .act("judge", 6, Act::Fail(FailReason::Backend))
        .act("judge", 8, Act::Skip);
    let mut larger = Told::larger(&plan);
    let home = tempfile::tempdir().unwrap();
    let backends = (&mut main, Some(&mut larger));
    let (outcome, files) = kept(home.path(), &plan, &issues(10), backends, None);
    let reason = "missed by route and found by the audit";
    assert_eq!(end(&outcome, 2), (Status::Decided, "audit", Some(reason)));
    assert_eq!(path(&outcome, 2), ["route: unrelated"]);
    // Of a unit that was put back only the fact is new; what is said of its way is still held to it.
    for (unit, wanted) in [(2, "by its path at route"), (8, "by its path at judge")] {
        let mut facts = files.facts.clone();
        facts[unit].reason = Some(String::from("missed by detail and found by the audit"));
        let subject = Subject {
            plan: &plan,
            facts: &facts,
            nodes: &files.nodes,
            answer: &files.answer,
        };
        let report = verify(subject, &Sources::Absent(String::from("not wanted")));
        let found: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
        assert!(
            found.iter().any(|line| line.contains(wanted)),
            "{unit}: {found:?}"
        );
    }
}

#[test]
fn a_unit_beyond_the_budget_has_no_path_and_says_why() {
    let plan = plan(&format!("[budget]\nunits_max = 4\n{STAGES}"));
    let mut larger = Told::larger(&plan);
    let outcome = sound(&plan, &issues(8), &mut Told::new(&plan), Some(&mut larger));
    assert_eq!(path(&outcome, 4).len(), 2);
    let over = (Status::NotRun, "route", Some("budget units_max"));
    assert_eq!(end(&outcome, 5), over);
    assert_eq!(path(&outcome, 5), Vec::<String>::new());
}

#[test]
fn a_simulated_run_shares_no_answer_and_is_found_where_it_says_so() {
    let stages = &STAGES
        [STAGES.find("[[stage]]").unwrap()..STAGES.find("[[stage]]\nname = \"reread\"").unwrap()];
    let plan = plan(stages);
    let mut told = Told::new(&plan);
    told.identity.0.simulated = true;
    let mut records = issues(4);
    records[2]["title"] = records[1]["title"].clone();
    let home = tempfile::tempdir().unwrap();
    let (_, mut files) = kept(home.path(), &plan, &records, (&mut told, None), None);
    assert_eq!(told.asked()[0].1, ["1", "2", "3"]);
    files.facts[2].path[0].same_as = Some(files.facts[1].unit_id.clone());
    let subject = files.subject();
    let report = verify(subject, &Sources::Absent(String::from("not wanted")));
    let found: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
    let wanted = "is simulated, and an answer was";
    assert!(found.iter().any(|line| line.contains(wanted)), "{found:?}");
}

#[test]
fn a_selector_whose_larger_model_is_scripted_makes_the_whole_run_simulated() {
    let plan = plan(STAGES);
    let mut larger = Told::larger(&plan);
    larger.identity.0.simulated = true;
    let partition = units(&plan, &issues(3));
    let mut main = Told::new(&plan);
    let outcome = go(
        &plan,
        &partition,
        (&mut main, Some(&mut larger)),
        None,
        None,
    )
    .unwrap();
    assert!(outcome.answer.simulated);
}

#[test]
fn units_that_are_widened_or_lack_a_relation_pass_and_are_held_to_it() {
    use super::super::units::{plan_text, tickets};
    let adaptive = "[unit]\nkind = \"adaptive\"\n[group]\nby = \"links\"\npattern = '#(\\d+)\\b'";
    let requires = "requires = [\"duplicates\"]";
    let pass = "\n[[pass]]\nname = \"look\"\nunits_max = 1\n\n[[stage]]\nname = \"first\"\nop = \"map\"\n\n\
                [[stage]]\nname = \"beside\"\nop = \"map\"\npass = \"look\"\nwiden = true\n\
                when = { margin_below = { same = 0.05 } }\n";
    for (requires, stages, lacking) in [("", "", 0), (requires, "", 6), ("", pass, 0)] {
        let text = plan_text(adaptive, requires) + stages;
        let plan = operator::Plan::parse(&text, "plan.toml").unwrap();
        // Stages that ask the same under one rubric are one to the backend.
        let stage = &plan.stages.last().unwrap().name;
        let mut told = Told::new(&plan)
            .say(stage, 4, "same", "no", 20_000)
            .say(stage, 5, "same", "no", 20_000);
        let home = tempfile::tempdir().unwrap();
        let (outcome, files) = kept(home.path(), &plan, &tickets(10), (&mut told, None), None);
        let lacks = |reason: &Option<String>| {
            reason
                .as_ref()
                .is_some_and(|reason| reason.starts_with("lacks relation"))
        };
        let mut lack = outcome.facts.iter().filter(|fact| lacks(&fact.reason));
        let Some(fact) = lack.next() else {
            assert_eq!(lacking, 0);
            continue;
        };
        assert_eq!(lack.count() + 1, lacking);
        let mut facts = files.facts.clone();
        let changed = &mut facts[fact.ordinal as usize];
        changed.path.clear();
        let subject = Subject {
            facts: &facts,
            ..files.subject()
        };
        let report = verify(subject, &Sources::Absent(String::from("not wanted")));
        let found: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
        assert!(
            found
                .iter()
                .any(|line| line.contains("lacks a step of map")),
            "{found:?}"
        );
    }
}

#[test]
fn what_selectors_chose_is_recorded_and_replayed() {
    use operator::replay::{Replay, record};
    let first = STAGES.find("[[stage]]").unwrap();
    let last = STAGES.find("[[stage]]\nname = \"detail\"").unwrap();
    let options = STAGES[first..last].replace(", \"detail\"", "");
    let plan = plan(&options);
    let partition = units(&plan, &issues(6));
    let mut told = Told::new(&plan)
        .choose(2, "unrelated", 600_000)
        .choose(3, "unsure", 600_000)
        .choose(4, "unrelated", 50_000)
        .say("judge", 5, "blocker", "yes", 600_000);
    let asked = go(&plan, &partition, (&mut told, None), None, None).unwrap();
    let mut replay = Replay::parse(&record(&asked.facts), "recorded").unwrap();
    let setup = super::super::script::Setup::default();
    let (replayed, _) =
        super::super::script::run_with(&plan, &partition, &mut replay, setup).unwrap();
    for (asked, replayed) in asked.facts.iter().zip(&replayed.facts) {
        assert_eq!(
            (asked.status, &asked.reason),
            (replayed.status, &replayed.reason)
        );
        let steps = |fact: &operator::fact::Fact| -> Vec<(String, String)> {
            let steps = fact.path.iter();
            steps
                .map(|step| (step.stage.clone(), step.outcome.clone()))
                .collect()
        };
        assert_eq!(steps(asked), steps(replayed));
    }
    assert_eq!(
        replayed.answer.selections[0].options,
        asked.answer.selections[0].options
    );
}
