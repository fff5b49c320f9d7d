//! The rotation of the at-rest key on a store that several servers share.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and writes files of its own"
)]

use std::sync::Arc;

use bytes::Bytes;
use postern_store::hostile::{Faults, Remote};
use postern_store::seal::{KeyId, Keyring, Sealed};
use postern_store::{Change, Condition, Error, ListRequest, Position, Store, Txn, Watch, WithOld};

async fn open(remote: &Arc<Remote>, keyring: &Keyring) -> Sealed {
    Sealed::open(remote.connect(), keyring.clone()).await.unwrap()
}

async fn put(store: &Sealed, key: &str) -> postern_store::Result<u64> {
    let change = Change::Put { key: key.into(), value: Bytes::from_static(b"value") };
    store.commit(Txn { conditions: Vec::new(), changes: vec![change] }).await
}

async fn in_use(store: &Sealed) -> Vec<KeyId> {
    store.key_ids_in_use().await.unwrap().into_iter().collect()
}

/// Reads a watch until a key comes, or until the watch fails.
async fn until(watch: &mut Box<dyn Watch>, key: &str) -> postern_store::Result<()> {
    loop {
        if watch.next().await?.events.iter().any(|event| &*event.key == key) {
            return Ok(());
        }
    }
}

#[tokio::test]
async fn a_key_is_used_after_its_activation_by_all_servers() {
    let remote = Remote::new(Faults::default());
    let first = Keyring::generate().unwrap();
    let second = first.rotated().unwrap();
    let (one, two) = (open(&remote, &first).await, open(&remote, &first).await);
    let mut watch = two.watch("", Position::ZERO, WithOld::No).await.unwrap();
    assert_eq!(one.prepared_key(), None);
    one.activate_prepared_key().await.unwrap();

    // Prepared: both can read it, and nothing is encrypted with it.
    one.use_keyring(second.clone()).await.unwrap();
    assert_eq!(one.prepared_key(), Some(second.current()));
    assert!(!one.has_changed(&second) && two.has_changed(&second));
    put(&one, "/a").await.unwrap();
    assert_eq!(in_use(&one).await, [first.current()]);
    two.use_keyring(second.clone()).await.unwrap();

    one.activate_prepared_key().await.unwrap();
    assert_eq!(one.prepared_key(), None);
    put(&one, "/b").await.unwrap();
    until(&mut watch, "/b").await.unwrap();
    // The other server has seen the marker in its watch, and encrypts with the new key, too.
    assert_eq!(two.prepared_key(), None);
    put(&two, "/c").await.unwrap();
    let (mut both, mut used) = (vec![first.current(), second.current()], in_use(&one).await);
    both.sort_unstable();
    used.sort_unstable();
    assert_eq!(used, both);
    assert_eq!(one.rewrap(|_| ()).await.unwrap().rewritten, 1);
    let compacted = one.revision().await.unwrap();
    one.compact(compacted).await.unwrap();
    assert_eq!(in_use(&two).await, [second.current()]);
    assert_eq!(two.list(ListRequest::default()).await.unwrap().entries.len(), 3);
    // A server that starts later uses it at once.
    let third = open(&remote, &second).await;
    assert_eq!(third.prepared_key(), None);
}

#[tokio::test]
async fn a_server_without_the_active_key_is_told_and_recovers_with_it() {
    let remote = Remote::new(Faults::default());
    let first = Keyring::generate().unwrap();
    let second = first.rotated().unwrap();
    let (one, two) = (open(&remote, &second).await, open(&remote, &second).await);
    // The marker is encrypted with the key of the server that was first, so there is nothing to rotate.
    assert_eq!((one.prepared_key(), two.prepared_key()), (None, None));
    let third = second.rotated().unwrap();
    one.use_keyring(third.clone()).await.unwrap();
    let mut watch = two.watch("", Position::ZERO, WithOld::No).await.unwrap();
    one.activate_prepared_key().await.unwrap();
    put(&one, "/new").await.unwrap();

    let unknown = |error: Error| matches!(&error, Error::UnknownSealKey { id } if *id == third.current().to_string());
    assert!(unknown(until(&mut watch, "/new").await.unwrap_err()));
    assert!(unknown(two.get("/new").await.unwrap_err()));
    assert!(unknown(two.list(ListRequest::default()).await.unwrap_err()));
    let scanned = two.scan(two.revision().await.unwrap(), Arc::new(|_| ())).await;
    assert!(unknown(scanned.unwrap_err()));
    let Err(refused) = Sealed::open(remote.connect(), second.clone()).await else {
        panic!("it opened")
    };
    assert!(refused.to_string().contains("copy that of another server"), "{refused}");

    two.use_keyring(third.clone()).await.unwrap();
    let mut watch = two.watch("", Position::ZERO, WithOld::No).await.unwrap();
    until(&mut watch, "/new").await.unwrap();
    two.get("/new").await.unwrap();
}

#[tokio::test]
async fn a_server_that_missed_the_activation_encrypts_with_the_active_key() {
    let remote = Remote::new(Faults::default());
    let first = Keyring::generate().unwrap();
    let second = first.rotated().unwrap();
    let (one, two) = (open(&remote, &second).await, open(&remote, &second).await);
    put(&two, "/old").await.unwrap();
    let third = second.rotated().unwrap();
    for store in [&one, &two] {
        store.use_keyring(third.clone()).await.unwrap();
    }
    let active = second.current();
    assert!(!one.is_retired(active) && !one.is_retired(third.current()));
    one.activate_prepared_key().await.unwrap();
    assert!(one.is_retired(active), "it may be dropped when nothing needs it");
    // No watch has told the other server.
    assert_eq!(two.prepared_key(), Some(third.current()));
    put(&two, "/new").await.unwrap();
    two.rewrap(|_| ()).await.unwrap();
    one.compact(one.revision().await.unwrap()).await.unwrap();
    assert_eq!(in_use(&one).await, [third.current()]);
    one.use_keyring(third.without(active).unwrap()).await.unwrap();
    assert_eq!(one.list(ListRequest::default()).await.unwrap().entries.len(), 2);
    // A conflict of the caller is reported as such.
    let change = Change::Put { key: "/new".into(), value: Bytes::new() };
    let conditions = vec![Condition::Absent("/old".into())];
    let refused = two.commit(Txn { conditions, changes: vec![change] }).await;
    assert!(matches!(refused, Err(Error::Conflict { key, .. }) if &*key == "/old"));
}

#[tokio::test]
async fn servers_whose_keyrings_disagree_do_not_go_back() {
    let remote = Remote::new(Faults::default());
    let first = Keyring::generate().unwrap();
    // Two operators rotate at once, and then give all servers all keys, with different current ones.
    let second = first.rotated().unwrap();
    let third = second.rotated().unwrap();
    let text = third
        .to_text()
        .replace(&format!("current {}", third.current()), &format!("current {}", second.current()));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("seal.keys");
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let other = Keyring::load(&path).unwrap();

    let (one, two) = (open(&remote, &first).await, open(&remote, &first).await);
    one.use_keyring(other.clone()).await.unwrap();
    two.use_keyring(third.clone()).await.unwrap();
    assert_eq!(
        (one.prepared_key(), two.prepared_key()),
        (Some(second.current()), Some(third.current()))
    );
    one.activate_prepared_key().await.unwrap();
    // The second server has not seen that yet. It may go on to its own key, which was never active.
    two.activate_prepared_key().await.unwrap();
    assert_eq!(two.prepared_key(), None);
    let mut watch = one.watch("", Position::ZERO, WithOld::No).await.unwrap();
    put(&two, "/end").await.unwrap();
    until(&mut watch, "/end").await.unwrap();
    assert_eq!(one.prepared_key(), None, "the second key is retired");
    put(&one, "/last").await.unwrap();
    one.rewrap(|_| ()).await.unwrap();
    one.compact(one.revision().await.unwrap()).await.unwrap();
    assert_eq!(in_use(&one).await, [third.current()]);
}

#[tokio::test]
async fn a_keyring_without_the_active_key_does_not_replace_another_one() {
    let remote = Remote::new(Faults::default());
    let first = Keyring::generate().unwrap();
    let second = first.rotated().unwrap();
    let one = open(&remote, &first).await;
    one.use_keyring(second.clone()).await.unwrap();
    one.activate_prepared_key().await.unwrap();
    assert!(one.use_keyring(first.clone()).await.is_err());
    put(&one, "/a").await.unwrap();
    one.get("/a").await.unwrap();
    assert!(one.is_current_key_in(&second) && !one.is_current_key_in(&first));
}

#[tokio::test]
async fn after_a_restore_nothing_is_encrypted_with_a_key_that_the_restore_took_back() {
    let remote = Remote::new(Faults::default());
    let first = Keyring::generate().unwrap();
    let second = first.rotated().unwrap();
    let (one, two) = (open(&remote, &second).await, open(&remote, &second).await);
    put(&one, "/before").await.unwrap();
    let third = second.rotated().unwrap();
    for store in [&one, &two] {
        store.use_keyring(third.clone()).await.unwrap();
    }
    let copied = one.revision().await.unwrap();
    one.activate_prepared_key().await.unwrap();
    put(&one, "/after").await.unwrap();

    let mut watches = Vec::new();
    for store in [&one, &two] {
        watches.push(store.watch("", Position::ZERO, WithOld::No).await.unwrap());
    }
    remote.restore(copied).await.unwrap();
    for watch in &mut watches {
        let ended = until(watch, "/never").await;
        assert!(matches!(ended, Err(Error::EpochChanged { .. })), "{ended:?}");
    }
    put(&one, "/new").await.unwrap();
    put(&two, "/newer").await.unwrap();
    assert_eq!(one.prepared_key(), Some(third.current()), "its activation was taken back");
    // A server that has only the keys from before the restore reads everything.
    let late = open(&remote, &second).await;
    assert_eq!(late.list(ListRequest::default()).await.unwrap().entries.len(), 3);
}
