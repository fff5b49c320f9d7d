//! Cases with many at once: no update is lost, and all see the same history.

use std::sync::Arc;

use tokio::task::JoinSet;

use super::{
    Subject, absent, at, commit, events_until, get, listed, put, set, text, txn, under, watch,
};
use crate::{Error, Position, Store};

const WRITERS: usize = 8;
const ROUNDS: usize = 25;

/// Compare-and-set on one key by many: the end is the sum.
pub async fn loses_no_update_of_a_counter(subject: &impl Subject) {
    let store = Arc::new(subject.create().await);
    set(&*store, "/counter", "0").await;
    let mut writers = JoinSet::new();
    for _ in 0..WRITERS {
        let store = Arc::clone(&store);
        writers.spawn(async move {
            for _ in 0..ROUNDS {
                increment(&*store).await;
            }
        });
    }
    writers.join_all().await;
    assert_eq!(text(&*store, "/counter").await, Some((WRITERS * ROUNDS).to_string()));
}

async fn increment(store: &impl Store) {
    loop {
        let entry = get(store, "/counter").await.unwrap();
        let value: usize = std::str::from_utf8(&entry.value).unwrap().parse().unwrap();
        let condition = at("/counter", entry.position);
        let change = put("/counter", &(value + 1).to_string());
        match store.commit(txn(vec![condition], vec![change])).await {
            Ok(_) => return,
            Err(Error::Conflict { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Watchers that begin at different times see one history; it holds every acknowledged write at
/// the revision that was answered.
pub async fn shows_all_watchers_the_same_order(subject: &impl Subject) {
    let store = Arc::new(subject.create().await);
    let start = store.revision().await.unwrap();
    let last = start + (WRITERS * ROUNDS) as u64;
    let mut watchers = JoinSet::new();
    let mut writers = JoinSet::new();
    for number in 0..WRITERS {
        let mut early = watch(&*store, "", Position::end_of(start)).await;
        watchers.spawn(async move { events_until(early.as_mut(), last).await });
        let store = Arc::clone(&store);
        writers.spawn(async move {
            let mut answers = Vec::new();
            for round in 0..ROUNDS {
                let (own, value) = (format!("/w{number}"), round.to_string());
                let changes = vec![put(&own, &value), put("/all", &value)];
                answers.push((own, value, commit(&*store, changes).await));
            }
            answers
        });
    }
    let answers = writers.join_all().await.concat();
    let mut late = watch(&*store, "", Position::end_of(start)).await;
    let history = events_until(late.as_mut(), last).await;
    assert_eq!(history.len(), 2 * WRITERS * ROUNDS);
    for seen in watchers.join_all().await {
        assert_eq!(seen, history);
    }
    for (name, value, revision) in answers {
        let position = Position::new(revision, 0);
        let event = history.iter().find(|event| event.position == position).unwrap();
        assert_eq!(&*event.key, name);
        assert_eq!(event.value.as_deref(), Some(value.as_bytes()));
    }
}

/// Of many who create one key, one does, and the others learn where it stands.
pub async fn lets_one_of_many_create(subject: &impl Subject) {
    let store = Arc::new(subject.create().await);
    let mut writers = JoinSet::new();
    for number in 0..WRITERS {
        let store = Arc::clone(&store);
        writers.spawn(async move {
            let change = put("/one", &number.to_string());
            store.commit(txn(vec![absent("/one")], vec![change])).await
        });
    }
    let answers = writers.join_all().await;
    let won: Vec<_> = answers.iter().filter_map(|answer| answer.as_ref().ok()).collect();
    assert_eq!(won.len(), 1);
    let position = Position::new(*won[0], 0);
    for answer in &answers {
        if let Err(error) = answer {
            let known = matches!(error, Error::Conflict { found, .. } if *found == Some(position));
            assert!(known, "{error}");
        }
    }
    assert_eq!(get(&*store, "/one").await.unwrap().position, position);
}

/// Readers see a transaction's keys change together.
pub async fn never_shows_half_a_transaction(subject: &impl Subject) {
    let store = Arc::new(subject.create().await);
    commit(&*store, vec![put("/p/a", "0"), put("/p/b", "0"), put("/p/c", "0")]).await;
    let mut readers = JoinSet::new();
    for _ in 0..4 {
        let store = Arc::clone(&store);
        readers.spawn(async move {
            for _ in 0..ROUNDS {
                let values = listed(&*store, under("/p/")).await;
                assert_eq!(values.len(), 3);
                assert!(values.iter().all(|(_, value)| *value == values[0].1), "{values:?}");
            }
        });
    }
    for round in 0..ROUNDS {
        let value = round.to_string();
        let changes = ["/p/a", "/p/b", "/p/c"].map(|name| put(name, &value));
        commit(&*store, changes.to_vec()).await;
    }
    readers.join_all().await;
}

/// Compaction in the middle of things takes nothing from those who are not behind it.
pub async fn compacts_while_writers_write(subject: &impl Subject) {
    let store = Arc::new(subject.create().await);
    let mut writers = JoinSet::new();
    for number in 0..WRITERS {
        let store = Arc::clone(&store);
        writers.spawn(async move {
            let name = format!("/w{number}");
            for round in 0..ROUNDS {
                set(&*store, &name, &round.to_string()).await;
            }
        });
    }
    for _ in 0..10 {
        let revision = store.revision().await.unwrap();
        store.compact(revision).await.unwrap();
        assert!(store.compacted().await.unwrap() >= revision);
    }
    writers.join_all().await;
    let values = listed(&*store, under("/w")).await;
    assert_eq!(values.len(), WRITERS);
    assert!(values.iter().all(|(_, value)| *value == (ROUNDS - 1).to_string()));
}
