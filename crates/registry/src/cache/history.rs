//! Events that are older than the events in memory, read from the store.
//!
//! Memory is bounded: it has few events, compared with those of half a minute without a connection. The store has the
//! history until it is compacted. A watch that resumes there reads it in pieces until it reaches the events in
//! memory.

use std::sync::Arc;

use postern_kinds::AnyKind;
use postern_meta::event::WatchEventType;
use postern_store::{Entry, Error, Event, Position, Replaced};

use super::objects::CacheEntry;
use super::resource::{CacheEvent, ResourceCache};
use super::{Cache, CachedObject};

/// Events that were read from history.
#[derive(Debug)]
pub(crate) struct OlderEvents {
    /// The oldest first. No other watcher has them.
    pub(crate) events: Vec<Arc<CacheEvent>>,
    /// A watcher that has these events has everything up to this position.
    pub(crate) through: Position,
}

impl Cache {
    /// The next events of a kind after a position and up to `until`; later events are in memory. This is large work:
    /// it decodes a page of the store.
    ///
    /// # Errors
    /// The errors of the store: [`Error::Compacted`] if the events are gone. [`Error::Corrupt`] if an event or the
    /// state before it is corrupt: a watcher may know that state, and no event can tell its end.
    pub(crate) async fn older_events(
        &self,
        kind: &'static dyn AnyKind,
        after: Position,
        until: Position,
    ) -> postern_store::Result<OlderEvents> {
        let resource = self.of(kind.info());
        // Later events need later permissions, which this cache may not have yet.
        let read = self.store.next_events(resource.prefix(), after, until).await?;
        let events = read.events.iter().map(|event| to_cache_event(resource, event).map(Arc::new));
        let events = events.collect::<postern_store::Result<_>>()?;
        Ok(OlderEvents { events, through: read.through })
    }
}

fn to_cache_event(resource: &ResourceCache, event: &Event) -> postern_store::Result<CacheEvent> {
    let object = |position, event_type, value: &[u8]| {
        intact(resource.to_entry(&event.key, position, event_type, value), &event.key)
    };
    let previous = match &event.replaced {
        Replaced::New => None,
        Replaced::Old(Some(Entry { position, value, .. })) => {
            Some(object(*position, WatchEventType::Modified, value)?)
        }
        Replaced::Old(None) => return Err(corrupt(&event.key, "the replaced state is unknown")),
    };
    let event_type = match (&event.value, &previous) {
        (Some(_), None) => WatchEventType::Added,
        (Some(_), Some(_)) => WatchEventType::Modified,
        (None, _) => WatchEventType::Deleted,
    };
    let now = match (&event.value, &previous) {
        (Some(value), _) => object(event.position, event_type, value)?,
        (None, Some(last)) => Arc::new(last.restated(event.position, event_type)),
        (None, None) => return Err(corrupt(&event.key, "it removed nothing")),
    };
    Ok(CacheEvent::new(event_type, now, previous))
}

fn intact(entry: CacheEntry, key: &Arc<str>) -> postern_store::Result<Arc<CachedObject>> {
    match entry {
        CacheEntry::Intact(object) => Ok(object),
        CacheEntry::Corrupt { reason, .. } => Err(corrupt(key, &reason)),
    }
}

fn corrupt(key: &Arc<str>, reason: &str) -> Error {
    Error::Corrupt { key: Some(key.clone()), reason: reason.to_owned() }
}
