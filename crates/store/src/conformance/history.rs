//! Cases on compaction and on restarts: which data is removed, and which is kept.

use super::{
    Subject, bytes, commit, delete, events_until, get, listed, put, rewrite, set, text, under,
    watch,
};
use crate::{Error, ListRequest, Position, WithOld};

/// The compacted revision moves, and only forward.
pub async fn compacts_what_is_superseded(subject: &impl Subject) {
    let store = subject.create().await;
    assert_eq!(store.compacted().await.unwrap(), 0);
    set(&store, "/a", "1").await;
    let second = set(&store, "/a", "2").await;
    set(&store, "/a", "3").await;
    store.compact(second).await.unwrap();
    assert_eq!(store.compacted().await.unwrap(), second);
    assert_eq!(text(&store, "/a").await.as_deref(), Some("3"));
    let past = ListRequest { at: Some(second), ..under("") };
    assert!(matches!(store.list(past).await, Err(Error::Compacted { .. })));
}

/// Live values stay, with their positions, however old they are.
pub async fn keeps_live_values_however_old(subject: &impl Subject) {
    let store = subject.create().await;
    let first = commit(&store, vec![put("/gone", "1"), put("/kept", "1"), put("/new", "1")]).await;
    commit(&store, vec![delete("/gone")]).await;
    let last = set(&store, "/new", "2").await;
    for revision in first..=last {
        store.compact(revision).await.unwrap();
        assert_eq!(get(&store, "/kept").await.unwrap().position, Position::new(first, 1));
        assert_eq!(get(&store, "/gone").await, None);
        assert_eq!(text(&store, "/new").await.as_deref(), Some("2"));
    }
    let expected = [("/kept", "1"), ("/new", "2")].map(|(k, v)| (k.to_owned(), v.to_owned()));
    assert_eq!(listed(&store, under("")).await, expected);
    let again = set(&store, "/gone", "3").await;
    assert_eq!(get(&store, "/gone").await.unwrap().position, Position::new(again, 0));
}

/// The first events after the compacted revision still contain the entries that they replaced.
pub async fn keeps_previous_values_after_the_compacted_revision(subject: &impl Subject) {
    let store = subject.create().await;
    commit(&store, vec![put("/a", "1"), put("/b", "1"), put("/c", "1")]).await;
    let compacted = set(&store, "/a", "2").await;
    let next = commit(&store, vec![put("/a", "3"), delete("/b")]).await;
    let last = set(&store, "/b", "4").await;
    store.compact(compacted).await.unwrap();
    let mut watch = watch(&store, "", Position::end_of(compacted)).await;
    let events = events_until(watch.as_mut(), last).await;
    let previous: Vec<_> = events
        .iter()
        .map(|event| event.replaced.entry().map(|entry| entry.value.clone()))
        .collect();
    assert_eq!(previous, [Some(bytes("2")), Some(bytes("1")), None]);
    assert_eq!(events[1].replaced.entry().unwrap().position.index(), 1);
    let request = ListRequest { at: Some(next), ..under("") };
    let expected = [("/a", "3"), ("/c", "1")].map(|(k, v)| (k.to_owned(), v.to_owned()));
    assert_eq!(listed(&store, request).await, expected);
}

/// A watch from a compacted position fails, with the compacted revision.
pub async fn refuses_to_watch_compacted_history(subject: &impl Subject) {
    let store = subject.create().await;
    let first = commit(&store, vec![put("/a", "1"), put("/b", "1")]).await;
    let second = set(&store, "/a", "2").await;
    set(&store, "/a", "3").await;
    store.compact(second).await.unwrap();
    for after in [Position::ZERO, Position::new(first, 0), Position::end_of(first)] {
        match store.watch("", after, WithOld::Yes).await.map(drop) {
            Err(Error::Compacted { compacted }) => assert_eq!(compacted, second),
            other => panic!("expected it compacted, got {other:?}"),
        }
    }
}

/// Everything after the compacted revision is still there.
pub async fn watches_from_the_end_of_the_compacted_revision(subject: &impl Subject) {
    let store = subject.create().await;
    let first = set(&store, "/a", "1").await;
    store.compact(first).await.unwrap();
    let mut watch = watch(&store, "", Position::end_of(first)).await;
    let last = set(&store, "/a", "2").await;
    assert_eq!(events_until(watch.as_mut(), last).await.len(), 1);
}

/// Compacting again is no error; compacting beyond the newest revision is.
pub async fn compacts_again_and_refuses_the_future(subject: &impl Subject) {
    let store = subject.create().await;
    store.compact(0).await.unwrap();
    let first = set(&store, "/a", "1").await;
    let last = set(&store, "/a", "2").await;
    store.compact(last).await.unwrap();
    store.compact(last).await.unwrap();
    store.compact(first).await.unwrap();
    assert_eq!(store.compacted().await.unwrap(), last);
    match store.compact(last + 1).await {
        Err(Error::Future { current }) => assert_eq!(current, last),
        other => panic!("expected the future, got {other:?}"),
    }
}

/// A compaction of more than one step.
pub async fn compacts_in_several_steps(subject: &impl Subject) {
    let store = subject.create().await;
    let mut last = 0;
    for round in 0..20 {
        let changes = (0..100).map(|number| put(&format!("/k{number:02}"), &round.to_string()));
        last = commit(&store, changes.collect()).await;
    }
    let changes = (0..50).map(|number| delete(&format!("/k{number:02}")));
    let end = commit(&store, changes.collect()).await;
    store.compact(last).await.unwrap();
    assert_eq!(store.compacted().await.unwrap(), last);
    assert_eq!(listed(&store, under("")).await.len(), 50);
    store.compact(end).await.unwrap();
    assert_eq!(listed(&store, under("")).await.len(), 50);
    assert_eq!(text(&store, "/k99").await.as_deref(), Some("19"));
}

/// Rewriting touches the live value only, and compaction still knows the superseded value.
pub async fn rewrites_under_history(subject: &impl Subject) {
    let store = subject.create().await;
    let first = set(&store, "/a", "1").await;
    let second = set(&store, "/a", "2").await;
    commit(&store, vec![rewrite("/a", "two")]).await;
    let past = |at| ListRequest { at: Some(at), ..under("") };
    assert_eq!(listed(&store, past(first)).await[0].1, "1");
    // An engine that keeps all versions of the bytes shows those that were written first.
    let at_second = listed(&store, past(second)).await;
    assert!(["2", "two"].contains(&at_second[0].1.as_str()), "{at_second:?}");
    store.compact(second).await.unwrap();
    assert_eq!(text(&store, "/a").await.as_deref(), Some("two"));
    let last = set(&store, "/a", "3").await;
    store.compact(last).await.unwrap();
    assert_eq!(text(&store, "/a").await.as_deref(), Some("3"));
    assert_eq!(get(&store, "/a").await.unwrap().position, Position::new(last, 0));
}

/// A durable store has everything after a restart, and goes on with the next revision.
pub async fn survives_a_restart(subject: &impl Subject) {
    let store = subject.create().await;
    let first = commit(&store, vec![put("/a", "1"), put("/b", "1")]).await;
    let second = commit(&store, vec![put("/a", "2"), delete("/b")]).await;
    store.compact(first).await.unwrap();
    let Some(store) = subject.reopen(store).await else { return };
    assert_eq!(store.revision().await.unwrap(), second);
    assert_eq!(store.compacted().await.unwrap(), first);
    assert_eq!(get(&store, "/a").await.unwrap().position, Position::new(second, 0));
    assert_eq!(get(&store, "/b").await, None);
    assert!(set(&store, "/b", "3").await > second);
    let Some(store) = subject.reopen(store).await else { return };
    assert_eq!(text(&store, "/b").await.as_deref(), Some("3"));
}

/// Positions mean the same after a restart.
pub async fn resumes_watches_after_a_restart(subject: &impl Subject) {
    let store = subject.create().await;
    commit(&store, vec![put("/a", "1"), put("/b", "1"), put("/c", "1")]).await;
    let last = commit(&store, vec![delete("/b"), put("/a", "2")]).await;
    let mut whole = watch(&store, "", Position::ZERO).await;
    let events = events_until(whole.as_mut(), last).await;
    drop(whole);
    let Some(store) = subject.reopen(store).await else { return };
    for (seen, event) in events.iter().enumerate().take(events.len() - 1) {
        let mut resumed = watch(&store, "", event.position).await;
        assert_eq!(events_until(resumed.as_mut(), last).await, events[seen + 1..]);
    }
}
