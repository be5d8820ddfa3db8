//! The store's file between processes: what a killed one leaves, and what others see meanwhile.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use operator::id::FactKey;
use operator::infer::{Answer, UnitUsage};
use operator::store::{
    ContentStore, FactStore, Kind, RedbStore, StoreOptions, StoredAnswers, stats, verify,
};

/// Set for the process that is to be killed: the store's file.
const VICTIM: &str = "STORE_FILE_VICTIM";
/// What the victim writes before the number of a put that has returned.
const RETURNED: &str = "returned ";

pub fn open(path: &Path) -> RedbStore {
    let options = StoreOptions {
        today: || 20_000,
        retention_days: None,
    };
    RedbStore::open(path, options).unwrap()
}

fn key(number: u32) -> [u8; 32] {
    let mut key = [0; 32];
    key[..4].copy_from_slice(&number.to_le_bytes());
    key
}

fn answers(number: u32) -> StoredAnswers {
    StoredAnswers {
        answers: vec![Answer::from_ppm(vec![number, 1_000_000 - number], 990_000).unwrap()],
        cost: UnitUsage {
            prompt_tokens: u64::from(number),
            ..UnitUsage::default()
        },
    }
}

/// Puts without end and says what has returned.
fn put_until_killed(path: &Path) {
    let store = open(path);
    for number in 0..1_000_000 {
        store
            .put(&FactKey::from_bytes(key(number)), &answers(number))
            .unwrap();
        let fact = [(key(number), number.to_le_bytes().to_vec())];
        store.put_bytes(Kind::Fact, &fact).unwrap();
        println!("\n{RETURNED}{number}");
    }
}

#[test]
fn a_killed_process_loses_nothing_that_its_puts_returned_for() {
    if let Some(path) = std::env::var_os(VICTIM) {
        return put_until_killed(Path::new(&path));
    }
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("facts.redb");
    let name = "a_killed_process_loses_nothing_that_its_puts_returned_for";
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args([&format!("{}::{name}", module()), "--exact", "--nocapture"])
        .env(VICTIM, &path)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut last = None;
    let lines = BufReader::new(victim.stdout.take().unwrap()).lines();
    for line in lines {
        // The kill may cut the last line.
        let Some(number) = line.unwrap().strip_prefix(RETURNED).map(str::parse::<u32>) else {
            continue;
        };
        let Ok(number) = number else { break };
        last = last.max(Some(number));
        if number == 20 {
            // Another process reads what the live one has written.
            let seen = stats(&path).unwrap();
            assert!(seen.tables[0].entries > 20 && seen.tables[1].entries > 20);
            victim.kill().unwrap();
        }
    }
    victim.wait().unwrap();
    let last = last.unwrap();
    assert!(last >= 20, "the victim put at least so many: {last}");

    // Looking comes first: the file is as the kill left it.
    let kept = stats(&path).unwrap();
    assert!(kept.tables[0].entries > u64::from(last));
    assert_eq!(verify(&path).unwrap().damaged, []);
    let store = open(&path);
    for number in 0..=last {
        let found = store.get(&FactKey::from_bytes(key(number)));
        assert_eq!(found, Some(answers(number)), "answers {number}");
        let fact = store.get_bytes(Kind::Fact, &key(number));
        assert_eq!(fact, Some(number.to_le_bytes().to_vec()), "fact {number}");
    }
}

/// This module as the test harness names it, without the crate.
fn module() -> &'static str {
    module_path!().split_once("::").unwrap().1
}

#[test]
fn a_file_whose_making_was_cut_off_is_made_anew() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("facts.redb");
    let made = {
        drop(open(&path));
        std::fs::read(&path).unwrap()
    };
    // The first bytes are written last: a process killed before leaves all the rest.
    for cut in [1, 8, 512, made.len()] {
        let mut unfinished = made[..cut].to_vec();
        let first = unfinished.len().min(9);
        unfinished[..first].fill(0);
        std::fs::write(&path, &unfinished).unwrap();
        let store = open(&path);
        store
            .put_bytes(Kind::Fact, &[(key(1), b"kept".to_vec())])
            .unwrap();
        drop(store);
        let held = open(&path).get_bytes(Kind::Fact, &key(1));
        assert_eq!(held.as_deref(), Some(&b"kept"[..]), "cut at {cut}");
        let aside = std::fs::read(home.path().join("facts.redb.unfinished")).unwrap();
        assert!(aside == unfinished, "what was there is kept");
    }
}

#[test]
fn threads_that_put_at_once_all_keep_their_values() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("facts.redb");
    let store = open(&path);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let store = &store;
            scope.spawn(move || {
                for number in (thread * 10)..(thread * 10 + 10) {
                    store
                        .put(&FactKey::from_bytes(key(number)), &answers(number))
                        .unwrap();
                    assert_eq!(
                        store.get(&FactKey::from_bytes(key(number))),
                        Some(answers(number))
                    );
                }
            });
        }
    });
    drop(store);
    assert_eq!(verify(&path).unwrap().entries, 80);
}

#[test]
fn answers_are_exchanged_in_one_step_and_stay_so_on_the_disk() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("answers.redb");
    let named = |number| FactKey::from_bytes(key(number));
    let stored = |yes: u32| StoredAnswers {
        answers: vec![Answer::from_ppm(vec![yes, 1_000_000 - yes], 1_000_000).unwrap()],
        cost: UnitUsage::default(),
    };
    let store = open(&path);
    store.put(&named(1), &stored(1)).unwrap();
    let put = [(named(2), stored(2)), (named(3), stored(3))];
    store.exchange(&put, &[named(1), named(4)]).unwrap();
    drop(store);
    let store = open(&path);
    let found = [1, 2, 3, 4].map(|number| store.get(&named(number)));
    assert_eq!(found, [None, Some(stored(2)), Some(stored(3)), None]);
}
