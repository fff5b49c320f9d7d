//! Cases with several clients at once: no update is lost, and all see the same history.

use std::sync::Arc;

use tokio::task::JoinSet;

use super::{
    Subject, absent, at, commit, events_until, get, listed, next_events, put, set, text, txn,
    under, watch,
};
use crate::{Error, Position, Store, WithOld};

const WRITERS: usize = 8;
const ROUNDS: usize = 25;

/// Compare-and-set on one key by many writers: the result is the sum.
pub async fn loses_no_update_of_a_counter(subject: &impl Subject) {
    let store = subject.create().await;
    set(&store, "/counter", "0").await;
    let mut writers = JoinSet::new();
    for _ in 0..WRITERS {
        let store = Arc::clone(&store);
        writers.spawn(async move {
            for _ in 0..ROUNDS {
                increment(&store).await;
            }
        });
    }
    writers.join_all().await;
    assert_eq!(text(&store, "/counter").await, Some((WRITERS * ROUNDS).to_string()));
}

async fn increment(store: &Arc<dyn Store>) {
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

/// Watchers that start at different times see one history. It contains every acknowledged write at
/// the revision that was returned.
pub async fn shows_all_watchers_the_same_order(subject: &impl Subject) {
    let store = subject.create().await;
    let start = store.revision().await.unwrap();
    let mut watchers = JoinSet::new();
    let mut writers = JoinSet::new();
    for number in 0..WRITERS {
        let mut early = watch(&store, "", Position::end_of(start)).await;
        watchers.spawn(async move { next_events(early.as_mut(), 2 * WRITERS * ROUNDS).await });
        let store = Arc::clone(&store);
        writers.spawn(async move {
            let mut results = Vec::new();
            for round in 0..ROUNDS {
                let (own, value) = (format!("/w{number}"), round.to_string());
                let changes = vec![put(&own, &value), put("/all", &value)];
                results.push((own, value, commit(&store, changes).await));
            }
            results
        });
    }
    let results = writers.join_all().await.concat();
    let last = store.revision().await.unwrap();
    let mut late = watch(&store, "", Position::end_of(start)).await;
    let history = events_until(late.as_mut(), last).await;
    assert_eq!(history.len(), 2 * WRITERS * ROUNDS);
    for seen in watchers.join_all().await {
        assert_eq!(seen, history);
    }
    for (name, value, revision) in results {
        let position = Position::new(revision, 0);
        let event = history.iter().find(|event| event.position == position).unwrap();
        assert_eq!(&*event.key, name);
        assert_eq!(event.value.as_deref(), Some(value.as_bytes()));
    }
}

/// When many writers create one key, one succeeds, and the others get its position.
pub async fn lets_one_of_many_create(subject: &impl Subject) {
    let store = subject.create().await;
    let mut writers = JoinSet::new();
    for number in 0..WRITERS {
        let store = Arc::clone(&store);
        writers.spawn(async move {
            let change = put("/one", &number.to_string());
            store.commit(txn(vec![absent("/one")], vec![change])).await
        });
    }
    let results = writers.join_all().await;
    let won: Vec<_> = results.iter().filter_map(|result| result.as_ref().ok()).collect();
    assert_eq!(won.len(), 1);
    let position = Position::new(*won[0], 0);
    for result in &results {
        if let Err(error) = result {
            let known = matches!(error, Error::Conflict { found, .. } if *found == Some(position));
            assert!(known, "{error}");
        }
    }
    assert_eq!(get(&store, "/one").await.unwrap().position, position);
}

/// Readers see a transaction's keys change together.
pub async fn never_shows_half_a_transaction(subject: &impl Subject) {
    let store = subject.create().await;
    commit(&store, vec![put("/p/a", "0"), put("/p/b", "0"), put("/p/c", "0")]).await;
    let mut readers = JoinSet::new();
    for _ in 0..4 {
        let store = Arc::clone(&store);
        readers.spawn(async move {
            for _ in 0..ROUNDS {
                let values = listed(&store, under("/p/")).await;
                assert_eq!(values.len(), 3);
                assert!(values.iter().all(|(_, value)| *value == values[0].1), "{values:?}");
            }
        });
    }
    for round in 0..ROUNDS {
        let value = round.to_string();
        let changes = ["/p/a", "/p/b", "/p/c"].map(|name| put(name, &value));
        commit(&store, changes.to_vec()).await;
    }
    readers.join_all().await;
}

/// Compaction during writes removes nothing that is live.
pub async fn compacts_while_writers_write(subject: &impl Subject) {
    let store = subject.create().await;
    let mut writers = JoinSet::new();
    for number in 0..WRITERS {
        let store = Arc::clone(&store);
        writers.spawn(async move {
            let name = format!("/w{number}");
            for round in 0..ROUNDS {
                set(&store, &name, &round.to_string()).await;
            }
        });
    }
    for _ in 0..10 {
        let revision = store.revision().await.unwrap();
        store.compact(revision).await.unwrap();
        assert!(store.compacted().await.unwrap() >= revision);
    }
    writers.join_all().await;
    let values = listed(&store, under("/w")).await;
    assert_eq!(values.len(), WRITERS);
    assert!(values.iter().all(|(_, value)| *value == (ROUNDS - 1).to_string()));
}

/// Two clients of one store, each with a watch, take turns on the same keys under conditions. Each
/// increments a counter and keeps its own key. Both watches see all writes of both.
pub async fn two_clients_see_each_others_writes(subject: &impl Subject) {
    let store = subject.create().await;
    set(&store, "/counter", "0").await;
    let start = store.revision().await.unwrap();
    let mut clients = JoinSet::new();
    for name in ["/one", "/two"] {
        let client = Arc::clone(&store);
        let mut watching = watch(&client, "", Position::end_of(start)).await;
        clients.spawn(async move {
            for _ in 0..ROUNDS {
                increment_and_note(&client, name).await;
            }
            // The last increment of the other client need not be committed yet.
            next_events(watching.as_mut(), 4 * ROUNDS).await
        });
    }
    let seen = clients.join_all().await;
    assert_eq!(seen[0], seen[1]);
    let counts: Vec<_> = seen[0].iter().filter(|event| &*event.key == "/counter").collect();
    let expected: Vec<_> = (1..=2 * ROUNDS).map(|count| count.to_string()).collect();
    let found = counts.iter().map(|event| String::from_utf8_lossy(event.value.as_ref().unwrap()));
    assert!(found.eq(expected), "one increment after the other");
    for name in ["/one", "/two"] {
        let events = seen[0].iter().filter(|event| &*event.key == name);
        assert_eq!(events.count(), ROUNDS, "{name}");
    }
}

/// Increments the counter, and sets a key of the client in the same transaction.
async fn increment_and_note(store: &Arc<dyn Store>, name: &str) {
    loop {
        let entry = get(store, "/counter").await.unwrap();
        let count: usize = std::str::from_utf8(&entry.value).unwrap().parse().unwrap();
        let own = get(store, name).await;
        let own = own.map_or_else(|| absent(name), |own| at(name, own.position));
        let value = (count + 1).to_string();
        let changes = vec![put("/counter", &value), put(name, &value)];
        match store.commit(txn(vec![at("/counter", entry.position), own], changes)).await {
            Ok(_) => return,
            Err(Error::Conflict { key, .. }) => assert_eq!(&*key, "/counter"),
            Err(error) => panic!("{error}"),
        }
    }
}

/// One client compacts up to where the watches are. Watches from different positions miss nothing,
/// and only a new watch from before the compacted revision is refused.
pub async fn watches_go_on_while_another_client_compacts(subject: &impl Subject) {
    let store = subject.create().await;
    let start = store.revision().await.unwrap();
    let mut early = watch(&store, "", Position::end_of(start)).await;
    let first = set(&store, "/a", "1").await;
    let second = commit(&store, vec![put("/a", "2"), put("/b", "1")]).await;
    let mut late = watch(&store, "/a", Position::new(second, 0)).await;
    assert_eq!(events_until(early.as_mut(), second).await.len(), 3);
    assert_eq!(events_until(late.as_mut(), second).await, []);
    let compacting = Arc::clone(&store);
    let mut compaction = JoinSet::new();
    compaction.spawn(async move { compacting.compact(second).await.unwrap() });
    let mut last = second;
    for round in 0..ROUNDS {
        last = commit(&store, vec![put("/a", &round.to_string()), put("/b", "2")]).await;
    }
    compaction.join_all().await;
    assert_eq!(store.compacted().await.unwrap(), second);
    assert_eq!(events_until(early.as_mut(), last).await.len(), 2 * ROUNDS);
    assert_eq!(events_until(late.as_mut(), last).await.len(), ROUNDS);
    let refused = store.watch("", Position::end_of(first), WithOld::Yes).await.map(drop);
    assert!(matches!(refused, Err(Error::Compacted { compacted }) if compacted == second));
    let mut resumed = watch(&store, "", Position::end_of(second)).await;
    assert_eq!(events_until(resumed.as_mut(), last).await.len(), 2 * ROUNDS);
}
