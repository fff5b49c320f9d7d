//! Cases on stores that were made from entries instead of transactions.

use std::sync::Arc;

use super::{
    Subject, at, commit, delete, events_until, get, listed, put, set, text, txn, under, watch,
};
use crate::{Entry, Error, ListRequest, Position, Replaced, Store, WithOld};

/// The newest revision of the restored stores, far behind every position of an entry.
const BEGIN: u64 = (1 << 40) + 7;

fn entry(name: &str, value: &str, position: Position) -> Entry {
    Entry { key: super::key(name), value: super::bytes(value), position }
}

fn entries() -> Vec<Entry> {
    vec![
        entry("/a", "1", Position::new(9, 1)),
        entry("/b", "2", Position::new(9, 0)),
        entry("/c", "3", Position::new(5, 127)),
    ]
}

async fn restored(subject: &impl Subject) -> Arc<dyn Store> {
    subject.restore(BEGIN, entries()).await
}

/// The entries are there with their values and positions, and revisions go on after the restored one.
pub async fn begins_at_the_restored_revision(subject: &impl Subject) {
    let store = restored(subject).await;
    assert_eq!(store.revision().await.unwrap(), BEGIN);
    assert_eq!(store.compacted().await.unwrap(), BEGIN - 1);
    for expected in entries() {
        assert_eq!(get(&store, &expected.key).await, Some(expected));
    }
    let now = ListRequest { at: Some(BEGIN), ..under("") };
    for request in [under(""), now] {
        let page = store.list(request).await.unwrap();
        assert_eq!((page.entries, page.revision), (entries(), BEGIN));
    }
    let change = txn(vec![at("/a", Position::new(9, 1))], vec![put("/a", "4")]);
    let next = store.commit(change).await.unwrap();
    assert!(next > BEGIN);
    assert_eq!(get(&store, "/a").await.unwrap().position, Position::new(next, 0));
}

/// History begins with the restore: nothing older can be listed or watched.
pub async fn expires_everything_before_the_restore(subject: &impl Subject) {
    let store = restored(subject).await;
    for revision in [0, 1, 5, 9, 10, BEGIN - 2, BEGIN - 1] {
        for after in [Position::new(revision, 0), Position::new(revision, 1)] {
            match store.watch("", after, WithOld::Yes).await.map(drop) {
                Err(Error::Compacted { compacted }) => assert_eq!(compacted, BEGIN - 1),
                other => panic!("a watch from {after} gave {other:?}"),
            }
        }
        let past = ListRequest { at: Some(revision), ..under("") };
        assert!(matches!(store.list(past).await, Err(Error::Compacted { .. })));
    }
    // The restore itself is a revision without events.
    let mut watching = watch(&store, "", Position::end_of(BEGIN - 1)).await;
    assert_eq!(events_until(watching.as_mut(), BEGIN).await, []);
}

/// A watch from the restored revision delivers later changes, with the entries that they replace.
pub async fn delivers_what_follows_the_restore(subject: &impl Subject) {
    let store = restored(subject).await;
    let mut watching = watch(&store, "", Position::end_of(BEGIN)).await;
    commit(&store, vec![delete("/b"), put("/a", "4")]).await;
    let last = set(&store, "/d", "5").await;
    let events = events_until(watching.as_mut(), last).await;
    let replaced: Vec<_> = events.into_iter().map(|event| event.replaced).collect();
    let [a, b, _] = <[Entry; 3]>::try_from(entries()).unwrap();
    assert_eq!(replaced, [Replaced::Old(Some(b)), Replaced::Old(Some(a)), Replaced::New]);
    // It can be compacted like any other.
    store.compact(last).await.unwrap();
    let expected = [("/a", "4"), ("/c", "3"), ("/d", "5")];
    let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(listed(&store, under("")).await, expected);
}

/// A durable store that was restored survives a restart.
pub async fn reopens_what_was_restored(subject: &impl Subject) {
    let store = restored(subject).await;
    let last = set(&store, "/a", "4").await;
    let Some(store) = subject.reopen(store).await else { return };
    assert_eq!(store.revision().await.unwrap(), last);
    assert_eq!(store.compacted().await.unwrap(), BEGIN - 1);
    assert_eq!(text(&store, "/a").await.as_deref(), Some("4"));
    assert_eq!(text(&store, "/c").await.as_deref(), Some("3"));
    let mut watching = watch(&store, "", Position::end_of(BEGIN)).await;
    assert_eq!(events_until(watching.as_mut(), last).await.len(), 1);
}

/// A store can be restored without entries.
pub async fn restores_an_empty_store(subject: &impl Subject) {
    let store = subject.restore(BEGIN, Vec::new()).await;
    assert_eq!(listed(&store, under("")).await, []);
    assert!(set(&store, "/a", "1").await > BEGIN);
}
