//! Secret sync (`docs/reference/shared-secrets.md#secret-sync`). It copies data from a `SharedSecret` to each
//! `ProjectSecret` that names it, and from a `ProjectSecret` to its mirror and to the core Secrets that name it.
//!
//! It works from the store, as a watcher of the three kinds and of the permissions. Only the source of each object is
//! in memory; it is read from the labels at every start. Several servers on one store all do this: if one has written
//! a copy, the others find it done. Each copy is decided on the object in the transaction, with the permissions at
//! that time.

mod copy;
mod mirror;

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use postern_flow::Flow;
use postern_kinds::AnyKind;
use postern_kinds::project_secret::ProjectSecret;
use postern_kinds::secret::Secret;
use postern_kinds::secret_sync::{IS_MIRROR, MIRRORED, is_mirrored};
use postern_kinds::shared_secret::SharedSecret;
use postern_meta::event::WatchEventType;
use postern_meta::object::{Object, ObjectMeta};
use postern_meta::status::ApiError;
use postern_telemetry::log_limited;
use serde_json::{Map, Value};
use tokio::time::Instant;

use self::copy::{Batch, SyncTarget};
use super::cursor::{Cursor, CursorRead};
use crate::cache::{CachedObject, ResourceCache};
use crate::registry::Registry;
use crate::storage_key;

/// The watched kinds.
const KINDS: [&dyn AnyKind; 3] = [&SharedSecret, &ProjectSecret, &Secret];

/// The time in which changes are collected and then processed together.
const BATCH_INTERVAL: Duration = Duration::from_millis(10);

/// The shortest time between two checks of all synced secrets after permissions have changed.
const PERMISSIONS_INTERVAL: Duration = Duration::from_millis(500);

/// The longest time between a failure and the next attempt.
const RETRY: Duration = Duration::from_secs(2);

/// The longest time between two checks of the clock, while a writer's key can expire.
const CLOCK_INTERVAL: Duration = Duration::from_mins(1);

/// The secrets that are written in parallel: they share the commits of the store.
const WRITES_AT_ONCE: usize = 32;

/// The objects that are read before the task yields.
const OBJECTS_PER_READ: usize = 64;

/// The start of the name of all platform labels. Objects without one are skipped.
const LABELS: &[u8] = b"\"platform.sh/";

/// Runs until it is dropped. Copies count for the rate limit of the writers of the labels. One change of a secret can
/// cause as many writes as there are secrets with its data.
pub async fn run(registry: Arc<Registry>, flow: Arc<Flow>) {
    let mut progress = registry.cache().subscribe();
    let mut permissions = registry.cache().subscribe_to_access();
    let mut follower = Follower::new(registry.clone(), flow);
    let mut next_permissions_check = Instant::now();
    loop {
        registry.servers().turn("project-secrets").await;
        progress.mark_unchanged();
        follower.catch_up().await;
        if permissions.has_changed().unwrap_or(false) && Instant::now() >= next_permissions_check {
            permissions.mark_unchanged();
            next_permissions_check = Instant::now() + PERMISSIONS_INTERVAL;
            follower.check_permissions().await;
        }
        follower.enqueue_ended();
        let has_more = follower.work().await;
        let wait = if has_more { RETRY } else { follower.until_next_end() };
        let permissions_wait = async {
            if !permissions.has_changed().unwrap_or(false) && permissions.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
            permissions.mark_changed();
            tokio::time::sleep_until(next_permissions_check).await;
        };
        tokio::select! {
            changed = progress.changed() => if changed.is_err() { return },
            () = permissions_wait => {}
            () = tokio::time::sleep(wait) => {}
        }
        tokio::time::sleep(BATCH_INTERVAL).await;
    }
}

/// The source of each synced secret, by storage keys, and the secrets to process.
struct Follower {
    registry: Arc<Registry>,
    flow: Arc<Flow>,
    /// The cursor in the events of each of [`KINDS`].
    cursors: [Cursor; 3],
    source_of: HashMap<Arc<str>, Arc<str>>,
    targets_of: HashMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// The permission on which the last copy to each secret depends.
    targets: HashMap<Arc<str>, SyncTarget>,
    /// The expiries of the writers' keys, in seconds since 1970.
    ends: BTreeSet<(i64, Arc<str>)>,
    /// The secrets of projects that are, or must be, mirrored.
    mirrored: BTreeSet<Arc<str>>,
    queue: BTreeSet<Arc<str>>,
    /// The secrets that wait for the rate limit, by the owner that the copies count for.
    waiting: HashMap<Arc<str>, Waiting>,
}

/// The waiting secrets of one owner, in the order in which they are written.
struct Waiting {
    until: Instant,
    order: VecDeque<Arc<str>>,
    keys: HashSet<Arc<str>>,
}

impl Waiting {
    fn new() -> Self {
        let until = Instant::now() + RETRY;
        Self { until, order: VecDeque::new(), keys: HashSet::new() }
    }

    fn push(&mut self, key: Arc<str>) {
        if self.keys.insert(key.clone()) {
            self.order.push_back(key);
        }
    }
}

impl Follower {
    fn new(registry: Arc<Registry>, flow: Arc<Flow>) -> Self {
        Self {
            registry,
            flow,
            cursors: [Cursor::default(); 3],
            source_of: HashMap::new(),
            targets_of: HashMap::new(),
            targets: HashMap::new(),
            ends: BTreeSet::new(),
            mirrored: BTreeSet::new(),
            queue: BTreeSet::new(),
            waiting: HashMap::new(),
        }
    }

    /// Reads all events since the last call.
    async fn catch_up(&mut self) {
        let registry = self.registry.clone();
        for (index, kind) in KINDS.into_iter().enumerate() {
            let resource = registry.cache().of(kind.info());
            while let Some(read) = self.cursors[index].next(resource) {
                match read {
                    CursorRead::Events(events) => {
                        for event in &events {
                            self.note(kind, &event.object, is_removal(event.event_type));
                        }
                    }
                    CursorRead::Expired => self.relist(kind, resource).await,
                }
                tokio::task::yield_now().await;
            }
        }
    }

    /// Reads all objects of a kind.
    async fn relist(&mut self, kind: &'static dyn AnyKind, resource: &ResourceCache) {
        let of_kind = self.source_of.keys().filter(|key| key.starts_with(resource.prefix()));
        self.queue.extend(of_kind.cloned().collect::<Vec<_>>());
        for objects in resource.pages(OBJECTS_PER_READ) {
            for object in &objects {
                self.note(kind, object, false);
            }
            tokio::task::yield_now().await;
        }
    }

    /// Indexes a present or a removed object, and enqueues the secrets that it concerns.
    fn note(&mut self, kind: &'static dyn AnyKind, object: &CachedObject, is_gone: bool) {
        let key = object.key();
        self.queue.extend(self.targets_of.get(key).into_iter().flatten().cloned());
        if kind.info().kind == Secret.info().kind {
            // An edited mirror, or a Secret that no longer prevents one.
            let (namespace, name) = storage_key::name_of(key);
            let of = storage_key::object(ProjectSecret.info(), namespace, name);
            if self.mirrored.contains(&of) || object.labels().contains_key(IS_MIRROR) {
                self.queue.insert(of);
            }
        }
        if kind.info().kind == SharedSecret.info().kind {
            return;
        }
        let has_labels = memchr::memmem::find(&object.json(), LABELS).is_some();
        let source = (has_labels && !is_gone).then(|| source_key(kind, object)).flatten();
        let is_synced = source.is_some() || self.source_of.contains_key(key);
        self.set_source(key, source);
        let mirrors = kind.info().kind == ProjectSecret.info().kind && !is_gone && {
            let labels = object.labels().clone();
            let was = memchr::memmem::find(&object.json(), MIRRORED.as_bytes()).is_some();
            is_mirrored(&ObjectMeta { labels, ..ObjectMeta::default() }) || was
        };
        if mirrors {
            self.mirrored.insert(key.clone());
        } else {
            self.mirrored.remove(key);
        }
        if !is_gone && (is_synced || mirrors) {
            self.queue.insert(key.clone());
        }
    }

    fn set_source(&mut self, key: &Arc<str>, source: Option<Arc<str>>) {
        let before = match &source {
            Some(source) => self.source_of.insert(key.clone(), source.clone()),
            None => self.source_of.remove(key),
        };
        if let Some(before) = before
            && let Some(targets) = self.targets_of.get_mut(&before)
        {
            targets.remove(key);
            if targets.is_empty() {
                self.targets_of.remove(&before);
            }
        }
        if let Some(source) = source {
            self.targets_of.entry(source).or_default().insert(key.clone());
        } else {
            self.set_target(key, None);
        }
    }

    fn set_target(&mut self, key: &Arc<str>, target: Option<SyncTarget>) {
        let end = |target: &SyncTarget| target.ends_at.map(|end| (end, key.clone()));
        if let Some(before) = self.targets.get(key).and_then(end) {
            self.ends.remove(&before);
        }
        let now = self.registry.source().now().unix_seconds();
        self.ends.extend(target.as_ref().and_then(end).filter(|(end, _)| *end >= now));
        match target {
            Some(target) => drop(self.targets.insert(key.clone(), target)),
            None => drop(self.targets.remove(key)),
        }
    }

    /// Enqueues the secrets after the key of their writer has expired: the expiry itself writes
    /// nothing.
    fn enqueue_ended(&mut self) {
        let now = self.registry.source().now().unix_seconds();
        while let Some((end, _)) = self.ends.first()
            && *end < now
            && let Some((_, key)) = self.ends.pop_first()
        {
            self.queue.insert(key);
        }
    }

    /// The time until a writer's key expires, or until the next check of the clock, which may be set.
    fn until_next_end(&self) -> Duration {
        let Some((end, _)) = self.ends.first() else { return Duration::MAX };
        let left = end.saturating_add(1) - self.registry.source().now().unix_seconds();
        Duration::from_secs(u64::try_from(left).unwrap_or_default())
            .clamp(BATCH_INTERVAL, CLOCK_INTERVAL)
    }

    /// Enqueues the secrets for which a writer has gained or lost the permission to read the
    /// source. Permissions often change, mostly those of other callers.
    async fn check_permissions(&mut self) {
        if self.registry.cache().wait_until_current().await.is_err() {
            self.queue.extend(self.source_of.keys().cloned());
            return;
        }
        let batch = Batch::new(&self.registry, &self.flow);
        for (index, key) in self.source_of.keys().enumerate() {
            // If the secret is not known yet, its namespace may have become the namespace of a project.
            if self.targets.get(key).is_none_or(|target| target.has_changed(&batch)) {
                self.queue.insert(key.clone());
            }
            if index % OBJECTS_PER_READ == OBJECTS_PER_READ - 1 {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Processes the queue. Returns whether anything failed or waits; that is processed again.
    async fn work(&mut self) -> bool {
        let next = self.next_keys();
        if next.is_empty() {
            return !self.waiting.is_empty();
        }
        // A permission that another server has removed is known before any decision.
        if self.registry.cache().wait_until_current().await.is_err() {
            self.queue.extend(next);
            return true;
        }
        let (registry, flow) = (self.registry.clone(), self.flow.clone());
        let batch = Batch::new(&registry, &flow);
        let with_owner = next.into_iter().map(|key| (self.owner_of(&key).cloned(), key));
        let with_owner: Vec<_> = with_owner.collect();
        let work = futures_util::stream::iter(with_owner).map(|(owner, key)| {
            let batch = &batch;
            async move {
                // After the first secret that must wait, the other secrets of the owner are not even read.
                if let Some(owner) = owner.filter(|owner| batch.is_refused(owner)) {
                    return (key, Ok(Done::Waits(owner)));
                }
                let done = process(batch, &key).await;
                (key, done)
            }
        });
        let mut work = std::pin::pin!(work.buffer_unordered(WRITES_AT_ONCE));
        while let Some((key, done)) = work.next().await {
            match done {
                Ok(done) => self.note_done(key, done),
                Err(error) => self.note_failure(key, &error),
            }
        }
        !self.queue.is_empty() || !self.waiting.is_empty()
    }

    fn note_done(&mut self, key: Arc<str>, done: Done) {
        match done {
            Done::Nothing => {}
            Done::Waits(owner) => self.wait_for(owner, key),
            Done::Synced(target) => {
                if let Some(owner) = target.counted_for.clone().filter(|_| target.is_waiting) {
                    self.wait_for(owner, key.clone());
                }
                self.set_target(&key, Some(target));
            }
        }
    }

    fn note_failure(&mut self, key: Arc<str>, error: &ApiError) {
        match error.code() {
            // The secret or its namespace is gone.
            403 | 404 => return,
            // Another server was faster: the secret is processed again.
            409 => {}
            _ => {
                let inner = error.inner().unwrap_or_default();
                let name = storage_key::display_name(&key);
                log_limited!(warn, secret = name, inner, "the data could not be copied: {error}");
            }
        }
        self.queue.insert(key);
    }

    /// The owner that the copies of a secret count for, if it is known.
    fn owner_of(&self, key: &Arc<str>) -> Option<&Arc<str>> {
        self.targets.get(key)?.counted_for.as_ref()
    }

    /// The keys to process: first those that have waited long enough. New keys of a waiting owner go to the end of
    /// its queue, so that each secret gets its turn.
    fn next_keys(&mut self) -> Vec<Arc<str>> {
        let now = Instant::now();
        let is_due = |_: &Arc<str>, waiting: &mut Waiting| waiting.until <= now;
        let mut next: Vec<Arc<str>> =
            self.waiting.extract_if(is_due).flat_map(|(_, waiting)| waiting.order).collect();
        let released: HashSet<Arc<str>> = next.iter().cloned().collect();
        for key in std::mem::take(&mut self.queue) {
            let owner = self.owner_of(&key).cloned();
            if let Some(waiting) = owner.and_then(|owner| self.waiting.get_mut(&owner)) {
                waiting.push(key);
            } else if !released.contains(&key) {
                next.push(key);
            }
        }
        next
    }

    fn wait_for(&mut self, owner: Arc<str>, key: Arc<str>) {
        self.waiting.entry(owner).or_insert_with(Waiting::new).push(key);
    }
}

/// The result of the work on an object.
enum Done {
    /// It has no source.
    Nothing,
    /// It has the source data, or waits for it.
    Synced(SyncTarget),
    /// It waits with the other secrets of the owner that the copies count for.
    Waits(Arc<str>),
}

/// The storage key of the source of an object.
fn source_key(kind: &'static dyn AnyKind, object: &CachedObject) -> Option<Arc<str>> {
    let (namespace, _) = storage_key::name_of(object.key());
    let metadata = ObjectMeta {
        namespace: namespace.unwrap_or_default().to_owned(),
        labels: object.labels().clone(),
        ..ObjectMeta::default()
    };
    // Whether the namespace belongs to a project is checked when the secret is processed: it may not be known yet.
    let source = kind.info().data_source(&metadata)?;
    Some(storage_key::object(source.kind.info(), Some(&source.namespace), &source.name))
}

fn is_removal(event_type: WatchEventType) -> bool {
    event_type == WatchEventType::Deleted
}

/// Processes one object.
async fn process(batch: &Batch<'_>, key: &Arc<str>) -> Result<Done, ApiError> {
    let is_of = |kind: &&&dyn AnyKind| key.starts_with(&storage_key::collection(kind.info()));
    let Some(kind) = KINDS.iter().find(is_of).copied() else { return Ok(Done::Nothing) };
    let target = copy::copy_data(batch, kind, key).await?;
    if target.as_ref().is_some_and(|target| target.is_waiting) {
        return Ok(target.map_or(Done::Nothing, Done::Synced));
    }
    if kind.info().kind == ProjectSecret.info().kind {
        mirror::keep(batch, key).await?;
    }
    tokio::task::yield_now().await;
    Ok(target.map_or(Done::Nothing, Done::Synced))
}

/// The present object; `None` if it does not exist or is terminating.
fn current(registry: &Registry, kind: &dyn AnyKind, key: &str) -> Result<Option<Object>, ApiError> {
    let found = registry.cache().of(kind.info()).get(key)?;
    let object = found.map(|found| found.decode()).transpose()?;
    Ok(object.filter(|object| !object.metadata.is_terminating()))
}

/// The data of a secret of any of the kinds.
fn data_of(object: &Object) -> Map<String, Value> {
    let data = object.fields.get("data").or_else(|| object.fields.get("spec")?.get("data"));
    data.and_then(Value::as_object).cloned().unwrap_or_default()
}
