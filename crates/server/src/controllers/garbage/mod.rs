//! Collects objects whose owners are gone, and sees to owners that are deleted in the foreground
//! or orphaning (wire contract 1.5).
//!
//! It follows the cache as a watcher does. What it knows beyond the cache is one index: who names
//! whom as owner. It is made anew from what is stored at every start, so a restart forgets nothing;
//! and an object is looked at again whenever something happens to it or to one of its owners.

mod collect;
mod index;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use postern_meta::event::WatchEventType;
use postern_store::Position;

use self::index::Index;
use crate::cache::{CachedObject, Next, ResourceCache};
use crate::registry::Registry;

/// Changes of this long are taken together: a burst of writes wakes the collector once.
const GATHER: Duration = Duration::from_millis(10);

/// What failed is tried again after this long, at the latest.
const RETRY: Duration = Duration::from_secs(2);

/// Objects that are looked at before others have their turn.
const OBJECTS_PER_TURN: usize = 64;

/// What the collector knows and has yet to do.
struct Collector {
    registry: Arc<Registry>,
    index: Index,
    /// Up to where each kind's events have been seen; `None` where the kind is to be read anew.
    places: Vec<Option<Position>>,
    /// Storage keys of objects to look at.
    queue: BTreeSet<Arc<str>>,
}

/// Runs until it is dropped.
pub(crate) async fn run(registry: Arc<Registry>) {
    let mut progress = registry.cache().subscribe();
    let mut collector = Collector::new(registry);
    loop {
        progress.mark_unchanged();
        collector.catch_up().await;
        let failed = collector.work().await;
        if failed {
            let _ = tokio::time::timeout(RETRY, progress.changed()).await;
        } else if progress.changed().await.is_err() {
            return;
        }
        tokio::time::sleep(GATHER).await;
    }
}

impl Collector {
    /// One that has seen nothing yet.
    fn new(registry: Arc<Registry>) -> Self {
        let places = registry.cache().resources().iter().map(|_| None).collect();
        Self { registry, index: Index::default(), places, queue: BTreeSet::new() }
    }

    /// Takes in everything that has happened.
    async fn catch_up(&mut self) {
        let registry = self.registry.clone();
        for (number, resource) in registry.cache().resources().iter().enumerate() {
            while let Some(place) = self.places[number] {
                match resource.events_after(place) {
                    Next::Events(events) => {
                        for event in &events {
                            self.note(&event.object, event.event_type == WatchEventType::Deleted);
                            self.places[number] = Some(event.position());
                        }
                    }
                    Next::Idle(revision) => {
                        self.places[number] = Some(place.max(Position::end_of(revision)));
                        break;
                    }
                    Next::Expired(_) => self.places[number] = None,
                }
            }
            if self.places[number].is_none() {
                self.places[number] = Some(self.read_anew(resource).await);
            }
        }
    }

    /// Reads all objects of a kind. Returns from where its events go on.
    async fn read_anew(&mut self, resource: &ResourceCache) -> Position {
        // What changes while this goes on is seen again by its event.
        let from = Position::end_of(self.registry.cache().applied());
        let gone = self.index.forget_collection(resource.prefix());
        self.queue.extend(gone);
        let mut after = None;
        loop {
            let objects = resource.page(after.as_deref(), OBJECTS_PER_TURN);
            let Some(last) = objects.last() else { return from };
            after = Some(last.key().clone());
            for object in &objects {
                self.note(object, false);
            }
            tokio::task::yield_now().await;
        }
    }

    /// Takes in one object as it now is, or as it was at its end.
    fn note(&mut self, object: &CachedObject, gone: bool) {
        let key = object.key();
        let concerned = object.may_have_owners() || object.may_be_deleting();
        let owners = if concerned && !gone { collect::owners_of(object) } else { Vec::new() };
        // Whoever waits for it to go, or to let go, looks again; and so do those who may not have
        // known that it came.
        self.queue.extend(owners.iter().cloned());
        self.queue.extend(self.index.set(key, owners));
        if gone {
            self.queue.extend(self.index.dependents_of(key));
        } else if concerned {
            self.queue.insert(key.clone());
        }
    }

    /// Looks at everything that is to be looked at. Returns whether anything went wrong; that is
    /// tried again.
    async fn work(&mut self) -> bool {
        let mut failed = BTreeSet::new();
        if self.registry.cache().wait_until_current().await.is_err() {
            return true;
        }
        while let Some(key) = self.queue.pop_first() {
            if collect::may_wait_on_dependents(&self.registry, &key) {
                // Owners are read as they are now. Before one is let go, everything that came to
                // depend on it before it began to end has to be known.
                self.catch_up().await;
            }
            match collect::look_at(&self.registry, &self.index, &key).await {
                Ok(more) => self.queue.extend(more),
                // It has changed since it was looked at: its event brings it back.
                Err(error) if error.code() == 409 || error.code() == 404 => {}
                Err(error) => {
                    let inner = error.inner().unwrap_or_default();
                    tracing::warn!(key = %key, inner, "{}", error.status().message);
                    failed.insert(key);
                }
            }
            tokio::task::yield_now().await;
        }
        self.queue = failed;
        !self.queue.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use postern_kinds::shared_secret::SharedSecret;
    use postern_kinds::{AnyKind as _, Verb};
    use postern_meta::object::Object;
    use postern_meta::options::{DeleteOptions, GetOptions, Propagation};
    use serde_json::{Value, json};

    use super::*;
    use crate::operations;
    use crate::registry::decoded;
    use crate::registry::tests::fixture;
    use crate::stages::admit::Writing;
    use crate::stages::authorize::Permit;
    use crate::storage_key;

    fn permit(verb: Verb, name: &str) -> Permit {
        Permit::for_server(&SharedSecret, verb, Some("platform"), name)
    }

    async fn make(registry: &Registry, name: &str, owners: Value) -> Object {
        let info = SharedSecret.info();
        let object = Object::from_value(json!({
            "apiVersion": info.version.to_string(),
            "kind": info.kind,
            "metadata": { "name": name, "ownerReferences": owners },
        }));
        let permit = permit(Verb::Create, name);
        let made = operations::create(&registry, &permit, object.unwrap(), &Writing::by_server())
            .await
            .unwrap();
        decoded(&made).unwrap()
    }

    #[tokio::test]
    async fn an_owner_is_let_go_when_its_newest_dependents_are_known() {
        let fixture = fixture().await;
        let registry = fixture.registry.clone();
        let mut collector = Collector::new(registry.clone());
        let owner = make(&registry, "owner", json!([])).await;
        collector.catch_up().await;
        assert!(!collector.work().await);
        let reference = json!([{
            "apiVersion": owner.api_version, "kind": owner.kind, "name": "owner",
            "uid": owner.metadata.uid,
        }]);
        make(&registry, "dependent", reference).await;
        let orphaning =
            DeleteOptions { propagation: Some(Propagation::Orphan), ..DeleteOptions::default() };
        operations::delete(&registry, &permit(Verb::Delete, "owner"), &orphaning).await.unwrap();
        // The owner's turn comes before the collector has heard of either.
        collector.queue.insert(storage_key::object(SharedSecret.info(), Some("platform"), "owner"));
        for _ in 0..3 {
            assert!(!collector.work().await);
            collector.catch_up().await;
        }
        let get = async |name| {
            registry.cache().wait_until_current().await.unwrap();
            registry.get(&permit(Verb::Get, name), &GetOptions::default()).await
        };
        assert_eq!(get("owner").await.unwrap_err().code(), 404);
        let dependent = decoded(&get("dependent").await.unwrap()).unwrap();
        assert!(dependent.metadata.owner_references.is_empty(), "it lives on, without the owner");
    }
}
