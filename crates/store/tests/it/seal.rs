//! Encrypted stores: wrong keyrings, moved and corrupt values, rotation.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use postern_store::memory::Memory;
use postern_store::seal::{Keyring, Progress, Sealed};
use postern_store::{
    Change, Condition, Entry, Epoch, Error, Events, Gate, ListRequest, Options, Page, Position,
    Replaced, Result, Snapshot, Store, Txn, Watch, WithOld,
};

const SECRET: &str = "correct horse battery staple";

fn keyring() -> Keyring {
    Keyring::generate().unwrap()
}

fn memory() -> Arc<dyn Store> {
    Arc::new(Memory::new())
}

async fn sealed() -> Sealed {
    Sealed::open(memory(), keyring()).await.unwrap()
}

fn put(key: &str, value: impl Into<Bytes>) -> Change {
    Change::Put { key: key.into(), value: value.into() }
}

async fn commit(store: &dyn Store, changes: Vec<Change>) -> u64 {
    store.commit(Txn { conditions: Vec::new(), changes }).await.unwrap()
}

async fn value(store: &dyn Store, key: &str) -> Bytes {
    store.get(key).await.unwrap().value.unwrap().value
}

/// The message with which a store is refused.
async fn refusal(store: Arc<dyn Store>, keyring: Keyring) -> String {
    match Sealed::open(store, keyring).await {
        Err(Error::Unavailable(why)) => why,
        Err(error) => panic!("{error:?}"),
        Ok(_) => panic!("it opened"),
    }
}

#[tokio::test]
async fn another_keyring_is_refused_at_once() {
    let inner = Arc::clone(sealed().await.inner());
    let why = refusal(inner, keyring()).await;
    assert!(why.contains("the keyring does not belong to this database"), "{why}");
}

#[tokio::test]
async fn a_database_that_was_never_sealed_is_refused() {
    let inner = memory();
    commit(inner.as_ref(), vec![put("/a", SECRET)]).await;
    let why = refusal(inner, keyring()).await;
    assert!(why.contains("no encryption marker"), "{why}");
}

#[tokio::test]
async fn the_file_contains_keys_and_no_values() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let inner = postern_store::open(&path, Options::default()).await.unwrap();
    let store = Sealed::open(inner, keyring()).await.unwrap();
    commit(&store, vec![put("/a/name", SECRET)]).await;
    commit(&store, vec![put("/a/name", SECRET.repeat(200))]).await;
    store.close().await;
    let bytes = {
        use std::io::Read as _;
        let mut bytes = Vec::new();
        std::fs::File::open(&path).unwrap().read_to_end(&mut bytes).unwrap();
        bytes
    };
    let contains = |what: &str| bytes.windows(what.len()).any(|window| window == what.as_bytes());
    assert!(contains("/a/name"));
    assert!(!contains(SECRET));
}

#[tokio::test]
async fn the_marker_is_neither_listed_nor_changed() {
    let store = sealed().await;
    commit(&store, vec![put("/a", "1"), put("/z", "1")]).await;
    let marker = store.inner().list(ListRequest::default()).await.unwrap();
    let marker = Arc::clone(&marker.entries[1].key);
    assert!(marker.starts_with("/postern/seal/"));
    assert_eq!(store.get(&marker).await.unwrap().value, None);
    for prefix in ["", "/", "/postern/seal/"] {
        for limit in 0..4 {
            let request =
                ListRequest { prefix: prefix.to_owned(), limit, ..ListRequest::default() };
            let page = store.list(request).await.unwrap();
            assert!(page.entries.iter().all(|entry| entry.key != marker));
            let all = if prefix == "/postern/seal/" { 0 } else { 2 };
            let listed = if limit == 0 { all } else { all.min(limit) };
            assert_eq!((page.entries.len(), page.remaining), (listed, (all - listed) as u64));
        }
    }
    for txn in [
        Txn { conditions: vec![], changes: vec![put(&marker, "1")] },
        Txn { conditions: vec![Condition::Absent(marker)], changes: vec![put("/b", "1")] },
    ] {
        assert!(matches!(store.commit(txn).await, Err(Error::Invalid(_))));
    }
}

/// With write access to the database but without a key, values can be destroyed, but not replaced.
#[tokio::test]
async fn swapped_values_are_corrupt_and_others_are_served() {
    let store = sealed().await;
    commit(&store, vec![put("/a", "1"), put("/b", "2"), put("/c", "3")]).await;
    let inner = store.inner().as_ref();
    let (a, b) = (value(inner, "/a").await, value(inner, "/b").await);
    commit(inner, vec![put("/a", b), put("/b", a)]).await;
    for key in ["/a", "/b"] {
        match store.get(key).await {
            Err(Error::Corrupt { key: Some(named), .. }) => assert_eq!(&*named, key),
            other => panic!("{other:?}"),
        }
    }
    let page = store.list(ListRequest { limit: 2, ..ListRequest::default() }).await.unwrap();
    let named: Vec<_> = page.corrupt.iter().map(|corrupt| &*corrupt.key).collect();
    assert_eq!((named.as_slice(), page.remaining), (["/a", "/b"].as_slice(), 1));
    let after = page.last_key().cloned();
    let page = store.list(ListRequest { after, ..ListRequest::default() }).await.unwrap();
    assert_eq!(page.entries[0].value, "3");
}

#[tokio::test]
async fn a_corrupt_value_can_be_replaced_and_deleted() {
    let store = sealed().await;
    commit(&store, vec![put("/a", "1"), put("/b", "2")]).await;
    commit(store.inner().as_ref(), vec![put("/a", "x"), put("/b", "y")]).await;
    let corrupt = store.list(ListRequest::default()).await.unwrap().corrupt;
    let at = |index: usize| {
        vec![Condition::At(Arc::clone(&corrupt[index].key), corrupt[index].position)]
    };
    let replace = Txn { conditions: at(0), changes: vec![put("/a", "3")] };
    let delete = Change::Delete { key: "/b".into() };
    store.commit(replace).await.unwrap();
    let revision = store.commit(Txn { conditions: at(1), changes: vec![delete] }).await.unwrap();
    let page = store.list(ListRequest::default()).await.unwrap();
    assert_eq!((page.entries[0].value.as_ref(), page.corrupt.len()), (b"3".as_slice(), 0));
    // The changes that replaced it are delivered, without the replaced values.
    let mut watch = store.watch("/", Position::end_of(revision - 2), WithOld::Yes).await.unwrap();
    for key in ["/a", "/b"] {
        let batch = watch.next().await.unwrap();
        let [event] = batch.events.as_slice() else { panic!("{batch:?}") };
        assert_eq!((&*event.key, &event.replaced), (key, &Replaced::Old(None)));
    }
    // Its history is still corrupt. A watch over it fails; a watch from after it works.
    let mut watch = store.watch("/", Position::ZERO, WithOld::Yes).await.unwrap();
    let error = loop {
        if let Err(error) = watch.next().await {
            break error;
        }
    };
    assert!(matches!(error, Error::Corrupt { key: Some(key), .. } if &*key == "/a"));
    let mut watch = store.watch("/", Position::end_of(revision), WithOld::Yes).await.unwrap();
    commit(&store, vec![put("/c", "4")]).await;
    assert_eq!(watch.next().await.unwrap().events.len(), 1);
}

#[tokio::test]
async fn a_value_of_an_unknown_key_says_which() {
    let old = keyring();
    let store = Sealed::open(memory(), old.clone()).await.unwrap();
    let new = old.rotated().unwrap();
    store.use_keyring(new.clone()).await.unwrap();
    commit(&store, vec![put("/a", "1")]).await;
    // The marker is still under the old key, so that a stale keyring opens the store.
    let store = Sealed::open(Arc::clone(store.inner()), old).await.unwrap();
    match store.get("/a").await {
        Err(Error::Corrupt { reason, .. }) => {
            assert!(reason.contains(&new.current().to_string()), "{reason}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_foreign_keyring_is_not_taken_into_use() {
    let store = sealed().await;
    commit(&store, vec![put("/a", "1")]).await;
    assert!(matches!(store.use_keyring(keyring()).await, Err(Error::Unavailable(_))));
    assert_eq!(value(&store, "/a").await, "1");
}

#[tokio::test]
async fn a_rotation_rewraps_and_drops_the_old_key() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("keys/seal");
    let first = Keyring::create(&path).unwrap();
    let store = Sealed::open(memory(), first.clone()).await.unwrap();
    let changes = (0..40).map(|number| put(&format!("/k{number}"), SECRET)).collect();
    commit(&store, changes).await;
    commit(&store, vec![put("/k0", "changed")]).await;
    let before = store.list(ListRequest::default()).await.unwrap().entries;
    let newest = store.revision().await.unwrap();

    let second = Keyring::rotate(&path).unwrap();
    store.use_keyring(second.clone()).await.unwrap();
    commit(&store, vec![put("/new", "1")]).await;
    let both = [first.current(), second.current()].into();
    assert_eq!(store.key_ids_in_use().await.unwrap(), both);

    let mut reports = Vec::new();
    let done = store.rewrap(|progress| reports.push(progress)).await.unwrap();
    // With the marker.
    assert_eq!(done, Progress { seen: 42, rewritten: 41, corrupt: 0, remaining: 0 });
    assert!(reports.len() > 1 && reports.last() == Some(&done));
    let after = store.list(ListRequest::default()).await.unwrap().entries;
    assert_eq!(after[..40], before);
    let mut watch = store.watch("", Position::end_of(newest + 1), WithOld::Yes).await.unwrap();
    assert_eq!(watch.next().await.unwrap().events, []);
    assert_eq!(store.rewrap(|_| ()).await.unwrap().rewritten, 0);

    // History still needs the old key, and no longer when it is gone.
    assert_eq!(store.key_ids_in_use().await.unwrap(), both);
    store.compact(store.revision().await.unwrap()).await.unwrap();
    assert_eq!(store.key_ids_in_use().await.unwrap(), [second.current()].into());
    let dropped = Keyring::drop_key(&path, first.current()).unwrap();
    let store = Sealed::open(Arc::clone(store.inner()), dropped).await.unwrap();
    assert_eq!(store.list(ListRequest::default()).await.unwrap().entries, after);
    refusal(Arc::clone(store.inner()), first).await;
}

#[tokio::test]
async fn rewrapping_leaves_corrupt_values_and_counts_them() {
    let store = sealed().await;
    commit(&store, vec![put("/a", "1"), put("/b", "1")]).await;
    commit(store.inner().as_ref(), vec![put("/a", "not sealed")]).await;
    let other = keyring();
    assert!(store.use_keyring(other).await.is_err());
    let done = store.rewrap(|_| ()).await.unwrap();
    assert_eq!((done.corrupt, done.rewritten), (1, 0));
}

/// An inner store in which another client changes a key right before the first commit.
struct ChangedMeanwhile {
    inner: Arc<dyn Store>,
    is_armed: AtomicBool,
    with: Txn,
}

#[async_trait]
impl Store for ChangedMeanwhile {
    async fn revision(&self) -> Result<u64> {
        self.inner.revision().await
    }

    async fn epoch(&self) -> Result<Epoch> {
        self.inner.epoch().await
    }

    async fn compacted(&self) -> Result<u64> {
        self.inner.compacted().await
    }

    async fn get(&self, key: &str) -> Result<Snapshot<Option<Entry>>> {
        self.inner.get(key).await
    }

    async fn list(&self, request: ListRequest) -> Result<Page> {
        self.inner.list(request).await
    }

    async fn next_page(&self, prefix: &str, at: u64, after: Option<Arc<str>>) -> Result<Page> {
        self.inner.next_page(prefix, at, after).await
    }

    async fn commit(&self, txn: Txn) -> Result<u64> {
        if self.is_armed.swap(false, Ordering::Relaxed) {
            self.inner.commit(self.with.clone()).await?;
        }
        self.inner.commit(txn).await
    }

    async fn watch(&self, prefix: &str, after: Position, old: WithOld) -> Result<Box<dyn Watch>> {
        self.inner.watch(prefix, after, old).await
    }

    async fn next_events(&self, prefix: &str, after: Position, until: Position) -> Result<Events> {
        self.inner.next_events(prefix, after, until).await
    }

    async fn compact_noting(&self, revision: u64, prefixes: &[String]) -> Result<()> {
        self.inner.compact_noting(revision, prefixes).await
    }

    async fn last_changes(&self, prefixes: &[String], at: u64) -> Result<Vec<Position>> {
        self.inner.last_changes(prefixes, at).await
    }

    async fn age_history(&self, now: Duration, keep: Duration) -> Result<u64> {
        self.inner.age_history(now, keep).await
    }

    fn set_gate(&self, gate: Gate) {
        self.inner.set_gate(gate);
    }

    fn health(&self) -> Result<()> {
        self.inner.health()
    }

    fn silence(&self) -> Duration {
        self.inner.silence()
    }

    async fn recover(&self) -> Result<()> {
        self.inner.recover().await
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}

#[tokio::test]
async fn rewrapping_skips_values_that_are_changed_meanwhile() {
    let first = keyring();
    let second = first.rotated().unwrap();
    let store = Sealed::open(memory(), first).await.unwrap();
    commit(&store, vec![put("/a", "1"), put("/b", "1"), put("/c", "1")]).await;
    store.use_keyring(second.clone()).await.unwrap();
    // The change of another client, which has the new key.
    let with = {
        let other = Sealed::open(memory(), second.clone()).await.unwrap();
        commit(&other, vec![put("/b", "2")]).await;
        let sealed = value(other.inner().as_ref(), "/b").await;
        Txn { conditions: Vec::new(), changes: vec![put("/b", sealed)] }
    };
    let changed = ChangedMeanwhile {
        inner: Arc::clone(store.inner()),
        is_armed: AtomicBool::new(true),
        with,
    };
    let store = Sealed::open(Arc::new(changed), second).await.unwrap();
    let done = store.rewrap(|_| ()).await.unwrap();
    assert_eq!(done.rewritten, 3, "two keys and the marker");
    assert_eq!(value(&store, "/b").await, "2");
    assert_eq!(value(&store, "/c").await, "1");
}

#[tokio::test]
async fn a_sealed_store_has_the_figures_of_its_engine_and_knows_its_current_key() {
    let directory = tempfile::tempdir().unwrap();
    let inner = postern_store::redb::Redb::open(directory.path().join("db"), Options::default());
    let first = keyring();
    let store = Sealed::open(Arc::new(inner.unwrap()), first.clone()).await.unwrap();
    assert!(store.figures().free_bytes.is_some());
    assert!(store.is_current_key_in(&first) && !store.is_current_key_in(&keyring()));
    assert_eq!(store.key_count(), 1);
    let second = first.rotated().unwrap();
    store.use_keyring(second.clone()).await.unwrap();
    assert!(store.is_current_key_in(&second) && !store.is_current_key_in(&first));
    assert_eq!(store.key_count(), 2);
}
