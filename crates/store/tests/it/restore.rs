//! Stores that are made from entries: the rejected ones, and the remains of a restore that failed.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use bytes::Bytes;
use postern_store::memory::MemoryRestore;
use postern_store::redb::RedbRestore;
use postern_store::{Entry, Error, Options, Position, RestoreTarget, Result, limits};

const BEGIN: u64 = 1000;

fn entry(key: &str, position: Position) -> Entry {
    Entry { key: key.into(), value: Bytes::from_static(b"value"), position }
}

/// Adds entries and finishes; an error may come from either.
fn run(mut target: impl RestoreTarget, entries: &[Entry]) -> Result<()> {
    entries.iter().try_for_each(|entry| target.add(entry.clone()))?;
    target.finish().map(drop)
}

fn assert_empty(directory: &Path) {
    assert_eq!(std::fs::read_dir(directory).unwrap().count(), 0, "something is left behind");
}

#[test]
fn entries_that_cannot_be_are_refused_and_leave_nothing() {
    let intact = entry("/a", Position::new(7, 3));
    let large = vec![0; limits::VALUE_BYTES + limits::ENVELOPE_BYTES + 1].into();
    let wrong = [
        entry("", Position::new(1, 0)),
        entry(&"k".repeat(limits::KEY_BYTES + 1), Position::new(1, 0)),
        entry("/b", Position::ZERO),
        entry("/b", Position::new(BEGIN, 0)),
        entry("/b", Position::new(BEGIN + 1, 0)),
        entry("/b", Position::end_of(7)),
        entry("/b", intact.position),
        entry("/a", Position::new(8, 0)),
        Entry { value: large, ..entry("/b", Position::new(1, 0)) },
    ];
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    for wrong in wrong {
        let entries = [intact.clone(), wrong];
        let results = [
            run(MemoryRestore::begin(BEGIN).unwrap(), &entries),
            run(RedbRestore::begin(&path, BEGIN).unwrap(), &entries),
        ];
        for result in results {
            assert!(matches!(result, Err(Error::Invalid(_))), "{result:?} for {entries:?}");
        }
        assert_empty(directory.path());
    }
    for revision in [0, limits::REVISION + 1] {
        assert!(matches!(MemoryRestore::begin(revision), Err(Error::Invalid(_))));
        assert!(matches!(RedbRestore::begin(&path, revision), Err(Error::Invalid(_))));
    }
}

#[tokio::test]
async fn a_database_that_exists_is_not_overwritten() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    drop(postern_store::open(&path, Options::default()).await.unwrap());
    let error = RedbRestore::begin(&path, BEGIN).unwrap_err();
    assert!(error.to_string().contains("exists already"), "{error}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2, "it has its log");
}

#[tokio::test]
async fn nothing_is_visible_before_a_restore_is_finished() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    // Left by a restore that was killed.
    std::fs::File::create(directory.path().join("db.new")).unwrap();
    let mut target = RedbRestore::begin(&path, BEGIN).unwrap();
    // More than one transaction.
    for number in 0..9000_u16 {
        let [high, low] = number.to_be_bytes();
        let position = Position::new(1 + u64::from(high) * 2 + u64::from(low >> 7), low & 127);
        target.add(entry(&format!("/k{number:04}"), position)).unwrap();
    }
    assert!(!path.exists());
    drop(target);
    assert_empty(directory.path());
}
