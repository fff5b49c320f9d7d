//! The properties of the engine on a file: the file, its exclusive owner, closing it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use postern_store::redb::Redb;
use postern_store::{
    Change, Error, ListRequest, OPEN_WAIT, Options, Position, Store, Txn, WithOld,
};
use tokio::task::JoinSet;

fn open(path: &Path) -> postern_store::Result<Redb> {
    Redb::open(path, Options::default())
}

async fn set(store: &Redb, key: &str) -> postern_store::Result<u64> {
    let change = Change::Put { key: key.into(), value: Bytes::from_static(b"value") };
    store.commit(Txn { conditions: Vec::new(), changes: vec![change] }).await
}

fn is_unavailable<T>(result: &postern_store::Result<T>) -> bool {
    matches!(result, Err(Error::Unavailable(_)))
}

#[tokio::test]
async fn the_file_is_for_its_owner_only() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    // Left by an interrupted first start.
    File::create(directory.path().join("db.new")).unwrap();
    let store = open(&path).unwrap();
    let files: Vec<_> = std::fs::read_dir(directory.path()).unwrap().map(Result::unwrap).collect();
    assert_eq!(files.len(), 2, "the database and its log");
    for file in files {
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
    store.health().unwrap();
}

#[tokio::test]
async fn a_second_process_is_refused_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let store = open(&path).unwrap();
    match open(&path).map(drop) {
        Err(Error::Unavailable(why)) => assert!(why.contains("another process"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert!(set(&store, "/a").await.is_ok());
    drop(store);
    assert!(open(&path).unwrap().get("/a").await.unwrap().value.is_some());
}

#[tokio::test]
async fn opening_waits_until_another_process_has_closed_the_database() {
    const LONG: Duration = Duration::from_mins(1);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let other = open(&path).unwrap();
    let (begun, has_begun) = tokio::sync::oneshot::channel();
    let waited_for = path.clone();
    let waiting = move |path: &Path| {
        assert_eq!(path, waited_for);
        begun.send(()).unwrap();
    };
    let opening = postern_store::open_within(&path, Options::default(), LONG, waiting);
    let closing = async {
        has_begun.await.unwrap();
        other.close().await;
    };
    let (opened, ()) = tokio::join!(opening, closing);
    opened.unwrap().health().unwrap();
}

#[tokio::test]
async fn opening_does_not_wait_for_ever() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let _other = open(&path).unwrap();
    // Much longer than the first attempt takes on a busy machine.
    for (wait, calls) in [(Duration::ZERO, 0), (Duration::from_secs(1), 1)] {
        let mut called = 0;
        let waiting = |_: &Path| called += 1;
        let opened = postern_store::open_within(&path, Options::default(), wait, waiting).await;
        match opened.map(drop) {
            Err(Error::Unavailable(why)) => assert!(why.contains("another process"), "{why}"),
            other => panic!("{other:?}"),
        }
        assert_eq!(called, calls);
    }
    // Only another process is worth a wait.
    let waiting = |_: &Path| panic!("it waits");
    let path = directory.path().join("none/db");
    let opened = postern_store::open_within(path, Options::default(), OPEN_WAIT, waiting).await;
    assert!(is_unavailable(&opened.map(drop)));
}

#[tokio::test]
async fn a_file_that_is_not_a_database_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    std::io::Write::write_all(&mut File::create(&path).unwrap(), &[b'x'; 10_000]).unwrap();
    let error = open(&path).unwrap_err();
    assert!(error.to_string().contains("Not a redb database"), "{error}");
    assert!(is_unavailable(&open(&directory.path().join("none/db"))));
}

#[tokio::test]
async fn a_closed_store_is_unavailable_and_releases_its_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let store = open(&path).unwrap();
    set(&store, "/a").await.unwrap();
    let mut watch = store.watch("", Position::end_of(1), WithOld::Yes).await.unwrap();
    store.close().await;
    store.close().await;
    assert!(is_unavailable(&store.get("/a").await));
    assert!(is_unavailable(&store.list(ListRequest::default()).await));
    assert!(is_unavailable(&set(&store, "/b").await));
    assert!(is_unavailable(&watch.next().await));
    assert!(is_unavailable(&store.watch("", Position::ZERO, WithOld::Yes).await.map(drop)));
    assert!(store.health().is_err());
    assert!(open(&path).is_ok());
}

/// A transaction was acknowledged and is there, or its caller got an error and it is not.
#[tokio::test]
async fn closing_commits_what_is_waiting() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let store = Arc::new(open(&path).unwrap());
    let mut callers = JoinSet::new();
    for number in 0..50 {
        let store = Arc::clone(&store);
        callers.spawn(async move { (number, set(&store, &format!("/{number}")).await) });
    }
    tokio::task::yield_now().await;
    store.close().await;
    let results = callers.join_all().await;
    let store = open(&path).unwrap();
    for (number, result) in results {
        let found = store.get(&format!("/{number}")).await.unwrap().value;
        assert_eq!(found.map(|entry| entry.position.revision()), result.ok());
    }
}

#[tokio::test]
async fn a_running_watch_fails_when_compaction_overtakes_it() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory.path().join("db")).unwrap();
    set(&store, "/a").await.unwrap();
    set(&store, "/a").await.unwrap();
    drop(store);
    // Nothing of this is in memory any more.
    let store = open(&directory.path().join("db")).unwrap();
    let mut watch = store.watch("", Position::ZERO, WithOld::Yes).await.unwrap();
    store.compact(2).await.unwrap();
    assert!(matches!(watch.next().await, Err(Error::Compacted { compacted: 2 })));
}

#[tokio::test]
async fn the_gate_runs_once_per_commit_and_refuses_it_when_it_fails() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory.path().join("db")).unwrap();
    let (passed, shut) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let (counted, closed) = (passed.clone(), shut.clone());
    store.set_gate(Box::new(move || {
        counted.fetch_add(1, Ordering::SeqCst);
        if closed.load(Ordering::SeqCst) { Err("not now") } else { Ok(()) }
    }));
    let first = set(&store, "/a").await.unwrap();
    assert_eq!(passed.load(Ordering::SeqCst), 1);
    shut.store(true, Ordering::SeqCst);
    assert!(matches!(set(&store, "/b").await, Err(Error::Gated("not now"))));
    assert_eq!(store.get("/b").await.unwrap().value, None);
    assert_eq!(store.revision().await.unwrap(), first);
    shut.store(false, Ordering::SeqCst);
    assert_eq!(set(&store, "/b").await.unwrap(), first + 1);
    assert_eq!(passed.load(Ordering::SeqCst), 3);
    // Compaction does not run the gate.
    shut.store(true, Ordering::SeqCst);
    store.compact(first).await.unwrap();
}

/// The sizes of the file of a server that is started again and again. Each start is long before its
/// history is as old as it may become, and writes a little.
async fn sizes_over_starts(starts: u64, options: Options) -> Vec<u64> {
    const KEEP: Duration = Duration::from_secs(20);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let mut sizes = Vec::new();
    for start in 0..starts {
        let store = Redb::open(&path, options).unwrap();
        let old = store.age_history(Duration::from_secs(start), KEEP).await.unwrap();
        store.compact_noting(old.saturating_sub(1), &[]).await.unwrap();
        for key in ["/a", "/b"] {
            let value = Bytes::from(vec![7; 20_000]);
            let change = Change::Put { key: key.into(), value };
            store.commit(Txn { conditions: Vec::new(), changes: vec![change] }).await.unwrap();
        }
        store.close().await;
        sizes.push(std::fs::metadata(&path).unwrap().len());
    }
    sizes
}

#[tokio::test]
async fn a_crash_loop_does_not_make_the_file_grow() {
    // The size goes up and down with each segment that is dropped, and with the pages that wait to be free. What
    // the starts between the two write is many times the tenth that is allowed.
    for segment_revisions in [3, Options::default().segment_revisions] {
        let sizes =
            sizes_over_starts(260, Options { segment_revisions, ..Options::default() }).await;
        let highest = |range: std::ops::Range<usize>| sizes[range].iter().copied().max().unwrap();
        let (before, after) = (highest(60..160), highest(160..260));
        assert!(after <= before + before / 10, "{before} and then {after} bytes");
    }
}

#[tokio::test]
async fn the_figures_are_of_this_database_and_its_disk() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory.path().join("db")).unwrap();
    let is_shut = Arc::new(AtomicBool::new(false));
    let shut = is_shut.clone();
    store
        .set_gate(Box::new(move || if shut.load(Ordering::SeqCst) { Err("shut") } else { Ok(()) }));
    let revision = set(&store, "/a").await.unwrap();
    is_shut.store(true, Ordering::SeqCst);
    assert!(set(&store, "/b").await.is_err());
    let figures = store.figures();
    assert_eq!((figures.commits.count(), figures.failed_commits), (1, 1));
    assert!(figures.commits.microseconds() > 0);
    assert!(figures.applied_revision.unwrap() <= revision);
    assert!(figures.size_bytes > Some(Options::DEFAULT_LOG_BYTES), "the log alone has as many");
    assert!(figures.free_bytes.is_some() && figures.reserve_bytes > Some(0));
    // A list waits for the applier.
    store.list(ListRequest::default()).await.unwrap();
    assert_eq!(store.figures().applied_revision, Some(revision));
    store.close().await;
    assert_eq!(store.figures().applied_revision, None, "the database is closed");
}
