//! The metadata of labelled Secrets: by watches of the cluster, and by lists of virtual clusters. No Secret without both
//! labels is requested.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use postern_kinds::secret_subscription::InstanceRef;
use tokio::sync::{Semaphore, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, sleep_until};

use super::SecretsMode;
use super::cluster_api::{ApiFailure, SecretEvent, Server};
use super::location::{InstanceKey, Place};
use super::native::Metadata;
use super::sync::{FAILURES, Locations, SecretSync};

/// The most namespaces that are watched, and the most virtual clusters that are listed.
const MAX_NAMESPACES: usize = 1000;
const MAX_VIRTUAL_CLUSTERS: usize = 256;

/// Lists at once.
const MAX_LISTS: usize = 4;

/// The most pages of a list.
const MAX_PAGES: usize = 2000;

/// The shortest time from one list of a scope to the next.
const LIST_INTERVAL: Duration = Duration::from_secs(5);

/// The pause before a watch is opened again.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// The longest pause after failures, and the pause where the agent has no permission.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
const PERMISSION_PAUSE: Duration = Duration::from_mins(1);

/// Secrets that are read by one task.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Scope {
    /// Those of all namespaces of the cluster.
    Cluster,
    /// Those of one.
    Namespace(String),
    /// Those of a virtual cluster.
    VirtualCluster(InstanceRef),
}

impl Scope {
    fn place(&self) -> Place {
        match self {
            Self::Cluster | Self::Namespace(_) => Place::Cluster,
            Self::VirtualCluster(instance) => Place::VirtualCluster(instance.clone()),
        }
    }

    fn namespace(&self) -> Option<&str> {
        match self {
            Self::Namespace(namespace) => Some(namespace),
            Self::Cluster | Self::VirtualCluster(_) => None,
        }
    }
}

/// Keeps a task for each scope, as the configuration says. It never returns.
pub(super) async fn run(sync: Arc<SecretSync>) {
    let mut watchers = Watchers {
        sync: sync.clone(),
        lists: Arc::new(Semaphore::new(MAX_LISTS)),
        tasks: JoinSet::new(),
        running: HashMap::new(),
    };
    let mut changes = sync.agent.state.subscribe();
    loop {
        // While the agent is offline, everything stays as it is.
        if let Ok(config) = sync.agent.state.config() {
            watchers.apply(Locations::of(&config)).await;
        }
        if changes.changed().await.is_err() {
            return;
        }
    }
}

struct Watchers {
    sync: Arc<SecretSync>,
    lists: Arc<Semaphore>,
    tasks: JoinSet<()>,
    running: HashMap<Scope, AbortHandle>,
}

impl Watchers {
    /// Starts and stops tasks, and ends the sync of instances that are gone.
    async fn apply(&mut self, locations: Locations) {
        let (before, sync) = (self.sync.locations(), self.sync.clone());
        if *before == locations && !self.running.is_empty() {
            return;
        }
        let has_new_space = locations.spaces.difference(&before.spaces).next().is_some();
        let scopes = self.scopes(&locations);
        self.running.retain(|scope, task| {
            let stays = scopes.contains(scope);
            if !stays {
                task.abort();
            }
            stays
        });
        while self.tasks.try_join_next().is_some() {}
        let moved = |key: &InstanceKey| locations.namespace_of(key) != before.namespace_of(key);
        for key in before.keys().into_iter().filter(moved) {
            let server = server_of(&before, &key);
            for (id, metadata) in sync.table.remove_instance(&key) {
                if let Some(server) = &server {
                    sync.end(server, &id, &metadata).await;
                }
            }
        }
        sync.set_locations(locations);
        for scope in scopes {
            if !self.running.contains_key(&scope) {
                let (sync, lists) = (self.sync.clone(), self.lists.clone());
                let task = self.tasks.spawn(read(sync, lists, scope.clone()));
                self.running.insert(scope, task);
            }
        }
        if has_new_space && self.sync.settings.mode == SecretsMode::All {
            // Its Secrets may have been there before.
            self.sync.table.relist();
        }
    }

    fn scopes(&self, locations: &Locations) -> Vec<Scope> {
        let spaces = locations.spaces.iter().cloned().map(Scope::Namespace);
        let mut scopes: Vec<Scope> = match self.sync.settings.mode {
            SecretsMode::Off => return Vec::new(),
            SecretsMode::All => vec![Scope::Cluster],
            SecretsMode::Bound => spaces.take(MAX_NAMESPACES).collect(),
        };
        let virtual_clusters = locations.virtual_clusters.keys().take(MAX_VIRTUAL_CLUSTERS);
        scopes.extend(virtual_clusters.cloned().map(Scope::VirtualCluster));
        if locations.spaces.len() > MAX_NAMESPACES
            || locations.virtual_clusters.len() > MAX_VIRTUAL_CLUSTERS
        {
            FAILURES.write("scopes", |_| {
                tracing::warn!(
                    "Secrets are filled in {MAX_NAMESPACES} namespaces with secrets.mode bound, and in \
                     {MAX_VIRTUAL_CLUSTERS} virtual clusters; there are more"
                );
            });
        }
        scopes
    }
}

/// The API server that has the Secrets of an instance.
fn server_of(locations: &Locations, key: &InstanceKey) -> Option<Server> {
    match key {
        InstanceKey::Space(_) => Some(Server::Cluster),
        InstanceKey::VirtualCluster(instance) => {
            let found = locations.virtual_clusters.get(instance);
            found.map(|one| Server::VirtualCluster(one.at.clone()))
        }
    }
}

/// Reads the Secrets of a scope again and again. It never returns.
async fn read(sync: Arc<SecretSync>, lists: Arc<Semaphore>, scope: Scope) {
    let mut relists = sync.table.relists();
    let mut failures = 0_u32;
    loop {
        let began = Instant::now();
        relists.mark_unchanged();
        let listed = {
            let _permit = lists.acquire().await;
            list(&sync, &scope).await
        };
        match listed {
            Ok(version) => {
                failures = 0;
                if let Scope::VirtualCluster(_) = scope {
                    sleep(jittered(&sync, sync.settings.virtual_cluster_interval)).await;
                } else {
                    watch_from(&sync, &scope, version, &mut relists).await;
                    sleep_until(began + LIST_INTERVAL).await;
                }
            }
            Err(why) => {
                failures = failures.saturating_add(1);
                let pause = pause_after(&sync, &scope, &why, failures);
                sleep(jittered(&sync, pause)).await;
            }
        }
    }
}

/// The pause after a failed list.
fn pause_after(sync: &SecretSync, scope: &Scope, why: &ApiFailure, failures: u32) -> Duration {
    let is_forbidden = why.is(StatusCode::FORBIDDEN);
    if let (Scope::Namespace(namespace), true) = (scope, is_forbidden) {
        // Its administrator has not bound the role, or has removed the binding. That is no failure.
        sync.table.retain(&Place::Cluster, Some(namespace), &BTreeSet::new());
        tracing::debug!(namespace, "the agent may not read Secrets here");
        return PERMISSION_PAUSE;
    }
    if let Scope::VirtualCluster(instance) = scope {
        let key = InstanceKey::VirtualCluster(instance.clone());
        // Its namespace may be another one by now.
        sync.table.set_namespace_uid(&key, None);
    }
    FAILURES.write("list", |left_out| {
        tracing::warn!(?scope, left_out, "cannot list the labelled Secrets: {why}");
    });
    if is_forbidden {
        return PERMISSION_PAUSE;
    }
    (WATCH_INTERVAL * 2_u32.saturating_pow(failures.min(8))).min(LONGEST_PAUSE)
}

/// A time, and up to half of it.
fn jittered(sync: &SecretSync, pause: Duration) -> Duration {
    let jitter = u32::try_from(sync.table.random() % 128).unwrap_or_default();
    pause * (256 + jitter) / 256
}

/// Lists the Secrets of a scope, and returns the version of the list.
async fn list(sync: &SecretSync, scope: &Scope) -> Result<String, ApiFailure> {
    let gone = || ApiFailure::Silent("it is no longer known".to_owned());
    let server = match scope {
        Scope::Cluster | Scope::Namespace(_) => Server::Cluster,
        Scope::VirtualCluster(instance) => {
            let key = InstanceKey::VirtualCluster(instance.clone());
            server_of(&sync.locations(), &key).ok_or_else(gone)?
        }
    };
    let (place, mut next, mut listed) = (scope.place(), String::new(), BTreeSet::new());
    for _ in 0..MAX_PAGES {
        let page = sync.api.page(&server, scope.namespace(), &next).await?;
        for item in page.items {
            listed.insert(item.metadata.id(place.clone()));
            note(sync, &place, item.metadata).await;
        }
        next = page.metadata.r#continue;
        if next.is_empty() {
            sync.table.retain(&place, scope.namespace(), &listed);
            return Ok(page.metadata.resource_version);
        }
    }
    Err(ApiFailure::Silent("the list has no end".to_owned()))
}

/// Notes a Secret of a list or of a watch.
async fn note(sync: &SecretSync, place: &Place, metadata: Metadata) {
    let id = metadata.id(place.clone());
    let Some(source) = metadata.source() else {
        // Its labels are empty.
        return sync.table.remove(&id);
    };
    if *place == Place::Cluster && !sync.locations().spaces.contains(&id.namespace) {
        return sync.end(&Server::Cluster, &id, &metadata).await;
    }
    if let Some(left_out) = sync.table.note(id, metadata, source) {
        sync.notify_left_out(&left_out).await;
    }
}

/// Watches the Secrets of a scope from a version on, until a list is needed.
async fn watch_from(
    sync: &SecretSync,
    scope: &Scope,
    mut version: String,
    relists: &mut watch::Receiver<u64>,
) {
    let mut failures = 0_u32;
    loop {
        let began = Instant::now();
        let failure = match sync.api.watch(scope.namespace(), &version).await {
            Ok(mut secrets) => loop {
                let event = tokio::select! {
                    event = secrets.next() => event,
                    _ = relists.changed() => return,
                };
                match event {
                    Ok(Some(SecretEvent::Present(metadata))) => {
                        metadata.resource_version.clone_into(&mut version);
                        note(sync, &scope.place(), metadata).await;
                    }
                    Ok(Some(SecretEvent::Gone(metadata))) => {
                        metadata.resource_version.clone_into(&mut version);
                        sync.table.remove(&metadata.id(scope.place()));
                    }
                    Ok(Some(SecretEvent::Bookmark(bookmark))) => version = bookmark,
                    Ok(Some(SecretEvent::Expired)) => return,
                    Ok(None) => break None,
                    Err(why) => break Some(why),
                }
                failures = 0;
            },
            Err(why) => Some(why),
        };
        match failure {
            // The version is too old, or the permission is gone: a list shows it.
            Some(ApiFailure::Status(_)) => return,
            Some(ApiFailure::Silent(why)) => {
                failures = failures.saturating_add(1);
                tracing::debug!(?scope, "a watch of Secrets has ended: {why}");
            }
            None => {}
        }
        let pause = WATCH_INTERVAL * 2_u32.saturating_pow(failures.min(8));
        sleep_until(began + pause.min(LONGEST_PAUSE)).await;
    }
}
