//! An answer that depends on a relation: units that show it are asked, others are widened or abstain.

use operator::Plan;
use operator::fact::{Fact, Status};
use operator::infer::{BackendIdentity, Completion};
use operator::infer::{Infer, InferError, InferJob, JobUsage};
use serde_json::Value;

use super::super::script::{Act, Script, Setup, run_with};
use super::{PAIRS, lines, plan_text, read, tickets};

const REQUIRES: &str = "requires = [\"duplicates\"]";

/// Notes the texts that it hands on to a script.
struct Heard {
    script: Script,
    texts: Vec<Vec<String>>,
}

impl Infer for Heard {
    fn identity(&self) -> &BackendIdentity {
        self.script.identity()
    }

    fn infer(
        &mut self,
        job: InferJob<'_>,
        sink: &mut dyn FnMut(Completion),
    ) -> Result<JobUsage, InferError> {
        let texts = (0..job.units.len()).map(|place| job.units.text(place).unwrap().text);
        self.texts.push(texts.collect());
        self.script.infer(job, sink)
    }
}

fn run(unit: &str, requires: &str, records: &[Value], script: Script) -> (Vec<Fact>, Heard) {
    let plan = Plan::parse(&plan_text(unit, requires), "plan.toml").unwrap();
    let mut heard = Heard {
        script,
        texts: Vec::new(),
    };
    let partition = read(&plan, &lines(records));
    let (outcome, _) = run_with(&plan, &partition, &mut heard, Setup::default()).unwrap();
    let counts = outcome.answer.coverage;
    assert_eq!(counts.units as usize, outcome.facts.len());
    (outcome.facts, heard)
}

#[test]
fn records_that_lack_a_relation_abstain_without_being_asked() {
    for unit in ["", "[unit]\nkind = \"field\""] {
        let (facts, heard) = run(unit, REQUIRES, &tickets(9), Script::new());
        assert_eq!(heard.texts.len(), 0, "nobody is asked");
        for fact in facts {
            assert_eq!(fact.status, Status::Abstained);
            assert_eq!(fact.reason.as_deref(), Some("lacks relation duplicates"));
            assert!(fact.values.is_empty() && fact.backend.is_none());
        }
    }
}

#[test]
fn groups_that_show_the_relation_are_asked_and_a_record_alone_is_told_of() {
    let (facts, heard) = run(PAIRS, REQUIRES, &tickets(30), Script::new());
    let (alone, pairs): (Vec<Fact>, Vec<Fact>) =
        facts.into_iter().partition(|fact| fact.members.len() == 1);
    assert_eq!(heard.texts.iter().map(Vec::len).sum::<usize>(), pairs.len());
    assert!(
        pairs
            .iter()
            .all(|fact| fact.status == Status::Decided && fact.members.len() == 2)
    );
    assert!(!pairs.is_empty());
    for fact in alone {
        let told = (fact.status, fact.stage.as_str(), fact.reason.as_deref());
        let wanted = (Status::Excluded, "unit", Some("no neighbour by similarity"));
        assert_eq!(told, wanted);
    }
}

#[test]
fn records_that_may_be_widened_are_asked_beside_their_neighbours_and_abstain_without_any() {
    let unit = "[unit]\nwiden = true\n[group]\nby = \"links\"\npattern = '#(\\d+)\\b'";
    let (facts, heard) = run(unit, REQUIRES, &tickets(10), Script::new());
    let asked: Vec<&str> = facts
        .iter()
        .filter(|fact| fact.status == Status::Decided)
        .map(|fact| fact.unit_id.as_str())
        .collect();
    assert_eq!(asked, ["1", "4", "6", "9"]);
    assert_eq!(heard.texts.concat().len(), 4);
    for fact in &facts {
        match fact.status {
            Status::Decided => assert_eq!(fact.members.len(), 1, "{}", fact.unit_id),
            _ => assert_eq!(
                fact.reason.as_deref(),
                Some("lacks relation duplicates: no neighbour")
            ),
        }
    }
    let first = &heard.texts[0][0];
    assert!(
        first.starts_with("title: ") && first.contains("\ntitle of 4: "),
        "{first}"
    );
    assert!(
        facts[1].evidence[0].field == "title",
        "the record itself is cited"
    );
}

#[test]
fn adaptive_units_are_records_and_only_uncertain_ones_are_read_again_with_neighbours() {
    let unit = "[unit]\nkind = \"adaptive\"\n[group]\nby = \"links\"\npattern = '#(\\d+)\\b'";
    let script = Script::with([(4, Act::Doubt), (5, Act::Doubt)]);
    let (facts, heard) = run(unit, "", &tickets(10), script);
    assert_eq!(
        heard.texts[0].len(),
        8,
        "all are read alone first, two of them as equals of others"
    );
    assert!(heard.texts[0].iter().all(|text| !text.contains(" of 1:")));
    assert_eq!(heard.texts[1].len(), 1, "5 has no neighbour, 4 has one");
    assert!(heard.texts[1][0].contains("\ntitle of 1: "));
    let steps = |fact: &Fact| -> Vec<(String, String)> {
        let steps = fact.path.iter();
        steps
            .map(|step| (step.stage.clone(), step.outcome.clone()))
            .collect()
    };
    let pair = |stage: &str, outcome: &str| (stage.to_owned(), outcome.to_owned());
    assert_eq!(steps(&facts[0]), [pair("map", "answered")]);
    let twice = [pair("map", "answered"), pair("widened", "answered")];
    assert_eq!(steps(&facts[4]), twice);
    assert_eq!(facts[4].members.len(), 1);
    let lonely = [pair("map", "answered"), pair("widened", "no neighbour")];
    assert_eq!(steps(&facts[5]), lonely);
    assert_eq!(facts[5].status, Status::Abstained);
    assert!(
        facts[5]
            .reason
            .as_deref()
            .unwrap()
            .starts_with("margin of same")
    );
}

#[test]
fn adaptive_units_whose_question_needs_a_relation_are_widened_at_once_and_asked_once() {
    let unit = "[unit]\nkind = \"adaptive\"\n[group]\nby = \"links\"\npattern = '#(\\d+)\\b'";
    let script = Script::with([(4, Act::Doubt)]);
    let (facts, heard) = run(unit, REQUIRES, &tickets(10), script);
    assert_eq!(heard.texts.len(), 1, "the same question is not put twice");
    assert_eq!(heard.texts[0].len(), 4);
    assert!(
        heard.texts[0]
            .iter()
            .all(|text| text.contains("\ntitle of "))
    );
    assert_eq!(facts[4].status, Status::Abstained);
    assert_eq!(
        facts[0].reason.as_deref(),
        Some("lacks relation duplicates: no neighbour")
    );
}

#[test]
fn a_chronology_is_asked_of_members_in_the_order_of_time_and_refused_where_nothing_orders_them() {
    let by_key = "[unit]\nkind = \"group\"\n[group]\nby = \"key\"\nfield = \"component\"\nshape = \"cluster\"";
    let order = "requires = [\"order\"]";
    let refused = Plan::parse(&plan_text(by_key, order), "plan.toml").unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("duplicates, contradictions, ranking"),
        "{refused}"
    );
    let mut records = tickets(24);
    records.reverse();
    let ordered = format!("{by_key}\norder_by = \"opened\"");
    let (facts, heard) = run(&ordered, order, &records, Script::new());
    let texts = heard.texts.concat();
    assert_eq!(
        texts.len(),
        facts
            .iter()
            .filter(|fact| fact.status == Status::Decided)
            .count()
    );
    assert!(texts.len() >= 4);
    let opened = |id: &str| {
        let record = records
            .iter()
            .find(|record| record["number"] == id.parse::<u64>().unwrap());
        record.unwrap()["opened"].as_str().unwrap().to_owned()
    };
    for text in texts {
        let heads = text
            .lines()
            .filter_map(|line| line.strip_prefix("title of "));
        let ids: Vec<&str> = heads.map(|head| head.split(':').next().unwrap()).collect();
        let times: Vec<String> = ids.iter().map(|id| opened(id)).collect();
        assert!(ids.len() > 1 && times.is_sorted(), "{ids:?}: {times:?}");
    }
}

#[test]
fn contradictions_are_asked_of_pairs_and_counted_by_label() {
    let (facts, _) = run(
        PAIRS,
        "requires = [\"contradictions\"]",
        &tickets(30),
        Script::new(),
    );
    let decided: Vec<&Fact> = facts
        .iter()
        .filter(|fact| fact.status == Status::Decided)
        .collect();
    assert!(!decided.is_empty());
    for fact in decided {
        assert_eq!(
            (fact.members.len(), fact.evidence.len()),
            (2, 2),
            "{}",
            fact.unit_id
        );
    }
}

#[test]
fn a_further_pass_widens_what_is_unclear_within_its_budget_and_the_rest_stands() {
    let unit = "[unit]\nkind = \"adaptive\"\n[group]\nby = \"links\"\npattern = '#(\\d+)\\b'";
    let stages = "\n[[pass]]\nname = \"look\"\nunits_max = 1\n\n[[stage]]\nname = \"first\"\nop = \"map\"\n\n\
                  [[stage]]\nname = \"beside\"\nop = \"map\"\npass = \"look\"\nwiden = true\n\
                  when = { margin_below = { same = 0.05 } }\n";
    let plan = Plan::parse(&(plan_text(unit, "") + stages), "plan.toml").unwrap();
    let mut heard = Heard {
        script: Script::with([(4, Act::Doubt), (6, Act::Doubt)]),
        texts: Vec::new(),
    };
    let partition = read(&plan, &lines(&tickets(10)));
    let (outcome, _) = run_with(&plan, &partition, &mut heard, Setup::default()).unwrap();
    assert_eq!(heard.script.asked_last(), ["4"], "the pass takes one");
    assert!(heard.texts[1][0].contains("\ntitle of 1: "));
    let members = |id: usize| outcome.facts[id].members.len();
    assert_eq!((members(4), members(6)), (1, 0));
    assert_eq!(outcome.facts[6].path.len(), 1);
    let plain = Plan::parse(&(plan_text("", "") + stages), "plan.toml").unwrap_err();
    assert!(plain.to_string().contains("kind = \"adaptive\""), "{plain}");
}
