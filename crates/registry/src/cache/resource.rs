//! One kind in memory: its present objects, and its latest events.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use postern_auth::policy::Readable;
use postern_kinds::{AnyKind, Owner, SelectableField};
use postern_meta::decode::decode_typed;
use postern_meta::event::WatchEventType;
use postern_meta::status::ApiError;
use postern_store::{Event, Position};
use serde_json::Value;
use tokio::sync::watch;

use super::Encoding;
use super::object::{CachedObject, may_have_owners, split_stored, stored_head, to_stored};
use super::objects::{CacheEntry, Objects};

/// The events that are kept of each kind. A watcher that is further behind reads the store's history.
pub const EVENT_WINDOW: usize = 8192;

/// The bytes of the events that are kept of each kind: an object may have megabytes.
pub(crate) const EVENT_WINDOW_BYTES: usize = 32 * 1024 * 1024;

/// The maximum of events that one read returns. It limits the copies under the lock.
pub(crate) const EVENTS_PER_READ: usize = 64;

/// The memory for other encodings of an event: a multiple of the event's size, plus a constant. An
/// encoding that does not fit is made for each watcher.
const ENCODINGS_FACTOR: usize = 2;
const ENCODINGS_BYTES: usize = 1024;

/// A change as watchers see it.
pub struct CacheEvent {
    /// The type of the change.
    pub(crate) event_type: WatchEventType,
    /// The state after the change; for a deletion the last state, with the version of the deletion.
    pub(crate) object: Arc<CachedObject>,
    /// The state before the change.
    pub(crate) previous: Option<Arc<CachedObject>>,
    /// The selectable fields of the new state and of the previous state.
    pub(crate) fields: [SelectableFields; 2],
    encodings: Mutex<Vec<(Encoding, Bytes)>>,
}

/// The selectable fields of an object. They are read once, when the first selector needs them.
#[derive(Default)]
pub struct SelectableFields(OnceLock<Vec<(&'static str, String)>>);

impl SelectableFields {
    /// The text of a field by its label, if the object has the field.
    pub(crate) fn get(
        &self,
        fields: &'static [SelectableField],
        object: &CachedObject,
        label: &str,
    ) -> Option<&str> {
        let read = self.0.get_or_init(|| {
            let whole: Value = decode_typed(&object.json()).unwrap_or_default();
            let text = |field: &'static SelectableField| {
                Some((field.label, field.text(&whole)?.to_owned()))
            };
            fields.iter().filter_map(text).collect()
        });
        read.iter().find(|(known, _)| *known == label).map(|(_, text)| text.as_str())
    }
}

impl std::fmt::Debug for CacheEvent {
    /// Prints the type and the object's identity, and nothing of the content.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("CacheEvent").field(&self.event_type).field(&self.object).finish()
    }
}

impl CacheEvent {
    /// A new event, without other encodings.
    pub(super) fn new(
        event_type: WatchEventType,
        object: Arc<CachedObject>,
        previous: Option<Arc<CachedObject>>,
    ) -> Self {
        let fields = [SelectableFields::default(), SelectableFields::default()];
        Self { event_type, object, previous, fields, encodings: Mutex::new(Vec::new()) }
    }

    /// The event's position in history.
    pub(crate) fn position(&self) -> Position {
        self.object.position()
    }

    /// The event in an encoding other than plain JSON. It is made once for all watchers.
    pub fn encoded(
        &self,
        encoding: Encoding,
        make: impl FnOnce() -> Result<Bytes, ApiError>,
    ) -> Result<Bytes, ApiError> {
        let mut encodings = self.encodings.lock();
        if let Some((_, bytes)) = encodings.iter().find(|(known, _)| *known == encoding) {
            return Ok(bytes.clone());
        }
        let bytes = make()?;
        let kept: usize = encodings.iter().map(|(_, bytes)| bytes.len()).sum();
        if kept + bytes.len() <= self.object.bytes() * ENCODINGS_FACTOR + ENCODINGS_BYTES {
            encodings.push((encoding, bytes.clone()));
        }
        Ok(bytes)
    }
}

/// An object that is read while the cache loads.
pub(super) struct Loaded {
    key: Arc<str>,
    entry: CacheEntry,
    is_deleting: bool,
}

impl Loaded {
    /// The value under a key.
    pub(super) fn new(key: Arc<str>, entry: CacheEntry) -> Self {
        let is_deleting = is_deleting(&entry);
        Self { key, entry, is_deleting }
    }
}

/// Objects of one kind at one revision.
#[derive(Debug)]
pub struct ObjectList {
    /// In key order.
    pub objects: Vec<Arc<CachedObject>>,
    /// The number of objects after them.
    pub(crate) remaining: usize,
    /// The revision of the list.
    pub(crate) revision: u64,
    /// The keys of corrupt objects that belong to the list.
    pub(crate) left_out: Vec<Arc<str>>,
}

/// The number of objects of a kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counted {
    /// All objects.
    pub all: usize,
    /// The corrupt ones among them.
    pub corrupt: usize,
}

/// The change of an object at a revision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChangeAt {
    /// It was created.
    Created,
    /// It was removed.
    Removed,
    /// It existed before and after.
    Present,
    /// It did not exist before or after.
    Absent,
    /// Unknown: the events of that revision are gone, or have not been applied yet.
    Unknown,
}

/// The objects that a list can have at most.
pub struct Candidates<'a> {
    /// By name.
    pub(crate) named: Option<&'a Readable>,
    /// By owner.
    pub(crate) owners: Vec<Owner>,
}

/// The result of a read of events.
#[derive(Debug)]
pub enum Next {
    /// Events, oldest first.
    Events(Vec<Arc<CacheEvent>>),
    /// No event up to the end of this revision.
    Idle(u64),
    /// Events between the cursor and this position are not in memory.
    Expired(Position),
}

/// One kind in memory.
pub struct ResourceCache {
    kind: &'static dyn AnyKind,
    head: String,
    prefix: String,
    state: RwLock<State>,
    subscription: watch::Sender<u64>,
}

struct State {
    objects: Objects,
    events: VecDeque<Arc<CacheEvent>>,
    event_bytes: usize,
    /// A watcher with a cursor at this position or later misses nothing in `events`.
    oldest: Position,
    revision: u64,
    /// Keys of objects that may be terminating.
    deleting: BTreeSet<Arc<str>>,
}

impl ResourceCache {
    pub(super) fn new(kind: &'static dyn AnyKind, start: u64) -> Self {
        let state = State {
            objects: Objects::new(),
            events: VecDeque::new(),
            event_bytes: 0,
            oldest: Position::end_of(start),
            revision: start,
            deleting: BTreeSet::new(),
        };
        Self {
            kind,
            head: stored_head(kind.info()),
            prefix: crate::storage_key::collection(kind.info()),
            state: RwLock::new(state),
            subscription: watch::Sender::new(start),
        }
    }

    /// The kind.
    pub fn kind(&self) -> &'static dyn AnyKind {
        self.kind
    }

    /// The first bytes of stored objects of this kind.
    pub(crate) fn head(&self) -> &str {
        &self.head
    }

    /// The prefix of all storage keys of this kind.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// A subscription to new events of this kind.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.subscription.subscribe()
    }

    /// Reads one object.
    ///
    /// # Errors
    /// 500 if the stored object is corrupt.
    pub(crate) fn get(&self, key: &str) -> Result<Option<Arc<CachedObject>>, ApiError> {
        let state = self.state.read();
        if let Some(object) = state.objects.intact(key) {
            return Ok(Some(object.clone()));
        }
        match state.objects.get(key) {
            None => Ok(None),
            Some(CacheEntry::Intact(object)) => Ok(Some(object.clone())),
            Some(CacheEntry::Corrupt { reason, .. }) => Err(corrupt(key, reason)),
        }
    }

    /// The position of the last change of a corrupt object; `None` for an intact one.
    pub(crate) fn corrupt_at(&self, key: &str) -> Option<Position> {
        match self.state.read().objects.get(key) {
            Some(CacheEntry::Corrupt { position, .. }) => Some(*position),
            _ => None,
        }
    }

    /// The objects under a key prefix, after the key `after`, at most `limit` of them (0: all).
    ///
    /// # Errors
    /// 500 if one of them is corrupt, because the list would be incomplete. Corrupt principals and keys are left out
    /// and named, because they do not concern other principals.
    pub(crate) fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<ObjectList, ApiError> {
        let list = self.list_intact(prefix, after, limit);
        match list.left_out.first() {
            Some(key) if !self.kind.has_access_role() => Err(self.corrupt_entry(key)),
            _ => Ok(list),
        }
    }

    /// The same list, without corrupt objects of any kind.
    pub(crate) fn list_intact(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> ObjectList {
        let state = self.state.read();
        let (mut objects, mut left_out, mut remaining) = (Vec::new(), Vec::new(), 0);
        for (key, entry) in state.objects.range(prefix, after) {
            if limit > 0 && objects.len() == limit {
                remaining += 1;
                continue;
            }
            match entry {
                CacheEntry::Intact(object) => objects.push(object.clone()),
                CacheEntry::Corrupt { .. } => left_out.push(key.clone()),
            }
        }
        ObjectList { objects, remaining, revision: state.revision, left_out }
    }

    fn corrupt_entry(&self, key: &str) -> ApiError {
        let state = self.state.read();
        match state.objects.get_key_value(key) {
            Some((key, CacheEntry::Corrupt { reason, .. })) => corrupt(key, reason),
            // The object was just repaired: the next list has it.
            _ => corrupt(key, "it cannot be decoded"),
        }
    }

    /// The candidates under a key prefix, after the key `after`; `None` if a list of all objects is cheaper. Corrupt
    /// objects are left out and named.
    pub(crate) fn list_candidates(
        &self,
        prefix: &str,
        after: Option<&str>,
        candidates: &Candidates<'_>,
    ) -> Option<ObjectList> {
        let state = self.state.read();
        let mut objects = state.objects.owned(prefix, after, &candidates.owners);
        let mut left_out = Vec::new();
        if let Some(named) = candidates.named {
            let (namespaces, keys) = self.ranges(named, state.objects.len())?;
            let mut add = |key: &Arc<str>, entry: &CacheEntry| match entry {
                CacheEntry::Intact(object) => objects.push(object.clone()),
                CacheEntry::Corrupt { .. } => left_out.push(key.clone()),
            };
            for range in namespaces {
                let under = if range.starts_with(prefix) { &range } else { prefix };
                if under.starts_with(range.as_str()) {
                    state.objects.range(under, after).for_each(|(key, entry)| add(key, entry));
                }
            }
            for key in keys {
                let is_in =
                    key.starts_with(prefix) && after.is_none_or(|after| key.as_str() > after);
                if let Some((key, entry)) = state.objects.get_key_value(&key).filter(|_| is_in) {
                    add(key, entry);
                }
            }
        }
        objects.sort_unstable_by(|one, other| one.key().cmp(other.key()));
        objects.dedup_by(|one, other| one.key() == other.key());
        Some(ObjectList { objects, remaining: 0, revision: state.revision, left_out })
    }

    /// The key prefixes and the keys of the named objects; `None` if they are unknown, or more than all objects.
    fn ranges(&self, readable: &Readable, most: usize) -> Option<(Vec<String>, Vec<String>)> {
        // The other conditions on an object are checked for each object.
        let Readable::Some { namespaces, objects, names, .. } = readable else { return None };
        let is_namespaced = self.kind.info().is_namespaced();
        if objects.len() > most || (is_namespaced && !names.is_empty()) {
            return None;
        }
        let prefixes = namespaces.iter().map(|one| format!("{}{one}/", self.prefix));
        let listed = objects.iter().map(|(namespace, name)| self.key_of(namespace, name));
        let anywhere = names.iter().map(|name| self.key_of("", name));
        Some((prefixes.collect(), listed.chain(anywhere).collect()))
    }

    /// The number of intact objects of an owner.
    pub(crate) fn count_owned(&self, owner: &Owner) -> usize {
        self.state.read().objects.count_owned(owner)
    }

    /// The revision of the objects.
    pub(crate) fn revision(&self) -> u64 {
        self.state.read().revision
    }

    /// All intact objects in key order, at most `limit` at a time. Each page is read when it is asked for.
    pub(crate) fn pages(&self, limit: usize) -> impl Iterator<Item = Vec<Arc<CachedObject>>> {
        let mut after: Option<Arc<str>> = None;
        std::iter::from_fn(move || {
            let page = self.page(after.as_deref(), limit);
            after = Some(page.last()?.key().clone());
            Some(page)
        })
    }

    /// At most `limit` intact objects after a key.
    pub(crate) fn page(&self, after: Option<&str>, limit: usize) -> Vec<Arc<CachedObject>> {
        let state = self.state.read();
        let intact =
            state.objects.range(&self.prefix, after).filter_map(|(_, entry)| match entry {
                CacheEntry::Intact(object) => Some(object.clone()),
                CacheEntry::Corrupt { .. } => None,
            });
        intact.take(limit).collect()
    }

    /// The storage key of an object; the namespace is empty if the kind has none.
    pub(crate) fn key_of(&self, namespace: &str, name: &str) -> String {
        let namespace = Some(namespace).filter(|namespace| !namespace.is_empty());
        crate::storage_key::in_collection(&self.prefix, namespace, name)
    }

    /// The change of an object at a revision that has been applied.
    pub(crate) fn change_at(&self, key: &str, revision: u64) -> ChangeAt {
        let state = self.state.read();
        if revision > state.revision || Position::end_of(revision.saturating_sub(1)) < state.oldest
        {
            return ChangeAt::Unknown;
        }
        let from = state.events.partition_point(|event| event.position().revision() < revision);
        let mut events = state.events.range(from..);
        let first = events.find(|event| **event.object.key() == *key);
        let Some(event) = first else {
            let is_there = state.objects.get(key).is_some();
            return if is_there { ChangeAt::Present } else { ChangeAt::Absent };
        };
        let is_then = event.position().revision() == revision;
        match event.event_type {
            WatchEventType::Added if is_then => ChangeAt::Created,
            WatchEventType::Added => ChangeAt::Absent,
            WatchEventType::Deleted if is_then => ChangeAt::Removed,
            _ => ChangeAt::Present,
        }
    }

    /// The next events after a position.
    pub(crate) fn events_after(&self, after: Position) -> Next {
        let state = self.state.read();
        if after < state.oldest {
            return Next::Expired(state.oldest);
        }
        let first = state.events.partition_point(|event| event.position() <= after);
        if first == state.events.len() {
            return Next::Idle(state.revision);
        }
        Next::Events(state.events.range(first..).take(EVENTS_PER_READ).cloned().collect())
    }

    /// The terminating objects, and possibly others.
    pub(crate) fn deleting(&self) -> Vec<Arc<CachedObject>> {
        let state = self.state.read();
        state.deleting.iter().filter_map(|key| state.objects.intact(key)).cloned().collect()
    }

    /// Replaces all objects by the objects of a revision, in any order, and removes all events. No object was changed
    /// after `last_change`.
    pub(super) fn load(&self, objects: Vec<Loaded>, revision: u64, last_change: Position) {
        let deleting = objects.iter().filter(|object| object.is_deleting);
        let deleting = deleting.map(|object| object.key.clone()).collect();
        let objects = objects.into_iter().map(|object| (object.key, object.entry)).collect();
        let objects = Objects::of(objects);
        let mut state = self.state.write();
        state.deleting = deleting;
        state.objects = objects;
        state.events.clear();
        state.event_bytes = 0;
        state.oldest = last_change;
        state.revision = revision;
        drop(state);
        self.subscription.send_replace(revision);
    }

    /// The number of objects.
    pub fn count(&self) -> Counted {
        let state = self.state.read();
        Counted { all: state.objects.len(), corrupt: state.objects.corrupt() }
    }

    /// The stored bytes of an object in the form of this version, if they have that of an earlier one. The next write
    /// stores them.
    fn upgraded(&self, json: &[u8]) -> Option<Bytes> {
        let is_intact = json.starts_with(self.head.as_bytes());
        let may_be_old = is_intact && self.kind.is_delegated() && may_have_owners(json);
        may_be_old.then(|| self.kind.upgraded(json)).flatten().map(to_stored)
    }

    /// Decodes the stored value of a key for the cache.
    pub(crate) fn to_entry(
        &self,
        key: &Arc<str>,
        position: Position,
        event_type: WatchEventType,
        stored: &[u8],
    ) -> CacheEntry {
        let upgraded = self.upgraded(split_stored(stored).0);
        let stored = upgraded.as_deref().unwrap_or(stored);
        let owner = self.kind.owned_by(split_stored(stored).0);
        CachedObject::from_stored(&self.head, key.clone(), position, event_type, stored)
            .map(|object| object.owned_by(owner))
            .map_or_else(
                || CacheEntry::Corrupt {
                    position,
                    reason: "its first bytes are not those of its kind".into(),
                },
                |object| CacheEntry::Intact(Arc::new(object)),
            )
    }

    /// Applies the changes of this kind up to a revision. `events` may be empty.
    pub(super) fn apply<'a>(&self, events: impl Iterator<Item = &'a Event>, revision: u64) {
        let mut any = false;
        let mut state = self.state.write();
        for event in events {
            any = true;
            self.apply_one(&mut state, event);
        }
        state.revision = revision;
        drop(state);
        if any {
            self.subscription.send_replace(revision);
        }
    }

    fn apply_one(&self, state: &mut State, event: &Event) {
        let previous = state.objects.intact(&event.key).cloned();
        if previous.is_none() && state.objects.get(&event.key).is_some() {
            // The object was corrupt. Watchers may know an earlier state, and no event can tell them its end.
            expire_watchers(state, event.position);
        }
        let (event_type, entry) = if let Some(value) = &event.value {
            let event_type = match previous {
                Some(_) => WatchEventType::Modified,
                None => WatchEventType::Added,
            };
            let entry = self.to_entry(&event.key, event.position, event_type, value);
            set(state, event.key.clone(), entry.clone());
            (event_type, entry)
        } else {
            state.objects.remove(&event.key);
            state.deleting.remove(&event.key);
            let Some(last) = &previous else { return };
            let gone = last.restated(event.position, WatchEventType::Deleted);
            (WatchEventType::Deleted, CacheEntry::Intact(Arc::new(gone)))
        };
        if let CacheEntry::Intact(object) = entry {
            push_event(state, event_type, object, previous);
        }
    }

    /// Removes events up to the end of a revision. A watcher with an older cursor continues if it has missed no event
    /// of this kind: an idle watch does not expire.
    pub(super) fn forget(&self, revision: u64) {
        let mut state = self.state.write();
        let end = Position::end_of(revision);
        while state.events.front().is_some_and(|event| event.position() <= end) {
            forget_first(&mut state);
        }
    }
}

fn is_deleting(entry: &CacheEntry) -> bool {
    matches!(entry, CacheEntry::Intact(object) if object.is_deleting())
}

fn set(state: &mut State, key: Arc<str>, entry: CacheEntry) {
    if is_deleting(&entry) {
        state.deleting.insert(key.clone());
    } else {
        state.deleting.remove(&key);
    }
    state.objects.insert(key, entry);
}

fn push_event(
    state: &mut State,
    event_type: WatchEventType,
    object: Arc<CachedObject>,
    previous: Option<Arc<CachedObject>>,
) {
    state.event_bytes += object.bytes();
    while state.events.len() >= EVENT_WINDOW || state.event_bytes > EVENT_WINDOW_BYTES {
        // A single event is always kept, regardless of its size.
        if state.events.is_empty() {
            break;
        }
        forget_first(state);
    }
    state.events.push_back(Arc::new(CacheEvent::new(event_type, object, previous)));
}

/// Removes all events: each watcher lists again.
fn expire_watchers(state: &mut State, position: Position) {
    state.events.clear();
    state.event_bytes = 0;
    state.oldest = position;
}

fn forget_first(state: &mut State) {
    if let Some(gone) = state.events.pop_front() {
        state.event_bytes -= gone.object.bytes();
        state.oldest = gone.position();
    }
}

fn corrupt(key: &str, reason: &str) -> ApiError {
    let name = crate::storage_key::display_name(key);
    ApiError::internal(
        &format!(
            "the stored object {name} is corrupt: restore it from a backup, or delete it with \
             ignoreStoreReadErrorWithClusterBreakingPotential in DeleteOptions"
        ),
        format!("{key}: {reason}"),
    )
}
