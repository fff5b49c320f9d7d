//! Copies data to secrets that take it from another one (`docs/reference/shared-secrets.md#secret-sync`): from
//! a `SharedSecret` to each `ProjectSecret` that names it, from a `ProjectSecret` to its mirror and to the core
//! Secrets that name it.
//!
//! It works from the store, as a watcher of the three kinds and of the permissions. Only the source of each
//! object is in memory; it is made from the labels at every start. Several servers on one store all do this. A
//! copy that one server has written, the others find done. Each copy is decided on the object as it is in the
//! transaction, with the permissions at that time.

mod mirror;
mod taking;

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
use postern_store::Position;
use serde_json::{Map, Value};
use tokio::time::Instant;

use self::taking::{Batch, Taker};
use crate::cache::{CachedObject, Next, ResourceCache};
use crate::registry::Registry;
use crate::storage_key;

/// The kinds that are followed.
const KINDS: [&dyn AnyKind; 3] = [&SharedSecret, &ProjectSecret, &Secret];

/// The changes of this time are worked on together.
const BATCH_INTERVAL: Duration = Duration::from_millis(10);

/// The shortest time between two looks at all that is taken, because rights have changed.
const RIGHTS_INTERVAL: Duration = Duration::from_millis(500);

/// The longest time until what failed is tried again.
const RETRY: Duration = Duration::from_secs(2);

/// The longest time until the clock is looked at again, while a key of a writer is to expire.
const CLOCK_INTERVAL: Duration = Duration::from_mins(1);

/// Secrets that are written at once: they share the commits of the store.
const WRITES_AT_ONCE: usize = 32;

/// Objects that are read before the task yields to others.
const OBJECTS_PER_READ: usize = 64;

/// The name of all our labels begins so: objects without one are not looked at.
const LABELS: &[u8] = b"\"platform.sh/";

/// Runs until it is dropped. Copies are counted for the writers of the labels. One change of a secret may be as
/// many writes as there are secrets that take its data.
pub async fn run(registry: Arc<Registry>, flow: Arc<Flow>) {
    let mut progress = registry.cache().subscribe();
    let mut rights = registry.cache().subscribe_to_access();
    let mut follower = Follower::new(registry, flow);
    let mut next_rights = Instant::now();
    loop {
        progress.mark_unchanged();
        follower.catch_up().await;
        if rights.has_changed().unwrap_or(false) && Instant::now() >= next_rights {
            rights.mark_unchanged();
            next_rights = Instant::now() + RIGHTS_INTERVAL;
            follower.look_at_rights().await;
        }
        follower.enqueue_ended();
        let has_more = follower.work().await;
        let wait = if has_more { RETRY } else { follower.until_next_end() };
        let rights_wait = async {
            if !rights.has_changed().unwrap_or(false) && rights.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
            rights.mark_changed();
            tokio::time::sleep_until(next_rights).await;
        };
        tokio::select! {
            changed = progress.changed() => if changed.is_err() { return },
            () = rights_wait => {}
            () = tokio::time::sleep(wait) => {}
        }
        tokio::time::sleep(BATCH_INTERVAL).await;
    }
}

/// The source of each secret, by storage keys, and the secrets to look at.
struct Follower {
    registry: Arc<Registry>,
    flow: Arc<Flow>,
    /// The cursor in the events of each of [`KINDS`]; `None` where the kind has to be read again.
    cursors: [Option<Position>; 3],
    source_of: HashMap<Arc<str>, Arc<str>>,
    takers_of: HashMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// By whose right each of them took its data last.
    takers: HashMap<Arc<str>, Taker>,
    /// When the keys of those expire, in seconds since 1970.
    ends: BTreeSet<(i64, Arc<str>)>,
    /// The secrets of projects that are, or are to be, mirrored.
    mirrored: BTreeSet<Arc<str>>,
    queue: BTreeSet<Arc<str>>,
    /// The secrets that wait until more may be copied, by the owner for whom copies are counted.
    waiting: HashMap<Arc<str>, Waiting>,
}

/// Secrets of one owner that wait, in the order in which they are written.
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
            cursors: [None; 3],
            source_of: HashMap::new(),
            takers_of: HashMap::new(),
            takers: HashMap::new(),
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
            while let Some(cursor) = self.cursors[index] {
                match resource.events_after(cursor) {
                    Next::Events(events) => {
                        for event in &events {
                            self.note(kind, &event.object, is_removal(event.event_type));
                            self.cursors[index] = Some(event.position());
                        }
                    }
                    Next::Idle(revision) => {
                        self.cursors[index] = Some(cursor.max(Position::end_of(revision)));
                        break;
                    }
                    Next::Expired(_) => self.cursors[index] = None,
                }
                tokio::task::yield_now().await;
            }
            if self.cursors[index].is_none() {
                self.cursors[index] = Some(self.relist(kind, resource).await);
            }
        }
    }

    /// Reads all objects of a kind. Returns the cursor from which its events continue.
    async fn relist(&mut self, kind: &'static dyn AnyKind, resource: &ResourceCache) -> Position {
        // A change during the read comes again as an event.
        let from = Position::end_of(self.registry.cache().applied());
        let of_kind = self.source_of.keys().filter(|key| key.starts_with(resource.prefix()));
        self.queue.extend(of_kind.cloned().collect::<Vec<_>>());
        let mut after = None;
        loop {
            let objects = resource.page(after.as_deref(), OBJECTS_PER_READ);
            let Some(last) = objects.last() else { return from };
            after = Some(last.key().clone());
            for object in &objects {
                self.note(kind, object, false);
            }
            tokio::task::yield_now().await;
        }
    }

    /// Indexes an object as it is now, or as it was when it was removed, and enqueues what it concerns.
    fn note(&mut self, kind: &'static dyn AnyKind, object: &CachedObject, is_gone: bool) {
        let key = object.key();
        self.queue.extend(self.takers_of.get(key).into_iter().flatten().cloned());
        if kind.info().kind == Secret.info().kind {
            // A mirror that was edited, or a Secret that is no longer in the way of one.
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
        let is_taking = source.is_some() || self.source_of.contains_key(key);
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
        if !is_gone && (is_taking || mirrors) {
            self.queue.insert(key.clone());
        }
    }

    fn set_source(&mut self, key: &Arc<str>, source: Option<Arc<str>>) {
        let before = match &source {
            Some(source) => self.source_of.insert(key.clone(), source.clone()),
            None => self.source_of.remove(key),
        };
        if let Some(before) = before
            && let Some(takers) = self.takers_of.get_mut(&before)
        {
            takers.remove(key);
            if takers.is_empty() {
                self.takers_of.remove(&before);
            }
        }
        if let Some(source) = source {
            self.takers_of.entry(source).or_default().insert(key.clone());
        } else {
            self.set_taker(key, None);
        }
    }

    fn set_taker(&mut self, key: &Arc<str>, taker: Option<Taker>) {
        let end = |taker: &Taker| taker.ends_at.map(|end| (end, key.clone()));
        if let Some(before) = self.takers.get(key).and_then(end) {
            self.ends.remove(&before);
        }
        let now = self.registry.source().now().unix_seconds();
        self.ends.extend(taker.as_ref().and_then(end).filter(|(end, _)| *end >= now));
        match taker {
            Some(taker) => drop(self.takers.insert(key.clone(), taker)),
            None => drop(self.takers.remove(key)),
        }
    }

    /// Enqueues those whose writer's key has expired: nothing is written when it does.
    fn enqueue_ended(&mut self) {
        let now = self.registry.source().now().unix_seconds();
        while let Some((end, _)) = self.ends.first()
            && *end < now
            && let Some((_, key)) = self.ends.pop_first()
        {
            self.queue.insert(key);
        }
    }

    /// How long it is until a writer's key expires, or until the clock is looked at again, which may be set.
    fn until_next_end(&self) -> Duration {
        let Some((end, _)) = self.ends.first() else { return Duration::MAX };
        let left = end.saturating_add(1) - self.registry.source().now().unix_seconds();
        Duration::from_secs(u64::try_from(left).unwrap_or_default())
            .clamp(BATCH_INTERVAL, CLOCK_INTERVAL)
    }

    /// Enqueues those whose writers may read what they could not, or may not any more. Rights change all the
    /// time, most often those of others.
    async fn look_at_rights(&mut self) {
        if self.registry.cache().wait_until_current().await.is_err() {
            self.queue.extend(self.source_of.keys().cloned());
            return;
        }
        let batch = Batch::new(&self.registry, &self.flow);
        for (index, key) in self.source_of.keys().enumerate() {
            // Of those that are not known yet, the namespace may have become a project's.
            if self.takers.get(key).is_none_or(|taker| taker.has_changed(&batch)) {
                self.queue.insert(key.clone());
            }
            if index % OBJECTS_PER_READ == OBJECTS_PER_READ - 1 {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Works on the queue, some at a time. Returns whether anything failed or waits; that is looked at again.
    async fn work(&mut self) -> bool {
        let next = self.next_keys();
        if next.is_empty() {
            return !self.waiting.is_empty();
        }
        // A permission that another server has taken away is known before anything is decided here.
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
                // After the first one that has to wait, the others of the owner are not even read.
                if let Some(owner) = owner.filter(|owner| batch.is_refused(owner)) {
                    return (key, Ok(Done::Waits(owner)));
                }
                let done = one(batch, &key).await;
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
            Done::Taken(taker) => {
                if let Some(owner) = taker.counted_for.clone().filter(|_| taker.is_waiting) {
                    self.wait_for(owner, key.clone());
                }
                self.set_taker(&key, Some(taker));
            }
        }
    }

    fn note_failure(&mut self, key: Arc<str>, error: &ApiError) {
        match error.code() {
            // It is gone, or its namespace: there is nothing to do.
            403 | 404 => return,
            // Another server was faster: it is looked at again.
            409 => {}
            _ => {
                let inner = error.inner().unwrap_or_default();
                let name = storage_key::display_name(&key);
                tracing::warn!(secret = name, inner, "its data could not be brought: {error}");
            }
        }
        self.queue.insert(key);
    }

    /// The owner for whom the copies of a secret are counted, as far as is known.
    fn owner_of(&self, key: &Arc<str>) -> Option<&Arc<str>> {
        self.takers.get(key)?.counted_for.as_ref()
    }

    /// The keys to work on: first those that have waited long enough. New keys of an owner who waits go to the
    /// end of that owner's queue, so that no secret is passed by others all the time.
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
    /// It takes no data.
    Nothing,
    /// It has what it takes, or waits for it.
    Taken(Taker),
    /// It waits with others of the owner for whom copies are counted.
    Waits(Arc<str>),
}

/// The storage key of what an object takes its data from.
fn source_key(kind: &'static dyn AnyKind, object: &CachedObject) -> Option<Arc<str>> {
    let (namespace, _) = storage_key::name_of(object.key());
    let metadata = ObjectMeta {
        namespace: namespace.unwrap_or_default().to_owned(),
        labels: object.labels().clone(),
        ..ObjectMeta::default()
    };
    // Whether a namespace is a project's is asked when it is worked on: it may not be known yet.
    let source = kind.data_source(&metadata)?;
    Some(storage_key::object(source.kind.info(), Some(&source.namespace), &source.name))
}

fn is_removal(event_type: WatchEventType) -> bool {
    event_type == WatchEventType::Deleted
}

/// Does for one object what is to be done now.
async fn one(batch: &Batch<'_>, key: &Arc<str>) -> Result<Done, ApiError> {
    let is_of = |kind: &&&dyn AnyKind| key.starts_with(&storage_key::collection(kind.info()));
    let Some(kind) = KINDS.iter().find(is_of).copied() else { return Ok(Done::Nothing) };
    let taker = taking::take(batch, kind, key).await?;
    if taker.as_ref().is_some_and(|taker| taker.is_waiting) {
        return Ok(taker.map_or(Done::Nothing, Done::Taken));
    }
    if kind.info().kind == ProjectSecret.info().kind {
        mirror::keep(batch, key).await?;
    }
    tokio::task::yield_now().await;
    Ok(taker.map_or(Done::Nothing, Done::Taken))
}

/// An object as it is now; `None` when it is gone, or going.
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
