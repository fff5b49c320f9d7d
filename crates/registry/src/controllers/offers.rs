//! Keeps the condition `Offered` of project secrets up to date. When an instance or a Cluster changes, the project secrets
//! whose condition is no longer right are written again, and admission sets it. A write without a change stores nothing.
//!
//! The condition is for people. A subscription decides from the objects themselves.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use memchr::memmem::Finder;
use postern_kinds::cluster::Cluster;
use postern_kinds::project_secret::ProjectSecret;
use postern_kinds::secret_offer::{InstanceKind, OFFERED};
use postern_kinds::space_instance::SpaceInstance;
use postern_kinds::virtual_cluster_instance::VirtualClusterInstance;
use postern_kinds::{AnyKind, Verb};
use postern_meta::status::ApiError;
use postern_telemetry::log_limited;

use super::cursor::{Cursor, CursorRead};
use crate::admit::Writing;
use crate::cache::CachedObject;
use crate::cache::locations::StoredOffer;
use crate::operations;
use crate::permit::Permit;
use crate::registry::Registry;
use crate::storage_key;

/// The watched kinds.
const KINDS: [&dyn AnyKind; 3] = [&SpaceInstance, &VirtualClusterInstance, &Cluster];

/// The time in which changes are collected and then processed together.
const BATCH_INTERVAL: Duration = Duration::from_millis(100);

/// The time between a failure and the next attempt.
const RETRY: Duration = Duration::from_secs(5);

/// The objects that are read before other tasks get the thread.
const OBJECTS_PER_STEP: usize = 64;

/// A text that every project secret with a bound offer has.
const BOUND: &[u8] = b"\"offers\":[";

/// Runs until it is dropped.
pub async fn run(registry: Arc<Registry>) {
    let mut changes = KINDS.map(|kind| registry.cache().of(kind.info()).subscribe());
    let mut offers = Offers::new(registry.clone());
    loop {
        registry.servers().turn("offers").await;
        changes.iter_mut().for_each(tokio::sync::watch::Receiver::mark_unchanged);
        offers.catch_up();
        if offers.check().await {
            tokio::time::sleep(RETRY).await;
            continue;
        }
        let next = changes.iter_mut().map(|one| Box::pin(one.changed()));
        if futures_util::future::select_all(next).await.0.is_err() {
            return;
        }
        tokio::time::sleep(BATCH_INTERVAL).await;
    }
}

/// The project secrets to check.
enum Scope {
    /// All of them.
    Everywhere,
    /// Those of these namespaces.
    Namespaces(BTreeSet<String>),
}

struct Offers {
    registry: Arc<Registry>,
    /// The cursor in the events of each of [`KINDS`].
    cursors: [Cursor; 3],
    /// The uid of each Cluster that has changed. Agents often change the status of their Cluster.
    clusters: HashMap<Arc<str>, Option<String>>,
    scope: Scope,
}

impl Offers {
    /// A controller that first checks every offer: changes while no server ran are unknown.
    fn new(registry: Arc<Registry>) -> Self {
        let (cursors, clusters) = ([Cursor::default(); 3], HashMap::new());
        Self { registry, cursors, clusters, scope: Scope::Everywhere }
    }

    /// Reads all events since the last call.
    fn catch_up(&mut self) {
        let registry = self.registry.clone();
        for (index, kind) in KINDS.into_iter().enumerate() {
            while let Some(read) = self.cursors[index].next(registry.cache().of(kind.info())) {
                match read {
                    CursorRead::Events(events) => {
                        for event in &events {
                            self.note(event.object.key());
                        }
                    }
                    CursorRead::Expired => self.scope = Scope::Everywhere,
                }
            }
        }
    }

    fn note(&mut self, key: &Arc<str>) {
        match (storage_key::name_of(key).0, &mut self.scope) {
            (Some(namespace), Scope::Namespaces(namespaces)) => {
                namespaces.insert(namespace.to_owned());
            }
            (Some(_), Scope::Everywhere) => {}
            (None, _) => {
                let found = self.registry.cache().of(Cluster.info()).get(key).ok().flatten();
                let uid = found.and_then(|found| found.decode().ok()).map(|one| one.metadata.uid);
                if self.clusters.insert(key.clone(), uid.clone()) != Some(uid) {
                    self.scope = Scope::Everywhere;
                }
            }
        }
    }

    /// Writes the project secrets again whose condition is not right. Returns whether anything failed; that is tried again.
    async fn check(&mut self) -> bool {
        let scope = std::mem::replace(&mut self.scope, Scope::Namespaces(BTreeSet::new()));
        let resource = self.registry.cache().of(ProjectSecret.info());
        let bound = Finder::new(BOUND);
        let mut has_failed = false;
        for page in resource.pages(OBJECTS_PER_STEP) {
            for secret in page {
                let namespace = storage_key::name_of(secret.key()).0.unwrap_or_default();
                let is_concerned = match &scope {
                    Scope::Everywhere => true,
                    Scope::Namespaces(namespaces) => namespaces.contains(namespace),
                };
                if !is_concerned || bound.find(&secret.json()).is_none() || self.is_right(&secret) {
                    continue;
                }
                if let Err(error) = self.write(secret.key()).await {
                    let inner = error.inner().unwrap_or_default();
                    log_limited!(warn, inner, "an offer could not be written: {error}");
                    has_failed = true;
                }
            }
            tokio::task::yield_now().await;
        }
        if has_failed {
            self.scope = scope;
        }
        has_failed
    }

    /// Whether the condition says what holds. What cannot be read stays as it is.
    fn is_right(&self, secret: &CachedObject) -> bool {
        let Ok(stored) = StoredOffer::of(secret) else { return true };
        let namespace = storage_key::name_of(secret.key()).0.unwrap_or_default();
        let counts = stored.status.offers.iter().all(|one| {
            let kind = InstanceKind::ALL.into_iter().find(|kind| kind.kind() == one.kind);
            let location = kind.and_then(|kind| {
                let cache = self.registry.cache();
                cache.location_of_instance(kind, namespace, &one.name).ok().flatten()
            });
            location.is_some_and(|location| one.is_at(&location))
        });
        counts == (stored.status.status_of(OFFERED) == "True")
    }

    /// Writes a project secret unchanged, so that admission sets the condition.
    async fn write(&self, key: &str) -> Result<(), ApiError> {
        let (namespace, name) = storage_key::name_of(key);
        let permit = Permit::for_server(&ProjectSecret, Verb::Update, namespace, name);
        let writing = Writing::by_server();
        let same = operations::update(&self.registry, &permit, &writing, |now| Ok(now.clone()));
        match same.await {
            Err(error) if error.code() >= 500 => Err(error),
            _ => Ok(()),
        }
    }
}
