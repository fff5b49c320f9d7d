//! The database and its log are two files: what happens when one of them is missing, older, or another
//! database's, and when the disk of one of them stands still.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use postern_store::redb::Redb;
use postern_store::{Change, Error, ListRequest, Options, Position, Store, Txn, WithOld};
use redb::StorageBackend;
use redb::backends::InMemoryBackend;
use tempfile::TempDir;
use tokio::task::JoinSet;

fn log_of(path: &Path) -> PathBuf {
    path.with_extension("log")
}

fn read(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    File::open(path).unwrap().read_to_end(&mut bytes).unwrap();
    bytes
}

fn write(path: &Path, bytes: &[u8]) {
    File::create(path).unwrap().write_all(bytes).unwrap();
}

fn open(path: &Path) -> postern_store::Result<Redb> {
    Redb::open(path, Options::default())
}

fn put(key: &str, bytes: usize) -> Txn {
    let value = Bytes::from(vec![7; bytes]);
    Txn { conditions: Vec::new(), changes: vec![Change::Put { key: key.into(), value }] }
}

async fn set(store: &Redb, keys: &[&str]) {
    for key in keys {
        store.commit(put(key, 100)).await.unwrap();
    }
}

async fn keys(store: &Redb) -> Vec<String> {
    let page = store.list(ListRequest::default()).await.unwrap();
    page.entries.iter().map(|entry| entry.key.to_string()).collect()
}

/// A directory with a database called `db`, and copies of its two files.
struct Scene {
    directory: TempDir,
    copies: usize,
}

/// The two files of a database as they were at some time.
#[derive(Clone)]
struct Files {
    database: Vec<u8>,
    log: Vec<u8>,
}

impl Scene {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap(), copies: 0 }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("db")
    }

    /// Copies both files, as they are when the process is killed now.
    fn copy(&self) -> Files {
        Files { database: read(&self.path()), log: read(&log_of(&self.path())) }
    }

    /// Opens a database from copies.
    fn open(&mut self, database: &[u8], log: Option<&[u8]>) -> postern_store::Result<Redb> {
        self.copies += 1;
        let path = self.directory.path().join(format!("copy{}", self.copies));
        write(&path, database);
        if let Some(log) = log {
            write(&log_of(&path), log);
        }
        open(&path)
    }
}

fn assert_refused(opened: postern_store::Result<Redb>) {
    let error = opened.map(drop).unwrap_err();
    assert!(matches!(error, Error::Corrupt { .. }), "{error:?}");
    assert!(error.to_string().contains("write-ahead log"), "{error}");
}

/// The files of one database: at the beginning, later, and closed.
async fn history(scene: &Scene) -> [Files; 3] {
    let store = open(&scene.path()).unwrap();
    set(&store, &["/a", "/b"]).await;
    let early = scene.copy();
    set(&store, &["/c"]).await;
    // The database has it, durably.
    store.compact(1).await.unwrap();
    set(&store, &["/d"]).await;
    let late = scene.copy();
    store.close().await;
    [early, late, scene.copy()]
}

#[tokio::test]
async fn what_was_killed_has_everything_with_its_log() {
    let mut scene = Scene::new();
    let [early, late, closed] = history(&scene).await;
    let of = |files: &Files| (files.database.clone(), files.log.clone());
    for (files, expected) in [(&early, 2), (&late, 4), (&closed, 4)] {
        let (database, log) = of(files);
        let store = scene.open(&database, Some(&log)).unwrap();
        assert_eq!(keys(&store).await.len(), expected);
        assert_eq!(store.revision().await.unwrap(), expected as u64);
        set(&store, &["/next"]).await;
        store.close().await;
    }
}

#[tokio::test]
async fn what_was_killed_needs_its_log_and_what_was_closed_does_not() {
    let (mut scene, other) = (Scene::new(), Scene::new());
    let [early, late, closed] = history(&scene).await;
    let [_, others, others_closed] = history(&other).await;
    let damaged = vec![0; late.log.len()];
    for log in [None, Some(&[][..]), Some(&others.log), Some(&others_closed.log), Some(&damaged)] {
        assert_refused(scene.open(&early.database, log));
        assert_refused(scene.open(&late.database, log));
        for _ in 0..2 {
            let store = scene.open(&closed.database, log).unwrap();
            assert_eq!(keys(&store).await, ["/a", "/b", "/c", "/d"]);
            set(&store, &["/next"]).await;
        }
    }
}

#[tokio::test]
async fn a_log_that_is_not_needed_is_put_aside() {
    let mut scene = Scene::new();
    let [_, late, closed] = history(&scene).await;
    let mut log = late.log.clone();
    log.extend_from_slice(&[0; 4096]);
    scene.open(&closed.database, Some(&log)).unwrap();
    assert_eq!(read(&scene.directory.path().join("copy1.log.old")), log);
}

#[tokio::test]
async fn an_older_log_is_refused_and_a_newer_one_has_what_is_missing() {
    let mut scene = Scene::new();
    let [early, late, closed] = history(&scene).await;
    assert_refused(scene.open(&late.database, Some(&early.log)));
    // The log still has all that came after the older copy.
    for log in [&late.log, &closed.log] {
        let store = scene.open(&early.database, Some(log)).unwrap();
        assert_eq!(keys(&store).await, ["/a", "/b", "/c", "/d"]);
    }
    // A closed database keeps its state, even if a newer log has more.
    let store = scene.open(&closed.database, Some(&closed.log)).unwrap();
    set(&store, &["/later"]).await;
    drop(store);
    let newer = read(&scene.directory.path().join("copy4.log"));
    let store = scene.open(&closed.database, Some(&newer)).unwrap();
    assert_eq!(keys(&store).await, ["/a", "/b", "/c", "/d"]);
    assert_eq!(store.commit(put("/other", 1)).await.unwrap(), 5);
}

/// A file in memory with syncs that can be made to wait.
#[derive(Clone, Debug)]
struct Gated {
    file: Arc<InMemoryBackend>,
    is_open: Arc<(Mutex<bool>, Condvar)>,
}

impl Gated {
    fn new() -> Self {
        let is_open = Arc::new((Mutex::new(true), Condvar::new()));
        Self { file: Arc::new(InMemoryBackend::new()), is_open }
    }

    fn set_open(&self, is_open: bool) {
        *self.is_open.0.lock() = is_open;
        self.is_open.1.notify_all();
    }
}

impl StorageBackend for Gated {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.file.set_len(length)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut is_open = self.is_open.0.lock();
        while !*is_open {
            self.is_open.1.wait(&mut is_open);
        }
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write(offset, data)
    }
}

fn open_gated() -> (Gated, Arc<Redb>) {
    let (database, log) = (Gated::new(), Gated::new());
    let gate = database.clone();
    let options = Options { log_bytes: 64 * 1024, ..Options::default() };
    let store =
        Redb::open_with_backends(move || Ok(database.clone()), move || Ok(log.clone()), options);
    (gate, Arc::new(store.unwrap()))
}

/// The log takes transactions while it has room. Then callers wait, and nothing fails.
#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_stands_still_slows_writers_down_when_the_log_is_full() {
    const TXNS: usize = 200;
    let (gate, store) = open_gated();
    gate.set_open(false);
    // There is room for these.
    for number in 0..10 {
        store.commit(put(&format!("/first{number}"), 100)).await.unwrap();
    }
    let mut callers = JoinSet::new();
    for number in 0..TXNS {
        let store = Arc::clone(&store);
        callers.spawn(async move { store.commit(put(&format!("/{number:03}"), 1000)).await });
    }
    gate.set_open(true);
    for done in callers.join_all().await {
        done.unwrap();
    }
    assert_eq!(keys(&store).await.len(), TXNS + 10);
    assert_eq!(store.revision().await.unwrap(), TXNS as u64 + 10);
}

/// A transaction for which the log is too small goes to the database directly.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_large_for_the_log_is_the_newest_as_well() {
    let (_, store) = open_gated();
    let length = async || store.get("/a").await.unwrap().value.map(|entry| entry.value.len());
    for bytes in [10, 40_000, 20, 50_000] {
        store.commit(put("/a", bytes)).await.unwrap();
        assert_eq!(length().await, Some(bytes));
    }
    let changes = vec![Change::Delete { key: "/a".into() }];
    store.commit(Txn { conditions: Vec::new(), changes }).await.unwrap();
    assert_eq!(length().await, None);
    assert_eq!(store.revision().await.unwrap(), 5);
}

/// Acknowledged changes are read, also while the database does not have them.
#[tokio::test(flavor = "multi_thread")]
async fn conditions_and_reads_see_what_is_only_in_the_log() {
    let (gate, store) = open_gated();
    let position = Position::new(store.commit(put("/a", 10)).await.unwrap(), 0);
    gate.set_open(false);
    let mut watch = store.watch("/", Position::ZERO, WithOld::Yes).await.unwrap();
    assert_eq!(watch.next().await.unwrap().events.len(), 1);
    let at = |position| vec![postern_store::Condition::At("/a".into(), position)];
    let second = Txn { conditions: at(position), ..put("/a", 20) };
    let revision = store.commit(second.clone()).await.unwrap();
    let refused = store.commit(second).await.unwrap_err();
    let found = Some(Position::new(revision, 0));
    assert!(matches!(refused, Error::Conflict { found: other, .. } if other == found));
    let event = watch.next().await.unwrap().events.remove(0);
    assert_eq!(event.replaced.entry().unwrap().position, position);
    let read = store.get("/a").await.unwrap();
    assert_eq!((read.value.unwrap().value.len(), read.revision), (20, revision));
    let delete = Change::Delete { key: "/a".into() };
    let third = Txn { conditions: at(Position::new(revision, 0)), changes: vec![delete] };
    store.commit(third.clone()).await.unwrap();
    assert!(store.get("/a").await.unwrap().value.is_none());
    assert!(matches!(store.commit(third).await, Err(Error::Conflict { found: None, .. })));
    gate.set_open(true);
    assert!(keys(&store).await.is_empty());
}
