//! Leases: one owner at a time, between threads and processes; expiry; fencing numbers.

use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use operator::effect::Leases;

const TURNS: u64 = 25;

/// Adds to a number in a file, which goes wrong wherever two do it at a time.
fn count_under_lease(directory: &Path, owner: &str) {
    let leases = Leases::new(&directory.join("leases"), owner, 600_000).unwrap();
    let now = || {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_millis() as u64
    };
    let file = directory.join("count");
    for _ in 0..TURNS {
        let lease = loop {
            match leases.acquire("issue", now()).unwrap() {
                Ok(lease) => break lease,
                Err(_) => std::thread::yield_now(),
            }
        };
        let count: u64 = std::fs::read_to_string(&file).unwrap().parse().unwrap();
        std::thread::yield_now();
        std::fs::write(&file, (count + 1).to_string()).unwrap();
        // No lease is without its own number.
        assert_eq!(lease.fence, count + 1);
        leases.release(lease).unwrap();
    }
}

#[test]
fn one_thread_at_a_time_holds_a_lease() {
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("count"), "0").unwrap();
    std::thread::scope(|scope| {
        for number in 0..4 {
            let path = place.path();
            scope.spawn(move || count_under_lease(path, &format!("thread {number}")));
        }
    });
    let count = std::fs::read_to_string(place.path().join("count")).unwrap();
    assert_eq!(count, (4 * TURNS).to_string());
}

#[test]
fn one_process_at_a_time_holds_a_lease() {
    // This test is also the program of the processes that it starts.
    const CHILD: &str = "OPERATOR_TEST_LEASES";
    if let Some(directory) = std::env::var_os(CHILD) {
        let owner = format!("process {}", std::process::id());
        return count_under_lease(Path::new(&directory), &owner);
    }
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("count"), "0").unwrap();
    let name = "effects::leases::one_process_at_a_time_holds_a_lease";
    let children: Vec<_> = (0..3)
        .map(|_| {
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", name])
                .env(CHILD, place.path())
                .stdout(std::process::Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let count = std::fs::read_to_string(place.path().join("count")).unwrap();
    assert_eq!(count, (3 * TURNS).to_string());
}

#[test]
fn a_lease_ends_when_it_expires_and_its_number_is_overtaken() {
    let place = tempfile::tempdir().unwrap();
    let first = Leases::new(place.path(), "first", 100).unwrap();
    let second = Leases::new(place.path(), "second", 100).unwrap();
    let mut old = first.acquire("issue", 1_000).unwrap().unwrap();
    let busy = second.acquire("issue", 1_099).unwrap().unwrap_err();
    assert_eq!((busy.owner.as_str(), busy.expires_ms), ("first", 1_100));
    // Another resource is free.
    assert!(second.acquire("other", 1_000).unwrap().is_ok());
    // A lease that is renewed lasts.
    assert!(first.renew(&mut old, 1_090).unwrap());
    assert!(second.acquire("issue", 1_150).unwrap().is_err());
    let new = second.acquire("issue", 1_190).unwrap().unwrap();
    assert!(new.fence > old.fence);
    assert!(!first.renew(&mut old, 1_191).unwrap());
    // Giving back what is no longer held takes nothing from its new owner.
    first.release(old).unwrap();
    assert!(first.acquire("issue", 1_200).unwrap().is_err());
    second.release(new).unwrap();
    assert!(first.acquire("issue", 1_200).unwrap().is_ok());
}

#[test]
fn an_owner_that_comes_back_from_a_crash_takes_its_lease_up_with_a_higher_number() {
    let place = tempfile::tempdir().unwrap();
    let owner = || Leases::new(place.path(), "run", 1_000_000).unwrap();
    let before = owner().acquire("issue", 1_000).unwrap().unwrap();
    let after = owner().acquire("issue", 1_001).unwrap().unwrap();
    assert!(after.fence > before.fence);
}

#[test]
fn a_lease_file_that_is_none_is_named_with_its_cure() {
    let place = tempfile::tempdir().unwrap();
    let leases = Leases::new(place.path(), "run", 100).unwrap();
    let lease = leases.acquire("issue", 0).unwrap().unwrap();
    leases.release(lease).unwrap();
    for entry in std::fs::read_dir(place.path()).unwrap() {
        std::fs::write(entry.unwrap().path(), "no lease").unwrap();
    }
    let error = leases.acquire("issue", 0).unwrap_err().to_string();
    assert!(
        error.contains("is no lease") && error.contains("remove it"),
        "{error}"
    );
}
