//! Every record is covered, every unit has a name of its own, and order does not matter.

use std::collections::{BTreeMap, BTreeSet};

use operator::group::{self, Descriptor};
use operator::ops::{FileUnits, Placed, Unit, UnitKind, Units};
use operator::plan::{Granularity, Plan, Relation, Shape};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{KINDS, PAIRS, arranged, lines, plan, read, tickets, units_of};

/// The records that a unit was made of.
fn members(unit: &Unit) -> Vec<String> {
    match unit.kind {
        UnitKind::Record => vec![unit.id.to_string()],
        _ => unit.neighbourhood.iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn every_record_is_covered_and_every_unit_is_named_once_in_every_kind() {
    let mut text = lines(&tickets(90));
    text.insert_str(text.find('\n').unwrap() + 1, "{ this is no record\n");
    for (kind, unit) in KINDS {
        let plan = plan(unit);
        let placed = arranged(&plan, &read(&plan, &text));
        let (mut ids, mut bad) = (BTreeSet::new(), 0);
        let mut units_of: BTreeMap<String, Vec<Unit>> = BTreeMap::new();
        for (ordinal, placed) in placed.into_iter().enumerate() {
            let (id, found) = match placed {
                Placed::Unit(unit, place) => {
                    assert_eq!(place.ordinal, unit.ordinal, "{kind}");
                    for member in members(&unit) {
                        units_of.entry(member).or_default().push(unit.clone());
                    }
                    (unit.id, unit.ordinal)
                }
                Placed::Bad(unit) => {
                    bad += 1;
                    (unit.id, unit.ordinal)
                }
            };
            assert_eq!(found as usize, ordinal, "{kind}: ordinals tile");
            assert!(ids.insert(id.clone()), "{kind}: two units are called {id}");
        }
        assert_eq!(units_of.len(), 90, "{kind}: no record is lost");
        let fields = if plan.unit.kind == Granularity::Field {
            2
        } else {
            1
        };
        assert_eq!(bad, fields, "{kind}: what cannot be read is counted");
        let once = match &plan.unit.group {
            None => true,
            Some(group) => group.shape == Shape::Cluster,
        };
        for (record, units) in units_of {
            let wanted = if once {
                units.len() == fields
            } else {
                !units.is_empty()
            };
            assert!(
                wanted,
                "{kind}: record {record} is in {} units",
                units.len()
            );
            let alone = units
                .iter()
                .any(|unit| unit.skip.is_some() && unit.kind == UnitKind::Group);
            assert!(
                !alone || units.len() == 1,
                "{kind}: {record} is alone and is not"
            );
        }
    }
}

#[test]
fn every_record_has_one_unit_per_declared_field_and_an_empty_one_says_so() {
    let records = tickets(22);
    let plan = plan("[unit]\nkind = \"field\"\nfields = [\"body\", \"title\"]");
    let units = units_of(&plan, &records);
    let ids: Vec<String> = units.iter().map(|unit| unit.id.to_string()).collect();
    let wanted: Vec<String> = (0..22)
        .flat_map(|number| ["body", "title"].map(|field| format!("{number}#{field}")))
        .collect();
    assert_eq!(ids, wanted);
    let skipped: Vec<(&str, &str)> = units
        .iter()
        .filter_map(|unit| Some((unit.id.as_str(), unit.skip.as_deref()?)))
        .collect();
    let empty = "field body is empty";
    assert_eq!(skipped, [("10#body", empty), ("21#body", empty)]);
    let shown = operator::text::render(&plan, &units[2]).unwrap();
    assert!(shown.text.starts_with("body: The "), "{}", shown.text);
    assert!(
        !shown.text.contains("title"),
        "one field is shown: {}",
        shown.text
    );
}

#[test]
fn a_change_of_one_record_changes_the_hashes_of_its_own_units_alone() {
    let before = tickets(40);
    let mut after = before.clone();
    after[13]["body"] = json!("Something else entirely.");
    for (kind, unit) in KINDS {
        let plan = plan(unit);
        let hashes = |records: &[Value]| -> BTreeMap<String, (Vec<String>, String)> {
            units_of(&plan, records)
                .into_iter()
                .map(|unit| {
                    (
                        unit.id.to_string(),
                        (members(&unit), unit.source_hash.to_string()),
                    )
                })
                .collect()
        };
        let (before, after) = (hashes(&before), hashes(&after));
        for (id, (members, hash)) in &after {
            let Some((_, was)) = before.get(id) else {
                continue;
            };
            let touched = match plan.unit.kind {
                Granularity::Field => id == "13#body",
                _ => members.iter().any(|member| member == "13"),
            };
            assert_eq!(hash != was, touched, "{kind}: {id}");
        }
    }
}

/// A record is read again without the lines before it, so that its place is told in another way.
fn without_place(mut unit: Unit) -> Unit {
    let mut record = operator::record::Record::clone(&unit.record);
    record.place.clear();
    unit.record = record.into();
    unit
}

#[test]
fn a_unit_that_is_read_again_is_the_one_that_was_handed_out_from_memory_and_from_a_file() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("tickets.jsonl");
    let text = lines(&tickets(60));
    std::fs::write(&path, &text).unwrap();
    for (kind, unit) in KINDS {
        let plan = plan(unit);
        let file = FileUnits::open(&plan, &path, &mut |_| {}).unwrap();
        let memory = read(&plan, &text);
        let of_memory = arranged(&plan, &memory);
        let made = group::arrange(&plan, &file).unwrap();
        let units: &dyn Units = made.as_deref().unwrap_or(&file);
        for (placed, other) in arranged(&plan, &file).into_iter().zip(of_memory) {
            let (Placed::Unit(unit, place), Placed::Unit(other, _)) = (placed, other) else {
                panic!("{kind}: all can be read");
            };
            assert_eq!(
                without_place(units.read(place).unwrap()),
                without_place(unit.clone()),
                "{kind}"
            );
            assert_eq!(
                (unit.id, unit.source_hash),
                (other.id, other.source_hash),
                "{kind}"
            );
        }
    }
}

#[test]
fn a_file_that_changes_after_its_groups_were_found_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("tickets.jsonl");
    let mut records = tickets(30);
    std::fs::write(&path, lines(&records)).unwrap();
    let plan = plan(PAIRS);
    let file = FileUnits::open(&plan, &path, &mut |_| {}).unwrap();
    let made = group::arrange(&plan, &file).unwrap().unwrap();
    records[2]["title"] = json!(records[2]["title"].as_str().unwrap().to_uppercase());
    std::fs::write(&path, lines(&records)).unwrap();
    let visited = made.visit(&mut |_| Ok(()));
    let error = visited.unwrap_err().to_string();
    assert!(error.contains("tickets.jsonl"), "{error}");
}

#[test]
fn a_descriptor_names_unit_kind_hash_neighbourhood_and_required_relations() {
    let text = super::plan_text(PAIRS, "requires = [\"duplicates\"]");
    let plan = Plan::parse(&text, "plan.toml").unwrap();
    let units = units_of(&plan, &tickets(12));
    let pair = units.iter().find(|unit| unit.skip.is_none()).unwrap();
    let told = serde_json::to_value(Descriptor::of(&plan, pair)).unwrap();
    let ids: Vec<&str> = pair.neighbourhood.iter().map(|id| id.as_str()).collect();
    assert_eq!(
        told,
        json!({
            "unit_id": ids.join("+"), "unit_kind": "group", "source_hash": pair.source_hash,
            "neighborhood": ids, "required_relations": ["duplicates"], "lacking": [], "skip": null,
        })
    );
    let alone = Plan::parse(
        &super::plan_text("", "requires = [\"duplicates\"]"),
        "plan.toml",
    )
    .unwrap();
    let record = &units_of(&alone, &tickets(1))[0];
    assert_eq!(
        Descriptor::of(&alone, record).lacking,
        [Relation::Duplicates]
    );
}

#[test]
fn a_cluster_shows_its_members_in_the_order_of_time_and_a_part_says_that_it_is_one() {
    let (_, unit) = KINDS[5];
    let units = units_of(&plan(unit), &tickets(60));
    let clusters: Vec<&Unit> = units.iter().filter(|unit| unit.skip.is_none()).collect();
    assert!(
        clusters.len() > 4,
        "each component is cut: {}",
        clusters.len()
    );
    for cluster in clusters {
        let members = cluster.record.fields["members"].as_array().unwrap();
        let times: Vec<&str> = members
            .iter()
            .map(|m| m["opened"].as_str().unwrap())
            .collect();
        assert!(times.is_sorted(), "{}: {times:?}", cluster.id);
        let components: BTreeSet<&str> = members
            .iter()
            .map(|m| m["component"].as_str().unwrap())
            .collect();
        assert_eq!(components.len(), 1, "{}", cluster.id);
        assert!(cluster.record.fields["unit"]["parts"].as_u64().unwrap() > 1);
    }
    let alone = units.iter().filter(|unit| unit.skip.is_some());
    let reasons: BTreeSet<&str> = alone.map(|unit| unit.skip.as_deref().unwrap()).collect();
    assert_eq!(
        reasons,
        BTreeSet::from(["no other record has its component"])
    );
}

#[test]
fn links_make_pairs_in_both_directions_and_only_of_records_that_are_there() {
    let mut records = tickets(10);
    records[7]["body"] = json!("Like #9 and #4, unlike #7 and #999.");
    let (_, unit) = KINDS[6];
    let units = units_of(&plan(unit), &records);
    let pairs: Vec<&str> = units
        .iter()
        .filter(|unit| unit.skip.is_none())
        .map(|unit| unit.id.as_str())
        .collect();
    assert_eq!(pairs, ["1+4", "4+7", "6+9", "7+9"]);
}

#[test]
fn a_field_that_no_record_has_and_a_time_that_is_none_are_told_of_before_anything_is_asked() {
    let text = lines(&tickets(5));
    let refused = |unit: &str| {
        let plan = plan(unit);
        let (source, records, bad) =
            operator::record::read_bytes("tickets.jsonl", text.as_bytes(), None).unwrap();
        let partition = operator::ops::partition(&plan, source, records, bad);
        let arranged = partition.and_then(|units| group::arrange(&plan, &units).map(|_| ()));
        arranged.unwrap_err().to_string()
    };
    let by_key = "[unit]\nkind = \"group\"\n[group]\nby = \"key\"\nfield = ";
    let told = refused(&format!("{by_key}\"komponent\""));
    assert!(
        told.contains("\"komponent\"") && told.contains("component"),
        "{told}"
    );
    let told = refused(&format!("{by_key}\"component\"\norder_by = \"title\""));
    assert!(
        told.contains("\"title\"") && told.contains("order_by"),
        "{told}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_order_of_records_leaves_groups_as_they_are(order in Just((0..50_usize).collect::<Vec<_>>()).prop_shuffle()) {
        let records = tickets(50);
        let shuffled: Vec<Value> = order.iter().map(|place| records[*place].clone()).collect();
        for (kind, unit) in KINDS.into_iter().filter(|(_, unit)| unit.contains("[group]")) {
            let plan = plan(unit);
            let told = |records: &[Value]| -> Vec<(String, String, u32)> {
                units_of(&plan, records)
                    .into_iter()
                    .map(|unit| (unit.id.to_string(), unit.source_hash.to_string(), unit.ordinal))
                    .collect()
            };
            prop_assert_eq!(told(&records), told(&shuffled), "{}", kind);
        }
    }
}
