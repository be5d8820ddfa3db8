//! What is seen of a store's file, what a check finds in it, and what a collection removes.

use std::path::{Path, PathBuf};

use operator::id::{FactKey, hex};
use operator::infer::{Answer, UnitUsage};
use operator::store::{
    ContentStore, FactStore, GcOptions, GcReport, Kind, RedbStore, StoreOptions, StoredAnswers,
    TableStats, gc, stats, verify,
};
use redb::{Builder, ConcurrencyMode, ReadableDatabase};

const GC: GcOptions = GcOptions {
    older_than_days: None,
    today: 120,
    damaged: true,
    dry_run: false,
};

fn open(path: &Path, today: fn() -> u32) -> RedbStore {
    let options = StoreOptions {
        today,
        retention_days: None,
    };
    RedbStore::open(path, options).unwrap()
}

fn answers() -> StoredAnswers {
    StoredAnswers {
        answers: vec![Answer::from_ppm(vec![700_000, 300_000], 990_000).unwrap()],
        cost: UnitUsage::default(),
    }
}

fn fact(byte: u8) -> Vec<u8> {
    [b"fact number ".as_slice(), &[byte; 4_000]].concat()
}

/// Answers 1 to 9 and fact 1 on day 100, facts 2 to 199 on day 110.
fn filled() -> (tempfile::TempDir, PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("facts.redb");
    let store = open(&path, || 100);
    for byte in 1..10 {
        store
            .put(&FactKey::from_bytes([byte; 32]), &answers())
            .unwrap();
    }
    store.put_bytes(Kind::Fact, &[([1; 32], fact(1))]).unwrap();
    drop(store);
    let later: Vec<_> = (2..200).map(|byte| ([byte; 32], fact(byte))).collect();
    open(&path, || 110).put_bytes(Kind::Fact, &later).unwrap();
    (home, path)
}

/// Flips one bit of the file at the only place where these bytes lie.
fn flip(path: &Path, bytes: &[u8]) {
    let mut file = std::fs::read(path).unwrap();
    let places: Vec<usize> = (0..file.len() - bytes.len())
        .filter(|&at| file[at..].starts_with(bytes))
        .collect();
    assert_eq!(places.len(), 1);
    file[places[0] + bytes.len() - 1] ^= 1;
    std::fs::write(path, file).unwrap();
}

#[test]
fn stats_count_entries_payload_and_days() {
    let (_home, path) = filled();
    let found = stats(&path).unwrap();
    let json = serde_json::to_vec(&answers()).unwrap().len() as u64;
    let table = |table, entries, payload_bytes, oldest_day, newest_day| TableStats {
        table,
        entries,
        payload_bytes,
        oldest_day,
        newest_day,
    };
    assert_eq!(
        found.tables,
        [
            table("answers v2", 9, 9 * json, Some(100), Some(100)),
            table("facts v1", 199, 199 * 4_012, Some(100), Some(110)),
            table("nodes v1", 0, 0, None, None),
            table("texts v1", 0, 0, None, None),
            table("observations v1", 0, 0, None, None),
        ]
    );
    assert_eq!(found.file_bytes, std::fs::metadata(&path).unwrap().len());
}

#[test]
fn a_flipped_bit_is_found_missed_and_removed() {
    let (_home, path) = filled();
    let sound = verify(&path).unwrap();
    assert_eq!((sound.entries, sound.damaged.len()), (208, 0));
    flip(&path, &fact(77));
    let found = verify(&path).unwrap();
    assert_eq!(found.entries, 208);
    let damage = &found.damaged[0];
    assert_eq!((found.damaged.len(), damage.table), (1, "facts v1"));
    assert_eq!(damage.key, hex(&[77; 32]));
    assert!(damage.problem.contains("checksum"), "{}", damage.problem);
    let store = open(&path, || 120);
    assert!(!store.has(Kind::Fact, &[77; 32]));
    assert!(store.has(Kind::Fact, &[78; 32]));
    drop(store);
    let spared = GcOptions {
        damaged: false,
        older_than_days: Some(1_000),
        ..GC
    };
    assert_eq!(gc(&path, spared).unwrap().removed[1].damaged, 0);
    assert_eq!(verify(&path).unwrap(), found);
    let report = gc(&path, GC).unwrap();
    assert_eq!(
        (report.removed[1].damaged, report.removed[1].expired),
        (1, 0)
    );
    let clean = verify(&path).unwrap();
    assert_eq!((clean.entries, clean.damaged.len()), (207, 0));
}

#[test]
fn collection_removes_by_age_and_shrinks_the_file() {
    let (_home, path) = filled();
    let options = GcOptions {
        older_than_days: Some(10),
        ..GC
    };
    let before = std::fs::read(&path).unwrap();
    let dry = gc(
        &path,
        GcOptions {
            dry_run: true,
            ..options
        },
    )
    .unwrap();
    let expired = |report: &GcReport| -> Vec<u64> {
        report.removed.iter().map(|table| table.expired).collect()
    };
    assert_eq!(expired(&dry), [9, 1, 0, 0, 0]);
    assert_eq!(dry.bytes_freed(), 0);
    assert!(dry.removed[1].bytes > 4_012);
    assert!(
        std::fs::read(&path).unwrap() == before,
        "a dry run changes nothing"
    );

    let report = gc(&path, options).unwrap();
    assert_eq!(report.removed, dry.removed);
    assert_eq!(verify(&path).unwrap().entries, 198);
    assert_eq!(expired(&gc(&path, options).unwrap()), [0, 0, 0, 0, 0]);

    let all = GcOptions {
        older_than_days: Some(9),
        ..GC
    };
    let report = gc(&path, all).unwrap();
    assert_eq!(expired(&report), [0, 198, 0, 0, 0]);
    assert!(report.bytes_freed() > 198 * 4_012, "{report:?}");
    let size = std::fs::metadata(&path).unwrap().len();
    assert_eq!(report.file_bytes_after, size);
    assert_eq!(verify(&path).unwrap().entries, 0);
}

#[test]
fn readers_share_the_file_with_its_writer_and_collection_does_not() {
    let (_home, path) = filled();
    let store = open(&path, || 120);
    assert_eq!(stats(&path).unwrap().tables[0].entries, 9);
    store
        .put(&FactKey::from_bytes([99; 32]), &answers())
        .unwrap();
    assert_eq!(stats(&path).unwrap().tables[0].entries, 10);
    assert_eq!(verify(&path).unwrap().entries, 209);
    let dry = GcOptions {
        dry_run: true,
        ..GC
    };
    assert_eq!(gc(&path, dry).unwrap().bytes_freed(), 0);
    let message = gc(&path, GC).unwrap_err().to_string();
    assert!(message.contains("facts.redb: in use"), "{message}");
    drop(store);
    gc(&path, GC).unwrap();
}

#[test]
fn space_that_a_reader_holds_back_is_named() {
    let (_home, path) = filled();
    let reader = Builder::new()
        .set_concurrency_mode(ConcurrencyMode::SingleWriter)
        .open_read_only(&path)
        .unwrap();
    let reading = reader.begin_read().unwrap();
    let all = GcOptions {
        older_than_days: Some(0),
        ..GC
    };
    let message = gc(&path, all).unwrap_err().to_string();
    assert!(message.contains("another process reads"), "{message}");
    drop((reading, reader));
    assert_eq!(verify(&path).unwrap().entries, 0, "they are removed");
    assert!(gc(&path, all).unwrap().bytes_freed() > 198 * 4_012);
}

#[test]
fn a_missing_or_foreign_file_is_named_and_none_is_made() {
    let home = tempfile::tempdir().unwrap();
    let gone = home.path().join("gone.redb");
    let notes = home.path().join("notes.txt");
    std::fs::write(&notes, "not a store").unwrap();
    for (path, part) in [(&gone, "no such file"), (&notes, "not a store")] {
        let name = path.file_name().unwrap().to_str().unwrap();
        for message in [
            stats(path).unwrap_err().to_string(),
            verify(path).unwrap_err().to_string(),
            gc(path, GC).unwrap_err().to_string(),
            gc(
                path,
                GcOptions {
                    dry_run: true,
                    ..GC
                },
            )
            .unwrap_err()
            .to_string(),
        ] {
            assert!(
                message.contains(name) && message.contains(part),
                "{message}"
            );
        }
    }
    assert!(!gone.exists());
    assert_eq!(std::fs::read(&notes).unwrap(), b"not a store");
}

#[test]
fn a_file_overwritten_in_part_is_refused_or_read_around_and_never_a_panic() {
    let home = tempfile::tempdir().unwrap();
    let (sound, path) = (home.path().join("sound.redb"), home.path().join("bad.redb"));
    let store = open(&sound, || 100);
    for byte in 0..20 {
        let key = FactKey::from_bytes([byte; 32]);
        store.put(&key, &answers()).unwrap();
    }
    let facts: Vec<_> = (0..20).map(|byte| ([byte; 32], fact(byte))).collect();
    store.put_bytes(Kind::Fact, &facts).unwrap();
    drop(store);
    let sound = std::fs::read(&sound).unwrap();
    let (mut refused, mut found) = (0, 0);
    // Half pages: the first halves hold what redb finds its way by, the second mostly values.
    for half in (0..sound.len()).step_by(2_048) {
        let mut bad = sound.clone();
        bad[half..(half + 2_048).min(sound.len())].fill(0xA5);
        std::fs::write(&path, &bad).unwrap();
        match verify(&path) {
            Ok(report) => found += report.damaged.len(),
            Err(error) => {
                assert!(error.to_string().contains("bad.redb"), "{error}");
                refused += 1;
            }
        }
        let _ = stats(&path);
        let options = StoreOptions {
            today: || 100,
            retention_days: None,
        };
        let Ok(store) = RedbStore::open(&path, options) else {
            continue;
        };
        for byte in 0..20 {
            let stored = store.get(&FactKey::from_bytes([byte; 32]));
            assert!(stored.is_none_or(|stored| stored == answers()));
            let bytes = store.get_bytes(Kind::Fact, &[byte; 32]);
            assert!(bytes.is_none_or(|bytes| bytes == fact(byte)));
        }
        let _ = store.put(&FactKey::from_bytes([99; 32]), &answers());
    }
    assert!(refused > 0 && found > 0, "{refused} refused, {found} found");
}
