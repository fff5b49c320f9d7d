//! Keeps the phases of clusters and instances up to date. When a Cluster or a Secret changes, the objects that depend
//! on it are written again, and admission sets the phase. A write without a change stores nothing. An index has the
//! objects that depend on each Cluster and Secret, so a change costs only the objects that it concerns.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use postern_kinds::cluster::Cluster;
use postern_kinds::secret::Secret;
use postern_kinds::space_instance::SpaceInstance;
use postern_kinds::virtual_cluster_instance::VirtualClusterInstance;
use postern_kinds::{AnyKind, Verb};
use postern_meta::status::ApiError;
use postern_telemetry::log_limited;

use super::cursor::{Cursor, CursorRead};
use crate::admit::Writing;
use crate::operations;
use crate::permit::Permit;
use crate::registry::Registry;
use crate::storage_key;

/// The watched kinds: kinds with a phase, and Secrets, which contain kubeconfigs.
const KINDS: [&dyn AnyKind; 4] = [&Cluster, &VirtualClusterInstance, &SpaceInstance, &Secret];

/// The time in which changes are collected and then processed together.
const BATCH_INTERVAL: Duration = Duration::from_millis(100);

/// The time between a failure and the next attempt.
const RETRY: Duration = Duration::from_secs(5);

/// The objects that are written before other tasks get the thread.
const WRITES_PER_STEP: usize = 16;

/// An object with a phase: the index of its kind in [`KINDS`], and its storage key.
type PhasedObject = (usize, Arc<str>);

/// A source of the phase of an object, in addition to the object itself.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Source {
    /// A Cluster.
    Cluster(String),
    /// A Secret, by namespace and name.
    Secret(String, String),
}

/// The objects with a phase, by the sources that they depend on.
#[derive(Default)]
struct Index {
    by_source: BTreeMap<Source, BTreeSet<PhasedObject>>,
    sources: HashMap<PhasedObject, Vec<Source>>,
}

impl Index {
    /// Sets the sources that an object depends on. A removed object has none.
    fn set(&mut self, reached: &PhasedObject, sources: Vec<Source>) {
        for old in self.sources.remove(reached).unwrap_or_default() {
            if let Some(of) = self.by_source.get_mut(&old) {
                of.remove(reached);
                if of.is_empty() {
                    self.by_source.remove(&old);
                }
            }
        }
        for source in &sources {
            self.by_source.entry(source.clone()).or_default().insert(reached.clone());
        }
        if !sources.is_empty() {
            self.sources.insert(reached.clone(), sources);
        }
    }

    fn of(&self, source: &Source) -> impl Iterator<Item = PhasedObject> {
        self.by_source.get(source).into_iter().flatten().cloned()
    }
}

/// Runs until it is dropped.
pub async fn run(registry: Arc<Registry>) {
    let mut progress = registry.cache().subscribe();
    let mut phases = Phases::new(registry.clone());
    loop {
        registry.servers().turn("phases").await;
        progress.mark_unchanged();
        phases.catch_up();
        if phases.rewrite_concerned().await {
            tokio::time::sleep(RETRY).await;
            continue;
        }
        if progress.changed().await.is_err() {
            return;
        }
        tokio::time::sleep(BATCH_INTERVAL).await;
    }
}

struct Phases {
    registry: Arc<Registry>,
    /// The cursor in the events of each of [`KINDS`].
    cursors: [Cursor; 4],
    index: Index,
    /// The objects to write again.
    concerned: BTreeSet<PhasedObject>,
}

impl Phases {
    /// A controller that first checks every object: changes while no server ran are unknown.
    fn new(registry: Arc<Registry>) -> Self {
        let cursors = [Cursor::default(); 4];
        Self { registry, cursors, index: Index::default(), concerned: BTreeSet::new() }
    }

    /// Reads all events since the last call.
    fn catch_up(&mut self) {
        let registry = self.registry.clone();
        for (kind, of) in KINDS.iter().enumerate() {
            while let Some(read) = self.cursors[kind].next(registry.cache().of(of.info())) {
                match read {
                    CursorRead::Events(events) => {
                        for event in &events {
                            self.note(kind, event.object.key());
                        }
                    }
                    CursorRead::Expired => self.relist(kind),
                }
            }
        }
    }

    /// Notes all objects of a kind. For Secrets, it notes the objects that depend on one.
    fn relist(&mut self, kind: usize) {
        if KINDS[kind].has_phase() {
            for object in self.registry.cache().of(KINDS[kind].info()).page(None, usize::MAX) {
                self.note(kind, object.key());
                self.concerned.insert((kind, object.key().clone()));
            }
        } else {
            let is_secret = |source: &&Source| matches!(source, Source::Secret(..));
            let secrets = self.index.by_source.iter().filter(|(source, _)| is_secret(source));
            self.concerned.extend(secrets.flat_map(|(_, reached)| reached.iter().cloned()));
        }
    }

    /// Notes a change of an object: its sources, and the objects that depend on it.
    fn note(&mut self, kind: usize, key: &Arc<str>) {
        let (namespace, name) = storage_key::name_of(key);
        let source = match namespace {
            Some(namespace) if !KINDS[kind].has_phase() => {
                Some(Source::Secret(namespace.to_owned(), name.to_owned()))
            }
            None => Some(Source::Cluster(name.to_owned())),
            Some(_) => None,
        };
        if let Some(source) = source {
            self.concerned.extend(self.index.of(&source));
        }
        if KINDS[kind].has_phase() {
            let sources = self.sources_of(KINDS[kind], key);
            self.index.set(&(kind, key.clone()), sources);
        }
    }

    /// The sources of the phase of an object; empty if it is gone or corrupt.
    fn sources_of(&self, kind: &dyn AnyKind, key: &str) -> Vec<Source> {
        let found = self.registry.cache().of(kind.info()).get(key).ok().flatten();
        let Some(object) = found.and_then(|found| found.decode().ok()) else { return Vec::new() };
        let secret = kind.kubeconfig(&object).map(|config| {
            let namespace = config.namespace_in(&object.metadata.namespace).to_owned();
            Source::Secret(namespace, config.secret_name)
        });
        let cluster = kind.on_cluster(&object).map(Source::Cluster);
        secret.into_iter().chain(cluster).collect()
    }

    /// Writes the noted objects again. Returns whether anything failed; that is tried again.
    async fn rewrite_concerned(&mut self) -> bool {
        let mut failed = BTreeSet::new();
        for (done, one) in std::mem::take(&mut self.concerned).into_iter().enumerate() {
            if done % WRITES_PER_STEP == WRITES_PER_STEP - 1 {
                tokio::task::yield_now().await;
            }
            if let Err(error) = self.write(&one).await {
                let inner = error.inner().unwrap_or_default();
                log_limited!(warn, inner, "a phase could not be written: {error}");
                failed.insert(one);
            }
        }
        self.concerned = failed;
        !self.concerned.is_empty()
    }

    /// Writes an object unchanged, so that admission sets its phase.
    ///
    /// # Errors
    /// The errors of the store. An object that is gone or no longer valid is skipped.
    async fn write(&self, (kind, key): &PhasedObject) -> Result<(), ApiError> {
        let (namespace, name) = storage_key::name_of(key);
        let permit = Permit::for_server(KINDS[*kind], Verb::Update, namespace, name);
        let writing = Writing::by_server();
        let same = operations::update(&self.registry, &permit, &writing, |now| Ok(now.clone()));
        match same.await {
            Err(error) if error.code() >= 500 => Err(error),
            _ => Ok(()),
        }
    }
}
