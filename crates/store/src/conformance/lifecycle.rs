//! Cases on the gate before commits, on health and recovery, and on closing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::timeout;

use super::{
    Subject, absent, check_it_waits, commit, delete, events_until, get, listed, put, result_of,
    set, text, txn, under, waiting_call, watch,
};
use crate::{Error, ListRequest, Position, Result, Store, Txn, WithOld};

/// Bounds the wait for a watch that should end.
const DEADLINE: Duration = Duration::from_secs(30);
/// The error of a gate that fails.
const FAILURE: &str = "the log is full";

/// A gate that counts its calls, and fails while it is set to.
#[derive(Default)]
struct Switch {
    calls: AtomicU64,
    fails: AtomicBool,
}

impl Switch {
    /// Sets a new gate on a store.
    fn set_on(store: &Arc<dyn Store>) -> Arc<Self> {
        let switch = Arc::new(Self::default());
        let gate = Arc::clone(&switch);
        store.set_gate(Box::new(move || {
            gate.calls.fetch_add(1, Ordering::SeqCst);
            if gate.fails.load(Ordering::SeqCst) { Err(FAILURE) } else { Ok(()) }
        }));
        switch
    }

    fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    fn fail(&self, fails: bool) {
        self.fails.store(fails, Ordering::SeqCst);
    }
}

fn is_unavailable<T>(result: &Result<T>) -> bool {
    matches!(result, Err(Error::Unavailable(_)))
}

/// The gate runs once for each commit of a single writer, and not for a malformed transaction.
pub async fn runs_the_gate_before_each_commit(subject: &impl Subject) {
    let store = subject.create().await;
    let first = set(&store, "/a", "1").await;
    let gate = Switch::set_on(&store);
    let second = set(&store, "/a", "2").await;
    assert_eq!(gate.calls(), 1);
    let third = commit(&store, vec![put("/b", "1"), delete("/a")]).await;
    assert!(first < second && second < third);
    assert_eq!(gate.calls(), 2);
    let malformed = txn(Vec::new(), vec![put("/b", "1"), put("/b", "2")]);
    assert!(matches!(store.commit(malformed).await, Err(Error::Invalid(_))));
    get(&store, "/a").await;
    listed(&store, under("")).await;
    assert_eq!(gate.calls(), 2);
}

/// When the gate fails, nothing is committed and no revision is taken; when it passes again, commits
/// go on.
pub async fn commits_nothing_while_the_gate_fails(subject: &impl Subject) {
    let store = subject.create().await;
    let gate = Switch::set_on(&store);
    let first = set(&store, "/a", "1").await;
    let mut call = waiting_call(watch(&store, "", Position::end_of(first)).await).await;
    gate.fail(true);
    let conflicting = txn(vec![absent("/a")], vec![put("/a", "2")]);
    let several = txn(Vec::new(), vec![put("/a", "2"), put("/b", "1")]);
    for refused in [several, conflicting] {
        match store.commit(refused).await {
            Err(Error::Gated(reason)) => assert_eq!(reason, FAILURE),
            other => panic!("expected the gate's error, got {other:?}"),
        }
    }
    assert_eq!(text(&store, "/a").await.as_deref(), Some("1"));
    assert_eq!(listed(&store, under("")).await.len(), 1);
    assert_eq!(store.revision().await.unwrap(), first);
    store.health().unwrap();
    check_it_waits(&mut call).await;
    gate.fail(false);
    let second = set(&store, "/b", "1").await;
    let (_, batch) = result_of(call).await;
    let names: Vec<_> = batch.events.iter().map(|event| &*event.key).collect();
    assert_eq!((batch.revision, &*names), (second, &["/b"][..]));
}

/// While the gate blocks, its transaction is not visible, and reads and watches go on.
pub async fn shows_nothing_before_the_gate_has_passed(subject: &impl Subject) {
    let store = subject.create().await;
    let first = set(&store, "/a", "1").await;
    let (entered, wait_until_entered) = sync_channel(1);
    let (release, wait_for_release) = sync_channel(1);
    let wait_for_release = Mutex::new(wait_for_release);
    store.set_gate(Box::new(move || {
        entered.send(()).map_err(|_| FAILURE)?;
        wait_for_release.lock().recv().map_err(|_| FAILURE)
    }));
    let mut call = waiting_call(watch(&store, "", Position::end_of(first)).await).await;
    let writer = Arc::clone(&store);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { set(&writer, "/a", "2").await });
    spawn_blocking(move || wait_until_entered.recv()).await.unwrap().unwrap();
    assert_eq!(text(&store, "/a").await.as_deref(), Some("1"));
    assert_eq!(listed(&store, under("")).await.len(), 1);
    assert_eq!(store.revision().await.unwrap(), first);
    assert_eq!(store.compacted().await.unwrap(), 0);
    store.health().unwrap();
    let mut past = watch(&store, "", Position::end_of(first - 1)).await;
    assert_eq!(events_until(past.as_mut(), first).await.len(), 1);
    let mut late = waiting_call(watch(&store, "", Position::end_of(first)).await).await;
    check_it_waits(&mut call).await;
    check_it_waits(&mut late).await;
    release.send(()).unwrap();
    let second = tasks.join_all().await[0];
    assert!(second > first);
    for call in [call, late] {
        let (_, batch) = result_of(call).await;
        assert_eq!((batch.revision, batch.events.len()), (second, 1));
    }
    assert_eq!(text(&store, "/a").await.as_deref(), Some("2"));
}

/// The first gate stays, and a second one is not taken.
pub async fn takes_one_gate_only(subject: &impl Subject) {
    let store = subject.create().await;
    let first = Switch::set_on(&store);
    let second = Switch::set_on(&store);
    second.fail(true);
    set(&store, "/a", "1").await;
    assert_eq!((first.calls(), second.calls()), (1, 0));
}

/// Compaction is no commit: it does not run the gate.
pub async fn compacts_without_the_gate(subject: &impl Subject) {
    let store = subject.create().await;
    set(&store, "/a", "1").await;
    let last = set(&store, "/a", "2").await;
    let gate = Switch::set_on(&store);
    gate.fail(true);
    store.compact(last).await.unwrap();
    assert_eq!(store.compacted().await.unwrap(), last);
    assert_eq!(gate.calls(), 0);
}

/// A store is healthy from its creation until it is closed.
pub async fn is_healthy_until_it_is_closed(subject: &impl Subject) {
    let store = subject.create().await;
    store.health().unwrap();
    set(&store, "/a", "1").await;
    store.health().unwrap();
    store.close().await;
    assert!(is_unavailable(&store.health()));
}

/// Silence counts from the beginning of the last call that was answered, or of a later one.
pub async fn is_silent_no_longer_than_since_its_last_answer(subject: &impl Subject) {
    let store = subject.create().await;
    let begun = Instant::now();
    set(&store, "/a", "1").await;
    let silence = store.silence();
    assert!(silence <= begun.elapsed(), "{silence:?}");
    let begun = Instant::now();
    store.revision().await.unwrap();
    let silence = store.silence();
    assert!(silence <= begun.elapsed(), "{silence:?}");
}

/// Recovery of a store that works does nothing.
pub async fn recovers_without_loss(subject: &impl Subject) {
    let store = subject.create().await;
    let first = set(&store, "/a", "1").await;
    let mut watching = watch(&store, "", Position::end_of(first)).await;
    store.recover().await.unwrap();
    assert_eq!(text(&store, "/a").await.as_deref(), Some("1"));
    let second = set(&store, "/a", "2").await;
    assert!(second > first);
    assert_eq!(events_until(watching.as_mut(), second).await.len(), 1);
}

/// After the store is closed, every operation is refused; closing it again is no error.
pub async fn refuses_everything_after_close(subject: &impl Subject) {
    let store = subject.create().await;
    let first = set(&store, "/a", "1").await;
    let gate = Switch::set_on(&store);
    let mut watching = watch(&store, "", Position::end_of(first - 1)).await;
    let other_client = Arc::clone(&store);
    store.close().await;
    store.close().await;
    for store in [store, other_client] {
        assert!(is_unavailable(&store.revision().await));
        assert!(is_unavailable(&store.compacted().await));
        assert!(is_unavailable(&store.get("/a").await));
        assert!(is_unavailable(&store.list(ListRequest::default()).await));
        assert!(is_unavailable(&store.scan(first, Arc::new(|_| panic!("a page"))).await));
        assert!(is_unavailable(&store.commit(Txn::default()).await));
        assert!(is_unavailable(&store.commit(txn(Vec::new(), vec![put("/a", "2")])).await));
        assert!(is_unavailable(&store.watch("", Position::ZERO, WithOld::Yes).await.map(drop)));
        assert!(is_unavailable(&store.compact(first).await));
        assert!(is_unavailable(&store.recover().await));
    }
    assert!(is_unavailable(&watching.next().await));
    assert_eq!(gate.calls(), 0);
}

/// A watch that waits for the next change fails when the store is closed.
pub async fn ends_watches_that_wait_when_it_is_closed(subject: &impl Subject) {
    let store = subject.create().await;
    let first = set(&store, "/a", "1").await;
    let call = waiting_call(watch(&store, "", Position::end_of(first)).await).await;
    store.close().await;
    let ended = timeout(DEADLINE, call.join_all()).await.unwrap();
    assert!(is_unavailable(&ended[0].1));
}
