//! The journal: every crash point, torn lines, hands that changed it, and one writer at a time.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use operator::effect::{
    Due, Entry, JOURNAL, Journal, ReadBack, State, parse_lines, read_journal, recover,
};
use operator::id::{ContentHash, EffectKey};
use proptest::prelude::*;

use super::tracker::{Fate, Tracker, process};
use super::{answer, comment};

/// A journal's bytes, and for every write the length of the journal when it was sent.
fn recorded(fates: &[Fate]) -> (Vec<u8>, Vec<(EffectKey, usize)>) {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join(JOURNAL);
    let tracker = Tracker::new(&["a", "b"], fates);
    let writes = Rc::new(RefCell::new(Vec::new()));
    let (seen, at) = (writes.clone(), path.clone());
    *tracker.at_write.borrow_mut() = Box::new(move |key| {
        let length = std::fs::metadata(&at).unwrap().len();
        seen.borrow_mut()
            .push((*key, usize::try_from(length).unwrap()));
    });
    let requests: Vec<_> = (0..4)
        .map(|unit| comment(unit, ["a", "b"][unit as usize % 2], None))
        .collect();
    for _ in 0..fates.len() + 1 {
        process(place.path(), &tracker, &requests);
    }
    let bytes = std::fs::read(&path).unwrap();
    let writes = writes.borrow().clone();
    (bytes, writes)
}

fn fates() -> impl Strategy<Value = Vec<Fate>> {
    let fate = proptest::sample::select(vec![
        Fate::Fine,
        Fate::DoneUnheard,
        Fate::Lost,
        Fate::DiesBefore,
        Fate::DiesAfter,
        Fate::Busy,
    ]);
    proptest::collection::vec(fate, 0..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Wherever a crash cuts the file: what may have been sent is never due to be sent, unless the
    /// tracker was read after it, or said that it did nothing.
    #[test]
    fn no_crash_point_lets_a_write_be_repeated_blindly(
        fates in fates(),
        cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 40),
    ) {
        let (bytes, writes) = recorded(&fates);
        for cut in cuts {
            let cut = cut.index(bytes.len() + 1);
            let (lines, whole) = parse_lines(&bytes[..cut]).unwrap();
            prop_assert!(whole <= cut && bytes[..cut][whole..].iter().all(|byte| *byte != b'\n'));
            let recovered = recover(lines.iter().map(|line| &line.entry)).unwrap();
            // What the lines say last of each effect, read without the code under test.
            let mut last: BTreeMap<EffectKey, &Entry> = BTreeMap::new();
            for line in &lines {
                if let Some(key) = line.entry.key() {
                    last.insert(*key, &line.entry);
                }
            }
            for (key, length) in &writes {
                if *length > cut {
                    continue;
                }
                let standing = &recovered.standings[key];
                let settled = matches!(last[key], Entry::Failed { .. } | Entry::ReadBack { .. });
                prop_assert!(
                    standing.due(true) != Due::Dispatch || settled,
                    "{:?} after {:?}", standing.state, last[key]
                );
                let told = matches!(last[key], Entry::Failed { .. }) && standing.open == 0;
                prop_assert!(standing.due(false) != Due::Dispatch || told);
            }
            for (key, standing) in &recovered.standings {
                let sent = writes.iter().any(|(sent, length)| sent == key && *length <= cut);
                // A torn `dispatched` line was not on disk, so its write had not begun.
                prop_assert_eq!(standing.attempts > 0, sent);
                let done = matches!(
                    last[key],
                    Entry::ReadBack { found: ReadBack::Done { .. }, .. }
                );
                prop_assert_eq!(matches!(standing.state, State::Done(_)), done);
            }
        }
    }
}

#[test]
fn a_torn_last_line_is_dropped_and_written_over() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join(JOURNAL);
    let request = comment(1, "1", None);
    let intend = || Entry::Intended {
        key: request.key(),
        request: Box::new(request.clone()),
        answer: answer(),
    };
    Journal::open(place.path())
        .unwrap()
        .append(intend())
        .unwrap();
    let whole = std::fs::read(&path).unwrap();
    let mut torn = whole.clone();
    torn.extend_from_slice(b"{\"v\":1,\"seq\":1,\"pre");
    std::fs::write(&path, &torn).unwrap();
    assert_eq!(read_journal(place.path()).unwrap().0.len(), 1);
    let mut journal = Journal::open(place.path()).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), whole);
    journal.append(intend()).unwrap();
    assert_eq!(read_journal(place.path()).unwrap().0.len(), 2);
}

#[test]
fn a_journal_changed_by_hand_is_refused_with_the_line() {
    let (bytes, _) = recorded(&[]);
    let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    let without_third = [&lines[..2], &lines[3..]].concat().concat();
    assert_eq!(parse_lines(&without_third).unwrap_err().0, 3);
    let swapped = [&lines[1..2], &lines[..1], &lines[2..]].concat().concat();
    assert_eq!(parse_lines(&swapped).unwrap_err().0, 1);
    let text = String::from_utf8(bytes.clone()).unwrap();
    let reworded = text.replacen("about 0", "about 9", 1);
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join(JOURNAL), &reworded).unwrap();
    let error = Journal::open(place.path()).unwrap_err().to_string();
    assert!(
        error.contains("line 2") || error.contains("line 1"),
        "{error}"
    );
}

#[test]
fn entries_that_cannot_follow_are_refused() {
    let request = comment(1, "1", None);
    let key = request.key();
    let intended = |key, request: &operator::effect::EffectRequest| Entry::Intended {
        key,
        request: Box::new(request.clone()),
        answer: answer(),
    };
    let dispatched = Entry::Dispatched {
        key,
        attempt: 1,
        fence: 1,
        version: "0".to_owned(),
    };
    let refused = |entries: &[Entry], what: &str| {
        let (line, problem) = recover(entries).unwrap_err();
        assert_eq!(line, entries.len() as u64);
        assert!(problem.contains(what), "{problem}");
    };
    refused(std::slice::from_ref(&dispatched), "never intended");
    refused(
        &[intended(key, &request), Entry::Confirmed { key }],
        "was not sent",
    );
    // The same key for other content.
    refused(
        &[intended(key, &comment(2, "1", None))],
        "not that of the effect",
    );
    // A receipt of another effect.
    let other = comment(2, "1", None);
    let place = tempfile::tempdir().unwrap();
    let outcomes = process(place.path(), &Tracker::new(&["1"], &[]), &[other]).unwrap();
    let receipt = Box::new(outcomes[0].receipt.clone().unwrap());
    let found = ReadBack::Done { receipt };
    refused(
        &[
            intended(key, &request),
            dispatched,
            Entry::ReadBack { key, found },
        ],
        "does not prove",
    );
}

#[test]
fn one_process_at_a_time_writes_a_journal() {
    let place = tempfile::tempdir().unwrap();
    let journal = Journal::open(place.path()).unwrap();
    let error = Journal::open(place.path()).unwrap_err().to_string();
    assert!(
        error.contains("another process does the effects"),
        "{error}"
    );
    drop(journal);
    assert!(Journal::open(place.path()).is_ok());
}

#[test]
fn a_key_is_one_decisions_and_differs_by_all_that_was_decided() {
    let request = comment(1, "1", None);
    assert_eq!(request.key(), comment(1, "1", None).key());
    let mut keys = vec![request.key()];
    let mut changed = |change: &dyn Fn(&mut operator::effect::EffectRequest)| {
        let mut other = request.clone();
        change(&mut other);
        assert!(!keys.contains(&other.key()));
        keys.push(other.key());
    };
    changed(&|request| request.effect.push('x'));
    changed(&|request| request.tracker.push('x'));
    changed(&|request| request.resource.push('x'));
    changed(&|request| request.text = None);
    changed(&|request| request.set = Some("title".to_owned()));
    changed(&|request| request.expects = Some("1".to_owned()));
    changed(&|request| request.unit_id = operator::id::UnitId::new("2"));
    changed(&|request| request.source_hash = ContentHash::of_bytes(b"x"));
    changed(&|request| request.plan_hash = ContentHash::of_bytes(b"x"));
    changed(&|request| request.action = operator::plan::effect::Action::Send);
}

/// Keys stand in journals and trackers for ever: another digest would do every effect again.
#[test]
fn the_key_of_a_request_is_the_same_in_every_version() {
    let golden = "9c79b30fa081c7cc9804c7a14c48f594d07f9f046684e03bbacfbff08a2cb74d";
    assert_eq!(comment(7, "12", Some("3")).key().to_string(), golden);
}
