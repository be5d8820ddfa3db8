//! Single flight: what is wanted at the same time is computed once.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Barrier, mpsc};

use operator::id::FactKey;
use operator::infer::{Answer, UnitUsage};
use operator::store::{
    FactStore, Flight, Flights, Follower, Landed, Lease, MemoryStore, StoredAnswers,
};

fn key(byte: u8) -> FactKey {
    FactKey::from_bytes([byte; 32])
}

fn answers(prompt_tokens: u64) -> StoredAnswers {
    StoredAnswers {
        answers: vec![Answer::from_ppm(vec![700_000, 300_000], 990_000).unwrap()],
        cost: UnitUsage {
            prompt_tokens,
            ..UnitUsage::default()
        },
    }
}

fn lead(flights: &Flights, byte: u8) -> Lease {
    match flights.join(key(byte)) {
        Flight::Lead(lease) => lease,
        Flight::Follow(_) => panic!("somebody leads {byte} already"),
    }
}

fn follow(flights: &Flights, byte: u8) -> Follower {
    match flights.join(key(byte)) {
        Flight::Follow(follower) => follower,
        Flight::Lead(_) => panic!("nobody leads {byte}"),
    }
}

#[test]
fn sixteen_threads_on_one_key_compute_it_once() {
    for _ in 0..50 {
        let (flights, store) = (Flights::new(), MemoryStore::new());
        let (computed, start) = (AtomicU32::new(0), Barrier::new(16));
        let ask = || {
            start.wait();
            if let Some(stored) = store.get(&key(1)) {
                return stored;
            }
            match flights.join(key(1)).wait() {
                Landed::Answered(stored) => stored,
                Landed::Lead(lease) => store.get(&lease.key()).unwrap_or_else(|| {
                    computed.fetch_add(1, Ordering::SeqCst);
                    store.put(&key(1), &answers(7)).unwrap();
                    lease.finish(Some(answers(7)));
                    answers(7)
                }),
            }
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..16).map(|_| scope.spawn(ask)).collect();
            for thread in threads {
                assert_eq!(thread.join().unwrap(), answers(7));
            }
        });
        assert_eq!(computed.load(Ordering::SeqCst), 1);
        assert!(flights.is_empty());
    }
}

#[test]
fn a_lead_that_fails_lets_each_follower_lead_in_turn() {
    let flights = Flights::new();
    let first = lead(&flights, 1);
    let (led, answered) = (AtomicU32::new(0), AtomicU32::new(0));
    let followers: Vec<Follower> = (0..8).map(|_| follow(&flights, 1)).collect();
    std::thread::scope(|scope| {
        for follower in followers {
            scope.spawn(|| match follower.wait() {
                Landed::Answered(stored) => {
                    assert_eq!(stored, answers(3));
                    answered.fetch_add(1, Ordering::SeqCst);
                }
                // The third lead answers; the others fail in the three ways there are.
                Landed::Lead(lease) => match led.fetch_add(1, Ordering::SeqCst) {
                    0 => drop(lease),
                    1 => lease.finish(None),
                    2 => lease.finish(Some(answers(3))),
                    _ => panic!("it was answered"),
                },
            });
        }
        let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _lease = first;
            std::panic::resume_unwind(Box::new("the lead fails"));
        }));
        assert!(failed.is_err());
    });
    assert_eq!(led.into_inner(), 3);
    assert_eq!(answered.into_inner(), 5);
    assert!(flights.is_empty());
}

#[test]
fn keys_do_not_block_each_other() {
    let flights = Flights::new();
    let slow = lead(&flights, 1);
    let waits = follow(&flights, 1);
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || sender.send(waits.wait()).unwrap());
        let quick = lead(&flights, 2);
        let other = follow(&flights, 2);
        quick.finish(Some(answers(2)));
        assert!(matches!(other.wait(), Landed::Answered(stored) if stored == answers(2)));
        assert!(receiver.try_recv().is_err(), "key 1 is still in flight");
        slow.finish(Some(answers(1)));
    });
    assert!(matches!(receiver.recv().unwrap(), Landed::Answered(stored) if stored == answers(1)));
    assert!(flights.is_empty());
}

#[test]
fn nothing_is_left_of_a_flight_that_nobody_wants() {
    let flights = Flights::new();
    drop(lead(&flights, 1));
    assert!(flights.is_empty());

    let (lease, follower) = (lead(&flights, 1), follow(&flights, 1));
    drop(lease);
    assert_eq!(flights.len(), 1, "the follower may still take over");
    drop(follower);
    assert!(flights.is_empty());

    let (lease, follower) = (lead(&flights, 1), follow(&flights, 1));
    drop(follower);
    assert_eq!(flights.len(), 1);
    drop(lease);
    assert!(flights.is_empty());
}

#[test]
fn a_newcomer_may_take_over_and_a_follower_outlives_a_landing() {
    let flights = Flights::new();
    let (lease, late) = (lead(&flights, 1), follow(&flights, 1));
    drop(lease);
    let newcomer = lead(&flights, 1);
    newcomer.finish(Some(answers(1)));
    // The next flight of the same key is another one, and neither disturbs the other.
    let next = lead(&flights, 1);
    let next_follower = follow(&flights, 1);
    assert!(matches!(late.wait(), Landed::Answered(stored) if stored == answers(1)));
    next.finish(Some(answers(2)));
    assert!(matches!(next_follower.wait(), Landed::Answered(stored) if stored == answers(2)));
    assert!(flights.is_empty());
}
