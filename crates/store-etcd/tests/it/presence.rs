//! A store that does not exist yet, and one that does not exist any longer: moved, removed, or lost
//! with etcd's data.

use std::sync::Arc;
use std::time::Duration;

use postern_store::seal::{Keyring, Sealed};
use postern_store::{
    Change, Condition, Error, ListRequest, Member, Position, RemoteEngine, Store, StoreState, Txn,
    WithOld,
};
use postern_store_etcd::{Etcd, EtcdEngine, EtcdUrl};
use tokio::time::timeout;

use crate::identity::{base64, call};
use crate::open;
use crate::server::{EtcdServer, access};

/// A server notices within seconds.
const NOTICE: Duration = Duration::from_secs(10);

fn put(key: &str) -> Txn {
    let change = Change::Put { key: key.into(), value: "value".into() };
    Txn { conditions: Vec::new(), changes: vec![change] }
}

/// Removes all keys under a prefix, as an operator does.
fn remove(server: &EtcdServer, prefix: &str) {
    let [key, end] = [format!("{prefix}/"), format!("{prefix}0")].map(|key| base64(key.as_bytes()));
    let body = format!(r#"{{"key":"{key}","range_end":"{end}"}}"#);
    call(&server.address(), "kv/deleterange", None, &body);
}

fn remote(url: EtcdUrl) -> EtcdEngine {
    EtcdEngine { url, access: access() }
}

async fn reason(store: &Arc<dyn Store>) -> String {
    let mut gone = store.fleet().unwrap().gone();
    let told = timeout(NOTICE, gone.wait_for(Option::is_some)).await.unwrap().unwrap().clone();
    told.unwrap().to_string()
}

/// Checks that nothing is read or written any more.
async fn assert_ended(store: &Arc<dyn Store>) {
    let only_check = Txn { conditions: vec![Condition::Absent("/x".into())], changes: vec![] };
    let calls = [
        store.revision().await.map(drop),
        store.get("/a").await.map(drop),
        store.list(ListRequest::default()).await.map(drop),
        store.commit(only_check).await.map(drop),
        store.commit(put("/a")).await.map(drop),
        store.age_history(Duration::from_secs(9), Duration::from_secs(1)).await.map(drop),
    ];
    assert!(calls.iter().all(|call| matches!(call, Err(Error::Unavailable(_)))), "{calls:?}");
    assert!(store.health().is_err());
}

fn me() -> Member {
    Member { id: "one".into(), address: "one:1".to_owned(), format: 1, seal_keys: Vec::new() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_was_moved_serves_nothing_and_says_where_the_data_is() {
    let server = EtcdServer::start();
    let store = remote(server.url("/moved"));
    let [paused, other] = [open(&store.url).await, open(&store.url).await];
    let last = paused.commit(put("/a")).await.unwrap();
    assert_eq!(other.revision().await.unwrap(), last);
    let source = store.open_source("file:/there").await.unwrap();
    source.mark_moved("file:/there", last).await.unwrap();
    source.store().close().await;
    // The first read notices it, and not only the heartbeat.
    let refused = paused.revision().await.unwrap_err().to_string();
    assert!(refused.contains("was moved to file:/there"), "{refused}");
    assert!(reason(&paused).await.contains("was moved to file:/there"));
    assert_ended(&paused).await;
    assert!(other.fleet().unwrap().join(me()).await.is_err());
    assert!(reason(&other).await.contains("was moved to file:/there"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_written_to_an_etcd_that_has_lost_its_data() {
    let mut server = EtcdServer::start();
    let store = remote(server.url("/lost"));
    let running = open(&store.url).await;
    for _ in 0..20 {
        running.commit(put("/a")).await.unwrap();
    }
    running.fleet().unwrap().join(me()).await.unwrap();
    server.lose_data();
    let _ = running.commit(put("/a")).await;
    let told = reason(&running).await;
    assert!(told.contains("is gone") && told.contains("postern storage restore"), "{told}");
    assert_ended(&running).await;
    assert_eq!(store.state().await.unwrap(), StoreState::Unused);
    running.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_first_transaction_of_an_init_writes_to_an_unused_prefix() {
    let server = EtcdServer::start();
    let store = remote(server.url("/unused"));
    let refused = store.open().await.map(drop).unwrap_err().to_string();
    assert!(refused.contains("is not prepared: run postern init"), "{refused}");
    let [one, two] = [store.prepare().await.unwrap(), store.prepare().await.unwrap()];
    assert_eq!(one.revision().await.unwrap(), 0);
    assert_eq!(store.state().await.unwrap(), StoreState::Unused);
    let open = async |store| Sealed::open(store, Keyring::generate().unwrap()).await.map(drop);
    let (one, two) = tokio::join!(open(one), open(two));
    assert_eq!([&one, &two].iter().filter(|opened| opened.is_ok()).count(), 1, "{one:?} {two:?}");
    let lost = one.err().or(two.err()).unwrap().to_string();
    assert!(lost.contains("keyring does not belong to this database"), "{lost}");
    assert_eq!(store.state().await.unwrap(), StoreState::InUse);
    for inside in ["/unused/m", "/unused/m/x", "/unused/d"] {
        let refused = remote(server.url(inside)).prepare().await.map(drop).unwrap_err().to_string();
        let expected = ["is inside the store", "data of something else"];
        assert!(expected.iter().any(|part| refused.contains(part)), "{refused}");
    }
    remote(server.url("/unused2")).prepare().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_on_a_prefix_that_was_removed_has_nothing_of_the_one_before() {
    let server = EtcdServer::start();
    let store = remote(server.url("/again"));
    let before = store.prepare().await.unwrap();
    let old = before.commit(put("/old")).await.unwrap();
    before.revision().await.unwrap();
    remove(&server, "/again");
    let new = store.prepare().await.unwrap();
    let first = new.commit(put("/new")).await.unwrap();
    let refused = before.revision().await.unwrap_err().to_string();
    assert!(refused.contains("was removed and prepared again"), "{refused}");
    assert!(refused.contains(&reason(&before).await), "{refused}");
    assert_ended(&before).await;

    assert!(new.compacted().await.unwrap() > old);
    let start = new.compacted().await.unwrap() + 1;
    let page = new.list(ListRequest { at: Some(start), ..ListRequest::default() }).await.unwrap();
    assert!(page.entries.is_empty());
    let resumed = new.watch("", Position::end_of(old), WithOld::No).await.map(drop);
    assert!(matches!(resumed, Err(Error::Compacted { .. })), "{resumed:?}");
    let mut watch = new.watch("", Position::end_of(start), WithOld::No).await.unwrap();
    let batch = watch.next().await.unwrap();
    assert_eq!((batch.revision, &*batch.events[0].key), (first, "/new"));

    // Without that note, reads and watches begin with the store, too.
    remove(&server, "/again");
    let plain = Arc::new(Etcd::open_or_create(&store.url, &access()).await.unwrap());
    let second = plain.commit(put("/plain")).await.unwrap();
    let page = plain.list(ListRequest { at: Some(first), ..ListRequest::default() }).await.unwrap();
    assert!(page.entries.is_empty());
    let mut watch = plain.watch("", Position::end_of(old), WithOld::No).await.unwrap();
    let batch = watch.next().await.unwrap();
    assert_eq!((batch.revision, &*batch.events[0].key), (second, "/plain"));
}
