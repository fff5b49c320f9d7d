//! At-rest keys that are in the store, wrapped by a KMS: the first start, rotation, backups, and
//! faults.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Cursor;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

use async_trait::async_trait;
use bytes::Bytes;
use postern_store::backup::{self, BackupError, RestoreOptions, WriteOptions};
use postern_store::hostile::{Faults, Remote};
use postern_store::memory::{Memory, MemoryRestore};
use postern_store::seal::{KeyId, Keyring, Kms, KmsError, Sealed, WrappedSeed};
use postern_store::{
    Change, Condition, Error, ListRequest, Options, Position, Result, Store, Txn, WithOld,
};
use zeroize::Zeroizing;

/// A KMS that adds a number to each byte. It counts its calls.
#[derive(Default)]
struct TestKms {
    kind: Option<&'static str>,
    /// Decrypts to another seed.
    is_wrong: bool,
    /// Does not encrypt.
    is_plain: bool,
    /// Fails.
    is_gone: bool,
    unwrapped: AtomicUsize,
}

impl TestKms {
    fn unwrapped(&self) -> usize {
        self.unwrapped.swap(0, Ordering::Relaxed)
    }
}

#[async_trait]
impl Kms for TestKms {
    fn kind(&self) -> &'static str {
        self.kind.unwrap_or("test")
    }

    fn address(&self) -> &'static str {
        "test:kms"
    }

    async fn wrap(&self, seed: &[u8]) -> std::result::Result<WrappedSeed, KmsError> {
        if self.is_gone {
            return Err(KmsError::new("test:kms is gone"));
        }
        let add = u8::from(!self.is_plain);
        let ciphertext: Vec<u8> = seed.iter().map(|byte| byte.wrapping_add(add)).collect();
        Ok(WrappedSeed {
            kind: self.kind().to_owned(),
            ciphertext: ciphertext.into(),
            wrapping_key: "1".to_owned(),
            annotations: [("test.example".to_owned(), vec![1])].into(),
        })
    }

    async fn unwrap(
        &self,
        wrapped: &WrappedSeed,
    ) -> std::result::Result<Zeroizing<Vec<u8>>, KmsError> {
        if self.is_gone {
            return Err(KmsError::new("test:kms is gone"));
        }
        assert_eq!(wrapped.annotations["test.example"], [1]);
        self.unwrapped.fetch_add(1, Ordering::Relaxed);
        let subtract = u8::from(!self.is_plain) + u8::from(self.is_wrong);
        let seed = wrapped.ciphertext.iter().map(|byte| byte.wrapping_sub(subtract));
        Ok(Zeroizing::new(seed.collect()))
    }

    async fn check(&self, sample: &WrappedSeed) -> std::result::Result<(), KmsError> {
        self.unwrap(sample).await.map(drop)
    }
}

fn memory() -> Arc<dyn Store> {
    Arc::new(Memory::new())
}

async fn open(inner: Arc<dyn Store>, kms: &TestKms) -> Result<Sealed> {
    Sealed::open_with_kms(inner, kms, true).await
}

async fn refusal(inner: Arc<dyn Store>, kms: &TestKms) -> String {
    match open(inner, kms).await {
        Err(error) => error.to_string(),
        Ok(_) => panic!("it opened"),
    }
}

fn put(key: &str) -> Change {
    Change::Put { key: key.into(), value: Bytes::from_static(b"value") }
}

async fn commit(store: &dyn Store, change: Change) -> u64 {
    store.commit(Txn { conditions: Vec::new(), changes: vec![change] }).await.unwrap()
}

/// The storage keys of the records.
async fn records(store: &Sealed) -> Vec<Arc<str>> {
    let request =
        ListRequest { prefix: "/postern/seal/keys/".to_owned(), ..ListRequest::default() };
    let page = store.inner().list(request).await.unwrap();
    page.entries.into_iter().map(|entry| entry.key).collect()
}

async fn in_use(store: &Sealed) -> Vec<KeyId> {
    store.key_ids_in_use().await.unwrap().into_iter().collect()
}

fn id(text: &str) -> KeyId {
    text.parse().unwrap()
}

#[tokio::test]
async fn the_first_start_makes_a_key_and_the_next_one_uses_it() {
    let (inner, kms) = (memory(), TestKms::default());
    let store = open(inner.clone(), &kms).await.unwrap();
    assert_eq!(store.revision().await.unwrap(), 1, "the key and the marker are one transaction");
    commit(&store, put("/a")).await;
    let keys = store.key_ids();
    assert_eq!(records(&store).await.len(), 1);
    assert!(records(&store).await[0].ends_with(&keys[0]));
    kms.unwrapped();
    let again = open(inner, &kms).await.unwrap();
    assert_eq!((again.key_ids(), kms.unwrapped()), (keys, 1));
    assert_eq!(again.get("/a").await.unwrap().value.unwrap().value, "value");
    // Nothing is new, so the KMS is not asked.
    let read = again.read_wrapped(&kms).await.unwrap();
    assert!(!again.has_changed(&read));
    assert_eq!(kms.unwrapped(), 0);
    again.check_kms(&kms).await.unwrap();
    assert_eq!(kms.unwrapped(), 1);
}

#[tokio::test]
async fn of_two_first_starts_at_once_one_makes_the_key() {
    for _ in 0..20 {
        let remote = Remote::new(Faults { delay_microseconds: 300, ..Faults::default() });
        let kms = TestKms::default();
        let (one, two) = tokio::join!(open(remote.connect(), &kms), open(remote.connect(), &kms));
        let (one, two) = (one.unwrap(), two.unwrap());
        assert_eq!(one.key_ids(), two.key_ids());
        assert_eq!(records(&one).await.len(), 1);
        commit(&one, put("/a")).await;
        assert!(two.get("/a").await.unwrap().value.is_some());
    }
}

#[tokio::test]
async fn a_first_start_survives_a_commit_without_an_outcome() {
    for _ in 0..20 {
        let faults = Faults { unknown_outcomes: 2, ..Faults::default() };
        let store = open(Remote::new(faults).connect(), &TestKms::default()).await;
        // Several times in a row is an error.
        match store {
            Ok(store) => assert_eq!(records(&store).await.len(), 1),
            Err(error) => assert!(matches!(error, Error::Unknown(_)), "{error}"),
        }
    }
}

#[tokio::test]
async fn records_are_neither_listed_nor_watched_nor_changed() {
    let (inner, kms) = (memory(), TestKms::default());
    let store = open(inner, &kms).await.unwrap();
    let mut watch = store.watch("", Position::ZERO, WithOld::Yes).await.unwrap();
    for key in ["/a", "/b", "/z"] {
        commit(&store, put(key)).await;
        store.use_keyring(store.add_wrapped(&kms).await.unwrap()).await.unwrap();
    }
    let all = ["/a", "/b", "/z"];
    for limit in 0..6 {
        let (mut after, mut listed) = (None, Vec::new());
        loop {
            let request = ListRequest { limit, after: after.clone(), ..ListRequest::default() };
            let page = store.list(request).await.unwrap();
            assert!(limit == 0 || page.entries.len() <= limit);
            listed.extend(page.entries.iter().map(|entry| entry.key.to_string()));
            assert_eq!(page.remaining, (all.len() - listed.len()) as u64, "limit {limit}");
            if page.remaining == 0 {
                break;
            }
            after = page.last_key().cloned();
        }
        assert_eq!(listed, all);
    }
    for prefix in ["/postern/", "/postern/seal/", "/postern/seal/keys/", "/postern/seal/keys/0"] {
        let request = ListRequest { prefix: prefix.to_owned(), limit: 1, ..ListRequest::default() };
        let page = store.list(request).await.unwrap();
        assert_eq!((page.entries.len(), page.remaining), (0, 0), "{prefix}");
    }
    let newest = store.revision().await.unwrap();
    let mut after = None;
    let mut listed = Vec::new();
    loop {
        let page = store.next_page("", newest, after).await.unwrap();
        after = page.last_key().cloned();
        listed.extend(page.entries.iter().map(|entry| entry.key.to_string()));
        if after.is_none() {
            break;
        }
    }
    assert_eq!(listed, all);
    let mut seen = Vec::new();
    while seen.last() != Some(&"/z".to_owned()) {
        let batch = watch.next().await.unwrap();
        seen.extend(batch.events.iter().map(|event| event.key.to_string()));
    }
    assert_eq!(seen, all);
    let record = records(&store).await.remove(0);
    assert_eq!(store.get(&record).await.unwrap().value, None);
    for txn in [
        Txn { conditions: vec![], changes: vec![put(&record)] },
        Txn { conditions: vec![Condition::Absent(record)], changes: vec![put("/c")] },
    ] {
        assert!(matches!(store.commit(txn).await, Err(Error::Invalid(_))));
    }
}

#[tokio::test]
async fn a_rotation_rewraps_and_drops_the_old_key() {
    let (inner, kms) = (memory(), TestKms::default());
    let store = open(inner.clone(), &kms).await.unwrap();
    let first = id(&store.key_ids()[0]);
    commit(&store, put("/a")).await;
    let keyring = store.add_wrapped(&kms).await.unwrap();
    let second = keyring.current();
    assert_ne!(first, second);
    store.use_keyring(keyring).await.unwrap();
    commit(&store, put("/b")).await;
    assert_eq!(store.rewrap(|_| ()).await.unwrap().corrupt, 0);
    store.compact(store.revision().await.unwrap()).await.unwrap();
    assert_eq!(in_use(&store).await, [second]);

    let refused = store.remove_wrapped(&kms, second).await.unwrap_err();
    assert!(refused.to_string().contains("is the current one"), "{refused}");
    let left = store.remove_wrapped(&kms, first).await.unwrap();
    assert_eq!(left.ids(), [second]);
    let unknown = store.remove_wrapped(&kms, first).await.unwrap_err();
    assert!(unknown.to_string().contains("does not have key"), "{unknown}");
    let store = open(inner, &kms).await.unwrap();
    assert_eq!(store.key_ids(), [second.to_string()]);
    assert_eq!(store.list(ListRequest::default()).await.unwrap().entries.len(), 2);
}

#[tokio::test]
async fn servers_that_share_a_store_rotate_together() {
    let remote = Remote::new(Faults { delay_microseconds: 200, ..Faults::default() });
    let kms = TestKms::default();
    let (one, two) =
        (open(remote.connect(), &kms).await.unwrap(), open(remote.connect(), &kms).await.unwrap());
    let old = one.key_ids();
    commit(&one, put("/a")).await;
    let keyring = one.add_wrapped(&kms).await.unwrap();
    let new = keyring.current();
    one.use_keyring(keyring).await.unwrap();
    assert_eq!(one.prepared_key(), Some(new));
    commit(&one, put("/b")).await;
    assert_eq!(in_use(&one).await.len(), 1, "a prepared key is not used");

    // The other server finds it in the store.
    let read = two.read_wrapped(&kms).await.unwrap();
    assert!(two.has_changed(&read));
    two.use_keyring(read).await.unwrap();
    assert_eq!(two.prepared_key(), Some(new));
    two.activate_prepared_key().await.unwrap();
    commit(&two, put("/c")).await;
    // A server that has not seen that yet can read the value: it has the key.
    assert!(one.get("/c").await.unwrap().value.is_some());
    assert_eq!(in_use(&two).await.len(), 2);
    // The marker says which key is active, also for a server that starts later.
    let three = open(remote.connect(), &kms).await.unwrap();
    assert_eq!(three.prepared_key(), None);
    three.rewrap(|_| ()).await.unwrap();
    three.compact(three.revision().await.unwrap()).await.unwrap();
    assert_eq!(in_use(&three).await, [new]);
    let left = three.remove_wrapped(&kms, id(&old[0])).await.unwrap();
    assert_eq!(left.ids(), [new]);
    let read = two.read_wrapped(&kms).await.unwrap();
    assert_eq!(read.ids(), [new]);
}

#[tokio::test]
async fn a_rotation_survives_faults_of_the_store() {
    let remote = Remote::new(Faults::default());
    let kms = TestKms::default();
    let store = open(remote.connect(), &kms).await.unwrap();
    remote.set_faults(Faults { refused_commits: 3, unknown_outcomes: 3, ..Faults::default() });
    let mut added = 0;
    for _ in 0..30 {
        if let Ok(keyring) = store.add_wrapped(&kms).await {
            store.use_keyring(keyring).await.unwrap();
            added += 1;
        }
    }
    remote.set_faults(Faults::default());
    // A commit that was reported as failed has added nothing. One without an outcome may have added a key.
    let read = store.read_wrapped(&kms).await.unwrap();
    assert!(added > 5 && read.ids().len() > added);
    let again = open(remote.connect(), &kms).await.unwrap();
    assert_eq!(again.key_count(), read.ids().len());
}

#[tokio::test]
async fn a_kms_that_fails_is_named_and_says_what_to_do() {
    let (inner, kms) = (memory(), TestKms::default());
    let gone = TestKms { is_gone: true, ..TestKms::default() };
    // Nothing is stored when the first key cannot be wrapped.
    let why = refusal(inner.clone(), &gone).await;
    assert!(why.contains("test:kms is gone"), "{why}");
    assert_eq!(inner.revision().await.unwrap(), 0);
    let why = refusal(inner.clone(), &TestKms { is_plain: true, ..TestKms::default() }).await;
    assert!(why.contains("does not encrypt"), "{why}");
    // A KMS that cannot decrypt its own ciphertext is noticed before a value depends on it.
    let why = refusal(inner.clone(), &TestKms { is_wrong: true, ..TestKms::default() }).await;
    assert!(why.contains("returned another seed"), "{why}");
    assert_eq!(inner.revision().await.unwrap(), 0);

    let store = open(inner.clone(), &kms).await.unwrap();
    let key = store.key_ids().remove(0);
    for (kms, expected) in [
        (gone, "test:kms is gone"),
        (TestKms { is_wrong: true, ..TestKms::default() }, "returned another seed"),
        (
            TestKms { kind: Some("other"), ..TestKms::default() },
            "wrapped by a KMS of the kind \"test\"",
        ),
    ] {
        let why = refusal(inner.clone(), &kms).await;
        assert!(why.contains(expected) && why.contains(&key), "{why}");
        // A running server has the key, and continues.
        store.read_wrapped(&kms).await.unwrap();
        commit(&store, put("/a")).await;
    }
    let gone = TestKms { is_gone: true, ..TestKms::default() };
    assert!(store.check_kms(&gone).await.is_err());
    assert!(store.add_wrapped(&gone).await.unwrap_err().to_string().contains("cannot wrap"));
    assert_eq!(records(&store).await.len(), 1);
}

#[tokio::test]
async fn a_record_that_was_changed_is_refused() {
    let (inner, kms) = (memory(), TestKms::default());
    let store = open(inner.clone(), &kms).await.unwrap();
    store.use_keyring(store.add_wrapped(&kms).await.unwrap()).await.unwrap();
    let keys = records(&store).await;
    let values: Vec<Bytes> = {
        let mut values = Vec::new();
        for key in &keys {
            values.push(inner.get(key).await.unwrap().value.unwrap().value);
        }
        values
    };
    let replace = async |value: &[u8]| {
        let value = Bytes::copy_from_slice(value);
        commit(&*inner, Change::Put { key: keys[0].clone(), value }).await;
    };
    // The record of another key, one changed bit, and no record at all.
    replace(&values[1]).await;
    let why = refusal(inner.clone(), &kms).await;
    assert!(
        why.contains("another seed") && why.contains(keys[0].rsplit('/').next().unwrap()),
        "{why}"
    );
    let mut changed = values[0].to_vec();
    let middle = changed.len() / 2;
    changed[middle] ^= 1;
    replace(&changed).await;
    assert!(!refusal(inner.clone(), &kms).await.is_empty());
    replace(b"x").await;
    let why = refusal(inner.clone(), &kms).await;
    assert!(why.contains("corrupt") && why.contains(&*keys[0]), "{why}");
    replace(&values[0]).await;
    open(inner.clone(), &kms).await.unwrap();
    // Without its record, the key of the values is missing.
    for key in &keys {
        commit(&*inner, Change::Delete { key: key.clone() }).await;
    }
    let why = refusal(inner, &kms).await;
    assert!(why.contains("the records of the keys are lost"), "{why}");
}

#[tokio::test]
async fn a_store_of_a_keyring_file_gets_no_wrapped_key() {
    let inner = memory();
    Sealed::open(inner.clone(), Keyring::generate().unwrap()).await.unwrap();
    let why = refusal(inner, &TestKms::default()).await;
    assert!(why.contains("keyring file"), "{why}");
    let Err(unprepared) = Sealed::open_with_kms(memory(), &TestKms::default(), false).await else {
        panic!("it opened")
    };
    assert!(unprepared.to_string().contains("no wrapped at-rest keys"), "{unprepared}");
}

#[tokio::test]
async fn a_backup_has_the_wrapped_keys_and_a_restore_uses_them() {
    let kms = TestKms::default();
    let store = open(memory(), &kms).await.unwrap();
    commit(&store, put("/a")).await;
    store.use_keyring(store.add_wrapped(&kms).await.unwrap()).await.unwrap();
    commit(&store, put("/b")).await;
    let options = WriteOptions { now: SystemTime::UNIX_EPOCH, skip_corrupt: false };
    let mut file = Vec::new();
    let written = backup::write(&store, options, &mut file, |_| ()).await.unwrap().summary;
    let ids: Vec<String> = written.wrapped_ids.iter().map(ToString::to_string).collect();
    let mut expected = store.key_ids();
    expected.sort();
    assert_eq!(ids, expected);
    assert_eq!(written.key_ids, written.wrapped_ids);
    let mut file = Cursor::new(file);
    assert_eq!(backup::verify(&mut file).unwrap(), written);

    let keyring = backup::wrapped_keys(&mut file).unwrap().unwrap(&kms).await.unwrap();
    assert_eq!(keyring.current().to_string(), store.key_ids()[1], "the order is kept");
    let restore = RestoreOptions { now: SystemTime::UNIX_EPOCH, above: 0 };
    let foreign = Keyring::generate().unwrap();
    let refused = backup::restore(&mut file, &foreign, restore, MemoryRestore::begin, |_| ());
    assert!(matches!(refused, Err(BackupError::MissingKeys(_))));
    let (restored, _) =
        backup::restore(&mut file, &keyring, restore, MemoryRestore::begin, |_| ()).unwrap();
    let restored = open(Arc::new(restored), &kms).await.unwrap();
    assert_eq!(restored.key_ids(), store.key_ids());
    let listed = restored.list(ListRequest::default()).await.unwrap();
    assert_eq!(listed.entries, store.list(ListRequest::default()).await.unwrap().entries);
}

#[tokio::test]
async fn a_backup_without_a_wrapped_key_is_not_made() {
    let kms = TestKms::default();
    let store = open(memory(), &kms).await.unwrap();
    let record = records(&store).await.remove(0);
    let value = Bytes::from_static(b"x");
    commit(&**store.inner(), Change::Put { key: record, value }).await;
    let options = WriteOptions { now: SystemTime::UNIX_EPOCH, skip_corrupt: true };
    let refused = backup::write(&store, options, &mut Vec::new(), |_| ()).await;
    assert!(matches!(refused, Err(BackupError::CorruptValues { .. })));
}

#[tokio::test]
async fn a_database_in_a_file_keeps_its_wrapped_keys() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let kms = TestKms::default();
    let inner = postern_store::open(&path, Options::default()).await.unwrap();
    let store = open(inner, &kms).await.unwrap();
    store.use_keyring(store.add_wrapped(&kms).await.unwrap()).await.unwrap();
    commit(&store, put("/a")).await;
    let keys = store.key_ids();
    store.close().await;
    drop(store);
    let inner = postern_store::open(&path, Options::default()).await.unwrap();
    let store = open(inner, &kms).await.unwrap();
    assert_eq!(store.key_ids(), keys);
    assert!(store.get("/a").await.unwrap().value.is_some());
}
