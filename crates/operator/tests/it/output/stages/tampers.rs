//! Changes of paths that verification must find, each at its unit and for what it is.

use operator::Plan;
use operator::fact::{Fact, FieldValue, Status, Step};
use operator::id::{ContentHash, UnitId};
use operator::store::MemoryStore;
use operator::verify::{Kind, Place, RunFiles, Sources, Subject, verify};

use super::super::script::Act;
use super::{STAGES, Told, issues, kept, plan};

/// A run with every kind of end, over issues 0 to 19:
///
/// 1 judged; 2 both and detailed; 3 excluded; 4 abstained by choice; 5 unclear, so judged; 6 reread and
/// decided; 7 reread, and read for the last time; 8 reread; 9 without room, abstains; 11 errored; 12 not run;
/// 13 and 14 of equal text; 15 cancelled.
fn files(plan: &Plan, store: Option<&MemoryStore>) -> RunFiles {
    let mut records = issues(20);
    records[14]["title"] = records[13]["title"].clone();
    let doubtful = [6, 7, 8, 9];
    let script = |told: Told| {
        let told = doubtful.iter().fold(told, |told, unit| {
            told.say("judge", *unit, "blocker", "yes", 20_000)
        });
        told.choose(2, "both", 600_000)
            .say("judge", 2, "blocker", "yes", 600_000)
            .say("detail", 2, "cause", "other", 600_000)
            .choose(3, "unrelated", 600_000)
            .choose(4, "unsure", 600_000)
            .choose(5, "unrelated", 50_000)
            .act("judge", 11, Act::Misshapen)
            .act("judge", 12, Act::Skip)
            .act("judge", 15, Act::Cancel)
    };
    let mut larger = Told::larger(plan).say("reread", 7, "blocker", "yes", 100_000);
    let run = |larger: &mut Told| {
        let home = tempfile::tempdir().unwrap();
        let mut main = script(Told::new(plan));
        let store = store.map(|store| store as _);
        kept(
            home.path(),
            plan,
            &records,
            (&mut main, Some(larger)),
            store,
        )
        .1
    };
    if store.is_some() {
        run(&mut larger);
    }
    run(&mut larger)
}

fn findings(plan: &Plan, files: &RunFiles) -> Vec<(Place, String)> {
    findings_of(plan, files, &files.facts)
}

/// What is wrong in the content of a run with these facts.
fn findings_of(plan: &Plan, files: &RunFiles, facts: &[Fact]) -> Vec<(Place, String)> {
    let subject = Subject {
        plan,
        facts,
        nodes: &files.nodes,
        answer: &files.answer,
    };
    let report = verify(subject, &Sources::Absent(String::from("not wanted")));
    let content = report
        .findings
        .into_iter()
        .filter(|found| found.kind == Kind::Content);
    content.map(|found| (found.place, found.problem)).collect()
}

fn value<'f>(fact: &'f mut Fact, step: usize, field: &str) -> &'f mut FieldValue {
    fact.path[step].values.get_mut(field).unwrap()
}

/// A value that is a sound distribution with another best label.
fn turned(value: &FieldValue) -> FieldValue {
    let mut turned = value.clone();
    let (label, ppm) = turned.alternatives[0].clone();
    turned.alternatives[0] = (value.label.clone(), value.probability_ppm.unwrap() - 2);
    turned
        .alternatives
        .sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    (turned.label, turned.probability_ppm) = (label, Some(ppm + 2));
    // The shares change sides, so that the best stays the best.
    let best = turned
        .alternatives
        .iter()
        .map(|(_, ppm)| *ppm)
        .max()
        .unwrap();
    if turned.probability_ppm < Some(best) {
        let place = turned
            .alternatives
            .iter()
            .position(|(_, ppm)| *ppm == best)
            .unwrap();
        let mine = turned.probability_ppm.replace(best).unwrap();
        turned.alternatives[place].1 = mine;
        turned
            .alternatives
            .sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    }
    turned.margin_ppm = turned
        .probability_ppm
        .map(|best| best - turned.alternatives[0].1);
    turned
}

type Change = fn(&mut Fact);

/// What is changed of which unit, and what has to be said of it.
const CHANGES: &[(&str, u32, &str, Change)] = &[
    ("no path", 1, "lacks a step of route", |fact| {
        fact.path.clear()
    }),
    (
        "a path of a unit that a predicate settled",
        0,
        "before all stages",
        |fact| {
            fact.path.push(Step::bare("route", "judge"));
        },
    ),
    ("an unknown stage", 1, "which is no stage", |fact| {
        "who".clone_into(&mut fact.path[1].stage)
    }),
    ("a stage twice", 1, "twice or after", |fact| {
        let twice = fact.path[1].clone();
        fact.path.push(twice);
    }),
    ("stages in another order", 2, "twice or after", |fact| {
        fact.path.swap(1, 2)
    }),
    (
        "a pass before the one before",
        7,
        "twice or after",
        |fact| fact.path.swap(2, 3),
    ),
    (
        "the selector's step left out",
        1,
        "lacks a step of route",
        |fact| drop(fact.path.remove(0)),
    ),
    (
        "a chosen stage left out",
        2,
        "lacks a step of judge",
        |fact| drop(fact.path.remove(1)),
    ),
    (
        "the last stage left out",
        2,
        "lacks a step of detail",
        |fact| drop(fact.path.pop()),
    ),
    (
        "the last pass left out",
        7,
        "lacks a step of last",
        |fact| drop(fact.path.pop()),
    ),
    (
        "a stage that was not chosen",
        1,
        "went through detail, which did not take it",
        |fact| {
            let mut step = fact.path[1].clone();
            "detail".clone_into(&mut step.stage);
            step.values.remove("blocker");
            fact.path.push(step);
        },
    ),
    (
        "a condition that does not hold",
        2,
        "went through detail, which did not take it",
        |fact| {
            let turned = turned(&fact.path[1].values["blocker"]);
            *value(fact, 1, "blocker") = turned;
        },
    ),
    (
        "a pass that did not want the unit",
        1,
        "went through reread, which did not take it",
        |fact| {
            let mut step = fact.path[1].clone();
            "reread".clone_into(&mut step.stage);
            fact.path.push(step);
        },
    ),
    (
        "a pass without room",
        9,
        "went through reread, which did not take it",
        |fact| {
            let mut step = fact.path[1].clone();
            "reread".clone_into(&mut step.stage);
            fact.path.push(step);
        },
    ),
    (
        "a unit that a pass was to take",
        8,
        "lacks a step of reread",
        |fact| drop(fact.path.pop()),
    ),
    (
        "an option that is none",
        1,
        "which no select stage says",
        |fact| {
            "close it".clone_into(&mut fact.path[0].outcome);
        },
    ),
    (
        "another option than the probabilities give",
        1,
        "\"judge\" is right",
        |fact| {
            "both".clone_into(&mut fact.path[0].outcome);
        },
    ),
    (
        "the unclear rule not followed",
        5,
        "\"judge\" is right",
        |fact| {
            "unrelated".clone_into(&mut fact.path[0].outcome);
        },
    ),
    (
        "a choice with another margin",
        5,
        "no distribution with that margin",
        |fact| {
            value(fact, 0, "route").margin_ppm = Some(400_000);
        },
    ),
    (
        "a choice over other options",
        1,
        "are not the plan's",
        |fact| {
            value(fact, 0, "route").alternatives.pop();
        },
    ),
    (
        "a choice with a reason",
        1,
        "other values than a choice",
        |fact| {
            value(fact, 0, "route").reason_code = Some(String::from("because"));
        },
    ),
    (
        "excluded by choice, called decided",
        3,
        "by its path excluded",
        |fact| {
            fact.status = Status::Decided;
            fact.reason = None;
        },
    ),
    (
        "excluded by choice, at another stage",
        3,
        "by its path at route",
        |fact| {
            "judge".clone_into(&mut fact.stage);
        },
    ),
    (
        "excluded by choice, for another reason",
        3,
        "by its path excluded",
        |fact| {
            fact.reason = Some(String::from("selector route chose unsure"));
        },
    ),
    (
        "excluded by choice, and went on",
        3,
        "went through judge, which did not take it",
        |fact| {
            fact.path.push(Step::bare("judge", "not_run"));
        },
    ),
    (
        "abstained by choice, called excluded",
        4,
        "by its path abstained",
        |fact| {
            fact.status = Status::Excluded;
        },
    ),
    (
        "a value that no stage gave",
        4,
        "other values than its path",
        |fact| {
            fact.values
                .insert(String::from("blocker"), FieldValue::set("no"));
        },
    ),
    (
        "a label that the field has not",
        1,
        "are not the plan's",
        |fact| {
            "maybe".clone_into(&mut value(fact, 1, "blocker").label);
        },
    ),
    (
        "a field that the stage does not ask",
        2,
        "asked was",
        |fact| {
            let extra = fact.path[1].values["blocker"].clone();
            fact.path[2].values.insert(String::from("blocker"), extra);
        },
    ),
    (
        "a field that the stage asks left out",
        1,
        "asked was",
        |fact| {
            fact.path[1].values.remove("cause");
        },
    ),
    (
        "an earlier value kept",
        2,
        "other values than its path",
        |fact| {
            let earlier = fact.path[1].values["cause"].clone();
            fact.values.insert(String::from("cause"), earlier);
        },
    ),
    (
        "a value without a step",
        1,
        "other values than its path",
        |fact| {
            let turned = turned(&fact.values["blocker"]);
            fact.values.insert(String::from("blocker"), turned);
        },
    ),
    (
        "too uncertain, called decided",
        9,
        "by its path abstained",
        |fact| {
            fact.status = Status::Decided;
            fact.reason = None;
        },
    ),
    ("another doubt", 9, "by its path abstained", |fact| {
        fact.reason = Some(String::from(
            "margin of blocker: 1 ppm, the plan wants 50000",
        ));
    }),
    ("another backend", 1, "not by \"small\"", |fact| {
        fact.path[1].backend = Some(String::from("larger"));
    }),
    (
        "the small one where the larger was to answer",
        8,
        "at reread, not by",
        |fact| {
            fact.path[2].backend = Some(String::from("small"));
        },
    ),
    (
        "a fact of another backend than its last step",
        8,
        "by its path by",
        |fact| {
            fact.backend = Some(String::from("small"));
        },
    ),
    ("answered by nobody", 1, "no backend is named", |fact| {
        fact.path[1].backend = None
    }),
    (
        "a cost of a step",
        1,
        "another amount than its steps",
        |fact| {
            fact.path[1].cost.prompt_tokens += 1;
        },
    ),
    (
        "a cost of the fact",
        1,
        "another amount than its steps",
        |fact| {
            fact.cost.micros += 1;
        },
    ),
    (
        "a usage of the fact",
        1,
        "another amount than its steps",
        |fact| {
            fact.usage.cached_tokens -= 1;
        },
    ),
    (
        "a fact called remembered",
        1,
        "not remembered as its steps",
        |fact| fact.remembered = true,
    ),
    (
        "a step called remembered",
        1,
        "another amount than its steps",
        |fact| {
            fact.path[1].remembered = true;
        },
    ),
    (
        "an equal that is later",
        13,
        "no earlier unit with that answer",
        |fact| {
            fact.path[0].same_as = Some(UnitId::new("14"));
        },
    ),
    (
        "an equal that is another",
        14,
        "no earlier unit with that answer",
        |fact| {
            fact.path[0].same_as = Some(UnitId::new("2"));
        },
    ),
    ("an equal with a cost", 14, "and its cost", |fact| {
        fact.path[0].cost.prompt_tokens = 50
    }),
    (
        "an equal of the whole",
        14,
        "has the answer of another unit",
        |fact| {
            fact.same_as = Some(UnitId::new("13"));
        },
    ),
    ("a text shown without a tool", 1, "without a tool", |fact| {
        fact.path[1].observed = Some(ContentHash::from_bytes([7; 32]));
    }),
    (
        "no neighbour where none was wanted",
        1,
        "needed no neighbour",
        |fact| {
            let step = &mut fact.path[1];
            *step = Step::bare("judge", "no neighbour");
        },
    ),
    (
        "an error called an abstention",
        11,
        "by its path errored",
        |fact| {
            fact.status = Status::Abstained;
        },
    ),
    (
        "an errored step in a unit that was decided",
        1,
        "by its path errored",
        |fact| {
            fact.path[1].values.clear();
            "errored".clone_into(&mut fact.path[1].outcome);
        },
    ),
    (
        "an errored step with values",
        1,
        "where it is \"errored\"",
        |fact| {
            "errored".clone_into(&mut fact.path[1].outcome);
        },
    ),
    (
        "a cancellation called not run",
        15,
        "by its path cancelled",
        |fact| {
            fact.status = Status::NotRun;
        },
    ),
    (
        "not run, and values",
        12,
        "other values than its path",
        |fact| {
            fact.values
                .insert(String::from("blocker"), FieldValue::set("no"));
        },
    ),
    (
        "a later pass that was not run, with a backend",
        8,
        "was not asked at reread",
        |fact| {
            let step = &mut fact.path[2];
            step.values.clear();
            "not_run".clone_into(&mut step.outcome);
        },
    ),
    (
        "a decided unit called not run",
        2,
        "by its path decided",
        |fact| {
            fact.status = Status::NotRun;
            fact.reason = Some(String::from("cancelled"));
        },
    ),
    ("never asked, and a decision", 4, "by its path", |fact| {
        "judge".clone_into(&mut fact.stage);
        fact.reason = Some(String::from(
            "not asked: no stage that it took asks blocker",
        ));
    }),
];

#[test]
fn every_change_of_a_path_is_found_at_its_unit() {
    let plan = plan(STAGES);
    let files = files(&plan, None);
    assert_eq!(findings(&plan, &files), Vec::new());
    for (name, unit, wanted, change) in CHANGES {
        let mut facts = files.facts.clone();
        let unit = UnitId::new(&unit.to_string());
        let fact = facts.iter_mut().find(|fact| fact.unit_id == unit).unwrap();
        change(fact);
        let found = findings_of(&plan, &files, &facts);
        let place = Place::Unit(unit);
        assert!(
            found
                .iter()
                .any(|(at, problem)| *at == place && problem.contains(wanted)),
            "{name}: {found:?}"
        );
    }
}

#[test]
fn a_remembered_run_passes_and_its_costs_are_those_of_its_steps() {
    let plan = plan(STAGES);
    let files = files(&plan, Some(&MemoryStore::new()));
    assert_eq!(findings(&plan, &files), Vec::new());
    let of = |unit: &str| {
        files
            .facts
            .iter()
            .position(|fact| fact.unit_id.as_str() == unit)
            .unwrap()
    };
    assert!(files.facts[of("7")].remembered);
    let mut facts = files.facts.clone();
    facts[of("7")].path[2].remembered = false;
    let told = findings_of(&plan, &files, &facts);
    assert!(
        told.iter()
            .any(|(_, problem)| problem.contains("not remembered as its steps")),
        "{told:?}"
    );
}

#[test]
fn one_unit_more_than_a_pass_may_take_is_found() {
    let plan = plan(STAGES);
    let files = files(&plan, None);
    // With room for two, what the third was asked is one too many.
    let text = STAGES.replacen("units_max = 3", "units_max = 2", 1);
    let smaller = super::plan(&text);
    let found = findings(&smaller, &files);
    let place = Place::Unit(UnitId::new("8"));
    let wanted = "went through reread, which did not take it";
    assert!(
        found
            .iter()
            .any(|(at, problem)| *at == place && problem == wanted),
        "{found:?}"
    );
}

#[test]
fn a_path_in_a_run_without_stages_is_found() {
    let plan = plan("");
    let home = tempfile::tempdir().unwrap();
    let mut told = Told::new(&plan);
    let mut files = kept(home.path(), &plan, &issues(3), (&mut told, None), None).1;
    assert!(files.facts.iter().all(|fact| fact.path.is_empty()));
    files.facts[1].path.push(Step::bare("map", "answered"));
    let found = findings(&plan, &files);
    let place = Place::Unit(UnitId::new("1"));
    assert!(
        found
            .iter()
            .any(|(at, problem)| *at == place && problem.contains("names no stages"))
    );
}

#[test]
fn changes_of_steps_at_which_a_tool_was_called_are_found() {
    use super::super::tool_stages;
    let plan = tool_stages::plan("", tool_stages::SPLIT);
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("run");
    let threads = tool_stages::threads();
    tool_stages::go(&plan, threads, (None, Some(&path)), false).unwrap();
    let files = RunFiles::read(&path).unwrap();
    assert_eq!(findings(&plan, &files), Vec::new());
    let changes: &[(&str, u32, &str, Change)] = &[
        ("nothing shown", 2, "or none with one", |fact| {
            fact.path[1].observed = None
        }),
        ("the call left out", 2, "lacks a step of comments", |fact| {
            drop(fact.path.remove(1))
        }),
        (
            "a call that was not chosen",
            1,
            "comments, which did not take it",
            |fact| {
                let mut step = Step::bare("comments", "observed");
                step.observed = Some(ContentHash::from_bytes([7; 32]));
                fact.path.insert(1, step);
            },
        ),
        ("another outcome", 2, "which no tool stage says", |fact| {
            "looked".clone_into(&mut fact.path[1].outcome);
        }),
        ("a value of a call", 2, "has values at comments", |fact| {
            let values = fact.path[2].values.clone();
            fact.path[1].values = values;
        }),
        (
            "parts read by another backend",
            6,
            "not by \"reader\"",
            |fact| {
                fact.path[1].backend = Some(String::from("who"));
            },
        ),
        (
            "what the parts cost",
            6,
            "another amount than its steps",
            |fact| {
                fact.path[1].cost.prompt_tokens += 1;
            },
        ),
        ("a failure of another kind", 7, "is refused for", |fact| {
            "refused".clone_into(&mut fact.path[1].outcome);
        }),
        (
            "a failure called an abstention",
            7,
            "by its path errored",
            |fact| {
                fact.status = Status::Abstained;
            },
        ),
        (
            "a failure that went on",
            7,
            "judge, which did not take it",
            |fact| {
                fact.path.push(Step::bare("judge", "errored"));
            },
        ),
    ];
    for (name, unit, wanted, change) in changes {
        let mut facts = files.facts.clone();
        let unit = UnitId::new(&unit.to_string());
        change(facts.iter_mut().find(|fact| fact.unit_id == unit).unwrap());
        let found = findings_of(&plan, &files, &facts);
        let place = Place::Unit(unit);
        assert!(
            found
                .iter()
                .any(|(at, problem)| *at == place && problem.contains(wanted)),
            "{name}: {found:?}"
        );
    }
}
