//! Plans with effects: what is read, what is refused, and which requests they come to.

use std::collections::BTreeMap;

use operator::Plan;
use operator::effect::{EffectStatus, intend};
use operator::fact::{Fact, FieldValue, Status};
use operator::ops::{Partition, partition};
use operator::plan::effect::{Action, Part, Target, Template};
use operator::record::read_bytes;

use crate::input::PLAN;

const EFFECT: &str = r#"
[[effect]]
name = "tell"
kind = "file_tracker"
where = "issues"
action = "comment"
when = { label = { blocker = "yes" }, probability_min = { blocker = 0.8 }, margin_min = { blocker = 0.1 } }
text = "{{{id}}} {record.title}: {field.cause} ({reason.cause})"
version = "{record.meta.version}"
effects_max = 3
"#;

fn plan(effects: &str) -> Result<Plan, String> {
    let text = format!("{PLAN}{effects}");
    Plan::parse(&text, "dir/plan.toml").map_err(|error| error.to_string())
}

/// The refusal of the effect with one piece of its text replaced.
fn refusal(from: &str, to: &str) -> String {
    assert!(EFFECT.contains(from), "{from}");
    plan(&EFFECT.replacen(from, to, 1)).unwrap_err()
}

#[test]
fn an_effect_is_read_with_its_defaults() {
    let plan = plan(EFFECT).unwrap();
    let effect = plan.effect("tell").unwrap();
    assert_eq!(effect.resource, Template(vec![Part::Id]));
    assert_eq!((effect.action, effect.effects_max), (Action::Comment, 3));
    assert_eq!(effect.when.probability_min_ppm["blocker"], 800_000);
    let Target::Files(directory) = &effect.target else {
        panic!("{:?}", effect.target);
    };
    assert_eq!(plan.beside(directory), std::path::Path::new("dir/issues"));
}

#[test]
fn mistakes_in_effects_come_with_place_and_cure() {
    let http = |keys: &str| {
        let with = EFFECT
            .replace("file_tracker", "http_tracker")
            .replace("where = \"issues\"", keys);
        plan(&with)
    };
    for (error, part) in [
        (
            refusal("\"file_tracker\"", "\"file_trakcer\""),
            "did you mean \"file_tracker\"",
        ),
        (
            refusal("blocker = \"yes\"", "bloker = \"yes\""),
            "did you mean \"blocker\"",
        ),
        (
            refusal("blocker = \"yes\"", "blocker = \"maybe\""),
            "has no label \"maybe\"",
        ),
        (refusal("{record.title}", "{title}"), "{title} is no place"),
        (
            refusal("{record.title}", "{field.casue}"),
            "did you mean \"cause\"",
        ),
        (
            refusal("{reason.cause}", "{reason.blocker}"),
            "has no reasons",
        ),
        (refusal("{reason.cause})", "{reason.cause"), "lacks its }"),
        (refusal("{{{id}}}", "}"), "stands alone"),
        (
            refusal("effects_max = 3", "effects_max = 0"),
            "must be from 1 to",
        ),
        (refusal("effects_max = 3", ""), "effects_max"),
        (
            refusal("\"comment\"", "\"comments\""),
            "did you mean `comment`",
        ),
        (refusal("\"comment\"", "\"close\""), "close takes no text"),
        (refusal("\"comment\"", "\"edit\""), "edit needs set"),
        (
            refusal("action = \"comment\"", "action = \"edit\"\nset = \"state\""),
            "no edit may change",
        ),
        (
            refusal("action = \"comment\"", "action = \"send\"\nset = \"title\""),
            "\"edit\" only",
        ),
        (
            refusal("where = \"issues\"", "where = \"issues\"\nhosts = []"),
            "\"http_tracker\" only",
        ),
        (
            refusal("label = { blocker = \"yes\" }, ", ""),
            "when names no label",
        ),
        (
            http("where = \"http://localhost:1\"").unwrap_err(),
            "add hosts = [\"localhost:1\"]",
        ),
        (
            http("where = \"https://a.example/x\"\nhosts = [\"b.example\"]").unwrap_err(),
            "\"a.example\" is not among the allowed hosts",
        ),
        (
            http("where = \"http://a.example\"\nhosts = [\"a.example\"]").unwrap_err(),
            "use https://",
        ),
        (
            http("where = \"http://localhost.evil\"\nhosts = [\"localhost.evil\"]").unwrap_err(),
            "use https://",
        ),
        (
            http("where = \"https://a@b.example\"\nhosts = [\"a@b.example\"]").unwrap_err(),
            "without user",
        ),
        (
            plan(
                &EFFECT
                    .replace("\"comment\"", "\"edit\"\nset = \"title\"")
                    .replace("version =", "# version ="),
            )
            .unwrap_err(),
            "edit overwrites",
        ),
        (
            plan(&format!("{EFFECT}{EFFECT}")).unwrap_err(),
            "two effects are named",
        ),
    ] {
        assert!(error.contains(part), "no {part:?} in {error}");
        assert!(error.starts_with("dir/plan.toml:"), "{error}");
    }
    assert!(http("where = \"http://127.0.0.1:9/t/\"\nhosts = [\"127.0.0.1:9\"]").is_ok());
}

#[test]
fn effects_are_part_of_a_plans_identity_and_their_limit_is_not() {
    let hash = |text: &str| plan(text).unwrap().hash();
    let whole = hash(EFFECT);
    assert_ne!(hash(""), whole);
    assert_eq!(
        hash(&EFFECT.replace("effects_max = 3", "effects_max = 4")),
        whole
    );
    for (from, to) in [
        ("\"tell\"", "\"told\""),
        ("\"issues\"", "\"others\""),
        ("0.8", "0.7"),
        (
            "margin_min = { blocker = 0.1 }",
            "margin_min = { blocker = 0.2 }",
        ),
        ("{record.title}", "{id}"),
        ("{field.cause}", "{field.blocker}"),
        ("\"{record.meta.version}\"", "\"{record.version}\""),
        ("text =", "resource = \"x{id}\"\ntext ="),
        ("\"comment\"", "\"send\""),
    ] {
        assert!(EFFECT.contains(from));
        assert_ne!(hash(&EFFECT.replacen(from, to, 1)), whole, "{from} -> {to}");
    }
}

fn units(plan: &Plan, records: &str) -> Partition {
    let (source, records, bad) = read_bytes("in", records.as_bytes(), None).unwrap();
    partition(plan, source, records, bad).unwrap()
}

/// A fact of each unit: decided, a blocker, as the model gave it.
fn facts(units: &Partition) -> Vec<Fact> {
    let of = |unit: &operator::ops::Unit| {
        let mut fact = Fact::bare(
            unit.id.clone(),
            unit.ordinal,
            unit.source_hash,
            Status::Decided,
            "map",
            None,
        );
        let value = |label: &str, reason: Option<&str>| FieldValue {
            probability_ppm: Some(900_000),
            margin_ppm: Some(800_000),
            label_mass_ppm: Some(1_000_000),
            reason_code: reason.map(str::to_owned),
            ..FieldValue::set(label)
        };
        fact.values = BTreeMap::from([
            ("blocker".to_owned(), value("yes", None)),
            ("cause".to_owned(), value("clock", Some("stated"))),
        ]);
        fact
    };
    units.units.iter().map(of).collect()
}

fn records(count: u32) -> String {
    (0..count)
        .map(|id| {
            let meta = format!("{{\"version\":{}}}", id + 7);
            format!("{{\"id\":{id},\"title\":\"t{id}\",\"body\":\"b\",\"meta\":{meta}}}\n")
        })
        .collect()
}

#[test]
fn only_decided_units_that_are_sure_enough_have_effects_filled_from_what_is_known() {
    let plan = plan(EFFECT).unwrap();
    let units = units(&plan, &records(6));
    let mut facts = facts(&units);
    facts[1].status = Status::Abstained;
    let sure = |fact: &mut Fact, probability, margin| {
        let value = fact.values.get_mut("blocker").unwrap();
        (value.probability_ppm, value.margin_ppm) = (probability, margin);
    };
    sure(&mut facts[2], Some(799_999), Some(800_000));
    sure(&mut facts[3], Some(900_000), Some(99_999));
    sure(&mut facts[4], None, None);
    facts[5].values.get_mut("blocker").unwrap().label = "no".to_owned();
    let batches = intend(&plan, &facts, &units).unwrap();
    let requests = &batches[0].requests;
    let ids: Vec<&str> = requests
        .iter()
        .map(|request| request.unit_id.as_str())
        .collect();
    assert_eq!(ids, ["0", "4"]);
    assert_eq!(requests[0].text.as_deref(), Some("{0} t0: clock (stated)"));
    assert_eq!(requests[1].expects.as_deref(), Some("11"));
    assert_eq!(requests[0].plan_hash, plan.hash());
    assert!(batches[0].refused.is_empty());
}

#[test]
fn what_cannot_be_filled_or_was_simulated_is_refused_and_told() {
    let plan = plan(EFFECT).unwrap();
    let text = records(2) + "{\"id\":2,\"title\":null,\"body\":\"b\",\"meta\":{\"version\":1}}\n";
    let units = units(&plan, &text);
    let mut facts = facts(&units);
    facts[0].simulated = true;
    facts[1].values.get_mut("cause").unwrap().reason_code = None;
    let batch = &intend(&plan, &facts, &units).unwrap()[0];
    assert!(batch.requests.is_empty());
    let reasons: Vec<&str> = batch
        .refused
        .iter()
        .map(|outcome| outcome.reason.as_deref().unwrap())
        .collect();
    assert!(reasons[0].contains("from a recording"), "{reasons:?}");
    assert!(reasons[1].contains("no reason code"), "{reasons:?}");
    assert!(
        reasons[2].contains("no text, number or truth value at \"title\""),
        "{reasons:?}"
    );
    assert!(
        batch
            .refused
            .iter()
            .all(|outcome| outcome.status == EffectStatus::Refused)
    );
}

#[test]
fn more_effects_than_the_plan_allows_are_all_refused() {
    let plan = plan(EFFECT).unwrap();
    let three = units(&plan, &records(3));
    assert_eq!(
        intend(&plan, &facts(&three), &three).unwrap()[0]
            .requests
            .len(),
        3
    );
    let four = units(&plan, &records(4));
    let batch = &intend(&plan, &facts(&four), &four).unwrap()[0];
    assert!(batch.requests.is_empty());
    assert_eq!(batch.refused.len(), 4);
    assert!(
        batch.refused[0]
            .reason
            .as_ref()
            .unwrap()
            .contains("4 effects are due")
    );
}
