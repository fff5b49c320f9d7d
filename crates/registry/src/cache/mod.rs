//! The watch cache: all stored data in memory, kept up to date with the store.
//!
//! One task follows the history of the store and applies it to all kinds. So all kinds are at the same revision.
//! Reads that must be current wait until the cache has reached the revision of the store
//! ([`Cache::wait_until_current`]). So each client sees every write that any client got an acknowledgement for, even
//! if another process wrote it.

mod bound;
mod history;
pub(crate) mod locations;
mod newest;
mod object;
mod objects;
mod policies;
mod principals;
mod resource;
mod sync;
mod tokens;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use parking_lot::{Mutex, RwLockReadGuard};
use postern_auth::principal_index::PrincipalIndex;
use postern_auth::writer::{Logout, Writer};
use postern_kinds::{Info, all};
use postern_meta::accept::Representation;
use postern_meta::event::WatchEventType;
use postern_meta::status::ApiError;
use postern_meta::time::Timestamp;
use postern_store::{
    Batch, CorruptEntry, Entry, Error, Event, Page, Position, Store, Watch, WithOld,
};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

pub(crate) use history::OlderEvents;
pub use object::{CachedObject, event_line, stored_head, to_stored, with_version};
pub(crate) use object::{split_stored, to_stored_of};
pub use objects::CacheEntry;
use resource::Loaded;
pub use resource::{
    CacheEvent, Candidates, ChangeAt, Counted, EVENT_WINDOW, Next, ObjectList, ResourceCache,
    SelectableFields,
};

pub(crate) use self::bound::BoundNames;
use self::bound::BoundState;
use self::newest::NewestRevision;
pub use self::policies::PolicyAt;
pub(crate) use self::principals::ActivityRecord;
use self::principals::{AccessChange, AccessState, AccessValue};
use self::sync::SyncState;
pub(crate) use self::tokens::{IssuedRecord, NotedImpersonation, RevocationRecord, Stored};
use self::tokens::{RecordValue, TokenState};
use crate::errors::from_store;
use crate::signing_keys::SigningKeys;

/// The time that a read waits for the cache to reach a revision, before it fails with 504. kube-apiserver waits 3 s.
pub(crate) const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(3);

/// The part of each object that a table row carries (`?includeObject=`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum IncludeObject {
    /// Nothing.
    None,
    /// Its metadata.
    #[default]
    Metadata,
    /// The whole object.
    Object,
}

/// The pause before the first attempt to follow the store after a fault. Each pause is twice as long as the one before.
const FIRST_RETRY: Duration = Duration::from_millis(10);

/// The longest pause between two attempts. A store in a file itself opens the file again.
const MAX_RETRY: Duration = Duration::from_millis(500);

/// An encoding of an event other than plain JSON. Watchers with the same encoding share the bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Encoding {
    /// Format and transformation.
    pub representation: Representation,
    /// The part of the object that a table row carries.
    pub include: IncludeObject,
    /// The event's type for the watcher, which depends on its selectors.
    pub event_type: WatchEventType,
}

/// All stored data, in memory.
pub struct Cache {
    store: Arc<dyn Store>,
    resources: Vec<ResourceCache>,
    access: AccessState,
    tokens: TokenState,
    sync: SyncState,
    bound: BoundState,
    newest: NewestRevision,
    /// For how long the store may not answer before nothing is decided from memory, in milliseconds.
    silence_max_milliseconds: AtomicU64,
    /// The keys of corrupt records that are not objects.
    corrupt_records: Mutex<HashSet<Arc<str>>>,
    /// A revision that the store has and the cache lacks, and the time since when.
    missing: Mutex<Option<(u64, Instant)>>,
    applied: watch::Sender<u64>,
    /// The revision at which all data was loaded.
    loaded_at: AtomicU64,
}

/// The values that are read from the store while the cache loads.
#[derive(Default)]
struct LoadedState {
    /// For each resource.
    objects: Vec<Vec<Loaded>>,
    access: Vec<AccessValue>,
    tokens: Vec<RecordValue>,
    sync: Vec<RecordValue>,
    bound: Vec<RecordValue>,
    /// The keys of corrupt records that are not objects.
    corrupt_records: HashSet<Arc<str>>,
}

impl LoadedState {
    fn new(resources: usize) -> Self {
        Self { objects: (0..resources).map(|_| Vec::new()).collect(), ..Self::default() }
    }

    fn object(&mut self, kind: usize, key: Arc<str>, entry: CacheEntry) {
        if let Some(objects) = self.objects.get_mut(kind) {
            objects.push(Loaded::new(key, entry));
        }
    }

    fn append(&mut self, mut other: Self) {
        for (objects, more) in self.objects.iter_mut().zip(&mut other.objects) {
            objects.append(more);
        }
        self.access.append(&mut other.access);
        self.tokens.append(&mut other.tokens);
        self.sync.append(&mut other.sync);
        self.bound.append(&mut other.bound);
        self.corrupt_records.extend(other.corrupt_records);
    }
}

/// The interval at which the cache compares its revision with the store's, and tells watches of policy changes.
const LAG_INTERVAL: Duration = Duration::from_millis(250);

/// For how long the store may not answer before nothing is decided from memory, if the operator sets nothing else.
pub const DEFAULT_STORE_SILENCE: Duration = Duration::from_secs(15);

/// The store must have answered within this time before a bookmark. The store itself asks each
/// second.
const CONFIRMED_WITHIN: Duration = Duration::from_secs(5);

/// The seconds after which a client may retry while the store of a server does not answer.
const CUT_OFF_RETRY_SECONDS: u32 = 5;

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A cache that is behind the store for longer than this is not ready.
const LAG_MAX: Duration = Duration::from_secs(1);

/// The maximum of transactions that are applied together: requests that wait for the first one wait for all.
const APPLIED_AT_ONCE: usize = 32;

/// Whether the cache must load all data again: another server has compacted the missing history, an event is corrupt, or
/// the store was restored.
fn must_reload(error: &Error) -> bool {
    matches!(error, Error::Compacted { .. } | Error::Corrupt { .. } | Error::EpochChanged { .. })
}

/// Waits for the next transaction of a watch. Returns it with the ready transactions after it, and the error that
/// ended the watch, if there is one.
async fn next_batches(watch: &mut dyn Watch) -> (Vec<Batch>, postern_store::Result<()>) {
    let mut batches = Vec::new();
    let mut next = Some(watch.next().await);
    while let Some(read) = next {
        match read {
            Ok(batch) => batches.push(batch),
            Err(error) => return (batches, Err(error)),
        }
        let has_room = batches.len() < APPLIED_AT_ONCE;
        next = if has_room { watch.next().now_or_never() } else { None };
    }
    (batches, Ok(()))
}

impl Cache {
    /// An empty cache.
    pub fn new(store: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self {
            resources: all().iter().map(|kind| ResourceCache::new(*kind, 0)).collect(),
            access: AccessState::new(),
            tokens: TokenState::default(),
            sync: SyncState::default(),
            bound: BoundState::default(),
            newest: NewestRevision::new(store.clone()),
            silence_max_milliseconds: AtomicU64::new(milliseconds(DEFAULT_STORE_SILENCE)),
            corrupt_records: Mutex::default(),
            missing: Mutex::new(None),
            applied: watch::Sender::new(0),
            loaded_at: AtomicU64::new(0),
            store,
        })
    }

    /// Loads the stored data: first a state of the recent past, then the store's history up to now. So watchers that
    /// resume after a restart find the events that they missed. Returns a watch from there on.
    ///
    /// # Errors
    /// The errors of the store.
    pub async fn load(self: &Arc<Self>) -> postern_store::Result<Box<dyn Watch>> {
        let newest = self.store.revision().await?;
        // Each event is at least one revision older.
        let window = newest.saturating_sub(EVENT_WINDOW as u64);
        // The oldest state that the store can still list follows the compacted history.
        let start = (self.store.compacted().await? + 1).max(window).min(newest);
        match self.load_from(start, newest).await {
            // If history is corrupt, the present state is still served.
            Err(Error::Corrupt { key, reason }) => {
                tracing::error!(key = key.as_deref(), "history is corrupt: {reason}");
                self.load_from(newest, newest).await
            }
            // The key is needed by history only, or else the present state fails with the same error. An earlier store
            // may have had the same name, or the key was dropped on this server.
            Err(error @ Error::UnknownSealKey { .. }) => {
                tracing::warn!("history cannot be read, and watches of it expire: {error}");
                self.load_from(newest, newest).await
            }
            // Another server has compacted in the meantime.
            Err(Error::Compacted { .. }) => self.reload().await,
            loaded => loaded,
        }
    }

    async fn load_from(
        self: &Arc<Self>,
        start: u64,
        newest: u64,
    ) -> postern_store::Result<Box<dyn Watch>> {
        self.load_state(start).await?;
        self.applied.send_replace(start);
        let mut watch = self.watch().await?;
        while self.applied() < newest {
            let (batches, ended) = next_batches(&mut *watch).await;
            self.apply(&batches);
            ended?;
        }
        Ok(watch)
    }

    /// A watch on all data, from the revision of this cache on.
    ///
    /// # Errors
    /// The errors of the store.
    pub(crate) async fn watch(&self) -> postern_store::Result<Box<dyn Watch>> {
        self.store.watch("", Position::end_of(self.applied()), WithOld::No).await
    }

    /// Loads all data again, because another server has compacted the history from here on. Watchers at an older
    /// revision end with 410, and their clients list again. Returns a watch from the new revision on.
    ///
    /// # Errors
    /// The errors of the store.
    pub(crate) async fn reload(self: &Arc<Self>) -> postern_store::Result<Box<dyn Watch>> {
        let newest = self.store.revision().await?;
        self.load_state(newest).await?;
        self.applied.send_replace(newest);
        self.watch().await
    }

    /// The prefix of the storage keys of each kind. Compaction records their last changes.
    pub(crate) fn collections(&self) -> Vec<String> {
        self.resources.iter().map(|resource| resource.prefix().to_owned()).collect()
    }

    /// Loads all data as of a revision. The store reads with all processors, and each page is decoded on the thread
    /// that has read it.
    async fn load_state(self: &Arc<Self>, at: u64) -> postern_store::Result<()> {
        let loaded = Arc::new(Mutex::new(LoadedState::new(self.resources.len())));
        let (cache, into) = (self.clone(), loaded.clone());
        let visit = move |page| {
            let read = cache.read_page(page);
            into.lock().append(read);
        };
        self.store.scan(at, Arc::new(visit)).await?;
        // A watcher that is at the last change of its kind continues: unchanged kinds do not expire.
        let last_changes = self.store.last_changes(&self.collections(), at).await?;
        let LoadedState { objects, access, tokens, sync, bound, corrupt_records } =
            std::mem::take(&mut *loaded.lock());
        *self.corrupt_records.lock() = corrupt_records;
        // In parallel with the objects, which take as long.
        let cache = self.clone();
        let access = spawn_blocking(move || cache.access.build_index(access, at));
        for ((resource, objects), last_change) in
            self.resources.iter().zip(objects).zip(last_changes)
        {
            resource.load(objects, at, last_change);
        }
        let access = access.await?;
        self.access.load(access);
        self.tokens.load(&tokens);
        self.sync.load(&sync);
        self.bound.load(&bound);
        self.loaded_at.store(at, Ordering::Release);
        Ok(())
    }

    /// A page of stored values, decoded.
    fn read_page(&self, page: Page) -> LoadedState {
        let mut loaded = LoadedState::new(self.resources.len());
        for CorruptEntry { key, position, reason } in page.corrupt {
            tracing::error!(%key, "a stored value is corrupt: {reason}");
            // A corrupt user, team, key or digest gives no access, and takes no access from others.
            if let Some(kind) = self.index_of(&key) {
                loaded.object(kind, key, CacheEntry::Corrupt { position, reason: reason.into() });
            } else {
                loaded.corrupt_records.insert(key);
            }
        }
        for Entry { key, value, position } in page.entries {
            let kind = self.index_of(&key);
            let entry = kind
                .and_then(|kind| self.resources.get(kind))
                .map(|resource| resource.to_entry(&key, position, WatchEventType::Added, &value));
            if TokenState::is_indexed(&key) {
                let value = Some(value.clone());
                loaded.tokens.push(RecordValue { key: key.clone(), value, position });
            } else if SyncState::is_indexed(&key) {
                let value = Some(value.clone());
                loaded.sync.push(RecordValue { key: key.clone(), value, position });
            } else if BoundState::is_indexed(&key) {
                let value = Some(value.clone());
                loaded.bound.push(RecordValue { key: key.clone(), value, position });
            }
            let object = || entry.as_ref().and_then(CacheEntry::intact).cloned();
            loaded.access.extend(self.access.read(&key, Some(&value), object));
            if let (Some(kind), Some(entry)) = (kind, entry) {
                loaded.object(kind, key, entry);
            }
        }
        loaded
    }

    /// Keeps the cache up to date with the store until the future is dropped, also across disk faults. It continues
    /// `watch`; without one, it loads all data.
    pub async fn follow(self: Arc<Self>, watch: Option<Box<dyn Watch>>) {
        let mut pause = FIRST_RETRY;
        let mut watch = match watch {
            Some(watch) => watch,
            None => self.resume(true, &mut pause).await,
        };
        loop {
            let before = self.applied();
            let error = self.follow_until_fault(watch).await;
            tracing::error!("the cache cannot follow the store: {error}");
            if self.applied() != before {
                pause = FIRST_RETRY;
            }
            watch = self.resume(must_reload(&error), &mut pause).await;
            tracing::info!("the cache follows the store again");
        }
    }

    /// Tries to continue until that succeeds. Each attempt comes after a pause: a fault that repeats at once must not
    /// keep the processor busy.
    async fn resume(self: &Arc<Self>, mut reload: bool, pause: &mut Duration) -> Box<dyn Watch> {
        loop {
            tokio::time::sleep(*pause).await;
            *pause = (*pause * 2).min(MAX_RETRY);
            let resumed = if reload { self.reload().await } else { self.watch().await };
            match resumed {
                Ok(watch) => return watch,
                Err(error) => {
                    reload |= must_reload(&error);
                    tracing::warn!("the cache still cannot follow the store: {error}");
                }
            }
        }
    }

    /// Sets for how long the store may not answer before nothing is decided from memory.
    pub fn set_store_silence(&self, max: Duration) {
        self.silence_max_milliseconds.store(milliseconds(max), Ordering::Release);
    }

    /// Whether the store is silent for so long that nothing is decided from memory.
    fn is_cut_off(&self) -> bool {
        milliseconds(self.store.silence()) > self.silence_max_milliseconds.load(Ordering::Acquire)
    }

    /// Checks that the store has answered recently. Otherwise keys and permissions in memory may be revoked in the store,
    /// and other servers may have changed every object.
    ///
    /// # Errors
    /// 503 while the store does not answer.
    pub fn check_store(&self) -> Result<(), ApiError> {
        if !self.is_cut_off() {
            return Ok(());
        }
        let message = format!(
            "this server has had no answer of its store for {} s, so keys and permissions may have changed: try again, or use another server",
            self.store.silence().as_secs()
        );
        Err(ApiError::unavailable(&message, Some(CUT_OFF_RETRY_SECONDS)))
    }

    /// Whether the store has answered so recently that a bookmark is correct.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.store.silence() <= CONFIRMED_WITHIN
    }

    /// Checks at intervals that the cache keeps up with the store, and tells watches of policy changes and of a store that
    /// does not answer. Runs until the future is dropped.
    pub async fn watch_lag(self: Arc<Self>) {
        tokio::join!(self.follow_lag(), self.follow_silence());
    }

    /// Wakes the watches and streams when the store becomes silent for too long. They check it then, and end.
    async fn follow_silence(&self) {
        let mut was_cut_off = false;
        loop {
            tokio::time::sleep(LAG_INTERVAL).await;
            let is_cut_off = self.is_cut_off();
            if is_cut_off && !was_cut_off {
                tracing::error!("the store does not answer: requests and watches end with 503");
                self.access.announce_silence();
            } else if was_cut_off && !is_cut_off {
                tracing::info!("the store answers again");
            }
            was_cut_off = is_cut_off;
        }
    }

    async fn follow_lag(&self) {
        loop {
            tokio::time::sleep(LAG_INTERVAL).await;
            self.access.announce_policy();
            // A store that does not answer reports that itself.
            let Ok(newest) = self.newest.get().await else { continue };
            self.note_newest(newest);
        }
    }

    /// Notes a revision of the store. Under steady writes, the cache always lacks the newest revision. So the check
    /// is how long it lacks the same revision.
    fn note_newest(&self, newest: u64) {
        let applied = self.applied();
        let mut missing = self.missing.lock();
        if missing.is_none_or(|(revision, _)| revision <= applied) {
            *missing = (applied < newest).then(|| (newest, Instant::now()));
        }
    }

    /// Whether the cache is at most one second behind the store.
    pub fn keeps_up(&self) -> bool {
        let missing = *self.missing.lock();
        missing.is_none_or(|(revision, since)| {
            revision <= self.applied() || since.elapsed() <= LAG_MAX
        })
    }

    /// Follows the store until a fault, and returns the error. From then on, reads may be out of date.
    async fn follow_until_fault(&self, mut watch: Box<dyn Watch>) -> Error {
        loop {
            let (batches, ended) = next_batches(&mut *watch).await;
            self.apply(&batches);
            if let Err(error) = ended {
                return error;
            }
        }
    }

    /// Applies transactions in order. Successive transactions are applied together if they can be one change of the
    /// permissions. Each change costs a snapshot of the policy, and wakes all waiting tasks.
    fn apply(&self, batches: &[Batch]) {
        let mut rest = batches;
        while !rest.is_empty() {
            let change = self.access.next_change(rest, |event| self.object_of(event));
            let (together, later) = rest.split_at(change.batches);
            self.apply_together(together, &change);
            rest = later;
        }
    }

    fn apply_together(&self, batches: &[Batch], change: &AccessChange) {
        let events = || batches.iter().flat_map(|batch| &batch.events);
        for event in events().filter(|event| TokenState::is_indexed(&event.key)) {
            self.tokens.apply(&RecordValue::of(event));
        }
        for event in events() {
            if SyncState::is_indexed(&event.key) {
                self.sync.apply(&RecordValue::of(event));
            } else if BoundState::is_indexed(&event.key) {
                self.bound.apply(&RecordValue::of(event));
            }
        }
        let mut corrupt = self.corrupt_records.lock();
        if !corrupt.is_empty() {
            // The record was written again, or removed.
            for event in events() {
                corrupt.remove(&event.key);
            }
        }
        drop(corrupt);
        // The permissions on an object are applied before the object becomes visible.
        self.access.apply(change);
        let revision = batches.last().map_or(0, |batch| batch.revision);
        for resource in &self.resources {
            let prefix = resource.prefix();
            resource.apply(events().filter(|event| event.key.starts_with(prefix)), revision);
        }
        self.access.announce();
        self.applied.send_replace(revision);
    }

    /// The cache of a kind.
    pub fn of(&self, info: &Info) -> &ResourceCache {
        let resource = self.resources.iter().find(|resource| {
            let known = resource.kind().info();
            known.plural == info.plural && known.version == info.version
        });
        match resource {
            Some(resource) => resource,
            None => unreachable!("every served kind has its cache"),
        }
    }

    /// The number of corrupt records that are not objects: digests of access keys, write-only fields, unique keys.
    /// They are found when all data is loaded.
    pub fn corrupt_records(&self) -> usize {
        self.corrupt_records.lock().len()
    }

    /// The caches of all kinds.
    pub fn resources(&self) -> &[ResourceCache] {
        &self.resources
    }

    /// The object of an event; `None` if the event is for another record, or the object is corrupt.
    fn object_of(&self, event: &Event) -> Option<Arc<CachedObject>> {
        let (key, value) = (&event.key, event.value.as_ref()?);
        let resource = self.resources.get(self.index_of(key)?)?;
        let entry = resource.to_entry(key, event.position, WatchEventType::Modified, value);
        entry.intact().cloned()
    }

    fn index_of(&self, key: &str) -> Option<usize> {
        self.resources.iter().position(|resource| key.starts_with(resource.prefix()))
    }

    /// The present users, teams and access keys. The lock must not be held across an await.
    pub fn principals(&self) -> RwLockReadGuard<'_, PrincipalIndex> {
        self.access.principals()
    }

    /// Sets the time since which groups of single sign-on must have been confirmed to count, in seconds since 1970.
    pub(crate) fn set_oldest_groups(&self, unix_seconds: i64) {
        self.access.set_oldest_groups(unix_seconds);
    }

    /// How often the policy and the principal index were read.
    #[cfg(test)]
    pub(crate) fn reads(&self) -> (usize, usize) {
        let reads = &self.access.reads;
        (reads.policy.load(Ordering::Relaxed), reads.principals.load(Ordering::Relaxed))
    }

    /// The present snapshot of the policy, which decides access.
    pub fn policy(&self) -> Arc<PolicyAt> {
        self.access.policy()
    }

    /// The snapshot of the policy that decides at a revision; `None` if it is no longer kept.
    pub(crate) fn policy_at(&self, revision: u64) -> Option<Arc<PolicyAt>> {
        self.access.policy_at(revision)
    }

    /// The snapshots of the policy after `known`, the oldest first; `None` if some are no longer kept.
    pub(crate) fn policies_after(&self, known: &Arc<PolicyAt>) -> Option<Vec<Arc<PolicyAt>>> {
        self.access.policies_after(known)
    }

    /// The version of all data that decisions depend on: if it is the same, every decision is the same.
    pub fn access_version(&self) -> u64 {
        self.access.version()
    }

    /// A subscription to changes of permissions.
    pub fn subscribe_to_access(&self) -> watch::Receiver<u64> {
        self.access.subscribe()
    }

    /// The record of the users and teams that an object names, by its storage key.
    pub(crate) fn bound_names(&self, key: &str) -> Option<Arc<BoundNames>> {
        self.bound.get(key)
    }

    /// The writer that requested a secret sync, by the id of the record.
    pub(crate) fn sync_writer(&self, id: &str) -> Option<Arc<Writer>> {
        self.sync.writer(id)
    }

    /// The number of secret syncs that were requested with the access key of a uid.
    pub(crate) fn sync_writers_with(&self, key_uid: &str) -> usize {
        self.sync.writers_with(key_uid)
    }

    /// The state of the access key of a uid when it was deleted, if that was a logout.
    pub(crate) fn logout_of(&self, key_uid: &str) -> Option<Arc<Logout>> {
        self.sync.logout_of(key_uid)
    }

    /// The keys that sign endpoint tokens.
    pub fn signing_keys(&self) -> Arc<SigningKeys> {
        self.tokens.keys()
    }

    /// The version of the signing keys and of the endpoint-token revocations.
    pub(crate) fn tokens_version(&self) -> u64 {
        *self.tokens.subscribe().borrow()
    }

    /// A subscription to the version of signing keys and revocations.
    pub(crate) fn subscribe_to_tokens(&self) -> watch::Receiver<u64> {
        self.tokens.subscribe()
    }

    /// The revocations of endpoint tokens: the lowest valid revocation revision for each uid.
    pub(crate) fn revocations(&self) -> Vec<(String, u64)> {
        self.tokens.revocations()
    }

    /// The issued-token note under a storage key.
    pub(crate) fn issued_tokens(&self, key: &str) -> Option<(Position, IssuedRecord)> {
        self.tokens.issued(key)
    }

    /// The impersonations on which endpoint tokens depend, by their ids.
    pub(crate) fn impersonations(&self) -> Vec<(String, NotedImpersonation)> {
        self.tokens.impersonations()
    }

    /// The storage keys of all issued-token notes.
    pub(crate) fn all_issued_tokens(&self) -> Vec<Arc<str>> {
        self.tokens.all_issued()
    }

    /// The token records that are no longer needed: their keys and positions.
    pub(crate) fn obsolete_token_records(&self, now: Timestamp) -> Vec<(Arc<str>, Position)> {
        self.tokens.obsolete(now)
    }

    /// The owners with more than `most` revocation records of access keys, with the records.
    pub(crate) fn owners_over_limit(
        &self,
        most: usize,
    ) -> Vec<(String, Vec<Stored<RevocationRecord>>)> {
        self.tokens.owners_over_limit(most)
    }

    /// The revision at which all data was loaded. The server knows no identities from before.
    pub(crate) fn loaded_at(&self) -> u64 {
        self.loaded_at.load(Ordering::Acquire)
    }

    /// The revision of the cache.
    pub fn applied(&self) -> u64 {
        *self.applied.borrow()
    }

    /// A subscription to the revision of the cache.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.applied.subscribe()
    }

    /// Waits until the cache has all data that was acknowledged before this call.
    ///
    /// # Errors
    /// The errors of the store; 504 if it takes too long.
    pub async fn wait_until_current(&self) -> Result<(), ApiError> {
        self.current().await.map(|_| ())
    }

    /// Waits like [`Cache::wait_until_current`], and returns the revision of the store.
    ///
    /// # Errors
    /// The errors of [`Cache::wait_until_current`].
    pub async fn current(&self) -> Result<u64, ApiError> {
        let revision = self.newest.get().await.map_err(from_store)?;
        self.wait_for_revision(Position::end_of(revision)).await?;
        Ok(revision)
    }

    /// Waits until the cache has the data that a request must see: all data up to `as_of`, the store's revision when
    /// the request came. If that is unknown, it waits for the newest revision.
    ///
    /// # Errors
    /// The errors of [`Cache::wait_until_current`].
    pub(crate) async fn wait_for_request(&self, as_of: Option<u64>) -> Result<(), ApiError> {
        match as_of {
            Some(revision) => self.wait_for_revision(Position::end_of(revision)).await,
            None => self.wait_until_current().await,
        }
    }

    /// Waits until the cache has all data up to a position.
    ///
    /// # Errors
    /// 504 with the requested position and the position of the cache, if it takes too long.
    pub(crate) async fn wait_for_revision(&self, wanted: Position) -> Result<(), ApiError> {
        let revision = wanted.revision();
        if self.applied() >= revision {
            return Ok(());
        }
        let mut applied = self.applied.subscribe();
        let reached = applied.wait_for(|applied| *applied >= revision);
        match tokio::time::timeout(CATCH_UP_TIMEOUT, reached).await {
            Ok(Ok(_)) => Ok(()),
            _ => Err(ApiError::too_large_resource_version(
                wanted.packed(),
                Position::end_of(self.applied()).packed(),
            )),
        }
    }

    /// Removes events up to a revision, after a compaction of the store.
    pub(crate) fn forget(&self, revision: u64) {
        for resource in &self.resources {
            resource.forget(revision);
        }
    }
}

#[cfg(test)]
mod tests {
    use postern_store::memory::Memory;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_cache_that_trails_by_a_moment_keeps_up_and_one_that_stands_still_does_not() {
        let cache = Cache::new(Arc::new(Memory::new()));
        for revision in 1..40 {
            cache.note_newest(revision);
            assert!(cache.keeps_up(), "at {revision}");
            tokio::time::advance(LAG_INTERVAL).await;
            // The missing revision comes, and another one is missing by then.
            cache.applied.send_replace(revision);
            cache.note_newest(revision + 1);
        }
        tokio::time::advance(LAG_MAX + LAG_INTERVAL).await;
        assert!(!cache.keeps_up());
        cache.note_newest(100);
        assert!(!cache.keeps_up(), "a newer revision does not restart the time");
        cache.applied.send_replace(41);
        assert!(cache.keeps_up());
    }
}
