//! Members and leases of the hostile remote store, which servers are tested on.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use futures_util::FutureExt as _;
use postern_store::hostile::{Faults, Remote};
use postern_store::{Change, Error, Member, Position, Store, Txn, WithOld};

fn member(id: &str) -> Member {
    Member { id: id.into(), address: format!("{id}:8443"), format: 1, seal_keys: Vec::new() }
}

fn ids(store: &Arc<dyn Store>) -> Vec<String> {
    let members = store.fleet().unwrap().members();
    let members = members.borrow();
    members.iter().map(|member| member.id.to_string()).collect()
}

#[tokio::test]
async fn members_come_and_go_for_all() {
    let remote = Remote::new(Faults::default());
    let (one, two) = (remote.connect(), remote.connect());
    two.fleet().unwrap().join(member("two")).await.unwrap();
    one.fleet().unwrap().join(member("one")).await.unwrap();
    one.fleet().unwrap().join(Member { format: 2, ..member("one") }).await.unwrap();
    assert_eq!((ids(&one), ids(&two)), (vec!["one".into(), "two".into()], ids(&one)));
    two.close().await;
    assert_eq!(ids(&one), ["one"]);
    drop(one);
    assert_eq!(ids(&remote.connect()), Vec::<String>::new());
}

#[tokio::test]
async fn a_lease_has_one_holder_until_it_is_dropped_or_lost() {
    let remote = Remote::new(Faults::default());
    let (one, two) = (remote.connect(), remote.connect());
    let held = one.fleet().unwrap().lease("compaction").await.unwrap();
    one.fleet().unwrap().lease("other").await.unwrap();
    let mut waiting = two.fleet().unwrap().lease("compaction");
    assert!((&mut waiting).now_or_never().is_none());
    drop(held);
    let held = waiting.await.unwrap();
    assert!(held.lost().now_or_never().is_none());
    remote.expire_lease("compaction");
    held.lost().await;
    let next = one.fleet().unwrap().lease("compaction").await.unwrap();
    // The old holder does not take it from the new one.
    drop(held);
    assert!(two.fleet().unwrap().lease("compaction").now_or_never().is_none());
    assert!(next.lost().now_or_never().is_none());
    let mut waiting = two.fleet().unwrap().lease("compaction");
    assert!((&mut waiting).now_or_never().is_none());
    two.close().await;
    assert!(matches!(waiting.await, Err(Error::Unavailable(_))));
}

#[tokio::test]
async fn a_restore_ends_watches_with_the_new_epoch() {
    let remote = Remote::new(Faults::default());
    let store = remote.connect();
    let put = |value: &'static str| Txn {
        conditions: Vec::new(),
        changes: vec![Change::Put { key: "/a".into(), value: value.into() }],
    };
    let first = store.commit(put("1")).await.unwrap();
    let second = store.commit(put("2")).await.unwrap();
    let mut watch = store.watch("", Position::end_of(second), WithOld::No).await.unwrap();
    let mut next = watch.next();
    assert!((&mut next).now_or_never().is_none());
    remote.restore(first).await.unwrap();
    let Err(Error::EpochChanged { begins }) = next.await else { panic!("the store was restored") };
    assert!(begins > second);
    let epoch = store.epoch().await.unwrap();
    assert_eq!((epoch.number, epoch.begins), (1, begins));
    let found = store.get("/a").await.unwrap().value.unwrap();
    assert_eq!((found.value.as_ref(), found.position), (b"1".as_slice(), Position::new(first, 0)));
    assert!(store.commit(put("3")).await.unwrap() > begins);
}
