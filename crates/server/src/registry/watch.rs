//! A watch: a cursor in a kind's history that moves forward.
//!
//! A watcher has no queue of its own. It reads the cache's events from its cursor on, as fast as
//! its client takes them; when its cursor has fallen out of the window, it is closed, never
//! skipped. What it has seen is one number.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use postern_auth::policy::Fingerprint;
use postern_kinds::AnyKind;
use postern_meta::event::WatchEventType;
use postern_meta::options::{ListOptions, RequestedVersion};
use postern_meta::status::ApiError;
use postern_store::Position;
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep_until};

use super::Registry;
use super::observe::observed;
use super::read::Selection;
use crate::cache::{Cache, CacheEvent, CachedObject, Next};
use crate::clock::Source;
use crate::stages::authorize::Permit;

/// How often a watcher that wants bookmarks gets one.
const BOOKMARK_INTERVAL: Duration = Duration::from_mins(1);

/// A watch whose client names no timeout ends after this long or up to twice as long.
const SHORTEST_DEFAULT_TIMEOUT_SECONDS: u64 = 1800;

/// No watch lasts longer: clients come back, and find the server that is there then.
const LONGEST_TIMEOUT_SECONDS: u64 = 24 * 3600;

/// The caller's key is looked at this often at least, when it ends at all.
const LONGEST_LOOK: Duration = Duration::from_hours(1);

/// Objects of the initial state that are handed out at once.
const INITIAL_PER_READ: usize = 64;

/// What a watcher is told.
pub(crate) enum Delivery {
    /// Something that happened, or that is there.
    Event {
        /// As this watcher sees it: with selectors, a change can be an appearance or an end.
        event_type: WatchEventType,
        /// The state that it shows.
        object: Arc<CachedObject>,
        /// The event behind it, whose encodings are shared between watchers.
        shared: Option<Arc<CacheEvent>>,
    },
    /// Everything up to here has been told.
    Bookmark {
        /// Up to where.
        position: Position,
        /// Was this the end of the initial state?
        initial_end: bool,
    },
    /// The watch cannot go on.
    Failed(ApiError),
}

/// A running watch.
pub(crate) struct Watcher {
    cache: Arc<Cache>,
    kind: &'static dyn AnyKind,
    selection: Selection,
    cursor: Position,
    initial: VecDeque<Arc<CachedObject>>,
    initial_end_due: bool,
    bookmarks: bool,
    next_bookmark: Instant,
    ends: Instant,
    /// Goes off when one of these times has come. One that is kept: to set a timer anew for every
    /// event of every watcher takes the lock of all timers.
    alarm: Pin<Box<Sleep>>,
    over: bool,
    subscription: watch::Receiver<u64>,
    draining: watch::Receiver<bool>,
    access: WatchAccess,
}

/// Whoever watches may do so only as long as their key works, and sees what they may see.
struct WatchAccess {
    permit: Permit,
    /// The rights that matter for what is seen, as they were when the watch began.
    fingerprint: Fingerprint,
    source: Arc<dyn Source>,
    changes: watch::Receiver<u64>,
    /// When the key ends, as far as is known, in seconds since 1970.
    ends_at: Option<i64>,
    /// When to look again, if nothing happens before.
    next_look: Option<Instant>,
}

impl WatchAccess {
    fn new(registry: &Registry, permit: &Permit) -> Self {
        let mut access = Self {
            permit: permit.clone(),
            fingerprint: permit.fingerprint(),
            source: registry.source.clone(),
            changes: registry.cache().subscribe_to_access(),
            ends_at: None,
            next_look: None,
        };
        // Looked at before the first event: the key may have ended since the request.
        access.changes.mark_changed();
        access
    }

    /// Looks whether the key still works and sees the same, when there is reason to.
    ///
    /// # Errors
    /// 401 when the key does not work; 410 when the caller may see other things now: their client
    /// lists anew, and sees those. A change of somebody else's rights is neither.
    fn check(&mut self, cache: &Cache) -> Result<(), ApiError> {
        let time = self.source.now();
        let now = time.unix_seconds();
        let changed = self.changes.has_changed().unwrap_or(true);
        let ended = self.ends_at.is_some_and(|end| end <= now);
        if !changed && !ended && self.next_look.is_none_or(|look| Instant::now() < look) {
            return Ok(());
        }
        self.changes.mark_unchanged();
        let current = self.permit.credential().current(&cache.principals(), time)?;
        let Some(current) = current else { return Ok(()) };
        let fingerprint = self.permit.fingerprint_of(&cache.policy(), current.identity());
        if current.is_disabled() || fingerprint != self.fingerprint {
            return Err(ApiError::expired("what the caller may see has changed: list anew"));
        }
        self.ends_at = current.key.ends_at();
        self.next_look = self.ends_at.map(|end| {
            let wait = Duration::from_secs(u64::try_from(end.saturating_sub(now)).unwrap_or(0));
            Instant::now() + wait.min(LONGEST_LOOK)
        });
        Ok(())
    }
}

impl Registry {
    /// Starts a watch.
    ///
    /// # Errors
    /// 504 when the initial state is to be from a future that does not come.
    pub(crate) async fn watch(
        &self,
        permit: &Permit,
        options: &ListOptions,
        draining: watch::Receiver<bool>,
    ) -> Result<Watcher, ApiError> {
        let kind = permit.kind();
        let selection = Selection::new(permit, options);
        let initial_wanted = wants_initial(options);
        self.wait_for_start(options).await?;
        let resource = self.cache().of(kind.info());
        let subscription = resource.subscribe();
        let (cursor, initial) = match options.resource_version {
            Some(RequestedVersion::At(version)) if !initial_wanted => {
                (Position::from_packed(version), VecDeque::new())
            }
            _ => {
                let matches = |object: &CachedObject| selection.matches(object);
                let list = resource.list(&selection.prefix, None, 0, Some(&matches))?;
                let objects = if initial_wanted { list.objects.into() } else { VecDeque::new() };
                (Position::end_of(list.revision), objects)
            }
        };
        let ends = Instant::now() + self.timeout_of(options);
        Ok(Watcher {
            cache: self.cache().clone(),
            kind,
            selection,
            cursor,
            initial,
            initial_end_due: initial_wanted && options.allow_bookmarks,
            bookmarks: options.allow_bookmarks,
            next_bookmark: Instant::now() + BOOKMARK_INTERVAL,
            ends,
            alarm: Box::pin(sleep_until(ends)),
            over: false,
            subscription,
            draining,
            access: WatchAccess::new(self, permit),
        })
    }

    async fn wait_for_start(&self, options: &ListOptions) -> Result<(), ApiError> {
        match options.resource_version {
            None => self.cache().wait_until_current().await,
            Some(RequestedVersion::Any) => Ok(()),
            // Without an initial state there is nothing to wait for: what is in the future comes.
            Some(RequestedVersion::At(_)) if !wants_initial(options) => Ok(()),
            Some(RequestedVersion::At(version)) => {
                self.cache().wait_for_revision(Position::from_packed(version)).await
            }
        }
    }

    fn timeout_of(&self, options: &ListOptions) -> Duration {
        let seconds = options.timeout_seconds.filter(|seconds| *seconds > 0).unwrap_or_else(|| {
            // Spread, so that watches which began together do not end together.
            let mut random = [0; 8];
            self.source().fill(&mut random);
            SHORTEST_DEFAULT_TIMEOUT_SECONDS
                + u64::from_le_bytes(random) % SHORTEST_DEFAULT_TIMEOUT_SECONDS
        });
        Duration::from_secs(seconds.min(LONGEST_TIMEOUT_SECONDS))
    }
}

/// Without a version to start from, a watch begins with what is there, unless told otherwise
/// (upstream's default for `sendInitialEvents`).
fn wants_initial(options: &ListOptions) -> bool {
    options
        .send_initial_events
        .unwrap_or(!matches!(options.resource_version, Some(RequestedVersion::At(_))))
}

impl Watcher {
    /// The kind that is watched.
    pub(crate) fn kind(&self) -> &'static dyn AnyKind {
        self.kind
    }

    /// What comes next; `None` when the watch has ended. Never empty.
    pub(crate) async fn next(&mut self) -> Option<Vec<Delivery>> {
        if self.over {
            return None;
        }
        if let Err(error) = self.access.check(&self.cache) {
            return Some(self.fail(error));
        }
        if !self.initial.is_empty() {
            return Some(self.take_initial());
        }
        if std::mem::take(&mut self.initial_end_due) {
            return Some(vec![Delivery::Bookmark { position: self.cursor, initial_end: true }]);
        }
        loop {
            // Marked as seen before looking: what comes after the look wakes us.
            self.subscription.mark_unchanged();
            match self.cache.of(self.kind.info()).events_after(self.cursor) {
                Next::Events(events) => {
                    let deliveries = self.take(&events);
                    if !deliveries.is_empty() {
                        return Some(deliveries);
                    }
                }
                Next::Expired(oldest) => return Some(self.expire(oldest)),
                Next::Idle(revision) => {
                    self.cursor = self.cursor.max(Position::end_of(revision));
                    let now = Instant::now();
                    self.over = now >= self.ends || *self.draining.borrow();
                    if let Some(bookmark) = self.due_bookmark(now) {
                        return Some(vec![bookmark]);
                    }
                    if self.over {
                        return None;
                    }
                    self.wait().await;
                    if let Err(error) = self.access.check(&self.cache) {
                        return Some(self.fail(error));
                    }
                }
            }
        }
    }

    /// Every so often, and at the end: then the client resumes from here and not from far back.
    fn due_bookmark(&mut self, now: Instant) -> Option<Delivery> {
        if !self.bookmarks || now < self.next_bookmark.min(self.ends) {
            return None;
        }
        self.next_bookmark = now + BOOKMARK_INTERVAL;
        Some(Delivery::Bookmark { position: self.cursor, initial_end: false })
    }

    fn take_initial(&mut self) -> Vec<Delivery> {
        let many = self.initial.len().min(INITIAL_PER_READ);
        let (cache, permit) = (&self.cache, &self.access.permit);
        let added = |object| {
            let object = observed(cache, permit, object);
            Delivery::Event { event_type: WatchEventType::Added, object, shared: None }
        };
        self.initial.drain(..many).map(added).collect()
    }

    fn take(&mut self, events: &[Arc<CacheEvent>]) -> Vec<Delivery> {
        if let Some(last) = events.last() {
            self.cursor = last.position();
        }
        events.iter().filter_map(|event| self.seen(event)).collect()
    }

    /// What an event is to this watcher: with selectors, an object can come into sight or leave
    /// it without being made or removed.
    fn seen(&self, event: &Arc<CacheEvent>) -> Option<Delivery> {
        let before = event.previous.as_ref().filter(|object| self.selection.matches(object));
        let now =
            event.event_type != WatchEventType::Deleted && self.selection.matches(&event.object);
        let event_type = match (before, now) {
            (None, false) => return None,
            (None, true) => WatchEventType::Added,
            (Some(_), true) => WatchEventType::Modified,
            (Some(_), false) => WatchEventType::Deleted,
        };
        let left =
            event_type == WatchEventType::Deleted && event.event_type != WatchEventType::Deleted;
        let object = match before {
            Some(before) if left => Arc::new(before.restated(event.position(), event_type)),
            _ => event.object.clone(),
        };
        if self.kind.is_observed() {
            // What is shared between watchers must not have what one of them is answered.
            let object = observed(&self.cache, &self.access.permit, object);
            return Some(Delivery::Event { event_type, object, shared: None });
        }
        Some(Delivery::Event { event_type, object, shared: Some(event.clone()) })
    }

    fn expire(&mut self, oldest: Position) -> Vec<Delivery> {
        let cursor = self.cursor;
        self.fail(ApiError::expired(format!("too old resource version: {cursor} ({oldest})")))
    }

    fn fail(&mut self, error: ApiError) -> Vec<Delivery> {
        self.over = true;
        vec![Delivery::Failed(error)]
    }

    /// Waits until there may be something to say.
    async fn wait(&mut self) {
        let bookmark = self.bookmarks.then_some(self.next_bookmark);
        let times = [bookmark, self.access.next_look];
        let wake_at = times.into_iter().flatten().fold(self.ends, Instant::min);
        if self.alarm.deadline() != wake_at {
            self.alarm.as_mut().reset(wake_at);
        }
        tokio::select! {
            _ = self.access.changes.changed() => self.access.changes.mark_changed(),
            _ = self.subscription.changed() => {}
            () = self.alarm.as_mut() => {}
            _ = self.draining.wait_for(|draining| *draining) => {}
        }
    }
}
