//! The driver: exactly once where a tracker lets it, at most once everywhere, and always told.

use operator::effect::{
    EffectCounts, EffectStatus, Journal, Leases, Limits, Outcome, Performer, perform,
};
use operator::infer::CancelFlag;
use proptest::prelude::*;

use super::tracker::{Fate, Tracker, process, process_with};
use super::{answer, comment};

fn status(outcomes: &[Outcome]) -> Vec<EffectStatus> {
    outcomes.iter().map(|outcome| outcome.status).collect()
}

#[test]
fn a_done_effect_has_a_receipt_of_what_was_read_and_is_never_sent_again() {
    let place = tempfile::tempdir().unwrap();
    let tracker = Tracker::new(&["1"], &[]);
    let requests = [comment(1, "1", None)];
    let outcomes = process(place.path(), &tracker, &requests).unwrap();
    let receipt = outcomes[0].receipt.as_ref().unwrap();
    assert!(receipt.proves(&requests[0]));
    assert_eq!(
        (
            receipt.applied_version.as_str(),
            receipt.observed_version.as_str()
        ),
        ("1", "1")
    );
    let reads = tracker.reads.get();
    assert_eq!(
        process(place.path(), &tracker, &requests).unwrap(),
        outcomes
    );
    assert_eq!(tracker.reads.get(), reads, "the journal knows");
    assert_eq!(tracker.writes.borrow()[&requests[0].key()], 1);
}

#[test]
fn an_effect_done_under_a_lost_journal_is_found_and_not_repeated() {
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let tracker = Tracker::new(&["1"], &[]);
    let requests = [comment(1, "1", Some("0")), comment(2, "1", Some("0"))];
    let done = process(first.path(), &tracker, &requests[..1]).unwrap();
    assert_eq!(status(&done), [EffectStatus::Done]);
    let both = process(second.path(), &tracker, &requests).unwrap();
    assert_eq!(status(&both), [EffectStatus::Done, EffectStatus::Done]);
    assert_eq!(tracker.writes.borrow()[&requests[0].key()], 1);
}

#[test]
fn an_issue_changed_since_it_was_judged_is_left_alone() {
    let place = tempfile::tempdir().unwrap();
    let tracker = Tracker::new(&["1"], &[]);
    tracker.touch("1");
    let outcomes = process(place.path(), &tracker, &[comment(1, "1", Some("0"))]).unwrap();
    assert_eq!(status(&outcomes), [EffectStatus::Conflict]);
    assert!(
        outcomes[0]
            .reason
            .as_ref()
            .unwrap()
            .contains("is at version 1")
    );
    assert!(tracker.writes.borrow().is_empty());

    // Between the read and the write it is the tracker that refuses.
    let place = tempfile::tempdir().unwrap();
    let tracker = Tracker::new(&["1"], &[Fate::Overtaken]);
    let outcomes = process(place.path(), &tracker, &[comment(1, "1", Some("0"))]).unwrap();
    assert_eq!(status(&outcomes), [EffectStatus::Conflict]);
    assert!(tracker.done().is_empty());
}

#[test]
fn an_issue_that_only_this_run_changed_is_still_the_one_that_was_judged() {
    let place = tempfile::tempdir().unwrap();
    let tracker = Tracker::new(&["1"], &[]);
    // The first names no version; what it makes of the issue is known all the same.
    let requests = [
        comment(1, "1", None),
        comment(2, "1", Some("0")),
        comment(3, "1", Some("0")),
    ];
    let outcomes = process(place.path(), &tracker, &requests).unwrap();
    assert_eq!(status(&outcomes), [EffectStatus::Done; 3]);
    tracker.touch("1");
    let later = process(place.path(), &tracker, &[comment(4, "1", Some("0"))]).unwrap();
    assert_eq!(status(&later), [EffectStatus::Conflict]);
}

#[test]
fn a_tracker_that_says_yes_and_does_nothing_gets_no_receipt() {
    let place = tempfile::tempdir().unwrap();
    let tracker = Tracker::new(&["1"], &[Fate::Lies; 20]);
    let outcomes = process(place.path(), &tracker, &[comment(1, "1", None)]).unwrap();
    assert_eq!(status(&outcomes), [EffectStatus::Unknown]);
    assert_eq!(outcomes[0].receipt, None);
    assert_eq!(EffectCounts::of(&outcomes).done, 0);
}

#[test]
fn what_stands_under_the_key_with_other_content_is_a_conflict() {
    let (place, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let tracker = Tracker::new(&["1"], &[]);
    let requests = [comment(1, "1", None)];
    process(place.path(), &tracker, &requests).unwrap();
    tracker.rewrite("1", "about something else");
    let outcomes = process(other.path(), &tracker, &requests).unwrap();
    assert_eq!(status(&outcomes), [EffectStatus::Conflict]);
    assert!(
        outcomes[0]
            .reason
            .as_ref()
            .unwrap()
            .contains("other content")
    );
    assert_eq!(tracker.writes.borrow()[&requests[0].key()], 1);
}

#[test]
fn a_write_of_unknown_fate_is_not_repeated_where_the_tracker_cannot_tell() {
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
        process(place.path(), &tracker, &requests);
        let outcomes = process(place.path(), &tracker, &requests).unwrap();
        let done = matches!(fate, Fate::DoneUnheard | Fate::DiesAfter);
        let wanted = if done {
            EffectStatus::Done
        } else {
            EffectStatus::Unknown
        };
        assert_eq!(status(&outcomes), [wanted], "{fate:?}");
        assert_eq!(tracker.writes.borrow()[&requests[0].key()], 1, "{fate:?}");
    }
}

#[test]
fn cancelling_stops_before_the_next_write_and_still_reads_back_the_last() {
    let place = tempfile::tempdir().unwrap();
    let tracker = Tracker::new(&["1"], &[]);
    let requests = [comment(1, "1", None), comment(2, "1", None)];
    let cancel = std::rc::Rc::new(CancelFlag::new());
    let at_write = cancel.clone();
    *tracker.at_write.borrow_mut() = Box::new(move |_| at_write.cancel());
    let outcomes = process_with(place.path(), &tracker, &requests, &cancel).unwrap();
    assert_eq!(
        status(&outcomes),
        [EffectStatus::Done, EffectStatus::NotRun]
    );
    *tracker.at_write.borrow_mut() = Box::new(|_| {});
    let outcomes = process(place.path(), &tracker, &requests).unwrap();
    assert_eq!(status(&outcomes), [EffectStatus::Done; 2]);
}

#[test]
fn an_unreadable_tracker_is_given_up_once_and_nothing_is_written_to_it() {
    let place = tempfile::tempdir().unwrap();
    let tracker = Tracker::new(&["1"], &[]);
    tracker.unreadable.set(true);
    let requests: Vec<_> = (0..20).map(|unit| comment(unit, "1", None)).collect();
    let outcomes = process(place.path(), &tracker, &requests).unwrap();
    assert_eq!(status(&outcomes), [EffectStatus::NotRun; 20]);
    assert_eq!(tracker.reads.get(), Limits::default().attempts_max + 1);
    assert!(tracker.writes.borrow().is_empty());
}

#[test]
fn refusals_and_missing_issues_are_told_apart_from_what_may_still_be_done() {
    let place = tempfile::tempdir().unwrap();
    let tracker = Tracker::new(&["1"], &[Fate::Refused]);
    let requests = [comment(1, "1", None), comment(2, "none", None)];
    let outcomes = process(place.path(), &tracker, &requests).unwrap();
    assert_eq!(status(&outcomes), [EffectStatus::Refused; 2]);
    assert!(
        outcomes[1]
            .reason
            .as_ref()
            .unwrap()
            .contains("there is no \"none\"")
    );
    assert!(EffectCounts::of(&outcomes).settled());
}

#[test]
fn nothing_is_written_to_an_issue_that_another_run_has_leased() {
    let place = tempfile::tempdir().unwrap();
    let leases = Leases::new(&place.path().join("leases"), "another", 1_000_000).unwrap();
    let _held = leases.acquire("1", 1_000).unwrap().unwrap();
    let tracker = Tracker::new(&["1", "2"], &[]);
    let requests = [comment(1, "1", None), comment(2, "2", None)];
    let outcomes = process(place.path(), &tracker, &requests).unwrap();
    assert_eq!(
        status(&outcomes),
        [EffectStatus::NotRun, EffectStatus::Done]
    );
    assert!(
        outcomes[0]
            .reason
            .as_ref()
            .unwrap()
            .contains("another works on 1")
    );
}

#[test]
fn what_another_run_has_done_is_not_waited_for_though_its_lease_lasts() {
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let tracker = Tracker::new(&["1"], &[]);
    let requests = [comment(1, "1", Some("0"))];
    process(first.path(), &tracker, &requests).unwrap();
    let leases = Leases::new(&second.path().join("leases"), "crashed", u64::MAX / 2).unwrap();
    let _held = leases.acquire("1", 1_000).unwrap().unwrap();
    let outcomes = process(second.path(), &tracker, &requests).unwrap();
    assert_eq!(status(&outcomes), [EffectStatus::Done]);
}

#[test]
fn a_lease_lost_before_the_write_stops_it() {
    let place = tempfile::tempdir().unwrap();
    let tracker = Tracker::new(&["1"], &[Fate::Busy]);
    let directory = place.path().join("leases");
    let thief = Leases::new(&directory, "thief", 1_000_000).unwrap();
    *tracker.at_write.borrow_mut() = Box::new(move |_| {
        let _ = thief.acquire("1", u64::MAX / 2).unwrap().unwrap();
    });
    let mut journal = Journal::open(place.path()).unwrap();
    let leases = Leases::new(&directory, "run", 30_000).unwrap();
    let outcomes = perform(
        &[comment(1, "1", None)],
        answer(),
        &mut Performer {
            journal: &mut journal,
            leases: &leases,
            effector: &tracker,
            cancel: &CancelFlag::new(),
            clock: &|| 1_000,
            pause: &|_| {},
            limits: Limits::default(),
        },
    )
    .unwrap();
    assert_eq!(status(&outcomes), [EffectStatus::NotRun]);
    assert!(
        outcomes[0]
            .reason
            .as_ref()
            .unwrap()
            .contains("lease was lost")
    );
    assert_eq!(tracker.writes.borrow().len(), 1);
    assert!(tracker.done().is_empty());
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        Just(Fate::Fine),
        Just(Fate::DoneUnheard),
        Just(Fate::Lost),
        Just(Fate::Late),
        Just(Fate::DiesBefore),
        Just(Fate::DiesAfter),
        Just(Fate::Busy),
        Just(Fate::Lies),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever happens to writes, and wherever the process dies: with keys every effect is done
    /// once; without them none is done twice, and what is called done was done.
    #[test]
    fn every_effect_is_done_once_with_keys_and_at_most_once_without(
        fates in proptest::collection::vec(fate(), 0..16),
        resources in proptest::collection::vec(0..3_usize, 1..5),
        repeatable: bool,
        judged: bool,
    ) {
        let place = tempfile::tempdir().unwrap();
        let names = ["a", "b", "c"];
        let mut tracker = Tracker::new(&names, &fates);
        tracker.repeatable = repeatable;
        let requests: Vec<_> = (0_u32..)
            .zip(&resources)
            .map(|(unit, at)| comment(unit, names[*at], judged.then_some("0")))
            .collect();
        let mut last = None;
        for _ in 0..fates.len() + 2 {
            last = process(place.path(), &tracker, &requests).or(last);
        }
        let outcomes = last.unwrap();
        let done = tracker.done();
        prop_assert!(done.values().all(|times| *times == 1), "{done:?}");
        for outcome in &outcomes {
            let key = outcome.key.unwrap();
            if outcome.status == EffectStatus::Done {
                prop_assert!(done.contains_key(&key));
            }
            if repeatable {
                prop_assert_eq!(outcome.status, EffectStatus::Done, "{:?}", outcome.reason);
            } else {
                // Busy writes are known to have done nothing; no other is ever repeated.
                let busy = fates.iter().filter(|fate| **fate == Fate::Busy).count();
                let writes = tracker.writes.borrow().get(&key).copied().unwrap_or(0);
                prop_assert!(writes as usize <= 1 + busy);
            }
        }
    }
}
