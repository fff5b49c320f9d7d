//! The suite that every engine passes: the contract of [`Store`], clause by clause.
//!
//! The tests of an engine define how to create a store ([`Subject`]), and
//! [`conformance!`](crate::conformance!) turns each case into a separate test. Cases are in
//! `commits`, `lists`, `watches`, `history`, `concurrency`, `restored`, `notes`, `exact_notes` and
//! `lifecycle`. The subject and the helpers that all of them use are here. Of a new store, cases
//! assume only that it lists no keys: a store that wraps another one may have taken revisions
//! already.

#![expect(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "a suite of tests, in the library only so that every engine's tests can call it"
)]

pub mod commits;
pub mod concurrency;
mod encrypted;
pub mod exact_notes;
pub mod history;
pub mod lifecycle;
pub mod lists;
pub mod notes;
pub mod restored;
pub mod watches;

pub use self::encrypted::Encrypted;

use std::future::pending;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::task::{JoinSet, yield_now};

use crate::{
    Batch, Change, Condition, Entry, Event, ListRequest, Position, Result, Store, Txn, Watch,
    WithOld,
};

/// How the stores under test are created.
pub trait Subject: Send + Sync {
    /// A store that lists no keys.
    fn create(&self) -> impl Future<Output = Arc<dyn Store>> + Send;

    /// A store that is made from these entries, with this newest revision. No entry has a
    /// revision below 5.
    fn restore(
        &self,
        revision: u64,
        entries: Vec<Entry>,
    ) -> impl Future<Output = Arc<dyn Store>> + Send;

    /// Closes the store that was created or restored last and opens it again, as after a restart.
    /// Gives `None` for an engine that keeps its data only as long as the process runs.
    fn reopen(&self, store: Arc<dyn Store>) -> impl Future<Output = Option<Arc<dyn Store>>> + Send;
}

/// Declares a test for each case, on the subject that the expression returns. With `exact last changes:` before it, the
/// cases are those of an engine that knows the last change under each prefix; others may say that a prefix has changed.
#[macro_export]
macro_rules! conformance {
    ($subject:expr) => {
        $crate::conformance!(@cases $subject;
            commits: assigns_revisions_in_order_of_commit, gives_each_change_its_index,
                keeps_the_position_with_the_value, compares_and_sets, refuses_what_must_be_absent,
                takes_all_changes_or_none, names_the_first_condition_that_fails,
                conflicts_on_deleting_and_rewriting_what_is_absent,
                takes_no_revision_for_no_changes, refuses_malformed_transactions,
                enforces_its_limits, takes_values_of_any_bytes, rewrites_in_place,
                recreates_a_deleted_key;
            lists: lists_in_byte_order_under_a_prefix, pages_fit_together_while_writes_go_on,
                counts_what_remains, sees_the_past_as_it_was, refuses_future_and_compacted_revisions,
                lists_after_any_key, lists_nothing_in_an_empty_store,
                scans_what_a_list_of_the_past_shows, next_pages_are_a_list_of_the_past;
            watches: delivers_every_change_in_order_and_once, keeps_a_transaction_in_one_batch,
                resumes_between_any_two_changes, delivers_only_its_prefix_and_progress,
                starts_anywhere_in_history, waits_for_the_future, delivers_previous_values,
                tells_new_keys_without_previous_values,
                reads_events_bit_by_bit, reads_no_events_that_are_compacted,
                delivers_no_events_for_rewrites, loses_nothing_when_a_call_is_dropped,
                follows_while_changes_are_made, catches_up_over_a_long_history;
            history: compacts_what_is_superseded, keeps_live_values_however_old,
                keeps_previous_values_after_the_compacted_revision, refuses_to_watch_compacted_history,
                watches_from_the_end_of_the_compacted_revision, compacts_again_and_refuses_the_future,
                compacts_in_several_steps, rewrites_under_history, survives_a_restart,
                resumes_watches_after_a_restart;
            concurrency: loses_no_update_of_a_counter, shows_all_watchers_the_same_order,
                lets_one_of_many_create, never_shows_half_a_transaction,
                compacts_while_writers_write, two_clients_see_each_others_writes,
                watches_go_on_while_another_client_compacts;
            restored: begins_at_the_restored_revision, expires_everything_before_the_restore,
                delivers_what_follows_the_restore, reopens_what_was_restored,
                restores_an_empty_store;
            notes: never_misses_a_last_change, refuses_last_changes_that_it_cannot_know,
                knows_which_revision_is_old, keeps_the_age_over_restarts,
                keeps_the_age_while_clocks_step_and_differ, forgets_in_spite_of_restarts;
            lifecycle: runs_the_gate_before_each_commit, commits_nothing_while_the_gate_fails,
                shows_nothing_before_the_gate_has_passed, takes_one_gate_only,
                compacts_without_the_gate, is_healthy_until_it_is_closed,
                is_silent_no_longer_than_since_its_last_answer,
                recovers_without_loss, refuses_everything_after_close,
                ends_watches_that_wait_when_it_is_closed;
        );
    };
    (exact last changes: $subject:expr) => {
        $crate::conformance!(@cases $subject;
            exact_notes: finds_the_last_change_under_each_prefix, knows_the_past_as_it_was,
                remembers_last_changes_over_compaction, counts_what_it_did_not_note_as_changed,
                counts_what_was_before_a_restore_as_changed, counts_what_is_beyond_its_search_as_changed,
                says_of_any_history_what_a_watch_shows;
        );
    };
    (@cases $subject:expr; $($module:ident: $($case:ident),+;)+) => {
        $(mod $module {
            use super::*;

            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    $crate::conformance::$module::$case(&$subject).await;
                }
            )+
        })+
    };
}

fn key(name: &str) -> Arc<str> {
    Arc::from(name)
}

fn bytes(value: &str) -> Bytes {
    Bytes::copy_from_slice(value.as_bytes())
}

fn put(name: &str, value: &str) -> Change {
    Change::Put { key: key(name), value: bytes(value) }
}

fn delete(name: &str) -> Change {
    Change::Delete { key: key(name) }
}

fn rewrite(name: &str, value: &str) -> Change {
    Change::Rewrite { key: key(name), value: bytes(value) }
}

fn at(name: &str, position: Position) -> Condition {
    Condition::At(key(name), position)
}

fn absent(name: &str) -> Condition {
    Condition::Absent(key(name))
}

fn txn(conditions: Vec<Condition>, changes: Vec<Change>) -> Txn {
    Txn { conditions, changes }
}

async fn commit(store: &Arc<dyn Store>, changes: Vec<Change>) -> u64 {
    store.commit(txn(Vec::new(), changes)).await.unwrap()
}

async fn set(store: &Arc<dyn Store>, name: &str, value: &str) -> u64 {
    commit(store, vec![put(name, value)]).await
}

async fn get(store: &Arc<dyn Store>, name: &str) -> Option<Entry> {
    store.get(name).await.unwrap().value
}

/// The value of a key as text.
async fn text(store: &Arc<dyn Store>, name: &str) -> Option<String> {
    get(store, name).await.map(|entry| String::from_utf8(entry.value.to_vec()).unwrap())
}

fn under(prefix: &str) -> ListRequest {
    ListRequest { prefix: prefix.to_owned(), ..ListRequest::default() }
}

/// The keys and values of a list as text.
async fn listed(store: &Arc<dyn Store>, request: ListRequest) -> Vec<(String, String)> {
    let page = store.list(request).await.unwrap();
    assert_eq!(page.corrupt, Vec::new());
    let pair =
        |entry: &Entry| (entry.key.to_string(), String::from_utf8(entry.value.to_vec()).unwrap());
    page.entries.iter().map(pair).collect()
}

async fn watch(store: &Arc<dyn Store>, prefix: &str, after: Position) -> Box<dyn Watch> {
    store.watch(prefix, after, WithOld::Yes).await.unwrap()
}

/// The batches with events up to a revision. Checks that they are in order.
async fn batches_until(watch: &mut dyn Watch, revision: u64) -> Vec<Batch> {
    let mut batches: Vec<Batch> = Vec::new();
    let mut delivered = None;
    let mut last = Position::ZERO;
    while delivered.is_none_or(|delivered| delivered < revision) {
        let batch = watch.next().await.unwrap();
        assert!(
            delivered.is_none_or(|delivered| delivered < batch.revision),
            "progress goes forward"
        );
        delivered = Some(batch.revision);
        for event in &batch.events {
            assert!(event.position > last, "events are in order");
            assert_eq!(event.position.revision(), batch.revision, "one revision, one batch");
            last = event.position;
        }
        if !batch.events.is_empty() {
            batches.push(batch);
        }
    }
    batches
}

async fn events_until(watch: &mut dyn Watch, revision: u64) -> Vec<Event> {
    batches_until(watch, revision).await.into_iter().flat_map(|batch| batch.events).collect()
}

/// The next events, as many as are given. Checks their order as [`batches_until`] does.
async fn next_events(watch: &mut dyn Watch, count: usize) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    while events.len() < count {
        let batch = watch.next().await.unwrap();
        let last = events.last().map_or(Position::ZERO, |event| event.position);
        let is_later = |event: &Event| event.position > last;
        assert!(batch.events.first().is_none_or(is_later), "events are in order");
        events.extend(batch.events);
    }
    assert_eq!(events.len(), count, "no transaction is cut");
    events
}

/// A task that calls `next`, and ends with the watch and the result of the call.
type WaitingCall = JoinSet<(Box<dyn Watch>, Result<Batch>)>;

/// A task that calls `next`, once the call waits. A batch that should not be there ends it
/// early or, when it comes late, stands in place of the one that is awaited.
async fn waiting_call(mut watch: Box<dyn Watch>) -> WaitingCall {
    let (started, wait_until_started) = oneshot::channel();
    let mut task = JoinSet::new();
    task.spawn(async move {
        let announce = async {
            started.send(()).unwrap();
            pending().await
        };
        let result = tokio::select! {
            biased;
            result = watch.next() => result,
            result = announce => result,
        };
        (watch, result)
    });
    assert!(wait_until_started.await.is_ok(), "there is nothing to deliver yet");
    task
}

/// Checks that a call still waits after the other tasks have had many turns.
async fn check_it_waits(call: &mut WaitingCall) {
    for _ in 0..100 {
        assert!(call.try_join_next().is_none(), "there is nothing to deliver yet");
        yield_now().await;
    }
}

/// The watch of a call that waited, and the batch that the call returned.
async fn result_of(mut call: WaitingCall) -> (Box<dyn Watch>, Batch) {
    let (watch, result) = call.join_next().await.unwrap().unwrap();
    (watch, result.unwrap())
}
