//! The rotation of the at-rest key with more values, and larger ones, than one transaction takes.

use std::sync::Arc;

use postern_store::seal::{Keyring, Sealed};
use postern_store::{Change, Condition, Error, ListRequest, Position, Store as _, Txn};

use crate::open;
use crate::server::EtcdServer;

const SMALL: usize = 300;
const LARGE: usize = 5;
const LARGE_BYTES: usize = 800_000;

fn put(key: String, bytes: usize) -> Txn {
    let value = vec![b'v'; bytes].into();
    Txn { conditions: vec![], changes: vec![Change::Put { key: key.into(), value }] }
}

async fn state(store: &Sealed) -> Vec<(Arc<str>, Position, usize)> {
    let page = store.list(ListRequest::default()).await.unwrap();
    assert!(page.corrupt.is_empty(), "{:?}", page.corrupt);
    page.entries.into_iter().map(|one| (one.key, one.position, one.value.len())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_values_are_rewrapped_however_many_and_large_they_are() {
    let server = EtcdServer::start();
    let url = server.url("/rotation");
    let mut keyring = Keyring::generate().unwrap();
    let sealed = Sealed::open(open(&url).await, keyring.clone()).await.unwrap();
    for number in 0..SMALL {
        // Keys as long as they can be take room in a request, too.
        let length = if number < 130 { 1000 } else { 1 };
        sealed.commit(put(format!("/a/{number:03}/{}", "k".repeat(length)), 10)).await.unwrap();
    }
    for number in 0..LARGE {
        sealed.commit(put(format!("/a/050/large-{number}"), LARGE_BYTES)).await.unwrap();
    }
    let before = state(&sealed).await;
    assert_eq!(before.len(), SMALL + LARGE);

    // The second time, all values have their positions in their headers.
    for _ in 0..2 {
        let dropped = keyring.current();
        keyring = keyring.rotated().unwrap();
        sealed.use_keyring(keyring.clone()).await.unwrap();
        sealed.activate_prepared_key().await.unwrap();
        let progress = sealed.rewrap(|_| ()).await.unwrap();
        assert_eq!(progress.rewritten, (SMALL + LARGE) as u64);
        assert_eq!(state(&sealed).await, before);
        let revision = sealed.revision().await.unwrap();
        sealed.compact(revision).await.unwrap();
        assert!(!sealed.key_ids_in_use().await.unwrap().contains(&dropped));
        assert_eq!(sealed.rewrap(|_| ()).await.unwrap().rewritten, 0);
    }
    sealed.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rewrite_of_a_value_that_was_changed_is_a_conflict() {
    let server = EtcdServer::start();
    let store = open(&server.url("/rewrites")).await;
    let first = store.commit(put("/a".to_owned(), 1)).await.unwrap();
    let rewrite = |at: u64, value: &'static str| Txn {
        conditions: vec![Condition::At("/a".into(), Position::new(at, 0))],
        changes: vec![Change::Rewrite { key: "/a".into(), value: value.into() }],
    };
    // A rewrite keeps the position, so another one with the same condition is done.
    for value in ["1", "22"] {
        store.commit(rewrite(first, value)).await.unwrap();
        let found = store.get("/a").await.unwrap().value.unwrap();
        assert_eq!((&*found.value, found.position.revision()), (value.as_bytes(), first));
    }
    let second = store.commit(put("/a".to_owned(), 3)).await.unwrap();
    let refused = store.commit(rewrite(first, "4444")).await;
    let Err(Error::Conflict { found: Some(found), .. }) = refused else { panic!("{refused:?}") };
    assert_eq!(found.revision(), second);
    store.close().await;
}
