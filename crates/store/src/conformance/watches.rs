//! Cases on watches: order, atomicity, resumption, progress.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::{
    Subject, batches_until, bytes, check_it_waits, commit, delete, events_until, put, result_of,
    rewrite, set, waiting_call, watch,
};
use crate::{Batch, Error, Event, Events, Position, Replaced, Store, Watch, WithOld};

/// A few transactions of several kinds. Returns the last revision.
async fn some_history(store: &Arc<dyn Store>) -> u64 {
    commit(store, vec![put("/a/1", "1"), put("/b/1", "1"), put("/a/2", "1")]).await;
    commit(store, vec![put("/a/1", "2")]).await;
    commit(store, vec![delete("/a/2"), put("/a/3", "1"), delete("/b/1")]).await;
    commit(store, vec![put("/b/2", "1")]).await;
    commit(store, vec![put("/a/2", "2"), put("/a/1", "3")]).await
}

fn positions(events: &[Event]) -> Vec<Position> {
    events.iter().map(|event| event.position).collect()
}

/// Nothing is left out, doubled, or out of order.
pub async fn delivers_every_change_in_order_and_once(subject: &impl Subject) {
    let store = subject.create().await;
    let mut early = watch(&store, "", Position::ZERO).await;
    let last = some_history(&store).await;
    let mut late = watch(&store, "", Position::ZERO).await;
    let events = events_until(early.as_mut(), last).await;
    assert_eq!(events_until(late.as_mut(), last).await, events);
    let indexes: Vec<_> = events.iter().map(|event| event.position.index()).collect();
    assert_eq!(indexes, [0, 1, 2, 0, 0, 1, 2, 0, 0, 1]);
    let of_txn = events.chunk_by(|one, next| one.position.revision() == next.position.revision());
    let sizes: Vec<_> = of_txn.map(<[Event]>::len).collect();
    assert_eq!(sizes, [3, 1, 3, 1, 2]);
    assert_eq!(events.last().unwrap().position.revision(), last);
}

/// One transaction, one batch.
pub async fn keeps_a_transaction_in_one_batch(subject: &impl Subject) {
    let store = subject.create().await;
    let mut watch = watch(&store, "", Position::ZERO).await;
    let last = some_history(&store).await;
    let sizes: Vec<_> =
        batches_until(watch.as_mut(), last).await.iter().map(|batch| batch.events.len()).collect();
    assert_eq!(sizes, [3, 1, 3, 1, 2]);
}

/// A new watch from any position that was delivered goes on right after it.
pub async fn resumes_between_any_two_changes(subject: &impl Subject) {
    let store = subject.create().await;
    let last = some_history(&store).await;
    let mut first = watch(&store, "", Position::ZERO).await;
    let events = events_until(first.as_mut(), last).await;
    for (seen, event) in events.iter().enumerate() {
        let rest = &events[seen + 1..];
        if rest.is_empty() {
            break;
        }
        let mut resumed = watch(&store, "", event.position).await;
        assert_eq!(events_until(resumed.as_mut(), last).await, rest);
    }
    let next = set(&store, "/a/9", "1").await;
    let mut resumed = watch(&store, "", Position::end_of(last)).await;
    let rest = events_until(resumed.as_mut(), next).await;
    assert_eq!(positions(&rest), [Position::new(next, 0)]);
}

/// Changes of other keys are delivered as progress only.
pub async fn delivers_only_its_prefix_and_progress(subject: &impl Subject) {
    let store = subject.create().await;
    let mut watching = watch(&store, "/b/", Position::ZERO).await;
    let last = some_history(&store).await;
    let events = events_until(watching.as_mut(), last).await;
    let names: Vec<_> = events.iter().map(|event| &*event.key).collect();
    assert_eq!(names, ["/b/1", "/b/1", "/b/2"]);
    let revision = set(&store, "/a/5", "1").await;
    let batch = watching.next().await.unwrap();
    assert_eq!(batch, Batch { events: Vec::new(), revision });
    let mut other = watch(&store, "/none/", Position::end_of(revision)).await;
    let revision = set(&store, "/a/6", "1").await;
    assert_eq!(other.next().await.unwrap(), Batch { events: Vec::new(), revision });
}

/// A watch can start from the end of each revision.
pub async fn starts_anywhere_in_history(subject: &impl Subject) {
    let store = subject.create().await;
    let start = store.revision().await.unwrap();
    let last = some_history(&store).await;
    let mut all = watch(&store, "", Position::ZERO).await;
    let all = events_until(all.as_mut(), last).await;
    for revision in start..last {
        let after = Position::end_of(revision);
        let mut from_there = watch(&store, "", after).await;
        let expected: Vec<_> = all.iter().filter(|event| event.position > after).cloned().collect();
        assert_eq!(events_until(from_there.as_mut(), last).await, expected);
    }
}

/// A watch from a position in the future waits for it, and delivers nothing from before it.
pub async fn waits_for_the_future(subject: &impl Subject) {
    let store = subject.create().await;
    let revision = set(&store, "/a", "1").await;
    let target = Position::new(revision + 6, 0);
    let mut call = waiting_call(watch(&store, "", target).await).await;
    let mut witness = watch(&store, "", Position::end_of(revision)).await;
    let awaited = loop {
        let next = commit(&store, vec![put("/a", "2"), put("/b", "2")]).await;
        assert_eq!(events_until(witness.as_mut(), next).await.len(), 2);
        if next >= target.revision() {
            break next;
        }
        check_it_waits(&mut call).await;
    };
    let (mut future, batch) = result_of(call).await;
    assert_eq!(batch.revision, awaited);
    let mut wanted = vec![Position::new(awaited, 0), Position::new(awaited, 1)];
    wanted.retain(|position| *position > target);
    assert_eq!(positions(&batch.events), wanted);
    let last = set(&store, "/a", "4").await;
    let events = events_until(future.as_mut(), last).await;
    assert_eq!(positions(&events), [Position::new(last, 0)]);
}

/// An event contains the entry that it replaced.
pub async fn delivers_previous_values(subject: &impl Subject) {
    let store = subject.create().await;
    let mut watch = watch(&store, "", Position::ZERO).await;
    let first = set(&store, "/a", "1").await;
    let second = commit(&store, vec![put("/b", "1"), put("/a", "2")]).await;
    commit(&store, vec![delete("/a")]).await;
    let last = set(&store, "/a", "3").await;
    let events = events_until(watch.as_mut(), last).await;
    let found: Vec<_> = events
        .iter()
        .filter(|event| &*event.key == "/a")
        .map(|event| {
            let previous = event.replaced.entry();
            (event.value.clone(), previous.map(|entry| (entry.value.clone(), entry.position)))
        })
        .collect();
    assert_eq!(
        found,
        [
            (Some(bytes("1")), None),
            (Some(bytes("2")), Some((bytes("1"), Position::new(first, 0)))),
            (None, Some((bytes("2"), Position::new(second, 1)))),
            (Some(bytes("3")), None),
        ]
    );
}

/// Without the replaced entries, a watch still tells a new key from one that existed.
pub async fn tells_new_keys_without_previous_values(subject: &impl Subject) {
    let store = subject.create().await;
    let start = store.revision().await.unwrap();
    commit(&store, vec![put("/a", "1"), put("/b", "1")]).await;
    commit(&store, vec![put("/a", "2"), delete("/b"), put("/c", "1")]).await;
    let last = set(&store, "/b", "2").await;
    let mut watch = store.watch("", Position::end_of(start), WithOld::No).await.unwrap();
    let events = events_until(watch.as_mut(), last).await;
    let new: Vec<_> =
        events.iter().map(|event| (&*event.key, event.replaced == Replaced::New)).collect();
    assert_eq!(
        new,
        [("/a", true), ("/b", true), ("/a", false), ("/b", false), ("/c", true), ("/b", true)]
    );
}

/// Events that are read bit by bit, from any position, equal those of a watch from there. They end where
/// history does.
pub async fn reads_events_bit_by_bit(subject: &impl Subject) {
    let store = subject.create().await;
    let begin = store.revision().await.unwrap();
    for number in 0..40 {
        // Together they are more than one page.
        let value = number.to_string().repeat(4000);
        commit(&store, vec![put("/a", &value), put("/b", "1"), put("/c", &value)]).await;
        commit(&store, vec![delete("/b"), rewrite("/a", "r")]).await;
    }
    let last = set(&store, "/a", "end").await;
    let mut whole = watch(&store, "/", Position::end_of(begin)).await;
    let truth = events_until(whole.as_mut(), last).await;
    let mut starts = vec![Position::end_of(begin)];
    starts.extend(truth.iter().step_by(17).map(|event| event.position));
    for (prefix, start) in ["/", "/b"].into_iter().flat_map(|p| starts.iter().map(move |s| (p, s)))
    {
        let (mut read, mut after, mut pages) = (Vec::new(), *start, 0);
        while after < Position::end_of(last) {
            let page = store.next_events(prefix, after, Position::MAX).await.unwrap();
            assert!(page.through > after, "it goes on");
            assert!(page.events.iter().all(|event| event.position <= page.through));
            (after, pages) = (page.through, pages + 1);
            read.extend(page.events);
        }
        let expected =
            truth.iter().filter(|one| one.key.starts_with(prefix) && one.position > *start);
        assert_eq!(read, expected.cloned().collect::<Vec<_>>());
        assert!(prefix == "/b" || *start != starts[0] || pages > 1, "bounded");
    }
    let end = store.next_events("/", Position::end_of(last), Position::MAX).await.unwrap();
    assert_eq!(end, Events { events: Vec::new(), through: Position::end_of(last) });
    let until = truth[truth.len() / 2].position;
    let read = store.next_events("/", Position::new(until.revision(), 0), until).await.unwrap();
    let expected: Vec<_> = (truth.iter())
        .filter(|one| Position::new(until.revision(), 0) < one.position && one.position <= until)
        .cloned()
        .collect();
    assert_eq!(read, Events { events: expected, through: until });
    let future = store.next_events("/", Position::end_of(last + 9), Position::MAX).await.unwrap();
    assert_eq!(future.events, []);
}

/// Reads of compacted events are rejected, and all events after them are read.
pub async fn reads_no_events_that_are_compacted(subject: &impl Subject) {
    let store = subject.create().await;
    let first = set(&store, "/a", "1").await;
    let last = set(&store, "/a", "2").await;
    store.compact(first).await.unwrap();
    match store.next_events("/", Position::new(first, 0), Position::MAX).await {
        Err(Error::Compacted { compacted }) => assert_eq!(compacted, first),
        other => panic!("expected it compacted, got {other:?}"),
    }
    let read = store.next_events("/", Position::end_of(first), Position::MAX).await.unwrap();
    assert_eq!(positions(&read.events), [Position::new(last, 0)]);
    let replaced = read.events[0].replaced.entry().unwrap();
    assert_eq!((&replaced.value, replaced.position), (&bytes("1"), Position::new(first, 0)));
}

/// A rewrite is progress, and no event.
pub async fn delivers_no_events_for_rewrites(subject: &impl Subject) {
    let store = subject.create().await;
    let mut watch = watch(&store, "", Position::ZERO).await;
    let first = Position::new(set(&store, "/a", "1").await, 0);
    commit(&store, vec![rewrite("/a", "one")]).await;
    let mixed = commit(&store, vec![rewrite("/a", "uno"), put("/b", "1")]).await;
    let events = events_until(watch.as_mut(), mixed).await;
    let found: Vec<_> = events.iter().map(|e| (&*e.key, e.position)).collect();
    assert_eq!(found, [("/a", first), ("/b", Position::new(mixed, 1))]);
    let last = set(&store, "/a", "2").await;
    let event = events_until(watch.as_mut(), last).await.remove(0);
    let previous = event.replaced.entry().unwrap().clone();
    assert_eq!((previous.value, previous.position), (bytes("uno"), first));
}

/// A call of `next` can be dropped at any point.
pub async fn loses_nothing_when_a_call_is_dropped(subject: &impl Subject) {
    let store = subject.create().await;
    let mut watching = watch(&store, "", Position::ZERO).await;
    let mut found = Vec::new();
    let mut last = 0;
    for number in 0..20 {
        last = commit(&store, vec![put("/a", &number.to_string()), put("/b", "1")]).await;
        // Gives a call one turn, and drops it if it is not done by then.
        if let Ok(batch) = timeout(Duration::ZERO, watching.next()).await {
            found.extend(batch.unwrap().events);
        }
    }
    if found.last().is_none_or(|event: &Event| event.position.revision() < last) {
        found.extend(events_until(watching.as_mut(), last).await);
    }
    let mut whole = watch(&store, "", Position::ZERO).await;
    assert_eq!(found, events_until(whole.as_mut(), last).await);
}

/// A watch that keeps up sees each change as it is made.
pub async fn follows_while_changes_are_made(subject: &impl Subject) {
    let store = subject.create().await;
    let start = store.revision().await.unwrap();
    let mut watching = watch(&store, "/a", Position::end_of(start)).await;
    for number in 0..10 {
        let revision = set(&store, "/a", &number.to_string()).await;
        let batch = next_with_events(watching.as_mut()).await;
        assert_eq!(batch.revision, revision);
        assert_eq!(batch.events[0].value, Some(bytes(&number.to_string())));
    }
}

async fn next_with_events(watch: &mut dyn Watch) -> Batch {
    loop {
        let batch = watch.next().await.unwrap();
        if !batch.events.is_empty() {
            return batch;
        }
    }
}

/// A watch from before a history that is longer than one read, or than the tail in memory.
pub async fn catches_up_over_a_long_history(subject: &impl Subject) {
    let store = subject.create().await;
    let start = store.revision().await.unwrap();
    let many = |round: usize| -> Vec<_> {
        (0..120).map(|number| put(&format!("/k{number}"), &round.to_string())).collect()
    };
    let mut last = 0;
    for round in 0..80 {
        last = commit(&store, many(round)).await;
    }
    let mut all = watch(&store, "", Position::end_of(start)).await;
    assert_eq!(events_until(all.as_mut(), last).await.len(), 80 * 120);
    let mut one = watch(&store, "/k7", Position::end_of(start)).await;
    let events = events_until(one.as_mut(), last).await;
    assert_eq!(events.len(), 80 * 11);
}
