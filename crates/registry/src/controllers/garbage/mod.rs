//! Deletes objects after their owners, or after an object that they end with. It also handles
//! owners that are deleted with foreground or orphan propagation
//! (`docs/reference/api.md#deletion`).
//!
//! It follows the cache as a watcher does. In addition to the cache it has one index: the objects that name
//! each owner. The index is built from the store at every start, so a restart loses nothing. An object is
//! processed again whenever it or one of its owners changes.

mod collect;
mod failures;
mod index;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use postern_kinds::AnyKind;
use postern_meta::event::WatchEventType;
use postern_telemetry::log_limited;
use tokio::time::Instant;

use self::failures::Failures;
use self::index::Index;
use super::cursor::{Cursor, CursorRead};
use crate::cache::{CachedObject, ResourceCache};
use crate::registry::Registry;

/// The time in which changes are collected, so that many writes wake the collector once.
const BATCH_INTERVAL: Duration = Duration::from_millis(10);

/// The longest time until the next query, after the store did not answer.
const RETRY: Duration = Duration::from_secs(2);

/// The objects that are read before the task yields.
const OBJECTS_PER_READ: usize = 64;

/// The collector's index, its cursors, and its queue.
struct Collector {
    registry: Arc<Registry>,
    index: Index,
    /// The cursor in the events of each kind.
    cursors: Vec<Cursor>,
    /// The storage keys of the objects to process.
    queue: BTreeSet<Arc<str>>,
    /// The objects that could not be processed and wait for the next attempt.
    failures: Failures,
}

/// Runs until it is dropped.
pub async fn run(registry: Arc<Registry>) {
    let mut progress = registry.cache().subscribe();
    let mut collector = Collector::new(registry.clone());
    loop {
        registry.servers().turn("garbage").await;
        progress.mark_unchanged();
        collector.catch_up().await;
        if let Some(next_try) = collector.work().await {
            let _ = tokio::time::timeout_at(next_try, progress.changed()).await;
        } else if progress.changed().await.is_err() {
            return;
        }
        tokio::time::sleep(BATCH_INTERVAL).await;
    }
}

impl Collector {
    /// A collector that has not read anything yet.
    fn new(registry: Arc<Registry>) -> Self {
        let cursors = vec![Cursor::default(); registry.cache().resources().len()];
        let (index, queue, failures) = (Index::default(), BTreeSet::new(), Failures::default());
        Self { registry, index, cursors, queue, failures }
    }

    /// Reads all events since the last call.
    async fn catch_up(&mut self) {
        let registry = self.registry.clone();
        for (index, resource) in registry.cache().resources().iter().enumerate() {
            while let Some(read) = self.cursors[index].next(resource) {
                match read {
                    CursorRead::Events(events) => {
                        for event in &events {
                            let gone = event.event_type == WatchEventType::Deleted;
                            self.note(resource.kind(), &event.object, gone);
                        }
                    }
                    CursorRead::Expired => self.relist(resource).await,
                }
            }
        }
    }

    /// Reads all objects of a kind.
    async fn relist(&mut self, resource: &ResourceCache) {
        let related = self.index.clear_collection(resource.prefix());
        self.queue.extend(related);
        for objects in resource.pages(OBJECTS_PER_READ) {
            for object in &objects {
                self.note(resource.kind(), object, false);
            }
            tokio::task::yield_now().await;
        }
    }

    /// Indexes and enqueues a present or a removed object.
    fn note(&mut self, kind: &dyn AnyKind, object: &CachedObject, gone: bool) {
        let key = object.key();
        let concerned = object.may_have_owners() || object.is_deleting();
        let owners = if concerned && !gone { collect::owners_of(kind, object) } else { Vec::new() };
        // Owners are processed again: they may wait until this object is removed or no longer names them, and they
        // may not have known of it.
        self.queue.extend(owners.iter().cloned());
        self.queue.extend(self.index.set(key, owners));
        if gone {
            self.queue.extend(self.index.dependents_of(key));
        } else if concerned {
            self.queue.insert(key.clone());
        }
    }

    /// Processes the queue, and the failures that are due. Returns the time of the next attempt, if anything failed.
    async fn work(&mut self) -> Option<Instant> {
        if self.registry.cache().wait_until_current().await.is_err() {
            return Some(Instant::now() + RETRY);
        }
        self.queue.extend(self.failures.due(Instant::now()));
        while let Some(key) = self.queue.pop_first() {
            if collect::may_wait_on_dependents(&self.registry, &key) {
                // Owners are read in their present state. Before the finalizer of an owner is removed, all objects
                // that named it before its deletion must be known.
                self.catch_up().await;
            }
            match collect::process(&self.registry, &self.index, &key).await {
                Ok(more) => {
                    self.failures.forget(&key);
                    self.queue.extend(more);
                }
                // The object has changed since it was read: its event brings it back.
                Err(error) if error.code() == 409 || error.code() == 404 => {
                    self.failures.forget(&key);
                }
                Err(error) => {
                    if self.failures.note(key.clone(), Instant::now()) {
                        let inner = error.inner().unwrap_or_default();
                        log_limited!(warn, key = %key, inner, "{}", error.status().message);
                    }
                }
            }
            tokio::task::yield_now().await;
        }
        self.failures.next_try()
    }
}

#[cfg(test)]
mod tests {
    use postern_meta::object::Object;
    use postern_meta::options::{DeleteOptions, Propagation};
    use serde_json::{Value, json};

    use super::*;
    use crate::registry::tests::{Fixture, fixture, secret};

    mod ties;

    /// A secret with these owner references.
    async fn make(fixture: &Fixture, name: &str, owners: Value) -> Object {
        let metadata = json!({ "ownerReferences": owners });
        fixture.make(secret(name), json!({ "metadata": metadata })).await
    }

    fn reference(owner: &Object) -> Value {
        json!([{
            "apiVersion": owner.api_version, "kind": owner.kind, "name": "owner",
            "uid": owner.metadata.uid,
        }])
    }

    #[tokio::test]
    async fn an_owner_is_released_when_its_newest_dependents_are_known() {
        let fixture = fixture().await;
        let registry = fixture.registry.clone();
        let mut collector = Collector::new(registry.clone());
        let owner = make(&fixture, "owner", json!([])).await;
        collector.catch_up().await;
        assert!(collector.work().await.is_none());
        make(&fixture, "dependent", reference(&owner)).await;
        let orphaning =
            DeleteOptions { propagation: Some(Propagation::Orphan), ..DeleteOptions::default() };
        fixture.try_delete(secret("owner"), orphaning).await.unwrap();
        // The owner is processed before the collector has read either event.
        collector.queue.insert(secret("owner").key());
        for _ in 0..3 {
            assert!(collector.work().await.is_none());
            collector.catch_up().await;
        }
        let get = async |name| {
            fixture.current().await;
            fixture.read(secret(name)).await
        };
        assert_eq!(get("owner").await.unwrap_err().code(), 404);
        let dependent = get("dependent").await.unwrap();
        assert!(dependent.metadata.owner_references.is_empty(), "it stays, without the owner");
    }

    #[tokio::test(start_paused = true)]
    async fn what_fails_is_not_tried_again_at_every_change() {
        let fixture = fixture().await;
        let registry = fixture.registry.clone();
        let mut collector = Collector::new(registry.clone());
        let owner = make(&fixture, "owner", json!([])).await;
        fixture.corrupt(secret("owner")).await;
        make(&fixture, "dependent", reference(&owner)).await;
        fixture.current().await;
        collector.catch_up().await;
        let next_try = collector.work().await.expect("the owner cannot be read");
        for name in ["a", "b", "c"] {
            make(&fixture, name, json!([])).await;
            collector.catch_up().await;
            assert_eq!(collector.work().await, Some(next_try), "it waits for its time");
        }
        tokio::time::advance(next_try - Instant::now()).await;
        let later = collector.work().await.expect("the owner cannot be read yet");
        assert!(later - next_try > next_try - (next_try - RETRY), "the next wait is longer");
        fixture.remove(secret("owner")).await;
        collector.catch_up().await;
        assert_eq!(collector.work().await, None);
        fixture.current().await;
        let gone = fixture.read(secret("dependent")).await;
        assert_eq!(gone.unwrap_err().code(), 404, "its owner is gone");
    }
}
