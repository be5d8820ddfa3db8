//! Units of a file that is read as often as it is needed: the same units, and no others, every time.

use std::fs;
use std::path::PathBuf;

use operator::OperatorError;
use operator::ops::{BadUnit, FileUnits, Partition, Placed, Unit, Units, partition};
use operator::record::read_source;

use super::plan;

struct File {
    path: PathBuf,
    _home: tempfile::TempDir,
}

impl File {
    fn new(text: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("in");
        fs::write(&path, text).unwrap();
        Self { path, _home: home }
    }

    fn in_memory(&self) -> Result<Partition, OperatorError> {
        let (source, records, bad) = read_source(&self.path, None)?;
        partition(&plan(), source, records, bad)
    }
}

fn refused(text: &str) -> String {
    let file = File::new(text);
    let memory = file.in_memory().unwrap_err().to_string();
    let plan = plan();
    match FileUnits::open(&plan, &file.path, &mut |_| {}) {
        Err(error) => assert_eq!(error.to_string(), memory),
        Ok(_) => panic!("{text:?} is no partition: {memory}"),
    }
    memory
}

fn without_place(unit: &Unit) -> Unit {
    let mut unit = unit.clone();
    let mut record = (*unit.record).clone();
    record.place = String::new();
    unit.record = record.into();
    unit
}

#[test]
fn a_file_has_the_units_that_it_has_in_memory_and_each_is_read_again() {
    let jsonl = "{\"id\":1,\"title\":\"a\\ud83d\",\"body\":\"é\"}\r\n\r\n{broken\n {\"id\":\"x\",\"title\":3}\n";
    let json =
        "[{\"id\":1,\"title\":\"a\",\"body\":\"b\"},\n7, {\"id\":\"\u{1f511}\",\"title\":[\"x\"]}]";
    let csv = "id,title,body\r\n1,\"a\r\nb\",c\r\n\r\n2,short\r\n3,d,e\r\n";
    for text in [
        jsonl,
        json,
        csv,
        &format!("\u{feff}{jsonl}"),
        &format!("\u{feff}{json}"),
    ] {
        let file = File::new(text);
        let memory = file.in_memory().unwrap();
        assert!(!memory.bad.is_empty());
        let (plan, mut warned) = (plan(), Vec::new());
        let units =
            FileUnits::open(&plan, &file.path, &mut |bad| warned.push(bad.clone())).unwrap();
        assert_eq!(warned, memory.bad);
        assert_eq!(
            (units.source(), units.len()),
            (&memory.source, memory.len())
        );
        for _ in 0..2 {
            let (mut good, mut bad): (Vec<Unit>, Vec<BadUnit>) = (Vec::new(), Vec::new());
            units
                .visit(&mut |placed| {
                    match placed {
                        Placed::Bad(unit) => bad.push(unit),
                        Placed::Unit(unit, place) => {
                            let again = units.read(place)?;
                            assert_eq!(without_place(&again), without_place(&unit));
                            good.push(unit);
                        }
                    }
                    Ok(())
                })
                .unwrap();
            assert_eq!((good, bad), (memory.units.clone(), memory.bad.clone()));
        }
    }
}

#[test]
fn what_is_no_partition_is_refused_in_the_same_words() {
    let both = "\"title\":\"\",\"body\":\"\"";
    let twice = refused(&format!(
        "{{\"id\":42,{both}}}\n{{\"id\":7}}\n{{\"id\":\"42\"}}\n"
    ));
    assert!(
        twice.contains("line 1 and line 3 have the same id"),
        "{twice}"
    );
    assert!(refused(&format!("[{{\"id\":1,{both}}},{{}}]")).contains("element 2"));
    assert!(refused("id,title\n1,x\n").contains("text field \"body\""));
    // That a field is missing everywhere is told before one record's missing id.
    assert!(refused("[{\"title\":\"\"}]").contains("text field \"body\""));
    assert!(refused("[3]").contains("none of the 1 records"));
    assert!(refused("[]").contains("holds no record"));
    assert!(refused(&format!("[{{\"id\":1,{both}}}\n,{{")).contains("ends too early"));
}

const LINES: &str =
    "{\"id\":1,\"title\":\"a\",\"body\":\"b\"}\n{\"id\":2,\"title\":\"c\",\"body\":\"d\"}\n";

#[test]
fn a_file_that_changes_between_two_readings_is_refused() {
    let longer = format!("{LINES}{{\"id\":3,\"title\":\"e\"}}\n");
    let shorter = &LINES[..LINES.len() / 2];
    for (what, now) in [
        ("a value", LINES.replace('c', "x").as_str()),
        ("an id", LINES.replace('2', "9").as_str()),
        ("a record more", &longer),
        ("a record less", shorter),
        ("cut within a record", &LINES[..LINES.len() - 5]),
        ("white space alone", &format!("{LINES}\n")),
        ("emptied", ""),
    ] {
        let file = File::new(LINES);
        let plan = plan();
        let units = FileUnits::open(&plan, &file.path, &mut |_| {}).unwrap();
        fs::write(&file.path, now).unwrap();
        match units.visit(&mut |_| Ok(())) {
            Err(error @ OperatorError::SourceChanged { .. }) => {
                assert!(error.to_string().contains("run again"), "{error}");
            }
            other => panic!("{what}: {other:?}"),
        }
    }
}

#[test]
fn a_record_that_is_gone_when_it_is_read_again_is_told_of_as_a_change() {
    let file = File::new(LINES);
    let plan = plan();
    let units = FileUnits::open(&plan, &file.path, &mut |_| {}).unwrap();
    let mut places = Vec::new();
    units
        .visit(&mut |placed| {
            if let Placed::Unit(_, place) = placed {
                places.push(place);
            }
            Ok(())
        })
        .unwrap();
    assert_eq!(units.read(places[1]).unwrap().id.as_str(), "2");
    fs::write(&file.path, &LINES[..LINES.len() - 5]).unwrap();
    let gone = units.read(places[1]);
    assert!(
        matches!(gone, Err(OperatorError::SourceChanged { .. })),
        "{gone:?}"
    );
    units.read(places[0]).unwrap();
}

#[test]
fn an_error_of_the_visitor_is_handed_on_as_it_is() {
    let file = File::new(LINES);
    let plan = plan();
    let units = FileUnits::open(&plan, &file.path, &mut |_| {}).unwrap();
    let stop = || OperatorError::UnknownCompletion {
        unit_id: String::from("7"),
    };
    let stopped = units.visit(&mut |_| Err(stop()));
    assert_eq!(stopped.unwrap_err().to_string(), stop().to_string());
}
