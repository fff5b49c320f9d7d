//! The move of data between a file and etcd: which data arrives, and the state after an
//! interruption. The two stores can never be used at the same time.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use postern_store::backup::{self, RestoreOptions, WriteOptions};
use postern_store::migrate::{
    Copied, EntrySource, REVISION_GAP, StoreEntries, copy_to_new, copy_to_remote, survey, verify,
    verify_remote,
};
use postern_store::redb::RedbRestore;
use postern_store::seal::{Keyring, Sealed};
use postern_store::{
    Change, Condition, Entry, Error, Limits, ListRequest, Member, MigrationMark, Options, Position,
    RemoteEngine, Result, Store, Txn, WithOld, memory::Memory,
};
use postern_store_etcd::{Etcd, EtcdEngine, EtcdUrl};
use tempfile::TempDir;

use crate::server::{EtcdServer, access};

/// The name of the source, as the command line has it.
const FILE: &str = "file:/data";

fn put(key: &str, value: &str) -> Change {
    Change::Put { key: key.into(), value: value.to_owned().into() }
}

fn delete(key: &str) -> Change {
    Change::Delete { key: key.into() }
}

async fn commit(store: &dyn Store, changes: Vec<Change>) -> u64 {
    store.commit(Txn { conditions: Vec::new(), changes }).await.unwrap()
}

fn remote(url: EtcdUrl) -> EtcdEngine {
    EtcdEngine { url, access: access() }
}

/// The mark of a store that is being filled from another one.
fn mark_from(from: &str) -> MigrationMark {
    MigrationMark::Unfinished { from: from.to_owned() }
}

async fn sealed(store: Arc<dyn Store>, keyring: &Keyring) -> Arc<Sealed> {
    Arc::new(Sealed::open(store, keyring.clone()).await.unwrap())
}

async fn on_file(directory: &TempDir, name: &str, keyring: &Keyring) -> Arc<Sealed> {
    let store = postern_store::open(directory.path().join(name), Options::default()).await;
    sealed(store.unwrap(), keyring).await
}

/// Transactions of several changes, tombstones, rewrites, and history of which a part is compacted.
async fn fill(store: &Sealed) {
    for round in 0..8 {
        for number in 0..40 {
            let name = |part: &str| format!("/{part}/{number:03}");
            commit(store, vec![put(&name("a"), &format!("{round}")), put(&name("b"), "same")])
                .await;
        }
    }
    for number in (0..40).step_by(3) {
        commit(store, vec![delete(&format!("/b/{number:03}"))]).await;
    }
    let value = "7".to_owned().into();
    let rewrite = Change::Rewrite { key: "/a/001".into(), value };
    let revision = commit(store, vec![rewrite]).await;
    store.compact(revision - 20).await.unwrap();
    commit(store, vec![put("/c", &"large ".repeat(100_000))]).await;
}

async fn all(store: &dyn Store) -> Vec<Entry> {
    store.list(ListRequest::default()).await.unwrap().entries
}

fn entries(store: &Arc<Sealed>, at: u64) -> StoreEntries {
    StoreEntries::new(store.clone(), at)
}

/// Moves everything, in one run.
async fn to_etcd(
    source: &Arc<Sealed>,
    keyring: &Keyring,
    to: &dyn RemoteEngine,
    from: &str,
) -> Copied {
    let at = source.revision().await.unwrap();
    let mut target = to.begin_target(&mark_from(from)).await.unwrap();
    let copied = copy_to_remote(&mut entries(source, at), &mut *target, |_| ()).await.unwrap();
    let verified =
        verify_remote(&mut entries(source, at), &*target, keyring, |_| ()).await.unwrap();
    assert_eq!(verified.values, copied.values);
    assert!(target.finish(at + REVISION_GAP).await.unwrap() > at);
    copied
}

/// Moves everything from etcd to a new file.
async fn to_file(
    from: &dyn RemoteEngine,
    to: &str,
    keyring: &Keyring,
    directory: &TempDir,
    name: &str,
) -> Arc<Sealed> {
    let source = from.open_source(to).await.unwrap();
    let store = sealed(source.store(), keyring).await;
    let at = store.revision().await.unwrap();
    let begun = RedbRestore::begin(directory.path().join(name), at + REVISION_GAP).unwrap();
    copy_to_new(&mut entries(&store, at), begun, |_| ()).await.unwrap();
    let copy = on_file(directory, name, keyring).await;
    let copy_at = copy.revision().await.unwrap();
    verify(&mut entries(&store, at), &mut entries(&copy, copy_at), keyring, |_| ()).await.unwrap();
    source.mark_moved(to, at).await.unwrap();
    store.close().await;
    copy
}

/// Checks that a store goes on where another one was at a revision.
async fn assert_goes_on(store: &dyn Store, expected: &[Entry], last: u64) -> u64 {
    let begins = store.revision().await.unwrap();
    assert!(begins > last);
    assert_eq!(all(store).await, expected);
    assert_eq!(store.epoch().await.unwrap().begins, begins);
    for old in [Position::new(last, 0), Position::end_of(last), expected[0].position] {
        let watch = store.watch("", old, WithOld::No).await.map(drop);
        assert!(matches!(watch, Err(Error::Compacted { .. })), "{watch:?}");
    }
    let mut watch = store.watch("", Position::end_of(begins), WithOld::Yes).await.unwrap();
    // An update by a client that read the object before the move.
    let Entry { key, position, .. } = expected[0].clone();
    let conditions = vec![Condition::At(key.clone(), position)];
    let next = store.commit(Txn { conditions, changes: vec![put(&key, "next")] }).await.unwrap();
    assert!(next > begins);
    let batch = watch.next().await.unwrap();
    assert_eq!((batch.events.len(), batch.events[0].position.revision()), (1, next));
    assert_eq!(batch.events[0].replaced.entry(), Some(&expected[0]));
    next
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_moves_to_etcd_and_back_with_its_positions() {
    let server = EtcdServer::start();
    let directory = tempfile::tempdir().unwrap();
    let keyring = Keyring::generate().unwrap();
    let memory = sealed(Arc::new(Memory::new()), &keyring).await;
    fill(&memory).await;
    // From the store in memory to a file first.
    let (at, expected) = (memory.revision().await.unwrap(), all(&*memory).await);
    let begun = RedbRestore::begin(directory.path().join("one"), at + REVISION_GAP).unwrap();
    copy_to_new(&mut entries(&memory, at), begun, |_| ()).await.unwrap();
    let file = on_file(&directory, "one", &keyring).await;
    let mut last = assert_goes_on(&*file, &expected, at).await;

    let store = remote(server.url("/moved"));
    for name in ["two", "three"] {
        let expected = all(&*file).await;
        let copied = to_etcd(&file, &keyring, &store, FILE).await;
        assert_eq!(copied.values, expected.len() as u64 + 1, "all, and the marker");
        let on_etcd = sealed(store.open().await.unwrap(), &keyring).await;
        last = assert_goes_on(&*on_etcd, &expected, last).await;
        fill(&on_etcd).await;
        last = last.max(on_etcd.revision().await.unwrap());
        let expected = all(&*on_etcd).await;
        let file = to_file(&store, FILE, &keyring, &directory, name).await;
        last = assert_goes_on(&*file, &expected, last).await;
        // The store that earlier servers still have open takes no writes, and no server starts.
        let write = on_etcd.commit(Txn { conditions: Vec::new(), changes: vec![put("/x", "y")] });
        let refused = write.await.unwrap_err().to_string();
        assert!(refused.contains("moved"), "{refused}");
        let refused = store.open().await.map(drop).unwrap_err().to_string();
        assert!(refused.contains("moved to file:/data") && refused.contains("--to etcd://"));
        file.close().await;
        // The second round goes to the same prefix, which has the data of the first one.
        let back = on_file(&directory, name, &keyring).await;
        let expected = all(&*back).await;
        let copied = to_etcd(&back, &keyring, &store, FILE).await;
        assert!(copied.put < 5, "only what differs is put: {copied:?}");
        let on_etcd = sealed(store.open().await.unwrap(), &keyring).await;
        last = assert_goes_on(&*on_etcd, &expected, last).await;
        on_etcd.close().await;
        let file = to_file(&store, FILE, &keyring, &directory, &format!("{name}-again")).await;
        file.close().await;
    }
}

/// A source that fails after some entries.
struct Failing {
    inner: StoreEntries,
    entries: usize,
}

#[async_trait]
impl EntrySource for Failing {
    async fn next_entries(&mut self) -> Result<Vec<Entry>> {
        let mut read = self.inner.next_entries().await?;
        if self.entries == 0 {
            return Err(Error::Unavailable("the test interrupts the copy".to_owned()));
        }
        read.truncate(self.entries);
        self.entries -= read.len();
        Ok(read)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupted_copy_is_not_used_and_goes_on() {
    let server = EtcdServer::start();
    let directory = tempfile::tempdir().unwrap();
    let keyring = Keyring::generate().unwrap();
    let file = on_file(&directory, "source", &keyring).await;
    fill(&file).await;
    let store = remote(server.url("/interrupted"));
    for length in [0, 1, 30, 60, 1000] {
        let at = file.revision().await.unwrap();
        let mut target = store.begin_target(&mark_from(FILE)).await.unwrap();
        let mut some = Failing { inner: entries(&file, at), entries: length };
        let failed = copy_to_remote(&mut some, &mut *target, |_| ()).await;
        assert_eq!(failed.is_err(), length < 100, "{failed:?}");
        let refused = store.open().await.map(drop).unwrap_err().to_string();
        assert!(refused.contains("not complete") && refused.contains(FILE), "{refused}");
        // Another source is refused, and so is another run while this one goes on.
        let other =
            store.begin_target(&mark_from("file:/other")).await.map(drop).unwrap_err().to_string();
        assert!(other.contains(FILE), "{other}");
        let _next = store.begin_target(&mark_from(FILE)).await.unwrap();
        let overtaken = target.finish(at + REVISION_GAP).await.unwrap_err().to_string();
        assert!(overtaken.contains("another process"), "{overtaken}");
        // The source goes on meanwhile.
        commit(&*file, vec![put("/a/002", &format!("{length}")), put(&format!("/n/{length}"), "")])
            .await;
        commit(&*file, vec![delete("/a/003")]).await;
        commit(&*file, vec![put("/a/003", "again")]).await;
    }
    commit(&*file, vec![delete("/n/1")]).await;
    let (expected, last) = (all(&*file).await, file.revision().await.unwrap());
    let copied = to_etcd(&file, &keyring, &store, FILE).await;
    assert!(copied.put < 10 && copied.removed == 1, "{copied:?}");
    let on_etcd = sealed(store.open().await.unwrap(), &keyring).await;
    assert_goes_on(&*on_etcd, &expected, last).await;
    // It is in use now.
    let again = store.begin_target(&mark_from(FILE)).await.map(drop).unwrap_err().to_string();
    assert!(again.contains("in use"), "{again}");
    on_etcd.close().await;

    // The way back is interrupted after the source was marked. Only the same target may go on.
    let source = store.open_source(FILE).await.unwrap();
    let at = source.store().revision().await.unwrap();
    source.mark_moved(FILE, at).await.unwrap();
    source.store().close().await;
    let elsewhere = store.open_source("file:/other").await.map(drop).unwrap_err().to_string();
    assert!(elsewhere.contains("moved to file:/data"), "{elsewhere}");
    let copy = to_file(&store, FILE, &keyring, &directory, "back").await;
    assert_eq!(copy.get("/a/003").await.unwrap().value.unwrap().value, "again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_is_in_use_is_not_moved() {
    let server = EtcdServer::start();
    let keyring = Keyring::generate().unwrap();
    let store = remote(server.url("/busy"));
    let nothing = store.open_source(FILE).await.map(drop).unwrap_err().to_string();
    assert!(nothing.contains("there is no store"), "{nothing}");
    let running = sealed(store.prepare().await.unwrap(), &keyring).await;
    let before = commit(&*running, vec![put("/a", "1")]).await;
    let source = store.open_source(FILE).await.unwrap();
    // A write after the copy, and a server that is announced.
    let after = commit(&*running, vec![put("/a", "2")]).await;
    assert!(matches!(source.mark_moved(FILE, before).await, Err(Error::Invalid(_))));
    let me = Member {
        id: "one".into(),
        address: "one:8443".to_owned(),
        format: 1,
        seal_keys: Vec::new(),
    };
    running.fleet().unwrap().join(me.clone()).await.unwrap();
    assert_eq!(store.members().await.unwrap(), std::slice::from_ref(&me));
    assert!(matches!(source.mark_moved(FILE, after).await, Err(Error::Invalid(_))));
    let last = commit(&*running, vec![put("/a", "3")]).await;
    running.close().await;
    source.mark_moved(FILE, last).await.unwrap();
    // A server that had it open before cannot announce itself either.
    let late = Etcd::open(&store.url, &store.access).await.map(drop);
    assert!(late.is_err());
    assert!(source.store().fleet().unwrap().join(me).await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_epoch_is_above_all_that_was_given_out() {
    let mut server = EtcdServer::start();
    let store = remote(server.url("/epoch"));
    let one = store.prepare().await.unwrap();
    commit(&*one, vec![put("/a", "1")]).await;
    one.close().await;
    server.save();
    let one = store.open().await.unwrap();
    let mut last = 0;
    for number in 0..50 {
        last = commit(&*one, vec![put("/b", &number.to_string())]).await;
    }
    one.close().await;
    server.restore();
    // No server has noticed it. One that starts now would give out these revisions again.
    let begins = store.begin_epoch(Some(last)).await.unwrap().begins;
    assert!(begins > last);
    let one = store.open().await.unwrap();
    let listed = all(&*one).await;
    assert_eq!(listed.iter().map(|entry| &*entry.key).collect::<Vec<_>>(), ["/a"]);
    let expected = listed.clone();
    let next = assert_goes_on(&*one, &expected, last).await;
    // A process that was not announced, and runs on, notices the next epoch before it commits.
    let unnoticed = store.open().await.unwrap();
    let next = commit(&*unnoticed, vec![put("/d", "1")]).await.max(next);
    let epoch = store.begin_epoch(None).await.unwrap();
    assert!(epoch.number == 2 && epoch.begins > next + (1 << 40), "{epoch:?}");
    let committing =
        unnoticed.commit(Txn { conditions: Vec::new(), changes: vec![put("/d", "2")] });
    match committing.await {
        Err(Error::EpochChanged { begins }) => assert_eq!(begins, epoch.begins),
        other => panic!("expected the new epoch, got {other:?}"),
    }
    assert!(commit(&*unnoticed, vec![put("/d", "3")]).await > epoch.begins);
    let me = Member {
        id: "one".into(),
        address: "one:8443".to_owned(),
        format: 1,
        seal_keys: Vec::new(),
    };
    one.fleet().unwrap().join(me).await.unwrap();
    assert!(matches!(store.begin_epoch(None).await, Err(Error::Invalid(_))));
    one.close().await;
    assert!(matches!(store.begin_epoch(Some(u64::MAX / 2)).await, Err(Error::Invalid(_))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_is_restored_to_etcd_and_what_is_too_large_is_named() {
    let server = EtcdServer::start();
    let directory = tempfile::tempdir().unwrap();
    let keyring = Keyring::generate().unwrap();
    let file = on_file(&directory, "source", &keyring).await;
    fill(&file).await;
    let (expected, last) = (all(&*file).await, file.revision().await.unwrap());
    let now = std::time::UNIX_EPOCH + Duration::from_hours(500_000);
    let path = directory.path().join("backup");
    let mut out = tokio::fs::File::create(&path).await.unwrap();
    let options = WriteOptions { now, skip_corrupt: false };
    backup::write(&file, options, &mut out, |_| ()).await.unwrap();
    let store = remote(server.url("/restored"));
    let options = RestoreOptions { now, above: 0 };
    let restore = async |keyring: &Keyring| {
        let opened = std::fs::File::open(&path).unwrap();
        backup::restore_remote(opened, keyring, &store, options, &mut |_| ()).await
    };
    let other = restore(&Keyring::generate().unwrap()).await.unwrap_err().to_string();
    assert!(other.contains("keyring"), "{other}");
    let restored = restore(&keyring).await.unwrap();
    assert_eq!(restored.summary.entries, expected.len() as u64 + 1);
    assert!(restored.revision > last + backup::REVISION_MARGIN - 1);
    let on_etcd = sealed(store.open().await.unwrap(), &keyring).await;
    assert_goes_on(&*on_etcd, &expected, last).await;
    let again = restore(&keyring).await.unwrap_err().to_string();
    assert!(again.contains("in use"), "{again}");

    commit(&*file, vec![put("/big", &"x".repeat(store.limits().value_bytes + 100))]).await;
    let at = file.revision().await.unwrap();
    let mut source = entries(&file, at);
    let found = survey(&mut source, &keyring, store.limits(), |_| ()).await.unwrap();
    assert_eq!(found.values, expected.len() as u64 + 2);
    let refused = found.check().unwrap_err().to_string();
    assert!(refused.contains("/big"), "{refused}");
    let mut source = entries(&file, at);
    let found = survey(&mut source, &keyring, Limits::EMBEDDED, |_| ()).await.unwrap();
    found.check().unwrap();
}
