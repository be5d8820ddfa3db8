//! A run over units that are read one at a time: the same answer, and few records at once.

use std::collections::BTreeMap;
use std::fs;
use std::sync::{Arc, Mutex, Weak};

use operator::OperatorError;
use operator::fact::{Fact, Facts, Status};
use operator::fold::{Leaves, Node, fold, record_nodes};
use operator::infer::{CancelFlag, FailReason};
use operator::ops::{FileUnits, Partition, Place, Placed, Unit, Units, reduce};
use operator::plan::Plan;
use operator::record::Record;
use operator::record::SourceArtifact;
use operator::run::{RunOptions, RunOutcome, run_over};
use operator::run_directory::{self, RunDirectory};
use operator::store::{MemoryStore, Store};
use serde_json::json;

use super::script::{Act, Script, Setup, issues, plan, run_with, units};

fn stream(
    plan: &Plan,
    units: &dyn Units,
    script: &mut Script,
    store: Option<&dyn Store>,
    directory: Option<&mut RunDirectory>,
) -> Result<RunOutcome<Facts>, OperatorError> {
    let options = RunOptions {
        limit: None,
        redact: false,
        clock: &|| 0,
        cancel: &CancelFlag::new(),
        larger: None,
        tools: None,
    };
    run_over(plan, units, script, store, options, &mut (), directory)
}

fn acts() -> Script {
    Script::with([
        (2, Act::Fail(FailReason::Schema)),
        (3, Act::Doubt),
        (4, Act::Cancel),
        (5, Act::Skip),
        (6, Act::Misshapen),
    ])
}

#[test]
fn a_run_over_a_file_leaves_the_files_of_a_run_in_memory() {
    let home = tempfile::tempdir().unwrap();
    let mut records = issues(300);
    // Equal texts, of which one is asked.
    records[12] = json!({ "number": 12, "state": "open", "title": "same", "body": "same" });
    records[77] = json!({ "number": 77, "state": "open", "title": "same", "body": "same" });
    let input = home.path().join("issues.json");
    fs::write(&input, serde_json::to_vec(&records).unwrap()).unwrap();
    let plan = plan();
    let mut written: Vec<BTreeMap<String, Vec<u8>>> = Vec::new();
    let mut asked = Vec::new();
    for memory in [true, false] {
        let path = home.path().join(format!("run-{memory}"));
        let mut directory = RunDirectory::create(&path, "0.1.0", json!({})).unwrap();
        let (mut script, store) = (acts(), MemoryStore::default());
        if memory {
            let mut partition = units(&plan, &records);
            partition.source.path = input.display().to_string();
            stream(
                &plan,
                &partition,
                &mut script,
                Some(&store),
                Some(&mut directory),
            )
            .unwrap();
        } else {
            let units = FileUnits::open(&plan, &input, &mut |_| {}).unwrap();
            stream(
                &plan,
                &units,
                &mut script,
                Some(&store),
                Some(&mut directory),
            )
            .unwrap();
        }
        asked.push(script.asked);
        assert_eq!(run_directory::verify_files(&path).unwrap(), [""; 0]);
        let files = fs::read_dir(&path).unwrap().map(|entry| {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            (name, fs::read(entry.path()).unwrap())
        });
        written.push(files.collect());
    }
    assert_eq!(asked[0], asked[1]);
    assert_eq!(written[0].len(), 7, "{:?}", written[0].keys());
    assert_eq!(written[0], written[1]);
}

#[test]
fn nodes_are_written_as_they_would_be_recorded_from_memory() {
    let home = tempfile::tempdir().unwrap();
    let (plan, records) = (plan(), issues(700));
    let mut directory = RunDirectory::create(home.path(), "0.1.0", json!({})).unwrap();
    let outcome = stream(
        &plan,
        &units(&plan, &records),
        &mut acts(),
        None,
        Some(&mut directory),
    );
    let facts: Vec<Fact> = outcome.unwrap().facts.iter().collect();
    let spec = reduce::spec(&plan);
    let leaves = Leaves::arrange(&spec, &facts).unwrap();
    let made = Mutex::new(Vec::new());
    let sink = |node: &Node, _| made.lock().unwrap().push(node.clone());
    let (root, _) = fold(&leaves, &(), &sink).unwrap();
    let nodes = record_nodes(&root.unwrap(), made.into_inner().unwrap(), &leaves).unwrap();
    assert_eq!(run_directory::read_nodes(home.path()).unwrap(), nodes);
    let rows: String = nodes
        .iter()
        .map(|node| serde_json::to_string(node).unwrap() + "\n")
        .collect();
    assert_eq!(
        fs::read_to_string(home.path().join("nodes.jsonl")).unwrap(),
        rows
    );
}

#[test]
fn a_record_that_changes_before_it_is_asked_is_one_error_and_the_rest_stands() {
    /// Hands out another record when it is read again.
    struct Changing(Partition, u32);

    impl Units for Changing {
        fn source(&self) -> &SourceArtifact {
            self.0.source()
        }

        fn len(&self) -> u32 {
            self.0.len()
        }

        fn visit(
            &self,
            visitor: &mut dyn FnMut(Placed) -> Result<(), OperatorError>,
        ) -> Result<(), OperatorError> {
            self.0.visit(visitor)
        }

        fn read(&self, place: Place) -> Result<Unit, OperatorError> {
            let mut unit = self.0.read(place)?;
            if place.ordinal == self.1 {
                unit.source_hash = self.0.units[0].source_hash;
            }
            Ok(unit)
        }
    }

    let plan = plan();
    let changing = Changing(units(&plan, &issues(40)), 17);
    let outcome = stream(&plan, &changing, &mut Script::new(), None, None).unwrap();
    assert_eq!(outcome.answer.coverage.errored, 1);
    assert!(!outcome.answer.complete);
    let fact = outcome.facts.get(17).unwrap();
    let reason = fact.reason.unwrap();
    assert_eq!(fact.status, Status::Errored);
    assert!(
        reason.starts_with("malformed: ") && reason.contains("changed while it was read"),
        "{reason}"
    );
}

/// Makes its records when they are asked for, and counts how many live.
struct Counted {
    plan: Plan,
    units: u32,
    source: SourceArtifact,
    lent: Mutex<(Vec<Weak<Record>>, usize)>,
}

impl Counted {
    fn unit(&self, ordinal: u32) -> Unit {
        let made = units(&self.plan, &[issue(ordinal)]).units.remove(0);
        let unit = Unit { ordinal, ..made };
        let (lent, most) = &mut *self.lent.lock().unwrap();
        lent.retain(|record| record.strong_count() > 0);
        lent.push(Arc::downgrade(&unit.record));
        *most = (*most).max(lent.len());
        unit
    }
}

fn issue(number: u32) -> serde_json::Value {
    json!({
        "number": number,
        "state": if number.is_multiple_of(40) { "open" } else { "closed" },
        "title": format!("login of user {}", number % 4_000),
        "body": "It fails.",
    })
}

impl Units for Counted {
    fn source(&self) -> &SourceArtifact {
        &self.source
    }

    fn len(&self) -> u32 {
        self.units
    }

    fn visit(
        &self,
        visitor: &mut dyn FnMut(Placed) -> Result<(), OperatorError>,
    ) -> Result<(), OperatorError> {
        (0..self.units).try_for_each(|ordinal| {
            let place = Place {
                ordinal,
                bytes: 0,
                start: 0,
            };
            visitor(Placed::Unit(self.unit(ordinal), place))
        })
    }

    fn read(&self, place: Place) -> Result<Unit, OperatorError> {
        Ok(self.unit(place.ordinal))
    }
}

#[test]
fn a_run_over_20_000_records_holds_two_of_them_at_most() {
    let counted = Counted {
        plan: plan(),
        units: 20_000,
        source: units(&plan(), &issues(1)).source,
        lent: Mutex::default(),
    };
    let mut script = Script::new();
    let outcome = stream(&plan(), &counted, &mut script, None, None).unwrap();
    assert_eq!(outcome.answer.coverage.units, 20_000);
    assert_eq!(
        outcome.usage.duplicate_units, 400,
        "as many texts again are met"
    );
    assert_eq!(script.asked_last().len(), 100);
    assert_eq!(
        outcome.answer.coverage.decided + outcome.answer.coverage.abstained,
        500
    );
    let most = counted.lent.lock().unwrap().1;
    assert!(most <= 2, "{most} records lived at once");
}

#[test]
fn packed_facts_are_read_as_they_were_put_in_any_order() {
    let plan = plan();
    let (outcome, _) = run_with(
        &plan,
        &units(&plan, &issues(200)),
        &mut acts(),
        Setup::default(),
    )
    .unwrap();
    let mut wanted = outcome.facts;
    for (place, fact) in wanted.iter_mut().enumerate() {
        // More names than are kept once.
        fact.reason = Some(format!("reason {place}: {}", "é".repeat(place)));
        fact.same_as = (place % 3 == 0).then(|| fact.unit_id.clone());
        fact.columns.insert(
            format!("n{place}"),
            operator::column::ColumnValue::Integer(-1),
        );
        let many = (0..40).map(|n| (format!("label {place}.{n}"), n)).collect();
        if let Some(value) = fact.values.values_mut().next() {
            value.alternatives = many;
        }
    }
    let mut packed = Facts::with_units(wanted.len() as u32);
    assert_eq!(packed.missing(), Some(0));
    for fact in wanted.iter().rev() {
        assert_eq!(packed.get(fact.ordinal), None);
        assert!(packed.put(fact));
        assert!(!packed.put(fact), "a unit has one fact");
    }
    assert_eq!((packed.missing(), packed.len()), (None, wanted.len()));
    assert_eq!(packed.iter().collect::<Vec<_>>(), wanted);
    let mut stranger = wanted[0].clone();
    stranger.ordinal = wanted.len() as u32;
    assert!(!packed.put(&stranger), "it is no unit's");
}
